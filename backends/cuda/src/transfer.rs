//! Byte movement in timeline order.
#![expect(unsafe_code, reason = "implements the unsafe contract")]
use crate::{
    backend::Cuda,
    block::Block,
    compact::is_packable,
    driver::Driver,
    sys::{CUDA_MEMCPY2D, CUstream},
};
use core::ptr;
use cudarc::driver::sys::CUmemorytype_enum;
use omniheap_core::{ErrorKind, Move, Place, Result, TimelineId, Transfer};
use omniheap_stream::{
    BOUNCE, Timeline,
    pieces::{FEWEST, Table},
};
use std::thread;

/// Writes up to this length fill a bounce together.
const SMALL: usize = BOUNCE / 2;
/// From this length on it pays to ask whether the slice is pinned already.
const ASK_IF_PINNED: usize = 1 << 20;
/// Bytes that are worth another thread.
const PER_WORKER: usize = 8 << 20;
/// Threads that one transfer uses at most: a few fill the bus.
const MOST_WORKERS: usize = 8;

/// A copy of rows, from one rectangle to another.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// The first byte of the first source row.
    pub from: Place<'a, Block>,
    /// Bytes from one source row's start to the next.
    pub from_pitch: u64,
    /// The first byte of the first destination row.
    pub to: Place<'a, Block>,
    /// Bytes from one destination row's start to the next.
    pub to_pitch: u64,
    /// Bytes of a row that are copied.
    pub width: u64,
    /// Rows.
    pub height: u64,
}

/// Bytes from the start of the first row to the end of the last.
fn extent(pitch: u64, width: u64, height: u64) -> Result<u64> {
    if width > pitch {
        return Err(ErrorKind::OutOfRange.into());
    }
    let before_last = pitch.checked_mul(height.saturating_sub(1));
    let extent = before_last.and_then(|bytes| bytes.checked_add(width));
    extent.ok_or_else(|| ErrorKind::OutOfRange.into())
}

/// A length that this machine can address.
fn length(size: u64) -> Result<usize> {
    usize::try_from(size).map_err(|_| ErrorKind::OutOfRange.into())
}

