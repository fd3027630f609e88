//! Giving bytes back: at once, or when timelines have passed; secrets are zeroed first.
#![forbid(unsafe_code)]
use super::config::Uses;
use super::extra::{Ending, Origin, SlotExtra, SlotId};
use super::state::{Lane, State};
use crate::device::{Block, InFlightGuard};
use crate::sync::Guard;
use crate::{Backend, Error, ErrorKind, Point, Privacy, Result, Span, TimelineId, Timelines};
use alloc::{sync::Arc, vec::Vec};

/// Facts that a free needs about an allocation before its bytes can be reused.
struct FreePlan<B: Backend> {
    /// The timeline that orders its uses, if it has one.
    home: Option<TimelineId>,
    /// True if the order of that timeline does not protect the bytes once they are free.
    outruns_home: bool,
    /// The timelines whose work must pass before the bytes can be reused.
    uses: Vec<TimelineId>,
    /// Place of a secret, padding included: nothing may outlive it there.
    secret: Option<(Arc<Block<B>>, Span)>,
}

/// A free under way. Dropped by a panic of the backend, it keeps the bytes for ever: nobody knows what uses them.
struct Unfinished<'a, B: Backend> {
    lane: &'a Lane<B>,
    id: SlotId,
}

impl<B: Backend> Drop for Unfinished<'_, B> {
    fn drop(&mut self) {
        let Self { lane, id } = *self;
        let ending = lane.condemn(id, ErrorKind::Driver.into(), "the backend panicked as it ended");
        let in_flight = lane.shared.device.in_flight.begin();
        lane.end_free(lane.state.lock_flushed(), id, ending, in_flight);
    }
}

impl<B: Backend> State<B> {
    /// Begins to free an allocation; `None` where its bytes are gone. A secret stays in memory from now on, because it is about
    /// to be zeroed.
    fn begin_free(&mut self, id: SlotId, uses: Uses) -> Option<FreePlan<B>> {
        if self.is_gone(id) {
            return None;
        }
        let (home, extra) = (self.home_of(id), self.occupancy.extra(id));
        let outruns_home = extra.is_some_and(SlotExtra::outruns_home);
        let named = extra.map_or(Vec::new(), |extra| extra.used_on.clone());
        let mut plan = FreePlan { home, outruns_home, uses: named, secret: None };
        if let Some(home) = home.filter(|home| outruns_home && !plan.uses.contains(home)) {
            plan.uses.push(home);
        }
        if uses == Uses::Undeclared && !plan.uses.is_empty() {
            plan.uses = Vec::from([TimelineId::ALL]);
        }
        if self.occupancy.privacy(id) == Privacy::Secret {
            // Both end with the allocation.
            let _ = self.occupancy.pin(id);
            let _ = self.occupancy.change(id, |extra| extra.ending = Some(Ending::Never));
            let (block, span) = self.place(id).expect("an owned allocation has a span");
            plan.secret = Some((Arc::clone(block), span));
        }
        Some(plan)
    }
}

impl<B: Backend> Lane<B> {
    /// Frees an allocation of which nothing more is known than what it is called and that an observer was told of it;
    /// `false` where that is not so. `state` is the locked state of this lane.
    pub(super) fn free_observed(&self, state: &mut State<B>, id: SlotId) -> bool {
        let is_simple = state.occupancy.forget_label(id);
        if is_simple {
            self.tell_free(state, id);
        }
        is_simple && state.free_plain(id)
    }

