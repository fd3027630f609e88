//! A library that answers as NVIDIA's management library does, for tests on machines without one. What a device is stands in the first byte of
//! its identity: see `core/limits/tests/nvml.rs`.
#![expect(unsafe_code, reason = "exports C functions")]

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr;

const GIB: u64 = 1 << 30;
const INVALID_ARGUMENT: c_int = 2;
const NOT_SUPPORTED: c_int = 3;
const NOT_FOUND: c_int = 6;
const INSUFFICIENT_SIZE: c_int = 7;
const GPU_IS_LOST: c_int = 15;

/// Starts the library.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_int {
    0
}

/// Finds a device: identities that begin with 1, 3, 4 and 5 are GPUs, those with 2 are MIG instances.
///
/// # Safety
/// `uuid` is a C string, and `device` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByUUID(
    uuid: *const c_char,
    device: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(uuid) }.to_bytes();
    let number = match name {
        b"GPU-01aabbcc-ddee-ff00-1122-334455667788" => 1,
        b"MIG-02aabbcc-ddee-ff00-1122-334455667788" => 2,
        b"GPU-03aabbcc-ddee-ff00-1122-334455667788" => 3,
        b"GPU-04aabbcc-ddee-ff00-1122-334455667788" => 4,
        b"GPU-05aabbcc-ddee-ff00-1122-334455667788" => 5,
        _ => return NOT_FOUND,
    };
    // SAFETY: the caller's promise.
    unsafe { device.write(ptr::without_provenance_mut(number)) };
    0
}

/// Memory of a device: version, total, reserved, free, used.
///
/// # Safety
/// `memory` has the size that its version says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(
    device: *mut c_void,
    memory: *mut [u64; 5],
) -> c_int {
    // SAFETY: the caller's promise; the version is the first half of the first number.
    if unsafe { memory.cast::<c_uint>().read() } != 0x0200_0028 {
        return INVALID_ARGUMENT;
    }
    let (total, reserved) = match device.addr() {
        1 | 3 => (80 * GIB, GIB),
        2 => (10 * GIB, 0),
        // More than there is.
        5 => (GIB, 2 * GIB),
        _ => return GPU_IS_LOST,
    };
    // SAFETY: the caller's promise.
    unsafe { memory.write([0, total, reserved, total - reserved.min(total), 0]) };
    0
}

/// State of the machine: it computes confidentially.
///
/// # Safety
/// `state` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetConfComputeState(state: *mut [c_uint; 3]) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { state.write([2, 1, 0]) };
    0
}

/// Protected and unprotected KiB of a device.
///
/// # Safety
/// `sizes` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetConfComputeMemSizeInfo(
    device: *mut c_void,
    sizes: *mut [u64; 2],
) -> c_int {
    if device.addr() != 3 {
        return NOT_SUPPORTED;
    }
    // SAFETY: the caller's promise.
    unsafe { sizes.write([70 * GIB / 1024, 9 * GIB / 1024]) };
    0
}

/// Finds a device by its number: the first is the GPU whose identity begins with 1, and the second does not tell of processes.
///
/// # Safety
/// `device` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(
    index: c_uint,
    device: *mut *mut c_void,
) -> c_int {
    let number = match index {
        0 => 1,
        1 => 4,
        2 => 5,
        _ => return NOT_FOUND,
    };
    // SAFETY: the caller's promise.
    unsafe { device.write(ptr::without_provenance_mut(number)) };
    0
}

/// A process: its id, bytes, and instances.
#[repr(C)]
#[derive(Debug)]
pub struct Process(c_uint, u64, c_uint, c_uint);

/// Writes processes if there is room for them.
///
/// # Safety
/// `count` may be read and written, and `into` has room for as many processes as it says.
unsafe fn list(
    count: *mut c_uint,
    into: *mut Process,
    all: impl ExactSizeIterator<Item = (c_uint, u64)>,
) -> c_int {
    // SAFETY: the caller's promise.
    let room = unsafe { count.read() } as usize;
    // SAFETY: the caller's promise.
    unsafe { count.write(c_uint::try_from(all.len()).unwrap_or(c_uint::MAX)) };
    if room < all.len() {
        return INSUFFICIENT_SIZE;
    }
    for (at, (pid, bytes)) in all.enumerate() {
        // SAFETY: there is room for more than `at`.
        let place = unsafe { into.add(at) };
        // SAFETY: as above.
        unsafe { place.write(Process(pid, bytes, c_uint::MAX, c_uint::MAX)) };
    }
    0
}

/// Lists processes that compute: two hundred, with the number of their id in MiB.
///
/// # Safety
/// As for [`list`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v2(
    device: *mut c_void,
    count: *mut c_uint,
    into: *mut Process,
) -> c_int {
    let all = (1..201).map(|pid| (pid, u64::from(pid) << 20));
    match device.addr() {
        // SAFETY: the caller's promise.
        1 => unsafe { list(count, into, all) },
        // SAFETY: the caller's promise.
        5 => unsafe { list(count, into, [(1, u64::MAX)].into_iter()) },
        _ => GPU_IS_LOST,
    }
}

/// Lists processes that draw: one that computes too, and has more by that.
///
/// # Safety
/// As for [`list`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v2(
    _: *mut c_void,
    count: *mut c_uint,
    into: *mut Process,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { list(count, into, [(7, 9 << 20), (1000, 1 << 20)].into_iter()) }
}
