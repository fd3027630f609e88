//! Weights files: what is in them, and loading them into memory that the caller has.
#![expect(unsafe_code, reason = "exports C functions")]
use crate::handle::{ALLOCATIONS, Bytes, Holder, OmniheapAllocation, OmniheapManager, holder};
use crate::sized::{empty, fill, grows};
use crate::status::{Failure, OmniheapStatus, call, check, check_many, put, text};
use crate::table::{Kind, Table};
use core::ffi::{c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ops::ControlFlow;
use core::slice;
use omniheap::AnyBackend;
use omniheap::weights::{
    Destination, Error, ErrorKind, Load, LoadWeights as _, Tensor, WeightsFile,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Weights files that are open together. Zero is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OmniheapWeights {
    /// Opaque.
    pub id: u64,
}

/// A tensor of weights files. The pointers are good until the files are closed. Start from `omniheap_tensor_default`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OmniheapTensor {
    /// Bytes of this struct, which `omniheap_tensor_default` sets.
    pub struct_size: usize,
    /// Its name.
    pub name: *const c_char,
    /// The type of its elements, as safetensors and GGUF write it: `F32`, `BF16`, `Q4_K`.
    pub dtype: *const c_char,
    /// Its shape, slowest dimension first.
    pub shape: *const u64,
    /// Dimensions of the shape.
    pub dimensions: usize,
    /// Bytes that it has in memory.
    pub bytes: u64,
}

grows!(filled OmniheapTensor to bytes: "tensor" from "omniheap_tensor_default");

/// Destination of a tensor: an allocation, or host memory where `allocation` is zero.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OmniheapWeightsTarget {
    /// The tensor's name.
    pub name: *const c_char,
    /// The allocation.
    pub allocation: OmniheapAllocation,
    /// Offset of the tensor in the allocation.
    pub offset: u64,
    /// Host memory, where there is no allocation.
    pub host: *mut c_void,
    /// Bytes that `host` has.
    pub capacity: usize,
}

/// Hears of a load: bytes that have arrived, bytes in total, and the caller's pointer. It runs on the caller's thread; anything but 0 cancels the load.
pub type OmniheapProgress =
    Option<unsafe extern "C" fn(done: u64, total: u64, user: *mut c_void) -> c_int>;

/// Open files, with each tensor's name and type as C strings.
struct Files {
    file: WeightsFile,
    texts: Texts,
}

/// Zero-terminated strings in one buffer: no allocation per tensor.
#[derive(Default)]
struct Texts {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Texts {
    fn add(&mut self, text: &str) {
        self.starts.push(self.bytes.len());
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
    }

    fn get(&self, number: usize) -> *const c_char {
        self.bytes[self.starts[number]..].as_ptr().cast()
    }
}

impl Files {
    /// The number of the tensor with a name.
    fn number(&self, name: &str) -> Result<usize, Failure> {
        self.file.number(name).ok_or_else(|| {
            let why = format!("no file has a tensor {name:?}");
            Failure::new(OmniheapStatus::NoSuchTensor, why)
        })
    }
}

static WEIGHTS: Table<Files> = Table::new(Kind::Weights);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::NoSuchTensor(_) => OmniheapStatus::NoSuchTensor,
            ErrorKind::Cancelled => OmniheapStatus::Cancelled,
            ErrorKind::DestinationSize { .. } => OmniheapStatus::OutOfRange,
            ErrorKind::Destination { error, .. } | ErrorKind::Device(error) => error.kind().into(),
            ErrorKind::Allocate(error) => error.kind().into(),
            _ => OmniheapStatus::BadFile,
        };
        Self::new(status, error.to_string())
    }
}

/// A slice of the caller; an empty one may be null.
///
/// # Safety
///
/// `pointer` is null, or not aligned, or `count` items may be read there for `'a`.
unsafe fn items<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    check_many(pointer, count, name)?;
    // SAFETY: not null, aligned and not too long, and otherwise the caller's promise.
    Ok(unsafe { slice::from_raw_parts(pointer, count) })
}

/// Opens weights files together: safetensors, an `index.json` that names some, GGUF, or PyTorch's zip files. Headers are checked, no data is read, and no code of
/// a file runs. `BAD_FILE` where one cannot be read or makes no sense; `omniheap_error` says which and why.
///
/// # Safety
///
/// `paths` is null or has `count` pointers, each null or a C string; `weights` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_weights_open(
    paths: *const *const c_char,
    count: usize,
    weights: *mut OmniheapWeights,
) -> OmniheapStatus {
    call(|| {
        check(weights, "weights")?;
        // SAFETY: the caller's promise.
        let paths = unsafe { items(paths, count, "paths") }?;
        // SAFETY: as above.
        let paths = paths.iter().map(|path| unsafe { text(*path, "a path") });
        let file = WeightsFile::open(&paths.collect::<Result<Vec<_>, _>>()?)?;
        let mut texts = Texts::default();
        for tensor in file.tensors() {
            texts.add(&tensor.name);
            texts.add(tensor.dtype.name());
        }
        let id = WEIGHTS.insert(Files { file, texts })?;
        // SAFETY: the caller's promise.
        unsafe { put(weights, OmniheapWeights { id }, "weights") }
    })
}

