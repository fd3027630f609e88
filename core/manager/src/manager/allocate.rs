//! A request that a held hole serves: the way that nearly all of them take.
use super::{AllocateError, Allocation, Manager};
use crate::lane::LaneSlot;
use crate::pool::Pool;
use crate::{Backend, Class, HeapId, HeapKind, Layout, Request, TimelineId};
use alloc::sync::Arc;

/// Requests that a held hole may serve before anything else is decided: those without hints.
#[derive(Clone, Copy, Debug)]
pub(super) enum FastPath {
    /// Requests that name no heap go to this one, and nobody is told; requests with a name or a tag note it.
    Silent(HeapId),
    /// Requests that name no heap go to this one, and an observer is told of each.
    Observed(HeapId),
    /// Nothing: the policy refuses such requests, or every allocation has a guard.
    Off,
}

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
        match self.allocate_at_once(request) {
            Some(allocation) => Ok(allocation),
            None => {
                // A request that is made for this call is not written to memory before this.
                let copy = *request;
                self.allocate_otherwise(&copy)
            }
        }
    }

    /// A held hole, where the fast path serves such requests and nobody is told.
    #[inline(always)]
    fn allocate_at_once(&self, request: &Request<'_>) -> Option<Allocation<B>> {
        let FastPath::Silent(first) = self.inner.fast_path else { return None };
        if request.is_labelled() {
            return None;
        }
        Self::allocate_held(self.pool_at_once(first, request)?, request)
    }

    /// As [`allocate`](Self::allocate), for a request that no held hole serves in silence.
    #[inline(never)]
    fn allocate_otherwise(&self, request: &Request<'_>) -> Result<Allocation<B>, AllocateError> {
        let told = match self.inner.fast_path {
            FastPath::Silent(first) if request.is_labelled() => Some(first),
            FastPath::Observed(first) => Some(first),
            _ => None,
        };
        let pool = told.and_then(|first| self.pool_at_once(first, request));
        match pool.and_then(|pool| Self::allocate_told(pool, request)) {
            Some(allocation) => Ok(allocation),
            None => self.allocate_slowly(request),
        }
    }

    /// The pool whose held holes may serve a request before anything else is decided; those that name no heap go to `first`.
    #[inline(always)]
    fn pool_at_once(&self, first: HeapId, request: &Request<'_>) -> Option<&Pool<B>> {
        if !request.is_usual() || request.layout.align > self.inner.config.unit {
            return None;
        }
        let heap = match request.heap {
            None => first,
            Some(named) => {
                // Memory that the host accesses may be out of its timeline's order: the ladder decides that.
                let about = self.caps().heap(named).filter(|_| request.timeline.is_none())?;
                (request.layout.align <= about.align).then_some(named)?
            }
        };
        self.inner.pools[usize::from(heap.0)].get().map(Arc::as_ref)
    }

    /// A hole that the lane of this thread holds, for a request without hints.
    #[inline]
    pub(super) fn allocate_held(pool: &Pool<B>, request: &Request<'_>) -> Option<Allocation<B>> {
        let owned = Self::take_held(pool, request.layout, request.class, request.timeline)?;
        Some(Allocation::new(owned, request.layout.size))
    }

    /// As [`allocate_held`](Self::allocate_held): what it takes and returns fits in registers.
    #[inline(never)]
    fn take_held(
        pool: &Pool<B>,
        layout: Layout,
        class: Class,
        timeline: Option<TimelineId>,
    ) -> Option<LaneSlot<B>> {
        let ask = || pool.round(layout, class, timeline);
        let lane = pool.known_lane()?;
        match lane.allocate(ask()?) {
            Ok(owned) => Some(owned),
            Err(miss) => lane.allocate_after(ask()?, miss),
        }
    }

    /// Returns true if a request takes the fast path in a pool that a user made. A pool that sleeps has none: its holes
    /// may have no memory.
    #[inline]
    pub(super) fn is_fast_in(&self, pool: &Pool<B>, request: &Request<'_>) -> bool {
        let Some(about) = self.caps().heap(pool.shared.heap) else { return false };
        // As in `pool_at_once`.
        let is_ordered = request.timeline.is_none() || about.kind != HeapKind::Staging;
        let is_aligned = request.layout.align <= about.align;
        let may_sleep = pool.shared.config.sleepable;
        let is_silent = matches!(self.inner.fast_path, FastPath::Silent(_));
        request.is_plain() && is_aligned && is_ordered && is_silent && !may_sleep
    }

    /// As [`allocate_held`](Self::allocate_held), for a request that has a name or a tag, or that an observer is told of.
    fn allocate_told(pool: &Pool<B>, request: &Request<'_>) -> Option<Allocation<B>> {
        let ask = pool.ask(request).ok()?;
        let owned = pool.known_lane()?.allocate_observed(ask, request)?;
        Some(Allocation::new(owned, ask.size))
    }
}
