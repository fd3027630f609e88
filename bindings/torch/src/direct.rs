//! The virtual functions with which PyTorch's allocator allocates and frees.
//!
//! PyTorch's own ones call through function objects, and keep a second list of what is live under a lock. With these in their place an
//! allocation is one call, and a tensor frees its memory by one.
#![expect(unsafe_code, reason = "is called by C++ code, and calls it")]
use crate::exports::omniheap_torch_alloc;
use crate::loaded::Loaded;
use crate::raise::{Kind, throw};
use crate::state::{self, on};
use core::ffi::{c_int, c_void};
use core::ptr;
use std::sync::OnceLock;

/// Mangled names of the functions that are replaced, each with what replaces it.
pub(crate) fn answers(torch: &Loaded) -> Option<[(usize, usize); 5]> {
    let pair = |name, new: *const ()| Some((torch.symbol(name)?.addr(), new.addr()));
    Some([
        pair(
            c"_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator8allocateEm",
            allocate as *const (),
        )?,
        pair(
            c"_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator9raw_allocEm",
            raw_alloc as *const (),
        )?,
        pair(
            c"_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator21raw_alloc_with_streamEmP11CUstream_st",
            raw_alloc_with_stream as *const (),
        )?,
        pair(
            c"_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator10raw_deleteEPv",
            raw_delete as *const (),
        )?,
        pair(
            c"_ZNK5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator11raw_deleterEv",
            raw_deleter as *const (),
        )?,
    ])
}

/// A `c10::cuda::CUDAStream`: a device, and a number.
type Stream = [u64; 2];

/// PyTorch's functions that say where a thread is.
pub(crate) struct Place {
    device: unsafe extern "C" fn(*mut i8) -> c_int,
    stream: unsafe extern "C" fn(i8) -> Pair,
    handle: unsafe extern "C" fn(*const Pair) -> *mut c_void,
}

/// Sixteen bytes that C++ returns in two registers.
#[repr(C)]
#[derive(Clone, Copy)]
struct Pair(Stream);

static PLACE: OnceLock<Place> = OnceLock::new();

impl Place {
    /// Finds what the functions here call; nothing where this PyTorch is one that this was not made for.
    pub(crate) fn find(base: &Loaded) -> Option<Self> {
        Some(Self {
            // SAFETY: the mangled name spells out the parameter; it returns CUDA's error code.
            device: unsafe { base.function(c"_ZN3c104cuda9GetDeviceEPa") }?,
            // SAFETY: as above; a stream is a device's number and kind and a 64-bit id, and can be copied byte by byte.
            stream: unsafe { base.function(c"_ZN3c104cuda20getCurrentCUDAStreamEa") }?,
            // SAFETY: as above; it returns CUDA's handle of the stream.
            handle: unsafe { base.function(c"_ZNK3c104cuda10CUDAStream6streamEv") }?,
        })
    }

    /// From now on PyTorch's allocator allocates here.
    pub(crate) fn keep(self) -> Option<()> {
        PLACE.set(self).ok()
    }
}

/// Returns true if PyTorch's allocator allocates here.
pub(crate) fn is_used() -> bool {
    PLACE.get().is_some()
}

/// A `c10::DataPtr`: an address, who frees it and with which argument, and the device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataPtr {
    address: usize,
    deleter: usize,
    context: usize,
    device_type: i8,
    device: i8,
}

impl DataPtr {
    /// Returns the pointer that a tensor keeps to free these bytes.
    pub(crate) fn new(address: usize, device: i8) -> Self {
        /// `c10::DeviceType::CUDA`.
        const CUDA: i8 = 1;
        let deleter = (delete as *const ()).addr();
        Self { address, deleter, context: address, device_type: CUDA, device }
    }
}

/// The device of this thread.
///
/// # Safety
///
/// As for [`throw`].
unsafe fn current_device() -> i8 {
    let mut device = -1;
    // SAFETY: a valid out-pointer, and PyTorch's own function.
    let code = PLACE.get().map_or(-1, |place| unsafe { (place.device)(&raw mut device) });
    if code != 0 {
        // SAFETY: the caller's promise.
        unsafe {
            throw(
                Kind::Error,
                format!("cudaGetDevice failed with code {code}; is there a GPU and a driver?"),
            );
        };
    }
    device
}

/// The stream of this thread on a device.
fn current_stream(device: i8) -> *mut c_void {
    PLACE.get().map_or(ptr::null_mut(), |place| {
        // SAFETY: PyTorch's own function, for the device that it named.
        let stream = unsafe { (place.stream)(device) };
        // SAFETY: the stream that it returned.
        unsafe { (place.handle)(&raw const stream) }
    })
}

/// # Safety
///
/// PyTorch calls it, and `stream` is a live stream of the device.
unsafe fn take(size: usize, device: i8, stream: *mut c_void) -> *mut c_void {
    // A size beyond the half of all is a product that overflowed; so says a negative one.
    let size = isize::try_from(size).unwrap_or(-1);
    // SAFETY: the caller's promise.
    unsafe { omniheap_torch_alloc(size, c_int::from(device), stream) }
}

unsafe extern "C-unwind" fn allocate(_: *mut c_void, size: usize) -> DataPtr {
    // SAFETY: PyTorch called, and this function lets exceptions pass.
    let device = unsafe { current_device() };
    // SAFETY: as above; the stream is PyTorch's.
    let pointer = unsafe { take(size, device, current_stream(device)) };
    DataPtr::new(pointer.addr(), device)
}

unsafe extern "C-unwind" fn raw_alloc(_: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: as in `allocate`.
    let device = unsafe { current_device() };
    // SAFETY: as in `allocate`.
    unsafe { take(size, device, current_stream(device)) }
}

unsafe extern "C-unwind" fn raw_alloc_with_stream(
    _: *mut c_void,
    size: usize,
    stream: *mut c_void,
) -> *mut c_void {
    // SAFETY: as in `allocate`.
    let device = unsafe { current_device() };
    // SAFETY: as in `allocate`; the stream is the caller's, who promises PyTorch that it lives.
    unsafe { take(size, device, stream) }
}

unsafe extern "C-unwind" fn raw_delete(_: *mut c_void, pointer: *mut c_void) {
    // SAFETY: PyTorch called.
    unsafe { delete(pointer) };
}

unsafe extern "C" fn raw_deleter(_: *const c_void) -> usize {
    (delete as *const ()).addr()
}

/// Frees what a tensor had.
unsafe extern "C-unwind" fn delete(pointer: *mut c_void) {
    if pointer.is_null() {
        return;
    }
    let address = pointer.addr() as u64;
    let mut is_live = false;
    let code = crate::guard::guarded(|| {
        is_live = state::opened().any(|device| on!(device, it => it.free_if_live(address)));
        Ok(())
    });
    if code == 0 && !is_live {
        // SAFETY: PyTorch called, and this function lets exceptions pass; its own one throws the same.
        unsafe { throw(Kind::Error, "Trying to free a pointer not allocated here".into()) };
    }
}
