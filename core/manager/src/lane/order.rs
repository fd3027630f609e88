//! The order of a lane's bytes: the users that may have a hole at once, because its last users come before them or have
//! passed; and freed allocations that wait for that.
#![forbid(unsafe_code)]
mod deferred;

use self::deferred::Deferred;
pub(super) use self::deferred::DeferredFree;
use super::config::Uses;
use super::extra::{Origin, SlotId};
use crate::{Epoch, ErrorKind, Point, TimelineId};
use alloc::{collections::BTreeMap, vec, vec::Vec};
use omniheap_strategy::LastUse;

/// A timeline that uses bytes of a lane, by its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct User(u16);

impl User {
    /// The host: what it frees is out of use, and it may only have what is.
    pub(super) const HOST: Self = Self(0);

    fn index(self) -> Option<usize> {
        usize::from(self.0).checked_sub(1)
    }
}

/// Facts that a lane knows about one timeline.
#[derive(Debug)]
struct Record {
    timeline: TimelineId,
    /// Allocations that are used in its order.
    live: u64,
    /// Its last free.
    last_free: u64,
    /// Everything that it freed up to this time has passed on the device.
    passed: u64,
    /// A time, and the epoch that makes it pass.
    marked: Option<(u64, Epoch)>,
    /// Time for each user up to which its frees come before later work of this timeline.
    after: Vec<u64>,
    /// Time up to which the frees of all others have passed, or come before later work of this timeline.
    after_all: u64,
}

impl Record {
    const fn is_busy(&self) -> bool {
        self.last_free > self.passed
    }

    /// Notes that its frees up to a time have passed; whether those were the last ones.
    fn pass(&mut self, time: u64) -> bool {
        let was_busy = self.is_busy();
        self.passed = self.passed.max(time);
        if self.marked.is_some_and(|(marked, _)| marked <= time) {
            self.marked = None;
        }
        was_busy && !self.is_busy()
    }
}

/// A mark to make or to ask for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(crate) user: User,
    pub(crate) timeline: TimelineId,
    /// The lane's time when it was asked.
    pub(crate) time: u64,
    pub(crate) marked: Option<(u64, Epoch)>,
}

/// Timelines that must come before a user can have some bytes.
#[derive(Debug)]
pub(super) struct RunAfter {
    pub(crate) others: Vec<Pending>,
    /// Time for each user up to which its frees come before the timeline's work then.
    known: Vec<u64>,
}

/// The timelines of one lane, and what waits for them.
#[derive(Debug)]
pub(super) struct Order {
    /// Frees so far: the lane's own time.
    clock: u64,
    /// Everything freed up to this time has passed.
    passed: u64,
    records: Vec<Record>,
    by_timeline: BTreeMap<TimelineId, User>,
    /// Users that were found before, by the last digits of their timeline: most requests come from few.
    recent: [Option<(TimelineId, User)>; RECENT],
    unused: Vec<User>,
    /// Stands for all work of the device, where bytes wait for that.
    all: Option<User>,
    uses: Uses,
    /// Users with frees that have not passed.
    busy: u32,
    /// Time at which all of them were asked last.
    asked: u64,
    /// Users at which those whose timeline was closed are looked for again.
    crowd: usize,
    /// Allocations that were freed and wait.
    deferred: Deferred,
}

/// Below this number of users, closed timelines are not searched for.
const FEW: usize = 64;
/// Users that are found at once.
const RECENT: usize = 32;

impl Order {
    pub(super) const fn new(uses: Uses) -> Self {
        Self {
            clock: 0,
            passed: 0,
            records: Vec::new(),
            by_timeline: BTreeMap::new(),
            recent: [None; RECENT],
            unused: Vec::new(),
            all: None,
            uses,
            busy: 0,
            asked: 0,
            crowd: FEW,
            deferred: Deferred::new(),
        }
    }

    /// The user of a request, where its timeline is known here.
    #[inline]
    pub(super) fn find(&mut self, timeline: Option<TimelineId>) -> Option<User> {
        let Some(timeline) = timeline else { return Some(User::HOST) };
        match self.recent[timeline.0 as usize % RECENT] {
            Some((known, user)) if known == timeline => Some(user),
            _ => self.find_other(timeline),
        }
    }