/// How many threads a transfer of `length` bytes is worth.
fn workers(timeline: &Timeline<Driver>, length: usize) -> usize {
    if !timeline.is_shared() {
        return 1;
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    (length / PER_WORKER).clamp(1, MOST_WORKERS.min(cores))
}

impl Cuda {
    /// Copies rows, in timeline order. The rectangles must not overlap.
    ///
    /// # Errors
    ///
    /// `OutOfRange`, `Foreign`, `NoSuchTimeline`, `ExceedsLimit` (pitch), `DeviceLost`.
    pub fn copy_rows(&self, on: TimelineId, rows: Rows<'_>) -> Result<()> {
        let from = self.range(&rows.from, extent(rows.from_pitch, rows.width, rows.height)?)?;
        self.touch_if_constant(rows.to.block);
        let to = self.range(&rows.to, extent(rows.to_pitch, rows.width, rows.height)?)?;
        if rows.from_pitch.max(rows.to_pitch) > self.attributes().max_pitch {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        let timeline = self.timelines().get(on)?;
        let stream = timeline.stream()?.0;
        if rows.width == 0 || rows.height == 0 {
            return Ok(());
        }
        let copy = CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: CUmemorytype_enum::CU_MEMORYTYPE_UNIFIED,
            srcHost: ptr::null(),
            srcDevice: from,
            srcArray: ptr::null_mut(),
            srcPitch: length(rows.from_pitch)?,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: CUmemorytype_enum::CU_MEMORYTYPE_UNIFIED,
            dstHost: ptr::null_mut(),
            dstDevice: to,
            dstArray: ptr::null_mut(),
            dstPitch: length(rows.to_pitch)?,
            WidthInBytes: length(rows.width)?,
            Height: length(rows.height)?,
        };
        // SAFETY: `range` saw both extents inside live blocks of this backend.
        unsafe { self.driver().copy_2d(&copy, stream) }
    }

    /// Copies bytes to a block of another opened device, on a timeline of this one.
    ///
    /// Nothing orders it against the other device's timelines: wait for a mark of `on` before the bytes are used there.
    ///
    /// # Errors
    ///
    /// As for [`Transfer::copy`].
    pub fn copy_to_peer(
        &self,
        on: TimelineId,
        from: Place<'_, Block>,
        peer: &Self,
        to: Place<'_, Block>,
        size: u64,
    ) -> Result<()> {
        peer.touch_if_constant(to.block);
        let (from, to) = (self.range(&from, size)?, peer.range(&to, size)?);
        let timeline = self.timelines().get(on)?;
        let stream = timeline.stream()?.0;
        if size == 0 {
            return Ok(());
        }
        // SAFETY: `range` saw both inside live blocks, each of its own backend.
        unsafe { self.driver().copy_peer((peer.driver(), to), from, length(size)?, stream) }
    }

    /// Copies with one driver call.
    ///
    /// # Safety
    ///
    /// The move lies inside live blocks of this backend, and `stream` is live.
    unsafe fn copy_alone(&self, step: &Move<'_, Block>, stream: CUstream) -> Result<()> {
        let (from, to) = (step.from.block.at(step.from.offset), step.to.block.at(step.to.offset));
        let (driver, size) = (self.driver(), length(step.size)?);
        if size == 0 {
            return Ok(());
        }
        if step.from.block.is_on_device() && step.to.block.is_on_device() {
            // SAFETY: the caller's promise, and both are device memory.
            unsafe { driver.copy(to, from, size, stream) }
        } else {
            // SAFETY: the caller's promise.
            unsafe { driver.copy_unified(to, from, size, stream) }
        }
    }

    /// Copies a batch, with an empty table for the small ones.
    fn copy_with(
        &self,
        table: &mut Table,
        on: TimelineId,
        moves: &[Move<'_, Block>],
    ) -> Result<()> {
        // All are checked before the first is submitted: a refused batch changes nothing.
        for step in moves {
            let (from, to) = (self.range(&step.from, step.size)?, self.range(&step.to, step.size)?);
            if is_packable(step) {
                table.add(to, from, step.size)?;
            }
            self.touch_if_constant(step.to.block);
        }
        let timeline = self.timelines().get(on)?;
        let stream = timeline.stream()?.0;
        let _current = self.driver().enter()?;
        let is_packed = table.moves() >= FEWEST && {
            // SAFETY: all were seen inside live blocks above.
            unsafe { self.compact(on, &timeline, table) }?
        };
        if is_packed && table.moves() == moves.len() {
            return Ok(());
        }
        for step in moves.iter().filter(|step| !(is_packed && is_packable(step))) {
            // SAFETY: as above.
            unsafe { self.copy_alone(step, stream) }?;
        }
        Ok(())
    }

    /// Whether a slice may be handed to the driver as it is.
    fn is_pinned(&self, bytes: &[u8]) -> bool {
        bytes.len() >= ASK_IF_PINNED && self.driver().knows(bytes.as_ptr(), bytes.len() as u64)
    }
}

// SAFETY: `range` keeps every access inside the place's own block.
unsafe impl Transfer for Cuda {
    fn write(&self, on: TimelineId, to: Place<'_, Block>, bytes: &[u8]) -> Result<()> {
        self.touch_if_constant(to.block);
        let to = self.range(&to, bytes.len() as u64)?;
        let timeline = self.timelines().get(on)?;
        let stream = timeline.stream()?.0;
        if bytes.is_empty() {
            return Ok(());
        }
        if bytes.len() <= SMALL {
            // SAFETY: `range` saw the bytes inside a live block; they fit a bounce.
            return unsafe { self.staging().write_small(&timeline, to, bytes) };
        }
        if self.is_pinned(bytes) {
            // SAFETY: `range` as above; the slice is borrowed until the copy has run, which is waited for.
            unsafe { self.driver().write(to, bytes.as_ptr(), bytes.len(), stream) }?;
            return self.timelines().settle(&timeline);
        }
        let workers = workers(&timeline, bytes.len());
        // SAFETY: `range` saw the bytes inside a live block.
        unsafe { self.staging().write(&timeline, to, bytes, workers) }
    }

    fn read(&self, on: TimelineId, from: Place<'_, Block>, bytes: &mut [u8]) -> Result<()> {
        let from = self.range(&from, bytes.len() as u64)?;
        let timeline = self.timelines().get(on)?;
        let stream = timeline.stream()?.0;
        if bytes.is_empty() {
            return Ok(());
        }
        if self.is_pinned(bytes) {
            // SAFETY: `range` as above; the slice is borrowed until the copy has run, which is waited for.
            unsafe { self.driver().read(bytes.as_mut_ptr(), from, bytes.len(), stream) }?;
            return self.timelines().settle(&timeline);
        }
        let workers = workers(&timeline, bytes.len());
        // SAFETY: `range` saw the bytes inside a live block.
        unsafe { self.staging().read(&timeline, from, bytes, workers) }
    }

    fn fill(&self, on: TimelineId, to: Place<'_, Block>, size: u64, value: u8) -> Result<()> {
        self.touch_if_constant(to.block);
        let to = self.range(&to, size)?;
        let timeline = self.timelines().get(on)?;
        let stream = timeline.stream()?.0;
        if size == 0 {
            return Ok(());
        }
        // SAFETY: `range` saw the bytes inside a live block.
        unsafe { self.driver().fill(to, value, length(size)?, stream) }
    }

    fn copy(&self, on: TimelineId, moves: &[Move<'_, Block>]) -> Result<()> {
        self.compactor.tables.with(|table| self.copy_with(table, on, moves))
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
