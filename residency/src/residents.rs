//! Pools that make room for each other.
use crate::{available_host_memory, lock};
use core::{fmt, panic::AssertUnwindSafe};
use omniheap_core::{
    AllocateError, Backend, BackingStore, ErrorKind, HeapId, Manager, Pressure, Relief, Residence,
    Result, Sleep, Slept, UserPool, Wake,
};
use std::collections::VecDeque;
use std::panic::catch_unwind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};

/// Part of a limit that must stay free when a pool comes back: a budget that flutters by less moves nothing.
const MARGIN: u64 = 16;
/// Steps after which what was expected is so no more, unless it is said again.
const PATIENCE: u64 = 2;

/// How a pool makes room: start from [`Resident::to`].
#[derive(Clone, Debug)]
pub struct Resident {
    store: Arc<dyn BackingStore>,
    priority: i32,
    when_full: WhenFull,
}

/// What becomes of a pool that is held and for which no room can be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenFull {
    /// It stays asleep, and the hold fails.
    #[default]
    Fail,
    /// It gets the device memory that is left, and host memory for the rest, as far as the host has it ([`Wake::host_mapped`]).
    HostMapped,
}

impl Resident {
    /// The pool's bytes wait in this store. Its priority is zero, and where the device is full it stays asleep.
    pub fn to(store: Arc<dyn BackingStore>) -> Self {
        Self { store, priority: 0, when_full: WhenFull::Fail }
    }

    /// Sets what a hold does where the others cannot make room.
    #[must_use]
    pub const fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Pools with a lower priority make room for this one, and with the same one those that were not used for a longer time.
    #[must_use]
    pub const fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }
}

/// What a set moved since this was asked for the last time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// Pools that fell asleep.
    pub slept: u64,
    /// Pools that woke up.
    pub woken: u64,
    /// Bytes that were returned to the driver.
    pub returned: u64,
}

/// A set of pools of one manager that may need more memory together than there is.
///
/// When memory is short, pools of the set fall asleep before a request fails: those of the lowest priority first, and of these the one that
/// was not [touched](Self::touch) for the longest time. [`step`](Self::step) does so too when the budget shrinks, and wakes pools when there is
/// room again. A pool that is [held](Self::hold), or that asks for memory itself, stays awake; so does every pool of a higher priority than
/// the one that asks. Requests from outside the set come before all pools in it.
///
/// Requests from a pool that sleeps, and accesses to what is in it, fail with `Asleep`: [`hold`](Self::hold) what is about to be used, and
/// [`expect`](Self::expect) what comes after it. A frame that must not wait asks with [`hold_if_awake`](Self::hold_if_awake), and does without what is
/// not there yet. A thread of the set moves what is expected and what steps ask for.
///
/// The unit is a pool: put into one pool what is used together.
///
/// ```
/// use omniheap_core::{Limits, Manager, PoolConfig, Request};
/// use omniheap_host::Host;
/// use omniheap_residency::{HostStore, Resident, Residents};
/// use std::sync::Arc;
///
/// let manager = Manager::new(Host::new());
/// let heap = manager.caps().heap_ids().find(|(_, heap)| heap.page.is_some()).expect("it has pages").0;
/// manager.set_budget(heap, Limits::hard(64 << 20))?;
/// let residents = Residents::of(&manager);
/// let layers = [0, 1, 2].map(|_| Arc::new(manager.create_pool(heap, PoolConfig::new().sleepable()).unwrap()));
/// layers.iter().try_for_each(|layer| residents.add(layer, Resident::to(HostStore::new())))?;
///
/// // Three times 30 MiB do not fit into 64: the layer that was not used for the longest time makes room.
/// for layer in &layers {
///     let _held = residents.hold(layer)?;
///     std::mem::forget(layer.allocate(&Request::new(30 << 20))?);
/// }
/// assert_eq!(layers.each_ref().map(|layer| layer.residence().asleep), [true, false, false]);
/// let _held = residents.hold(&layers[0])?;
/// assert_eq!(layers.each_ref().map(|layer| layer.residence().asleep), [false, true, false]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Residents<B: Backend> {
    shared: Arc<Shared<B>>,
    /// Does what is due, once something is.
    worker: Mutex<Option<JoinHandle<()>>>,
}

impl<B: Backend> Drop for Residents<B> {
    fn drop(&mut self) {
        lock(&self.shared.state).is_closing = true;
        self.shared.changed.notify_all();
        let worker = self.worker.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let _ = worker.map(JoinHandle::join);
    }
}

