//! The moves of one pass, with the lanes and blocks that they share, and what came of them. A move itself owns nothing shared.
#![forbid(unsafe_code)]
use super::budget::BudgetMeter;
use crate::device::Block;
use crate::event::AllocationId;
use crate::lane::{Consent, Lane, MoveGuard, MoveOutcome, Presence, Reservation, Resident, SlotId};
use crate::{Backend, BlockOffset, Move as CopyRegion, Result, Span, TimelineId};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::time::Duration;
use omniheap_strategy::{BlockId, Grant};

/// A place of a planned move: a native block and a span of it.
#[derive(Debug)]
pub struct BlockRange<'a, T> {
    /// The native block.
    pub block: &'a T,
    /// The bytes inside it.
    pub span: Span,
}

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

/// The move of one allocation. Its lanes and blocks are indices into the tables of its [`MoveList`].
#[derive(Debug)]
pub(super) struct Move {
    pub(super) slot: SlotId,
    /// Requested bytes.
    pub(super) size: u64,
    pub(super) from: Span,
    pub(super) to: Grant,
    pub(super) name: Option<Box<str>>,
    pub(super) lane: u32,
    /// The target lane: the same, unless the move crosses heaps.
    pub(super) to_lane: u32,
    pub(super) from_block: u32,
    pub(super) to_block: u32,
    pub(super) consent: Consent,
    pub(super) how: How,
}

/// Method of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The pass copies the bytes.
    Copy,
    /// The owner copies the bytes before it commits the pass.
    OwnerCopies,
    /// The allocation stays.
    Ignore,
}

impl Move {
    /// Bytes that a copy carries.
    pub(super) const fn bytes(&self) -> u64 {
        self.from.size
    }

    /// Returns true if two moves have the same source and target lanes.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.lane, self.to_lane) == (other.lane, other.to_lane)
    }
}

/// The result of trying to start a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Started {
    Yes,
    /// The allocation was freed, or has moved away.
    Gone,
    /// The allocation is pinned or in use, so it may not move.
    Held,
    /// The budget is not enough.
    OverBudget,
    /// There is no place for it.
    NoRoom,
}

/// Moves that are planned or published under one lock: a few microseconds.
pub(super) const TOGETHER: usize = 32;
/// Not in the table.
const NONE: u32 = u32::MAX;
/// Marks the number of a lane of another heap.
const CROSS_HEAP: u32 = 1 << 31;

/// The moves of one pass, lane by lane.
pub(super) struct MoveList<B: Backend> {
    list: Vec<Move>,
    lanes: Vec<Arc<Lane<B>>>,
    /// Target lanes of moves that cross heaps.
    cross_heap: Vec<Arc<Lane<B>>>,
    /// The selected lane.
    entered: u32,
    blocks: Vec<Arc<Block<B>>>,
    /// Indices into `blocks` of the selected lane's blocks, by block number.
    by_number: Vec<u32>,
    /// Bytes that were taken from the driver for these moves.
    taken_bytes: u64,
}

impl<B: Backend> MoveList<B> {
    /// No moves yet, in the memory of an empty list.
    pub(super) const fn new(list: Vec<Move>) -> Self {
        Self {
            list,
            lanes: Vec::new(),
            cross_heap: Vec::new(),
            entered: NONE,
            blocks: Vec::new(),
            by_number: Vec::new(),
            taken_bytes: 0,
        }
    }

    /// Takes all moves out.
    pub(super) const fn take(&mut self) -> Self {
        core::mem::replace(self, Self::new(Vec::new()))
    }

    /// The list's memory, for another pass.
    pub(super) fn into_list(self) -> Vec<Move> {
        self.list
    }

    pub(super) const fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn list(&self) -> &[Move] {
        &self.list
    }

    pub(super) fn get_mut(&mut self, which: usize) -> Option<&mut Move> {
        self.list.get_mut(which)
    }

    /// Reserves room for `more` moves.
    pub(super) fn reserve(&mut self, more: usize) {
        self.list.reserve(more);
    }

    pub(super) const fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    /// Counts bytes that the driver gave for these moves.
    pub(super) const fn add_taken(&mut self, bytes: u64) {
        self.taken_bytes += bytes;
    }

    /// Selects the lane whose allocations are added from now on.
    pub(super) fn enter(&mut self, lane: &Arc<Lane<B>>) {
        let at = index_in(&mut self.lanes, lane);
        if at != self.entered {
            self.entered = at;
            self.by_number.clear();
        }
    }

