//! Streams and events, which HIP and CUDA have alike.

#![expect(unsafe_code, reason = "exports C symbols and calls the CUDA driver")]

use core::ffi::{c_int, c_uint};
use core::ptr;

use crate::code::Code;
use crate::cuda::{Pointer, Source};
use crate::device::set;
use crate::export::{cu, export, forward};
use crate::state;

export! {
    // As AMD's: the stream's work has finished when it is gone.
    fn hipStreamDestroy(stream: Pointer) |cuda| {
        cu!(cuda, cuStreamSynchronize(stream))?;
        cu!(cuda, cuStreamDestroy_v2(stream))
    };
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
    hipStreamSynchronize => cuStreamSynchronize(stream: Pointer);
    hipStreamQuery => cuStreamQuery(stream: Pointer);
    hipStreamWaitEvent => cuStreamWaitEvent(stream: Pointer, event: Pointer, flags: c_uint);
    hipStreamBeginCapture => cuStreamBeginCapture_v2(stream: Pointer, mode: c_uint);
    hipStreamEndCapture => cuStreamEndCapture(stream: Pointer, graph: *mut Pointer);
    hipStreamIsCapturing => cuStreamIsCapturing(stream: Pointer, status: *mut c_uint);
    hipGraphDestroy => cuGraphDestroy(graph: Pointer);
    hipStreamGetCaptureInfo_v2 => cuStreamGetCaptureInfo_v2(
        stream: Pointer, status: *mut c_uint, id: *mut u64, graph: *mut Pointer, nodes: *mut Source, count: *mut usize);
    hipThreadExchangeStreamCaptureMode => cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
    hipUserObjectCreate => cuUserObjectCreate(
        out: *mut Pointer, data: Pointer, destroy: Pointer, count: c_uint, flags: c_uint);
    hipUserObjectRelease => cuUserObjectRelease(object: Pointer, count: c_uint);
    hipGraphRetainUserObject => cuGraphRetainUserObject(
        graph: Pointer, object: Pointer, count: c_uint, flags: c_uint);
    hipLaunchHostFunc => cuLaunchHostFunc(stream: Pointer, function: Pointer, data: Pointer);
    hipEventCreateWithFlags => cuEventCreate(out: *mut Pointer, flags: c_uint);
    hipEventDestroy => cuEventDestroy_v2(event: Pointer);
    hipEventRecord => cuEventRecord(event: Pointer, stream: Pointer);
    hipEventQuery => cuEventQuery(event: Pointer);
    hipEventSynchronize => cuEventSynchronize(event: Pointer);
    hipEventElapsedTime => cuEventElapsedTime(time: *mut f32, start: Pointer, end: Pointer);
}
