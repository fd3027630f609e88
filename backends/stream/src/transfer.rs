//! Byte movement in timeline order.
#![expect(unsafe_code, reason = "calls the driver with addresses that were checked")]
use crate::{
    BOUNCE, Block, BlockKind, Device, Driver, Timeline,
    compact::is_packable,
    pieces::{FEWEST, Table},
};
use core::ptr::NonNull;
use omniheap_seam::{BlockOffset, ErrorKind, HostPin, Move, Result, TimelineId, Transfer};
use std::thread;

/// Writes up to this length fill a bounce together.
const SMALL: usize = BOUNCE / 2;
/// From this length on it pays to ask whether the slice is pinned already.
const ASK_IF_PINNED: usize = 1 << 20;
/// Bytes that are worth another thread.
const PER_WORKER: usize = 8 << 20;
/// Threads that one transfer uses at most: a few fill the bus.
const MOST_WORKERS: usize = 8;

/// Returns a length that this machine can address.
pub(crate) fn length(size: u64) -> Result<usize> {
    usize::try_from(size).map_err(|_| ErrorKind::OutOfRange.into())
}

/// Returns the number of threads for a transfer of `length` bytes.
fn workers<D: Driver>(timeline: &Timeline<D>, length: usize) -> usize {
    if !timeline.is_shared() {
        return 1;
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    (length / PER_WORKER).clamp(1, MOST_WORKERS.min(cores))
}

// SAFETY: `range` and `check_batch` keep every access inside the place's own block; a stream runs in order; a slice is copied into
// or out of a bounce, or waited for, before the call returns.
unsafe impl<D: Driver> Transfer for Device<D> {
    type Block = Block<D::Kind>;

    fn write(&self, on: TimelineId, to: BlockOffset<'_, Self::Block>, bytes: &[u8]) -> Result<()> {
        self.touch_if_watched(to.block);
        let to = self.range(&to, bytes.len() as u64)?;
        let timeline = self.timelines().get(on)?;
        let stream = timeline.stream()?;
        if bytes.is_empty() {
            return Ok(());
        }
        if bytes.len() <= SMALL {
            // SAFETY: `range` saw the bytes inside a live block; they fit a bounce.
            return unsafe { self.staging().write_small(&timeline, to, bytes) };
        }
        if self.is_pinned(bytes) {
            // SAFETY: `range` as above; the slice is borrowed until the copy has run, which is waited for, also where it failed.
            let sent = unsafe { self.driver().write(to, bytes.as_ptr(), bytes.len(), stream) };
            return self.timelines().wait_for_transfer(&timeline).and(sent);
        }
        let workers = workers(&timeline, bytes.len());
        // SAFETY: `range` saw the bytes inside a live block.
        unsafe { self.staging().write(&timeline, to, bytes, workers) }
    }

    fn read(
        &self,
        on: TimelineId,
        from: BlockOffset<'_, Self::Block>,
        bytes: &mut [u8],
    ) -> Result<()> {
        let from = self.range(&from, bytes.len() as u64)?;
        let timeline = self.timelines().get(on)?;
        let stream = timeline.stream()?;
        if bytes.is_empty() {
            return Ok(());
        }
        if self.is_pinned(bytes) {
            // SAFETY: `range` as above; the slice is borrowed until the copy has run, which is waited for, also where it failed.
            let sent = unsafe { self.driver().read(bytes.as_mut_ptr(), from, bytes.len(), stream) };
            return self.timelines().wait_for_transfer(&timeline).and(sent);
        }
        let workers = workers(&timeline, bytes.len());
        // SAFETY: `range` saw the bytes inside a live block.
        unsafe { self.staging().read(&timeline, from, bytes, workers) }
    }

    fn fill(
        &self,
        on: TimelineId,
        to: BlockOffset<'_, Self::Block>,
        size: u64,
        value: u8,
    ) -> Result<()> {
        self.touch_if_watched(to.block);
        let to = self.range(&to, size)?;
        let timeline = self.timelines().get(on)?;
        let stream = timeline.stream()?;
        if size == 0 {
            return Ok(());
        }
        // SAFETY: `range` saw the bytes inside a live block.
        unsafe { self.driver().fill(to, value, length(size)?, stream) }
    }

    fn copy(&self, on: TimelineId, moves: &[Move<'_, Self::Block>]) -> Result<()> {
        self.compactor.tables.with(|table| self.copy_with(table, on, moves))
    }

    unsafe fn pin_host(&self, start: NonNull<u8>, size: usize) -> Result<Option<HostPin>> {
        // SAFETY: the caller's promise.
        unsafe { self.pins.pin(start, size) }
    }
}

impl<D: Driver> Device<D> {
    /// Copies with one driver call.
    ///
    /// # Safety
    ///
    /// The move lies inside live blocks of this backend, and `stream` is live.
    unsafe fn copy_alone<K: BlockKind>(
        &self,
        step: &Move<'_, Block<K>>,
        stream: D::Stream,
    ) -> Result<()> {
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
    fn copy_with<K: BlockKind>(
        &self,
        table: &mut Table,
        on: TimelineId,
        moves: &[Move<'_, Block<K>>],
    ) -> Result<()> {
        // All are checked before the first is submitted: a refused batch changes nothing.
        self.caps().copy.check_batch(moves, |block| self.owns(block).map(|()| block.size))?;
        for step in moves {
            let (from, to) = (self.range(&step.from, step.size)?, self.range(&step.to, step.size)?);
            if is_packable(step) {
                table.add(to, from, step.size)?;
            }
            self.touch_if_watched(step.to.block);
        }
        let timeline = self.timelines().get(on)?;
        let stream = timeline.stream()?;
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

    /// Returns whether a slice may be handed to the driver as it is.
    fn is_pinned(&self, bytes: &[u8]) -> bool {
        let start = || bytes.as_ptr().expose_provenance() as u64;
        self.pins.hold(bytes)
            || bytes.len() >= ASK_IF_PINNED && self.driver().holds(start(), bytes.len() as u64)
    }
}
