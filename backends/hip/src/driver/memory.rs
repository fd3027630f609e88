//! Plain memory: device, pinned and managed blocks, with the coherence asked for.

#![expect(unsafe_code, reason = "calls the runtime")]

use core::ptr::{self, NonNull};

use omniheap_seam::{ErrorKind, Result};
use omniheap_stream::{Caching, MemoryDriver, MemoryInfo, StreamDriver, of_host};

use super::{Driver, address, check, pointer};
use crate::sys::hipHostMallocFlags::{
    hipHostMallocCoherent, hipHostMallocMapped, hipHostMallocNonCoherent, hipHostMallocPortable,
    hipHostMallocWriteCombined,
};
use crate::sys::{hipDeviceMallocDefault, hipDeviceMallocFinegrained, hipMemAttachGlobal};

/// Moment at which one side sees what the other has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coherence {
    /// Fine-grained: while a kernel runs. Floating-point atomics may be wrong on some devices.
    Fine,
    /// Coarse-grained: when a kernel ends.
    Coarse,
}

// SAFETY: each function is one call of the runtime, which gives disjoint ranges, and one address for managed memory.
unsafe impl MemoryDriver for Driver {
    fn memory_info(&self) -> Result<MemoryInfo> {
        let _current = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are valid out-pointers; the device is the thread's.
        check(unsafe { (self.api.core.hipMemGetInfo)(&raw mut free, &raw mut total) })?;
        Ok(MemoryInfo { free: free as u64, total: total as u64 })
    }

    fn allocate(&self, size: usize) -> Result<u64> {
        let _current = self.enter()?;
        let mut memory = ptr::null_mut();
        // SAFETY: `memory` is a valid out-pointer; the device is the thread's.
        check(unsafe { (self.api.core.hipMalloc)(&raw mut memory, size) })?;
        Ok(address(memory))
    }

    fn allocate_managed(&self, size: usize) -> Result<u64> {
        let table = self.api.managed.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        let mut memory = ptr::null_mut();
        // SAFETY: `memory` is a valid out-pointer; the device is the thread's.
        check(unsafe { (table.hipMallocManaged)(&raw mut memory, size, hipMemAttachGlobal) })?;
        Ok(address(memory))
    }

    unsafe fn free(&self, base: u64) -> Result<()> {
        // Waits for all of the device's streams. An address inside a block, or one that was freed, is not refused: HIP frees
        // whatever block it now lies in.
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|core| unsafe { (core.hipFree)(pointer(base)) })
    }
}

impl Driver {
    /// Allocates memory of the device with the coherence asked for.
    ///
    /// # Errors
    /// `Unsupported` for a runtime without the call; otherwise the runtime's error.
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

    /// Allocates pinned host memory, mapped for every device. Out of memory here is the host's.
    ///
    /// # Errors
    /// The runtime's error.
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
}
