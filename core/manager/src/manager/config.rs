//! How a manager is set up, and the pools that users make.
use super::{AllocateError, Allocation, Manager};
use crate::defrag::Budget;
use crate::device::DriverLimit;
use crate::event::Observer;
use crate::lane::PoolConfig;
use crate::pool::Pool;
use crate::sanitizer::Sanitize;
use crate::sleep::{Residence, Sleep, SleepError, Slept, Wake};
use crate::{
    Align, Backend, Caps, DefaultPolicy, ErrorKind, Heap, HeapId, HeapKind, Mapper, Policy,
    Request, Result, Span,
};
use alloc::sync::Arc;
use core::fmt;

/// How a manager is set up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ManagerConfig {
    /// Where requests go.
    pub policy: Arc<dyn Policy>,
    /// Every span starts at, and is a multiple of, this.
    pub unit: Align,
    /// The default pools.
    pub pool: PoolConfig,
    /// When live data is moved together.
    pub defragmentation: Defragmentation,
    /// How pools of pages make room.
    pub remapping: Remapping,
    /// Whether the manager grows beyond the driver's budget.
    pub driver_limit: DriverLimit,
    /// The observer of what the manager does; none by default.
    pub observer: Option<Arc<dyn Observer>>,
    /// Watches the bytes of all allocations; nothing does by default.
    pub sanitizer: Option<Arc<dyn Sanitize>>,
}

impl Default for ManagerConfig {
    fn default() -> Self {
        let pool = PoolConfig::new().paged();
        let (policy, unit) = (Arc::new(DefaultPolicy), Align::of(256));
        Self {
            policy,
            unit,
            pool,
            defragmentation: Defragmentation::default(),
            remapping: Remapping::default(),
            driver_limit: DriverLimit::default(),
            observer: None,
            sanitizer: None,
        }
    }
}

impl ManagerConfig {
    /// The same settings with pools that grow by blocks, also where pages could be mapped.
    #[must_use]
    pub fn plain(mut self) -> Self {
        self.pool.paged = false;
        self
    }

    /// The same settings, within the driver's budget: see [`DriverLimit::Honoured`].
    #[must_use]
    pub fn within_driver_budget(mut self) -> Self {
        self.driver_limit = DriverLimit::Honoured;
        self
    }

    /// The same settings with an observer.
    #[must_use]
    pub fn observed(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// The default pool's settings for one heap: pages only for device memory.
    pub(super) fn pool_for(&self, caps: &Caps, heap: HeapId) -> PoolConfig {
        let device = caps.heap(heap).is_some_and(|heap| heap.kind == HeapKind::Device);
        PoolConfig { paged: self.pool.paged && device, ..self.pool }
    }
}

/// When live data is moved together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Defragmentation {
    /// Only where the caller says so: [`Manager::defragment`] and [`Manager::begin_defragment`].
    Off,
    /// Also before a request would fail.
    #[default]
    OnRequest,
    /// Also a little with every [`Manager::step`].
    Background(Background),
}

/// How a pool of pages makes room when it is short of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remapping {
    /// [`WhereCheaper`](Self::WhereCheaper) on heaps whose pages a queue maps, [`Always`](Self::Always) on all others: on the
    /// former, places depend on timing.
    #[default]
    ByDevice,
    /// Free pages are always mapped elsewhere: the same calls give the same places on every device.
    Always,
    /// Live data is copied together where earlier measurements say that this is cheaper, so places depend on timing.
    WhereCheaper,
}

impl Remapping {
    /// Whether copying is weighed against mapping on this heap.
    pub(super) const fn weighs(self, heap: &Heap) -> bool {
        match self {
            Self::ByDevice => matches!(heap.mapper, Mapper::Queue),
            Self::Always => false,
            Self::WhereCheaper => true,
        }
    }
}

/// The budget and the thresholds of background defragmentation.
///
/// It starts above one threshold and stops below another, so that a workload at the edge does not toggle it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Background {
    /// The budget of one step.
    pub budget: Budget,
    /// Starts when more than this percentage of the reserved memory is free.
    pub begin_above: u8,
    /// Stops when less than this percentage is free.
    pub end_below: u8,
}

impl Background {
    /// Steps of this budget, between a quarter and a tenth of free memory.
    #[must_use]
    pub const fn new(budget: Budget) -> Self {
        Self { budget, begin_above: 25, end_below: 10 }
    }

