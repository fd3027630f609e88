//! Allocations whose bytes are in a lane of another heap, because a recall moved them.
//!
//! The owner's slot, with its pins, timelines and extra data, stays in its lane, so the owner notices nothing. The bytes have
//! a slot of their own in the other lane, which counts them; it is pinned and is freed with the owner's.
#![forbid(unsafe_code)]
use super::extra::{Residence, Stored};
use super::moves::MoveOutcome;
use super::table::{REMOTE, SlotId, Standing};
use super::users::User;
use super::{Ask, Lane, State};
use crate::device::Block;
use crate::{Align, Backend, ErrorKind, HeapId, Span, Tag};
use alloc::{boxed::Box, sync::Arc};
use omniheap_strategy::Grant;

/// Where an allocation lies that is in another lane than its slot. Dropping it frees the bytes there: not under a lock.
pub(super) struct RemoteSpan<B: Backend> {
    lane: Arc<Lane<B>>,
    slot: SlotId,
    pub(crate) block: Arc<Block<B>>,
    /// Everything that it occupies there, padding included.
    pub(crate) span: Span,
}

impl<B: Backend> RemoteSpan<B> {
    pub(crate) fn heap(&self) -> HeapId {
        self.lane.shared.heap
    }

    pub(crate) const fn lane(&self) -> &Arc<Lane<B>> {
        &self.lane
    }

    pub(crate) const fn slot(&self) -> SlotId {
        self.slot
    }
}

impl<B: Backend> Drop for RemoteSpan<B> {
    fn drop(&mut self) {
        let mut state = self.lane.state.lock();
        let freed = state.free(self.slot);
        drop(state);
        debug_assert!(matches!(freed, Ok(None)), "a remote span's slot lives as long as it does");
    }
}

/// What a freed allocation leaves, to be given back without a lock.
pub(super) enum FreeOutcome<B: Backend> {
    /// A block that was its own.
    Block(Arc<Block<B>>),
    /// Its place in another lane.
    Remote(RemoteSpan<B>),
    /// Its bytes in a backing store.
    Stored(Stored),
}

/// A span of a lane that is held for an allocation of another lane.
pub(crate) struct Reservation<B: Backend> {
    pub(crate) lane: Arc<Lane<B>>,
    pub(crate) block: Arc<Block<B>>,
    pub(crate) grant: Grant,
}

impl<B: Backend> Lane<B> {
    /// Holds a place in what the lane has; `None` where nothing fits.
    pub(crate) fn hold(self: &Arc<Self>, ask: Ask) -> Option<Reservation<B>> {
        let mut state = self.state.lock();
        state.check_awake().ok()?;
        let grant = state.suballocator.as_strategy_mut().allocate(ask.layout, ask.class).ok()?;
        state.held_bytes += grant.span.size;
        let block = state.blocks[grant.block.0 as usize].as_ref();
        let block = Arc::clone(&block.expect("a span's block is held").block);
        drop(state);
        Some(Reservation { lane: Arc::clone(self), block, grant })
    }

    /// Makes an allocation without an owner a place that is held; `None`, and it is free, where something moves it already.
    pub(crate) fn hold_taken(self: &Arc<Self>, slot: SlotId) -> Option<Reservation<B>> {
        let mut state = self.state.lock();
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
        let mut state = self.state.lock();
        let (arrives, too_late) = match remote {
            Some(remote) if state.slots.is_copying(slot) => {
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
        let mut state = self.state.lock();
        state.slots.reserve().ok()?;
        let block =
            state.blocks[held.block.0 as usize].as_ref().map(|held| Arc::clone(&held.block));
        let block = block.expect("a held span's block is held");
        state.held_bytes -= held.span.size;
        let slot = state.admit(held, facts.size, facts.align, User::HOST);
        // It ends with the slot.
        let pinned = state.slots.pin(slot).and_then(|_| state.slots.set_extra(slot));
        debug_assert_eq!(pinned, Ok(()), "just admitted");
        let note = state.extras.of(slot.index);
        (note.name, note.tag, note.residence) = (facts.name, facts.tag, Residence::ForRemote);
        drop(state);
        let span = Span { size: occupied, ..held.span };
        Some(RemoteSpan { lane: Arc::clone(self), slot, block, span })
    }
}

/// What a lane knows of an allocation whose bytes it holds for another lane.
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
        let slot = *self.slots.get(id).ok().filter(|slot| slot.standing() == Standing::Free)?;
        let grant = self.suballocator.as_strategy().grant(slot.key).ok()?;
        let block = Arc::clone(&self.blocks[grant.block.0 as usize].as_ref()?.block);
        self.slots.remove(id).ok()?;
        self.users.leave(slot.user);
        self.counts.allocated -= 1;
        self.counts.live_bytes -= slot.size;
        self.counts.granted_bytes -= grant.span.size;
        self.held_bytes += grant.span.size;
        Some((block, grant))
    }

    /// What another lane is told of an allocation that a pass is copying there; `None` where it stays.
    fn facts_of(&self, id: SlotId) -> Option<Facts> {
        let slot = self.slots.get(id).ok().filter(|_| self.slots.is_copying(id))?;
        let note = self.extras.get(id.index);
        let (name, tag) = note.map_or((None, None), |note| (note.name.clone(), note.tag));
        Some(Facts { size: slot.size, align: self.slots.align(id), name, tag })
    }

    /// Ends a move to another lane: from now on the allocation is there, and its old place is free.
    fn move_out(&mut self, id: SlotId, remote: RemoteSpan<B>) -> Result<(), ErrorKind> {
        let key = self.slots.moving_key(id).ok_or(ErrorKind::Stale)?;
        let size = self.slots.get(id)?.size;
        let grant = self.suballocator.free(key)?;
        self.counts.freed += 1;
        self.counts.live_bytes -= size;
        self.counts.granted_bytes -= grant.span.size;
        self.slots.set_extra(id)?;
        self.slots.set_key(id, REMOTE);
        self.extras.of(id.index).residence = Residence::Remote;
        self.remote.insert(id.index, remote);
        Ok(())
    }

    /// Ends an allocation whose bytes are in another lane; its place there is given back without the lock.
    pub(super) fn free_remote(&mut self, id: SlotId) -> Result<Option<FreeOutcome<B>>, ErrorKind> {
        let slot = self.slots.remove(id)?;
        self.users.leave(slot.user);
        self.extras.forget(id.index);
        Ok(self.remote.remove(&id.index).map(FreeOutcome::Remote))
    }
}
