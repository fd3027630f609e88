//! Plans the moves of a pass, lane by lane: first regions that can be evacuated, then the holes of blocks that stay.
#![forbid(unsafe_code)]
use super::budget::BudgetMeter;
use super::compact::scattered;
use super::evacuate::sources;
use super::moves::{Move, MoveList};
use super::snapshot::{Inside, Scan, Seen, SlotsByBlock, Snapshot};
use super::stats::DefragStats;
use crate::pool::{Consent, Lane};
use crate::strategy::BlockId;
use crate::sync::Mutex;
use crate::{Backend, HeapId};
use alloc::{sync::Arc, vec::Vec};

/// What a pass is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// Regions worth this many bytes are enough.
    pub(crate) wanted: u64,
    /// Whether owners are asked.
    pub(crate) asks: Consent,
    /// Of the pool's unsettled requests, those of the caller itself.
    pub(crate) own: u64,
    /// What is done where nothing can be emptied.
    pub(crate) holes: Holes,
}

/// What is done about the holes of blocks that cannot be emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holes {
    /// They are closed: what lies high goes into them.
    Close,
    /// So they are, and pages whose holes add up are packed into fresh ones.
    Pack,
    /// They are left.
    Leave,
}

impl Goal {
    /// Everything, without asking owners.
    pub(crate) const ALL: Self =
        Self { wanted: u64::MAX, asks: Consent::Given, own: 0, holes: Holes::Close };
}

/// A lane being defragmented region by region. It can go on in a later pass: what it knows is checked when it is used.
pub(crate) struct LanePlanner<B: Backend> {
    pub(super) lane: Arc<Lane<B>>,
    stats: Arc<DefragStats>,
    pub(super) snapshot: Snapshot,
    /// What of the lane is still to be looked at; `None` when all was.
    scan: Option<Scan>,
    slots: SlotsByBlock,
    stage: Stage,
    /// Regions still to deal with, the next one last.
    pub(super) order: Vec<usize>,
    /// Where in the region that is being emptied.
    pub(super) next: usize,
    /// What each region is to this planner.
    pub(super) roles: Vec<Role>,
    /// Whether the region that is being emptied must be emptied in this pass, or left alone.
    pub(super) only_whole: bool,
    goal: Goal,
}

/// What a planner does with a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It empties regions.
    Empty,
    /// It closes the holes of blocks.
    Close,
}

/// What a region is to a planner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It can be a source or a destination.
    Open,
    /// It is being emptied: nothing goes there.
    Source,
    /// Something goes there, so it is not emptied.
    Destination,
}

/// How planner a few allocations ended.
pub(super) enum Evacuated {
    All,
    /// The meter is empty.
    Enough,
    /// One of them has no place to go.
    NoRoom,
}

impl<B: Backend> LanePlanner<B> {
    /// A planner of a lane, which is looked at when it is used. Where nothing can be copied there is nothing to plan.
    pub(crate) fn new(lane: &Arc<Lane<B>>, stats: &Arc<DefragStats>, goal: &Goal) -> Self {
        let can = lane.shared.device.backend().as_transfer().is_some();
        Self {
            lane: Arc::clone(lane),
            stats: Arc::clone(stats),
            snapshot: lane.snapshot(),
            scan: can.then(Scan::default),
            slots: SlotsByBlock::default(),
            stage: if can { Stage::Empty } else { Stage::Close },
            order: Vec::new(),
            next: 0,
            roles: Vec::new(),
            only_whole: false,
            goal: *goal,
        }
    }

    /// Looks at the lane until all was seen or the time is up; whether all was.
    fn look(&mut self, meter: &BudgetMeter) -> bool {
        let Some(scan) = &mut self.scan else { return true };
        if scan.is_first() {
            self.slots = self.stats.scratch.take_slots();
        }
        let (snapshot, slots) = (&mut self.snapshot, &mut self.slots);
        while self.lane.scan(scan, snapshot, slots, self.goal.asks) == Seen::Part {
            if meter.is_late() {
                return false;
            }
        }
        self.scan = None;
        self.set_order();
        true
    }

    fn set_order(&mut self) {
        let regions = &self.snapshot.regions;
        self.order = match self.stage {
            Stage::Empty => sources(regions),
            Stage::Close => scattered(regions),
        };
        self.order.reverse();
        self.roles = regions.iter().map(|_| Role::Open).collect();
    }

    pub(super) fn heap(&self) -> HeapId {
        self.lane.shared.heap
    }

    pub(crate) fn is_done(&self) -> bool {
        let last = self.stage == Stage::Close || self.goal.holes == Holes::Leave;
        last && self.scan.is_none() && self.order.is_empty()
    }

    /// Requests of the pool, besides the caller's own, whose alignment is not noted yet.
    pub(super) const fn own(&self) -> u64 {
        self.goal.own
    }

    /// Books as much as the meter allows; says how many bytes of regions will be empty.
    ///
    /// Holes are closed in a pass that finds nothing to empty: what an earlier pass emptied is gone by then.
    pub(super) fn plan(
        &mut self,
        wanted: u64,
        meter: &mut BudgetMeter,
        moves: &mut MoveList<B>,
    ) -> u64 {
        let first = moves.len();
        moves.enter(&self.lane);
        if !self.look(meter) {
            return 0;
        }
        if self.stage == Stage::Empty {
            let is_fresh = self.roles.iter().all(|role| *role == Role::Open);
            let released = self.empty_regions(wanted, meter, moves);
            let left = !self.order.is_empty() || self.goal.holes == Holes::Leave;
            if left || moves.len() > first {
                return released;
            }
            self.stage = Stage::Close;
            if is_fresh && self.goal.holes != Holes::Pack {
                self.scan = Some(Scan::holes_only());
            } else {
                // What moved since is not in the snapshot, and what was tried in vain no longer.
                self.snapshot = self.lane.snapshot();
                self.slots.clear();
                self.scan = Some(Scan::with_holes());
            }
            if !self.look(meter) {
                return 0;
            }
        }
        self.close_holes(meter, moves);
        if self.goal.holes == Holes::Pack && moves.len() == first {
            self.pack_pages(meter, moves);
        }
        0
    }

    /// What is in the block of a region now; with its holes, where they are to be closed.
    pub(super) fn look_into(&self, at: usize, holes: Holes) -> Inside {
        let number = u32::try_from(self.snapshot.regions[at].number);
        let block = BlockId(number.expect("blocks have numbers of 31 bits"));
        self.lane.look_into(block, &self.slots, self.goal.asks, holes)
    }

    /// Has done with the next region.
    pub(super) fn skip(&mut self) {
        if let Some(at) = self.order.pop() {
            self.snapshot.regions[at].residents = Vec::new();
        }
        self.next = 0;
    }
}

impl<B: Backend> Drop for LanePlanner<B> {
    fn drop(&mut self) {
        self.stats.scratch.put_slots(core::mem::take(&mut self.slots));
    }
}

/// MoveList, and slots, for which memory is kept.
const MOST_MOVES: usize = 1 << 14;
const MOST_SLOTS: usize = 1 << 17;

/// What one pass may leave for the next.
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
    /// An empty list, with room where a pass has left some.
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

    /// An empty table, with room where a planner has left some.
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
