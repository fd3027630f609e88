//! The driver's asynchronous pool as a source of blocks.
#![expect(unsafe_code, reason = "calls the driver")]
use crate::driver::Driver;
use cudarc::driver::sys::{CUmemPoolHandle_st, CUstream_st};
use omniheap_seam::Result;
use omniheap_stream::{Raw, StreamDriver};
use std::sync::Arc;

/// The driver's pool, with a stream that nothing else uses.
pub(crate) struct AsyncPool {
    driver: Arc<Driver>,
    pool: Raw<CUmemPoolHandle_st>,
    stream: Raw<CUstream_st>,
}

impl AsyncPool {
    pub(crate) fn new(driver: &Arc<Driver>) -> Result<Self> {
        let stream = driver.create_stream()?;
        match driver.create_pool() {
            Ok(pool) => Ok(Self { driver: driver.clone(), pool, stream }),
            Err(error) => {
                // SAFETY: created just above.
                let _ = unsafe { driver.destroy_stream(stream) };
                Err(error)
            }
        }
    }

    pub(crate) fn allocate(&self, size: usize) -> Result<u64> {
        let (driver, stream) = (&self.driver, self.stream);
        // SAFETY: pool and stream live as long as `self`.
        let base = unsafe { driver.allocate_from_pool(size, self.pool, stream.0) }?;
        // The memory is there for every stream only once this one has run; nothing else waits on it.
        // SAFETY: the stream lives as long as `self`.
        if let Err(error) = unsafe { driver.synchronize_stream(stream) } {
            // SAFETY: allocated just above and used by nothing.
            let _ = unsafe { self.free(base) };
            return Err(error);
        }
        Ok(base)
    }

    /// # Safety
    ///
    /// `base` came from [`allocate`](Self::allocate), is not yet freed, and no device work uses it.
    pub(crate) unsafe fn free(&self, base: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.driver.free_to_pool(base, self.stream.0) }
    }
}

impl Drop for AsyncPool {
    fn drop(&mut self) {
        // SAFETY: created in `new`, destroyed once here.
        let _ = unsafe { self.driver.destroy_stream(self.stream) };
        // SAFETY: as above; the driver keeps the pool until its last block is freed.
        let _ = unsafe { self.driver.destroy_pool(self.pool) };
    }
}
