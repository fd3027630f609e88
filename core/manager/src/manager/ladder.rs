//! Slow path of a request that no held hole fits: it gets memory, or an error that says why not.
#![expect(unsafe_code, reason = "takes blocks that the caller made")]
use super::error::AllocateError;
use super::{Allocation, Manager, Relief};
use crate::event::{Event, Rung};
use crate::lane::{Ask, FastPathMiss, Lane, SlotId, WaitMode};
use crate::pool::Pool;
use crate::{
    Backend, Contents, ErrorKind, Grow, HeapId, HeapKind, Placement, Ranking, Registration,
    Request, Result, Sharing, TimelineId,
};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use omniheap_placement::not_registrable;

/// Number of requests that each rung served.
#[derive(Debug, Default)]
pub(super) struct Climbs([AtomicU64; Rung::ALL.len()]);

impl Climbs {
    pub(super) fn count(&self, rung: Rung) {
        self.0[rung as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn read(&self) -> [u64; Rung::ALL.len()] {
        core::array::from_fn(|at| self.0[at].load(Relaxed))
    }
}

/// A span without an owner, while a callback of the program runs. A callback that panics does not leak it.
struct Unclaimed<'a, B: Backend> {
    lane: &'a Lane<B>,
    slot: Option<SlotId>,
}

impl<B: Backend> Drop for Unclaimed<'_, B> {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        self.lane.free_unowned(slot);
    }
}

/// A span, and the lane that it lies in.
pub(super) type Taken<B> = (Arc<Lane<B>>, SlotId);

/// A span, and the rung that served it; none for a hole that was free.
pub(super) type Served<B> = (Option<Rung>, Taken<B>);

/// Number of times that a request climbs again after losing a race: a device this busy has nothing to spare.
const ROUNDS: u32 = 32;

impl<B: Backend> Manager<B> {
    /// Counts and tells that a rung served a request.
    pub(super) fn climbed(&self, rung: Rung, size: u64, timeline: Option<TimelineId>) {
        self.inner.climbs.count(rung);
        self.inner.device.tell(&Event::Climb { rung, size, timeline });
    }

    /// Tells that a request failed for want of memory.
    pub(super) fn failed(&self, request: &Request<'_>, error: &AllocateError) {
        if error.kind().is_out_of_memory() {
            let (size, timeline) = (request.layout.size, request.timeline);
            self.inner.device.tell(&Event::Fail { size, timeline });
        }
    }

    /// The whole way: policy, pools in its order, ladder in each.
    #[cold]
    pub(super) fn allocate_slowly(
        &self,
        request: &Request<'_>,
    ) -> Result<Allocation<B>, AllocateError> {
        check(request)?;
        let placement = match request.heap {
            Some(_) => None,
            None => {
                let decided = self.decide_and_watch(request);
                Some(decided.map_err(|error| self.refused(request, error))?)
            }
        };
        let heaps = placement.map_or_else(|| named(request), |placement| placement.heaps);
        let mut last = AllocateError::from(ErrorKind::NoSuchHeap);
        for (position, heap) in heaps.as_slice().iter().enumerate() {
            let counts_as = (position > 0).then_some(Rung::NextHeap);
            match self.allocate_in(self.pool(*heap)?, request, placement.as_ref(), counts_as) {
                Ok(allocation) => {
                    if position > 0 {
                        self.wish(&allocation, request, &heaps);
                    }
                    return Ok(allocation);
                }
                Err(error) if falls_back(error.kind()) => last = error,
                Err(error) => return Err(error),
            }
        }
        let spilled = self.spill(request, placement.as_ref(), last);
        spilled.inspect_err(|error| self.failed(request, error))
    }

