//! Reuse of bytes: their users have passed, or the next user runs after them.
#![forbid(unsafe_code)]
use super::bytes::Ask;
use super::config::Waiting;
use super::extra::SlotId;
use super::order::{Pending, User};
use super::state::{Lane, State};
use crate::sync::Guard;
use crate::{Backend, Epoch, Error, ErrorKind, Point, Result, Sharing, TimelineId, Timelines};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering::Relaxed;
use omniheap_strategy::LastUse;

/// Way to look at a timeline: wait for it, or only poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitMode {
    Poll,
    Block,
}

/// Slack of a pool above the most that was ever live, before a request takes what other timelines may still use: a
/// fifth of it, and 16 MiB at least.
const SLACK: (u64, u64) = (5, 16 << 20);
/// Slack of a thrifty pool before it waits: a hundredth, and 64 MiB at least.
const THRIFTY_SLACK: (u64, u64) = (100, 64 << 20);

impl<B: Backend> Lane<B> {
    pub(super) fn timelines(&self) -> Option<&dyn Timelines> {
        self.shared.device.backend().as_timelines()
    }

    /// Makes a timeline known to the lane.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline` where the device does not know it, and for [`TimelineId::ALL`], which runs nothing; `ExceedsLimit` when too many have memory here.
    pub(crate) fn enter(&self, timeline: Option<TimelineId>) -> Result<()> {
        if self.state.lock().order.find(timeline).is_some() {
            return Ok(());
        }
        let device = &self.shared.device;
        if let Some(timeline) = timeline
            && (timeline == TimelineId::ALL || device.is_closed(timeline)?)
        {
            return Err(ErrorKind::NoSuchTimeline.into());
        }
        let mut closed = self.state.lock().order.idle_crowd();
        closed.retain(|timeline| device.is_closed(*timeline).unwrap_or(false));
        let mut state = self.state.lock_flushed();
        state.order.forget_closed(&closed);
        state.enter(timeline)?;
        Ok(())
    }

    /// Finds out how much of what was freed so far is out of use on the device. No lock is held over a driver call.
    pub(crate) fn poll_users(&self, wait: WaitMode) -> Result<()> {
        self.poll_use(LastUse::SEVERAL, wait)
    }

    /// As [`poll_users`](Self::poll_users), for what was deferred as well, and also on a lost device: it runs nothing, so everything
    /// has passed.
    pub(crate) fn poll_to_empty(&self) -> Result<()> {
        match self.retire(WaitMode::Poll).and_then(|_| self.poll_users(WaitMode::Poll)) {
            // One call may be wrong about that, so it is asked once more.
            Err(error) if error.kind() == ErrorKind::DeviceLost && self.is_lost() => {
                self.pass_all();
                Ok(())
            }
            polled => polled,
        }
    }

    /// Makes everything that was freed reusable.
    fn pass_all(&self) {
        let mut state = self.state.lock_flushed();
        let now = state.order.clock();
        state.pass_all(now);
        drop(state);
        loop {
            // The lock ends with this statement: what follows takes it.
            let Some(points) = self.state.lock().order.awaited() else { return };
            let reached: Vec<_> = points.iter().map(|it| (it.timeline, it.epoch)).collect();
            if self.take_back(&reached) == 0 {
                return;
            }
        }
    }

    /// Finds out whether the last users of some bytes have passed.
    pub(crate) fn poll_use(&self, last: LastUse, wait: WaitMode) -> Result<()> {
        let pending: Vec<_> = self.state.lock().order.pending(last).collect();
        pending.into_iter().try_for_each(|one| self.poll_user(one, wait))
    }

    /// Finds out how much of what a timeline freed is out of use.
    fn poll_user(&self, one: Pending, wait: WaitMode) -> Result<()> {
        if let Some(time) = self.time_passed(one, wait)? {
            self.state.lock_flushed().pass([(&one, time)].into_iter());
        }
        Ok(())
    }

    /// The time up to which everything that a timeline freed is out of use, if that is found out. No lock is held over a driver
    /// call.
    pub(super) fn time_passed(&self, one: Pending, wait: WaitMode) -> Result<Option<u64>> {
        // Without timelines nothing runs beside the host, so what is freed is out of use.
        let Some(timelines) = self.timelines() else { return Ok(Some(one.time)) };
        let mut passed = None;
        if let Some((time, epoch)) = one.marked {
            passed = self.has_passed(timelines, one, epoch, wait)?.then_some(time);
            if time >= one.time || (passed.is_none() && wait == WaitMode::Poll) {
                return Ok(passed);
            }
        }
        let marked = timelines.mark(one.timeline);
        let epoch = match self.shared.device.unless_closed(one.timeline, marked) {
            // A device that cannot mark all of its work has passed it when it is idle.
            Err(error)
                if error.kind() == ErrorKind::NoSuchTimeline
                    && one.timeline == TimelineId::ALL
                    && wait == WaitMode::Block =>
            {
                return self.shared.device.backend().wait_idle().map(|()| Some(one.time));
            }
            // Only another thread may mark it: no more is known.
            Err(error) if error.kind() == ErrorKind::NoSuchTimeline => return Ok(passed),
            marked => marked?.unwrap_or(Epoch::START),
        };
        if self.has_passed(timelines, one, epoch, wait)? {
            return Ok(Some(one.time));
        }
        self.state.lock().order.set_mark(one.user, one.timeline, (one.time, epoch));
        Ok(passed)
    }

