//! Streams and events: order, progress, time.

#![expect(unsafe_code, reason = "calls the HIP library under test")]

use core::ffi::c_void;
use core::ptr;

use omniheap_hip::sys::{
    hipError_t, hipEvent_t, hipEventDisableTiming, hipMemcpyKind, hipStream_t, hipStreamNonBlocking,
};

use crate::run::{Run, call};

pub(crate) fn order(run: &mut Run) {
    let core = run.api.core;
    let (mut stream, mut other) = (hipStream_t::NULL, hipStream_t::NULL);
    call!(run, core, hipStreamCreateWithFlags(&raw mut stream, hipStreamNonBlocking));
    call!(run, core, hipStreamCreateWithFlags(&raw mut other, hipStreamNonBlocking));
    let (mut start, mut end, mut mark) = (hipEvent_t::NULL, hipEvent_t::NULL, hipEvent_t::NULL);
    call!(run, core, hipEventCreateWithFlags(&raw mut start, 0));
    call!(run, core, hipEventCreateWithFlags(&raw mut end, 0));
    call!(run, core, hipEventCreateWithFlags(&raw mut mark, hipEventDisableTiming));
    let mut memory: *mut c_void = ptr::null_mut();
    call!(run, core, hipMalloc(&raw mut memory, 1 << 20));
    let mut got = vec![0_u32; 1000];
    call!(run, core, hipEventRecord(start, stream));
    call!(run, core, hipMemsetD32Async(memory, 0x1234_5678, 1000, stream));
    call!(run, core, hipEventRecord(mark, stream));
    call!(run, core, hipStreamWaitEvent(other, mark, 0));
    let to = got.as_mut_ptr().cast();
    call!(run, core, hipMemcpyAsync(to, memory, 4000, hipMemcpyKind::hipMemcpyDeviceToHost, other));
    call!(run, core, hipEventRecord(end, other));
    call!(run, core, hipStreamSynchronize(other));
    run.check("one stream waits for another", got.iter().all(|&word| word == 0x1234_5678));
    call!(run, core, hipEventQuery(end));
    let mut time = -1.0;
    call!(run, core, hipEventElapsedTime(&raw mut time, start, end));
    run.check("time passes forward", time >= 0.0);
    let untimed = call!(run, core, hipEventElapsedTime(&raw mut time, start, mark));
    run.check("an event without time has none", untimed != hipError_t::hipSuccess);
    call!(run, core, hipEventSynchronize(mark));
    call!(run, core, hipStreamQuery(stream));
    for event in [start, end, mark] {
        call!(run, core, hipEventDestroy(event));
    }
    call!(run, core, hipStreamDestroy(stream));
    call!(run, core, hipStreamDestroy(other));
    call!(run, core, hipFree(memory));
}
