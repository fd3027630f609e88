//! From a request that nothing held fits to memory, or to an error that says why not.
use super::error::AllocateError;
use super::{Allocation, Manager, Relief};
use crate::event::{Event, Rung};
use crate::pool::{Ask, Consent, Lane, Miss, Patience, Pool, SlotId};
use crate::{
    Backend, Contents, Driver, Error, ErrorKind, HeapId, HeapKind, Mobility, Placement, Privacy,
    Ranking, Request, Result, Sharing, TimelineId,
};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How often each rung served a request.
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

/// A span that nobody owns yet, while the program's own code runs: a callback that panics does not leak it.
struct Unclaimed<'a, B: Backend> {
    lane: &'a Lane<B>,
    slot: Option<SlotId>,
}

impl<B: Backend> Drop for Unclaimed<'_, B> {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        let freed = self.lane.state.lock().free(slot);
        self.lane.shared.give_back_left(freed.ok().flatten());
    }
}

/// A span, and the lane that it lies in.
pub(super) type Taken<B> = (Arc<Lane<B>>, SlotId);

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
        if let Some(allocation) = self.allocate_told(request) {
            return Ok(allocation);
        }
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
            let here = placement.map(|placement| self.corrected(placement, *heap));
            match self.allocate_in(self.pool(*heap)?, request, here.as_ref()) {
                Ok(allocation) => {
                    if position > 0 {
                        self.climbed(Rung::NextHeap, request.layout.size, request.timeline);
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

    /// Allocates from one pool.
    pub(super) fn allocate_in(
        &self,
        pool: &Arc<Pool<B>>,
        request: &Request<'_>,
        placement: Option<&Placement>,
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
        let ask = pool.ask_with_room(&Request { timeline: order, ..*request })?;
        let unsettled = pool.shared.unsettle(ask);
        let climbed = self.climb_again(pool, ask, request);
        if let Ok((lane, slot)) = &climbed {
            self.note(lane, *slot, request);
            if ask.timeline != request.timeline {
                let mut state = lane.state.lock();
                state.set_home(*slot, request.timeline)?;
                state.set_host_access(*slot);
            }
        }
        drop(unsettled);
        let (lane, slot) = climbed.map_err(|error| self.explain_failure(pool, ask, error))?;
        let allocation = self.claim(&lane, slot, request, placement);
        if request.contents == Contents::Zero {
            allocation.wipe()?;
        }
        allocation.begin_sanitized(request.contents)?;
        Ok(allocation)
    }

    /// The timeline in whose order a request gets its bytes: its own, or none where the host accesses the bytes directly, which
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

    /// Remembers what a request says beyond its bytes.
    pub(super) fn note(&self, lane: &Lane<B>, slot: SlotId, request: &Request<'_>) {
        // A move would leave a copy of a secret behind.
        if request.mobility == Mobility::Pinned || request.privacy == Privacy::Secret {
            // The pin is never taken back: it ends with the allocation.
            let _ = lane.state.lock().slots.pin(slot);
        }
        let dedicated = request.sharing == Sharing::Dedicated;
        let asked = request.mobility == Mobility::OnConsent;
        let align = Some(request.layout.align).filter(|align| *align > lane.shared.unit);
        if align.is_none()
            && !dedicated
            && !asked
            && !request.is_labelled()
            && request.privacy == Privacy::Open
        {
            return;
        }
        let mut state = lane.state.lock();
        if state.slots.set_noted(slot).is_err() {
            return;
        }
        state.notes.set_label(slot.index, request);
        let note = state.notes.of(slot.index);
        (note.align, note.sharing, note.privacy) = (align, request.sharing, request.privacy);
        if asked {
            note.consent = Consent::Needed;
        }
    }

    pub(super) fn climb(
        &self,
        pool: &Arc<Pool<B>>,
        ask: Ask,
        request: &Request<'_>,
    ) -> Result<Taken<B>> {
        let lane = pool.lane_for(ask.timeline)?;
        if request.sharing == Sharing::Dedicated {
            let size = pool.shared.growth.exact(ask.layout.size).ok_or(ErrorKind::ExceedsLimit)?;
            let make = || self.backend().allocate(pool.shared.heap, size);
            return self.dedicate(pool, lane, ask, size, make);
        }
        let mut miss = lane.state.lock().allocate(ask);
        if let Err(Miss::InUse(last)) = miss {
            lane.settle_use(last)?;
            miss = lane.state.lock().allocate(ask);
        }
        let found = match miss {
            Ok(slot) => Some((Arc::clone(lane), slot)),
            Err(miss) => self.find_elsewhere(pool, lane, ask, miss)?,
        };
        if let Some(taken) = found {
            return Ok(taken);
        }
        if request.driver == Driver::Forbidden {
            let held = lane.state.lock().allocate_usable(ask);
            return held.map(|slot| (Arc::clone(lane), slot)).map_err(Error::from);
        }
        if let Some(taken) = self.take_in_order(pool, lane, ask) {
            return Ok(taken);
        }
        match self.grow(pool, lane, ask) {
            Err(error) if error.kind().is_out_of_memory() => {
                self.climb_higher(pool, lane, ask, error)
            }
            other => other,
        }
    }

    /// What the pool holds beside the holes that the fast path looks at.
    fn find_elsewhere(
        &self,
        pool: &Pool<B>,
        lane: &Arc<Lane<B>>,
        ask: Ask,
        miss: Miss,
    ) -> Result<Option<Taken<B>>> {
        match miss {
            Miss::Refused(kind) if !kind.is_out_of_memory() && kind != ErrorKind::ExceedsLimit => {
                Err(kind.into())
            }
            Miss::Refused(_) => self.search(pool, lane, ask, Patience::Look),
            Miss::InUse(_) => match self.take_in_order(pool, lane, ask) {
                None => self.search(pool, lane, ask, Patience::Look),
                taken => Ok(taken),
            },
            Miss::WouldBreak => Ok(None),
        }
    }

    /// Looks for a hole in everything that the pool holds.
    fn search(
        &self,
        pool: &Pool<B>,
        lane: &Arc<Lane<B>>,
        ask: Ask,
        patience: Patience,
    ) -> Result<Option<Taken<B>>> {
        let lanes = pool.lanes();
        let mut retired = 0;
        for each in &lanes {
            retired += each.retire(patience)?;
        }
        lane.settle(patience)?;
        if let Ok(slot) = lane.state.lock().allocate_usable(ask) {
            if retired > 0 {
                self.climbed(Rung::Retire, ask.size, ask.timeline);
            }
            return Ok(Some((Arc::clone(lane), slot)));
        }
        for other in lanes.iter().filter(|other| !Arc::ptr_eq(other, lane)) {
            if patience == Patience::Look && !other.lends_gladly() {
                continue;
            }
            other.settle(patience)?;
            if let Ok(slot) = other.state.lock().allocate_usable(ask) {
                self.climbed(Rung::Lend, ask.size, ask.timeline);
                return Ok(Some((Arc::clone(other), slot)));
            }
        }
        Ok(None)
    }

    /// Asks the driver, for a comfortable block first and for the smallest that will do then.
    fn grow(&self, pool: &Pool<B>, lane: &Arc<Lane<B>>, ask: Ask) -> Result<Taken<B>> {
        let grown = if pool.shared.page().is_some() {
            if let Some(taken) = self.copy_instead(lane, ask)? {
                return Ok(taken);
            }
            lane.grow_paged(ask, &pool.lanes())
        } else {
            let lanes = pool.lanes();
            let growth = &pool.shared.growth;
            let size = growth.block_for(ask.layout.size).ok_or(ErrorKind::ExceedsLimit)?;
            let exact = growth.exact(ask.layout.size).ok_or(ErrorKind::ExceedsLimit)?;
            match lane.grow(ask, size, &lanes) {
                Err(error) if error.kind().is_out_of_memory() && exact < size => {
                    lane.grow(ask, exact, &lanes)
                }
                other => other,
            }
        };
        let mut unclaimed = Unclaimed { lane, slot: Some(grown?) };
        self.climbed(Rung::Driver, ask.size, ask.timeline);
        self.ease(pool.shared.heap, ask.size);
        let slot = unclaimed.slot.take().expect("taken just above");
        Ok((Arc::clone(lane), slot))
    }

    /// Above the soft limit: gives back what is empty, and asks for more to be freed.
    fn ease(&self, heap: HeapId, wanted: u64) {
        let above =
            self.inner.device.heap_use(heap).is_ok_and(|heap| heap.reserved > heap.soft_limit);
        if above {
            // What cannot be given back now is no reason to fail a request that was served.
            let _ = self.trim();
            self.relieve(heap, wanted);
        }
    }

    /// The rungs after the driver has refused.
    #[cold]
    fn climb_higher(
        &self,
        pool: &Arc<Pool<B>>,
        lane: &Arc<Lane<B>>,
        ask: Ask,
        refused: Error,
    ) -> Result<Taken<B>> {
        let span = tracing::debug_span!(target: "omniheap", "omniheap.ladder", size = ask.size);
        let _inside = span.enter();
        if let Ok(slot) = lane.state.lock().allocate_usable(ask) {
            return Ok((Arc::clone(lane), slot));
        }
        if self.trim_beside(pool)? > 0
            && let Some(taken) = self.retry(pool, lane, ask, Rung::Trim)?
        {
            return Ok(taken);
        }
        if let Some(taken) = self.search(pool, lane, ask, Patience::Wait)? {
            self.climbed(Rung::Wait, ask.size, ask.timeline);
            return Ok(taken);
        }
        if self.trim_beside(pool)? > 0
            && let Some(taken) = self.retry(pool, lane, ask, Rung::Wait)?
        {
            return Ok(taken);
        }
        if self.relieve(pool.shared.heap, ask.size) == Relief::Freed
            && let Some(taken) = self.search_or_retry(pool, lane, ask)?
        {
            return Ok(taken);
        }
        if let Some(taken) = self.defragment_for(pool, lane, ask)? {
            return Ok(taken);
        }
        // Sheets that are too long for the request go back, for shorter ones.
        if pool.shared.page().is_some()
            && self.trim_for(pool)? > 0
            && let Some(taken) = self.retry(pool, lane, ask, Rung::Trim)?
        {
            return Ok(taken);
        }
        Err(refused)
    }

    fn search_or_retry(
        &self,
        pool: &Pool<B>,
        lane: &Arc<Lane<B>>,
        ask: Ask,
    ) -> Result<Option<Taken<B>>> {
        if let Some(taken) = self.search(pool, lane, ask, Patience::Look)? {
            self.climbed(Rung::Pressure, ask.size, ask.timeline);
            return Ok(Some(taken));
        }
        self.trim_beside(pool)?;
        self.retry(pool, lane, ask, Rung::Pressure)
    }

    /// The lane's holes, then the driver, once more.
    pub(super) fn retry(
        &self,
        pool: &Pool<B>,
        lane: &Arc<Lane<B>>,
        ask: Ask,
        rung: Rung,
    ) -> Result<Option<Taken<B>>> {
        let held = lane.state.lock().allocate_usable(ask);
        let taken = match held {
            Ok(slot) => Some((Arc::clone(lane), slot)),
            Err(_) => match self.grow(pool, lane, ask) {
                Ok(taken) => Some(taken),
                Err(error) if error.kind().is_out_of_memory() => None,
                Err(error) => return Err(error),
            },
        };
        if taken.is_some() {
            self.climbed(rung, ask.size, ask.timeline);
        }
        Ok(taken)
    }

    /// Gives back everything empty that shares physical memory with the pool's heap; says how many bytes.
    pub(super) fn trim_for(&self, pool: &Pool<B>) -> Result<u64> {
        self.trim_if(pool, |_| true)
    }

    /// As [`trim_for`](Self::trim_for), but a pool of pages keeps its own: it can use them as they are.
    pub(super) fn trim_beside(&self, pool: &Pool<B>) -> Result<u64> {
        let is_paged = pool.shared.page().is_some();
        self.trim_if(pool, |other| !is_paged || !Arc::ptr_eq(&other.shared, &pool.shared))
    }

    fn trim_if(&self, pool: &Pool<B>, may: impl Fn(&Pool<B>) -> bool) -> Result<u64> {
        let physical = self.inner.device.heap(pool.shared.heap)?.physical;
        let mut bytes = 0;
        for other in self.all_pools() {
            if self.inner.device.heap(other.shared.heap)?.physical == physical && may(&other) {
                bytes += other.trim()?;
            }
        }
        Ok(bytes)
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

/// Whether another heap may serve what this one could not.
const fn falls_back(kind: ErrorKind) -> bool {
    kind.is_out_of_memory() || matches!(kind, ErrorKind::ExceedsLimit)
}
