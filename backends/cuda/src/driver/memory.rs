//! Plain memory: device, pinned and managed blocks, the driver's pool, and what moves bytes between them.
#![expect(unsafe_code, reason = "calls the driver")]
use super::{Driver, Raw, check};
use crate::sys::{CUDA_MEMCPY2D, CUdeviceptr, CUmemPoolProps, CUstream};
use core::{ffi::c_void, ptr::NonNull};
use cudarc::driver::sys::{
    CUmemAllocationHandleType, CUmemAllocationType_enum, CUmemLocation, CUmemLocationType_enum,
    CUmemPoolHandle_st,
};
use omniheap_core::{ErrorKind, Result};

/// Usable from every context, and mapped into the device's addresses.
const HOST_PORTABLE_MAPPED: u32 = 0x01 | 0x02;
const HOST_WRITE_COMBINED: u32 = 0x04;
const MANAGED_GLOBAL: u32 = 0x1;
const POINTER_RANGE_START: u32 = 11;
const POINTER_RANGE_SIZE: u32 = 12;

/// How the host's caches treat pinned memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caching {
    /// Writes are combined, reads are slow.
    Combined,
    /// As any host memory.
    Cached,
}

/// What the driver says of the device's memory, in bytes.
pub(crate) struct MemoryInfo {
    pub(crate) free: u64,
    pub(crate) total: u64,
}

impl Driver {
    pub(crate) fn memory_info(&self) -> Result<MemoryInfo> {
        let _current = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are valid out-pointers; a context is current.
        check(unsafe { (self.fns.mem_info)(&raw mut free, &raw mut total) })?;
        Ok(MemoryInfo { free: free as u64, total: total as u64 })
    }

    pub(crate) fn allocate(&self, size: usize) -> Result<CUdeviceptr> {
        let _current = self.enter()?;
        let mut address = 0;
        // SAFETY: `address` is a valid out-pointer; a context is current.
        check(unsafe { (self.fns.mem_alloc)(&raw mut address, size) })?;
        Ok(address)
    }