    /// Starts the move of an allocation of the selected lane to the place that `reserve` finds, within a budget.
    pub(super) fn try_start(
        &mut self,
        guard: &mut MoveGuard<'_, B>,
        resident: &Resident,
        meter: &mut BudgetMeter,
        reserve: impl FnOnce(&mut MoveGuard<'_, B>) -> Option<Grant>,
    ) -> Started {
        match guard.look_at(resident) {
            Presence::Free => {}
            Presence::Held => return Started::Held,
            Presence::Gone => return Started::Gone,
        }
        if !meter.pay(resident.span.size) {
            return Started::OverBudget;
        }
        let Some(to) = reserve(guard) else {
            meter.refund(resident.span.size);
            return Started::NoRoom;
        };
        let blocks = [self.block(guard, resident.block), self.block(guard, to.block)];
        self.add(guard, resident, (to, to.span.size), [self.entered; 2], blocks);
        Started::Yes
    }

    /// Starts the move of an allocation of the selected lane to a place that is held for it in a lane of another heap.
    pub(super) fn start_cross_heap(
        &mut self,
        guard: &mut MoveGuard<'_, B>,
        resident: &Resident,
        to: Reservation<B>,
    ) {
        let from_block = self.block(guard, resident.block);
        let lanes = [self.entered, CROSS_HEAP | index_in(&mut self.cross_heap, &to.lane)];
        let to_block = u32::try_from(self.blocks.len()).expect("block numbers have 31 bits");
        self.blocks.push(to.block);
        self.add(guard, resident, (to.grant, 0), lanes, [from_block, to_block]);
    }

    /// Adds a move; `lanes` and `blocks` are those of its source and its target, `held` the target's bytes in its own lane.
    fn add(
        &mut self,
        guard: &mut MoveGuard<'_, B>,
        resident: &Resident,
        (to, held): (Grant, u64),
        [lane, to_lane]: [u32; 2],
        [from_block, to_block]: [u32; 2],
    ) {
        let started = guard.start(resident, held);
        self.list.push(Move {
            slot: resident.slot,
            size: started.size,
            from: resident.span,
            to,
            name: started.name,
            lane,
            to_lane,
            from_block,
            to_block,
            consent: started.consent,
            how: if started.consent == Consent::Needed { How::Ignore } else { How::Copy },
        });
    }

    /// The target lane of a move that crosses heaps.
    pub(super) fn cross_heap(&self, planned: &Move) -> Option<&Arc<Lane<B>>> {
        (planned.to_lane & CROSS_HEAP != 0)
            .then(|| &self.cross_heap[(planned.to_lane & !CROSS_HEAP) as usize])
    }

    /// Waits until nothing on the device uses the target of a move.
    pub(super) fn wait_for_target(&self, planned: &Move) -> Result<()> {
        let lane = self.cross_heap(planned).unwrap_or_else(|| self.lane(planned));
        lane.wait_for_held(planned.to.key)
    }

    /// The target lanes of moves that cross heaps.
    pub(super) fn cross_heap_lanes(&self) -> Vec<Arc<Lane<B>>> {
        self.cross_heap.clone()
    }

    /// The index in `blocks` of a block of the selected lane.
    fn block(&mut self, guard: &MoveGuard<'_, B>, id: BlockId) -> u32 {
        let number = id.0 as usize;
        if let Some(known) = self.by_number.get(number).filter(|known| **known != NONE) {
            return *known;
        }
        let at = u32::try_from(self.blocks.len()).expect("block numbers have 31 bits");
        self.blocks.push(guard.block(id));
        if number >= self.by_number.len() {
            self.by_number.resize(number + 1, NONE);
        }
        self.by_number[number] = at;
        at
    }

    pub(super) fn lane(&self, planned: &Move) -> &Arc<Lane<B>> {
        &self.lanes[planned.lane as usize]
    }

    pub(super) fn id(&self, planned: &Move) -> AllocationId {
        self.lane(planned).id_of(planned.slot)
    }

    /// The current place of an allocation.
    pub(super) fn from(&self, planned: &Move) -> BlockRange<'_, B::Block> {
        let span = Span { size: planned.size, ..planned.from };
        BlockRange { block: self.blocks[planned.from_block as usize].raw(), span }
    }

