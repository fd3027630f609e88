//! The caller's owned token for live bytes.
use crate::pool::{Lane, SlotId};
use crate::{Backend, Result, TimelineId};
use alloc::sync::Arc;
use core::fmt;

/// Live bytes, owned. Dropping it frees them; it keeps the device alive.
///
/// An allocation is not an address: defragmentation may move it. Ask for its [`binding`](Self::binding) when you need
/// to know where it is; it does not move while you hold that.
#[must_use = "dropping an allocation frees it"]
pub struct Allocation<B: Backend> {
    pub(super) lane: Arc<Lane<B>>,
    pub(super) manager: u32,
    /// Taken by the free that ends the allocation.
    slot: Option<SlotId>,
    size: u64,
}

/// Names an allocation without owning it: for logs, tables and foreign languages.
///
/// It names one allocation of one manager for ever: no later allocation has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AllocationId {
    pub(super) manager: u32,
    pub(super) lane: u32,
    pub(super) slot: u32,
    pub(super) generation: u32,
}

impl<B: Backend> fmt::Debug for Allocation<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocation").field("id", &self.id()).field("size", &self.size).finish()
    }
}

impl<B: Backend> Allocation<B> {
    #[inline]
    pub(super) const fn new(lane: Arc<Lane<B>>, manager: u32, id: SlotId, size: u64) -> Self {
        Self { lane, manager, slot: Some(id), size }
    }

    #[inline]
    pub(super) const fn slot(&self) -> SlotId {
        self.slot.expect("taken only by the free that consumes the allocation")
    }

    #[inline]
    pub(super) const fn take_slot(&mut self) -> Option<SlotId> {
        self.slot.take()
    }

    /// Bytes that were asked for.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// A name for this allocation that does not own it.
    #[must_use]
    pub fn id(&self) -> AllocationId {
        AllocationId {
            manager: self.manager,
            lane: self.lane.number,
            slot: self.slot().index,
            generation: self.slot().generation,
        }
    }

    /// The timeline in whose order the bytes are used, if the request named one.
    #[must_use]
    pub fn timeline(&self) -> Option<TimelineId> {
        let state = self.lane.state.lock();
        let lent = state.notes.get(self.slot().index).and_then(|note| note.home);
        lent.or(self.lane.timeline)
    }

    /// Says that another timeline uses the bytes too: after a free they wait for it.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline` where the backend does not know it.
    pub fn use_on(&self, timeline: TimelineId) -> Result<()> {
        if self.lane.timeline == Some(timeline) {
            return Ok(());
        }
        if let Some(timelines) = self.lane.shared.device.backend().as_timelines() {
            timelines.reached(timeline)?;
        }
        let mut state = self.lane.state.lock();
        state.slots.set_noted(self.slot())?;
        state.notes.add_use(self.slot().index, timeline);
        Ok(())
    }

    /// Calls it `name` in reports.
    pub fn set_name(&self, name: &str) {
        let mut state = self.lane.state.lock();
        if state.slots.set_noted(self.slot()).is_ok() {
            state.notes.set_name(self.slot().index, name);
        }
    }

    /// Frees it: at once for its own timeline, after they have passed for the others that use it.
    #[inline]
    pub fn free(self) {
        drop(self);
    }
}

impl<B: Backend> Drop for Allocation<B> {
    #[inline]
    fn drop(&mut self) {
        if let Some(slot) = self.take_slot() {
            self.lane.free(slot);
        }
    }
}
