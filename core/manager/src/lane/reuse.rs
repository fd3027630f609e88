//! When bytes can be reused: their users have passed, or the next user runs after them.
#![forbid(unsafe_code)]
use super::table::SlotId;
use super::users::{Pending, User};
use super::{Ask, Lane, State, Waiting};
use crate::sync::Guard;
use crate::{Backend, Epoch, Error, ErrorKind, Point, Result, TimelineId, Timelines};
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use core::sync::atomic::Ordering::Relaxed;
use omniheap_strategy::LastUse;

/// Whether to wait for a timeline, or only look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitMode {
    Poll,
    Block,
}

/// How much more than was ever live a pool may hold before a request takes what other timelines may still use: one part in so
/// many, and these bytes at least.
const SLACK: (u64, u64) = (5, 16 << 20);
/// How much more a pool that is thrifty may hold before it waits.
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
        if self.state.lock_fast().users.find(timeline).is_some() {
            return Ok(());
        }
        let device = &self.shared.device;
        if let Some(timeline) = timeline
            && (timeline == TimelineId::ALL || device.is_closed(timeline)?)
        {
            return Err(ErrorKind::NoSuchTimeline.into());
        }
        let mut closed = self.state.lock().users.idle_crowd();
        closed.retain(|timeline| device.is_closed(*timeline).unwrap_or(false));
        let mut state = self.state.lock();
        state.users.forget_closed(&closed);
        state.enter(timeline)?;
        Ok(())
    }

    /// Finds out how much of what was freed so far is out of use on the device. No lock is held over a driver call.
    pub(crate) fn poll_users(&self, wait: WaitMode) -> Result<()> {
        self.poll_use(LastUse::SEVERAL, wait)
    }

    /// Finds out whether the last users of some bytes have passed.
    pub(crate) fn poll_use(&self, last: LastUse, wait: WaitMode) -> Result<()> {
        let pending: Vec<_> = self.state.lock().users.pending(last).collect();
        pending.into_iter().try_for_each(|one| self.poll_user(one, wait))
    }

    /// Finds out how much of what a timeline freed is out of use.
    fn poll_user(&self, one: Pending, wait: WaitMode) -> Result<()> {
        if let Some(time) = self.time_passed(one, wait)? {
            self.state.lock().pass([(&one, time)].into_iter());
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
        self.state.lock().users.set_mark(one.user, one.timeline, (one.time, epoch));
        Ok(passed)
    }

    /// Whether a timeline has reached an epoch.
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
                // It cannot be waited for now: it may have been reached all the same.
                Err(error) if error.kind() == ErrorKind::Busy => {}
                waited => return waited.map(|_| true),
            }
        }
        let reached = device.unless_closed(timeline, timelines.reached(timeline))?;
        Ok(reached.is_none_or(|now| now >= epoch))
    }

    /// Makes reusable everything deferred whose points were reached; returns how many allocations that were.
    pub(crate) fn retire(&self, wait: WaitMode) -> Result<u64> {
        let (mut retired, mut before) = (0, Vec::new());
        loop {
            let state = self.state.lock();
            let (points, is_empty) = (state.deferred.latest(), state.deferred.is_empty());
            drop(state);
            if is_empty || (points == before && !before.is_empty()) {
                return Ok(retired);
            }
            let reached = self.reached(&points, wait)?;
            retired += self.take_back(&reached, |_, _| true);
            if points.is_empty() {
                return Ok(retired);
            }
            before = points;
        }
    }

    /// Frees everything deferred whose points are among those that were reached; returns how many allocations that were.
    fn take_back(
        &self,
        reached: &[(TimelineId, Epoch)],
        may: impl Fn(&State<B>, SlotId) -> bool,
    ) -> u64 {
        let in_flight = self.shared.device.in_flight.begin();
        let mut returned = Vec::new();
        let mut state = self.state.lock();
        let mut deferred = core::mem::take(&mut state.deferred);
        let ready = deferred.take_ready(reached, |id| may(&state, id) && !state.is_looked_at(id));
        state.deferred = deferred;
        let (mut state, ready) = self.look_at_ready(state, ready);
        ready.iter().for_each(|id| self.tell_free(&state, *id));
        returned.extend(ready.iter().filter_map(|id| state.free_deferred(*id)));
        drop(state);
        if self.shared.give_back_freed(returned) > 0 {
            in_flight.publish();
        }
        ready.len() as u64
    }

    /// Shows the sanitizer freed allocations that are about to be the lane's again; returns those that may be.
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
                self.condemn(*id, error, "its sanitizer could not look at it");
                false
            }
        });
        (self.state.lock(), ready)
    }

    /// How far the timelines of some points have come. Without timelines, everything is past.
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
            live += state.counts.live_bytes.saturating_sub(state.deferred.bytes());
            peak = state.counts.peak_owned_bytes.max(peak);
        }
        after > most_for(shared.need(peak.max(live.saturating_add(bytes))), slack)
    }

    /// A span that other timelines may still use, for a request whose timeline runs after them from now on. Nobody waits.
    pub(crate) fn take_in_order(&self, ask: Ask) -> Result<Option<SlotId>> {
        let (Some(timeline), Some(timelines)) = (ask.timeline, self.timelines()) else {
            return Ok(None);
        };
        // Taken before the marks: what used it until now was submitted before.
        let mut state = self.state.lock();
        let user = state.enter(ask.timeline)?;
        let Ok(slot) = state.allocate_anyhow(ask) else { return Ok(None) };
        state.slots.pin(slot)?; // No pass may move it yet: it may still be withdrawn.
        let last = state.last_use(slot);
        let order = state.users.to_run_after(user, last);
        drop(state);
        let mut others = order.others.iter();
        let ordered = others.try_for_each(|other| self.run_after(timelines, timeline, other));
        let mut state = self.state.lock();
        match ordered {
            Ok(()) => {
                state.users.set_after(user, &order);
                state.slots.unpin(slot);
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
                // It may have been closed since: then it has passed.
                self.shared.device.unless_closed(other.timeline, ordered).map(|_| ())
            }
            None => Ok(()),
        }
    }

    /// Makes holes of everything that was freed and waits for timelines, for requests that run after them. Returns how many
    /// allocations that were.
    pub(crate) fn retire_in_order(&self) -> u64 {
        let mut state = self.state.lock();
        if self.shared.watch.is_some() || state.away.is_some() {
            return 0; // A sanitizer looks at bytes when they are out of use, and a lane that is asleep serves nobody.
        }
        let mut deferred = core::mem::take(&mut state.deferred);
        // A block of its own goes back to the driver, which knows no order.
        let ready = deferred.take_marked(|id| !state.is_alone(id));
        state.deferred = deferred;
        let mut freed = 0;
        for waiting in ready {
            match state.users_of(&waiting.points) {
                Ok(users) => {
                    self.tell_free(&state, waiting.id);
                    state.free_in_order(waiting.id, users);
                    freed += 1;
                }
                // The lane knows no more timelines: it waits, as it did.
                Err(_) => state.deferred.put_back(waiting),
            }
        }
        freed
    }
}

