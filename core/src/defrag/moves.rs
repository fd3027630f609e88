//! The moves of one pass, with the lanes and blocks that they share. A move itself owns nothing shared.
#![forbid(unsafe_code)]
use super::recall::finish_cross_heap;
use super::snapshot::Resident;
use super::stats::{Moved, Outcome};
use crate::device::Block;
use crate::pool::{Consent, Ending, Lane, LaneState, Lodging, Owner, SlotId};
use crate::strategy::{BlockId, Grant};
use crate::{AllocationId, Backend, Class, Move as CopyRegion, Place, Span, TimelineId};
use alloc::{boxed::Box, sync::Arc, vec::Vec};

/// What became of a planned move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MoveOutcome {
    /// The allocation is at its new place.
    Moved,
    /// It is where it was: its owner said so, or somebody asked for its place meanwhile.
    Stayed,
    /// Its owner freed it meanwhile; both places are free.
    Freed,
}

impl MoveOutcome {
    pub(super) const fn of(owner: Owner, arrives: bool) -> Self {
        match (owner, arrives) {
            (Owner::Gone, _) => Self::Freed,
            (Owner::Present, true) => Self::Moved,
            (Owner::Present, false) => Self::Stayed,
        }
    }
}

/// A place that a pass shows: a native block and a span of it.
#[derive(Debug)]
pub struct Spot<'a, T> {
    /// The native block.
    pub block: &'a T,
    /// The bytes inside it.
    pub span: Span,
}

/// One allocation on its way. Its lane and blocks are in the tables of its [`MoveList`].
#[derive(Debug)]
pub(super) struct Move {
    pub(super) slot: SlotId,
    /// Bytes asked for.
    pub(super) size: u64,
    pub(super) from: Span,
    pub(super) to: Grant,
    pub(super) name: Option<Box<str>>,
    pub(super) lane: u32,
    /// The lane that it goes to: the same, unless it is called back to its heap.
    pub(super) to_lane: u32,
    pub(super) from_block: u32,
    pub(super) to_block: u32,
    pub(super) consent: Consent,
    pub(super) how: How,
}

/// What is done about a planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// The pass copies the bytes.
    Copy,
    /// The owner copies them, and says when that is done by committing.
    OwnerCopies,
    /// Nothing.
    Ignore,
}

impl Move {
    /// Bytes that a copy carries.
    pub(super) const fn bytes(&self) -> u64 {
        self.from.size
    }

    /// Whether another planned has the same lane, and goes to the same.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.lane, self.to_lane) == (other.lane, other.to_lane)
    }
}

impl<B: Backend> LaneState<B> {
    /// Timelines that may still use an allocation's bytes, or those of the hole that it goes to.
    pub(super) fn timelines_of(&self, planned: &Move, timelines: &mut Vec<TimelineId>) {
        let mut add = |timeline: TimelineId| {
            if !timelines.contains(&timeline) {
                timelines.push(timeline);
            }
        };
        // Transfers of allocations without a timeline run on the main one.
        add(self.home_of(planned.slot).unwrap_or(TimelineId::MAIN));
        if let Some(note) = self.notes.get(planned.slot.index) {
            note.used_on.iter().copied().for_each(&mut add);
        }
        self.users.busy().chain(self.users.unannounced()).for_each(add);
    }

    /// Ends a planned at the new place, if its bytes are there and nobody asked for the old one; else at the old one.
    ///
    /// This is the locked state of `lane`.
    pub(super) fn finish_move(
        &mut self,
        lane: &Lane<B>,
        planned: &Move,
        copied: Copied,
    ) -> MoveOutcome {
        let old =
            self.slots.moving_key(planned.slot).expect("a pass keeps the slots that it moves");
        let arrives = copied == Copied::Yes && self.slots.is_copying(planned.slot);
        let new = planned.to.key;
        if arrives {
            if planned.how == How::OwnerCopies {
                self.give_up_sanitized(lane, planned.slot);
            }
            self.slots.set_key(planned.slot, new);
            lane.tell_move(self, planned.slot);
        }
        let left = if arrives { old } else { new };
        self.held_bytes -= planned.to.span.size;
        let freed = self.divider.free(left);
        debug_assert!(freed.is_ok(), "both ends of a planned are held");
        MoveOutcome::of(self.let_go(lane, planned.slot), arrives)
    }

    /// Ends a pass's hold on an allocation, and the allocation if its owner let go of it meanwhile.
    /// This is the locked state of `lane`.
    pub(super) fn let_go(&mut self, lane: &Lane<B>, slot: SlotId) -> Owner {
        let owner = self.slots.end_move(slot);
        if owner == Owner::Gone {
            match self.notes.take_ending(slot.index) {
                // The sanitizer looks at it first, without the lock.
                None if self.is_sanitized(slot) => self.defer(slot, Ending::NOW),
                None => {
                    // What moves has no block of its own to return.
                    lane.tell_free(self, slot);
                    let _ = self.free(slot);
                }
                Some(ending) => self.defer(slot, ending),
            }
        }
        owner
    }

