//! Allocations whose bytes are in a lane of another heap, because a recall moved them.
//!
//! The owner's slot, with its pins, timelines and extra data, stays in its lane, so the owner notices nothing. The bytes have
//! a slot of their own in the other lane, which counts them; it is pinned and is freed with the owner's.
#![forbid(unsafe_code)]
use super::bytes::Ask;
use super::extra::{Residence, SlotId};
use super::moves::MoveOutcome;
use super::occupancy::Standing;
use super::order::User;
use super::state::{Lane, RemoteSpan, State};
use crate::device::Block;
use crate::{Align, Backend, ErrorKind, Span, Tag};
use alloc::{boxed::Box, sync::Arc};
use omniheap_strategy::Grant;

/// A span of a lane that is held for an allocation of another lane.
pub(crate) struct Reservation<B: Backend> {
    pub(crate) lane: Arc<Lane<B>>,
    pub(crate) block: Arc<Block<B>>,
    pub(crate) grant: Grant,
}

impl<B: Backend> Lane<B> {
    /// Holds a place in what the lane has; `None` where nothing fits.
    pub(crate) fn hold(self: &Arc<Self>, ask: Ask) -> Option<Reservation<B>> {
        let mut state = self.state.lock_flushed();
        state.check_awake().ok()?;
        let grant = state.bytes.hold(ask.layout, ask.class).ok()?;
        let block = Arc::clone(state.bytes.block(grant.block));
        drop(state);
        Some(Reservation { lane: Arc::clone(self), block, grant })
    }

    /// Makes an allocation without an owner a place that is held; `None`, and it is free, where something moves it already.
    pub(crate) fn hold_taken(self: &Arc<Self>, slot: SlotId) -> Option<Reservation<B>> {
        let mut state = self.state.lock_flushed();
        let held = state.detach(slot);
        if held.is_none() {
            // Nobody has it, so what moves it frees it.
            let _ = state.free(slot);
        }
        let (block, grant) = held?;
        drop(state);
        Some(Reservation { lane: Arc::clone(self), block, grant })
    }

    /// Ends a move of `bytes` bytes to `to` in another lane: there if the bytes were copied and the old place was not asked for,
    /// else here.
    ///
    /// Only one lane is locked at a time, because two lanes may hold allocations of each other.
    pub(crate) fn finish_remote(
        &self,
        slot: SlotId,
        there: &Arc<Self>,
        (to, bytes): (Grant, u64),
        copied: bool,
        by_owner: bool,
    ) -> MoveOutcome {
        let facts = self.state.lock().facts_of(slot).filter(|_| copied);
        let remote = facts.and_then(|facts| there.admit_remote(to, bytes, facts));
        if remote.is_none() {
            there.free_held(to);
        }
        let mut state = self.state.lock_flushed();
        let (arrives, too_late) = match remote {
            Some(remote) if state.occupancy.is_copying(slot) => {
                if by_owner {
                    state.give_up_sanitized(self, slot);
                }
                let gone = state.move_out(slot, remote);
                debug_assert_eq!(gone, Ok(()), "a pass keeps the slots that it moves");
                self.tell_move(&state, slot);
                (true, None)
            }
            other => (false, other),
        };
        let is_freed = state.let_go(self, slot);
        drop(state);
        drop(too_late); // It frees its place, under the other lane's lock.
        MoveOutcome::of(is_freed, arrives)
    }

    /// Gives a held span a slot; `None`, and it is still held, without host memory.
    fn admit_remote(
        self: &Arc<Self>,
        held: Grant,
        occupied: u64,
        facts: Facts,
    ) -> Option<RemoteSpan<B>> {
        let mut state = self.state.lock_flushed();
        state.occupancy.reserve().ok()?;
        let block = Arc::clone(state.bytes.block(held.block));
        state.bytes.count_let_go(held.span.size);
        let slot = state.admit(held, (facts.size, facts.align), User::HOST);
        // The pin ends with the slot.
        let pinned = state.occupancy.pin(slot).and_then(|_| {
            state.occupancy.change(slot, |extra| {
                (extra.name, extra.tag) = (facts.name, facts.tag);
                extra.residence = Residence::ForRemote;
            })
        });
        debug_assert_eq!(pinned, Ok(()), "just admitted");
        drop(state);
        let span = Span { size: occupied, ..held.span };
        Some(RemoteSpan { lane: Arc::clone(self), slot, block, span })
    }
}

/// Facts about an allocation whose bytes a lane holds for another lane.
struct Facts {
    /// Bytes asked for.
    pub(crate) size: u64,
    pub(crate) align: Align,
    pub(crate) name: Option<Box<str>>,
    pub(crate) tag: Option<Tag>,
}

impl<B: Backend> State<B> {
    /// Takes the slot away from a span that stays held.
    fn detach(&mut self, id: SlotId) -> Option<(Arc<Block<B>>, Grant)> {
        let slot = self.occupancy.get(id).ok().filter(|slot| slot.standing() == Standing::Free)?;
        let grant = self.bytes.strategy().grant(slot.key).ok()?;
        let user = self.occupancy.withdraw(id, grant.span.size).ok()?;
        self.order.leave(user);
        self.bytes.count_held(grant.span.size);
        Some((Arc::clone(self.bytes.block(grant.block)), grant))
    }

    /// Returns the facts for another lane about an allocation that a pass is copying there; `None` where it stays.
    fn facts_of(&self, id: SlotId) -> Option<Facts> {
        let known = &self.occupancy;
        let slot = known.get(id).ok().filter(|_| known.is_copying(id))?;
        let extra = known.extra(id);
        let (name, tag) = extra.map_or((None, None), |extra| (extra.name.clone(), extra.tag));
        Some(Facts { size: slot.size, align: known.align(id), name, tag })
    }

    /// Ends a move to another lane: from now on the allocation is there, and its old place is free.
    fn move_out(&mut self, id: SlotId, remote: RemoteSpan<B>) -> Result<(), ErrorKind> {
        let key = self.occupancy.moving_key(id).ok_or(ErrorKind::Stale)?;
        let grant = self.bytes.release_unused(key)?;
        self.occupancy.move_out(id, grant.span.size)?;
        self.remote.insert(id.index, remote);
        Ok(())
    }
}
