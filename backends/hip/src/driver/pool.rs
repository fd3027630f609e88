//! The runtime's own pool.

#![expect(unsafe_code, reason = "calls the runtime")]

use core::ptr;

use omniheap_seam::{ErrorKind, Result};
use omniheap_stream::StreamDriver;

use super::{Driver, address, check, pointer};
use crate::sys::{
    hipMemAllocationHandleType, hipMemAllocationType, hipMemPool_t, hipMemPoolProps, hipStream_t,
};

impl Driver {
    /// Creates a pool of the runtime.
    ///
    /// # Errors
    /// `Unsupported` for a runtime without pools; otherwise the runtime's error.
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
    /// The runtime's error.
    ///
    /// # Safety
    /// `pool` came from [`create_pool`](Self::create_pool), every block of it was freed, and it is destroyed once.
    pub unsafe fn destroy_pool(&self, pool: hipMemPool_t) -> Result<()> {
        let table = self.api.pools.ok_or(ErrorKind::Unsupported)?;
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|_| unsafe { (table.hipMemPoolDestroy)(pool) })
    }

    /// Releases unused memory of a pool. Call it before reporting out-of-memory: pools do not trim themselves.
    ///
    /// # Errors
    /// The runtime's error.
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
    /// The runtime's error.
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
    /// The runtime's error.
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