struct Shared<B: Backend> {
    manager: Manager<B>,
    state: Mutex<State<B>>,
    /// A pool has fallen asleep or did not, something is due or done, or the set is dropped.
    changed: Condvar,
}

struct State<B: Backend> {
    members: Vec<Member<B>>,
    /// Counts touches.
    clock: u64,
    /// Pools that are needed soon, the next one first; one that is on its way is still in here.
    expected: VecDeque<Weak<UserPool<B>>>,
    /// Steps that were asked for, and that were made.
    steps: u64,
    steps_made: u64,
    moved: Moved,
    /// Why a step failed, until somebody hears of it.
    failed: Option<AllocateError>,
    is_closing: bool,
}

struct Member<B: Backend> {
    pool: Weak<UserPool<B>>,
    how: Resident,
    /// When it was touched last.
    touched: u64,
    holds: u64,
    /// The step in which it was said that it is needed soon, unless it was held since.
    expected: Option<u64>,
    /// Whether a thread puts it to sleep now.
    is_leaving: bool,
    /// Whether this set put it to sleep, so that it may wake it.
    is_ours: bool,
}

impl<B: Backend> fmt::Debug for Residents<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Residents")
            .field("pools", &lock(&self.shared.state).members.len())
            .finish_non_exhaustive()
    }
}

/// A pool that stays awake until this is dropped.
#[must_use = "the pool may fall asleep as soon as this is dropped"]
pub struct Held<B: Backend> {
    shared: Arc<Shared<B>>,
    pool: Arc<UserPool<B>>,
}

impl<B: Backend> fmt::Debug for Held<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("pool", &self.pool).finish_non_exhaustive()
    }
}

impl<B: Backend> Drop for Held<B> {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        if let Some(member) = state.of(&self.pool) {
            member.holds -= 1;
        }
    }
}

/// For whom room is made.
struct Asker<B: Backend> {
    heap: HeapId,
    /// Pools above it stay awake.
    priority: i32,
    /// Stays awake.
    pool: Weak<UserPool<B>>,
    need: Need,
}

/// When bytes are needed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Now,
    /// What is expected as well stays awake.
    Soon,
}

impl<B: Backend> State<B> {
    fn of(&mut self, pool: &Arc<UserPool<B>>) -> Option<&mut Member<B>> {
        self.members
            .iter_mut()
            .find(|member| core::ptr::eq(member.pool.as_ptr(), &raw const **pool))
    }

    fn touch(&mut self, pool: &Arc<UserPool<B>>) -> Option<&mut Member<B>> {
        self.clock += 1;
        let now = self.clock;
        let member = self.of(pool)?;
        member.touched = now;
        Some(member)
    }

    /// Takes the pool that makes room next for a request, if one may, with how it sleeps; not those that were tried.
    fn victim(&mut self, asker: &Asker<B>, tried: &[Weak<UserPool<B>>]) -> Option<Victim<B>> {
        let steps = self.steps;
        let is_expected = |said: u64| steps - said < PATIENCE;
        let may = |member: &&mut Member<B>| {
            let is = |other: &Weak<UserPool<B>>| other.ptr_eq(&member.pool);
            member.holds == 0
                && !member.is_leaving
                && (asker.need == Need::Now || !member.expected.is_some_and(is_expected))
                && member.how.priority <= asker.priority
                && !tried.iter().chain([&asker.pool]).any(is)
                && member.pool.upgrade().is_some_and(|pool| pool.heap() == asker.heap)
        };
        let found = self.members.iter_mut().filter(may);
        let next = found.min_by_key(|member| (member.how.priority, member.touched))?;
        let pool = next.pool.upgrade()?;
        next.is_leaving = true;
        Some((pool, Sleep::to(Arc::clone(&next.how.store))))
    }

    /// Notes that a pool is needed soon. Returns its member.
    fn expect(&mut self, pool: &Arc<UserPool<B>>) -> Option<&mut Member<B>> {
        let steps = self.steps;
        let member = self.touch(pool)?;
        member.expected = Some(steps);
        Some(member)
    }

    /// Has the thread bring a pool, after those that are on the list.
    fn enlist(&mut self, pool: &Arc<UserPool<B>>) {
        let pool = Arc::downgrade(pool);
        if !self.expected.iter().any(|listed| listed.ptr_eq(&pool)) {
            self.expected.push_back(pool);
        }
    }

