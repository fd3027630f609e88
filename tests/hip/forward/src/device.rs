//! Devices: how many, which one, what they say about themselves.

#![expect(unsafe_code, reason = "exports C symbols and calls the CUDA driver")]

use core::ffi::{CStr, c_char, c_int, c_uint};
use core::ptr;

use crate::attribute;
use crate::code::Code;
use crate::cuda::Pointer;
use crate::export::{cu, export, forward};
use crate::properties::{self, Properties};
use crate::state;

/// Version that the library claims; as HIP counts, 7.0.0.
const VERSION: c_int = 70_000_000;

/// Writes where the caller wants the answer.
pub(crate) fn set<T>(out: *mut T, value: T) -> Result<(), Code> {
    if out.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller of the HIP function gave this pointer for its answer, and it is not null.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn hipDriverGetVersion(out: *mut c_int) -> Code {
    state::answer(|| set(out, VERSION))
}

#[unsafe(no_mangle)]
extern "C" fn hipRuntimeGetVersion(out: *mut c_int) -> Code {
    state::answer(|| set(out, VERSION))
}

#[unsafe(no_mangle)]
extern "C" fn hipInit(flags: c_uint) -> Code {
    state::answer(|| if flags == 0 { state::count().map(drop) } else { Err(Code::INVALID_VALUE) })
}

#[unsafe(no_mangle)]
extern "C" fn hipGetDeviceCount(out: *mut c_int) -> Code {
    state::answer(|| {
        let count = state::count();
        set(out, count.unwrap_or(0))?;
        count.map(drop)
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipSetDevice(device: c_int) -> Code {
    state::answer(|| state::choose(device))
}

#[unsafe(no_mangle)]
extern "C" fn hipGetDevice(out: *mut c_int) -> Code {
    state::answer(|| state::count().and_then(|_| set(out, state::current())))
}

/// Finds a function of this library by its name.
#[unsafe(no_mangle)]
extern "C" fn hipGetProcAddress(
    name: *const c_char,
    out: *mut Pointer,
    _version: c_int,
    _flags: u64,
    _status: *mut c_int,
) -> Code {
    state::answer(|| {
        if name.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller of the HIP function gave a C string.
        let name = unsafe { CStr::from_ptr(name) };
        set(out, state::own_function(name).ok_or(Code::NOT_FOUND)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipDeviceGetAttribute(out: *mut c_int, attribute: c_uint, device: c_int) -> Code {
    state::answer(|| set(out, attribute::get(attribute, device)?))
}

#[unsafe(no_mangle)]
extern "C" fn hipGetDevicePropertiesR0600(out: *mut Properties, device: c_int) -> Code {
    state::answer(|| set(out, properties::of(device)?))
}

export! {
    fn hipDeviceGetName(name: *mut c_char, length: c_int, device: c_int) |cuda| {
        cu!(cuda, cuDeviceGetName(name, length, state::known(device)?))
    };

    fn hipDeviceGetUuid(uuid: Pointer, device: c_int) |cuda| {
        cu!(cuda, cuDeviceGetUuid(uuid, state::known(device)?))
    };

    fn hipDeviceGetPCIBusId(text: *mut c_char, length: c_int, device: c_int) |cuda| {
        cu!(cuda, cuDeviceGetPCIBusId(text, length, state::known(device)?))
    };

    fn hipDeviceTotalMem(size: *mut usize, device: c_int) |cuda| {
        cu!(cuda, cuDeviceTotalMem_v2(size, state::known(device)?))
    };
}

export! {
    // The context is retained as before: the next call finds a new one under the same handle.
    fn hipDeviceReset() |cuda| {
        let (device, mut context) = (state::current(), ptr::null_mut());
        cu!(cuda, cuDevicePrimaryCtxReset_v2(device))?;
        cu!(cuda, cuDevicePrimaryCtxRetain(&raw mut context, device))
    };
}

forward! {
    hipDeviceGet => cuDeviceGet(device: *mut c_int, ordinal: c_int);
    hipDeviceSynchronize => cuCtxSynchronize();
}
