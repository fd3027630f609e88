//! Sums over the passes of a manager, and the memory that they leave for the next.
#![forbid(unsafe_code)]
use super::moves::{Move, Moved};
use crate::lane::SlotsByBlock;
use crate::sync::Mutex;
use alloc::vec::Vec;

/// The counters of one manager, and the memory that its passes leave for the next.
#[derive(Debug)]
pub(crate) struct DefragStats {
    total: Mutex<Moved>,
    pub(super) scratch: PlanScratch,
}

impl Default for DefragStats {
    fn default() -> Self {
        Self { total: Mutex::new(Moved::default()), scratch: PlanScratch::default() }
    }
}

impl DefragStats {
    /// Adds the sums of a pass, or of a part of one.
    pub(crate) fn add(&self, moved: &Moved) {
        self.total.lock().add(moved);
    }

    /// The sums of all passes so far.
    pub(crate) fn read(&self) -> Moved {
        *self.total.lock()
    }
}

/// Limits of the moves and slots for which memory is kept.
const MOST_MOVES: usize = 1 << 14;
const MOST_SLOTS: usize = 1 << 17;

/// Memory of finished passes for the next ones. Allocating it takes longer than planning in it.
#[derive(Debug)]
pub(super) struct PlanScratch {
    moves: Mutex<Vec<Move>>,
    slots: Mutex<SlotsByBlock>,
}

impl Default for PlanScratch {
    fn default() -> Self {
        Self { moves: Mutex::new(Vec::new()), slots: Mutex::new(SlotsByBlock::default()) }
    }
}

impl PlanScratch {
    /// An empty list, with the memory of an earlier pass.
    pub(super) fn take_moves(&self) -> Vec<Move> {
        core::mem::take(&mut *self.moves.lock())
    }

    /// Keeps the memory of a list.
    pub(super) fn put_moves(&self, mut list: Vec<Move>) {
        list.clear();
        if list.capacity() <= MOST_MOVES {
            *self.moves.lock() = list;
        }
    }

    /// An empty table, with the memory of an earlier planner.
    pub(super) fn take_slots(&self) -> SlotsByBlock {
        core::mem::take(&mut *self.slots.lock())
    }

    /// Keeps the memory of a table.
    pub(super) fn put_slots(&self, mut table: SlotsByBlock) {
        table.clear();
        if table.capacity() <= MOST_SLOTS {
            *self.slots.lock() = table;
        }
    }
}
