//! Results of defragmentation, for callers and reports.
#![forbid(unsafe_code)]
use crate::event::AllocationId;
use crate::lane::MoveOutcome;
use alloc::vec::Vec;
use core::time::Duration;

/// The result of one pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// The outcome of each planned move, in the order of the plan.
    pub moves: Vec<(AllocationId, MoveOutcome)>,
    /// The sums.
    pub moved: Moved,
}

/// Sums over passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// Passes that ended, aborted ones included.
    pub passes: u64,
    /// Passes that were dropped or failed. They changed nothing.
    pub aborted: u64,
    /// Allocations that were moved.
    pub moves: u64,
    /// Bytes that were copied for them.
    pub bytes: u64,
    /// Bytes returned to the driver. The net gain is this minus [`taken_bytes`](Self::taken_bytes).
    pub returned_bytes: u64,
    /// Bytes taken from the driver: fresh pages to pack into, or room in the heap that a recall moves to.
    pub taken_bytes: u64,
    /// The part of `returned_bytes` that was unmapped pages. Their neighbours kept their addresses.
    pub remapped_bytes: u64,
    /// Blocks returned to the driver.
    pub returned_blocks: u64,
    /// Host time spent planning, submitting and committing.
    pub host_time: Duration,
}

impl Moved {
    /// Adds the sums of another pass.
    pub(crate) fn add(&mut self, other: &Self) {
        self.passes += other.passes;
        self.aborted += other.aborted;
        self.moves += other.moves;
        self.bytes += other.bytes;
        self.returned_bytes += other.returned_bytes;
        self.taken_bytes += other.taken_bytes;
        self.remapped_bytes += other.remapped_bytes;
        self.returned_blocks += other.returned_blocks;
        self.host_time += other.host_time;
    }
}
