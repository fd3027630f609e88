//! Weights files for Python: opened by a handle, listed as JSON, loaded to plain addresses of any allocator.
#![expect(unsafe_code, reason = "exports C functions, and writes where the caller says")]
use crate::figures::shown;
use crate::guard::{failed, guarded, text};
use crate::lock;
use crate::state::{self, on};
use core::ffi::{c_char, c_int, c_void};
use core::ops::{ControlFlow, Deref};
use core::sync::atomic::{AtomicU64, Ordering};
use core::{ptr, slice};
use omniheap::cuda::Cuda;
use omniheap::hip::Hip;
use omniheap::host::Host;
use omniheap::seam::BlockOffset;
use omniheap::weights::{Destination, Load, LoadWeights, Progress, Tensor, WeightsFile, arrange};
use omniheap::{Align, Backend, Manager};
use omniheap_stream::{Block, Device, Driver};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

/// Called with bytes that have arrived, bytes in total and the caller's word; anything but zero cancels the load.
pub type Report = unsafe extern "C" fn(done: u64, total: u64, user: *mut c_void) -> c_int;

/// Open files by handle.
static OPEN: Mutex<BTreeMap<u64, Arc<WeightsFile>>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(1);

fn find(handle: u64) -> Result<Arc<WeightsFile>, String> {
    let found = lock(&OPEN).get(&handle).cloned();
    found.ok_or_else(|| format!("{handle} is no open weights file; open it first"))
}

/// Opens weights files, named in a JSON list; returns a handle, or 0 and a text for `omniheap_torch_error`. `count` gets the number of
/// tensors.
///
/// # Safety
///
/// `paths` is null or a C string, and a number may be written to `count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_torch_weights_open(paths: *const c_char, count: *mut u64) -> u64 {
    let mut handle = 0;
    guarded(|| {
        // SAFETY: the caller's promise.
        let paths = unsafe { text(paths, "paths") }?;
        let paths: Vec<String> = serde_json::from_str(paths)
            .map_err(|error| format!("paths are no JSON list of texts: {error}"))?;
        let file = WeightsFile::open(&paths).map_err(|error| error.to_string())?;
        // SAFETY: as above.
        unsafe { count.write(file.tensors().len() as u64) };
        handle = NEXT.fetch_add(1, Ordering::Relaxed);
        lock(&OPEN).insert(handle, Arc::new(file));
        Ok(())
    });
    handle
}

/// Closes weights files.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_weights_close(handle: u64) -> c_int {
    guarded(|| {
        find(handle)?;
        lock(&OPEN).remove(&handle);
        Ok(())
    })
}

/// Lists the tensors as JSON: their names in the order of the files, and their forms, each with type, shape, elements of a block, bytes of a
/// block, and bytes. Files have few forms, so that Python makes objects for these and none for each tensor. `forms` gets the number of each
/// tensor's form, and `count` is the number of tensors. Null on failure.
///
/// # Safety
///
/// `count` numbers may be written to `forms`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_torch_weights_list(
    handle: u64,
    forms: *mut u64,
    count: usize,
) -> *const c_char {
    shown(|| {
        let file = find(handle)?;
        let tensors = file.tensors();
        if count != tensors.len() {
            return Err(format!("there are {} tensors; make room for them", tensors.len()));
        }
        let (examples, form_of) = forms_of(tensors);
        // SAFETY: the caller's promise; nothing is written where there is no tensor.
        unsafe { ptr::copy(form_of.as_ptr(), forms, count) };
        let form = |tensor: &Tensor| {
            let (elements, bytes) = tensor.dtype.block();
            (tensor.dtype.name(), tensor.shape.to_vec(), elements, bytes, tensor.size)
        };
        let forms: Vec<_> = examples.into_iter().map(form).collect();
        let names: Vec<_> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        serde_json::to_string(&(names, forms)).map_err(|error| error.to_string())
    })
}

