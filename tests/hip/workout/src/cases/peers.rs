//! Two devices.

#![expect(unsafe_code, reason = "calls the HIP library under test")]

use core::ffi::c_void;
use core::ptr;

use omniheap_hip::sys::{hipMemcpyKind, hipStream_t};

use super::copies::pattern;
use crate::run::{Run, call};

const SIZE: usize = 1 << 16;

pub(crate) fn two_devices(run: &mut Run) {
    let Some(peer) = run.group("peers", run.api.peer) else { return };
    let (core, device) = (run.api.core, run.api.device);
    let (mut count, mut can) = (0, -1);
    call!(run, device, hipGetDeviceCount(&raw mut count));
    run.check("there are two devices", count == 2);
    call!(run, peer, hipDeviceCanAccessPeer(&raw mut can, 0, 1));
    run.fact("access is possible", can);
    let (mut first, mut second): (*mut c_void, *mut c_void) = (ptr::null_mut(), ptr::null_mut());
    call!(run, device, hipSetDevice(1));
    call!(run, core, hipMalloc(&raw mut second, SIZE));
    call!(run, device, hipSetDevice(0));
    call!(run, core, hipMalloc(&raw mut first, SIZE));
    call!(run, peer, hipDeviceEnablePeerAccess(1, 0));
    call!(run, peer, hipDeviceEnablePeerAccess(1, 0));
    let (sent, mut got) = (pattern(SIZE), vec![0; SIZE]);
    let null = hipStream_t::NULL;
    call!(
        run,
        core,
        hipMemcpy(first, sent.as_ptr().cast(), SIZE, hipMemcpyKind::hipMemcpyHostToDevice)
    );
    call!(run, peer, hipMemcpyPeerAsync(second, 1, first, 0, SIZE, null));
    call!(run, core, hipStreamSynchronize(null));
    call!(
        run,
        core,
        hipMemcpy(got.as_mut_ptr().cast(), second, SIZE, hipMemcpyKind::hipMemcpyDeviceToHost)
    );
    run.check("bytes go from device to device", got == sent);
    call!(run, peer, hipDeviceDisablePeerAccess(1));
    call!(run, core, hipFree(first));
    call!(run, core, hipFree(second));
}
