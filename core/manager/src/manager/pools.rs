//! The pools of a manager: one of each heap, made at first use, and those that users make.
#![forbid(unsafe_code)]
use super::{AllocateError, Allocation, GiveBack, Manager, Pressure, ladder};
use crate::lane::{Ask, FastPathMiss, Lane, MakeStrategy, PoolConfig, StrategyKind, WaitMode};
use crate::pool::Pool;
use crate::sleep::{Residence, Sleep, SleepError, Slept, Wake};
use crate::{Align, Backend, Class, ErrorKind, HeapId, Request, Result, Sharing, Span};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{fmt, ptr};
use omniheap_strategy::Strategy;
use std::sync::OnceLock;

impl<B: Backend> Manager<B> {
    /// The default pool of a heap, made at first use. Where another thread makes it meanwhile, that one may have all of its minimum.
    pub(super) fn pool(&self, heap: HeapId) -> Result<&Arc<Pool<B>>> {
        let slot = self.inner.pools.get(usize::from(heap.0)).ok_or(ErrorKind::NoSuchHeap)?;
        if let Some(pool) = slot.get() {
            return Ok(pool);
        }
        let config = self.inner.config.pool_for(self.caps(), heap);
        let made = self.make_pool(heap, config, None).map(Arc::new);
        slot.get().map_or_else(|| made.map(|made| slot.get_or_init(|| made)), Ok)
    }

    /// A pool with its minimum.
    fn make_pool(
        &self,
        heap: HeapId,
        config: PoolConfig,
        make: Option<MakeStrategy>,
    ) -> Result<Pool<B>> {
        let device = Arc::clone(&self.inner.device);
        let names = Arc::clone(&self.inner.names);
        let (unit, watch) = (self.inner.config.unit, self.inner.watch.clone());
        let pool = Pool::new(device, heap, config, make, unit, names, watch)?;
        pool.prime()?;
        Ok(pool)
    }

    /// Every pool that exists.
    pub(super) fn all_pools(&self) -> Vec<Arc<Pool<B>>> {
        let mut pools: Vec<_> =
            self.inner.pools.iter().filter_map(OnceLock::get).cloned().collect();
        pools.extend(self.inner.user_pools.lock().iter().cloned());
        pools
    }

    /// Makes a pool of your own.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`, `InvalidConfig`, `ExceedsLimit`; when the pool has a minimum, what the driver says.
    pub fn create_pool(&self, heap: HeapId, config: PoolConfig) -> Result<UserPool<B>> {
        let config = PoolConfig { is_own: true, ..config };
        Ok(self.register_pool(self.make_pool(heap, config, None)?))
    }

    /// Makes a pool that a strategy of your own divides.
    ///
    /// `make` is called once for each lane, with the distance that the strategy must keep between spans of different
    /// [`Class`](crate::Class). The pool sets `config.strategy` to [`StrategyKind::Custom`]. Allocations of such a pool are
    /// never moved, and guards behind them lie only in bytes that rounding leaves over.
    ///
    /// The pool checks each grant; see [`Strategy`] for what it checks and what it relies on.
    ///
    /// # Errors
    ///
    /// As for [`create_pool`](Self::create_pool), and what the strategy says of the pool's minimum. Requests fail with
    /// `BadStrategy` when the strategy breaks its contract.
    pub fn create_pool_with(
        &self,
        heap: HeapId,
        config: PoolConfig,
        make: impl Fn(Align) -> Box<dyn Strategy> + Send + Sync + 'static,
    ) -> Result<UserPool<B>> {
        let config = PoolConfig { strategy: StrategyKind::Custom, is_own: true, ..config };
        Ok(self.register_pool(self.make_pool(heap, config, Some(Box::new(make)))?))
    }

    fn register_pool(&self, pool: Pool<B>) -> UserPool<B> {
        let pool = Arc::new(pool);
        self.inner.user_pools.lock().push(Arc::clone(&pool));
        UserPool::new(self.clone(), pool)
    }