/// Closes weights files; what was loaded stays. Where another thread is in a call with them, they are closed when that call ends.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_weights_close(weights: OmniheapWeights) -> OmniheapStatus {
    call(|| WEIGHTS.remove(weights.id).map(drop))
}

/// Says how many tensors the files have.
///
/// # Safety
///
/// `count` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_weights_count(
    weights: OmniheapWeights,
    count: *mut usize,
) -> OmniheapStatus {
    call(|| {
        let found = WEIGHTS.get(weights.id)?.file.tensors().len();
        // SAFETY: the caller's promise.
        unsafe { put(count, found, "count") }
    })
}

/// Describes a tensor by its number, in the order of the files.
///
/// # Safety
///
/// `tensor` is null, or starts with its size and may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_weights_tensor(
    weights: OmniheapWeights,
    number: usize,
    tensor: *mut OmniheapTensor,
) -> OmniheapStatus {
    call(|| {
        let files = WEIGHTS.get(weights.id)?;
        let Some(of) = files.file.tensors().get(number) else {
            let why = format!("there is no tensor {number}; ask omniheap_weights_count");
            return Err(Failure::new(OmniheapStatus::NoSuchTensor, why));
        };
        let found = OmniheapTensor {
            name: files.texts.get(2 * number),
            dtype: files.texts.get(2 * number + 1),
            shape: of.shape.as_ptr(),
            dimensions: of.shape.len(),
            bytes: of.size,
            ..empty()
        };
        // SAFETY: the caller's promise.
        unsafe { fill(tensor, &found) }
    })
}

/// Loads tensors into allocations of the manager, or into host memory. The bytes have arrived when the call returns, for every timeline.
///
/// `NO_SUCH_TENSOR`, `OUT_OF_RANGE` (a target is too small), `FOREIGN` (an allocation of another manager) and `OVERLAP` (two targets share host memory) before anything is
/// written. After another failure, or once `progress` cancelled the load, allocations and host memory hold any mixture of old and new bytes.
///
/// # Safety
///
/// `targets` is null or has `count` entries, whose names are null or C strings, and whose host memory may be written by this call alone. `progress` is null or may be
/// called with `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_weights_load(
    manager: OmniheapManager,
    weights: OmniheapWeights,
    targets: *const OmniheapWeightsTarget,
    count: usize,
    progress: OmniheapProgress,
    user: *mut c_void,
) -> OmniheapStatus {
    call(|| {
        let (holder, files) = (holder(manager)?, WEIGHTS.get(weights.id)?);
        // SAFETY: the caller's promise.
        let targets = unsafe { items(targets, count, "targets") }?;
        // SAFETY: as above.
        let found = |target| unsafe { Found::of(target, &holder, &files) };
        let found = targets.iter().map(found).collect::<Result<Vec<_>, _>>()?;
        check_apart(&found)?;
        // SAFETY: as above; the targets are apart.
        let destinations = found.iter().map(|one| unsafe { one.destination() }).collect();
        let report = |now: omniheap::weights::Progress| {
            // SAFETY: the caller's promise.
            match progress.map_or(0, |report| unsafe { report(now.done, now.total, user) }) {
                0 => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        };
        let load = Load::<AnyBackend>::new().progress(report);
        Ok(holder.manager.load_weights_to(&files.file, destinations, &load)?)
    })
}

/// Remembers that allocations have tensors of these files, as `omniheap_weights_load` put them there, so that a sleep with `OMNIHEAP_STORE_ORIGIN` copies none of them: a wake
/// reads the files again. The allocations are final from now on: writes fail with `PUBLISHED`. Targets in host memory are passed over. Name all tensors of an allocation
/// in one call: bytes between them come back as zeros.
///
/// `NO_SUCH_TENSOR`, `OUT_OF_RANGE` (a tensor does not end inside its allocation) and `FOREIGN` (an allocation of another manager) before anything is remembered.
///
/// # Safety
///
/// `targets` is null or has `count` entries, whose names are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_weights_remember(
    manager: OmniheapManager,
    weights: OmniheapWeights,
    targets: *const OmniheapWeightsTarget,
    count: usize,
) -> OmniheapStatus {
    call(|| {
        let (holder, files) = (holder(manager)?, WEIGHTS.get(weights.id)?);
        // SAFETY: the caller's promise.
        let targets = unsafe { items(targets, count, "targets") }?;
        let mut known: BTreeMap<u64, Remembered> = BTreeMap::new();
        for target in targets.iter().filter(|target| target.allocation.id != 0) {
            // SAFETY: as above.
            let Found { number, held, .. } = unsafe { Found::of(target, &holder, &files) }?;
            let Some(held) = held else { continue };
            let (_, tensors) = known.entry(target.allocation.id).or_insert((held, Vec::new()));
            tensors.push((number, target.offset));
        }
        for (held, tensors) in known.into_values() {
            held.allocation().publish()?;
            let (id, is_live) = (held.allocation().id(), Arc::downgrade(&held));
            let is_live = move || is_live.strong_count() > 0;
            holder.origin.remember_final(id, &files.file, &tensors, is_live);
        }
        Ok(())
    })
}