/// Returns a tensor of each form, and the number of each tensor's form.
fn forms_of(tensors: &[Tensor]) -> (Vec<&Tensor>, Vec<u64>) {
    let (mut examples, mut known) = (Vec::new(), HashMap::new());
    let mut form_of = Vec::with_capacity(tensors.len());
    for (at, tensor) in tensors.iter().enumerate() {
        let is_like = |other: &Tensor| (other.dtype, &other.shape) == (tensor.dtype, &tensor.shape);
        if at > 0 && is_like(&tensors[at - 1]) {
            form_of.push(form_of[at - 1]);
            continue;
        }
        let form = *known.entry((tensor.dtype, &*tensor.shape)).or_insert_with(|| {
            examples.push(tensor);
            examples.len() as u64 - 1
        });
        form_of.push(form);
    }
    (examples, form_of)
}

/// Arranges tensors in buffers, small ones together: JSON with the bytes of each buffer, and how many tensors are in it. `wanted` gets what
/// `omniheap_torch_weights_load` takes. Null on failure.
///
/// # Safety
///
/// `tensors` points to `count` numbers, or is null for the first `count`, and as many entries may be written to `wanted`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_torch_weights_arrange(
    handle: u64,
    tensors: *const u64,
    count: usize,
    wanted: *mut Wanted,
) -> *const c_char {
    shown(|| {
        let file = find(handle)?;
        let numbers: Cow<'_, [u64]> = if tensors.is_null() {
            (0..count as u64).collect()
        } else {
            // SAFETY: the caller's promise.
            unsafe { list(tensors, count) }.into()
        };
        let tensors: Result<Vec<_>, _> =
            numbers.iter().map(|number| tensor(&file, *number)).collect();
        let tensors = tensors?;
        let found = arrange(&tensors, Align::ONE);
        let mut counts = vec![0_u64; found.sizes.len()];
        for ((at, tensor), spot) in tensors.iter().enumerate().zip(&found.spots) {
            if tensor.size > 0 {
                counts[spot.group] += 1;
            }
            let (buffer, offset) = (spot.group as u64, spot.offset);
            // SAFETY: the caller's promise, and `at` is below `count`.
            let entry = unsafe { wanted.add(at) };
            // SAFETY: as above.
            unsafe { entry.write(Wanted { tensor: numbers[at], buffer, offset }) };
        }
        serde_json::to_string(&(found.sizes, counts)).map_err(|error| error.to_string())
    })
}

fn tensor(file: &WeightsFile, number: u64) -> Result<&Tensor, String> {
    let found = usize::try_from(number).ok().and_then(|number| file.tensors().get(number));
    found.ok_or_else(|| format!("there is no tensor number {number}; list them first"))
}

/// # Safety
///
/// `start` points to `count` values that stay as they are.
unsafe fn list<'a, T>(start: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(start, count) }
}

/// Memory to load to.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// First byte: an address of the device, or of the host.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// A tensor to load. One of no bytes needs no buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Number of the tensor.
    pub tensor: u64,
    /// Number of the buffer.
    pub buffer: u64,
    /// First byte in the buffer.
    pub offset: u64,
}

/// A request, checked.
struct Order<'a> {
    file: &'a WeightsFile,
    buffers: &'a [Buffer],
    wanted: Vec<(&'a Tensor, &'a Wanted)>,
    report: Option<Report>,
    user: *mut c_void,
}

