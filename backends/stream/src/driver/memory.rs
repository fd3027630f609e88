//! The calls that give memory which all drivers have alike, and that hand it to another process.
#![expect(unsafe_code, reason = "declares what a driver owes")]
use super::StreamDriver;
use omniheap_seam::{Error, ErrorKind, Result};

/// Host caching of pinned memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Writes are combined, reads are slow.
    Combined,
    /// As any host memory.
    Cached,
}

/// Free and total device memory according to the driver, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Free bytes.
    pub free: u64,
    /// Total bytes.
    pub total: u64,
}

/// Turns out-of-device-memory into out-of-host-memory.
#[must_use]
pub fn of_host(error: Error) -> Error {
    match error.kind() {
        ErrorKind::OutOfDeviceMemory => {
            Error::new(ErrorKind::OutOfHostMemory).with_native(error.native())
        }
        _ => error,
    }
}

/// Plain and managed memory. Errors are what the driver says.
///
/// # Safety
///
/// Memory has the requested bytes, shared with nothing else, until it is freed; managed memory is the host's too, at the
/// same address.
#[expect(clippy::missing_errors_doc, reason = "said once above, for all")]
pub unsafe trait MemoryDriver: StreamDriver {
    /// Queries free and total memory.
    fn memory_info(&self) -> Result<MemoryInfo>;

    /// Allocates memory of the device.
    fn allocate(&self, size: usize) -> Result<u64>;

    /// Allocates memory that host and device share.
    fn allocate_managed(&self, size: usize) -> Result<u64>;

    /// Frees memory of the device or shared with it.
    ///
    /// # Safety
    ///
    /// `base` came from this driver, plain or managed, is not yet freed, and no device work uses it. Not every driver refuses
    /// another address.
    unsafe fn free(&self, base: u64) -> Result<()>;
}

/// Plain memory that another process opens by a handle. Errors are what the driver says.
///
/// # Safety
///
/// Memory that was opened stays until it is closed.
#[expect(clippy::missing_errors_doc, reason = "said once above, for all")]
pub unsafe trait IpcDriver: StreamDriver {
    /// Returns the handle of a block's memory.
    ///
    /// # Safety
    ///
    /// `base` came from [`MemoryDriver::allocate`] and is not yet freed.
    unsafe fn ipc_handle(&self, base: u64) -> Result<[u8; 64]>;

    /// Opens another process's memory. The driver checks the handle.
    fn open_ipc(&self, handle: [u8; 64]) -> Result<u64>;

    /// Closes it.
    ///
    /// # Safety
    ///
    /// `base` came from [`open_ipc`](Self::open_ipc), is not yet closed, and no device work uses it.
    unsafe fn close_ipc(&self, base: u64) -> Result<()>;
}
