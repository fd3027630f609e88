//! Allocates device and pinned blocks, optionally from the runtime's asynchronous pool.
#![expect(unsafe_code, reason = "calls the runtime")]
use crate::{
    backend::Hip,
    block::Kind,
    driver::{Coherence, Driver},
    sys::{hipMemPool_t, hipStream_t},
};
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_seam::{ErrorKind, Result};
use omniheap_stream::{Caching, MemoryDriver, Raw, StreamDriver, address_of_pinned};
use std::sync::Arc;

/// The runtime's pool, with a stream that nothing else uses.
pub(crate) struct AsyncPool {
    driver: Arc<Driver>,
    pool: hipMemPool_t,
    stream: hipStream_t,
    /// Blocks that are not freed yet.
    live: AtomicU64,
}

impl AsyncPool {
    pub(crate) fn new(driver: &Arc<Driver>) -> Result<Self> {
        let stream = driver.create_stream()?;
        match driver.create_pool() {
            Ok(pool) => Ok(Self { driver: driver.clone(), pool, stream, live: AtomicU64::new(0) }),
            Err(error) => {
                // SAFETY: created just above.
                let _ = unsafe { driver.destroy_stream(stream) };
                Err(error)
            }
        }
    }

    pub(crate) fn allocate(&self, size: usize) -> Result<u64> {
        let (driver, stream) = (&self.driver, self.stream);
        let base = match self.take(size) {
            // The pool does not give back what it keeps before it says that there is no more.
            Err(error) if error.kind() == ErrorKind::OutOfDeviceMemory => {
                self.trim()?;
                self.take(size)?
            }
            result => result?,
        };
        self.live.fetch_add(1, Ordering::Relaxed);
        // The memory is there for every stream only once this one has run; nothing else waits on it.
        // SAFETY: the stream lives as long as `self`.
        if let Err(error) = unsafe { driver.synchronize_stream(stream) } {
            // SAFETY: allocated just above and used by nothing.
            let _ = unsafe { self.free(base) };
            return Err(error);
        }
        Ok(base)
    }

    fn take(&self, size: usize) -> Result<u64> {
        // SAFETY: pool and stream live as long as `self`.
        unsafe { self.driver.allocate_from_pool(size, self.pool, self.stream) }
    }

    /// Releases the pool's unused memory, after pending frees.
    fn trim(&self) -> Result<()> {
        // SAFETY: the stream lives as long as `self`.
        unsafe { self.driver.synchronize_stream(self.stream) }?;
        // SAFETY: the pool lives as long as `self`.
        unsafe { self.driver.trim_pool(self.pool) }
    }

    /// # Safety
    ///
    /// `base` came from [`allocate`](Self::allocate), is not yet freed, and no device work uses it.
    pub(crate) unsafe fn free(&self, base: u64) -> Result<()> {
        self.live.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { self.driver.free_to_pool(base, self.stream) }
    }
}

impl Drop for AsyncPool {
    fn drop(&mut self) {
        // Blocks that are still out would lose their memory with the pool: it then stays with the process.
        if self.live.load(Ordering::Relaxed) == 0 && self.trim().is_ok() {
            // SAFETY: created in `new`, destroyed once here; every block was freed, and the stream is idle.
            let _ = unsafe { self.driver.destroy_pool(self.pool) };
        }
        // SAFETY: created in `new`, destroyed once here.
        let _ = unsafe { self.driver.destroy_stream(self.stream) };
    }
}

impl Hip {
    pub(crate) fn allocate_device(&self, size: usize) -> Result<(u64, Kind)> {
        if let Some(pool) = &self.pool {
            match pool.allocate(size) {
                // The pool may be full of pieces where the device still has room.
                Err(error) if error.kind() == ErrorKind::OutOfDeviceMemory => {}
                result => return Ok((result?, Kind::Pooled)),
            }
        }
        let base = match self.config.device_coherence {
            Coherence::Coarse => self.driver().allocate(size)?,
            Coherence::Fine => self.driver().allocate_with(size, Coherence::Fine)?,
        };
        Ok((base, Kind::Device))
    }

    pub(crate) fn allocate_pinned(&self, size: usize, caching: Caching) -> Result<(u64, Kind)> {
        let host = self.driver().allocate_host(size, caching, self.config.pinned_coherence)?;
        // SAFETY: allocated just above and used by nothing.
        let base = unsafe { address_of_pinned(&**self.driver(), host) }?;
        Ok((base, Kind::Pinned(Raw(host.as_ptr()))))
    }

    /// Frees a block of the pool. Called by `Backend::free`, whose caller promises that it is ours and idle.
    pub(crate) fn free_pooled(&self, base: u64) -> Result<()> {
        let pool = self.pool.as_ref().ok_or(ErrorKind::Foreign)?;
        // SAFETY: `Backend::free` took the block by value, and its caller promised the rest.
        unsafe { pool.free(base) }
    }
}
