//! Pools that make room for each other.
mod members;
mod mover;

use self::members::{Need, State};
use self::mover::Mover;
use crate::lock;
use core::fmt;
use omniheap_core::{
    AllocateError, Backend, BackingStore, ErrorKind, Manager, Relief, Result, Sleepable,
};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Way in which a pool makes room: start from [`Resident::to`].
#[derive(Clone, Debug)]
pub struct Resident {
    store: Arc<dyn BackingStore>,
    priority: i32,
    when_full: WhenFull,
}

/// Fate of a pool that is held and for which no room can be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenFull {
    /// The pool stays asleep, and the hold fails.
    #[default]
    Fail,
    /// The pool gets the device memory that is left, and host memory for the rest, as far as the host has it
    /// ([`omniheap_core::Wake::host_mapped`]).
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

/// Counts of what a set moved since the previous [`step`](Residents::step) or [`settle`](Residents::settle).
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
/// Pools of the set fall asleep before a request fails for want of memory: those of the lowest priority first, and of
/// these the one that was not [touched](Self::touch) for the longest time. [`step`](Self::step) does so too when the budget shrinks, and wakes
/// pools when there is room again. A pool that is [held](Self::hold), or that asks for memory itself, stays awake; so does every pool of a
/// higher priority than the one that asks. Requests from outside the set come before all pools in it.
///
/// Requests from a pool that sleeps, and accesses to what is in it, fail with `Asleep`: [`hold`](Self::hold) what is about to be used, and
/// [`expect`](Self::expect) what comes after it. A frame that must not wait calls [`hold_if_awake`](Self::hold_if_awake) and draws without pools that are
/// still asleep. A background thread of the set prefetches expected pools and follows the budgets.
///
/// The unit is a pool: put into one pool what is used together. What an engine owns itself, such as its images, joins the set by the trait
/// [`Sleepable`]: all that is said of pools here is true of it.
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
    mover: Arc<Mover<B>>,
    /// The background thread; started by the first call that needs it.
    worker: Mutex<Option<JoinHandle<()>>>,
}

impl<B: Backend> Drop for Residents<B> {
    fn drop(&mut self) {
        lock(&self.mover.state).is_closing = true;
        self.mover.changed.notify_all();
        let worker = self.worker.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let _ = worker.map(JoinHandle::join);
    }
}

impl<B: Backend> fmt::Debug for Residents<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Residents")
            .field("pools", &lock(&self.mover.state).members().len())
            .finish_non_exhaustive()
    }
}

/// A pool that stays awake until this is dropped.
#[must_use = "the pool may fall asleep as soon as this is dropped"]
pub struct Held<B: Backend> {
    mover: Arc<Mover<B>>,
    pool: Arc<dyn Sleepable>,
}

impl<B: Backend> fmt::Debug for Held<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("pool", &self.pool).finish_non_exhaustive()
    }
}

impl<B: Backend> Drop for Held<B> {
    fn drop(&mut self) {
        self.pool.used();
        let mut state = lock(&self.mover.state);
        if let Some(member) = state.of(&self.pool) {
            member.holds -= 1;
        }
    }
}