/// Loads tensors to buffers of a device of `backend` ("cuda", "hip" or "host"). The bytes are there when it returns.
///
/// # Safety
///
/// - `backend` is null or a C string; the pointers point to as many values as their counts say.
/// - Every buffer is live memory of the device, or of the host, that nothing else uses during the call.
/// - `report` is null or may be called with `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_torch_weights_load(
    handle: u64,
    backend: *const c_char,
    device: c_int,
    buffers: *const Buffer,
    buffer_count: usize,
    wanted: *const Wanted,
    wanted_count: usize,
    report: Option<Report>,
    user: *mut c_void,
) -> c_int {
    guarded(|| {
        let file = find(handle)?;
        // SAFETY: the caller's promise.
        let backend = unsafe { text(backend, "backend") }?;
        // SAFETY: as above.
        let buffers = unsafe { list(buffers, buffer_count) };
        // SAFETY: as above.
        let wanted = unsafe { list(wanted, wanted_count) };
        let wanted = checked(&file, buffers, wanted)?;
        let order = Order { file: &file, buffers, wanted, report, user };
        let ordinal = u32::try_from(device).map_err(|_| format!("{device} is no device"))?;
        match backend {
            // SAFETY: the caller's promise.
            "cuda" => unsafe { order.load_to_device(manager(&CUDA, ordinal, Cuda::open)?) },
            // SAFETY: as above.
            "hip" => unsafe { order.load_to_device(manager(&HIP, ordinal, Hip::open)?) },
            // SAFETY: as above.
            "host" => unsafe { order.load_to_host(manager(&HOST, 0, |_| Ok(Host::new()))?) },
            other => Err(format!("unknown backend {other:?}; choose cuda, hip or host")),
        }
    })
}

/// Remembers for `sleep` to "origin" what buffers were loaded from: those that are whole allocations of this library, which tensors
/// fill. Returns how many were, or -1.
///
/// # Safety
///
/// The pointers point to as many values as their counts say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_torch_weights_remember(
    handle: u64,
    buffers: *const Buffer,
    buffer_count: usize,
    wanted: *const Wanted,
    wanted_count: usize,
) -> c_int {
    let mut count = 0;
    let code = guarded(|| {
        let file = find(handle)?;
        if state::opened().next().is_none() {
            // All memory is of others.
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let buffers = unsafe { list(buffers, buffer_count) };
        // SAFETY: as above.
        let wanted = unsafe { list(wanted, wanted_count) };
        let mut tensors = vec![Vec::new(); buffers.len()];
        for (_, one) in checked(&file, buffers, wanted)? {
            tensors[index(one.buffer)].push((index(one.tensor), one.offset));
        }
        for (buffer, tensors) in buffers.iter().zip(&tensors) {
            let at = (buffer.address, buffer.size);
            let remembers =
                state::opened().any(|any| on!(any, it => it.remember(at, &file, tensors)));
            count += c_int::from(remembers);
        }
        Ok(())
    });
    if code == 0 { count } else { code }
}

/// Forgets what the bytes at an address were loaded from, because they were written since: a sleep copies them. Returns whether it was
/// known.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_weights_forget(address: u64) -> c_int {
    let mut was_known = false;
    guarded(|| {
        was_known = state::opened().any(|any| on!(any, it => it.forget(address)));
        Ok(())
    });
    c_int::from(was_known)
}

type Managers<B> = Mutex<BTreeMap<u32, Manager<B>>>;
static CUDA: Managers<Cuda> = Mutex::new(BTreeMap::new());
static HIP: Managers<Hip> = Mutex::new(BTreeMap::new());
static HOST: Managers<Host> = Mutex::new(BTreeMap::new());

/// A manager for the ring of loads to a device. It is kept, so that the next load has pinned memory at once.
fn manager<B: Backend>(
    managers: &Managers<B>,
    ordinal: u32,
    open: impl FnOnce(u32) -> omniheap::seam::Result<B>,
) -> Result<Manager<B>, String> {
    let mut managers = lock(managers);
    if let Some(found) = managers.get(&ordinal) {
        return Ok(found.clone());
    }
    let opened = Manager::new(open(ordinal).map_err(failed("opening the device"))?);
    managers.insert(ordinal, opened.clone());
    Ok(opened)
}