    fn find_other(&mut self, timeline: TimelineId) -> Option<User> {
        let user = *self.by_timeline.get(&timeline)?;
        self.recent[timeline.0 as usize % RECENT] = Some((timeline, user));
        Some(user)
    }

    /// The user of a timeline, made known where it is not; the device knows it.
    ///
    /// # Errors
    ///
    /// `ExceedsLimit` when too many timelines have memory here.
    pub(super) fn enter(&mut self, timeline: Option<TimelineId>) -> Result<User, ErrorKind> {
        if let Some(user) = self.find(timeline) {
            return Ok(user);
        }
        let timeline = timeline.expect("the host is known");
        if timeline == TimelineId::ALL {
            return self.enter_all();
        }
        if self.uses == Uses::Undeclared {
            self.enter_all()?;
        }
        let user = self.add(timeline)?;
        self.by_timeline.insert(timeline, user);
        self.recent[timeline.0 as usize % RECENT] = Some((timeline, user));
        Ok(user)
    }

    /// The user that stands for all work of the device; no request is its.
    fn enter_all(&mut self) -> Result<User, ErrorKind> {
        let all = match self.all {
            Some(all) => all,
            None => self.add(TimelineId::ALL)?,
        };
        self.all = Some(all);
        Ok(all)
    }

    fn add(&mut self, timeline: TimelineId) -> Result<User, ErrorKind> {
        let fresh = Record {
            timeline,
            live: 0,
            last_free: 0,
            passed: self.clock,
            marked: None,
            after: Vec::new(),
            after_all: 0,
        };
        let user = match self.unused.pop() {
            Some(user) => user,
            None => {
                let number = u16::try_from(self.records.len() + 1).ok();
                let number = number.filter(|number| *number <= LastUse::MOST_USERS);
                User(number.ok_or(ErrorKind::ExceedsLimit)?)
            }
        };
        match user.index().and_then(|at| self.records.get_mut(at)) {
            Some(record) => *record = fresh,
            None => self.records.push(fresh),
        }
        Ok(user)
    }

    /// The timelines that have nothing here any more and may have been closed, where there are many.
    pub(super) fn idle_crowd(&mut self) -> Vec<TimelineId> {
        if self.by_timeline.len() < self.crowd {
            return Vec::new();
        }
        let idle = |user: &User| self.record(*user).is_some_and(|record| record.live == 0);
        let crowd = self.by_timeline.iter().filter(|(_, user)| idle(user));
        let crowd = crowd.map(|(timeline, _)| *timeline).collect();
        self.crowd = (self.by_timeline.len() * 2).max(FEW);
        crowd
    }

    /// Forgets timelines that were closed, but for those of which something lives.
    pub(super) fn forget_closed(&mut self, closed: &[TimelineId]) {
        for timeline in closed {
            let Some(user) = self.by_timeline.get(timeline).copied() else { continue };
            // Its own work has passed, but not what others do with its bytes unannounced.
            let is_followed = self.uses == Uses::Declared;
            let may_go =
                |record: &&mut Record| record.live == 0 && (is_followed || !record.is_busy());
            let Some(record) = self.record_mut(user).filter(may_go) else { continue };
            // Holes still name the number. The next user with it starts with everything before as passed.
            let calmed = record.pass(u64::MAX);
            self.busy -= u32::from(calmed);
            self.by_timeline.remove(timeline);
            self.recent[timeline.0 as usize % RECENT] = None;
            self.unused.push(user);
        }
        if !closed.is_empty() {
            self.crowd = (self.by_timeline.len() * 2).max(FEW);
            self.sum_up();
        }
    }

    fn record(&self, user: User) -> Option<&Record> {
        self.records.get(user.index()?)
    }

    fn record_mut(&mut self, user: User) -> Option<&mut Record> {
        self.records.get_mut(user.index()?)
    }