/// An allocation, and the numbers of the tensors in it with where they begin.
type Remembered = (Arc<Bytes>, Vec<(usize, u64)>);

/// A target whose tensor is known, and fits.
struct Found<'a> {
    target: &'a OmniheapWeightsTarget,
    number: usize,
    tensor: &'a Tensor,
    /// Its allocation, of the same manager; none for host memory.
    held: Option<Arc<Bytes>>,
}

impl<'a> Found<'a> {
    /// # Safety
    ///
    /// The target's name is null or a C string.
    unsafe fn of(
        target: &'a OmniheapWeightsTarget,
        holder: &Arc<Holder>,
        files: &'a Files,
    ) -> Result<Self, Failure> {
        let held = match target.allocation.id {
            0 => None,
            id => Some(ALLOCATIONS.get(id)?),
        };
        // SAFETY: the caller's promise.
        let name = unsafe { text(target.name, "target.name") }?;
        if held.as_ref().is_some_and(|held| !Arc::ptr_eq(held.owner.holder(), holder)) {
            return Err(omniheap::ErrorKind::Foreign.into());
        }
        let number = files.number(name)?;
        let found = Self { target, number, tensor: &files.file.tensors()[number], held };
        found.check_size()?;
        Ok(found)
    }

    fn check_size(&self) -> Result<(), Failure> {
        let (has, offset) = match &self.held {
            Some(held) => (held.allocation().size(), self.target.offset),
            None => (self.target.capacity as u64, 0),
        };
        let Tensor { name, size, .. } = self.tensor;
        if offset.checked_add(*size).is_none_or(|end| end > has) {
            let why = format!("{name:?} has {size} bytes and begins at {offset} of {has}");
            return Err(Failure::new(OmniheapStatus::OutOfRange, why));
        }
        if self.held.is_none() && *size > 0 {
            check_many(self.target.host.cast::<u8>(), self.target.capacity, "target.host")?;
        }
        Ok(())
    }

    /// Returns the start and the end of the tensor in host memory, where it goes there.
    fn in_host(&self) -> Option<(usize, usize)> {
        let start = self.target.host.addr();
        // No more than the capacity, so it fits.
        let size = usize::try_from(self.tensor.size).unwrap_or(usize::MAX);
        (self.held.is_none() && size > 0).then(|| (start, start.saturating_add(size)))
    }

    /// The tensor's name, and where it goes. Nothing is written yet: the load may still refuse its destinations.
    ///
    /// # Safety
    ///
    /// Host memory of the target may be written by the caller of this function alone.
    unsafe fn destination(&self) -> (&str, Destination<'_, AnyBackend>) {
        let destination = match (&self.held, self.in_host()) {
            (Some(held), _) => Destination::Allocation(held.allocation(), self.target.offset),
            (None, None) => Destination::Unwritten(&mut []),
            (None, Some((start, end))) => {
                let host = self.target.host.cast::<MaybeUninit<u8>>();
                // SAFETY: `check_size` saw that it is not null and has as much; otherwise the caller's promise. Any byte will do.
                Destination::Unwritten(unsafe { slice::from_raw_parts_mut(host, end - start) })
            }
        };
        (&*self.tensor.name, destination)
    }
}

/// Refuses targets that share host memory.
fn check_apart(found: &[Found<'_>]) -> Result<(), Failure> {
    let mut parts: Vec<_> = found.iter().filter_map(Found::in_host).collect();
    parts.sort_unstable();
    match parts.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        None => Ok(()),
        Some(_) => {
            let why = "two targets share host memory; give each tensor bytes of its own";
            Err(Failure::new(OmniheapStatus::Overlap, why))
        }
    }
}
