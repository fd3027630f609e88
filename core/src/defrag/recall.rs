//! Recalls: allocations that spilled to a slower heap move back, the largest first, while the better heap has room.
#![forbid(unsafe_code)]
use super::budget::BudgetMeter;
use super::moves::{How, Move, MoveList, MoveOutcome};
use super::pass::Pass;
use super::snapshot::{Found, Presence, Resident, SLOTS_TOGETHER};
use super::stats::DefragStats;
use crate::device::Device;
use crate::pool::{Divider, Lane, Lodging, Stay};
use crate::{Backend, HeapId, Layout, Result, TimelineId};
use alloc::{sync::Arc, vec::Vec};
use std::time::Instant;

/// An allocation that spilled to another heap than the best one.
pub(crate) struct Spilled<B: Backend> {
    lane: Arc<Lane<B>>,
    resident: Resident,
    /// The best heap for it.
    wished: HeapId,
}

impl<B: Backend> Spilled<B> {
    /// The heap it should be in, and the layout and class it needs there.
    pub(crate) const fn wants(&self) -> (HeapId, Layout, crate::Class) {
        let Resident { span, align, class, .. } = self.resident;
        (self.wished, Layout { size: span.size, align }, class)
    }

    /// The timeline in whose order its bytes are used.
    pub(crate) fn timeline(&self) -> Option<TimelineId> {
        self.lane.state.lock().home_of(self.resident.slot)
    }

    fn rank(&self) -> Rank {
        Rank::new(self.resident.span.size, self.lane.number, self.resident.slot.index)
    }
}

/// The order in which allocations are recalled.
///
/// The largest come first, because they are the hardest to place. Equal sizes come in the order of lanes and slots, so
/// the same calls give the same plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    smaller_than: u64,
    lane: u32,
    slot: u32,
}

impl Rank {
    const fn new(size: u64, lane: u32, slot: u32) -> Self {
        Self { smaller_than: u64::MAX - size, lane, slot }
    }
}

/// The smallest size that found no room, for each heap.
#[derive(Debug, Default)]
struct NoRoom(Vec<(HeapId, u64)>);

impl NoRoom {
    fn note(&mut self, heap: HeapId, size: u64) {
        self.0.retain(|(known, _)| *known != heap);
        self.0.push((heap, size));
    }

    /// Whether this many bytes, or fewer, found no room. Sizes come in falling order.
    fn covers(&self, heap: HeapId, size: u64) -> bool {
        self.0.iter().any(|(known, least)| *known == heap && size >= *least)
    }
}

impl<B: Backend> Lane<B> {
    /// Adds the allocations of this lane that spilled here from another heap.
    pub(crate) fn find_spilled(self: &Arc<Self>, found: &mut Vec<Spilled<B>>) {
        for from in (0..).step_by(SLOTS_TOGETHER) {
            let state = self.state.lock();
            let Divider::General(tlsf) = &state.divider else { return };
            let seen = state.slots.visit(from, SLOTS_TOGETHER, |id, slot| {
                let note = if slot.is_noted() { state.notes.get(id.index) } else { None };
                let Some(Stay::Wishes(wished)) = note.map(|note| note.stay) else { return };
                let Ok((grant, class)) = tlsf.granted(slot.key) else { return };
                if let Found::Mobile(mobile) = state.mobile_in(id, slot, class) {
                    let resident = self.resident(mobile, grant.block, grant.span, class);
                    found.push(Spilled { lane: Arc::clone(self), resident, wished });
                }
            });
            if !seen {
                return;
            }
        }
    }
}