    /// What is to be done next. Steps come first: who holds more than it may must not wait.
    fn due(&mut self) -> Option<Task<B>> {
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

    fn is_idle(&self) -> bool {
        self.steps_made == self.steps && self.expected.is_empty()
    }

    /// What was moved since this was called last, or why a step failed.
    fn account(&mut self) -> Result<Moved, AllocateError> {
        self.failed.take().map_or_else(|| Ok(core::mem::take(&mut self.moved)), Err)
    }

    /// Pools that this set put to sleep, in the order in which they come back.
    fn away(&self) -> Vec<Arc<UserPool<B>>> {
        let mut found: Vec<_> = self.members.iter().filter(|member| member.is_ours).collect();
        found.sort_by_key(|member| core::cmp::Reverse((member.how.priority, member.touched)));
        found.into_iter().filter_map(|member| member.pool.upgrade()).collect()
    }
}

/// A pool that makes room, and how.
type Victim<B> = (Arc<UserPool<B>>, Sleep);

/// A pool that is put to sleep. When this is dropped it is asleep or awake, even if its store panicked.
struct Leaving<'a, B: Backend> {
    shared: &'a Shared<B>,
    pool: &'a Arc<UserPool<B>>,
}

impl<B: Backend> Drop for Leaving<'_, B> {
    fn drop(&mut self) {
        if let Some(member) = lock(&self.shared.state).of(self.pool) {
            member.is_leaving = false;
        }
        self.shared.changed.notify_all();
    }
}

/// What the thread of a set does.
enum Task<B: Backend> {
    /// Follows the budgets, for all steps up to this one.
    Step(u64),
    /// Wakes a pool that is needed soon.
    Bring(Arc<UserPool<B>>),
}

impl<B: Backend> Shared<B> {
    /// Puts pools to sleep until so many bytes went back to the driver, or none is left. Returns whether one fell asleep.
    fn make_room(&self, asker: &Asker<B>, wanted: u64) -> bool {
        let (mut returned, mut tried, mut has_slept) = (0, Vec::new(), false);
        while returned < wanted {
            let victim = lock(&self.state).victim(asker, &tried);
            let Some((pool, sleep)) = victim else { break };
            if let Some(slept) = self.put_to_sleep(&pool, &sleep) {
                has_slept = true;
                returned += slept.returned;
            }
            tried.push(Arc::downgrade(&pool));
        }
        has_slept
    }