    /// Allocates from one pool, for a request that `placement` was decided for, or that named its heap or pool. The request counts
    /// as served by `counts_as`, or by the rung that served it there.
    pub(super) fn allocate_in(
        &self,
        pool: &Arc<Pool<B>>,
        request: &Request<'_>,
        placement: Option<&Placement>,
        counts_as: Option<Rung>,
    ) -> Result<Allocation<B>, AllocateError> {
        check(request)?;
        let heap = self.inner.device.heap(pool.shared.heap)?;
        if request.layout.align > heap.align {
            return Err(ErrorKind::InvalidAlignment.into());
        }
        if request.layout.size > heap.size {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        let order = self.order_of(pool, request, placement)?;
        let mut ordered = *request;
        ordered.timeline = order;
        let ask = pool.ask_with_room(&ordered)?;
        let mut climbed = self.climb_with_properties(pool, ask, request);
        if let Ok((rung, (lane, slot))) = &mut climbed {
            *rung = counts_as.or(*rung);
            if let Some(rung) = *rung {
                self.climbed(rung, ask.size, ask.timeline);
            }
            if ask.timeline != request.timeline {
                lane.give_to_host(*slot, request.timeline)?;
            }
        }
        let (rung, (lane, slot)) =
            climbed.map_err(|error| self.explain_failure(pool, ask, error))?;
        self.hand_out(pool, (&lane, slot), request, placement, rung)
    }

    /// Makes a span that was just taken an allocation, and prepares its bytes.
    pub(super) fn hand_out(
        &self,
        pool: &Arc<Pool<B>>,
        (lane, slot): (&Arc<Lane<B>>, SlotId),
        request: &Request<'_>,
        placement: Option<&Placement>,
        rung: Option<Rung>,
    ) -> Result<Allocation<B>, AllocateError> {
        let (here, cause) = self.cause(pool, placement, rung);
        let owned = lane.claim(slot, request, here.as_ref(), cause);
        let allocation = Allocation::new(owned, request.layout.size);
        if request.contents == Contents::Zero {
            allocation.wipe()?;
        }
        allocation.begin_sanitized(request.contents)?;
        Ok(allocation)
    }

    /// Returns the timeline that orders a request's bytes: its own, or none where the host accesses the bytes directly, which
    /// no timeline orders.
    ///
    /// The host accesses what a request says it does, and staging memory that the caller named.
    pub(super) fn order_of(
        &self,
        pool: &Pool<B>,
        request: &Request<'_>,
        placement: Option<&Placement>,
    ) -> Result<Option<TimelineId>> {
        let heap = self.inner.device.heap(pool.shared.heap)?;
        let is_named = placement.is_none() && heap.kind == HeapKind::Staging;
        let is_mapped = (request.is_for_host() || is_named)
            && heap.host.is_visible()
            && self.backend().as_map().is_some();
        if request.timeline.is_none() || !is_mapped {
            return Ok(request.timeline);
        }
        // Refuses a timeline that the device does not know.
        pool.lane_for(request.timeline).map(|_| None)
    }

    /// Climbs the ladder, again while passes begin to copy what it finds for a secret, and notes what the request says.
    fn climb_with_properties(
        &self,
        pool: &Arc<Pool<B>>,
        ask: Ask,
        request: &Request<'_>,
    ) -> Result<Served<B>> {
        loop {
            let (rung, (lane, slot)) = self.climb_again(pool, ask, request)?;
            match lane.set_properties(slot, request) {
                Err(ErrorKind::Busy) => {}
                set => return Ok(set.map(|()| (rung, (lane, slot)))?),
            }
        }
    }

    /// Climbs the ladder, and again where another thread carried memory meanwhile and has set it down.
    fn climb_again(
        &self,
        pool: &Arc<Pool<B>>,
        ask: Ask,
        request: &Request<'_>,
    ) -> Result<Served<B>> {
        let in_flight = &self.inner.device.in_flight;
        let mut round = 0;
        loop {
            let watch = in_flight.watch();
            let climbed = self.climb(pool, ask, request);
            if round == ROUNDS
                || !climbed.as_ref().is_err_and(|error| error.kind().is_out_of_memory())
            {
                return climbed;
            }
            in_flight.wait();
            if !watch.has_seen() {
                return climbed;
            }
            round += 1;
        }
    }

    fn climb(&self, pool: &Arc<Pool<B>>, ask: Ask, request: &Request<'_>) -> Result<Served<B>> {
        let lane = pool.lane_for(ask.timeline)?;
        let mut climb = Climb { manager: self, pool, lane, ask, own: None };
        if request.sharing == Sharing::Dedicated {
            let size = self.own_size(pool, ask.layout.size, request)?;
            if request.grow == Grow::Never {
                // A block of its own is the driver's to give.
                return Err(ErrorKind::OutOfDeviceMemory.into());
            }
            let (heap, backend) = (pool.shared.heap, self.backend());
            let mut make = || match request.registration {
                Registration::Any => backend.allocate(heap, size),
                Registration::Needed => {
                    let export = backend.as_export().ok_or_else(not_registrable)?;
                    export.allocate_exportable(heap, size)
                }
            };
            climb.own = Some((size, &mut make));
            return climb.up(&Climb::DEDICATED);
        }
        match request.grow {
            Grow::Allowed => climb.up(&Climb::SHARED.map(|(_, step)| step)),
            Grow::Never => climb.up(&Climb::HELD),
        }
    }

    /// The bytes of a block for a request that does not share one.
    pub(super) fn own_size(&self, pool: &Pool<B>, size: u64, request: &Request<'_>) -> Result<u64> {
        if request.registration == Registration::Any {
            return pool.shared.growth.exact(size).ok_or(ErrorKind::ExceedsLimit.into());
        }
        let heap = self.inner.device.heap(pool.shared.heap)?;
        let granule = heap.registrable.ok_or_else(not_registrable)?;
        let size = granule.up(size).ok_or(ErrorKind::SizeOverflow)?;
        if size > heap.max_block { Err(ErrorKind::ExceedsLimit.into()) } else { Ok(size) }
    }

    /// Gives back what is empty above the soft limit, and asks for more to be freed.
    fn ease(&self, pool: &Pool<B>, wanted: u64) {
        let heap = pool.shared.heap;
        let above =
            self.inner.device.heap_use(heap).is_ok_and(|heap| heap.reserved > heap.soft_limit);
        if above {
            // A failure to give memory back is no reason to fail a request that was served.
            let _ = self.trim_some(u64::MAX, |_| true);
            self.relieve(heap, wanted, Some(pool));
        }
    }

    /// Returns empty memory to the driver: of all pools that share physical memory with the pool's heap, or a limit of the device.
    /// First retires bytes freed after points, once these have passed or `wait` waits for them. Returns the number of bytes.
    pub(super) fn trim_for(&self, pool: &Pool<B>, wait: WaitMode) -> Result<u64> {
        self.trim_if(pool, wait, |_| true)
    }

    /// As [`trim_for`](Self::trim_for), but a pool of pages keeps its own: it can use them as they are.
    pub(super) fn trim_beside(&self, pool: &Pool<B>, wait: WaitMode) -> Result<u64> {
        let is_paged = pool.shared.page().is_some();
        self.trim_if(pool, wait, |other| !is_paged || !Arc::ptr_eq(&other.shared, &pool.shared))
    }

    fn trim_if(
        &self,
        pool: &Pool<B>,
        wait: WaitMode,
        may: impl Fn(&Pool<B>) -> bool,
    ) -> Result<u64> {
        let (caps, own) = (self.caps(), pool.shared.heap);
        let physical = self.inner.device.heap(own)?.physical;
        let shares = |heap: HeapId| {
            let beside = caps.heap(heap).is_some_and(|about| about.physical == physical);
            beside || caps.is_device_memory(own) && caps.is_device_memory(heap)
        };
        let mut bytes = 0;
        for other in self.all_pools() {
            if shares(other.shared.heap) && may(&other) {
                bytes += trim_what_passed(&other, wait)?;
            }
        }
        Ok(bytes)
    }
}

/// Retires what was freed in a pool after points that have passed, or that `wait` can wait for. Then returns its empty memory.
fn trim_what_passed<B: Backend>(pool: &Pool<B>, wait: WaitMode) -> Result<u64> {
    let held = pool.shared.reserved();
    for lane in pool.lanes() {
        match lane.retire(wait) {
            // A timeline that cannot answer now keeps only the bytes that wait for it.
            Err(error) if error.kind() == ErrorKind::Busy => {}
            retired => drop(retired?),
        }
    }
    // Dedicated blocks go back when they are retired, and are never seen empty.
    let trimmed = pool.trim(u64::MAX)?;
    Ok(trimmed.max(held.saturating_sub(pool.shared.reserved())))
}

/// Asks the driver for a block.
pub(super) type Make<'a, B> = &'a mut dyn FnMut() -> Result<<B as Backend>::Block>;

/// One request on the ladder of one pool.
pub(super) struct Climb<'a, B: Backend> {
    pub(super) manager: &'a Manager<B>,
    pub(super) pool: &'a Arc<Pool<B>>,
    pub(super) lane: &'a Arc<Lane<B>>,
    pub(super) ask: Ask,
    /// Bytes of a request that gets a block of its own, and the call that asks the driver; `None` for others.
    pub(super) own: Option<(u64, Make<'a, B>)>,
}

/// A step of the ladder: it serves the request, or the next one is tried. A span comes with the rung that it counts as.
type Step<'a, B> = fn(&mut Climb<'a, B>) -> Result<Option<Served<B>>>;