    /// Takes the bytes from `offset` on of a pool's first block.
    pub(super) fn take_span_in(
        &self,
        pool: &Arc<Pool<B>>,
        offset: u64,
        request: &Request<'_>,
    ) -> Result<Allocation<B>, AllocateError> {
        ladder::check(request)?;
        if request.layout.align > self.inner.device.heap(pool.shared.heap)?.align {
            return Err(ErrorKind::InvalidAlignment.into());
        }
        if !request.layout.align.divides(offset) {
            return Err(ErrorKind::Misaligned.into());
        }
        let is_plain = request.sharing == Sharing::Shared && request.class == Class::Linear;
        let lane = pool.only_lane().filter(|_| is_plain).ok_or(ErrorKind::Unsupported)?;
        lane.enter(request.timeline)?;
        let span = Span { offset, size: request.layout.size };
        let take = || lane.take_span(span, request);
        let taken = match take() {
            Err(FastPathMiss::Refused(ErrorKind::Busy)) => {
                lane.retire(WaitMode::Poll)?;
                take()
            }
            Err(FastPathMiss::InUse(last)) => {
                lane.poll_use(last, WaitMode::Poll)?;
                take()
            }
            taken => taken,
        };
        let slot = taken.map_err(|miss| match miss {
            FastPathMiss::Refused(kind) => kind,
            FastPathMiss::InUse(_) | FastPathMiss::WouldBreak => ErrorKind::Busy,
        })?;
        self.hand_out(pool, (lane, slot), request, None, None)
    }

    /// Checks a request for what a pool holds, and rounds it.
    fn ask_held(&self, pool: &Pool<B>, request: &Request<'_>) -> Result<Ask, AllocateError> {
        ladder::check(request)?;
        if request.layout.align > self.inner.device.heap(pool.shared.heap)?.align {
            return Err(ErrorKind::InvalidAlignment.into());
        }
        if request.sharing == Sharing::Dedicated {
            return Err(ErrorKind::Unsupported.into());
        }
        Ok(pool.ask_with_room(request)?)
    }

    /// Takes the first hole of a pool in the order of its blocks and offsets for which `look` returns something.
    fn allocate_lowest_in<R>(
        &self,
        pool: &Arc<Pool<B>>,
        request: &Request<'_>,
        look: impl Fn(&B::Block, Span) -> Option<R>,
    ) -> Result<(Allocation<B>, R), AllocateError> {
        let ask = self.ask_held(pool, request)?;
        let mut last = ErrorKind::OutOfDeviceMemory;
        for lane in pool.lanes() {
            lane.enter(request.timeline)?;
            match lane.find_lowest_hole(ask, request, &look) {
                Ok((slot, seen)) => {
                    return Ok((self.hand_out(pool, (&lane, slot), request, None, None)?, seen));
                }
                Err(kind) => last = kind,
            }
        }
        Err(last.into())
    }

    /// Takes the lowest hole between two allocations of a pool's block.
    fn allocate_between_in<R>(
        &self,
        pool: &Arc<Pool<B>>,
        request: &Request<'_>,
        (after, before): (Option<&Allocation<B>>, &Allocation<B>),
        look: impl Fn(&B::Block, Span) -> R,
    ) -> Result<(Allocation<B>, R), AllocateError> {
        let ask = self.ask_held(pool, request)?;
        let is_home =
            |of: &Allocation<B>, lane: &Arc<Lane<B>>| ptr::eq(of.lane(), &raw const **lane);
        let lane = pool.lanes().into_iter().find(|lane| is_home(before, lane));
        let lane = lane.ok_or(ErrorKind::Foreign)?;
        if after.is_some_and(|after| !is_home(after, &lane)) {
            return Err(ErrorKind::Foreign.into());
        }
        lane.enter(request.timeline)?;
        let slots = (after.map(Allocation::slot), before.slot());
        let (slot, seen) = lane.find_hole_between(ask, slots, look)?;
        lane.set_properties(slot, request)?;
        Ok((self.hand_out(pool, (&lane, slot), request, None, None)?, seen))
    }

    /// Ends a pool. Its blocks go back to the driver.
    ///
    /// # Errors
    ///
    /// `Busy` with the pool when something in it is live or waits for a timeline, or when the device cannot be waited for now;
    /// `Foreign` for another manager's; what the driver says when it is asked to wait.
    pub fn destroy_pool(&self, pool: UserPool<B>) -> Result<(), GiveBack<UserPool<B>>> {
        let is_ours = |known: &Arc<Pool<B>>| Arc::ptr_eq(known, pool.pool());
        if !self.inner.user_pools.lock().iter().any(is_ours) {
            return Err(GiveBack { given: pool, error: ErrorKind::Foreign.into() });
        }
        pool.pool().zero_kept();
        match Self::check_idle(pool.pool()).and_then(|()| Self::settle(pool.pool())) {
            Ok(()) => {
                drop(pool);
                Ok(())
            }
            Err(error) => Err(GiveBack { given: pool, error }),
        }
    }

