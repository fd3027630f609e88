//! Other devices and other processes. HIP names devices where CUDA names contexts.

#![expect(unsafe_code, reason = "exports C symbols and calls the CUDA driver")]

use core::ffi::{c_int, c_uint};

use crate::cuda::{IpcHandle, Pointer};
use crate::export::{cu, export, forward};
use crate::state::context;

export! {
    fn hipDeviceEnablePeerAccess(device: c_int, flags: c_uint) |cuda| {
        cu!(cuda, cuCtxEnablePeerAccess(context(device)?, flags))
    };

    fn hipDeviceDisablePeerAccess(device: c_int) |cuda| {
        cu!(cuda, cuCtxDisablePeerAccess(context(device)?))
    };

    fn hipMemcpyPeerAsync(
        to: u64, to_device: c_int, from: u64, from_device: c_int, size: usize, stream: Pointer,
    ) |cuda| {
        cu!(cuda, cuMemcpyPeerAsync(to, context(to_device)?, from, context(from_device)?, size, stream))
    };
}

forward! {
    hipDeviceCanAccessPeer => cuDeviceCanAccessPeer(out: *mut c_int, device: c_int, peer: c_int);
    hipIpcGetMemHandle => cuIpcGetMemHandle(out: Pointer, pointer: u64);
    hipIpcOpenMemHandle => cuIpcOpenMemHandle_v2(out: *mut u64, handle: IpcHandle, flags: c_uint);
    hipIpcCloseMemHandle => cuIpcCloseMemHandle(pointer: u64);
}