impl<B: Backend> State<B> {
    /// Notes that everything that timelines freed up to a time is out of use.
    pub(crate) fn pass<'a>(&mut self, each: impl Iterator<Item = (&'a Pending, u64)>) {
        self.users.pass(each);
        self.forget_passed();
    }

    /// The user of a request's timeline, made known where it is not.
    pub(crate) fn enter(&mut self, timeline: Option<TimelineId>) -> Result<User, ErrorKind> {
        self.check_awake()?;
        self.users.enter(timeline)
    }

    /// The users of the timelines of some points, made known where they are not.
    fn users_of(&mut self, points: &[Point]) -> Result<Vec<User>, ErrorKind> {
        points.iter().map(|point| self.users.enter(Some(point.timeline))).collect()
    }

    /// Frees an allocation that was deferred and that some users may still use.
    fn free_in_order(&mut self, id: SlotId, users: Vec<User>) {
        let Some(key) = self.slots.deferred_key(id) else { return };
        let own = self.slots.user(id).unwrap_or(User::HOST);
        let last = users
            .into_iter()
            .fold(self.users.free(own), |last, user| last.join(self.users.free(user)));
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

/// Whether a backend refused a point or a timeline that it does not know.
fn is_unknown(error: Error) -> bool {
    matches!(error.kind(), ErrorKind::NoSuchTimeline | ErrorKind::OutOfRange)
}

/// One freed allocation, and the points that must pass before its bytes are reused.
#[derive(Debug)]
pub(super) struct DeferredFree {
    id: SlotId,
    bytes: u64,
    points: Vec<Point>,
    origin: Origin,
}

/// Where the points come from that something waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The manager marked them: everything that uses the bytes was submitted before.
    Marked,
    /// A caller named one: it may be still to come.
    Named,
}