    /// Ends a pool whose user is gone; one in which something is live, or that work may still use, waits for
    /// [`end_dropped_pools`](Self::end_dropped_pools).
    ///
    /// Returns the bytes that go back to the driver.
    pub(super) fn end_pool(&self, pool: &Arc<Pool<B>>) -> u64 {
        let is_busy = Self::check_idle(pool).is_err_and(|error| error.kind() == ErrorKind::Busy);
        if is_busy || Self::settle(pool).is_err() {
            return 0;
        }
        let bytes = pool.shared.reserved();
        let mut pools = self.inner.user_pools.lock();
        let at = pools.iter().position(|known| Arc::ptr_eq(known, pool));
        let removed = at.map(|at| pools.swap_remove(at));
        // Ending the last one calls the driver, which must not happen under a lock.
        drop(pools);
        drop(removed);
        bytes
    }

    /// Ends pools that were dropped while something in them was live; returns the bytes that go back to the driver.
    pub(super) fn end_dropped_pools(&self, of: impl Fn(HeapId) -> bool) -> u64 {
        // Only the list has such a pool, so no thread allocates from it meanwhile.
        let is_dropped =
            |pool: &&Arc<Pool<B>>| Arc::strong_count(pool) == 1 && of(pool.shared.heap);
        let dropped: Vec<_> =
            self.inner.user_pools.lock().iter().filter(is_dropped).cloned().collect();
        dropped.iter().map(|pool| self.end_pool(pool)).sum()
    }

    /// Waits until nothing on the device uses the pool's memory: what was freed in the order of a timeline may be in use still.
    fn settle(pool: &Pool<B>) -> Result<()> {
        let mut lanes = pool.lanes();
        lanes.retain(|lane| !lane.is_bare());
        if lanes.is_empty() {
            return Ok(());
        }
        let idle = pool.shared.device.settle();
        idle.or_else(|error| {
            let is_out_of_use = lanes.iter().all(|lane| lane.is_out_of_use(WaitMode::Poll));
            if is_out_of_use { Ok(()) } else { Err(error) }
        })
    }

