//! The caller's owned token for live bytes.
#![expect(
    unsafe_code,
    reason = "allocations share one strong reference to their lane, counted under its lock"
)]
use crate::event::{AllocationId, Event};
use crate::pool::{Lane, LaneState, SlotId};
use crate::sync::Guard;
use crate::{Backend, Point, Result, TimelineId};
use alloc::sync::Arc;
use core::fmt;
use core::mem;
use core::ptr::NonNull;

/// Live bytes, owned. Dropping it frees them; it keeps the device alive.
///
/// An allocation is not an address: defragmentation may move it. Ask for its [`binding`](Self::binding) when you need
/// to know where it is; it does not move while you hold that.
///
/// # Invariant
///
/// `lane` was taken from an [`Arc`]. While the lane's `owners` is above zero, one strong reference belongs to all its
/// allocations together, and every allocation counts as one owner. So the fast path touches no reference count.
#[must_use = "dropping an allocation frees it"]
pub struct Allocation<B: Backend> {
    lane: NonNull<Lane<B>>,
    slot: SlotId,
    size: u64,
}

// SAFETY: an allocation is a shared reference to its lane, whose state is behind a lock, and plain numbers.
unsafe impl<B: Backend> Send for Allocation<B> {}
// SAFETY: as for `Send`; no method changes an allocation through a shared reference.
unsafe impl<B: Backend> Sync for Allocation<B> {}

impl<B: Backend> fmt::Debug for Allocation<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocation").field("id", &self.id()).field("size", &self.size).finish()
    }
}

impl<B: Backend> Allocation<B> {
    /// Makes the owner of a slot that was just admitted; `state` is the locked state of `lane`.
    #[inline]
    pub(super) fn claim(
        lane: &Arc<Lane<B>>,
        state: &mut LaneState<B>,
        slot: SlotId,
        size: u64,
    ) -> Self {
        if state.owners == 0 {
            mem::forget(Arc::clone(lane));
        }
        state.owners += 1;
        let lane = NonNull::from(lane.as_ref());
        Self { lane, slot, size }
    }

    #[inline]
    pub(super) const fn lane(&self) -> &Lane<B> {
        // SAFETY: this allocation is an owner, so the lane is alive by the invariant of the type.
        unsafe { self.lane.as_ref() }
    }

    #[inline]
    pub(super) const fn slot(&self) -> SlotId {
        self.slot
    }

    /// Bytes that were asked for.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// A name for this allocation that does not own it.
    #[must_use]
    pub fn id(&self) -> AllocationId {
        self.lane().id_of(self.slot)
    }

    /// The timeline in whose order the bytes are used, if the request named one.
    #[must_use]
    pub fn timeline(&self) -> Option<TimelineId> {
        self.lane().state.lock().home_of(self.slot)
    }

    /// Says that another timeline uses the bytes too: after a free they wait for it.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline` where the backend does not know it.
    pub fn use_on(&self, timeline: TimelineId) -> Result<()> {
        let lane = self.lane();
        if self.timeline() == Some(timeline) {
            return Ok(());
        }
        if let Some(timelines) = lane.shared.device.backend().as_timelines() {
            timelines.reached(timeline)?;
        }
        let mut state = lane.state.lock();
        state.slots.set_noted(self.slot)?;
        state.notes.add_use(self.slot.index, timeline);
        lane.shared.device.tell(&Event::Use { id: self.id(), timeline });
        Ok(())
    }

    /// Calls it `name` in reports.
    pub fn set_name(&self, name: &str) {
        let mut state = self.lane().state.lock();
        if state.slots.set_noted(self.slot).is_ok() {
            state.notes.set_name(self.slot.index, name);
            self.lane().shared.device.tell(&Event::Name { id: self.id(), name });
        }
        drop(state);
        self.rename_guest(name);
    }

    /// Frees it: at once for its own timeline, after they have passed for the others that use it.
    #[inline]
    pub fn free(self) {
        drop(self);
    }

    /// Frees it after a point, besides the timelines that use it.
    pub(super) fn end(self, after: Option<Point>) {
        let this = mem::ManuallyDrop::new(self);
        if after.is_none() {
            this.release();
        } else {
            this.release_noted(this.lane().state.lock(), after);
        }
    }

    #[inline]
    fn release(&self) {
        let lane = self.lane();
        let mut state = lane.state.lock_warm();
        if !state.free_plain(self.slot) {
            self.release_noted(state, None);
            return;
        }
        state.owners -= 1;
        let last = state.owners == 0;
        drop(state);
        if last {
            self.release_lane();
        }
    }

    /// As [`release`](Self::release), for allocations of which more is known; `state` is that of their lane.
    #[cold]
    fn release_noted<'a>(&'a self, mut state: Guard<'a, LaneState<B>>, after: Option<Point>) {
        let lane = self.lane();
        if after.is_some() || !lane.free_told(&mut state, self.slot) {
            drop(state);
            lane.free_noted(self.slot, after);
            state = lane.state.lock();
        }
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
        // SAFETY: the pointer came from an `Arc` in `claim`. The caller took `owners` from one to zero under the lock,
        // so the reference that `claim` forgot when it took it from zero to one is given back exactly once.
        unsafe { Arc::decrement_strong_count(self.lane.as_ptr()) };
    }
}

impl<B: Backend> Drop for Allocation<B> {
    #[inline]
    fn drop(&mut self) {
        self.release();
    }
}