    /// # Safety
    ///
    /// `address` came from [`allocate`](Self::allocate) or [`allocate_managed`](Self::allocate_managed), is not yet
    /// freed, and no device work uses it.
    pub(crate) unsafe fn free(&self, address: CUdeviceptr) -> Result<()> {
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|fns| unsafe { (fns.mem_free)(address) })
    }

    /// Pinned host memory. Out of memory here is the host's.
    pub(crate) fn allocate_host(&self, size: usize, caching: Caching) -> Result<NonNull<u8>> {
        let _current = self.enter()?;
        let combined = if caching == Caching::Combined { HOST_WRITE_COMBINED } else { 0 };
        let mut host = core::ptr::null_mut();
        let flags = HOST_PORTABLE_MAPPED | combined;
        // SAFETY: `host` is a valid out-pointer; a context is current.
        let result = check(unsafe { (self.fns.host_alloc)(&raw mut host, size, flags) });
        result.map_err(|error| match error.kind() {
            ErrorKind::OutOfDeviceMemory => {
                omniheap_core::Error::new(ErrorKind::OutOfHostMemory).with_native(error.native())
            }
            _ => error,
        })?;
        NonNull::new(host.cast()).ok_or_else(|| ErrorKind::Driver.into())
    }

    /// # Safety
    ///
    /// `host` came from [`allocate_host`](Self::allocate_host), is not yet freed, and nothing uses it.
    pub(crate) unsafe fn free_host(&self, host: *mut u8) -> Result<()> {
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|fns| unsafe { (fns.host_free)(host.cast()) })
    }

    /// The device's address of pinned memory.
    pub(crate) fn host_address(&self, host: NonNull<u8>) -> Result<CUdeviceptr> {
        let _current = self.enter()?;
        let mut address = 0;
        // SAFETY: `address` is a valid out-pointer; the driver checks that `host` is pinned.
        check(unsafe { (self.fns.host_address)(&raw mut address, host.as_ptr().cast(), 0) })?;
        Ok(address)
    }

    pub(crate) fn allocate_managed(&self, size: usize) -> Result<CUdeviceptr> {
        let _current = self.enter()?;
        let mut address = 0;
        // SAFETY: `address` is a valid out-pointer; a context is current.
        check(unsafe { (self.fns.managed_alloc)(&raw mut address, size, MANAGED_GLOBAL) })?;
        Ok(address)
    }

    /// Whether the whole range lies in one allocation that the driver made or registered.
    pub(crate) fn knows(&self, host: *const u8, size: u64) -> bool {
        self.holds(host.addr() as u64, size)
    }

    /// As [`knows`](Self::knows), for an address of the device's.
    pub(crate) fn holds(&self, address: CUdeviceptr, size: u64) -> bool {
        let Ok(_current) = self.enter() else { return false };
        let (mut start, mut length) = (0u64, 0usize);
        let wanted = [POINTER_RANGE_START, POINTER_RANGE_SIZE];
        let mut places = [(&raw mut start).cast::<c_void>(), (&raw mut length).cast()];
        // Asked together, because the driver then leaves zeros for an address that it does not know, and no error.
        // SAFETY: two attributes with a place for each, as wide as they are; any address may be asked about.
        let code = unsafe {
            (self.fns.pointer_attributes)(2, wanted.as_ptr(), places.as_mut_ptr(), address)
        };
        let end = start.checked_add(length as u64);
        code == 0 && length > 0 && start <= address && address.checked_add(size) <= end
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

    /// # Safety
    ///
    /// `to` begins `size` live bytes that the device reaches, `from` as many pinned host bytes that stay unchanged
    /// until the copy has run.
    pub(crate) unsafe fn write(
        &self,
        to: CUdeviceptr,
        from: *const u8,
        size: usize,
        stream: CUstream,
    ) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.fns.copy_to_device)(to, from.cast::<c_void>(), size, stream) })
    }

    /// # Safety
    ///
    /// `from` begins `size` live bytes that the device reaches, `to` as many pinned host bytes that nobody touches
    /// until the copy has run.
    pub(crate) unsafe fn read(
        &self,
        to: *mut u8,
        from: CUdeviceptr,
        size: usize,
        stream: CUstream,
    ) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.fns.copy_to_host)(to.cast::<c_void>(), from, size, stream) })
    }

    /// # Safety
    ///
    /// Both addresses begin `size` live bytes of device memory.
    pub(crate) unsafe fn copy(
        &self,
        to: CUdeviceptr,
        from: CUdeviceptr,
        size: usize,
        stream: CUstream,
    ) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.fns.copy_on_device)(to, from, size, stream) })
    }

    /// As [`copy`](Self::copy), where one side may be host memory; the driver finds out which.
    ///
    /// # Safety
    ///
    /// Both addresses begin `size` live bytes that the device reaches.
    pub(crate) unsafe fn copy_unified(
        &self,
        to: CUdeviceptr,
        from: CUdeviceptr,
        size: usize,
        stream: CUstream,
    ) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.fns.copy_unified)(to, from, size, stream) })
    }

    /// # Safety
    ///
    /// Every row of both sides lies in live bytes that the device reaches.
    pub(crate) unsafe fn copy_2d(&self, copy: &CUDA_MEMCPY2D, stream: CUstream) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.fns.copy_2d)(copy, stream) })
    }

    /// # Safety
    ///
    /// `to` begins `size` live bytes of `peer`, `from` as many of `self`; `stream` is one of `self`.
    pub(crate) unsafe fn copy_peer(
        &self,
        to: (&Self, CUdeviceptr),
        from: CUdeviceptr,
        size: usize,
        stream: CUstream,
    ) -> Result<()> {
        let _current = self.enter()?;
        let (peer, to) = to;
        let (there, here) = (peer.context(), self.context());
        // SAFETY: the caller's promise is the function's precondition; both contexts are live.
        check(unsafe { (self.fns.copy_peer)(to, there, from, here, size, stream) })
    }

    /// # Safety
    ///
    /// `to` begins `size` live bytes that the device reaches.
    pub(crate) unsafe fn fill(
        &self,
        to: CUdeviceptr,
        value: u8,
        size: usize,
        stream: CUstream,
    ) -> Result<()> {
        const WORD: usize = size_of::<u32>();
        let _current = self.enter()?;
        if size.is_multiple_of(WORD) && to.is_multiple_of(WORD as u64) {
            let word = u32::from_ne_bytes([value; WORD]);
            // SAFETY: the caller's promise, and `size / 4` words are `size` bytes.
            return check(unsafe { (self.fns.set_words)(to, word, size / WORD, stream) });
        }
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.fns.set_bytes)(to, value, size, stream) })
    }
}