    /// Retires what it can; `Busy` when something in the pool is live or waits for a timeline.
    pub(super) fn check_idle(pool: &Pool<B>) -> Result<()> {
        for lane in pool.lanes() {
            lane.retire(WaitMode::Poll)?;
            if !lane.is_idle() {
                return Err(ErrorKind::Busy.into());
            }
        }
        Ok(())
    }
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
        if let Some(held) = self.allocate_at_once(request, &look) {
            return Ok(held);
        }
        let allocation = self.allocate_slowly(request)?;
        let binding = allocation.binding();
        let seen = look(binding.block(), binding.span());
        drop(binding);
        Ok((allocation, seen))
    }

    /// Allocates as [`allocate_and_look`](Self::allocate_and_look) does, if a hole in the calling thread's lane can serve at once.
    /// Otherwise returns `None`, without trying or explaining anything else.
    ///
    /// Callers that are refused often use this. They know that the pool has nothing else to give, for example a pool with a single
    /// lane at its maximum.
    ///
    /// ```
    /// use omniheap_core::{Manager, PoolConfig, Request};
    /// use omniheap_host::Host;
    ///
    /// let manager = Manager::new(Host::new());
    /// let heap = manager.explain(&Request::new(1))?.placement.heaps.as_slice()[0];
    /// let config = PoolConfig::new().lanes(1).block(1 << 20).minimum(1 << 20).maximum(1 << 20);
    /// let pool = manager.create_pool(heap, config)?;
    /// let all = pool.allocate_at_once(&Request::new(1 << 20), |_, span| span.offset);
    /// assert_eq!(all.as_ref().map(|(_, offset)| *offset), Some(0));
    /// assert!(pool.allocate_at_once(&Request::new(1), |_, _| ()).is_none());
    /// # Ok::<(), omniheap_core::Error>(())
    /// ```
    #[inline]
    pub fn allocate_at_once<R>(
        &self,
        request: &Request<'_>,
        look: impl Fn(&B::Block, Span) -> R,
    ) -> Option<(Allocation<B>, R)> {
        if !self.manager.is_fast_in(&self.pool, request) {
            return None;
        }
        let ask = self.pool.ask(request).ok()?;
        let (owned, seen) = self.pool.known_lane()?.allocate_and_look(ask, look)?;
        Some((Allocation::new(owned, ask.size), seen))
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

    /// Takes the first hole that fits, by the number of blocks and then by offset, and for which `look` returns something. It is shown
    /// the block and the bytes that the allocation would have, under a lock: it must be short, and must not call the manager. A new
    /// block has the number of one that was given back, if there is one. The bytes may move when this has returned, unless the
    /// request or the device forbids it.
    ///
    /// For programs that pack what they hold. It takes no memory from the driver, and looks at every span before the hole: the
    /// other calls find a hole at once.
    ///
    /// # Errors
    ///
    /// `OutOfDeviceMemory`, `Fragmented`, `ExceedsLimit` when no such hole fits; `Unsupported` for dedicated requests, and where the
    /// pool has another strategy than the general one; `Asleep` where the pool sleeps, also if it wakes on request. Otherwise as for
    /// [`allocate`](Self::allocate). A failed call changes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use omniheap_core::{Manager, PoolConfig, Request};
    /// use omniheap_host::Host;
    ///
    /// let manager = Manager::new(Host::new());
    /// let heap = manager.explain(&Request::new(1))?.placement.heaps.as_slice()[0];
    /// let pool = manager.create_pool(heap, PoolConfig::new().lanes(1).block(1 << 20))?;
    /// let page = Request::new(4096);
    /// let mut held = (0..4).map(|_| pool.allocate(&page)).collect::<Result<Vec<_>, _>>()?;
    /// drop(held.remove(0));
    /// drop(held.remove(1));
    /// let (_lowest, offset) = pool.allocate_lowest(&page, |_, span| Some(span.offset))?;
    /// assert_eq!(offset, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allocate_lowest<R>(
        &self,
        request: &Request<'_>,
        look: impl Fn(&B::Block, Span) -> Option<R>,
    ) -> Result<(Allocation<B>, R), AllocateError> {
        self.manager.allocate_lowest_in(&self.pool, request, look)
    }

    /// Takes the lowest hole that fits in the block of an allocation, before it. With `after`, an earlier allocation of that block, begins
    /// behind that. `look` is shown the place, as by [`allocate_lowest`](Self::allocate_lowest).
    ///
    /// For programs that close the holes of a block from its end. Looks at every span between the two that lies before the hole, and
    /// at no other: a program that knows that nothing before `after` fits looks at no span twice.
    ///
    /// # Errors
    ///
    /// As for [`allocate_lowest`](Self::allocate_lowest); `Foreign` when the allocations are not of this pool, or not beside each
    /// other; `Stale` when they are not of one block.
    ///
    /// # Examples
    ///
    /// ```
    /// use omniheap_core::{Manager, PoolConfig, Request};
    /// use omniheap_host::Host;
    ///
    /// let manager = Manager::new(Host::new());
    /// let heap = manager.explain(&Request::new(1))?.placement.heaps.as_slice()[0];
    /// let pool = manager.create_pool(heap, PoolConfig::new().lanes(1).block(1 << 20))?;
    /// let page = Request::new(4096);
    /// let mut held = (0..4).map(|_| pool.allocate(&page)).collect::<Result<Vec<_>, _>>()?;
    /// drop(held.remove(1));
    /// let (copy, offset) = pool.allocate_between(&page, None, &held[2], |_, span| span.offset)?;
    /// assert_eq!(offset, 4096);
    /// assert!(pool.allocate_between(&page, Some(&copy), &held[2], |_, _| ()).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allocate_between<R>(
        &self,
        request: &Request<'_>,
        after: Option<&Allocation<B>>,
        before: &Allocation<B>,
        look: impl Fn(&B::Block, Span) -> R,
    ) -> Result<(Allocation<B>, R), AllocateError> {
        self.manager.allocate_between_in(&self.pool, request, (after, before), look)
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

    /// Returns true if a pressure callback was called for a request from this pool: it must not be put to sleep for
    /// that.
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

    /// Gives back addresses of the pool's pages where none of them has memory any more, for a pool that was [trimmed](Self::trim) and
    /// is not wanted for now. The next request reserves others; one that another thread makes meanwhile may fail with `Stale`.
    ///
    /// ```
    /// use omniheap_core::{Manager, PoolConfig, Request};
    /// use omniheap_host::Host;
    ///
    /// let manager = Manager::new(Host::new());
    /// let heap = manager.caps().heap_ids().find(|(_, heap)| heap.page.is_some()).expect("it has pages").0;
    /// let pool = manager.create_pool(heap, PoolConfig::new().sleepable())?;
    /// drop(pool.allocate(&Request::new(1 << 20))?);
    /// pool.give_up_addresses();
    /// assert_eq!(manager.report().blocks, 1, "it holds memory");
    /// pool.trim()?;
    /// pool.give_up_addresses();
    /// assert_eq!(manager.report().blocks, 0);
    /// assert!(pool.allocate(&Request::new(1 << 20)).is_ok());
    /// # Ok::<(), omniheap_core::Error>(())
    /// ```
    pub fn give_up_addresses(&self) {
        self.pool.lanes().iter().for_each(|lane| lane.give_up_addresses());
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
            let _ = self.manager.trim_for(&self.pool, WaitMode::Poll);
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
    ptr::from_ref(pool).addr()
}