    /// Waits until no thread puts a pool to sleep any more.
    fn wait_for_leaving<'a>(
        &self,
        mut state: MutexGuard<'a, State<B>>,
        pool: &Arc<UserPool<B>>,
    ) -> MutexGuard<'a, State<B>> {
        while state.of(pool).is_some_and(|member| member.is_leaving) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Wakes a pool, for which others make room.
    fn bring(&self, pool: &Arc<UserPool<B>>, need: Need) -> Result<(), AllocateError> {
        let mut state = self.wait_for_leaving(lock(&self.state), pool);
        let Resident { priority, when_full, .. } = state.of(pool).ok_or(ErrorKind::Stale)?.how;
        drop(state);
        let asker = Asker { heap: pool.heap(), priority, pool: Arc::downgrade(pool), need };
        loop {
            let woken = self.wake(pool, Wake::all()).map(drop);
            if !woken.as_ref().is_err_and(|error| error.kind().is_out_of_memory()) {
                return woken;
            }
            if self.make_room(&asker, pool.residence().stored) {
                continue;
            }
            return match (when_full, need) {
                (WhenFull::HostMapped, Need::Now) => self.wake(pool, with_host_memory()).map(drop),
                _ => woken,
            };
        }
    }

    /// Has a pool that nobody holds sleep and wake up, so that device memory takes the place of host memory at its addresses.
    fn bring_home(&self, pool: &Arc<UserPool<B>>) -> Result<(), AllocateError> {
        let mut state = lock(&self.state);
        let Some(member) = state.of(pool).filter(|one| one.holds == 0 && !one.is_leaving) else {
            return Ok(());
        };
        member.is_leaving = true;
        let sleep = Sleep::to(Arc::clone(&member.how.store));
        drop(state);
        match self.put_to_sleep(pool, &sleep) {
            Some(_) => self.wake(pool, with_host_memory()),
            None => Ok(()),
        }
    }

    /// Puts a pool to sleep that is leaving; nothing where it stays awake, or was asleep already.
    fn put_to_sleep(&self, pool: &Arc<UserPool<B>>, sleep: &Sleep) -> Option<Slept> {
        let leaving = Leaving { shared: self, pool };
        let slept = pool.sleep(sleep);
        let mut state = lock(&self.state);
        if let Ok(slept) = &slept {
            state.moved.slept += 1;
            state.moved.returned += slept.returned;
        }
        if let Some(member) = state.of(pool) {
            member.is_ours |= slept.is_ok();
            member.expected = member.expected.filter(|_| slept.is_err());
        }
        drop(state);
        drop(leaving);
        match slept {
            Ok(slept) => Some(slept),
            Err(error) if error.kind() == ErrorKind::AlreadyAsleep => None,
            Err(error) => {
                // Another one may be able to.
                tracing::debug!(%error, "a pool stays awake");
                None
            }
        }
    }

    /// Wakes a pool, unless it is awake.
    fn wake(&self, pool: &Arc<UserPool<B>>, how: Wake) -> Result<(), AllocateError> {
        let woken = match pool.wake(&how) {
            Err(error) if error.kind() == ErrorKind::AlreadyAwake => 0,
            woken => woken.map(|()| 1)?,
        };
        let mut state = lock(&self.state);
        state.moved.woken += woken;
        if let Some(member) = state.of(pool) {
            member.is_ours = false;
        }
        Ok(())
    }

    /// Does what is due until the set is dropped.
    fn work(&self) {
        let mut state = lock(&self.state);
        while !state.is_closing {
            state = match state.due() {
                Some(task) => {
                    drop(state);
                    self.perform(task);
                    lock(&self.state)
                }
                None => {
                    self.changed.notify_all(); // Pools that were dropped are expected no more.
                    self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
                }
            }
        }
    }

    fn perform(&self, task: Task<B>) {
        match task {
            Task::Step(step) => {
                let followed = unless_it_panics(|| self.follow_budgets());
                let mut state = lock(&self.state);
                state.steps_made = step;
                state.failed = followed.err().or(state.failed.take());
            }
            Task::Bring(pool) => {
                let brought = unless_it_panics(|| self.bring(&pool, Need::Soon));
                if let Err(error) = brought {
                    tracing::debug!(%error, "a pool that is expected stays asleep");
                }
                let brought = Arc::downgrade(&pool);
                drop(pool); // Perhaps the last to have it: who waits finds it gone.
                lock(&self.state).expected.retain(|listed| !listed.ptr_eq(&brought));
            }
        }
        self.changed.notify_all();
    }

    /// Makes room for a request.
    fn relieve(&self, pressure: &Pressure) -> Relief {
        let is_asking =
            |member: &&Member<B>| member.pool.upgrade().is_some_and(|it| it.is_asking(pressure));
        let state = lock(&self.state);
        let asks = state.members.iter().find(is_asking);
        let (priority, pool) = asks
            .map_or((i32::MAX, Weak::new()), |member| (member.how.priority, member.pool.clone()));
        drop(state);
        let asker = Asker { heap: pressure.heap, priority, pool, need: Need::Now };
        match self.make_room(&asker, pressure.wanted) {
            false => Relief::Nothing,
            true => Relief::Freed,
        }
    }

    /// Puts pools to sleep and wakes pools, as the budgets of all heaps are now.
    fn follow_budgets(&self) -> Result<(), AllocateError> {
        let mut heaps: Vec<_> = lock(&self.state).members.iter().filter_map(heap_of).collect();
        heaps.sort_unstable_by_key(|heap| heap.0);
        heaps.dedup();
        heaps.into_iter().try_for_each(|heap| self.follow_budget(heap))
    }

    fn follow_budget(&self, heap: HeapId) -> Result<(), AllocateError> {
        let (over, room) = self.over_and_room(heap)?;
        if over > 0 {
            let nobody = Asker { heap, priority: i32::MAX, pool: Weak::new(), need: Need::Now };
            self.make_room(&nobody, over);
            return Ok(());
        }
        let (mut left, mut is_full) = (room, false);
        let away = lock(&self.state).away();
        for pool in away.iter().filter(|pool| pool.heap() == heap) {
            let Residence { asleep, stored: need, .. } = pool.residence();
            // Smaller ones behind one that does not fit would come back before it for ever.
            is_full |= need > left;
            if asleep && is_full {
                continue;
            }
            // One that is awake was woken by the program, and is the program's from now on.
            match self.wake(pool, Wake::all()) {
                Ok(()) => left -= need.max(pool.reserved()).min(left),
                Err(error) if error.kind().is_out_of_memory() => is_full = true,
                Err(error) => return Err(error),
            }
        }
        for pool in self.members_in(heap) {
            let need = pool.residence().host_mapped;
            if (1..=left).contains(&need) {
                self.bring_home(&pool)?;
                left -= need;
            }
        }
        Ok(())
    }

    fn members_in(&self, heap: HeapId) -> Vec<Arc<UserPool<B>>> {
        let state = lock(&self.state);
        let pools = state.members.iter().filter_map(|member| member.pool.upgrade());
        pools.filter(|pool| pool.heap() == heap).collect()
    }

    /// Bytes held above the limits of a heap, and bytes that may be held more.
    fn over_and_room(&self, heap: HeapId) -> Result<(u64, u64)> {
        let held = self.manager.heap_use(heap)?;
        let own = (held.soft_limit.min(held.hard_limit), held.reserved);
        let driver = held.driver.map(|driver| (driver.budget, driver.used));
        let limits = [Some(own), driver].into_iter().flatten();
        let over = |(limit, used): (u64, u64)| used.saturating_sub(limit);
        let room = |(limit, used): (u64, u64)| (limit - limit / MARGIN).saturating_sub(used);
        Ok((limits.clone().map(over).max().unwrap_or(0), limits.map(room).min().unwrap_or(0)))
    }
}

