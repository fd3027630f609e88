//! Giving bytes back: at once, or when timelines have passed; secrets are zeroed first.
#![forbid(unsafe_code)]
use super::extra::{Ending, SlotExtra};
use super::reuse::Origin;
use super::table::SlotId;
use super::{Lane, State, Uses};
use crate::sync::Guard;
use crate::{Backend, Error, ErrorKind, Point, Privacy, Result, TimelineId, Timelines};
use alloc::vec::Vec;

impl<B: Backend> Lane<B> {
    /// Frees an allocation of which nothing more is known than what it is called and that an observer was told of it;
    /// `false` where that is not so. `state` is the locked state of this lane.
    pub(super) fn free_observed(&self, state: &mut State<B>, id: SlotId) -> bool {
        let is_simple = match state.slots.flags(id) {
            Some((true, _)) => state.extras.get(id.index).is_some_and(SlotExtra::is_label),
            Some((false, is_observed)) => is_observed,
            None => false,
        };
        if is_simple {
            self.tell_free(state, id);
            state.extras.forget(id.index);
            state.slots.clear_flags(id);
        }
        is_simple && state.free_plain(id)
    }

    /// Frees an allocation that other timelines use, that has a block of its own, or that a pass has.
    #[cold]
    pub(super) fn free_with_extra(&self, id: SlotId, after: Option<Point>) {
        let ending = self.ending_of(id, after);
        let in_flight = self.shared.device.in_flight.begin();
        let (mut state, ending) = self.look_first(id, ending);
        let at_once = ending == Ending::NOW && !state.is_looked_at(id);
        if state.slots.is_in_pass(id) {
            // The pass frees it when its copies no longer read it.
            self.tell_free_requested(&state, id);
            let ended = state.slots.end_ownership(id);
            debug_assert_eq!(ended, Ok(None), "seen just above");
            // Replaces the ending that kept a secret until it was zeroed.
            let _ = state.change_extra(id, |extra| extra.ending = (!at_once).then_some(ending));
        } else if at_once {
            self.tell_free(&state, id);
            let returned = state.free(id);
            drop(state);
            if self.shared.give_back_freed(returned.ok().flatten()) > 0 {
                in_flight.publish();
            }
        } else {
            state.defer(id, ending);
            self.tell_free_requested(&state, id);
        }
    }