    /// The target of a move.
    pub(super) fn to(&self, planned: &Move) -> BlockRange<'_, B::Block> {
        let span = Span { size: planned.size, ..planned.to.span };
        BlockRange { block: self.blocks[planned.to_block as usize].raw(), span }
    }

    pub(super) fn region(&self, planned: &Move) -> CopyRegion<'_, B::Block> {
        let block = |at: u32| self.blocks[at as usize].raw();
        let from = BlockOffset { block: block(planned.from_block), offset: planned.from.offset };
        let to = BlockOffset { block: block(planned.to_block), offset: planned.to.span.offset };
        CopyRegion { from, to, size: planned.bytes() }
    }

    /// The moves from a position on, in batches of one lane that are dealt with under one lock.
    fn batches(&self, first: usize) -> impl Iterator<Item = &[Move]> {
        let of_lanes = self.list[first..].chunk_by(Move::is_like);
        of_lanes.flat_map(|of_lane| of_lane.chunks(TOGETHER))
    }

    /// Ends the moves from a position on, and reports each outcome.
    ///
    /// A move ends at its new place where `copied` returns true and the old place was not asked for.
    fn finish(
        &self,
        first: usize,
        copied: impl Fn(&Move) -> bool,
        mut report: impl FnMut(&Move, MoveOutcome),
    ) {
        for few in self.batches(first) {
            let here = self.lane(&few[0]);
            if let Some(there) = self.cross_heap(&few[0]) {
                for planned in few {
                    let by_owner = planned.how == How::OwnerCopies;
                    let (to, copied) = ((planned.to, planned.bytes()), copied(planned));
                    let outcome = here.finish_remote(planned.slot, there, to, copied, by_owner);
                    report(planned, outcome);
                }
                continue;
            }
            let mut guard = here.lock_moves();
            for planned in few {
                let by_owner = planned.how == How::OwnerCopies;
                let outcome = guard.finish(planned.slot, planned.to, copied(planned), by_owner);
                report(planned, outcome);
            }
        }
    }

    /// Publishes the new places.
    pub(super) fn publish(&self) -> Outcome {
        let moved = Moved { taken_bytes: self.taken_bytes, ..Moved::default() };
        let mut outcome = Outcome { moves: Vec::with_capacity(self.len()), moved };
        let copied = |planned: &Move| planned.how != How::Ignore;
        self.finish(0, copied, |planned, result| {
            outcome.moves.push((self.id(planned), result));
            if result == MoveOutcome::Moved {
                outcome.moved.moves += 1;
                outcome.moved.bytes += planned.bytes();
            }
        });
        outcome
    }

    /// Cancels the moves from a position on: their new places are free again.
    pub(super) fn undo(&mut self, first: usize) {
        self.finish(first, |_| false, |_, _| {});
        self.list.truncate(first);
    }

    /// Ends the pass but keeps the new places of what it or an owner copies reserved forever, because copies may still write there:
    /// its own run on a timeline, and the owner knows of the others.
    pub(super) fn abandon(&mut self, on: TimelineId) {
        let is_copied = |planned: &mut Move| planned.how != How::Ignore;
        let copied: Vec<_> = self.list.extract_if(.., is_copied).collect();
        self.undo(0);
        self.list = copied;
        for few in self.batches(0) {
            let mut guard = self.lane(&few[0]).lock_moves();
            for planned in few {
                let by = (planned.how == How::Copy).then_some(on);
                guard.abandon(planned.slot, planned.to.span.size, by);
            }
        }
    }

    /// Visits all moves in batches of one lane, and lets the visitor change them.
    pub(super) fn each_few_mut(&mut self, mut visit: impl FnMut(&Arc<Lane<B>>, &mut [Move])) {
        for of_lane in self.list.chunk_by_mut(|a, b| a.lane == b.lane) {
            for few in of_lane.chunks_mut(TOGETHER) {
                visit(&self.lanes[few[0].lane as usize], few);
            }
        }
    }

    /// The source lanes of all moves.
    pub(super) fn lanes(&self) -> Vec<Arc<Lane<B>>> {
        let mut lanes = Vec::new();
        for group in self.list.chunk_by(|a, b| a.lane == b.lane) {
            index_in(&mut lanes, self.lane(&group[0]));
        }
        lanes
    }
}

/// The index of a lane in a table; adds it where it is missing.
fn index_in<B: Backend>(lanes: &mut Vec<Arc<Lane<B>>>, lane: &Arc<Lane<B>>) -> u32 {
    let known = lanes.iter().rposition(|known| Arc::ptr_eq(known, lane));
    let at = known.unwrap_or_else(|| {
        lanes.push(Arc::clone(lane));
        lanes.len() - 1
    });
    u32::try_from(at).expect("few lanes")
}
