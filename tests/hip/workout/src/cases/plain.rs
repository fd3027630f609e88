//! Plain memory of the device.

#![expect(unsafe_code, reason = "calls the HIP library under test")]

use core::ffi::c_void;
use core::ptr;

use omniheap_hip::sys::hipError_t;

use crate::run::{Run, call, quiet};

pub(crate) fn allocate_and_free(run: &mut Run) {
    let core = run.api.core;
    let (mut free, mut total) = (0, 0);
    call!(run, core, hipMemGetInfo(&raw mut free, &raw mut total));
    run.fact("bytes in all", total);
    run.check("free is at most the total", free <= total);
    let (mut first, mut second): (*mut c_void, *mut c_void) = (ptr::null_mut(), ptr::null_mut());
    call!(run, core, hipMalloc(&raw mut first, 1));
    call!(run, core, hipMalloc(&raw mut second, 1));
    run.check(
        "addresses are multiples of 256",
        first.addr() % 256 == 0 && second.addr() % 256 == 0,
    );
    let mut left = 0;
    quiet!(core, hipMemGetInfo(&raw mut left, &raw mut total));
    run.fact("two bytes cost", free - left);
    call!(run, core, hipFree(second));
    call!(run, core, hipMalloc(&raw mut second, 0));
    run.check("nothing is at no address", second.is_null());
    exhaust(run, total);
    let mut local = 0_u8;
    call!(run, core, hipFree((&raw mut local).cast()));
    call!(run, core, hipFree(first));
    call!(run, core, hipFree(first));
    call!(run, core, hipFree(ptr::null_mut()));
    quiet!(core, hipGetLastError());
}

fn exhaust(run: &mut Run, total: usize) {
    let core = run.api.core;
    let (mut large, mut more): (*mut c_void, *mut c_void) = (ptr::null_mut(), ptr::null_mut());
    let code = call!(run, core, hipMalloc(&raw mut large, 4 * total));
    run.check("too much is out of memory", code == hipError_t::hipErrorOutOfMemory);
    call!(run, core, hipGetLastError());
    call!(run, core, hipGetLastError());
    call!(run, core, hipMalloc(&raw mut large, total / 8 * 7));
    let code = call!(run, core, hipMalloc(&raw mut more, total / 4));
    run.check("the rest is not enough", code == hipError_t::hipErrorOutOfMemory);
    call!(run, core, hipFree(large));
    let code = call!(run, core, hipMalloc(&raw mut more, total / 4));
    run.check("freed memory can be had again", code == hipError_t::hipSuccess);
    call!(run, core, hipFree(more));
}

/// One allocation, for runs in which a call below it is made to fail.
pub(crate) fn allocate_once(run: &mut Run) {
    let core = run.api.core;
    let mut pointer = ptr::null_mut();
    call!(run, core, hipMalloc(&raw mut pointer, 1 << 20));
    run.fact("pointer is null", pointer.is_null());
    call!(run, core, hipMalloc(&raw mut pointer, 1 << 20));
    call!(run, core, hipFree(pointer));
}
