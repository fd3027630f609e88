//! Plain memory: device, pinned and managed blocks, the runtime's pool, and what moves bytes between them.

#![expect(unsafe_code, reason = "calls the runtime")]

use core::ptr::{self, NonNull};

use omniheap_core::{Error, ErrorKind, Result};

use super::{Driver, address, check, pointer};
use crate::sys::hipHostMallocFlags::{
    hipHostMallocCoherent, hipHostMallocMapped, hipHostMallocNonCoherent, hipHostMallocPortable,
    hipHostMallocWriteCombined,
};
use crate::sys::{
    hipDeviceMallocDefault, hipDeviceMallocFinegrained, hipMemAttachGlobal, hipMemcpyKind,
    hipStream_t,
};

/// How the host's caches treat pinned memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Writes are combined, reads are slow.
    Combined,
    /// As any host memory.
    Cached,
}

/// When one side sees what the other has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coherence {
    /// Fine-grained: while a kernel runs. Floating-point atomics may be wrong on some devices.
    Fine,
    /// Coarse-grained: when a kernel ends.
    Coarse,
}

/// What the runtime says of the device's memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that nobody holds.
    pub free: u64,
    /// Bytes in all.
    pub total: u64,
}

/// A copy of rows, from one rectangle to another; addresses are those of first bytes, the rest is bytes and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The first byte of the first destination row.
    pub to: u64,
    /// Bytes from one destination row's start to the next.
    pub to_pitch: usize,
    /// The first byte of the first source row.
    pub from: u64,
    /// Bytes from one source row's start to the next.
    pub from_pitch: usize,
    /// Bytes of a row that are copied.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// Out of memory, where it is the host's that ran out.
fn of_host(error: Error) -> Error {
    match error.kind() {
        ErrorKind::OutOfDeviceMemory => {
            Error::new(ErrorKind::OutOfHostMemory).with_native(error.native())
        }
        _ => error,
    }
}

