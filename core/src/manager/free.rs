//! Giving bytes back: at once, or when timelines have passed.
use super::{Allocation, AllocationId, FreeError, Manager};
use crate::pool::{Lane, SlotId};
use crate::{Backend, ErrorKind, Point, Result, Sharing, TimelineId};
use alloc::vec::Vec;

impl<B: Backend> Lane<B> {
    /// Frees a live allocation.
    #[inline]
    pub(super) fn free(&self, id: SlotId) {
        let mut state = self.state.lock();
        let plain = state.slots.get(id).is_ok_and(|slot| !slot.is_noted());
        if plain {
            let freed = state.free(id);
            debug_assert!(freed.is_ok(), "an owned allocation is live");
            return;
        }
        drop(state);
        self.free_noted(id, None);
    }

    /// Frees an allocation that other timelines use, or that has a block of its own.
    #[cold]
    pub(super) fn free_noted(&self, id: SlotId, after: Option<Point>) {
        let timelines = self.timelines_of(id);
        let mut points: Vec<Point> = after.into_iter().collect();
        for timeline in timelines {
            match self.mark(timeline) {
                Ok(point) => points.extend(point),
                // A timeline that cannot be marked is gone, and with it its work; a lost device runs nothing.
                Err(error) => tracing::debug!(?error, "a timeline could not be marked for a free"),
            }
        }
        let mut state = self.state.lock();
        if points.is_empty() {
            let returned = state.free(id);
            drop(state);
            self.shared.give_back(returned.ok().flatten().into_iter().collect());
        } else if let Ok(bytes) = state.slots.get(id).map(|slot| slot.size)
            && state.slots.defer(id).is_ok()
        {
            state.deferred.push(id, bytes, points);
        }
    }

    /// Timelines whose work must pass before the bytes are anyone's.
    fn timelines_of(&self, id: SlotId) -> Vec<TimelineId> {
        let state = self.state.lock();
        let Some(note) = state.notes.get(id.index) else { return Vec::new() };
        let mut timelines = note.used_on.clone();
        timelines.extend(note.home);
        let alone = state.locate(id).is_ok_and(|(_, block, _)| {
            state.blocks[block.0 as usize]
                .as_ref()
                .is_some_and(|held| held.sharing == Sharing::Dedicated)
        });
        if alone {
            timelines.extend(self.timeline);
        }
        timelines
    }

    /// The point after everything that a timeline has to do now.
    fn mark(&self, timeline: TimelineId) -> Result<Option<Point>> {
        let Some(timelines) = self.shared.device.backend().as_timelines() else { return Ok(None) };
        Ok(Some(Point { timeline, epoch: timelines.mark(timeline)? }))
    }
}

impl<B: Backend> Allocation<B> {
    /// Frees it once `point` has passed; on the allocation's own timeline, in its order and so at once.
    pub fn free_after(mut self, point: Point) {
        let Some(slot) = self.take_slot() else { return };
        if self.lane.timeline == Some(point.timeline) {
            self.lane.free(slot);
        } else {
            self.lane.free_noted(slot, Some(point));
        }
    }
}

impl<B: Backend> Manager<B> {
    /// Frees an allocation of this manager.
    ///
    /// # Errors
    ///
    /// `Foreign` when it belongs to another manager; it comes back and stays live.
    pub fn free(&self, allocation: Allocation<B>) -> Result<(), FreeError<Allocation<B>>> {
        if allocation.manager != self.inner.id {
            return Err(FreeError { allocation, error: ErrorKind::Foreign.into() });
        }
        drop(allocation);
        Ok(())
    }

    /// Whether an id names a live allocation of this manager.
    ///
    /// # Errors
    ///
    /// `Foreign` for another manager's, `Stale` for one that was freed or never was.
    pub fn check(&self, id: AllocationId) -> Result<u64> {
        if id.manager != self.inner.id {
            return Err(ErrorKind::Foreign.into());
        }
        let lanes = self.all_pools().into_iter().flat_map(|pool| pool.lanes());
        let lane = lanes.into_iter().find(|lane| lane.number == id.lane).ok_or(ErrorKind::Stale)?;
        let slot = SlotId { index: id.slot, generation: id.generation };
        let size = lane.state.lock().slots.get(slot)?.size;
        Ok(size)
    }
}
