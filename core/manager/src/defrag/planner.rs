//! Plans the moves of a pass, lane by lane: first extents that can be evacuated, then the holes of blocks that stay.
#![forbid(unsafe_code)]
use super::budget::BudgetMeter;
use super::moves::MoveList;
use super::stats::DefragStats;
use crate::lane::{Consent, Inside, Lane, MoveGuard, Scan, SlotsByBlock, Snapshot};
use crate::{Backend, HeapId};
use alloc::{sync::Arc, vec::Vec};
use omniheap_strategy::BlockId;
use omniheap_strategy::moves::{scattered, sources};

/// The goal of a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// Stop once extents of this many bytes will be empty.
    pub(crate) wanted: u64,
    /// Consent of the allocations to plan: `Needed` also plans those that move on consent.
    pub(crate) asks: Consent,
    /// Treatment of holes where no extent can be evacuated.
    pub(crate) holes: Holes,
}

/// Treatment of holes where no extent can be evacuated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holes {
    /// Compact blocks: allocations high in a block move into its lower holes.
    Close,
    /// Compact blocks, and pack pages whose holes add up into fresh pages.
    Pack,
    /// Leave them.
    Leave,
}

impl Goal {
    /// Everything, without asking owners.
    pub(crate) const ALL: Self =
        Self { wanted: u64::MAX, asks: Consent::Given, holes: Holes::Close };
}

/// Plans the moves of one lane, extent by extent. It can continue in a later pass: its snapshot is checked when used.
pub(crate) struct LanePlanner<B: Backend> {
    pub(super) lane: Arc<Lane<B>>,
    stats: Arc<DefragStats>,
    pub(super) snapshot: Snapshot,
    /// The unfinished part of the snapshot; `None` when it is complete.
    scan: Option<Scan>,
    slots: SlotsByBlock,
    /// True if no more extents can be evacuated, so that blocks are compacted.
    compacts: bool,
    /// Extents that are left, the next one last.
    pub(super) order: Vec<usize>,
    /// Position in the extent that is being evacuated.
    pub(super) next: usize,
    /// The role of each extent.
    pub(super) roles: Vec<Role>,
    /// True if the current extent must be evacuated whole in this pass, or left alone.
    pub(super) only_whole: bool,
    goal: Goal,
}

/// The role of an extent in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The extent can be a source or a destination.
    Open,
    /// The extent is being evacuated: nothing moves there.
    Source,
    /// Something moves there, so it is not evacuated.
    Destination,
}

/// The result of planning to evacuate some allocations.
pub(super) enum Evacuation {
    All,
    /// The budget is spent.
    OverBudget,
    /// There is no room for one of them.
    NoRoom,
}

impl<B: Backend> LanePlanner<B> {
    /// A planner for a lane. It plans nothing where the device cannot copy.
    pub(crate) fn new(lane: &Arc<Lane<B>>, stats: &Arc<DefragStats>, goal: &Goal) -> Self {
        let can = lane.shared.device.backend().as_transfer().is_some();
        Self {
            lane: Arc::clone(lane),
            stats: Arc::clone(stats),
            snapshot: lane.snapshot(),
            scan: can.then(Scan::default),
            slots: SlotsByBlock::default(),
            compacts: !can,
            order: Vec::new(),
            next: 0,
            roles: Vec::new(),
            only_whole: false,
            goal: *goal,
        }
    }

    /// Takes the snapshot until it is complete or the time is up; returns whether it is complete.
    fn look(&mut self, meter: &BudgetMeter) -> bool {
        let Some(scan) = &mut self.scan else { return true };
        if scan.is_first() {
            self.slots = self.stats.scratch.take_slots();
        }
        let (snapshot, slots) = (&mut self.snapshot, &mut self.slots);
        while !self.lane.scan(scan, snapshot, slots, self.goal.asks) {
            if meter.is_late() {
                return false;
            }
        }
        self.scan = None;
        self.set_order();
        true
    }

    fn set_order(&mut self) {
        let extents = &self.snapshot.extents;
        self.order = if self.compacts { scattered(extents) } else { sources(extents) };
        self.order.reverse();
        self.roles = extents.iter().map(|_| Role::Open).collect();
    }

    pub(super) fn heap(&self) -> HeapId {
        self.lane.shared.heap
    }

    /// Returns true if everything was planned.
    pub(crate) fn is_done(&self) -> bool {
        let last = self.compacts || self.goal.holes == Holes::Leave;
        last && self.scan.is_none() && self.order.is_empty()
    }

    /// Locks the lane to plan moves; see [`Lane::lock_to_plan`].
    pub(super) fn lock<'a>(&self, lane: &'a Lane<B>) -> Option<MoveGuard<'a, B>> {
        lane.lock_to_plan()
    }

    /// Plans as many moves as the budget allows; returns the bytes of extents that will be empty.
    ///
    /// Blocks are compacted in a pass that finds nothing to evacuate: by then, earlier passes have released their extents.
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
        if !self.compacts {
            let is_fresh = self.roles.iter().all(|role| *role == Role::Open);
            let released = self.evacuate_extents(wanted, meter, moves);
            let left = !self.order.is_empty() || self.goal.holes == Holes::Leave;
            if left || moves.len() > first {
                return released;
            }
            self.compacts = true;
            if is_fresh && self.goal.holes != Holes::Pack {
                self.scan = Some(Scan::holes_only());
            } else {
                // Allocations have moved since the snapshot, and extents that were given up lost their lists.
                self.snapshot = self.lane.snapshot();
                self.slots.clear();
                self.scan = Some(Scan::with_holes());
            }
            if !self.look(meter) {
                return 0;
            }
        }
        self.compact_blocks(meter, moves);
        if self.goal.holes == Holes::Pack && moves.len() == first {
            self.pack_pages(meter, moves);
        }
        0
    }

    /// The current contents of an extent's block; with its holes where they are to be closed.
    pub(super) fn look_into(&self, at: usize, with_holes: bool) -> Inside {
        let number = u32::try_from(self.snapshot.extents[at].number);
        let block = BlockId(number.expect("blocks have numbers of 31 bits"));
        self.lane.look_into(block, &self.slots, self.goal.asks, with_holes)
    }

    /// Drops the next extent from the plan.
    pub(super) fn skip(&mut self) {
        if let Some(at) = self.order.pop() {
            self.snapshot.extents[at].residents = Vec::new();
        }
        self.next = 0;
    }
}

impl<B: Backend> Drop for LanePlanner<B> {
    fn drop(&mut self) {
        self.stats.scratch.put_slots(core::mem::take(&mut self.slots));
    }
}
