//! Cases about the runtime's knowledge of pointers, and memory that the host has too.

#![expect(unsafe_code, reason = "calls the HIP library under test")]

use core::ffi::c_void;
use core::ptr;

use omniheap_hip::sys::{
    hipMemAttachGlobal, hipMemoryAdvise, hipMemoryType, hipPointerAttribute_t, hipStream_t,
};

use crate::run::{Run, call, quiet};

/// An answer that is plainly not one, so that fields the runtime leaves alone are seen.
const UNTOUCHED: hipPointerAttribute_t = hipPointerAttribute_t {
    r#type: hipMemoryType(0xEE),
    device: 0xEE,
    devicePointer: ptr::null_mut(),
    hostPointer: ptr::null_mut(),
    isManaged: 0xEE,
    allocationFlags: 0xEE,
};

/// Notes what the runtime says of a pointer, and returns the kind of memory.
pub(crate) fn attributes(run: &Run, what: &str, pointer: *const c_void) -> hipMemoryType {
    let mut found = UNTOUCHED;
    let code = quiet!(run.api.core, hipPointerGetAttributes(&raw mut found, pointer));
    let same = |other: *mut c_void| other.cast_const() == pointer;
    let hipPointerAttribute_t {
        r#type: kind, device, devicePointer, hostPointer, isManaged, ..
    } = found;
    let text = format!(
        "{} type {} device {device} managed {isManaged} device address {} host address {}",
        code.0,
        kind.0,
        same(devicePointer),
        same(hostPointer)
    );
    run.fact(what, text);
    kind
}

pub(crate) fn describe(run: &mut Run) {
    let core = run.api.core;
    let (mut device, mut pinned): (*mut c_void, *mut c_void) = (ptr::null_mut(), ptr::null_mut());
    call!(run, core, hipMalloc(&raw mut device, 1 << 20));
    call!(run, core, hipHostMalloc(&raw mut pinned, 4096, 0));
    let local = 0_u8;
    let kind = attributes(run, "device", device);
    run.check("device memory is that", kind == hipMemoryType::hipMemoryTypeDevice);
    attributes(run, "inside device", device.wrapping_byte_add(100));
    let kind = attributes(run, "pinned host", pinned);
    run.check("host memory is that", kind == hipMemoryType::hipMemoryTypeHost);
    let kind = attributes(run, "stack", (&raw const local).cast());
    run.check("other memory is neither", kind == hipMemoryType::hipMemoryTypeUnregistered);
    let (mut base, mut size) = (ptr::null_mut(), 0);
    call!(
        run,
        core,
        hipMemGetAddressRange(&raw mut base, &raw mut size, device.wrapping_byte_add(100))
    );
    run.check("a block is found from inside", base == device && size == 1 << 20);
    let mut seen = ptr::null_mut();
    call!(run, core, hipHostGetDevicePointer(&raw mut seen, pinned, 0));
    managed(run);
    call!(run, core, hipFree(device));
    call!(run, core, hipHostFree(pinned));
}

fn managed(run: &mut Run) {
    let Some(managed) = run.group("shared memory", run.api.managed) else { return };
    let core = run.api.core;
    let mut pointer: *mut c_void = ptr::null_mut();
    call!(run, managed, hipMallocManaged(&raw mut pointer, 1 << 16, hipMemAttachGlobal));
    let kind = attributes(run, "managed", pointer);
    run.check("managed memory is that", kind == hipMemoryType::hipMemoryTypeManaged);
    let null = hipStream_t::NULL;
    call!(run, managed, hipMemPrefetchAsync(pointer, 1 << 16, 0, null));
    call!(
        run,
        managed,
        hipMemAdvise(pointer, 1 << 16, hipMemoryAdvise::hipMemAdviseSetReadMostly, 0)
    );
    call!(run, core, hipStreamSynchronize(null));
    call!(run, core, hipFree(pointer));
    for flags in [0, 1] {
        call!(run, managed, hipExtMallocWithFlags(&raw mut pointer, 4096, flags));
        call!(run, core, hipFree(pointer));
    }
    // Page-aligned memory of our own, as registration wants it.
    let mut host = vec![0_u8; 3 << 16];
    let start = host.as_mut_ptr();
    let page = start.wrapping_add(start.align_offset(1 << 16)).cast();
    call!(run, managed, hipHostRegister(page, 1 << 16, 0));
    attributes(run, "registered", page);
    let mut seen = ptr::null_mut();
    call!(run, core, hipHostGetDevicePointer(&raw mut seen, page, 0));
    call!(run, managed, hipHostUnregister(page));
    call!(run, managed, hipHostUnregister(page));
    quiet!(core, hipGetLastError());
}
