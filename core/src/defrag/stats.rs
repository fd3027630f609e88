//! Results and counters of defragmentation, for callers and reports.
#![forbid(unsafe_code)]
use super::moves::MoveOutcome;
use super::planner::PlanScratch;
use crate::AllocationId;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;

/// What one pass did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// What became of each planned move, in the plan's order.
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
    /// Passes that were dropped or failed: they changed nothing.
    pub aborted: u64,
    /// Allocations that were moved.
    pub moves: u64,
    /// Bytes that were copied for them.
    pub bytes: u64,
    /// Bytes that went back to the driver because of it. Without [`taken_bytes`](Self::taken_bytes) they are what it gained.
    pub returned_bytes: u64,
    /// Bytes that came from the driver for it: fresh pages to pack into.
    pub taken_bytes: u64,
    /// Of the bytes returned, those of pages that were unmapped: their neighbours kept their addresses.
    pub remapped_bytes: u64,
    /// Blocks that went back to the driver.
    pub returned_blocks: u64,
    /// Time spent planning, submitting and committing, on the host.
    pub host_time: Duration,
}

/// The counters of one manager, and what its passes leave for the next.
#[derive(Debug, Default)]
pub(crate) struct DefragStats {
    passes: AtomicU64,
    aborted: AtomicU64,
    moves: AtomicU64,
    bytes: AtomicU64,
    returned_bytes: AtomicU64,
    taken_bytes: AtomicU64,
    remapped_bytes: AtomicU64,
    returned_blocks: AtomicU64,
    host_nanos: AtomicU64,
    pub(super) scratch: PlanScratch,
}

impl DefragStats {
    /// Adds sums.
    pub(crate) fn add(&self, moved: &Moved) {
        let add = |counter: &AtomicU64, more: u64| {
            counter.fetch_add(more, Relaxed);
        };
        add(&self.passes, moved.passes);
        add(&self.aborted, moved.aborted);
        add(&self.moves, moved.moves);
        add(&self.bytes, moved.bytes);
        add(&self.returned_bytes, moved.returned_bytes);
        add(&self.taken_bytes, moved.taken_bytes);
        add(&self.remapped_bytes, moved.remapped_bytes);
        add(&self.returned_blocks, moved.returned_blocks);
        add(&self.host_nanos, u64::try_from(moved.host_time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Everything so far.
    pub(crate) fn read(&self) -> Moved {
        Moved {
            passes: self.passes.load(Relaxed),
            aborted: self.aborted.load(Relaxed),
            moves: self.moves.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            returned_bytes: self.returned_bytes.load(Relaxed),
            taken_bytes: self.taken_bytes.load(Relaxed),
            remapped_bytes: self.remapped_bytes.load(Relaxed),
            returned_blocks: self.returned_blocks.load(Relaxed),
            host_time: Duration::from_nanos(self.host_nanos.load(Relaxed)),
        }
    }
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