    /// Frees an allocation that other timelines use, that has a block of its own, or that a pass has. `state` is the locked state
    /// of this lane.
    #[cold]
    pub(super) fn free_with_extra<'a>(
        &'a self,
        mut state: Guard<'a, State<B>>,
        id: SlotId,
        after: Option<Point>,
    ) {
        let unfollowed = |state: &State<B>| state.occupancy.extra(id).map_or(0, |it| it.unfollowed);
        let unfinished = Unfinished { lane: self, id };
        let (in_flight, state, ending) = loop {
            let known = unfollowed(&state);
            let plan = state.begin_free(id, self.shared.config.uses);
            let was_gone = plan.is_none();
            drop(state);
            let ending = plan.map_or(Ending::NOW, |plan| self.ending_of(id, &plan, after));
            let in_flight = self.shared.device.in_flight.begin();
            state = self.state.lock_flushed();
            // A wake may have brought its bytes back, a secret perhaps; or slides have ended whose copies nobody could follow: they
            // use it now.
            let came_back = was_gone && !state.is_gone(id);
            if ending == Ending::Never || (unfollowed(&state) == known && !came_back) {
                break (in_flight, state, ending);
            }
        };
        let (state, ending) = self.look_first(state, id, ending);
        core::mem::forget(unfinished);
        self.end_free(state, id, ending, in_flight);
    }

    /// Frees an allocation now that its ending is known. `state` is the locked state of this lane.
    fn end_free<'a>(
        &'a self,
        mut state: Guard<'a, State<B>>,
        id: SlotId,
        ending: Ending,
        in_flight: InFlightGuard<'a>,
    ) {
        let at_once = ending == Ending::NOW && !state.occupancy.is_looked_at(id);
        if state.occupancy.is_in_pass(id) {
            // The pass frees it when its copies no longer read it.
            self.tell_free_requested(&state, id);
            let ended = state.occupancy.end_ownership(id);
            debug_assert_eq!(ended, Ok(None), "seen just above");
            // Replaces the ending that kept a secret until it was zeroed.
            let ending = (!at_once).then_some(ending);
            let _ = state.occupancy.change(id, |extra| extra.ending = ending);
        } else if at_once {
            self.tell_free(&state, id);
            let returned = state.free(id);
            drop(state);
            if self.give_back_freed(returned.ok().flatten()) > 0 {
                in_flight.publish();
            }
        } else {
            state.defer(id, ending);
            self.tell_free_requested(&state, id);
        }
    }

    /// Looks at the guard of an allocation that ends now. `state` is the locked state of this lane.
    fn look_first<'a>(
        &'a self,
        mut state: Guard<'a, State<B>>,
        id: SlotId,
        ending: Ending,
    ) -> (Guard<'a, State<B>>, Ending) {
        let known = &mut state.occupancy;
        if ending != Ending::NOW
            || !known.is_sanitized(id)
            || known.is_looked_at(id)
            || known.is_in_pass(id)
            || known.pin(id).is_err()
        {
            return (state, ending);
        }
        // The pin keeps passes away; it ends with the allocation.
        drop(state);
        let ending = match self.look_at_end(id) {
            Ok(()) => ending,
            Err(error) => self.condemn(id, error, "its guard could not be looked at"),
        };
        (self.state.lock_flushed(), ending)
    }

    /// Returns when the bytes of an allocation that is freed now can be reused.
    fn ending_of(&self, id: SlotId, plan: &FreePlan<B>, after: Option<Point>) -> Ending {
        let origin = if after.is_some() { Origin::Named } else { Origin::Marked };
        let mut points: Vec<Point> = after.into_iter().collect();
        for timeline in &plan.uses {
            match self.mark(*timeline) {
                Ok(point) => points.extend(point),
                Err(error) if self.shared.device.settle().is_err() => {
                    return self.condemn(id, error, "its work could not be followed");
                }
                Err(error) => tracing::debug!(?error, "waited for work that could not be marked"),
            }
        }
        if plan.secret.is_some() {
            match self.forget_secret(id, plan, &points) {
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

    pub(super) fn is_lost(&self) -> bool {
        let idle = self.shared.device.backend().wait_idle();
        idle.is_err_and(|error| error.kind() == ErrorKind::DeviceLost)
    }

    /// Returns the point after all work submitted to a timeline so far; `None` if it was closed.
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
        let (block, span) = state.place(id)?;
        let block = Arc::clone(block);
        drop(state);
        self.zero(&block, span, on)
    }

    fn zero(&self, block: &Block<B>, span: Span, on: TimelineId) -> Result<()> {
        let transfer = self.shared.device.backend().as_transfer().ok_or(ErrorKind::Unsupported)?;
        transfer.fill(on, block.at(span.offset), span.size, 0)
    }

    /// Zeroes a secret after all its uses. Returns the point at which it is zeroed, if a wait is needed.
    ///
    /// On failure the caller never uses the bytes again.
    fn forget_secret(
        &self,
        id: SlotId,
        plan: &FreePlan<B>,
        uses: &[Point],
    ) -> Result<Option<Point>> {
        let home = plan.home.unwrap_or(TimelineId::MAIN);
        if !self.shared.device.is_closed(home)? {
            match self.zero_after(id, plan, uses, home) {
                // The timeline is being closed, so nothing more runs on it; or it was closed just now.
                Err(error)
                    if error.kind() == ErrorKind::NoSuchTimeline && home != TimelineId::MAIN => {}
                zeroed => return zeroed,
            }
        }
        let rest = self.mark(home)?;
        let uses: Vec<Point> = uses.iter().copied().chain(rest).collect();
        self.zero_after(id, plan, &uses, TimelineId::MAIN)
    }

    /// Zeroes a secret on a timeline, after other points. Returns the point at which it is zeroed, if a wait is needed.
    fn zero_after(
        &self,
        id: SlotId,
        plan: &FreePlan<B>,
        uses: &[Point],
        home: TimelineId,
    ) -> Result<Option<Point>> {
        let Some((block, span)) = &plan.secret else { return Ok(None) };
        let Some(timelines) = self.shared.device.backend().as_timelines() else {
            self.shared.device.backend().wait_idle()?;
            self.look_at_secret(id, home)?;
            self.zero(block, *span, home)?;
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
        self.zero(block, *span, home)?;
        if plan.home == Some(home) && !plan.outruns_home {
            return Ok(None); // The next user of the bytes runs after the zeros on the same timeline.
        }
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

    /// Reports bytes that could not be freed safely; they are never reused.
    pub(super) fn condemn(&self, id: SlotId, error: Error, why: &'static str) -> Ending {
        let state = self.state.lock();
        // Its owner may have freed it long ago.
        let slot = state.occupancy.at(id.index).filter(|(found, _)| *found == id);
        let spot = slot.and_then(|(_, slot)| state.spot(id, slot).ok());
        let bytes = spot.map_or(0, |(_, span)| span.size);
        drop(state);
        tracing::error!(?error, why, "an allocation could not be freed");
        self.shared.device.quarantine(bytes, why);
        Ending::Never
    }
}