impl<'a, B: Backend> Climb<'a, B> {
    /// The ladder of a request that shares blocks, in the words of docs/out-of-memory.md.
    const SHARED: [(&'static str, Step<'a, B>); 11] = [
        ("the driver, for a thread that has lived on memory of others", Self::stop_borrowing),
        (
            "held holes: of the thread, then of others, with memory whose work has finished",
            Self::find_held,
        ),
        ("memory that other timelines still use, in their order", Self::take_in_order),
        ("the driver", Self::grow),
        ("a hole that another thread has made meanwhile", Self::find_again),
        ("empty blocks of other pools, given back", Self::trim_others),
        ("a wait for work that still uses free memory", Self::wait),
        ("what is empty after that, given back", Self::trim_what_passed),
        ("your pressure callback", Self::ask_program),
        ("defragmentation", Self::defragment),
        ("the pool's own free pages, given back for pages of another size", Self::trim_own_pages),
    ];

    /// The ladder of a request for which the driver must not be asked.
    const HELD: [Step<'a, B>; 2] = [Self::find_held, Self::find_usable];

    /// The ladder of a request that gets a block of its own.
    pub(super) const DEDICATED: [Step<'a, B>; 4] =
        [Self::take_block, Self::trim_for_block, Self::wait_for_block, Self::ask_program_for_block];

    /// Climbs until a rung serves. Where none does, the driver's refusal is the answer.
    pub(super) fn up(&mut self, steps: &[Step<'a, B>]) -> Result<Served<B>> {
        let mut refused = None;
        for step in steps {
            match self.try_step(*step, refused.is_none()) {
                Ok(Some(served)) => return Ok(served),
                Err(error) if error.kind().is_out_of_memory() && refused.is_none() => {
                    let size = self.ask.size;
                    let span = tracing::debug_span!(target: "omniheap", "omniheap.ladder", size);
                    refused = Some((error, span.entered()));
                }
                // A device that is busy, with a capture say, keeps one rung from being used; the next ones may do.
                Err(error) if error.kind() == ErrorKind::Busy && refused.is_some() => {}
                Err(error) => return Err(error),
                Ok(None) => {}
            }
        }
        Err(refused.map_or_else(|| ErrorKind::OutOfDeviceMemory.into(), |(error, _)| error))
    }

    /// Tries a rung. The first refusal reads the limits of the process anew, and one that has risen is tried again.
    fn try_step(&mut self, step: Step<'a, B>, is_first: bool) -> Result<Option<Served<B>>> {
        let tried = step(self);
        let is_refused = tried.as_ref().is_err_and(|error| error.kind().is_out_of_memory());
        if is_first && is_refused && self.manager.inner.device.read_limits(self.pool.shared.heap) {
            return step(self);
        }
        tried
    }

    /// Asks the driver for a lane that lives on what others lend. Where it refuses, they go on lending.
    fn stop_borrowing(&mut self) -> Result<Option<Served<B>>> {
        if !self.lane.should_stop_borrowing(self.ask.layout.size, || self.pool.lanes()) {
            return Ok(None);
        }
        Ok(self.grow().unwrap_or(None))
    }

    /// A hole that is free, or that is found out to be: in the request's lane, then in others.
    fn find_held(&mut self) -> Result<Option<Served<B>>> {
        let (lane, ask) = (self.lane, self.ask);
        let mut miss = lane.find_hole(ask);
        if let Err(FastPathMiss::InUse(last)) = miss {
            lane.poll_use(last, WaitMode::Poll)?;
            miss = lane.find_hole(ask);
        }
        match miss {
            Ok(slot) => Ok(Some((None, (Arc::clone(lane), slot)))),
            Err(FastPathMiss::Refused(kind))
                if !kind.is_out_of_memory() && kind != ErrorKind::ExceedsLimit =>
            {
                Err(kind.into())
            }
            Err(FastPathMiss::Refused(_)) => self.search(WaitMode::Poll),
            Err(FastPathMiss::InUse(_)) => match self.take_in_order()? {
                None => self.search(WaitMode::Poll),
                taken => Ok(taken),
            },
            Err(FastPathMiss::WouldBreak) => Ok(None),
        }
    }

    /// Looks for a hole in everything that the pool holds.
    fn search(&mut self, wait: WaitMode) -> Result<Option<Served<B>>> {
        let (lane, ask, lanes) = (self.lane, self.ask, self.pool.lanes());
        let mut retired = 0;
        for each in &lanes {
            retired += each.retire(wait)?;
        }
        lane.poll_users(wait)?;
        if let Ok(slot) = lane.find_any_hole(ask) {
            let rung = (retired > 0).then_some(Rung::Retire);
            return Ok(Some((rung, (Arc::clone(lane), slot))));
        }
        for other in lanes.iter().filter(|other| !Arc::ptr_eq(other, lane)) {
            if wait == WaitMode::Poll && !other.lends_gladly() {
                continue;
            }
            other.poll_users(wait)?;
            if let Ok(slot) = other.find_any_hole(ask) {
                lane.count_borrowed();
                return Ok(Some((Some(Rung::Lend), (Arc::clone(other), slot))));
            }
        }
        Ok(None)
    }

    /// Takes a span from what was freed and may still be in use, where the pool would otherwise hold much more than was ever
    /// live: the request's timeline runs after those that use it. Nobody waits, and nothing is mapped.
    ///
    /// A device that cannot order its timelines now is no reason to fail: the pool grows then.
    fn take_in_order(&mut self) -> Result<Option<Served<B>>> {
        let (lane, ask) = (self.lane, self.ask);
        if ask.timeline.is_none() {
            return Ok(None);
        }
        let mut lanes = self.pool.lanes();
        if !lane.should_order(ask.layout.size, &lanes) {
            return Ok(None);
        }
        lanes.sort_by_key(|each| !Arc::ptr_eq(each, lane));
        for each in lanes {
            let mut taken = each.take_in_order(ask);
            if !matches!(taken, Ok(Some(_))) && each.retire_in_order() > 0 {
                taken = each.take_in_order(ask);
            }
            if let Ok(Some(slot)) = taken {
                return Ok(Some((Some(Rung::Order), (each, slot))));
            }
        }
        Ok(None)
    }

    /// Asks the driver.
    fn grow(&mut self) -> Result<Option<Served<B>>> {
        let (manager, pool, lane, ask) = (self.manager, self.pool, self.lane, self.ask);
        let grown = if pool.shared.page().is_some() {
            if let Some(taken) = manager.copy_instead(lane, ask)? {
                return Ok(Some((Some(Rung::Defragment), taken)));
            }
            lane.grow_paged(ask, &pool.lanes())
        } else {
            let grown = lane.grow(ask, u64::MAX, &pool.lanes());
            grown.and_then(|slot| slot.ok_or(ErrorKind::ExceedsLimit.into()))
        };
        let mut unclaimed = Unclaimed { lane, slot: Some(grown?) };
        manager.ease(pool, ask.size);
        let slot = unclaimed.slot.take().expect("taken just above");
        Ok(Some((Some(Rung::Driver), (Arc::clone(lane), slot))))
    }

    /// Looks for a hole that another thread made meanwhile.
    fn find_again(&mut self) -> Result<Option<Served<B>>> {
        let found = self.lane.find_any_hole(self.ask);
        Ok(found.ok().map(|slot| (None, (Arc::clone(self.lane), slot))))
    }

    /// A hole of the lane, or why there is none.
    fn find_usable(&mut self) -> Result<Option<Served<B>>> {
        let found = self.lane.find_any_hole(self.ask);
        Ok(found.map(|slot| Some((None, (Arc::clone(self.lane), slot))))?)
    }

    /// The lane's holes, then the driver, once more.
    pub(super) fn retry(&mut self) -> Result<Option<Served<B>>> {
        if let Some(found) = self.find_again()? {
            return Ok(Some(found));
        }
        served(self.grow())
    }

    /// Gives back what is empty, but for the pool's own pages, which it can use as they are.
    fn trim_others(&mut self) -> Result<Option<Served<B>>> {
        Ok(by(Rung::Trim, self.give_back_beside(WaitMode::Poll)?))
    }

    /// Does what [`trim_others`](Self::trim_others) does, and waits for points.
    fn trim_what_passed(&mut self) -> Result<Option<Served<B>>> {
        Ok(by(Rung::Wait, self.give_back_beside(WaitMode::Block)?))
    }

    fn give_back_beside(&mut self, wait: WaitMode) -> Result<Option<Served<B>>> {
        match self.manager.trim_beside(self.pool, wait)? {
            0 => Ok(None),
            _ => self.retry(),
        }
    }

    /// Waits for what may still be in use. Bytes that another thread frees meanwhile may join a hole that was waited for; then
    /// that hole waits for them too, and so does this request.
    fn wait(&mut self) -> Result<Option<Served<B>>> {
        let frees = |climb: &Self| climb.pool.lanes().iter().map(|lane| lane.clock()).sum::<u64>();
        let held = self.pool.shared.reserved();
        for _ in 0..ROUNDS {
            let before = frees(self);
            let found = self.search(WaitMode::Block)?;
            if found.is_some() {
                return Ok(by(Rung::Wait, found));
            }
            if frees(self) == before {
                break;
            }
        }
        // Blocks of their own left no hole: they went back to the driver.
        let found = if self.pool.shared.reserved() < held { self.retry()? } else { None };
        Ok(by(Rung::Wait, found))
    }

    fn relieve(&self) -> Relief {
        self.manager.relieve(self.pool.shared.heap, self.ask.size, Some(self.pool))
    }

    /// Asks the program to free something.
    fn ask_program(&mut self) -> Result<Option<Served<B>>> {
        if self.relieve() == Relief::Nothing {
            return Ok(None);
        }
        let mut found = self.search(WaitMode::Poll)?;
        if found.is_none() {
            self.manager.trim_beside(self.pool, WaitMode::Poll)?;
            found = self.retry()?;
        }
        Ok(by(Rung::Pressure, found))
    }

    fn defragment(&mut self) -> Result<Option<Served<B>>> {
        let moved = self.manager.defragment_for(self)?;
        Ok(moved.map(|taken| (Some(Rung::Defragment), taken)))
    }

    /// Gives back page groups that are too long for the request, for shorter ones.
    fn trim_own_pages(&mut self) -> Result<Option<Served<B>>> {
        if self.pool.shared.page().is_none()
            || self.manager.trim_for(self.pool, WaitMode::Poll)? == 0
        {
            return Ok(None);
        }
        Ok(by(Rung::Trim, self.retry()?))
    }

    /// Asks the driver for a block for this request alone.
    fn take_block(&mut self) -> Result<Option<Served<B>>> {
        let lanes = self.pool.lanes();
        let Some((size, make)) = &mut self.own else { return Ok(None) };
        let slot = self.lane.grow_by(self.ask, *size, Sharing::Dedicated, &lanes, make)?;
        Ok(Some((None, (Arc::clone(self.lane), slot))))
    }

    fn trim_for_block(&mut self) -> Result<Option<Served<B>>> {
        Ok(by(Rung::Trim, self.give_back_for_block(WaitMode::Poll)?))
    }

    fn wait_for_block(&mut self) -> Result<Option<Served<B>>> {
        Ok(by(Rung::Wait, self.give_back_for_block(WaitMode::Block)?))
    }

    /// Gives back everything that is out of use, for a block.
    fn give_back_for_block(&mut self, wait: WaitMode) -> Result<Option<Served<B>>> {
        let mut retired = 0;
        for each in self.pool.lanes() {
            retired += each.retire(wait)?;
            each.poll_users(wait)?;
        }
        match self.manager.trim_for(self.pool, wait)? + retired {
            0 => Ok(None),
            _ => served(self.take_block()),
        }
    }

    fn ask_program_for_block(&mut self) -> Result<Option<Served<B>>> {
        if self.relieve() == Relief::Nothing {
            return Ok(None);
        }
        self.manager.trim_for(self.pool, WaitMode::Poll)?;
        Ok(by(Rung::Pressure, served(self.take_block())?))
    }
}

/// Counts what a try gave as served by a rung, however it was found.
fn by<B: Backend>(rung: Rung, found: Option<Served<B>>) -> Option<Served<B>> {
    found.map(|(_, taken)| (Some(rung), taken))
}

/// Returns the result of a try, or `None` where memory is still short.
fn served<T>(tried: Result<Option<T>>) -> Result<Option<T>> {
    match tried {
        Err(error) if error.kind().is_out_of_memory() => Ok(None),
        other => other,
    }
}

/// The heap that a request names.
fn named(request: &Request<'_>) -> Ranking {
    let mut heaps = Ranking::new();
    request.heap.into_iter().for_each(|heap| heaps.push(heap));
    heaps
}

/// Refuses what can never be.
pub(super) fn check(request: &Request<'_>) -> Result<(), ErrorKind> {
    if request.layout.size == 0 {
        return Err(ErrorKind::ZeroSize);
    }
    request.layout.align.up(request.layout.size).map(|_| ()).ok_or(ErrorKind::SizeOverflow)
}

/// Returns true if another heap may serve a request that this one could not.
const fn falls_back(kind: ErrorKind) -> bool {
    kind.is_out_of_memory() || matches!(kind, ErrorKind::ExceedsLimit)
}

impl<B: Backend> Manager<B> {
    /// Allocates a block of its own that `make` gets from the driver: memory that a driver ties to one resource, say.
    ///
    /// The block counts, is reported and is given back as every other dedicated block, and never moves. Where the
    /// driver has none left, unused memory of pools is returned first, and `make` is called again.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap` where the request names none, `ZeroSize`, `SizeOverflow`, `ExceedsLimit`, `OverBudget`; what `make`
    /// says.
    ///
    /// # Safety
    ///
    /// The block that `make` returns was made by this manager's backend, lies in the request's heap, has exactly the
    /// request's bytes, and nothing else uses it.
    pub unsafe fn allocate_made(
        &self,
        request: &Request<'_>,
        mut make: impl FnMut() -> Result<B::Block>,
    ) -> Result<Allocation<B>, AllocateError> {
        check(request)?;
        let pool = self.pool(request.heap.ok_or(ErrorKind::NoSuchHeap)?)?;
        let ask = pool.ask(request)?;
        if request.grow == Grow::Never {
            // As in `climb`: a block of its own is the driver's to give.
            return Err(ErrorKind::OutOfDeviceMemory.into());
        }
        let lane = pool.lane_for(request.timeline)?;
        let make: Make<'_, B> = &mut make;
        let own = Some((request.layout.size, make));
        let mut climb = Climb { manager: self, pool, lane, ask, own };
        let (rung, (lane, slot)) = climb.up(&Climb::DEDICATED)?;
        if let Some(rung) = rung {
            self.climbed(rung, ask.size, ask.timeline);
        }
        let request = request.dedicated().pinned();
        lane.set_properties(slot, &request)?;
        if let Some(watch) = &lane.shared.watch {
            watch.skip(); // Its block has no byte to spare.
        }
        let (_, cause) = self.cause(pool, None, rung);
        Ok(Allocation::new(lane.claim(slot, &request, None, cause), request.layout.size))
    }
}

#[cfg(test)]
mod tests {
    use super::Climb;
    use alloc::vec::Vec;
    use omniheap_host::Host;

    #[test]
    fn the_page_on_memory_that_runs_out_lists_the_ladder() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/out-of-memory.md");
        let page = std::fs::read_to_string(page).expect("the page is in the repository");
        let numbered = page.lines().filter_map(|line| line.split_once(". "));
        let listed = numbered.filter(|(number, _)| number.parse::<u32>().is_ok());
        let mut ladder = Climb::<Host>::SHARED.map(|(words, _)| words).to_vec();
        ladder.push("the next heap that the policy permits");
        ladder.push("host memory, if the request may spill");
        assert_eq!(listed.map(|(_, words)| words).collect::<Vec<_>>(), ladder);
    }
}
