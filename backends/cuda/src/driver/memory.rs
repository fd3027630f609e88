//! Plain memory: device, pinned and managed blocks, and the driver's pool.
#![expect(unsafe_code, reason = "calls the driver")]
use super::{Driver, check};
use crate::sys::{CUdeviceptr, CUmemPoolProps, CUstream};
use core::ptr::NonNull;
use cudarc::driver::sys::{
    CUmemAllocationHandleType, CUmemAllocationType_enum, CUmemLocation, CUmemLocationType_enum,
    CUmemPoolHandle_st,
};
use omniheap_seam::{ErrorKind, Result};
use omniheap_stream::{Caching, MemoryDriver, MemoryInfo, Raw, StreamDriver, of_host};

/// Usable from every context, and mapped into the device's addresses.
const HOST_PORTABLE_MAPPED: u32 = 0x01 | 0x02;
const HOST_WRITE_COMBINED: u32 = 0x04;
const MANAGED_GLOBAL: u32 = 0x1;

// SAFETY: each function is one driver call; the driver gives disjoint ranges, and one address for managed memory.
unsafe impl MemoryDriver for Driver {
    fn memory_info(&self) -> Result<MemoryInfo> {
        let _current = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are valid out-pointers; a context is current.
        check(unsafe { (self.fns.mem_info)(&raw mut free, &raw mut total) })?;
        Ok(MemoryInfo { free: free as u64, total: total as u64 })
    }

    fn allocate(&self, size: usize) -> Result<u64> {
        let _current = self.enter()?;
        let mut address = 0;
        // SAFETY: `address` is a valid out-pointer; a context is current.
        check(unsafe { (self.fns.mem_alloc)(&raw mut address, size) })?;
        Ok(address)
    }

    fn allocate_managed(&self, size: usize) -> Result<u64> {
        let _current = self.enter()?;
        let mut address = 0;
        // SAFETY: `address` is a valid out-pointer; a context is current.
        check(unsafe { (self.fns.managed_alloc)(&raw mut address, size, MANAGED_GLOBAL) })?;
        Ok(address)
    }

    unsafe fn free(&self, address: u64) -> Result<()> {
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|fns| unsafe { (fns.mem_free)(address) })
    }
}

impl Driver {
    /// Pinned host memory. Out of memory here is the host's.
    pub(crate) fn allocate_host(&self, size: usize, caching: Caching) -> Result<NonNull<u8>> {
        let _current = self.enter()?;
        let combined = if caching == Caching::Combined { HOST_WRITE_COMBINED } else { 0 };
        let mut host = core::ptr::null_mut();
        let flags = HOST_PORTABLE_MAPPED | combined;
        // SAFETY: `host` is a valid out-pointer; a context is current.
        check(unsafe { (self.fns.host_alloc)(&raw mut host, size, flags) }).map_err(of_host)?;
        NonNull::new(host.cast()).ok_or_else(|| ErrorKind::Driver.into())
    }

    pub(crate) fn create_pool(&self) -> Result<Raw<CUmemPoolHandle_st>> {
        let create = self.fns.pool_create.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        let properties = CUmemPoolProps {
            allocType: CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: CUmemLocation {
                type_: CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE,
                id: self.device,
            },
            win32SecurityAttributes: core::ptr::null_mut(),
            reserved: [0; 64],
        };
        let mut pool = core::ptr::null_mut();
        // SAFETY: `pool` is a valid out-pointer and `properties` is filled in.
        check(unsafe { create(&raw mut pool, &raw const properties) })?;
        Ok(Raw(pool))
    }

    /// # Safety
    ///
    /// `pool` came from [`create_pool`](Self::create_pool) and is destroyed once.
    pub(crate) unsafe fn destroy_pool(&self, pool: Raw<CUmemPoolHandle_st>) -> Result<()> {
        let destroy = self.fns.pool_destroy.ok_or(ErrorKind::Unsupported)?;
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|_| unsafe { destroy(pool.0) })
    }

    /// # Safety
    ///
    /// `pool` is a live pool of this driver, `stream` a live stream.
    pub(crate) unsafe fn allocate_from_pool(
        &self,
        size: usize,
        pool: Raw<CUmemPoolHandle_st>,
        stream: CUstream,
    ) -> Result<CUdeviceptr> {
        let allocate = self.fns.pool_alloc.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        let mut address = 0;
        // SAFETY: `address` is a valid out-pointer; the caller promises the rest.
        check(unsafe { allocate(&raw mut address, size, pool.0, stream) })?;
        Ok(address)
    }

    /// # Safety
    ///
    /// `address` came from [`allocate_from_pool`](Self::allocate_from_pool), is not yet freed, and no device work
    /// outside `stream` uses it.
    pub(crate) unsafe fn free_to_pool(&self, address: CUdeviceptr, stream: CUstream) -> Result<()> {
        let free = self.fns.pool_free.ok_or(ErrorKind::Unsupported)?;
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|_| unsafe { free(address, stream) })
    }
}
