//! Owned slots, and the fast paths that allocate and free them.
#![expect(
    unsafe_code,
    reason = "the owners of a lane's slots share one strong reference to it, counted under its lock"
)]
use super::bytes::Ask;
use super::extra::SlotId;
use super::occupancy::Cause;
use super::reuse::WaitMode;
use super::state::{FastPathMiss, Lane, State};
use crate::sync::Guard;
use crate::{Backend, Placement, Point, Request, Span};
use alloc::{sync::Arc, vec::Vec};
use core::mem;
use core::ptr::NonNull;

/// A live slot and its lane, owned. Dropping it frees the bytes.
///
/// # Invariant
///
/// `lane` was taken from an [`Arc`]. While the lane's `owners` is above zero, one strong reference belongs to all its
/// owners together, and every value of this type counts as one owner. So the fast path touches no reference count.
pub(crate) struct LaneSlot<B: Backend> {
    lane: NonNull<Lane<B>>,
    /// The slot's index, and above it the generation: the two words are returned in registers.
    slot: u64,
}

// SAFETY: it is a shared reference to its lane, whose state is behind a lock, and plain numbers.
unsafe impl<B: Backend> Send for LaneSlot<B> {}
// SAFETY: as for `Send`; no method changes it through a shared reference.
unsafe impl<B: Backend> Sync for LaneSlot<B> {}

impl<B: Backend> Lane<B> {
    /// The fast path: a hole of the lane that is free.
    #[inline]
    pub(crate) fn allocate(self: &Arc<Self>, ask: Ask) -> Result<LaneSlot<B>, FastPathMiss> {
        let mut state = self.state.lock();
        state.allocate(ask).map(|slot| self.own(&mut state, slot))
    }

    /// As [`allocate`](Self::allocate), and shows where it is under the same lock.
    #[inline]
    pub(crate) fn allocate_and_look<R>(
        self: &Arc<Self>,
        ask: Ask,
        look: impl FnOnce(&B::Block, Span) -> R,
    ) -> Option<(LaneSlot<B>, R)> {
        // Before the lock, so that it ends after it when `look` panics: it takes the lock to end.
        let owned;
        let mut state = self.state.lock();
        let id = state.allocate(ask).ok()?;
        owned = self.own(&mut state, id);
        let slot = state.occupancy.get(id).expect("just admitted");
        let (block, span) = state.spot(id, slot).expect("just granted");
        let seen = look(block.raw(), Span { size: ask.size, ..span });
        drop(state);
        Some((owned, seen))
    }

    /// The fast path once more after a miss, when it is known how far the timelines have come that may use a hole.
    #[inline(never)]
    pub(crate) fn allocate_after(
        self: &Arc<Self>,
        ask: Ask,
        miss: FastPathMiss,
    ) -> Option<LaneSlot<B>> {
        let FastPathMiss::InUse(last) = miss else { return None };
        let users = self.state.lock().order.whom_to_ask(last);
        let mut passed = Vec::with_capacity(users.len());
        for user in &users {
            passed.push(self.time_passed(*user, WaitMode::Poll).ok()?);
        }
        let mut state = self.state.lock();
        let passed = users.iter().zip(passed);
        state.pass(passed.filter_map(|(user, time)| Some((user, time?))));
        let slot = state.allocate(ask).ok()?;
        Some(self.own(&mut state, slot))
    }

    /// The fast path of a request that has a name or a tag, and of a manager that is observed.
    pub(crate) fn allocate_observed(
        self: &Arc<Self>,
        ask: Ask,
        request: &Request<'_>,
    ) -> Option<LaneSlot<B>> {
        let mut state = self.state.lock();
        let slot = state.allocate(ask).ok()?;
        if request.is_labelled() {
            let _ = state.occupancy.change(slot, |extra| extra.set_label(request));
        }
        self.tell_allocate(&mut state, slot, request, None);
        Some(self.own(&mut state, slot))
    }

    /// Makes the owner of a slot that was just admitted, notes why it is there, and tells the observer.
    pub(crate) fn claim(
        self: &Arc<Self>,
        slot: SlotId,
        request: &Request<'_>,
        placement: Option<&Placement>,
        cause: Cause,
    ) -> LaneSlot<B> {
        let mut state = self.state.lock();
        state.occupancy.set_cause(slot, cause);
        self.tell_allocate(&mut state, slot, request, placement);
        self.own(&mut state, slot)
    }

    /// Makes the owner of a slot; `state` is the locked state of this lane.
    #[inline]
    fn own(self: &Arc<Self>, state: &mut State<B>, slot: SlotId) -> LaneSlot<B> {
        if state.owners == 0 {
            mem::forget(Arc::clone(self));
        }
        state.owners += 1;
        let slot = u64::from(slot.generation) << 32 | u64::from(slot.index);
        LaneSlot { lane: NonNull::from(self.as_ref()), slot }
    }
}

impl<B: Backend> LaneSlot<B> {
    #[inline]
    pub(crate) const fn lane(&self) -> &Lane<B> {
        // SAFETY: this is an owner, so the lane is alive by the invariant of the type.
        unsafe { self.lane.as_ref() }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the lower and the upper half")]
    pub(crate) const fn slot(&self) -> SlotId {
        SlotId { index: self.slot as u32, generation: (self.slot >> 32) as u32 }
    }

    /// Frees it after a point, besides the timelines that use it.
    pub(crate) fn free_after(self, point: Point) {
        let this = mem::ManuallyDrop::new(self);
        this.release_slowly(this.lane().state.lock(), Some(point));
    }

    /// Frees it, out of line: a drop takes little room in a program.
    #[inline(never)]
    fn release(self) {
        let this = mem::ManuallyDrop::new(self);
        let mut state = this.lane().state.lock();
        if state.free_plain(this.slot()) {
            this.leave(state);
        } else {
            this.release_slowly(state, None);
        }
    }

    /// As [`release`](Self::release), for an allocation of which more is known; `state` is the locked state of its lane.
    #[cold]
    fn release_slowly<'a>(&'a self, mut state: Guard<'a, State<B>>, after: Option<Point>) {
        let lane = self.lane();
        if after.is_some() || !lane.free_observed(&mut state, self.slot()) {
            lane.free_with_extra(state, self.slot(), after);
            state = lane.state.lock();
        }
        self.leave(state);
    }

    /// Counts one owner less.
    #[inline]
    fn leave(&self, mut state: Guard<'_, State<B>>) {
        state.owners -= 1;
        let last = state.owners == 0;
        drop(state);
        if last {
            self.release_lane();
        }
    }

    /// Gives back the reference that the owners held together. The lane may be gone afterwards.
    #[cold]
    fn release_lane(&self) {
        // SAFETY: the pointer came from an `Arc` in `own`. The caller took `owners` from one to zero under the lock, so the
        // reference that `own` forgot when it took it from zero to one is given back exactly once.
        unsafe { Arc::decrement_strong_count(self.lane.as_ptr()) };
    }
}

impl<B: Backend> Drop for LaneSlot<B> {
    #[inline]
    fn drop(&mut self) {
        // The same owner in registers; nothing uses this value afterwards.
        Self { lane: self.lane, slot: self.slot }.release();
    }
}