impl<B: Backend> Pass<B> {
    /// Plans the moves of a recall. `lodge` reserves a place in the better heap, and returns it with the bytes that the
    /// driver gave for it.
    pub(crate) fn recall(
        (device, stats, on): (Arc<Device<B>>, Arc<DefragStats>, TimelineId),
        mut spilled: Vec<Spilled<B>>,
        meter: &mut BudgetMeter,
        mut lodge: impl FnMut(&Spilled<B>) -> Result<Option<(Lodging<B>, u64)>>,
    ) -> Result<Self> {
        let began = Instant::now();
        spilled.sort_by_key(Spilled::rank);
        let moves = MoveList::new(stats.scratch.take_moves());
        // From here on an error aborts the pass.
        let mut pass = Self::of(device, stats, on, moves);
        let mut no_room = NoRoom::default();
        for one in &spilled {
            let (heap, size) = (one.wished, one.resident.span.size);
            if meter.is_empty() || meter.is_late() {
                break;
            }
            meter.set_rates(pass.device.cost(one.lane.shared.heap).rates());
            if no_room.covers(heap, size) || !meter.pay(size) {
                continue;
            }
            match lodge(one)? {
                Some((lodging, taken)) => {
                    pass.moves.add_taken(taken);
                    if !pass.call_back(one, lodging) {
                        meter.refund(size);
                    }
                }
                None => {
                    no_room.note(heap, size);
                    meter.refund(size);
                }
            }
        }
        if pass.moves.is_empty() && meter.too_dear {
            spilled.iter().for_each(|one| pass.device.cost(one.lane.shared.heap).doubt());
        }
        pass.host_time = began.elapsed();
        Ok(pass)
    }

    /// Starts a move to a reserved place. Where the allocation may not move any more, frees the place and returns `false`.
    fn call_back(&mut self, one: &Spilled<B>, lodging: Lodging<B>) -> bool {
        self.moves.enter(&one.lane);
        let mut state = one.lane.state.lock();
        if matches!(state.look_at(&one.resident), Presence::Free) {
            self.moves.start_cross_heap(&mut state, &one.resident, lodging);
            return true;
        }
        drop(state);
        lodging.lane.let_go_of(lodging.grant);
        false
    }
}

/// Ends a move across heaps: at the new place if its bytes are there and nobody asked for the old one, else at the old one.
///
/// Only one lane is locked at a time, because two lanes may hold allocations of each other.
pub(super) fn finish_cross_heap<B: Backend>(
    here: &Arc<Lane<B>>,
    there: &Arc<Lane<B>>,
    planned: &Move,
    copied: bool,
) -> MoveOutcome {
    let facts = here.state.lock().facts_of(planned.slot).filter(|_| copied);
    let guest = facts.and_then(|facts| there.admit_guest(planned.to, planned.bytes(), facts));
    if guest.is_none() {
        there.let_go_of(planned.to);
    }
    let mut state = here.state.lock();
    let (arrives, too_late) = match guest {
        Some(guest) if state.slots.is_copying(planned.slot) => {
            if planned.how == How::OwnerCopies {
                state.give_up_sanitized(here, planned.slot);
            }
            let gone = state.go_away(planned.slot, guest);
            debug_assert_eq!(gone, Ok(()), "a pass keeps the slots that it moves");
            here.tell_move(&state, planned.slot);
            (true, None)
        }
        other => (false, other),
    };
    let owner = state.let_go(here, planned.slot);
    drop(state);
    drop(too_late); // It frees its place, under the other lane's lock.
    MoveOutcome::of(owner, arrives)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_comes_back_first_and_equals_in_order_of_lanes_and_slots() {
        let mut ranks = [(4, 1, 0), (9, 2, 7), (4, 0, 5), (4, 0, 2), (u64::MAX, 3, 1), (0, 0, 0)]
            .map(|(size, lane, slot)| Rank::new(size, lane, slot));
        ranks.sort();
        let order = ranks.map(|rank| (u64::MAX - rank.smaller_than, rank.lane, rank.slot));
        assert_eq!(
            order,
            [(u64::MAX, 3, 1), (9, 2, 7), (4, 0, 2), (4, 0, 5), (4, 1, 0), (0, 0, 0)]
        );
    }

    #[test]
    fn what_found_no_room_is_not_tried_again_and_less_is() {
        let (near, far) = (HeapId(0), HeapId(1));
        let mut no_room = NoRoom::default();
        assert!(!no_room.covers(near, u64::MAX));
        no_room.note(near, 100);
        assert!(no_room.covers(near, 100) && no_room.covers(near, 101));
        assert!(!no_room.covers(near, 99) && !no_room.covers(far, 100));
        no_room.note(near, 10);
        assert!(no_room.covers(near, 50) && !no_room.covers(near, 9));
    }
}