    /// Ends an allocation when its points have passed, or never.
    pub(crate) fn defer(&mut self, slot: SlotId, ending: Ending) {
        let Ok(bytes) = self.slots.get(slot).map(|slot| slot.size) else { return };
        if self.slots.defer(slot).is_ok()
            && let Ending::After(points, origin) = ending
        {
            self.deferred.push(slot, bytes, points, origin);
        }
    }
}

/// Gives back the places of moves that are not made, from a position on.
pub(super) fn undo<B: Backend>(moves: &mut MoveList<B>, first: usize) {
    moves.each_few(first, |lane, few| {
        if let Some(there) = moves.cross_heap(&few[0]) {
            for planned in few {
                finish_cross_heap(lane, there, planned, Copied::No);
            }
            return;
        }
        let mut state = lane.state.lock();
        for planned in few {
            state.finish_move(lane, planned, Copied::No);
        }
    });
    moves.truncate(first);
}

/// Whether the bytes of a planned are at its new place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copied {
    Yes,
    No,
}

/// Allocations that are booked or published while a lock is held: a few microseconds.
pub(super) const TOGETHER: usize = 32;
/// Not in the table.
const NONE: u32 = u32::MAX;
/// Marks the number of a lane of another heap.
const CROSS_HEAP: u32 = 1 << 31;

/// The moves of one pass, lane by lane.
pub(super) struct MoveList<B: Backend> {
    list: Vec<Move>,
    lanes: Vec<Arc<Lane<B>>>,
    /// Lanes of other heaps that something goes to.
    cross_heap: Vec<Arc<Lane<B>>>,
    /// The lane that was entered last.
    entered: u32,
    blocks: Vec<Arc<Block<B>>>,
    /// Where the last lane's blocks are in the table, by number.
    by_number: Vec<u32>,
    /// Bytes that the driver gave for them.
    pub(super) taken_bytes: u64,
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

    /// Takes the moves out: none are left.
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

    pub(super) fn truncate(&mut self, length: usize) {
        self.list.truncate(length);
    }

    /// Makes room for so many more.
    pub(super) fn reserve(&mut self, more: usize) {
        self.list.reserve(more);
    }

    /// Takes in a lane: what is added from now on is of that one.
    pub(super) fn enter(&mut self, lane: &Arc<Lane<B>>) {
        let at = place_in(&mut self.lanes, lane);
        if at != self.entered {
            self.entered = at;
            self.by_number.clear();
        }
    }

    /// Marks an allocation of the lane that was entered last as being copied to a place that is held for it.
    pub(super) fn start_move(&mut self, state: &mut LaneState<B>, resident: &Resident, to: Grant) {
        state.held_bytes += to.span.size;
        let blocks = [self.block(state, resident.block), self.block(state, to.block)];
        self.add(state, resident, to, [self.entered; 2], blocks);
    }

    /// As [`start_move`](Self::start_move), to a place in a lane of another heap.
    pub(super) fn start_cross_heap(
        &mut self,
        state: &mut LaneState<B>,
        resident: &Resident,
        to: Lodging<B>,
    ) {
        let from_block = self.block(state, resident.block);
        let lanes = [self.entered, CROSS_HEAP | place_in(&mut self.cross_heap, &to.lane)];
        let to_block = u32::try_from(self.blocks.len()).expect("block numbers have 31 bits");
        self.blocks.push(to.block);
        self.add(state, resident, to.grant, lanes, [from_block, to_block]);
    }

    /// Adds a planned; `lanes` and `blocks` are where it is and where it goes.
    fn add(
        &mut self,
        state: &mut LaneState<B>,
        resident: &Resident,
        to: Grant,
        [lane, to_lane]: [u32; 2],
        [from_block, to_block]: [u32; 2],
    ) {
        let marked = state.slots.set_copying(resident.slot);
        debug_assert!(marked.is_some(), "looked at under the same lock");
        let (size, noted) = marked.unwrap_or((0, false));
        let note = if noted { state.notes.get(resident.slot.index) } else { None };
        let needed = resident.class == Class::Tiled
            || note.is_some_and(|note| note.consent == Consent::Needed);
        let planned = Move {
            slot: resident.slot,
            size,
            from: resident.span,
            to,
            name: note.and_then(|note| note.name.clone()),
            lane,
            to_lane,
            from_block,
            to_block,
            consent: if needed { Consent::Needed } else { Consent::Given },
            how: if needed { How::Ignore } else { How::Copy },
        };
        self.list.push(planned);
    }

    /// The lane of another heap that a planned goes to, if it leaves its own.
    pub(super) fn cross_heap(&self, planned: &Move) -> Option<&Arc<Lane<B>>> {
        (planned.to_lane & CROSS_HEAP != 0)
            .then(|| &self.cross_heap[(planned.to_lane & !CROSS_HEAP) as usize])
    }