    /// The timeline of a user; none for the host.
    pub(super) fn timeline(&self, user: User) -> Option<TimelineId> {
        self.record(user).map(|record| record.timeline)
    }

    /// Counts an allocation of a user.
    #[inline]
    pub(super) fn admit(&mut self, user: User) {
        if let Some(record) = self.record_mut(user) {
            record.live += 1;
        }
    }

    /// Counts an allocation of a user as gone.
    #[inline]
    pub(super) fn leave(&mut self, user: User) {
        if let Some(record) = self.record_mut(user) {
            record.live -= 1;
        }
    }

    /// The last use of bytes that a user frees now.
    #[inline]
    pub(super) fn free(&mut self, user: User) -> LastUse {
        let time = self.clock + 1;
        let Some(record) = user.index().and_then(|at| self.records.get_mut(at)) else {
            return LastUse::NONE;
        };
        self.busy += u32::from(!record.is_busy());
        record.last_free = time;
        self.clock = time;
        LastUse::new(user.0, time)
    }

    /// The lane's time.
    pub(super) const fn clock(&self) -> u64 {
        self.clock
    }

    /// The time up to which everything has passed.
    pub(super) const fn passed(&self) -> u64 {
        self.passed
    }

    /// Returns whether a user can take every hole at once, because no other user has pending frees.
    #[inline]
    pub(super) fn is_alone(&self, user: User) -> bool {
        self.busy == 0 || (self.busy == 1 && self.record(user).is_some_and(Record::is_busy))
    }

    /// Returns true if a user may have bytes that were used last as said.
    #[inline]
    pub(super) fn may(&self, user: User, last: LastUse) -> bool {
        let time = last.time();
        if time <= self.passed || last.user() == Some(user.0) {
            return true;
        }
        let own = self.record(user);
        match last.user() {
            None => own.is_some_and(|own| time <= own.after_all),
            Some(other) => {
                let at = usize::from(other).wrapping_sub(1);
                self.records.get(at).is_none_or(|other| time <= other.passed)
                    || own.and_then(|own| own.after.get(at)).is_some_and(|after| time <= *after)
            }
        }
    }

