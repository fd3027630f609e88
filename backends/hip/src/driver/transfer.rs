//! Bytes that move or change on the device, and the runtime's own pool.

#![expect(unsafe_code, reason = "calls the runtime")]

use core::ffi::c_int;
use core::ptr;

use omniheap_core::{ErrorKind, Result};

use super::{Driver, Rows, address, check, pointer};
use crate::sys::{
    hipMemAllocationHandleType, hipMemAllocationType, hipMemPool_t, hipMemPoolProps, hipMemcpyKind,
    hipStream_t,
};

impl Driver {
    /// Copies inside the device.
    ///
    /// # Errors
    /// What the runtime says.
    ///
    /// # Safety
    /// Both addresses begin `size` live bytes of device memory.
    pub unsafe fn copy(&self, to: u64, from: u64, size: usize, stream: hipStream_t) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.copy_as(to, from, size, stream, hipMemcpyKind::hipMemcpyDeviceToDevice) }
    }

    /// As [`copy`](Self::copy), where one side may be host memory; the runtime finds out which.
    ///
    /// # Errors
    /// What the runtime says.
    ///
    /// # Safety
    /// Both addresses begin `size` live bytes that the device reaches.
    pub unsafe fn copy_unified(
        &self,
        to: u64,
        from: u64,
        size: usize,
        stream: hipStream_t,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.copy_as(to, from, size, stream, hipMemcpyKind::hipMemcpyDefault) }
    }

    /// # Safety
    /// As [`copy_unified`](Self::copy_unified); `kind` is the direction.
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

    /// Copies rows.
    ///
    /// # Errors
    /// What the runtime says.
    ///
    /// # Safety
    /// Every row of both sides lies in live bytes that the device reaches.
    pub unsafe fn copy_2d(&self, rows: &Rows, stream: hipStream_t) -> Result<()> {
        let Rows { to, to_pitch, from, from_pitch, width, height } = *rows;
        let (call, kind) = (self.api.core.hipMemcpy2DAsync, hipMemcpyKind::hipMemcpyDefault);
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe {
            call(pointer(to), to_pitch, pointer(from), from_pitch, width, height, kind, stream)
        })
    }

    /// Copies to another device.
    ///
    /// # Errors
    /// `Unsupported` for a runtime without the call; otherwise what the runtime says.
    ///
    /// # Safety
    /// `to` begins `size` live bytes of `peer`, `from` as many of `self`; `stream` is one of `self`.
    pub unsafe fn copy_peer(
        &self,
        (peer, to): (&Self, u64),
        from: u64,
        size: usize,
        stream: hipStream_t,
    ) -> Result<()> {
        let call = self.api.peer.ok_or(ErrorKind::Unsupported)?.hipMemcpyPeerAsync;
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { call(pointer(to), peer.device, pointer(from), self.device, size, stream) })
    }

    /// Sets every byte to `value`.
    ///
    /// # Errors
    /// What the runtime says.
    ///
    /// # Safety
    /// `to` begins `size` live bytes that the device reaches.
    pub unsafe fn fill(&self, to: u64, value: u8, size: usize, stream: hipStream_t) -> Result<()> {
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

    /// Creates a pool of the runtime.
    ///
    /// # Errors
    /// `Unsupported` for a runtime without pools; otherwise what the runtime says.
    pub fn create_pool(&self) -> Result<hipMemPool_t> {
        let table = self.api.pools.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        let properties = hipMemPoolProps {
            allocType: hipMemAllocationType::hipMemAllocationTypePinned,
            handleTypes: hipMemAllocationHandleType::hipMemHandleTypeNone,
            location: self.location(),
            win32SecurityAttributes: ptr::null_mut(),
            maxSize: 0,
            reserved: [0; 56],
        };
        let mut pool = hipMemPool_t::NULL;
        // SAFETY: `pool` is a valid out-pointer and `properties` is filled in.
        check(unsafe { (table.hipMemPoolCreate)(&raw mut pool, &raw const properties) })?;
        Ok(pool)
    }

    /// Destroys a pool.
    ///
    /// # Errors
    /// What the runtime says.
    ///
    /// # Safety
    /// `pool` came from [`create_pool`](Self::create_pool), every block of it was freed, and it is destroyed once.
    pub unsafe fn destroy_pool(&self, pool: hipMemPool_t) -> Result<()> {
        let table = self.api.pools.ok_or(ErrorKind::Unsupported)?;
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|_| unsafe { (table.hipMemPoolDestroy)(pool) })
    }

    /// Gives unused memory of a pool back. Call it before believing that the device is out of memory: pools do not try.
    ///
    /// # Errors
    /// What the runtime says.
    ///
    /// # Safety
    /// `pool` is a live pool of this driver.
    pub unsafe fn trim_pool(&self, pool: hipMemPool_t) -> Result<()> {
        let table = self.api.pools.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (table.hipMemPoolTrimTo)(pool, 0) })
    }

    /// Allocates from a pool.
    ///
    /// # Errors
    /// What the runtime says.
    ///
    /// # Safety
    /// `pool` is a live pool of this driver, `stream` a live stream.
    pub unsafe fn allocate_from_pool(
        &self,
        size: usize,
        pool: hipMemPool_t,
        stream: hipStream_t,
    ) -> Result<u64> {
        let table = self.api.pools.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        let mut memory = ptr::null_mut();
        // SAFETY: `memory` is a valid out-pointer; the caller promises the rest.
        check(unsafe { (table.hipMallocFromPoolAsync)(&raw mut memory, size, pool, stream) })?;
        Ok(address(memory))
    }

    /// Frees to the pool it came from.
    ///
    /// # Errors
    /// What the runtime says.
    ///
    /// # Safety
    /// `base` came from [`allocate_from_pool`](Self::allocate_from_pool), is not yet freed (HIP 7.2 may crash later if
    /// it was), and no device work outside `stream` uses it.
    pub unsafe fn free_to_pool(&self, base: u64, stream: hipStream_t) -> Result<()> {
        let table = self.api.pools.ok_or(ErrorKind::Unsupported)?;
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|_| unsafe { (table.hipFreeAsync)(pointer(base), stream) })
    }
}