/// Refuses numbers that name nothing, and tensors that leave their buffer. Returns what has bytes.
fn checked<'a>(
    file: &'a WeightsFile,
    buffers: &[Buffer],
    wanted: &'a [Wanted],
) -> Result<Vec<(&'a Tensor, &'a Wanted)>, String> {
    let mut found = Vec::with_capacity(wanted.len());
    for wanted in wanted {
        let tensor = tensor(file, wanted.tensor)?;
        if tensor.size == 0 {
            continue;
        }
        let buffer = usize::try_from(wanted.buffer).ok().and_then(|at| buffers.get(at));
        let buffer =
            buffer.ok_or_else(|| format!("there is no buffer number {}", wanted.buffer))?;
        if buffer.address == 0 {
            return Err(format!(
                "tensor {:?}: buffer number {} has no memory (address 0); pass memory that this process has, of a tensor in parts its own part",
                tensor.name, wanted.buffer
            ));
        }
        if wanted.offset.checked_add(tensor.size).is_none_or(|end| end > buffer.size) {
            return Err(format!(
                "tensor {:?} has {} bytes, and its buffer {} from byte {} on; make it larger",
                tensor.name, tensor.size, buffer.size, wanted.offset
            ));
        }
        found.push((tensor, wanted));
    }
    Ok(found)
}

impl<'a> Order<'a> {
    fn settings<B: Backend>(&self) -> Load<'_, B> {
        let (report, user) = (self.report, self.user);
        Load::new().progress(move |Progress { done, total }| match report {
            // SAFETY: `omniheap_torch_weights_load`'s caller promises that it may be called so.
            Some(report) if unsafe { report(done, total, user) } != 0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        })
    }

    /// # Safety
    ///
    /// The buffers are live memory of the manager's device that nothing else uses.
    unsafe fn load_to_device<B, D>(&self, manager: Manager<B>) -> Result<(), String>
    where
        B: Backend<Block = Block<D::Kind>> + Deref<Target = Device<D>>,
        D: Driver,
    {
        let backend = manager.backend();
        // SAFETY: the caller's promise.
        let borrow = |buffer: &Buffer| unsafe { backend.borrow(buffer.address, buffer.size) };
        let blocks: Result<Vec<_>, _> = self.buffers.iter().map(borrow).collect();
        let blocks = blocks.map_err(failed("load"))?;
        let destination = |&(tensor, wanted): &(&'a Tensor, &'a Wanted)| {
            let block = &blocks[index(wanted.buffer)];
            let place = BlockOffset { block, offset: wanted.offset };
            (tensor.name.as_str(), Destination::Block(place, block.size() - wanted.offset))
        };
        let to = self.wanted.iter().map(destination).collect();
        let loaded = manager.load_weights_to(self.file, to, &self.settings());
        blocks.into_iter().for_each(|block| {
            // SAFETY: the load has waited for its copies, and borrowed blocks are only counted out.
            let _ = unsafe { backend.free(block) };
        });
        loaded.map_err(|error| error.to_string())
    }

    /// # Safety
    ///
    /// The buffers are live host memory that nothing else uses.
    unsafe fn load_to_host(&self, manager: Manager<Host>) -> Result<(), String> {
        let destination = |&(tensor, wanted): &(&'a Tensor, &'a Wanted)| {
            let address = self.buffers[index(wanted.buffer)].address + wanted.offset;
            let start = ptr::with_exposed_provenance_mut::<u8>(index(address));
            // SAFETY: `checked` saw the tensor inside its buffer, which is at no null address and is the caller's to lend.
            let bytes = unsafe { slice::from_raw_parts_mut(start.cast(), index(tensor.size)) };
            (tensor.name.as_str(), Destination::Unwritten(bytes))
        };
        let to = self.wanted.iter().map(destination).collect();
        manager.load_weights_to(self.file, to, &self.settings()).map_err(|error| error.to_string())
    }
}

/// A number that was checked to lie inside memory or a list.
fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
