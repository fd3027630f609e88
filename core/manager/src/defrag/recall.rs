//! Recalls: allocations that spilled to a slower heap move back, the largest first, while the better heap has room.
#![forbid(unsafe_code)]
use super::budget::BudgetMeter;
use super::moves::MoveList;
use crate::device::Device;
use crate::lane::{Lane, Presence, Reservation, Resident};
use crate::{Backend, HeapId, Layout, Result, TimelineId};
use alloc::{sync::Arc, vec::Vec};
use core::cmp::Reverse;

/// An allocation that spilled to another heap than the best one.
pub(crate) struct Spilled<B: Backend> {
    lane: Arc<Lane<B>>,
    resident: Resident,
    /// The best heap for it.
    wished: HeapId,
}

impl<B: Backend> Spilled<B> {
    /// The allocations of a lane that spilled there from another heap.
    pub(crate) fn of(lane: &Arc<Lane<B>>) -> impl Iterator<Item = Self> {
        let spilled = lane.spilled().into_iter();
        spilled.map(|(resident, wished)| Self { lane: Arc::clone(lane), resident, wished })
    }

    /// The heap it should be in, and the layout and class it needs there.
    pub(crate) const fn wants(&self) -> (HeapId, Layout, crate::Class) {
        let Resident { span, align, class, .. } = self.resident;
        (self.wished, Layout { size: span.size, align }, class)
    }

    /// Returns the timeline that orders the uses of its bytes.
    pub(crate) fn timeline(&self) -> Option<TimelineId> {
        self.lane.timeline_of(self.resident.slot)
    }

    fn rank(&self) -> (Reverse<u64>, u32, u32) {
        rank(self.resident.span.size, self.lane.number, self.resident.slot.index)
    }
}

/// The largest come first, because they are the hardest to place. Equal sizes come in the order of lanes and slots, so
/// the same calls give the same plan.
const fn rank(size: u64, lane: u32, slot: u32) -> (Reverse<u64>, u32, u32) {
    (Reverse(size), lane, slot)
}

/// The smallest size that found no room, for each heap.
#[derive(Debug, Default)]
struct NoRoom(Vec<(HeapId, u64)>);

impl NoRoom {
    fn note(&mut self, heap: HeapId, size: u64) {
        self.0.retain(|(known, _)| *known != heap);
        self.0.push((heap, size));
    }

    /// Returns true if this many bytes, or fewer, found no room. Sizes come in falling order.
    fn covers(&self, heap: HeapId, size: u64) -> bool {
        self.0.iter().any(|(known, least)| *known == heap && size >= *least)
    }
}

/// Plans the moves of a recall. `reserve` reserves a place in the better heap, and returns it with the bytes that the driver gave
/// for it. An error aborts the pass.
pub(super) fn plan<B: Backend>(
    device: &Device<B>,
    moves: &mut MoveList<B>,
    mut spilled: Vec<Spilled<B>>,
    meter: &mut BudgetMeter,
    mut reserve: impl FnMut(&Spilled<B>) -> Result<Option<(Reservation<B>, u64)>>,
) -> Result<()> {
    spilled.sort_by_key(Spilled::rank);
    let mut no_room = NoRoom::default();
    for one in &spilled {
        let (heap, size) = (one.wished, one.resident.span.size);
        if meter.is_empty() || meter.is_late() {
            break;
        }
        meter.set_rates(device.cost(one.lane.shared.heap).rates());
        if no_room.covers(heap, size) || !meter.pay(size) {
            continue;
        }
        match reserve(one)? {
            Some((reservation, taken)) => {
                moves.add_taken(taken);
                if !call_back(moves, one, reservation) {
                    meter.refund(size);
                }
            }
            None => {
                no_room.note(heap, size);
                meter.refund(size);
            }
        }
    }
    if moves.is_empty() && meter.too_dear {
        spilled.iter().for_each(|one| device.cost(one.lane.shared.heap).doubt());
    }
    Ok(())
}

/// Starts a move to a reserved place. Where the allocation may not move any more, frees the place and returns `false`.
fn call_back<B: Backend>(
    moves: &mut MoveList<B>,
    one: &Spilled<B>,
    reservation: Reservation<B>,
) -> bool {
    moves.enter(&one.lane);
    let mut guard = one.lane.lock_moves();
    if guard.look_at(&one.resident) == Presence::Free {
        moves.start_cross_heap(&mut guard, &one.resident, reservation);
        return true;
    }
    drop(guard);
    reservation.lane.free_held(reservation.grant);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_comes_back_first_and_equals_in_order_of_lanes_and_slots() {
        let mut spilled = [(4, 1, 0), (9, 2, 7), (4, 0, 5), (4, 0, 2), (0, 0, 0)];
        spilled.sort_by_key(|(size, lane, slot)| rank(*size, *lane, *slot));
        assert_eq!(spilled, [(9, 2, 7), (4, 0, 2), (4, 0, 5), (4, 1, 0), (0, 0, 0)]);
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
