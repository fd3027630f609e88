//! Rectangles of bytes.
#![expect(unsafe_code, reason = "calls the driver with addresses that were checked")]
use crate::{Block, BlockKind, Device, Driver, RowCopy, transfer::length};
use core::fmt;
use omniheap_seam::{BlockOffset, ErrorKind, Result, TimelineId};

/// A copy of rows, from one rectangle to another.
pub struct Rows<'a, K> {
    /// The first byte of the first source row.
    pub from: BlockOffset<'a, Block<K>>,
    /// Bytes from one source row's start to the next.
    pub from_pitch: u64,
    /// The first byte of the first destination row.
    pub to: BlockOffset<'a, Block<K>>,
    /// Bytes from one destination row's start to the next.
    pub to_pitch: u64,
    /// Bytes of a row that are copied.
    pub width: u64,
    /// Rows.
    pub height: u64,
}

impl<K> Clone for Rows<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for Rows<'_, K> {}

impl<K: BlockKind> fmt::Debug for Rows<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows")
            .field("from", &self.from)
            .field("from_pitch", &self.from_pitch)
            .field("to", &self.to)
            .field("to_pitch", &self.to_pitch)
            .field("width", &self.width)
            .field("height", &self.height)
            .finish()
    }
}

/// Returns the bytes from the start of the first row to the end of the last.
fn extent(pitch: u64, width: u64, height: u64) -> Result<u64> {
    if width > pitch {
        return Err(ErrorKind::OutOfRange.into());
    }
    let before_last = pitch.checked_mul(height.saturating_sub(1));
    let extent = before_last.and_then(|bytes| bytes.checked_add(width));
    extent.ok_or_else(|| ErrorKind::OutOfRange.into())
}

impl<D: Driver> Device<D> {
    /// Copies rows, in timeline order. The rectangles must not overlap.
    ///
    /// # Errors
    ///
    /// `OutOfRange`, `Foreign`, `NoSuchTimeline`, `ExceedsLimit` (pitch), `DeviceLost`.
    pub fn copy_rows<K: BlockKind>(&self, on: TimelineId, rows: Rows<'_, K>) -> Result<()> {
        let from = self.range(&rows.from, extent(rows.from_pitch, rows.width, rows.height)?)?;
        self.touch_if_watched(rows.to.block);
        let to = self.range(&rows.to, extent(rows.to_pitch, rows.width, rows.height)?)?;
        if rows.from_pitch.max(rows.to_pitch) > self.max_pitch() {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        let timeline = self.timelines().get(on)?;
        let stream = timeline.stream()?;
        if rows.width == 0 || rows.height == 0 {
            return Ok(());
        }
        let copy = RowCopy {
            to,
            to_pitch: length(rows.to_pitch)?,
            from,
            from_pitch: length(rows.from_pitch)?,
            width: length(rows.width)?,
            height: length(rows.height)?,
        };
        // SAFETY: `range` saw both extents inside live blocks of this backend.
        unsafe { self.driver().copy_rows(&copy, stream) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extent_of_rows_ends_with_the_last_rows_bytes() {
        let kind = |result: Result<u64>| result.map_err(|error| error.kind());
        assert_eq!(kind(extent(100, 40, 3)), Ok(240));
        assert_eq!(kind(extent(100, 100, 1)), Ok(100));
        assert_eq!(kind(extent(0, 0, 0)), Ok(0));
        assert_eq!(kind(extent(10, 11, 1)), Err(ErrorKind::OutOfRange));
        assert_eq!(kind(extent(u64::MAX, 1, 3)), Err(ErrorKind::OutOfRange));
        assert_eq!(kind(extent(u64::MAX, u64::MAX, 2)), Err(ErrorKind::OutOfRange));
    }
}
