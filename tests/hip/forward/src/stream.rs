//! Streams and events, which HIP and CUDA have alike.

#![expect(unsafe_code, reason = "exports C symbols and calls the CUDA driver")]

use core::ffi::{c_int, c_uint};
use core::ptr;

use crate::code::Code;
use crate::cuda::Pointer;
use crate::device::set;
use crate::export::{cu, export, forward};
use crate::state;

export! {
    fn hipStreamGetDevice(stream: Pointer, out: *mut c_int) |cuda| {
        if stream.is_null() {
            return set(out, state::current());
        }
        let mut context = ptr::null_mut();
        cu!(cuda, cuStreamGetCtx(stream, &raw mut context))?;
        let mut devices = 0..state::count()?;
        let found = devices.find(|&device| state::context(device).is_ok_and(|other| other == context));
        set(out, found.ok_or(Code::INVALID_DEVICE)?)
    };
}

forward! {
    hipStreamCreateWithFlags => cuStreamCreate(out: *mut Pointer, flags: c_uint);
    hipStreamDestroy => cuStreamDestroy_v2(stream: Pointer);
    hipStreamSynchronize => cuStreamSynchronize(stream: Pointer);
    hipStreamQuery => cuStreamQuery(stream: Pointer);
    hipStreamWaitEvent => cuStreamWaitEvent(stream: Pointer, event: Pointer, flags: c_uint);
    hipLaunchHostFunc => cuLaunchHostFunc(stream: Pointer, function: Pointer, data: Pointer);
    hipEventCreateWithFlags => cuEventCreate(out: *mut Pointer, flags: c_uint);
    hipEventDestroy => cuEventDestroy_v2(event: Pointer);
    hipEventRecord => cuEventRecord(event: Pointer, stream: Pointer);
    hipEventQuery => cuEventQuery(event: Pointer);
    hipEventSynchronize => cuEventSynchronize(event: Pointer);
    hipEventElapsedTime => cuEventElapsedTime(time: *mut f32, start: Pointer, end: Pointer);
}
