//! Bookkeeping of a set: its pools, which one to evict next, and the work queue of its thread. Makes no call to the device.
#![forbid(unsafe_code)]
use super::{Moved, Resident};
use omniheap_core::{AllocateError, HeapId, Sleep, Sleepable};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::thread::ThreadId;

/// Number of steps after which an expectation lapses.
const PATIENCE: u64 = 2;

/// The set behind its lock.
pub(super) struct State {
    pub(super) members: Vec<Member>,
    /// Counts touches.
    clock: u64,
    /// Pools to prefetch, the next one first. A pool stays in here until its wake has ended.
    pub(super) expected: VecDeque<Weak<dyn Sleepable>>,
    /// Number of steps requested, and of steps done.
    pub(super) steps: u64,
    pub(super) steps_made: u64,
    pub(super) moved: Moved,
    /// The error of a failed step, until `account` reports it.
    pub(super) failed: Option<AllocateError>,
    pub(super) is_closing: bool,
    /// Threads that wake something: nobody leaves for what a wake asks for, but for what was woken and does not fit.
    pub(super) waking: Vec<ThreadId>,
}

/// A pool of the set.
pub(super) struct Member {
    pub(super) pool: Weak<dyn Sleepable>,
    pub(super) how: Resident,
    /// Clock of its last touch.
    touched: u64,
    pub(super) holds: u64,
    /// The step in which it was expected last; none once it was held.
    pub(super) expected: Option<u64>,
    /// True while a thread is putting it to sleep.
    pub(super) is_leaving: bool,
    /// True if this set put it to sleep, so that it may wake it.
    pub(super) is_ours: bool,
}

/// The request that room is made for.
pub(super) struct Asker {
    pub(super) heap: HeapId,
    /// Pools above it stay awake.
    pub(super) priority: i32,
    /// Stays awake.
    pub(super) pool: Option<Weak<dyn Sleepable>>,
    pub(super) need: Need,
}

/// Urgency of a need for bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Now,
    /// A prefetch: other expected pools stay awake.
    Soon,
}

impl State {
    pub(super) const fn new() -> Self {
        Self {
            members: Vec::new(),
            clock: 0,
            expected: VecDeque::new(),
            steps: 0,
            steps_made: 0,
            moved: Moved { slept: 0, woken: 0, returned: 0 },
            failed: None,
            is_closing: false,
            waking: Vec::new(),
        }
    }

    /// Adds a pool, or changes how one of the set makes room. Drops members whose pools are gone.
    pub(super) fn add(&mut self, pool: &Arc<dyn Sleepable>, how: Resident) {
        self.members.retain(|member| member.pool.strong_count() > 0);
        if let Some(member) = self.touch(pool) {
            member.how = how;
            return;
        }
        self.members.push(Member {
            pool: Arc::downgrade(pool),
            how,
            touched: self.clock,
            holds: 0,
            expected: None,
            is_leaving: false,
            is_ours: false,
        });
    }

    pub(super) fn of(&mut self, pool: &Arc<dyn Sleepable>) -> Option<&mut Member> {
        self.members
            .iter_mut()
            .find(|member| core::ptr::addr_eq(member.pool.as_ptr(), Arc::as_ptr(pool)))
    }

    pub(super) fn touch(&mut self, pool: &Arc<dyn Sleepable>) -> Option<&mut Member> {
        self.clock += 1;
        let now = self.clock;
        let member = self.of(pool)?;
        member.touched = now;
        Some(member)
    }

    /// Picks the pool to evict next, none of `tried`, and marks it as leaving.
    pub(super) fn victim(
        &mut self,
        asker: &Asker,
        tried: &[Weak<dyn Sleepable>],
    ) -> Option<Victim> {
        let steps = self.steps;
        let is_expected = |since: u64| steps - since < PATIENCE;
        let may = |member: &&mut Member| {
            let is = |other: &Weak<dyn Sleepable>| other.ptr_eq(&member.pool);
            member.holds == 0
                && !member.is_leaving
                && (asker.need == Need::Now || !member.expected.is_some_and(is_expected))
                && member.how.priority <= asker.priority
                && !tried.iter().chain(&asker.pool).any(is)
                && member.pool.upgrade().is_some_and(|pool| pool.heap() == asker.heap)
        };
        let found = self.members.iter_mut().filter(may);
        let next = found.min_by_key(|member| (member.how.priority, member.touched))?;
        let pool = next.pool.upgrade()?;
        next.is_leaving = true;
        Some((pool, Sleep::to(Arc::clone(&next.how.store))))
    }

    /// Marks a pool as expected. Returns its member.
    pub(super) fn expect(&mut self, pool: &Arc<dyn Sleepable>) -> Option<&mut Member> {
        let steps = self.steps;
        let member = self.touch(pool)?;
        member.expected = Some(steps);
        Some(member)
    }

    /// Queues a pool for the thread to wake.
    pub(super) fn enqueue(&mut self, pool: &Arc<dyn Sleepable>) {
        let pool = Arc::downgrade(pool);
        if !self.expected.iter().any(|queued| queued.ptr_eq(&pool)) {
            self.expected.push_back(pool);
        }
    }

    /// Returns the next task. Steps come first: a set above its budget must not wait for prefetches.
    pub(super) fn next_task(&mut self) -> Option<Task> {
        if self.steps_made < self.steps {
            return Some(Task::Step(self.steps));
        }
        while let Some(next) = self.expected.front() {
            if let Some(pool) = next.upgrade() {
                return Some(Task::Bring(pool));
            }
            self.expected.pop_front();
        }
        None
    }

    pub(super) fn is_idle(&self) -> bool {
        self.steps_made == self.steps && self.expected.is_empty()
    }

    /// Returns and resets the counts of what was moved, or the error of a failed step.
    pub(super) fn account(&mut self) -> Result<Moved, AllocateError> {
        self.failed.take().map_or_else(|| Ok(core::mem::take(&mut self.moved)), Err)
    }

    /// Returns the pools that this set put to sleep, in the order in which they come back.
    pub(super) fn away(&self) -> Vec<Arc<dyn Sleepable>> {
        let mut found: Vec<_> = self.members.iter().filter(|member| member.is_ours).collect();
        found.sort_by_key(|member| core::cmp::Reverse((member.how.priority, member.touched)));
        found.into_iter().filter_map(|member| member.pool.upgrade()).collect()
    }
}

/// A pool to evict, and how it sleeps.
pub(super) type Victim = (Arc<dyn Sleepable>, Sleep);

/// Work for the thread of a set.
pub(super) enum Task {
    /// Follow the budgets; completes all steps up to this one.
    Step(u64),
    /// Wake an expected pool.
    Bring(Arc<dyn Sleepable>),
}
