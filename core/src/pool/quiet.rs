//! When bytes that were freed in a timeline's order are out of use for everyone.
#![forbid(unsafe_code)]
use super::lane::{Lane, State};
use super::slots::SlotId;
use crate::sync::Guard;
use crate::{Backend, Epoch, Error, ErrorKind, Point, Result, TimelineId, Timelines};
use alloc::vec::Vec;

/// Whether to wait for a timeline, or only look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Look,
    Wait,
}

impl<B: Backend> Lane<B> {
    pub(super) fn timelines(&self) -> Option<&dyn Timelines> {
        self.shared.device.backend().as_timelines()
    }

    /// Finds out how much of what was freed so far is out of use on the device. No lock is held over a driver call.
    pub(crate) fn settle(&self, patience: Patience) -> Result<()> {
        let Some(timeline) = self.timeline else { return Ok(()) };
        let Some(timelines) = self.timelines() else {
            // Nothing runs beside the host, so what is freed is out of use.
            let mut state = self.state.lock();
            state.quiet = state.clock;
            return Ok(());
        };
        self.check_mark(timelines, timeline, patience)?;
        let clock = {
            let state = self.state.lock();
            if state.quiet >= state.clock || (state.marked.is_some() && patience == Patience::Look)
            {
                return Ok(());
            }
            state.clock
        };
        let device = &self.shared.device;
        let epoch = match device.unless_closed(timeline, timelines.mark(timeline)) {
            // Only another thread may mark it: nothing is known yet.
            Err(error) if error.kind() == ErrorKind::NoSuchTimeline => return Ok(()),
            marked => marked?.unwrap_or(Epoch::START),
        };
        self.state.lock().marked = Some((clock, epoch));
        self.check_mark(timelines, timeline, patience)
    }

    /// Lets the last mark count if it was reached.
    fn check_mark(
        &self,
        timelines: &dyn Timelines,
        timeline: TimelineId,
        patience: Patience,
    ) -> Result<()> {
        let Some((clock, epoch)) = self.state.lock().marked else { return Ok(()) };
        let device = &self.shared.device;
        if patience == Patience::Wait {
            device.unless_closed(timeline, timelines.wait(Point { timeline, epoch }))?;
        } else if device
            .unless_closed(timeline, timelines.reached(timeline))?
            .is_some_and(|now| now < epoch)
        {
            return Ok(());
        }
        let mut state = self.state.lock();
        state.quiet = state.quiet.max(clock);
        if state.marked.is_some_and(|(marked, _)| marked <= clock) {
            state.marked = None;
        }
        Ok(())
    }

    /// Makes reusable everything deferred whose points were reached; returns how many allocations that were.
    pub(crate) fn retire(&self, patience: Patience) -> Result<u64> {
        let points = {
            let state = self.state.lock();
            if state.deferred.is_empty() {
                return Ok(0);
            }
            state.deferred.latest()
        };
        let reached = self.reached(&points, patience)?;
        Ok(self.take_back(&reached, |_, _| true))
    }

    /// Frees everything deferred whose points are among those that were reached; returns how many allocations that were.
    pub(super) fn take_back(
        &self,
        reached: &[(TimelineId, Epoch)],
        may: impl Fn(&State<B>, SlotId) -> bool,
    ) -> u64 {
        let journey = self.shared.device.transit.begin();
        let mut returned = Vec::new();
        let mut state = self.state.lock();
        let mut deferred = core::mem::take(&mut state.deferred);
        let ready = deferred.take_ready(reached, |id| may(&state, id) && !state.is_looked_at(id));
        state.deferred = deferred;
        let (mut state, ready) = self.look_at_ready(state, ready);
        ready.iter().for_each(|id| self.tell_free(&state, *id));
        returned.extend(ready.iter().filter_map(|id| state.free_deferred(*id)));
        drop(state);
        if self.shared.give_back_left(returned) > 0 {
            journey.arrive();
        }
        ready.len() as u64
    }

    /// Looks at the guards of freed allocations that are about to be the lane's again; those that may be.
    fn look_at_ready<'a>(
        &'a self,
        state: Guard<'a, State<B>>,
        mut ready: Vec<SlotId>,
    ) -> (Guard<'a, State<B>>, Vec<SlotId>) {
        if self.shared.sentry.is_none() {
            return (state, ready);
        }
        drop(state);
        ready.retain(|id| match self.look_at_guard(*id) {
            Ok(()) => true,
            Err(error) => {
                self.condemn(*id, error, "its guard could not be looked at");
                false
            }
        });
        (self.state.lock(), ready)
    }

    /// How far the timelines of some points have come. Without timelines, everything is past.
    fn reached(&self, points: &[Point], patience: Patience) -> Result<Vec<(TimelineId, Epoch)>> {
        let Some(timelines) = self.timelines() else {
            return Ok(points.iter().map(|point| (point.timeline, point.epoch)).collect());
        };
        let mut reached = Vec::with_capacity(points.len());
        for point in points {
            if patience == Patience::Wait {
                wait_for(timelines, *point)?;
            }
            let answer = timelines.reached(point.timeline);
            let now = self.shared.device.unless_closed(point.timeline, answer)?;
            reached.push((point.timeline, now.unwrap_or(point.epoch)));
        }
        Ok(reached)
    }
}

/// Waits for a point; for one that was never marked, and so may never come, until everything submitted so far has passed.
fn wait_for(timelines: &dyn Timelines, point: Point) -> Result<()> {
    match timelines.wait(point) {
        Err(error) if is_unknown(error) => {}
        other => return other,
    }
    let timeline = point.timeline;
    let marked = timelines.mark(timeline);
    match marked.and_then(|epoch| timelines.wait(Point { timeline, epoch })) {
        Err(error) if is_unknown(error) => Ok(()),
        other => other,
    }
}

/// Whether a backend refused a point or a timeline that it does not know.
pub(super) fn is_unknown(error: Error) -> bool {
    matches!(error.kind(), ErrorKind::NoSuchTimeline | ErrorKind::OutOfRange)
}