impl<B: Backend + 'static> Residents<B> {
    /// An empty set of pools of a manager.
    pub fn of(manager: &Manager<B>) -> Self {
        let state = Mutex::new(State {
            members: Vec::new(),
            clock: 0,
            expected: VecDeque::new(),
            steps: 0,
            steps_made: 0,
            moved: Moved::default(),
            failed: None,
            is_closing: false,
        });
        let shared = Arc::new(Shared { manager: manager.clone(), state, changed: Condvar::new() });
        let known = Arc::downgrade(&shared);
        manager.on_pressure(move |pressure| {
            known.upgrade().map_or(Relief::Nothing, |shared| shared.relieve(pressure))
        });
        Self { shared, worker: Mutex::new(None) }
    }

    /// Adds a [sleepable](omniheap_core::PoolConfig::sleepable) pool, which counts as touched; a pool that is in the set makes room as is said
    /// now. It leaves the set when it is dropped.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a pool that was not made sleepable: it could never make room.
    pub fn add(&self, pool: &Arc<UserPool<B>>, how: Resident) -> Result<()> {
        if !pool.is_sleepable() {
            let why = "the pool was not made to sleep; set `PoolConfig::sleepable`";
            return Err(ErrorKind::Unsupported.because(why));
        }
        let mut state = lock(&self.shared.state);
        state.members.retain(|member| member.pool.strong_count() > 0);
        if let Some(member) = state.touch(pool) {
            member.how = how;
            return Ok(());
        }
        let touched = state.clock;
        let pool = Arc::downgrade(pool);
        state.members.push(Member {
            pool,
            how,
            touched,
            holds: 0,
            expected: None,
            is_leaving: false,
            is_ours: false,
        });
        Ok(())
    }

    /// Notes that a pool was used now: of those with its priority it makes room last and comes back first.
    pub fn touch(&self, pool: &Arc<UserPool<B>>) {
        lock(&self.shared.state).touch(pool);
    }

    /// Wakes a pool if it is asleep, and keeps it awake until what is returned is dropped. Counts as a touch.
    ///
    /// Pools that have no higher priority make room, where they are not held themselves. Nobody waits for them: two threads that
    /// hold what the other one needs both hear that memory is short.
    ///
    /// # Errors
    ///
    /// `Stale` for a pool that is not in the set; out of memory where the others cannot make room; what the stores and the driver say. The
    /// pool is then asleep and has all its bytes.
    pub fn hold(&self, pool: &Arc<UserPool<B>>) -> Result<Held<B>, AllocateError> {
        let mut state = lock(&self.shared.state);
        let member = state.touch(pool).ok_or(ErrorKind::Stale)?;
        // From now on nobody puts it to sleep, but a thread may have begun.
        member.holds += 1;
        member.expected = None;
        drop(state);
        let held = Held { shared: Arc::clone(&self.shared), pool: Arc::clone(pool) };
        self.shared.bring(pool, Need::Now).map(|()| held)
    }

    /// Keeps a pool awake that is awake, as [`hold`](Self::hold) does. One that is not is expected, and nothing is returned: do without it, and ask again
    /// in the next frame. Waits neither for the device nor for a copy.
    ///
    /// Either way the pool is [expected](Self::expect) to be needed in the next frame too, so that it makes no room for others that
    /// are asked for in this way.
    ///
    /// # Errors
    ///
    /// `Stale` for a pool that is not in the set.
    pub fn hold_if_awake(&self, pool: &Arc<UserPool<B>>) -> Result<Option<Held<B>>> {
        let mut state = lock(&self.shared.state);
        let member = state.expect(pool).ok_or(ErrorKind::Stale)?;
        let is_leaving = member.is_leaving;
        // From now on nobody puts it to sleep, but a thread may have begun.
        member.holds += 1;
        drop(state);
        let held = Held { shared: Arc::clone(&self.shared), pool: Arc::clone(pool) };
        if !is_leaving && !pool.residence().asleep {
            return Ok(Some(held));
        }
        drop(held);
        lock(&self.shared.state).enlist(pool);
        self.attend();
        Ok(None)
    }

    /// Says that pools are needed soon, in this order: a thread of the set wakes them, so that [`hold`](Self::hold) finds them awake. Counts as a
    /// touch.
    ///
    /// Pools that are not held, not expected and have no higher priority make room. Where these are not enough the pool stays asleep until it is
    /// held: what is needed now comes before what is needed soon. A pool is expected until it is held, or to the second [step](Self::step) from now. Pools
    /// that are not in the set are passed over.
    pub fn expect<'a>(&self, pools: impl IntoIterator<Item = &'a Arc<UserPool<B>>>) {
        let mut state = lock(&self.shared.state);
        for pool in pools {
            if state.expect(pool).is_some() {
                state.enlist(pool);
            }
        }
        drop(state);
        self.attend();
    }

    /// Has the thread of the set look what is due. Where the system starts no thread, this one does it.
    fn attend(&self) {
        let mut worker = lock(&self.worker);
        if worker.is_none() {
            let shared = Arc::clone(&self.shared);
            let named = thread::Builder::new().name("omniheap residents".into());
            *worker = named.spawn(move || shared.work()).ok();
        }
        let is_here = worker.is_none();
        drop(worker);
        self.shared.changed.notify_all();
        // Its own function, so that the lock is not held meanwhile.
        let due = || lock(&self.shared.state).due();
        while is_here && let Some(task) = due() {
            self.shared.perform(task);
        }
    }

    /// Follows the budgets: pools fall asleep where more is held than the soft limit or the driver's budget, and pools that the set had put
    /// to sleep come back, the last touched first, where a sixteenth of the limit stays free. Then pools with host memory at their addresses that
    /// are not held get device memory in its place, where there is as much: they sleep and wake up. Call it now and then, once a frame say,
    /// after [`Manager::step`], which reads the driver's budget.
    ///
    /// It waits for none of this: a thread of the set begins now. Returns what the set moved since the last call.
    ///
    /// # Errors
    ///
    /// What the stores and the driver said when a pool woke up since the last call; it is asleep and has all its bytes. Not that memory is short.
    /// `Driver` where a store panicked on the set's thread.
    pub fn step(&self) -> Result<Moved, AllocateError> {
        lock(&self.shared.state).steps += 1;
        self.attend();
        lock(&self.shared.state).account()
    }

    /// Waits until nothing is due: what was expected is awake, or there is no room for it, and the budgets were followed. Returns what
    /// the set moved since this or [`step`](Self::step) was called last.
    ///
    /// # Errors
    ///
    /// As for [`step`](Self::step).
    pub fn settle(&self) -> Result<Moved, AllocateError> {
        let mut state = lock(&self.shared.state);
        while !state.is_idle() {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.account()
    }
}

/// Has a store that panics count as one that fails, so that the thread goes on and nobody waits for it in vain.
fn unless_it_panics(work: impl FnOnce() -> Result<(), AllocateError>) -> Result<(), AllocateError> {
    let failed = |_| Err(ErrorKind::Driver.because("a backing store panicked").into());
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(failed)
}

/// A wake that takes as much host memory as the process may have.
fn with_host_memory() -> Wake {
    Wake::all().host_mapped(available_host_memory().unwrap_or(u64::MAX))
}

fn heap_of<B: Backend>(member: &Member<B>) -> Option<HeapId> {
    member.pool.upgrade().map(|pool| pool.heap())
}