impl<B: Backend + 'static> Residents<B> {
    /// An empty set of pools of a manager.
    pub fn of(manager: &Manager<B>) -> Self {
        let state = Mutex::new(State::new());
        let mover = Arc::new(Mover { manager: manager.clone(), state, changed: Condvar::new() });
        let known = Arc::downgrade(&mover);
        manager.on_pressure(move |pressure| {
            known.upgrade().map_or(Relief::Nothing, |mover| mover.relieve(pressure))
        });
        Self { mover, worker: Mutex::new(None) }
    }

    /// Adds a [sleepable](omniheap_core::PoolConfig::sleepable) pool, which counts as touched; a pool that is in the set makes room as is said
    /// now. It leaves the set when it is dropped.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a pool that was not made sleepable: it could never make room.
    pub fn add<S: Sleepable + 'static>(&self, pool: &Arc<S>, how: Resident) -> Result<()> {
        let pool = erased(pool);
        if !pool.is_sleepable() {
            let why = "the pool was not made to sleep; set `PoolConfig::sleepable`";
            return Err(ErrorKind::Unsupported.because(why));
        }
        lock(&self.mover.state).add(&pool, how);
        Ok(())
    }

    /// Notes that a pool was used now: of those with its priority it makes room last and comes back first.
    pub fn touch<S: Sleepable + 'static>(&self, pool: &Arc<S>) {
        lock(&self.mover.state).touch(&erased(pool));
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
    pub fn hold<S: Sleepable + 'static>(&self, pool: &Arc<S>) -> Result<Held<B>, AllocateError> {
        let pool = erased(pool);
        let mut state = lock(&self.mover.state);
        let member = state.touch(&pool).ok_or(ErrorKind::Stale)?;
        // From here on no thread starts to put it to sleep, but one may have started before.
        member.holds += 1;
        member.expected = None;
        drop(state);
        let held = Held { mover: Arc::clone(&self.mover), pool };
        self.mover.bring(&held.pool, Need::Now).map(|()| held)
    }

    /// Holds a pool if it is awake; never waits for the device or for a copy. If the pool is asleep, prefetches it and returns `None`: draw without
    /// it, and call again in the next frame.
    ///
    /// Either way the pool counts as [expected](Self::expect), so that other expected pools do not evict it before the next frame.
    ///
    /// # Errors
    ///
    /// `Stale` for a pool that is not in the set.
    pub fn hold_if_awake<S: Sleepable + 'static>(&self, pool: &Arc<S>) -> Result<Option<Held<B>>> {
        let pool = erased(pool);
        let mut state = lock(&self.mover.state);
        let member = state.expect(&pool).ok_or(ErrorKind::Stale)?;
        let is_leaving = member.is_leaving;
        // From here on no thread starts to put it to sleep, but one may have started before.
        member.holds += 1;
        drop(state);
        let held = Held { mover: Arc::clone(&self.mover), pool: Arc::clone(&pool) };
        if !is_leaving && !pool.residence().asleep {
            return Ok(Some(held));
        }
        drop(held);
        lock(&self.mover.state).enqueue(&pool);
        self.attend();
        Ok(None)
    }

    /// Says that pools are needed soon, in this order: a thread of the set wakes them, so that [`hold`](Self::hold) finds them awake. Counts as a
    /// touch.
    ///
    /// Pools that are not held, not expected and have no higher priority make room. Where these are not enough the pool stays asleep until it is
    /// held: what is needed now comes before what is needed soon. An expectation ends when the pool is held, or with the second [step](Self::step) after it.
    /// Pools that are not in the set are ignored.
    pub fn expect<'a, S: Sleepable + 'static>(&self, pools: impl IntoIterator<Item = &'a Arc<S>>) {
        let mut state = lock(&self.mover.state);
        for pool in pools.into_iter().map(erased) {
            if state.expect(&pool).is_some() {
                state.enqueue(&pool);
            }
        }
        drop(state);
        self.attend();
    }

    /// Wakes the background thread, and starts it first if needed. If the system starts no thread, the caller does the work.
    fn attend(&self) {
        let mut worker = lock(&self.worker);
        if worker.is_none() {
            let mover = Arc::clone(&self.mover);
            let named = thread::Builder::new().name("omniheap residents".into());
            *worker = named.spawn(move || mover.work()).ok();
        }
        let is_here = worker.is_none();
        drop(worker);
        self.mover.changed.notify_all();
        // A closure, so that the lock is released before the task runs: tasks take it too.
        let next_task = || lock(&self.mover.state).next_task();
        while is_here && let Some(task) = next_task() {
            self.mover.perform(task);
        }
    }

    /// Follows the budgets: pools fall asleep where more is held than the soft limit or the driver's budget, and pools that the set had put
    /// to sleep come back, the last touched first, where a sixteenth of the limit stays free. Then pools with host memory at their addresses that
    /// are not held get device memory in its place, where there is as much: they sleep and wake up. Call it now and then, once a frame say,
    /// after [`Manager::step`], which reads the driver's budget.
    ///
    /// Does not wait: the background thread does the work. Returns what the set moved since the last call.
    ///
    /// # Errors
    ///
    /// The error of a store or of the driver, if waking a pool failed since the last call; that pool is asleep and has all its bytes, and the
    /// others were seen to. A full device is no error here; `OutOfHostMemory` is one. `Driver` if a store panicked on the background
    /// thread.
    pub fn step(&self) -> Result<Moved, AllocateError> {
        lock(&self.mover.state).steps += 1;
        self.attend();
        lock(&self.mover.state).account()
    }

    /// Waits until the background thread is idle: expected pools are awake or have no room, and the budgets are met. Returns what
    /// the set moved since this or [`step`](Self::step) was called last.
    ///
    /// # Errors
    ///
    /// As for [`step`](Self::step).
    pub fn settle(&self) -> Result<Moved, AllocateError> {
        let mut state = lock(&self.mover.state);
        while !state.is_idle() {
            state = self.mover.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.account()
    }
}

fn erased<S: Sleepable + 'static>(pool: &Arc<S>) -> Arc<dyn Sleepable> {
    Arc::<S>::clone(pool)
}