    /// Begins above `begin` percent of free memory and ends below `end`.
    #[must_use]
    pub const fn between(mut self, end: u8, begin: u8) -> Self {
        (self.begin_above, self.end_below) = (begin, end);
        self
    }
}

/// Memory is short: what a pressure callback is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// The heap that is short.
    pub heap: HeapId,
    /// Bytes that are asked for.
    pub wanted: u64,
    /// Bytes held from the heap.
    pub reserved: u64,
    /// The pool that asks, as a number; none where no request does.
    pub(super) asker: Option<usize>,
}

/// What a pressure callback did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relief {
    /// It freed something: worth one more try.
    Freed,
    /// Nothing changed.
    Nothing,
}

/// A pool that a user made.
///
/// Dropping it ends the pool: its memory goes back to the driver, once the device is idle. A pool in which something is live
/// stays until [`Manager::trim`] finds it empty; [`Manager::destroy_pool`] refuses to end such a pool instead.
pub struct UserPool<B: Backend> {
    manager: Manager<B>,
    pool: Arc<Pool<B>>,
}

impl<B: Backend> fmt::Debug for UserPool<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserPool").field("reserved", &self.reserved()).finish_non_exhaustive()
    }
}

impl<B: Backend> Drop for UserPool<B> {
    fn drop(&mut self) {
        self.manager.end_pool(&self.pool);
    }
}

impl<B: Backend> UserPool<B> {
    pub(super) const fn new(manager: Manager<B>, pool: Arc<Pool<B>>) -> Self {
        Self { manager, pool }
    }

    pub(super) const fn pool(&self) -> &Arc<Pool<B>> {
        &self.pool
    }

    /// Allocates from this pool alone.
    ///
    /// # Errors
    ///
    /// As for [`Manager::allocate`]; never from another pool. `Asleep` where the pool sleeps and does not
    /// [wake on request](PoolConfig::wakes_on_request).
    #[inline]
    pub fn allocate(&self, request: &Request<'_>) -> Result<Allocation<B>, AllocateError> {
        if self.manager.is_fast_in(&self.pool, request)
            && let Some(allocation) = Manager::allocate_held(&self.pool, request)
        {
            return Ok(allocation);
        }
        self.allocate_slowly(request)
    }

    /// As [`allocate`](Self::allocate), and shows the block and the span of the bytes to `look`. It costs less than a
    /// [`binding`](Allocation::binding) afterwards.
    ///
    /// The bytes may move when it has returned, unless the request or the device forbids it. `look` may run under a lock: it
    /// must be short, and must not call the manager.
    ///
    /// # Errors
    ///
    /// As for [`allocate`](Self::allocate).
    #[inline]
    pub fn allocate_and_look<R>(
        &self,
        request: &Request<'_>,
        look: impl Fn(&B::Block, Span) -> R,
    ) -> Result<(Allocation<B>, R), AllocateError> {
        if self.manager.is_fast_in(&self.pool, request)
            && let Ok(ask) = self.pool.ask(request)
            && let Some(lane) = self.pool.known_lane()
            && let Some((owned, seen)) = lane.allocate_and_look(ask, &look)
        {
            return Ok((Allocation::new(owned, ask.size), seen));
        }
        let allocation = self.allocate_slowly(request)?;
        let binding = allocation.binding();
        let seen = look(binding.block(), binding.span());
        drop(binding);
        Ok((allocation, seen))
    }

    #[cold]
    fn allocate_slowly(&self, request: &Request<'_>) -> Result<Allocation<B>, AllocateError> {
        let allocate = || self.manager.allocate_in(&self.pool, request, None, None);
        let mut allocated = allocate();
        if self.pool.shared.config.wakes_on_request
            && allocated.as_ref().is_err_and(|error| error.kind() == ErrorKind::Asleep)
        {
            match self.wake(&Wake::all()) {
                // Another thread may have been first.
                Err(error) if error.kind() != ErrorKind::AlreadyAwake => return Err(error),
                _ => allocated = allocate(),
            }
        }
        allocated.inspect_err(|error| self.manager.failed(request, error))
    }