    /// Marks to ask for to find out if a use has passed: those of all who may still have the bytes.
    pub(super) fn pending(&self, last: LastUse) -> impl Iterator<Item = Pending> + '_ {
        let count = self.records.len();
        let range = match (self.undeclared(), last.user().map(usize::from)) {
            (Some(all), _) => all..all + usize::from(self.busy > 0),
            (None, None) => 0..count,
            (None, Some(user)) => user.saturating_sub(1)..user.min(count),
        };
        let is_asked = |at: &usize| self.undeclared().is_some() || self.records[*at].is_busy();
        range.filter(is_asked).map(|at| self.pending_at(at))
    }

    /// The place of the user that stands for all work, where anybody may use bytes unannounced.
    fn undeclared(&self) -> Option<usize> {
        self.all.and_then(User::index).filter(|_| self.uses == Uses::Undeclared)
    }

    fn pending_at(&self, at: usize) -> Pending {
        let Record { timeline, marked, .. } = self.records[at];
        let user = User(u16::try_from(at + 1).expect("bounded by `enter`"));
        Pending { user, timeline, time: self.clock, marked }
    }

    /// The fewest timelines after which a user has to run before it can have bytes: a timeline that runs after another one runs
    /// after everything that this one runs after.
    pub(super) fn to_run_after(&self, user: User, last: LastUse) -> RunAfter {
        if let Some(all) = self.undeclared() {
            let is_needed = !self.may(user, last);
            let others = is_needed.then(|| self.pending_at(all)).into_iter().collect();
            let time = if is_needed { self.clock } else { 0 };
            return RunAfter { others, known: vec![time; self.records.len()] };
        }
        let own = self.record(user);
        let mut known = own.map_or(Vec::new(), |own| own.after.clone());
        known.resize(self.records.len(), 0);
        let mut others = Vec::new();
        loop {
            let unknown = |at: &usize| {
                let record = &self.records[*at];
                let needed = last.time().min(record.last_free);
                Some(*at) != user.index() && needed > record.passed.max(known[*at])
            };
            let all = self.pending(last).filter_map(|one| one.user.index()).filter(unknown);
            let next =
                all.max_by_key(|at| (self.records[*at].after_all, self.records[*at].last_free));
            let Some(next) = next else { return RunAfter { others, known } };
            others.push(self.pending_at(next));
            for (known, theirs) in known.iter_mut().zip(&self.records[next].after) {
                *known = (*known).max(*theirs);
            }
            known[next] = self.clock;
        }
    }

    /// Returns the timelines to ask so that a request may have bytes that were used last as said: all of them, from
    /// time to time, because others will want the rest; else the one that used the bytes.
    pub(super) fn whom_to_ask(&mut self, last: LastUse) -> Vec<Pending> {
        let is_due = self.clock - self.asked >= u64::from(self.busy);
        if !is_due {
            return self.pending(last).collect();
        }
        self.asked = self.clock;
        self.pending(LastUse::SEVERAL).collect()
    }

    /// Timelines whose frees have not passed.
    pub(super) fn busy(&self) -> impl Iterator<Item = TimelineId> + '_ {
        self.pending(LastUse::SEVERAL).map(|one| one.timeline)
    }

    /// Timelines that may use any of the bytes: those with frees that have not passed, and all where uses are not declared.
    pub(super) fn may_use(&self) -> impl Iterator<Item = TimelineId> + '_ {
        let unannounced = (self.uses == Uses::Undeclared).then_some(TimelineId::ALL);
        self.busy().chain(unannounced)
    }

    /// Notes that a timeline passes a time of the lane at an epoch.
    pub(super) fn set_mark(&mut self, user: User, timeline: TimelineId, mark: (u64, Epoch)) {
        if let Some(record) = self.record_mut(user).filter(|known| known.timeline == timeline) {
            record.marked = Some(mark);
        }
    }

    /// Notes that everything that timelines freed up to a time has passed.
    pub(super) fn pass<'a>(&mut self, each: impl Iterator<Item = (&'a Pending, u64)>) {
        for (one, time) in each {
            if one.timeline == TimelineId::ALL {
                self.pass_each(time);
                continue;
            }
            let record = one.user.index().and_then(|at| self.records.get_mut(at));
            if let Some(record) = record.filter(|record| record.timeline == one.timeline) {
                self.busy -= u32::from(record.pass(time));
            }
        }
        self.sum_up();
    }

    /// Notes that everything that anybody freed up to a time has passed.
    pub(super) fn pass_all(&mut self, time: u64) {
        self.pass_each(time);
        self.sum_up();
    }

    fn pass_each(&mut self, time: u64) {
        let calmed = self.records.iter_mut().map(|record| u32::from(record.pass(time)));
        self.busy -= calmed.sum::<u32>();
    }

    /// Finds the time up to which everything has passed.
    fn sum_up(&mut self) {
        let pending = self.records.iter().filter(|record| record.is_busy());
        let least = pending.map(|record| record.passed).min();
        self.passed = self.passed.max(least.unwrap_or(self.clock));
    }

    /// Notes that later work of a timeline runs after others, as was found out with [`to_run_after`](Self::to_run_after).
    pub(super) fn set_after(&mut self, user: User, order: &RunAfter) {
        let Some(own) = user.index() else { return };
        let after = &mut self.records[own].after;
        after.resize(after.len().max(order.known.len()), 0);
        for (known, new) in after.iter_mut().zip(&order.known) {
            *known = (*known).max(*new);
        }
        let after = &self.records[own].after;
        let unknown = self.records.iter().enumerate().filter_map(|(at, record)| {
            let known = record.passed.max(after.get(at).copied().unwrap_or(0));
            (at != own && record.last_free > known).then_some(known)
        });
        self.records[own].after_all = unknown.min().unwrap_or(self.clock);
    }

    /// Checks the counts of allocations and of busy timelines; `users` has the user of each allocation.
    pub(super) fn validate(&self, users: impl Iterator<Item = User>) -> Result<(), &'static str> {
        let mut live = vec![0; self.records.len()];
        users.filter_map(User::index).for_each(|at| live[at] += 1);
        let busy = self.records.iter().filter(|record| record.is_busy());
        if !self.records.iter().map(|record| record.live).eq(live) {
            return Err("a timeline's count of allocations differs from a walk of the slots");
        }
        match busy.count() == self.busy as usize {
            true => Ok(()),
            false => Err("the count of busy timelines differs from a walk of them"),
        }
    }
}

