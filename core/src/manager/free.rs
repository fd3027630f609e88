//! Giving bytes back: at once, or when timelines have passed.
use super::{Allocation, FreeError, Manager};
use crate::event::AllocationId;
use crate::pool::{Ended, Ending, Lane, LaneState, Note, Noted, Origin, SlotId, Stay, Uses};
use crate::sync::Guard;
use crate::{Backend, ErrorKind, Point, Result, Sharing, TimelineId};
use alloc::vec::Vec;

impl<B: Backend> Lane<B> {
    /// Frees an allocation of which nothing more is known than what it is called and that an observer was told of it;
    /// `false` where that is not so. `state` is the locked state of this lane.
    pub(super) fn free_told(&self, state: &mut LaneState<B>, id: SlotId) -> bool {
        let is_simple = match state.slots.noted(id) {
            Some(Noted::Watched) => true,
            Some(Noted::Yes | Noted::YesAndWatched) => {
                state.notes.get(id.index).is_some_and(Note::is_label)
            }
            Some(Noted::No) | None => false,
        };
        if is_simple {
            self.tell_free(state, id);
            state.notes.forget(id.index);
            state.slots.clear_noted(id);
        }
        is_simple && state.free_plain(id)
    }

    /// Frees an allocation that other timelines use, that has a block of its own, or that a pass has.
    #[cold]
    pub(super) fn free_noted(&self, id: SlotId, after: Option<Point>) {
        let ending = self.ending_of(id, after);
        let journey = self.shared.device.transit.begin();
        let (mut state, ending) = self.look_first(id, ending);
        let at_once = ending == Ending::NOW && !state.is_looked_at(id);
        if state.slots.is_in_pass(id) {
            // The pass frees it when its copies no longer read it.
            self.tell_free_requested(&state, id);
            let ended = state.slots.end_ownership(id);
            debug_assert_eq!(ended, Ok(Ended::AfterMove), "seen just above");
            if !at_once && state.slots.set_noted(id).is_ok() {
                state.notes.of(id.index).ending = Some(ending);
            }
        } else if at_once {
            self.tell_free(&state, id);
            let returned = state.free(id);
            drop(state);
            if self.shared.give_back_left(returned.ok().flatten()) > 0 {
                journey.arrive();
            }
        } else {
            state.defer(id, ending);
            self.tell_free_requested(&state, id);
        }
    }

    /// The lane's state, locked; the sanitizer has seen an allocation that ends now.
    fn look_first(&self, id: SlotId, ending: Ending) -> (Guard<'_, LaneState<B>>, Ending) {
        let mut state = self.state.lock();
        if ending != Ending::NOW
            || !state.is_sanitized(id)
            || state.is_looked_at(id)
            || state.slots.is_in_pass(id)
            || state.slots.pin(id).is_err()
        {
            return (state, ending);
        }
        // The pin keeps passes away; it ends with the allocation.
        drop(state);
        let ending = match self.look_at_end(id) {
            Ok(()) => ending,
            Err(error) => self.condemn(id, error, "its sanitizer could not look at it"),
        };
        (self.state.lock(), ending)
    }

    /// When the bytes of an allocation that is freed now are anyone's.
    fn ending_of(&self, id: SlotId, after: Option<Point>) -> Ending {
        let origin = if after.is_some() { Origin::Named } else { Origin::Marked };
        let mut points: Vec<Point> = after.into_iter().collect();
        for timeline in self.timelines_of(id) {
            match self.mark(timeline) {
                Ok(point) => points.extend(point),
                Err(error) if !self.has_stopped() => {
                    return self.condemn(id, error, "its work could not be followed");
                }
                Err(error) => tracing::debug!(?error, "waited for work that could not be marked"),
            }
        }
        if self.is_secret(id) {
            match self.forget_secret(id, &points) {
                Ok(zeroed) => points = zeroed.into_iter().collect(),
                // Nobody reads a lost device. One call may be wrong about that, so it is asked once more.
                Err(error) if error.kind() == ErrorKind::DeviceLost && self.is_lost() => {
                    points.clear();
                }
                Err(error) => return self.condemn(id, error, "its secret could not be zeroed"),
            }
        }
        match points.is_empty() {
            true => Ending::NOW,
            false => Ending::After(points, origin),
        }
    }

    /// Waits for the device; whether nothing runs on it any more. A lost device runs nothing.
    fn has_stopped(&self) -> bool {
        let idle = self.shared.device.backend().wait_idle();
        idle.err().is_none_or(|error| error.kind() == ErrorKind::DeviceLost)
    }

    fn is_lost(&self) -> bool {
        let idle = self.shared.device.backend().wait_idle();
        idle.is_err_and(|error| error.kind() == ErrorKind::DeviceLost)
    }

    /// Timelines whose work must pass before the bytes are anyone's.
    fn timelines_of(&self, id: SlotId) -> Vec<TimelineId> {
        let state = self.state.lock();
        let Some(note) = state.notes.get(id.index) else { return Vec::new() };
        let mut timelines = note.used_on.clone();
        // The order of its own timeline protects only what goes back to the lane, and nothing from the host.
        if note.sharing == Sharing::Dedicated || note.stay == Stay::Away || note.host_access {
            timelines.extend(state.home_of(id).filter(|home| !note.used_on.contains(home)));
        }
        match self.shared.config.uses {
            Uses::Undeclared if !timelines.is_empty() => Vec::from([TimelineId::ALL]),
            _ => timelines,
        }
    }

    /// The point after everything that a timeline has to do now; none where it was closed.
    fn mark(&self, timeline: TimelineId) -> Result<Option<Point>> {
        let Some(timelines) = self.shared.device.backend().as_timelines() else { return Ok(None) };
        let marked = self.shared.device.unless_closed(timeline, timelines.mark(timeline))?;
        Ok(marked.map(|epoch| Point { timeline, epoch }))
    }
}

impl<B: Backend> Allocation<B> {
    /// Frees it once `point` has passed; on the allocation's own timeline, in its order and so at once.
    ///
    /// A point that is never marked keeps the bytes until the manager ends: the report counts them as deferred.
    pub fn free_after(self, point: Point) {
        let after = Some(point).filter(|point| self.timeline() != Some(point.timeline));
        self.end(after);
    }
}

impl<B: Backend> Manager<B> {
    /// Frees an allocation of this manager.
    ///
    /// # Errors
    ///
    /// `Foreign` when it belongs to another manager; it comes back and stays live.
    pub fn free(&self, allocation: Allocation<B>) -> Result<(), FreeError<Allocation<B>>> {
        if allocation.lane().manager != self.number() {
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
        if id.manager != self.number() {
            return Err(ErrorKind::Foreign.into());
        }
        let lanes = self.all_pools().into_iter().flat_map(|pool| pool.lanes());
        let lane = lanes.into_iter().find(|lane| lane.number == id.lane).ok_or(ErrorKind::Stale)?;
        let slot = SlotId { index: id.slot, generation: id.generation };
        let size = lane.state.lock().slots.get(slot)?.size;
        Ok(size)
    }
}
