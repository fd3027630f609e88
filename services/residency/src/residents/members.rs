//! Bookkeeping of a set: its pools, which one to evict next, and the work queue of its thread. Makes no call to the device.
#![forbid(unsafe_code)]
use super::{Moved, Resident};
use omniheap_core::{AllocateError, HeapId, Sleep, Sleepable};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};
use std::thread::ThreadId;

/// Number of steps after which an expectation lapses.
const PATIENCE: u64 = 2;

/// Members at which a set first looks for those whose pools are gone.
const FEW: usize = 64;

/// Address of a pool. It is no other pool's while a member is known by it.
type Address = usize;

/// Priority and last touch: the lowest leaves first and comes back last. No two members have the same touch.
type Rank = (i32, u64);

/// The set behind its lock.
pub(super) struct State {
    members: HashMap<Address, Member>,
    /// Members in order: those that may be awake, and those that this set put to sleep.
    orders: [BTreeMap<Rank, Address>; 2],
    /// Members at which those whose pools are gone are dropped next.
    sweep_at: usize,
    /// Heaps that members are, or were, in.
    pub(super) heaps: Vec<HeapId>,
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
    pub(super) heap: HeapId,
    pub(super) how: Resident,
    /// Clock of its last touch.
    touched: u64,
    pub(super) holds: u64,
    /// The step in which it was expected last; none once it was held.
    pub(super) expected: Option<u64>,
    /// True while a thread is putting it to sleep.
    pub(super) is_leaving: bool,
    /// True if this set put it to sleep, so that it may wake it.
    is_ours: bool,
    /// True while it is in [`State::expected`].
    is_queued: bool,
}

impl Member {
    const fn rank(&self) -> Rank {
        (self.how.priority, self.touched)
    }

    /// Returns the index of the order that it is in.
    fn order(&self) -> usize {
        usize::from(self.is_ours)
    }
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
    pub(super) fn new() -> Self {
        Self {
            members: HashMap::new(),
            orders: [BTreeMap::new(), BTreeMap::new()],
            sweep_at: FEW,
            heaps: Vec::new(),
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

    /// Adds a pool, or changes how one of the set makes room. Now and then drops members whose pools are gone.
    pub(super) fn add(&mut self, pool: &Arc<dyn Sleepable>, how: Resident) {
        if self.touch(pool).is_some() {
            self.reorder(pool, |member| member.how = how);
            return;
        }
        if self.members.len() >= self.sweep_at {
            self.sweep();
        }
        let heap = pool.heap();
        if !self.heaps.contains(&heap) {
            self.heaps.push(heap);
        }
        let member = Member {
            pool: Arc::downgrade(pool),
            heap,
            how,
            touched: self.clock,
            holds: 0,
            expected: None,
            is_leaving: false,
            is_ours: false,
            is_queued: false,
        };
        self.orders[member.order()].insert(member.rank(), address(pool));
        self.members.insert(address(pool), member);
    }

    fn sweep(&mut self) {
        self.members.retain(|_, member| member.pool.strong_count() > 0);
        let members = &self.members;
        self.orders.iter_mut().for_each(|order| order.retain(|_, at| members.contains_key(at)));
        self.sweep_at = FEW.max(2 * self.members.len());
    }

    pub(super) fn members(&self) -> impl ExactSizeIterator<Item = &Member> {
        self.members.values()
    }

    pub(super) fn of(&mut self, pool: &Arc<dyn Sleepable>) -> Option<&mut Member> {
        self.members.get_mut(&address(pool))
    }

    /// Changes what a member is ordered by.
    fn reorder(
        &mut self,
        pool: &Arc<dyn Sleepable>,
        change: impl FnOnce(&mut Member),
    ) -> Option<&mut Member> {
        let member = self.members.get_mut(&address(pool))?;
        self.orders[member.order()].remove(&member.rank());
        change(member);
        self.orders[member.order()].insert(member.rank(), address(pool));
        Some(member)
    }

    pub(super) fn touch(&mut self, pool: &Arc<dyn Sleepable>) -> Option<&mut Member> {
        self.clock += 1;
        let now = self.clock;
        self.reorder(pool, |member| member.touched = now)
    }

    /// Notes that this set put a pool to sleep.
    pub(super) fn note_asleep(&mut self, pool: &Arc<dyn Sleepable>) {
        self.reorder(pool, |member| (member.is_ours, member.expected) = (true, None));
    }

    /// Notes that a pool is awake.
    pub(super) fn note_awake(&mut self, pool: &Arc<dyn Sleepable>) {
        self.reorder(pool, |member| member.is_ours = false);
    }

    /// Picks the pool to evict next, none of `tried`, and marks it as leaving. Pools that this set put to sleep come last, and not for prefetches: the program
    /// may have woken some.
    pub(super) fn victim(&mut self, asker: &Asker, tried: &HashSet<Address>) -> Option<Victim> {
        let steps = self.steps;
        let is_expected = |since: u64| steps - since < PATIENCE;
        let own = asker.pool.as_ref().map(|pool| pool.as_ptr().cast::<()>().addr());
        let may = |at: &&Address| {
            let member = &self.members[*at];
            member.holds == 0
                && !member.is_leaving
                && (asker.need == Need::Now || !member.expected.is_some_and(is_expected))
                && member.heap == asker.heap
                && own != Some(**at)
                && !tried.contains(*at)
                && member.pool.strong_count() > 0
        };
        let orders = match asker.need {
            Need::Now => &self.orders[..],
            Need::Soon => &self.orders[..1],
        };
        let ranks = ..=(asker.priority, u64::MAX);
        let at = *orders.iter().flat_map(|order| order.range(ranks).map(|(_, at)| at)).find(may)?;
        let next = self.members.get_mut(&at)?;
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
        if let Some(member) = self.of(pool).filter(|member| !member.is_queued) {
            member.is_queued = true;
            let pool = member.pool.clone();
            self.expected.push_back(pool);
        }
    }

    /// Takes a pool out of the queue, at whose head it is.
    pub(super) fn dequeue(&mut self, at: Address) {
        let is_it = |queued: &Weak<dyn Sleepable>| queued.as_ptr().cast::<()>().addr() == at;
        if let Some(place) = self.expected.iter().position(is_it) {
            self.expected.remove(place);
        }
        if let Some(member) = self.members.get_mut(&at) {
            member.is_queued = false;
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
        let away = self.orders[1].values().rev();
        away.filter_map(|at| self.members[at].pool.upgrade()).collect()
    }
}

/// Returns what a member is known by.
pub(super) fn address(pool: &Arc<dyn Sleepable>) -> Address {
    Arc::as_ptr(pool).cast::<()>().addr()
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
