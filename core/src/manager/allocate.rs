//! A request that a held hole serves: the way that nearly all of them take.
use super::{AllocateError, Allocation, Manager};
use crate::{Backend, HeapId, Request};
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
            && let Ok(ask) = pool.ask(request)
            && let Some(lane) = pool.known_lane()
        {
            match lane.allocate(ask) {
                Ok(owned) => return Ok(Allocation::new(owned, ask.size)),
                Err(miss) => {
                    if let Some(owned) = lane.allocate_after(ask, miss) {
                        return Ok(Allocation::new(owned, ask.size));
                    }
                }
            }
        }
        self.allocate_slowly(request)
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
        let ask = pool.ask(request).ok()?;
        let lane = pool.known_lane()?;
        let owned = lane.allocate_observed(ask, request)?;
        Some(Allocation::new(owned, request.layout.size))
    }
}