    /// Returns true if a timeline has reached an epoch.
    fn has_passed(
        &self,
        timelines: &dyn Timelines,
        Pending { timeline, .. }: Pending,
        epoch: Epoch,
        wait: WaitMode,
    ) -> Result<bool> {
        let device = &self.shared.device;
        if wait == WaitMode::Block {
            match device.unless_closed(timeline, timelines.wait(Point { timeline, epoch })) {
                // The timeline cannot be waited for now: the epoch may have been reached all the same.
                Err(error) if error.kind() == ErrorKind::Busy => {}
                waited => return waited.map(|_| true),
            }
        }
        let reached = device.unless_closed(timeline, timelines.reached(timeline))?;
        Ok(reached.is_none_or(|now| now >= epoch))
    }

    /// Makes reusable everything deferred whose points were reached; returns how many allocations that were.
    pub(crate) fn retire(&self, wait: WaitMode) -> Result<u64> {
        if wait == WaitMode::Block {
            self.zero_kept();
        }
        let (mut retired, mut before) = (0, Vec::new());
        loop {
            let awaited = self.state.lock().order.awaited();
            let Some(points) = awaited.filter(|points| *points != before || before.is_empty())
            else {
                return Ok(retired);
            };
            let reached = self.reached(&points, wait)?;
            retired += self.take_back(&reached);
            if points.is_empty() {
                return Ok(retired);
            }
            before = points;
        }
    }

    /// Frees everything deferred whose points are among those that were reached; returns how many allocations that were.
    fn take_back(&self, reached: &[(TimelineId, Epoch)]) -> u64 {
        let in_flight = self.shared.device.in_flight.begin();
        let mut returned = Vec::new();
        let mut state = self.state.lock_flushed();
        let State { order, occupancy, .. } = &mut *state;
        let ready = order.take_ready(reached, |id| !occupancy.is_looked_at(id));
        let (mut state, ready) = self.look_at_ready(state, ready);
        ready.iter().for_each(|id| self.tell_free(&state, *id));
        returned.extend(ready.iter().filter_map(|id| state.free(*id).ok().flatten()));
        drop(state);
        if self.give_back_freed(returned) > 0 {
            in_flight.publish();
        }
        ready.len() as u64
    }

