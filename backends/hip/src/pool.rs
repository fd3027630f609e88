//! The runtime's asynchronous pool as a source of blocks.
#![expect(unsafe_code, reason = "calls the runtime")]
use crate::{
    driver::Driver,
    sys::{hipMemPool_t, hipStream_t},
};
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_seam::{ErrorKind, Result};
use omniheap_stream::StreamDriver;
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
