//! A request that a held hole serves: the way that nearly all of them take.
use super::{AllocateError, Allocation, Manager};
use crate::pool::Pool;
use crate::{Backend, HeapId, HeapKind, Request};
use alloc::vec::Vec;

impl<B: Backend> Manager<B> {
    /// Allocates.
    ///
    /// Costs no driver call and no host memory where a held block has a fitting hole; otherwise climbs the
    /// out-of-memory ladder, whose rungs the report counts.
    ///
    /// # Errors
    ///
    /// `ZeroSize`, `InvalidAlignment`, `SizeOverflow`, `ExceedsLimit`, `NoSuchHeap` and `NoSuchTimeline` for what can
    /// never be; out of memory with a [`Shortage`](crate::Shortage) that says what is missing; `DeviceLost` and `Driver` as they are.
    /// A failed call changes nothing.
    #[inline]
    pub fn allocate(&self, request: &Request<'_>) -> Result<Allocation<B>, AllocateError> {
        if request.is_plain()
            && request.layout.align <= self.inner.config.unit
            && let Some(heap) = self.heap_at_once(request, self.inner.unseen)
            && let Some(pool) = self.inner.pools[usize::from(heap.0)].get()
            && let Some(allocation) = Self::allocate_held(pool, request)
        {
            return Ok(allocation);
        }
        self.allocate_slowly(request)
    }

    /// A hole that the lane of this thread holds, for a request without hints.
    #[inline]
    pub(super) fn allocate_held(pool: &Pool<B>, request: &Request<'_>) -> Option<Allocation<B>> {
        let ask = pool.ask(request).ok()?;
        let lane = pool.known_lane()?;
        let owned = match lane.allocate(ask) {
            Ok(owned) => owned,
            Err(miss) => lane.allocate_after(ask, miss)?,
        };
        Some(Allocation::new(owned, ask.size))
    }

    /// Whether a request takes the fast path in a pool that a user made. A pool that sleeps has none: its holes may have no memory.
    #[inline]
    pub(super) fn is_fast_in(&self, pool: &Pool<B>, request: &Request<'_>) -> bool {
        let Some(about) = self.caps().heap(pool.shared.heap) else { return false };
        // As in `heap_at_once`.
        let is_ordered = request.timeline.is_none() || about.kind != HeapKind::Staging;
        let is_aligned = request.layout.align <= about.align;
        let may_sleep = pool.shared.config.sleepable;
        request.is_plain() && is_aligned && is_ordered && self.inner.unseen.is_some() && !may_sleep
    }

    /// Returns the heap whose holes may serve a request without hints: the one that it names, else `first`. None where there is no
    /// fast path.
    #[inline]
    fn heap_at_once(&self, request: &Request<'_>, first: Option<HeapId>) -> Option<HeapId> {
        let first = first?;
        let Some(named) = request.heap else { return Some(first) };
        // Memory that the host accesses may be out of its timeline's order: the ladder decides that.
        let about = self.caps().heap(named).filter(|_| request.timeline.is_none())?;
        (request.layout.align <= about.align).then_some(named)
    }

    /// Allocates everything or nothing.
    ///
    /// # Errors
    ///
    /// That of the first request that failed; what the earlier ones got is free again.
    pub fn allocate_all(
        &self,
        requests: &[Request<'_>],
    ) -> Result<Vec<Allocation<B>>, AllocateError> {
        requests.iter().map(|request| self.allocate(request)).collect()
    }

    /// The fast path of a request that has a name or a tag, and of a manager that is observed.
    pub(super) fn allocate_told(&self, request: &Request<'_>) -> Option<Allocation<B>> {
        let is_labelled = request.is_labelled();
        if !request.is_usual()
            || request.layout.align > self.inner.config.unit
            || self.inner.watch.is_some()
            || (!is_labelled && self.inner.device.observer().is_none())
        {
            return None;
        }
        let heap = self.heap_at_once(request, self.inner.plain)?;
        let pool = self.inner.pools[usize::from(heap.0)].get()?;
        let owned = pool.known_lane()?.allocate_observed(pool.ask(request).ok()?, request)?;
        Some(Allocation::new(owned, request.layout.size))
    }
}