/// Freed allocations that wait.
impl Order {
    /// Lets a freed allocation wait for all of some points.
    pub(super) fn defer(&mut self, id: SlotId, bytes: u64, points: Vec<Point>, origin: Origin) {
        self.deferred.push(DeferredFree { id, bytes, points, origin });
    }

    /// Lets something that was taken out wait again.
    pub(super) fn put_back(&mut self, waiting: DeferredFree) {
        self.deferred.push(waiting);
    }

    /// Bytes that wait.
    #[inline]
    pub(super) const fn deferred_bytes(&self) -> u64 {
        self.deferred.bytes()
    }

    /// The latest point of each timeline that something waits for now; `None` where nothing waits.
    pub(super) fn awaited(&self) -> Option<Vec<Point>> {
        (!self.deferred.is_empty()).then(|| self.deferred.latest())
    }

    /// Takes out everything whose points are reached, of what `may` be; `reached` lists how far timelines have come.
    pub(super) fn take_ready(
        &mut self,
        reached: &[(TimelineId, Epoch)],
        may: impl Fn(SlotId) -> bool,
    ) -> Vec<SlotId> {
        self.deferred.take_ready(reached, may)
    }

    /// Takes out everything whose points were all marked, of what `may` be, with the points that are left.
    pub(super) fn take_marked(&mut self, may: impl Fn(SlotId) -> bool) -> Vec<DeferredFree> {
        self.deferred.take_marked(may)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users<const N: usize>() -> (Order, [User; N]) {
        let mut users = Order::new(Uses::Declared);
        let all = core::array::from_fn(|at| {
            let timeline = TimelineId(u32::try_from(at).unwrap() + 1);
            users.enter(Some(timeline)).unwrap()
        });
        (users, all)
    }

    /// Lets everything pass that a user freed until now.
    fn pass(users: &mut Order, user: User) {
        let at = user.index().unwrap();
        let one = users.pending_at(at);
        users.pass([(&one, one.time)].into_iter());
    }

    #[test]
    fn bytes_are_the_last_users_at_once_and_others_when_it_has_passed() {
        let (mut users, [one, two]) = users();
        assert!(users.is_alone(two));
        let last = users.free(one);
        assert_eq!([one, two, User::HOST].map(|user| users.may(user, last)), [true, false, false]);
        assert!(users.is_alone(one) && !users.is_alone(two) && !users.is_alone(User::HOST));
        let both = last.join(users.free(two));
        assert!(!users.may(one, both) && !users.may(two, both), "each is not the only one");
        pass(&mut users, one);
        assert!(users.may(User::HOST, last) && !users.may(User::HOST, both));
        pass(&mut users, two);
        assert!(users.may(User::HOST, both) && users.is_alone(User::HOST));
    }

    #[test]
    fn whoever_runs_after_one_runs_after_everything_before_it() {
        let (mut users, [one, two, three]) = users();
        let first = users.free(one);
        let order = users.to_run_after(two, first);
        assert_eq!(order.others.iter().map(|other| other.user).collect::<Vec<_>>(), [one]);
        users.set_after(two, &order);
        assert!(users.may(two, first) && !users.may(three, first));
        let second = users.free(two);
        let order = users.to_run_after(three, second);
        users.set_after(three, &order);
        assert!(users.may(three, first) && users.may(three, second));
        let later = users.free(one);
        assert!(!users.may(two, later) && !users.may(three, later), "freed after the order");
        let all = users.to_run_after(three, later.join(second));
        assert_eq!(all.others.iter().map(|other| other.user).collect::<Vec<_>>(), [one]);
        users.set_after(three, &all);
        assert!(users.may(three, later.join(second)) && !users.may(two, later.join(second)));
    }

    #[test]
    fn on_an_idle_device_everything_has_passed_up_to_a_time() {
        let (mut users, [one, two]) = users();
        let both = users.free(one).join(users.free(two));
        let time = users.clock();
        let later = users.free(one);
        users.pass_all(time);
        assert!(users.may(User::HOST, both), "whoever used it has passed");
        assert!(!users.may(User::HOST, later) && users.may(one, later));
        assert_eq!(users.passed(), time);
        assert!(users.is_alone(one) && !users.is_alone(two), "one is still busy");
        users.pass_all(users.clock());
        assert_eq!((users.passed(), users.busy), (users.clock(), 0));
    }

    #[test]
    fn everyone_is_asked_once_in_as_many_frees_as_there_are_busy_timelines() {
        let (mut users, [one, two, three]) = users();
        let last = users.free(one);
        users.free(two);
        users.free(three);
        let asked = |users: &mut Order| users.whom_to_ask(last).len();
        assert_eq!(asked(&mut users), 3, "three frees, three busy timelines");
        assert_eq!(asked(&mut users), 1, "only the one who used it");
        users.free(one);
        users.free(one);
        assert_eq!(asked(&mut users), 1);
        users.free(one);
        assert_eq!(asked(&mut users), 3, "it is due again");
    }

    #[test]
    fn the_number_of_a_closed_timeline_is_given_to_another_which_owes_nothing() {
        let (mut users, [one, two]) = users();
        let old = users.free(one);
        users.admit(two);
        let closed = [TimelineId(1), TimelineId(2)];
        users.forget_closed(&closed);
        assert!(users.may(two, old) && users.may(User::HOST, old), "it has passed");
        assert_eq!(users.find(Some(TimelineId(1))), None);
        assert_eq!(users.find(Some(TimelineId(2))), Some(two), "something of it lives");
        let new = users.enter(Some(TimelineId(9))).unwrap();
        assert_eq!((new, users.timeline(new)), (one, Some(TimelineId(9))));
        assert!(users.may(User::HOST, old));
        let next = users.free(new);
        assert!(!users.may(two, next) && users.may(two, old), "its own frees count");
    }

    #[test]
    fn timelines_that_come_and_go_leave_no_more_than_a_few_behind() {
        let mut users = Order::new(Uses::Declared);
        for number in 1..10_000 {
            let idle = users.idle_crowd();
            users.forget_closed(&idle);
            let user = users.enter(Some(TimelineId(number))).unwrap();
            users.free(user);
        }
        assert!(users.records.len() <= FEW && users.by_timeline.len() <= FEW);
    }

    #[test]
    fn what_anybody_may_use_waits_for_all_work() {
        let mut users = Order::new(Uses::Undeclared);
        let [one, two] = [1, 2].map(|number| users.enter(Some(TimelineId(number))).unwrap());
        assert_eq!(users.find(Some(TimelineId::ALL)), None, "no request is its");
        assert_eq!(users.pending(LastUse::SEVERAL).count(), 0);
        let last = users.free(one);
        assert!(users.may(one, last) && !users.may(two, last));
        let asked: Vec<_> = users.pending(last).collect();
        assert_eq!(asked.iter().map(|one| one.timeline).collect::<Vec<_>>(), [TimelineId::ALL]);
        let order = users.to_run_after(two, last);
        assert_eq!(order.others[0].timeline, TimelineId::ALL);
        users.set_after(two, &order);
        assert!(users.may(two, last) && !users.may(User::HOST, last));
        assert!(users.to_run_after(two, last).others.is_empty());
        users.forget_closed(&[TimelineId(1)]);
        assert!(!users.may(User::HOST, last), "others may still use what it freed");
        let later = users.free(two);
        users.pass([(&asked[0], asked[0].time)].into_iter());
        assert!(users.may(User::HOST, last) && !users.may(User::HOST, later));
        users.forget_closed(&[TimelineId(1)]);
        assert_eq!(users.find(Some(TimelineId(1))), None);
    }
}
