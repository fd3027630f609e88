//! Copies and fills.

#![expect(unsafe_code, reason = "calls the HIP library under test")]

use core::ffi::c_void;
use core::ptr;

use omniheap_hip::sys::{hipMemcpyKind, hipStream_t};

use crate::run::{Run, call};

const SIZE: usize = 1 << 20;
const TO_DEVICE: hipMemcpyKind = hipMemcpyKind::hipMemcpyHostToDevice;
const TO_HOST: hipMemcpyKind = hipMemcpyKind::hipMemcpyDeviceToHost;
const INSIDE: hipMemcpyKind = hipMemcpyKind::hipMemcpyDeviceToDevice;

/// Bytes that are all different from their neighbours.
pub(crate) fn pattern(size: usize) -> Vec<u8> {
    (0_u32..).flat_map(|word| word.wrapping_mul(2_654_435_761).to_ne_bytes()).take(size).collect()
}

pub(crate) fn copy_and_fill(run: &mut Run) {
    let core = run.api.core;
    let (sent, mut got) = (pattern(SIZE), vec![0_u8; SIZE]);
    let (from, to) = (sent.as_ptr().cast(), got.as_mut_ptr().cast());
    let (mut first, mut second): (*mut c_void, *mut c_void) = (ptr::null_mut(), ptr::null_mut());
    call!(run, core, hipMalloc(&raw mut first, SIZE));
    call!(run, core, hipMalloc(&raw mut second, SIZE));
    call!(run, core, hipMemcpy(first, from, SIZE, TO_DEVICE));
    call!(run, core, hipMemcpy(second, first, SIZE, INSIDE));
    call!(run, core, hipMemcpy(to, second, SIZE, TO_HOST));
    run.check("bytes come back through two blocks", got == sent);
    call!(run, core, hipMemset(first, 0xAB, SIZE - 3));
    call!(run, run.api.device, hipDeviceSynchronize());
    call!(run, core, hipMemcpy(to, first, SIZE, TO_HOST));
    let filled = got[..SIZE - 3].iter().all(|&byte| byte == 0xAB);
    run.check("a fill ends where it should", filled && got[SIZE - 3..] == sent[SIZE - 3..]);
    call!(run, core, hipMemcpy(to, first.wrapping_byte_add(SIZE - 16), 64, TO_HOST));
    rows(run, first, &sent, &mut got);
    call!(run, core, hipFree(first));
    call!(run, core, hipFree(second));
}

/// Rows of 100 bytes, apart by 100 on the host and by 256 on the device.
fn rows(run: &mut Run, device: *mut c_void, sent: &[u8], got: &mut [u8]) {
    let core = run.api.core;
    let null = hipStream_t::NULL;
    let (from, to) = (sent.as_ptr().cast(), got.as_mut_ptr().cast());
    call!(run, core, hipMemset(device, 0, SIZE));
    call!(run, core, hipMemcpy2DAsync(device, 256, from, 100, 100, 50, TO_DEVICE, null));
    call!(run, core, hipStreamSynchronize(null));
    call!(run, core, hipMemcpy(to, device, SIZE, TO_HOST));
    let right = |row: usize| {
        got[row * 256..][..100] == sent[row * 100..][..100] && got[row * 256 + 100] == 0
    };
    run.check("rows are apart as asked", (0..50).all(right));
    call!(
        run,
        core,
        hipMemcpy2DAsync(device.wrapping_byte_add(1 << 19), 128, device, 256, 96, 50, INSIDE, null)
    );
    call!(run, core, hipMemcpy(to, device.wrapping_byte_add(1 << 19), 50 * 128, TO_HOST));
    let right = |row: usize| got[row * 128..][..96] == sent[row * 100..][..96];
    run.check("rows are copied inside the device", (0..50).all(right));
}