impl Driver {
    /// Asks how much memory is left.
    ///
    /// # Errors
    /// What the runtime says.
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        let _current = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are valid out-pointers; the device is the thread's.
        check(unsafe { (self.api.core.hipMemGetInfo)(&raw mut free, &raw mut total) })?;
        Ok(MemoryInfo { free: free as u64, total: total as u64 })
    }

    /// Allocates coarse-grained memory of the device.
    ///
    /// # Errors
    /// What the runtime says.
    pub fn allocate(&self, size: usize) -> Result<u64> {
        let _current = self.enter()?;
        let mut memory = ptr::null_mut();
        // SAFETY: `memory` is a valid out-pointer; the device is the thread's.
        check(unsafe { (self.api.core.hipMalloc)(&raw mut memory, size) })?;
        Ok(address(memory))
    }

    /// Allocates memory of the device with the coherence asked for.
    ///
    /// # Errors
    /// `Unsupported` for a runtime without the call; otherwise what the runtime says.
    pub fn allocate_with(&self, size: usize, coherence: Coherence) -> Result<u64> {
        let table = self.api.managed.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        let flags = match coherence {
            Coherence::Fine => hipDeviceMallocFinegrained,
            Coherence::Coarse => hipDeviceMallocDefault,
        };
        let mut memory = ptr::null_mut();
        // SAFETY: `memory` is a valid out-pointer; the device is the thread's.
        check(unsafe { (table.hipExtMallocWithFlags)(&raw mut memory, size, flags) })?;
        Ok(address(memory))
    }

    /// Frees memory of the device. Waits for all of the device's streams.
    ///
    /// # Errors
    /// What the runtime says.
    ///
    /// # Safety
    /// `base` came from `allocate`, `allocate_with` or `allocate_managed` and is not yet freed. An address inside a
    /// block, or one that was freed, is not refused: HIP frees whatever block it now lies in.
    pub unsafe fn free(&self, base: u64) -> Result<()> {
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|core| unsafe { (core.hipFree)(pointer(base)) })
    }

    /// Allocates pinned host memory, mapped for every device. Out of memory here is the host's.
    ///
    /// # Errors
    /// What the runtime says.
    pub fn allocate_host(
        &self,
        size: usize,
        caching: Caching,
        coherence: Coherence,
    ) -> Result<NonNull<u8>> {
        let _current = self.enter()?;
        let combined = if caching == Caching::Combined { hipHostMallocWriteCombined } else { 0 };
        // Always said: without it, other flags decide the coherence.
        let coherent = match coherence {
            Coherence::Fine => hipHostMallocCoherent,
            Coherence::Coarse => hipHostMallocNonCoherent,
        };
        let flags = hipHostMallocPortable | hipHostMallocMapped | combined | coherent;
        let mut host = ptr::null_mut();
        // SAFETY: `host` is a valid out-pointer; the device is the thread's.
        check(unsafe { (self.api.core.hipHostMalloc)(&raw mut host, size, flags) })
            .map_err(of_host)?;
        NonNull::new(host.cast()).ok_or_else(|| ErrorKind::Driver.into())
    }

    /// Frees pinned host memory.
    ///
    /// # Errors
    /// What the runtime says.
    ///
    /// # Safety
    /// `host` came from [`allocate_host`](Self::allocate_host), is not yet freed, and nothing uses it.
    pub unsafe fn free_host(&self, host: *mut u8) -> Result<()> {
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|core| unsafe { (core.hipHostFree)(host.cast()) })
    }

    /// Returns the device's address of pinned memory.
    ///
    /// # Errors
    /// What the runtime says.
    pub fn host_address(&self, host: NonNull<u8>) -> Result<u64> {
        let _current = self.enter()?;
        let mut seen = ptr::null_mut();
        // SAFETY: `seen` is a valid out-pointer; the runtime checks that `host` is pinned.
        check(unsafe {
            (self.api.core.hipHostGetDevicePointer)(&raw mut seen, host.as_ptr().cast(), 0)
        })?;
        Ok(address(seen))
    }

    /// Allocates memory that host and device share.
    ///
    /// # Errors
    /// `Unsupported` for a runtime without the call; otherwise what the runtime says.
    pub fn allocate_managed(&self, size: usize) -> Result<u64> {
        let table = self.api.managed.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        let mut memory = ptr::null_mut();
        // SAFETY: `memory` is a valid out-pointer; the device is the thread's.
        check(unsafe { (table.hipMallocManaged)(&raw mut memory, size, hipMemAttachGlobal) })?;
        Ok(address(memory))
    }

    /// Says whether the whole range lies in one allocation that the runtime made or registered.
    #[must_use]
    pub fn knows(&self, host: *const u8, size: u64) -> bool {
        self.holds(host.expose_provenance() as u64, size)
    }

    /// As [`knows`](Self::knows), for an address of the device's.
    #[must_use]
    pub fn holds(&self, start: u64, size: u64) -> bool {
        let Ok(_current) = self.enter() else { return false };
        let (mut base, mut length) = (ptr::null_mut(), 0_usize);
        // SAFETY: both are valid out-pointers; any address may be asked about.
        let code = unsafe {
            (self.api.core.hipMemGetAddressRange)(&raw mut base, &raw mut length, pointer(start))
        };
        let end = address(base).checked_add(length as u64);
        code.0 == 0 && address(base) <= start && start.checked_add(size) <= end
    }

    /// Copies from pinned host memory to the device.
    ///
    /// # Errors
    /// What the runtime says.
    ///
    /// # Safety
    /// `to` begins `size` live bytes that the device reaches, `from` as many pinned host bytes that stay unchanged until
    /// the copy has run.
    pub unsafe fn write(
        &self,
        to: u64,
        from: *const u8,
        size: usize,
        stream: hipStream_t,
    ) -> Result<()> {
        let kind = hipMemcpyKind::hipMemcpyHostToDevice;
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe {
            (self.api.core.hipMemcpyAsync)(pointer(to), from.cast(), size, kind, stream)
        })
    }

    /// Copies from the device to pinned host memory.
    ///
    /// # Errors
    /// What the runtime says.
    ///
    /// # Safety
    /// `from` begins `size` live bytes that the device reaches, `to` as many pinned host bytes that nobody touches until
    /// the copy has run.
    pub unsafe fn read(
        &self,
        to: *mut u8,
        from: u64,
        size: usize,
        stream: hipStream_t,
    ) -> Result<()> {
        let kind = hipMemcpyKind::hipMemcpyDeviceToHost;
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe {
            (self.api.core.hipMemcpyAsync)(to.cast(), pointer(from), size, kind, stream)
        })
    }
}
