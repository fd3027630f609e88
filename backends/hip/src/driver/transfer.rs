//! Bytes that move or change on the device.

#![expect(unsafe_code, reason = "calls the runtime")]

use core::ffi::c_int;
use core::ptr;

use omniheap_seam::Result;
use omniheap_stream::{CopyDriver, RowCopy, StreamDriver};

use super::{Driver, address, check, pointer};
use crate::sys::{hipMemcpyKind, hipStream_t};

impl Driver {
    /// # Safety
    /// As [`copy_unified`](CopyDriver::copy_unified); `kind` is the direction.
    unsafe fn copy_as(
        &self,
        to: u64,
        from: u64,
        size: usize,
        on: hipStream_t,
        kind: hipMemcpyKind,
    ) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.api.core.hipMemcpyAsync)(pointer(to), pointer(from), size, kind, on) })
    }
}

// SAFETY: each function is one call of the runtime on exactly the ranges that it is given; the runtime knows what is pinned.
unsafe impl CopyDriver for Driver {
    fn allocation_at(&self, start: u64) -> Option<(u64, u64)> {
        let _current = self.enter().ok()?;
        let (mut base, mut length) = (ptr::null_mut(), 0_usize);
        // SAFETY: both are valid out-pointers; any address may be asked about.
        let code = unsafe {
            (self.api.core.hipMemGetAddressRange)(&raw mut base, &raw mut length, pointer(start))
        };
        (code.0 == 0).then_some((address(base), length as u64))
    }

    unsafe fn copy(&self, to: u64, from: u64, size: usize, stream: Self::Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.copy_as(to, from, size, stream, hipMemcpyKind::hipMemcpyDeviceToDevice) }
    }

    unsafe fn copy_unified(
        &self,
        to: u64,
        from: u64,
        size: usize,
        stream: Self::Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.copy_as(to, from, size, stream, hipMemcpyKind::hipMemcpyDefault) }
    }

    unsafe fn copy_rows(&self, rows: &RowCopy, stream: Self::Stream) -> Result<()> {
        let RowCopy { to, to_pitch, from, from_pitch, width, height } = *rows;
        let (call, kind) = (self.api.core.hipMemcpy2DAsync, hipMemcpyKind::hipMemcpyDefault);
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe {
            call(pointer(to), to_pitch, pointer(from), from_pitch, width, height, kind, stream)
        })
    }

    unsafe fn fill(&self, to: u64, value: u8, size: usize, stream: Self::Stream) -> Result<()> {
        const WORD: usize = size_of::<c_int>();
        let _current = self.enter()?;
        if size.is_multiple_of(WORD) && to.is_multiple_of(WORD as u64) {
            let word = c_int::from_ne_bytes([value; WORD]);
            // SAFETY: the caller's promise, and `size / 4` words are `size` bytes.
            return check(unsafe {
                (self.api.core.hipMemsetD32Async)(pointer(to), word, size / WORD, stream)
            });
        }
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.api.core.hipMemsetAsync)(pointer(to), value.into(), size, stream) })
    }
}