    /// Takes the bytes from `offset` on of the pool's first block, as many as the request's size.
    ///
    /// For programs that know where each allocation goes. The pool needs one lane, a minimum so that it has a block, and a
    /// strategy that takes spans ([`Strategy::as_take`](omniheap_strategy::Strategy::as_take)). The bytes are linear.
    ///
    /// # Errors
    ///
    /// `Busy` when a byte of the span is live, or may still be used by another timeline; `OutOfRange` when the span leaves the
    /// block; `Misaligned` when `offset` is not a multiple of the request's alignment; `Unsupported` for dedicated and tiled
    /// requests, and where the pool has several lanes or its strategy takes no spans; `Stale` when the pool has no block.
    /// Otherwise as for [`allocate`](Self::allocate). A failed call changes nothing.
    pub fn take_span(
        &self,
        offset: u64,
        request: &Request<'_>,
    ) -> Result<Allocation<B>, AllocateError> {
        self.manager.take_span_in(&self.pool, offset, request)
    }

    /// Returns whether nothing in the pool is live or waits for a timeline, after retiring what has finished.
    ///
    /// # Errors
    ///
    /// `DeviceLost`.
    pub fn is_idle(&self) -> Result<bool> {
        match Manager::check_idle(&self.pool) {
            Err(error) if error.kind() == ErrorKind::Busy => Ok(false),
            checked => checked.map(|()| true),
        }
    }

    /// The heap that the pool takes its memory from.
    #[must_use]
    pub fn heap(&self) -> HeapId {
        self.pool.shared.heap
    }

    /// Whether a pressure callback was called for a request from this pool: it must not be put to sleep for that.
    #[must_use]
    pub fn is_asking(&self, pressure: &Pressure) -> bool {
        pressure.asker == Some(number_of(&self.pool))
    }

    /// Bytes that the pool holds from the driver.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.pool.shared.reserved()
    }

    /// Gives empty blocks back, down to the pool's minimum; returns how many bytes.
    ///
    /// # Errors
    ///
    /// `DeviceLost`.
    pub fn trim(&self) -> Result<u64> {
        self.pool.trim(u64::MAX)
    }
}

/// Pools that sleep.
impl<B: Backend> UserPool<B> {
    /// Moves all bytes of the pool to a backing store and returns its memory to the driver. The allocations live on, and
    /// [`wake`](Self::wake) gives them their bytes back at the same addresses.
    ///
    /// Waits for the timelines that use the pool's allocations, and for no others. Copies what is live and no holes. While the
    /// pool is asleep, and from the start of this call, access to its allocations and requests fail with `Asleep`; frees work.
    /// Defragmentation and trims pass over it.
    ///
    /// # Errors
    ///
    /// `Busy` with [`SleepError::refused`] where allocations are pinned, dedicated, freed but still in use, or secret and the
    /// store takes no secrets; `AlreadyAsleep`; `Unsupported` for a pool that is not [sleepable](crate::PoolConfig::sleepable);
    /// what the store and the driver say. The pool is then awake and has all its bytes.
    pub fn sleep(&self, sleep: &Sleep) -> Result<Slept, SleepError> {
        self.pool.sleep(sleep, self.manager.mover()?)
    }

    /// Gives the allocations of a sleeping pool memory and their bytes, at the same addresses.
    ///
    /// # Errors
    ///
    /// `AlreadyAwake`; out of memory and `OverBudget` where the device has less than the pool needs, after empty memory of other pools was
    /// returned to the driver; what the store and the driver say. The pool is then asleep and has all its bytes: try again.
    pub fn wake(&self, wake: &Wake) -> Result<(), AllocateError> {
        let make_room = || {
            // The second try says whether it was enough.
            let _ = self.manager.trim_for(&self.pool);
        };
        Ok(self.pool.wake(wake, self.manager.mover()?, make_room)?)
    }

    /// Returns whether the pool was made [sleepable](PoolConfig::sleepable).
    #[must_use]
    pub fn is_sleepable(&self) -> bool {
        self.pool.shared.config.sleepable
    }

    /// Returns where the bytes of the pool are, without waiting for a sleep or wake under way.
    #[must_use]
    pub fn residence(&self) -> Residence {
        self.pool.residence()
    }
}

/// A number that no other living pool has.
pub(super) fn number_of<B: Backend>(pool: &Pool<B>) -> usize {
    core::ptr::from_ref(pool).addr()
}