/// Where an allocation waits: for an epoch of a timeline, behind those that came before it.
type Place = (TimelineId, Epoch, u64);

/// Freed allocations that wait, each for one of its points at a time: what has passed is found without a look at the rest.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    waiting: BTreeMap<Place, DeferredFree>,
    /// Those that wait for nothing, by their number.
    ready: BTreeMap<u64, DeferredFree>,
    bytes: u64,
    next: u64,
}

impl Deferred {
    pub(crate) const fn new() -> Self {
        Self { waiting: BTreeMap::new(), ready: BTreeMap::new(), bytes: 0, next: 0 }
    }

    pub(crate) fn push(&mut self, id: SlotId, bytes: u64, points: Vec<Point>, origin: Origin) {
        let number = self.next;
        self.next += 1;
        self.bytes += bytes;
        self.put(number, DeferredFree { id, bytes, points, origin });
    }

    fn put(&mut self, number: u64, mut waiting: DeferredFree) {
        match waiting.points.pop() {
            Some(Point { timeline, epoch }) => {
                self.waiting.insert((timeline, epoch, number), waiting);
            }
            None => {
                self.ready.insert(number, waiting);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.ready.is_empty()
    }

    /// Bytes that wait.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The latest point of each timeline that something waits for now; when it has passed, there may be others.
    pub(crate) fn latest(&self) -> Vec<Point> {
        let mut latest = Vec::new();
        let mut from = Some(TimelineId(0));
        while let Some(first) = from {
            let mut later = self.waiting.range((first, Epoch(0), 0)..);
            let Some(((timeline, ..), _)) = later.next() else { break };
            let all = (*timeline, Epoch(0), 0)..=(*timeline, Epoch(u64::MAX), u64::MAX);
            let last = self.waiting.range(all).next_back();
            latest.extend(
                last.map(|((timeline, epoch, _), _)| Point { timeline: *timeline, epoch: *epoch }),
            );
            from = timeline.0.checked_add(1).map(TimelineId);
        }
        latest
    }

    /// Takes out everything whose points are reached, of what `may` be; `reached` lists how far timelines have come.
    pub(super) fn take_ready(
        &mut self,
        reached: &[(TimelineId, Epoch)],
        may: impl Fn(SlotId) -> bool,
    ) -> Vec<SlotId> {
        let mut moved = true;
        while moved {
            moved = false;
            for (timeline, epoch) in reached {
                let passed = (*timeline, Epoch(0), 0)..=(*timeline, *epoch, u64::MAX);
                for ((_, _, number), waiting) in
                    self.waiting.extract_if(passed, |_, _| true).collect::<Vec<_>>()
                {
                    moved |= !waiting.points.is_empty();
                    self.put(number, waiting);
                }
            }
        }
        let bytes = &mut self.bytes;
        let ready = self.ready.extract_if(.., |_, waiting| may(waiting.id));
        ready
            .map(|(_, waiting)| {
                *bytes -= waiting.bytes;
                waiting.id
            })
            .collect()
    }

    /// Takes out everything whose points were all marked, of what `may` be, with the points that are left.
    pub(super) fn take_marked(&mut self, may: impl Fn(SlotId) -> bool) -> Vec<DeferredFree> {
        let taken = |waiting: &DeferredFree| waiting.origin == Origin::Marked && may(waiting.id);
        let mut found = Vec::new();
        for ((timeline, epoch, _), mut waiting) in self.waiting.extract_if(.., |_, one| taken(one))
        {
            self.bytes -= waiting.bytes;
            waiting.points.push(Point { timeline, epoch });
            found.push(waiting);
        }
        found
    }

    /// Lets something that was taken out wait again.
    fn put_back(&mut self, waiting: DeferredFree) {
        self.push(waiting.id, waiting.bytes, waiting.points, waiting.origin);
    }
}

#[cfg(test)]
mod tests {
    use super::Origin::Marked;
    use super::*;

    const fn id(index: u32) -> SlotId {
        SlotId { index, generation: 1 }
    }

    const fn point(timeline: u32, epoch: u64) -> Point {
        Point { timeline: TimelineId(timeline), epoch: Epoch(epoch) }
    }

    #[test]
    fn what_may_not_be_taken_stays_also_when_it_waits_for_nothing() {
        let mut deferred = Deferred::new();
        deferred.push(id(0), 10, Vec::new(), Marked);
        deferred.push(id(1), 20, [point(3, 5)].into(), Marked);
        deferred.push(id(2), 30, Vec::new(), Marked);
        let reached = [(TimelineId(3), Epoch(5))];
        assert_eq!(deferred.take_ready(&reached, |_| false), []);
        assert_eq!(deferred.take_ready(&[], |one| one != id(0)), [id(1), id(2)]);
        assert_eq!((deferred.bytes(), deferred.is_empty()), (10, false));
        assert_eq!(deferred.take_ready(&reached, |_| true), [id(0)]);
        assert_eq!((deferred.bytes(), deferred.is_empty()), (0, true));
    }

    #[test]
    fn what_was_taken_out_in_vain_waits_as_before() {
        let mut deferred = Deferred::new();
        deferred.push(id(0), 10, [point(1, 4), point(2, 9)].into(), Marked);
        let before = deferred.latest();
        for waiting in deferred.take_marked(|_| true) {
            deferred.put_back(waiting);
        }
        assert_eq!((deferred.bytes(), deferred.latest()), (10, before));
        assert_eq!(deferred.take_ready(&[(TimelineId(2), Epoch(9))], |_| true), []);
        assert_eq!(deferred.take_ready(&[(TimelineId(1), Epoch(4))], |_| true), [id(0)]);
    }

    #[test]
    fn every_point_has_to_pass_in_any_order() {
        let mut deferred = Deferred::new();
        deferred.push(id(0), 1, [point(1, 4), point(2, 9)].into(), Marked);
        deferred.push(id(1), 1, [point(2, u64::MAX)].into(), Marked);
        deferred.push(id(2), 1, [point(2, 3)].into(), Marked);
        assert_eq!(deferred.latest(), [point(2, u64::MAX)]);
        assert_eq!(deferred.take_ready(&[(TimelineId(1), Epoch(4))], |_| true), []);
        assert_eq!(deferred.take_ready(&[(TimelineId(2), Epoch(8))], |_| true), [id(2)]);
        let both = [(TimelineId(1), Epoch(3)), (TimelineId(2), Epoch(9))];
        assert_eq!(deferred.take_ready(&both, |_| true), []);
        assert_eq!(deferred.latest(), [point(1, 4), point(2, u64::MAX)]);
        assert_eq!(deferred.take_ready(&[(TimelineId(1), Epoch(4))], |_| true), [id(0)]);
        assert_eq!(deferred.bytes(), 1);
    }
}
