//! Bytes that move or change on the device.
#![expect(unsafe_code, reason = "calls the driver")]
use super::{Driver, check};
use crate::sys::CUDA_MEMCPY2D;
use core::{ffi::c_void, ptr};
use cudarc::driver::sys::CUmemorytype_enum;
use omniheap_seam::Result;
use omniheap_stream::{CopyDriver, RowCopy, StreamDriver};

const POINTER_RANGE_START: u32 = 11;
const POINTER_RANGE_SIZE: u32 = 12;

// SAFETY: each function is one driver call on exactly the ranges that it is given; the driver knows what is pinned.
unsafe impl CopyDriver for Driver {
    fn allocation_at(&self, address: u64) -> Option<(u64, u64)> {
        let _current = self.enter().ok()?;
        let (mut start, mut length) = (0u64, 0usize);
        let wanted = [POINTER_RANGE_START, POINTER_RANGE_SIZE];
        let mut places = [(&raw mut start).cast::<c_void>(), (&raw mut length).cast()];
        // Asked together, because the driver then leaves zeros for an address that it does not know, and no error.
        // SAFETY: two attributes with a place for each, as wide as they are; any address may be asked about.
        let code = unsafe {
            (self.fns.pointer_attributes)(2, wanted.as_ptr(), places.as_mut_ptr(), address)
        };
        (code == 0 && length > 0).then_some((start, length as u64))
    }

    unsafe fn copy(&self, to: u64, from: u64, size: usize, stream: Self::Stream) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.fns.copy_on_device)(to, from, size, stream.0) })
    }

    unsafe fn copy_unified(
        &self,
        to: u64,
        from: u64,
        size: usize,
        stream: Self::Stream,
    ) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.fns.copy_unified)(to, from, size, stream.0) })
    }

    unsafe fn copy_rows(&self, rows: &RowCopy, stream: Self::Stream) -> Result<()> {
        let copy = CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: CUmemorytype_enum::CU_MEMORYTYPE_UNIFIED,
            srcHost: ptr::null(),
            srcDevice: rows.from,
            srcArray: ptr::null_mut(),
            srcPitch: rows.from_pitch,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: CUmemorytype_enum::CU_MEMORYTYPE_UNIFIED,
            dstHost: ptr::null_mut(),
            dstDevice: rows.to,
            dstArray: ptr::null_mut(),
            dstPitch: rows.to_pitch,
            WidthInBytes: rows.width,
            Height: rows.height,
        };
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.fns.copy_2d)(&raw const copy, stream.0) })
    }

    unsafe fn fill(&self, to: u64, value: u8, size: usize, stream: Self::Stream) -> Result<()> {
        const WORD: usize = size_of::<u32>();
        let _current = self.enter()?;
        if size.is_multiple_of(WORD) && to.is_multiple_of(WORD as u64) {
            let word = u32::from_ne_bytes([value; WORD]);
            // SAFETY: the caller's promise, and `size / 4` words are `size` bytes.
            return check(unsafe { (self.fns.set_words)(to, word, size / WORD, stream.0) });
        }
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.fns.set_bytes)(to, value, size, stream.0) })
    }
}
