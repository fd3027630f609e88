//! The few driver calls that no backend has: sizes before a device is opened, and host memory that is pinned where it is.
#![expect(unsafe_code, reason = "calls the driver")]
use core::ffi::{c_int, c_uint, c_void};
use core::ptr::{self, NonNull};
use libloading::Library;
use omniheap::BackendKind;
use omniheap::residency::PinMemory;
use std::sync::{Arc, OnceLock};

/// Libraries and symbols of one vendor; both vendors have the same calls.
struct Names {
    libraries: &'static [&'static str],
    init: &'static [u8],
    total: &'static [u8],
}

const CUDA: Names = Names {
    libraries: &["libcuda.so.1", "libcuda.so"],
    init: b"cuInit\0",
    total: b"cuDeviceTotalMem_v2\0",
};
const HIP: Names = Names {
    libraries: &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"],
    init: b"hipInit\0",
    total: b"hipDeviceTotalMem\0",
};

/// What was found; kept for the life of the process.
pub(crate) struct Calls {
    init: unsafe extern "C" fn(c_uint) -> c_int,
    total: unsafe extern "C" fn(*mut usize, c_int) -> c_int,
    _library: Library,
}

impl Calls {
    /// The calls of a backend's driver; nothing where it is not here.
    pub(crate) fn of(backend: BackendKind) -> Option<&'static Self> {
        static FOUND: [OnceLock<Option<Calls>>; 2] = [OnceLock::new(), OnceLock::new()];
        let (slot, names) = match backend {
            BackendKind::Cuda => (&FOUND[0], &CUDA),
            BackendKind::Hip => (&FOUND[1], &HIP),
            _ => return None,
        };
        slot.get_or_init(|| Self::load(names)).as_ref()
    }

    fn load(names: &Names) -> Option<Self> {
        // SAFETY: loading a vendor's library runs only its own initialisation.
        let library =
            names.libraries.iter().find_map(|name| unsafe { Library::new(*name) }.ok())?;
        // SAFETY: the signature is the documented one.
        let init = *unsafe { library.get(names.init) }.ok()?;
        // SAFETY: as above; a device is a number, which before an init call fails is its ordinal.
        let total = *unsafe { library.get(names.total) }.ok()?;
        Some(Self { init, total, _library: library })
    }

    /// Bytes of a device, without opening it.
    pub(crate) fn total(&self, ordinal: c_int) -> Option<u64> {
        let mut bytes = 0;
        // SAFETY: zero is the only documented flag.
        if unsafe { (self.init)(0) } != 0 {
            return None;
        }
        // SAFETY: `bytes` is a valid out-pointer; a device that is not there is an error code.
        (unsafe { (self.total)(&raw mut bytes, ordinal) } == 0).then_some(bytes as u64)
    }
}

/// Success, in CUDA.
const DONE: c_int = 0;
/// Pinned for all contexts of the process.
const PORTABLE: c_uint = 1;

/// CUDA's calls that pin memory.
struct PinCalls {
    device: unsafe extern "C" fn(*mut c_int, c_int) -> c_int,
    retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int,
    push: unsafe extern "C" fn(*mut c_void) -> c_int,
    pop: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
    register: unsafe extern "C" fn(*mut c_void, usize, c_uint) -> c_int,
    unregister: unsafe extern "C" fn(*mut c_void) -> c_int,
    _library: Library,
}

impl PinCalls {
    fn get() -> Option<&'static Self> {
        static FOUND: OnceLock<Option<PinCalls>> = OnceLock::new();
        FOUND.get_or_init(Self::load).as_ref()
    }

    fn load() -> Option<Self> {
        // SAFETY: loading a vendor's library runs only its own initialisation.
        let library = CUDA.libraries.iter().find_map(|name| unsafe { Library::new(*name) }.ok())?;
        // SAFETY: the signature is the documented one.
        let device = *unsafe { library.get(b"cuDeviceGet\0") }.ok()?;
        // SAFETY: as above.
        let retain = *unsafe { library.get(b"cuDevicePrimaryCtxRetain\0") }.ok()?;
        // SAFETY: as above.
        let push = *unsafe { library.get(b"cuCtxPushCurrent_v2\0") }.ok()?;
        // SAFETY: as above.
        let pop = *unsafe { library.get(b"cuCtxPopCurrent_v2\0") }.ok()?;
        // SAFETY: as above.
        let register = *unsafe { library.get(b"cuMemHostRegister_v2\0") }.ok()?;
        // SAFETY: as above.
        let unregister = *unsafe { library.get(b"cuMemHostUnregister\0") }.ok()?;
        Some(Self { device, retain, push, pop, register, unregister, _library: library })
    }

    /// The context that a device's programs share. It is kept for the life of the process, as PyTorch does.
    fn context(&self, ordinal: c_int) -> Option<*mut c_void> {
        let (mut device, mut context) = (0, ptr::null_mut());
        // SAFETY: a valid out-pointer; a number that no device has is an error code.
        if unsafe { (self.device)(&raw mut device, ordinal) } != DONE {
            return None;
        }
        // SAFETY: a valid out-pointer, and the device that was found.
        (unsafe { (self.retain)(&raw mut context, device) } == DONE).then_some(context)
    }
}

/// Pins host memory with CUDA.
pub(crate) struct Pinner {
    calls: &'static PinCalls,
    /// The device's context, by its address.
    context: usize,
}

impl core::fmt::Debug for Pinner {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pinner").finish_non_exhaustive()
    }
}

impl Pinner {
    /// What pins memory for a device; nothing where its driver does not.
    pub(crate) fn of(backend: BackendKind, ordinal: u32) -> Option<Arc<dyn PinMemory>> {
        let calls = (backend == BackendKind::Cuda).then(PinCalls::get).flatten()?;
        let context = calls.context(c_int::try_from(ordinal).ok()?)?.expose_provenance();
        Some(Arc::new(Self { calls, context }))
    }

    /// Runs a call in the device's context; whether it was done.
    fn within(&self, call: impl FnOnce() -> c_int) -> bool {
        let context = ptr::with_exposed_provenance_mut(self.context);
        // SAFETY: a context that was retained and is never released.
        if unsafe { (self.calls.push)(context) } != DONE {
            return false;
        }
        let code = call();
        let mut popped = ptr::null_mut();
        // SAFETY: a valid out-pointer; it was pushed above.
        let _ = unsafe { (self.calls.pop)(&raw mut popped) };
        code == DONE
    }
}

impl PinMemory for Pinner {
    fn pin(&self, memory: NonNull<[u8]>) -> bool {
        // SAFETY: the memory is mapped, whole pages, and stays so until it is unpinned: `PinMemory`'s contract.
        self.within(|| unsafe {
            (self.calls.register)(memory.as_ptr().cast(), memory.len(), PORTABLE)
        })
    }

    fn unpin(&self, memory: NonNull<[u8]>) {
        // SAFETY: it was registered by `pin`, and is unregistered once. Where that fails, the process keeps it pinned.
        self.within(|| unsafe { (self.calls.unregister)(memory.as_ptr().cast()) });
    }
}
