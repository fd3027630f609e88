//! The few driver calls that no backend has: sizes before a device is opened.
#![expect(unsafe_code, reason = "calls the driver")]
use core::ffi::{c_int, c_uint};
use libloading::Library;
use omniheap::BackendKind;
use std::sync::OnceLock;

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

/// Functions that were found; kept for the life of the process.
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
