//! The calls that move or set bytes the device reaches.
#![expect(unsafe_code, reason = "declares what a driver owes")]
use super::StreamDriver;
use omniheap_seam::Result;

/// A copy of rows, from one rectangle to another; addresses are those of first bytes, the rest is bytes and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowCopy {
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

/// Copies and fills, in stream order. Errors are what the driver says.
///
/// # Safety
///
/// - No call touches a byte outside the ranges that it is given.
/// - [`holds`](Self::holds) says yes only where every byte of the range may be copied from or to without staging.
#[expect(clippy::missing_errors_doc, reason = "said once above, for all")]
pub unsafe trait CopyDriver: StreamDriver {
    /// Returns the first address and the bytes of the allocation around `address` that the driver made or registered, on
    /// the host or the device; `None` where it knows of none.
    fn allocation_at(&self, address: u64) -> Option<(u64, u64)>;

    /// Returns whether the whole range lies in one such allocation.
    fn holds(&self, address: u64, size: u64) -> bool {
        // By differences, because sums of what others say may not fit in 64 bits.
        self.allocation_at(address).is_some_and(|(start, length)| {
            let before = address.checked_sub(start);
            let left = before.and_then(|before| length.checked_sub(before));
            left.is_some_and(|left| size <= left)
        })
    }

    /// Copies inside the device.
    ///
    /// # Safety
    ///
    /// Both addresses begin `size` bytes of device memory that live until the copy has run; the stream is live.
    unsafe fn copy(&self, to: u64, from: u64, size: usize, stream: Self::Stream) -> Result<()>;

    /// As [`copy`](Self::copy), where one side may be host memory; the driver finds out which.
    ///
    /// # Safety
    ///
    /// Both addresses begin `size` bytes that the device reaches, and that live until the copy has run; the stream is live.
    unsafe fn copy_unified(
        &self,
        to: u64,
        from: u64,
        size: usize,
        stream: Self::Stream,
    ) -> Result<()>;

    /// Copies rows.
    ///
    /// # Safety
    ///
    /// Every row of both sides lies in bytes that the device reaches, and that live until the copy has run; the stream is live.
    unsafe fn copy_rows(&self, rows: &RowCopy, stream: Self::Stream) -> Result<()>;

    /// Sets every byte to `value`.
    ///
    /// # Safety
    ///
    /// `to` begins `size` bytes that the device reaches, and that live until it has run; the stream is live.
    unsafe fn fill(&self, to: u64, value: u8, size: usize, stream: Self::Stream) -> Result<()>;
}