    /// The lane's state, locked; the sanitizer has seen an allocation that ends now.
    fn look_first(&self, id: SlotId, ending: Ending) -> (Guard<'_, State<B>>, Ending) {
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

    /// Returns when the bytes of an allocation that is freed now can be reused.
    fn ending_of(&self, id: SlotId, after: Option<Point>) -> Ending {
        let Some(privacy) = self.begin_end(id) else { return Ending::NOW };
        let origin = if after.is_some() { Origin::Named } else { Origin::Marked };
        let mut points: Vec<Point> = after.into_iter().collect();
        for timeline in self.timelines_of(id) {
            match self.mark(timeline) {
                Ok(point) => points.extend(point),
                Err(error) if self.shared.device.settle().is_err() => {
                    return self.condemn(id, error, "its work could not be followed");
                }
                Err(error) => tracing::debug!(?error, "waited for work that could not be marked"),
            }
        }
        if privacy == Privacy::Secret {
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

    fn is_lost(&self) -> bool {
        let idle = self.shared.device.backend().wait_idle();
        idle.is_err_and(|error| error.kind() == ErrorKind::DeviceLost)
    }

    /// Returns the timelines whose work must pass before the bytes can be reused.
    fn timelines_of(&self, id: SlotId) -> Vec<TimelineId> {
        let state = self.state.lock();
        let Some(note) = state.extras.get(id.index) else { return Vec::new() };
        let mut timelines = note.used_on.clone();
        if note.outruns_home() {
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

    /// Zeroes everything that an allocation occupies, padding included, in a timeline's order.
    ///
    /// The allocation does not move meanwhile: it is pinned, or its owner is on the way out.
    pub(crate) fn wipe(&self, id: SlotId, on: TimelineId) -> Result<()> {
        let state = self.state.lock();
        let ((block, _), span) = (state.locate(id)?, state.granted(id)?);
        drop(state);
        let transfer = self.shared.device.backend().as_transfer().ok_or(ErrorKind::Unsupported)?;
        transfer.fill(on, block.at(span.offset), span.size, 0)
    }

    /// Returns the timeline that orders the uses of an allocation; the main one for allocations that the host orders.
    fn home(&self, id: SlotId) -> TimelineId {
        self.state.lock().home_of(id).unwrap_or(TimelineId::MAIN)
    }

    /// Zeroes a secret after all its uses. Returns the point at which it is zeroed, if a wait is needed.
    ///
    /// On failure the caller never uses the bytes again.
    fn forget_secret(&self, id: SlotId, uses: &[Point]) -> Result<Option<Point>> {
        let home = self.home(id);
        if !self.shared.device.is_closed(home)? {
            match self.zero_after(id, uses, home) {
                // It is being closed, so nothing more runs on it; or it was closed just now.
                Err(error)
                    if error.kind() == ErrorKind::NoSuchTimeline && home != TimelineId::MAIN => {}
                zeroed => return zeroed,
            }
        }
        let rest = self.mark(home)?;
        let uses: Vec<Point> = uses.iter().copied().chain(rest).collect();
        self.zero_after(id, &uses, TimelineId::MAIN)
    }

    /// Zeroes a secret on a timeline, after other points. Returns the point at which it is zeroed, if a wait is needed.
    fn zero_after(&self, id: SlotId, uses: &[Point], home: TimelineId) -> Result<Option<Point>> {
        let Some(timelines) = self.shared.device.backend().as_timelines() else {
            self.shared.device.backend().wait_idle()?;
            self.look_at_secret(id, home)?;
            self.wipe(id, home)?;
            return self.shared.device.backend().wait_idle().map(|()| None);
        };
        if self.shared.config.uses == Uses::Undeclared {
            self.order_after_all(timelines, home)?;
        }
        for point in uses.iter().filter(|point| point.timeline != home) {
            let ordered = timelines.order(home, *point);
            self.shared.device.unless_closed(point.timeline, ordered)?;
        }
        self.look_at_secret(id, home)?;
        self.wipe(id, home)?;
        let state = self.state.lock();
        let outruns = state.extras.get(id.index).is_some_and(SlotExtra::outruns_home);
        if state.home_of(id) == Some(home) && !outruns {
            return Ok(None); // The next user of the bytes runs after the zeros on the same timeline.
        }
        drop(state);
        Ok(Some(Point { timeline: home, epoch: timelines.mark(home)? }))
    }

    /// Has a timeline run after all work that was submitted to the device so far.
    fn order_after_all(&self, timelines: &dyn Timelines, timeline: TimelineId) -> Result<()> {
        match timelines.mark(TimelineId::ALL) {
            Ok(epoch) => timelines.order(timeline, Point { timeline: TimelineId::ALL, epoch }),
            // The device cannot mark all of its work.
            Err(error) if error.kind() == ErrorKind::NoSuchTimeline => {
                self.shared.device.backend().wait_idle()
            }
            Err(error) => Err(error),
        }
    }

    /// Returns whether the bytes of an allocation that ends must not outlive it; `None` where they are gone. A secret stays in
    /// memory from now on, because it is about to be zeroed.
    fn begin_end(&self, id: SlotId) -> Option<Privacy> {
        let mut state = self.state.lock();
        let note = state.extras.get(id.index);
        let privacy = note.map_or(Privacy::Open, |note| note.privacy);
        if state.is_gone(id) {
            return None;
        }
        if privacy == Privacy::Secret {
            // Both end with the allocation.
            let _ = state.slots.pin(id);
            state.extras.of(id.index).ending = Some(Ending::Never);
        }
        Some(privacy)
    }

    /// Reports bytes that could not be freed safely; they are never reused.
    pub(super) fn condemn(&self, id: SlotId, error: Error, why: &'static str) -> Ending {
        let bytes = self.state.lock().granted(id).map_or(0, |span| span.size);
        tracing::error!(?error, why, "an allocation could not be freed");
        self.shared.device.quarantine(bytes, why);
        Ending::Never
    }
}