    /// The lanes of other heaps that something goes to.
    pub(super) fn cross_heap_lanes(&self) -> Vec<Arc<Lane<B>>> {
        self.cross_heap.clone()
    }

    /// Where a block of the lane that was entered last is in the table.
    fn block(&mut self, state: &LaneState<B>, id: BlockId) -> u32 {
        let number = id.0 as usize;
        if let Some(known) = self.by_number.get(number).filter(|known| **known != NONE) {
            return *known;
        }
        let held = state.blocks[number].as_ref().expect("a span's block is held");
        let at = u32::try_from(self.blocks.len()).expect("block numbers have 31 bits");
        self.blocks.push(Arc::clone(&held.block));
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

    /// Where an allocation is.
    pub(super) fn from(&self, planned: &Move) -> Spot<'_, B::Block> {
        let span = Span { size: planned.size, ..planned.from };
        Spot { block: self.blocks[planned.from_block as usize].raw(), span }
    }

    /// Where it goes.
    pub(super) fn to(&self, planned: &Move) -> Spot<'_, B::Block> {
        let span = Span { size: planned.size, ..planned.to.span };
        Spot { block: self.blocks[planned.to_block as usize].raw(), span }
    }

    pub(super) fn as_move(&self, planned: &Move) -> CopyRegion<'_, B::Block> {
        let block = |at: u32| self.blocks[at as usize].raw();
        let from = Place { block: block(planned.from_block), offset: planned.from.offset };
        let to = Place { block: block(planned.to_block), offset: planned.to.span.offset };
        CopyRegion { from, to, size: planned.bytes() }
    }

    /// Shows moves from a position on, a few of one lane at a time.
    pub(super) fn each_few(&self, first: usize, mut visit: impl FnMut(&Arc<Lane<B>>, &[Move])) {
        for of_lane in self.list[first..].chunk_by(Move::is_like) {
            for few in of_lane.chunks(TOGETHER) {
                visit(self.lane(&few[0]), few);
            }
        }
    }

    /// As [`each_few`](Self::each_few), for all of them and to be changed.
    pub(super) fn each_few_mut(&mut self, mut visit: impl FnMut(&Arc<Lane<B>>, &mut [Move])) {
        for of_lane in self.list.chunk_by_mut(|a, b| a.lane == b.lane) {
            for few in of_lane.chunks_mut(TOGETHER) {
                visit(&self.lanes[few[0].lane as usize], few);
            }
        }
    }

    /// The lanes that something moves in.
    pub(super) fn lanes(&self) -> Vec<Arc<Lane<B>>> {
        let mut lanes = Vec::new();
        for group in self.list.chunk_by(|a, b| a.lane == b.lane) {
            place_in(&mut lanes, self.lane(&group[0]));
        }
        lanes
    }
}

/// Where a lane is in a table; it is added where it is not there yet.
fn place_in<B: Backend>(lanes: &mut Vec<Arc<Lane<B>>>, lane: &Arc<Lane<B>>) -> u32 {
    let known = lanes.iter().rposition(|known| Arc::ptr_eq(known, lane));
    let at = known.unwrap_or_else(|| {
        lanes.push(Arc::clone(lane));
        lanes.len() - 1
    });
    u32::try_from(at).expect("few lanes")
}

/// Shows the new places, a few at a time.
pub(super) fn publish<B: Backend>(moves: &MoveList<B>) -> Outcome {
    let moved = Moved { taken_bytes: moves.taken_bytes, ..Moved::default() };
    let mut outcome = Outcome { moves: Vec::with_capacity(moves.len()), moved };
    let mut note = |id, planned: &Move, one| {
        outcome.moves.push((id, one));
        if one == MoveOutcome::Moved {
            outcome.moved.moves += 1;
            outcome.moved.bytes += planned.bytes();
        }
    };
    moves.each_few(0, |lane, few| {
        let copied = |planned: &Move| {
            if planned.how == How::Ignore { Copied::No } else { Copied::Yes }
        };
        if let Some(there) = moves.cross_heap(&few[0]) {
            for planned in few {
                let one = finish_cross_heap(lane, there, planned, copied(planned));
                note(lane.id_of(planned.slot), planned, one);
            }
            return;
        }
        let mut state = lane.state.lock();
        for planned in few {
            let one = state.finish_move(lane, planned, copied(planned));
            note(lane.id_of(planned.slot), planned, one);
        }
    });
    outcome
}

/// Leaves the new places held for ever, because something may still write there.
pub(super) fn abandon<B: Backend>(moves: &MoveList<B>) {
    moves.each_few(0, |lane, few| {
        let mut state = lane.state.lock();
        for planned in few {
            if !state.slots.is_in_pass(planned.slot) {
                state.notes.of(planned.slot.index).ending = Some(Ending::Never);
            }
            state.let_go(lane, planned.slot);
        }
    });
}