    /// Looks at the guards of freed allocations that are about to be the lane's again; returns those that may be.
    fn look_at_ready<'a>(
        &'a self,
        state: Guard<'a, State<B>>,
        mut ready: Vec<SlotId>,
    ) -> (Guard<'a, State<B>>, Vec<SlotId>) {
        if self.shared.watch.is_none() {
            return (state, ready);
        }
        drop(state);
        ready.retain(|id| match self.look_at_end(*id) {
            Ok(()) => true,
            Err(error) => {
                self.condemn(*id, error, "its guard could not be looked at");
                false
            }
        });
        (self.state.lock_flushed(), ready)
    }

    /// Returns the epochs that the timelines of some points have reached. Without timelines, everything is past.
    fn reached(&self, points: &[Point], wait: WaitMode) -> Result<Vec<(TimelineId, Epoch)>> {
        let Some(timelines) = self.timelines() else {
            return Ok(points.iter().map(|point| (point.timeline, point.epoch)).collect());
        };
        let mut reached = Vec::with_capacity(points.len());
        for point in points {
            if wait == WaitMode::Block {
                wait_for(timelines, *point)?;
            }
            let answer = timelines.reached(point.timeline);
            let now = self.shared.device.unless_closed(point.timeline, answer)?;
            reached.push((point.timeline, now.unwrap_or(point.epoch)));
        }
        Ok(reached)
    }

    /// Returns whether a request should take bytes that other timelines may still use, rather than let the pool of these lanes
    /// hold `bytes` more.
    pub(crate) fn should_order(&self, bytes: u64, lanes: &[Arc<Self>]) -> bool {
        self.would_waste(bytes, lanes, SLACK) || self.should_wait(bytes, lanes)
    }

    /// Returns whether to wait for the device rather than hold `bytes` more.
    pub(super) fn should_wait(&self, bytes: u64, lanes: &[Arc<Self>]) -> bool {
        self.shared.config.waiting == Waiting::Thrift
            && self.would_waste(bytes, lanes, THRIFTY_SLACK)
    }

    /// Returns whether a pool of these lanes, with `bytes` more, would hold much more than was ever live. What was freed and
    /// waits for a timeline is not live.
    fn would_waste(&self, bytes: u64, lanes: &[Arc<Self>], slack: (u64, u64)) -> bool {
        let shared = &self.shared;
        let after = shared.reserved().saturating_add(bytes);
        if shared.device.hurried.load(Relaxed) || after <= most_for(shared.need(0), slack) {
            return false;
        }
        let (mut live, mut peak) = (0, 0);
        for lane in lanes {
            let state = lane.state.lock();
            let counts = state.occupancy.counts();
            live += counts.live_bytes.saturating_sub(state.order.deferred_bytes());
            peak = counts.peak_owned_bytes.max(peak);
        }
        after > most_for(shared.need(peak.max(live.saturating_add(bytes))), slack)
    }

    /// Takes a span that other timelines may still use, for a request whose timeline runs after them from now on. The
    /// host does not wait.
    pub(crate) fn take_in_order(&self, ask: Ask) -> Result<Option<SlotId>> {
        let (Some(timeline), Some(timelines)) = (ask.timeline, self.timelines()) else {
            return Ok(None);
        };
        // Taken before the marks: what used it until now was submitted before.
        let mut state = self.state.lock_flushed();
        let user = state.enter(ask.timeline)?;
        let Ok(slot) = state.allocate_anyhow(ask) else { return Ok(None) };
        state.occupancy.pin(slot)?; // No pass may move it yet: it may still be withdrawn.
        let last = state.last_use(slot);
        let order = state.order.to_run_after(user, last);
        drop(state);
        let mut others = order.others.iter();
        let ordered = others.try_for_each(|other| self.run_after(timelines, timeline, other));
        let mut state = self.state.lock_flushed();
        match ordered {
            Ok(()) => {
                state.order.set_after(user, &order);
                state.occupancy.unpin(slot);
                Ok(Some(slot))
            }
            Err(error) => {
                state.withdraw(slot)?;
                Err(error)
            }
        }
    }

    /// Lets a timeline run after everything that another has to do now.
    fn run_after(
        &self,
        timelines: &dyn Timelines,
        timeline: TimelineId,
        other: &Pending,
    ) -> Result<()> {
        let marked = timelines.mark(other.timeline);
        match self.shared.device.unless_closed(other.timeline, marked)? {
            Some(epoch) => {
                let ordered = timelines.order(timeline, Point { timeline: other.timeline, epoch });
                // The other timeline may have been closed since: then its work has passed.
                self.shared.device.unless_closed(other.timeline, ordered).map(|_| ())
            }
            None => Ok(()),
        }
    }

    /// Makes holes of everything that was freed and waits for timelines, for requests that run after them. Returns how many
    /// allocations that were.
    pub(crate) fn retire_in_order(&self) -> u64 {
        let mut state = self.state.lock_flushed();
        if self.shared.watch.is_some() || state.away.is_some() {
            return 0; // Guards are looked at when their bytes are out of use, and a lane that is asleep serves nobody.
        }
        let State { order, occupancy, bytes, .. } = &mut *state;
        let ready = order.take_marked(|id| {
            // A block of its own goes back to the driver, which knows no order.
            let grant = occupancy.deferred_key(id).and_then(|key| bytes.strategy().grant(key).ok());
            grant.is_some_and(|grant| bytes.sharing(grant.block) == Sharing::Shared)
        });
        let mut freed = 0;
        for waiting in ready {
            match state.users_of(&waiting.points) {
                Ok(users) => {
                    self.tell_free(&state, waiting.id);
                    state.free_in_order(waiting.id, users);
                    freed += 1;
                }
                // The lane knows no more timelines: it waits, as it did.
                Err(_) => state.order.put_back(waiting),
            }
        }
        freed
    }
}

impl<B: Backend> State<B> {
    /// The users of the timelines of some points, made known where they are not.
    fn users_of(&mut self, points: &[Point]) -> Result<Vec<User>, ErrorKind> {
        points.iter().map(|point| self.order.enter(Some(point.timeline))).collect()
    }

    /// Frees an allocation that was deferred and that some users may still use.
    fn free_in_order(&mut self, id: SlotId, users: Vec<User>) {
        let Some(key) = self.occupancy.deferred_key(id) else { return };
        let own = self.occupancy.user(id).unwrap_or(User::HOST);
        let last = users
            .into_iter()
            .fold(self.order.free(own), |last, user| last.join(self.order.free(user)));
        let _ = self.end(id, key, last);
    }
}

/// Returns the most to hold when `needed` bytes are needed.
const fn most_for(needed: u64, (part, least): (u64, u64)) -> u64 {
    let share = needed / part;
    needed.saturating_add(if share > least { share } else { least })
}

/// Waits for a point; for one that was never marked, and so may never come, until everything submitted so far has passed. One that
/// cannot be waited for now is not reached.
fn wait_for(timelines: &dyn Timelines, point: Point) -> Result<()> {
    match timelines.wait(point) {
        Err(error) if is_unknown(error) => {}
        Err(error) if error.kind() == ErrorKind::Busy => return Ok(()),
        other => return other,
    }
    let timeline = point.timeline;
    let marked = timelines.mark(timeline);
    match marked.and_then(|epoch| timelines.wait(Point { timeline, epoch })) {
        Err(error) if is_unknown(error) || error.kind() == ErrorKind::Busy => Ok(()),
        other => other,
    }
}

/// Returns true if a backend refused a point or a timeline that it does not know.
fn is_unknown(error: Error) -> bool {
    matches!(error.kind(), ErrorKind::NoSuchTimeline | ErrorKind::OutOfRange)
}
