//! Where bytes really went: windows that fill up, and what spills to host memory.
use super::error::AllocateError;
use super::{Allocation, Manager};
use crate::event::Rung;
use crate::{
    Backend, Caps, HeapId, HeapKind, Placement, Ranking, Reason, Region, Request, Result, Spill,
    Substitution,
};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use omniheap_placement::spill;

/// A window is left when more than this part of it would be live, in sixteenths.
const LEAVE: u64 = 14;

/// It is used again when no more than this part of it would be live, in sixteenths. The gap keeps decisions from flapping.
const RETURN: u64 = 12;

/// Which heaps were left because they are nearly full.
#[derive(Debug)]
pub(super) struct Windows(Vec<AtomicBool>);

impl Windows {
    pub(super) fn new(caps: &Caps) -> Self {
        Self(caps.heaps.iter().map(|_| AtomicBool::new(false)).collect())
    }

    /// Whether a heap is left, given what would be live and what may be.
    fn is_left(&self, heap: HeapId, live: u64, limit: u64) -> bool {
        let was_left = self.0.get(usize::from(heap.0)).is_some_and(|left| left.load(Relaxed));
        let sixteenths = if was_left { RETURN } else { LEAVE };
        live / 16 > limit / 256 * sixteenths
    }

    fn remember(&self, heap: HeapId, is_left: bool) {
        if let Some(left) = self.0.get(usize::from(heap.0)) {
            left.store(is_left, Relaxed);
        }
    }
}

/// What a policy calls memory of this kind.
pub(super) const fn region_of(kind: HeapKind) -> Region {
    match kind {
        HeapKind::Constant => Region::Constant,
        HeapKind::Staging => Region::Staging,
        HeapKind::Unified => Region::Unified,
        // The device's own memory, and kinds that the seam may get later.
        _ => Region::Device,
    }
}

impl<B: Backend> Manager<B> {
    /// Says where an allocation went that `request` made, and why: the policy's decision, or what replaced it because the
    /// better heaps were full.
    ///
    /// # Errors
    ///
    /// As for [`explain`](Self::explain).
    pub fn placed(&self, request: &Request<'_>, allocation: &Allocation<B>) -> Result<Placement> {
        let placement = self.explain(request)?.placement;
        Ok(self.corrected(placement, allocation.heap()))
    }

    /// A placement, given the heap that served it.
    pub(super) fn corrected(&self, placement: Placement, heap: HeapId) -> Placement {
        let ranked = placement.heaps.as_slice();
        let kind = |heap: HeapId| self.caps().heap(heap).map(|about| about.kind);
        if ranked.first().is_none_or(|first| kind(*first) == kind(heap)) {
            return placement;
        }
        let reason = match ranked.contains(&heap) {
            true => Reason::Full(placement.region),
            false => Reason::Spilled,
        };
        let region = kind(heap).map_or(placement.region, region_of);
        Placement { region, reason, ..placement }
    }

    /// Leaves a window that is nearly full, and comes back to it only when there is room again.
    pub(super) fn heed_windows(&self, request: &Request<'_>, placement: Placement) -> Placement {
        let Some((window, others)) = placement.heaps.as_slice().split_first() else {
            return placement;
        };
        if placement.reason != Reason::WrittenInPlace
            || request.substitution == Substitution::Forbidden
            || !self.is_left(*window, request.layout.size)
        {
            return placement;
        }
        let mut heaps = Ranking::new();
        others.iter().chain([window]).for_each(|heap| heaps.push(*heap));
        let first = heaps.as_slice().first().and_then(|heap| self.caps().heap(*heap));
        let region = first.map_or(placement.region, |heap| region_of(heap.kind));
        let reason = match region == placement.region {
            true => placement.reason,
            false => Reason::NearlyFull(placement.region),
        };
        Placement { region, heaps, reason }
    }

    fn is_left(&self, window: HeapId, size: u64) -> bool {
        let live = self.live_in(window).saturating_add(size);
        let about = self.caps().heap(window).map_or(0, |heap| heap.size);
        let limit = self.heap_use(window).map_or(about, |held| about.min(held.hard_limit));
        self.inner.windows.is_left(window, live, limit)
    }

    /// Decides for a request that is about to be served, and remembers whether its window is left.
    pub(super) fn decide_and_watch(&self, request: &Request<'_>) -> Result<Placement> {
        let placement = self.decide(request)?;
        let window = match placement.reason {
            Reason::WrittenInPlace => placement.heaps.as_slice().first(),
            Reason::NearlyFull(_) => placement.heaps.as_slice().last(),
            _ => None,
        };
        if let Some(window) = window {
            let is_left = self.is_left(*window, request.layout.size);
            self.inner.windows.remember(*window, is_left);
        }
        Ok(placement)
    }

    /// Returns how many bytes of a heap are live, over all pools.
    #[must_use]
    pub fn live_in(&self, heap: HeapId) -> u64 {
        let pools = self.all_pools();
        let here = pools.iter().filter(|pool| pool.shared.heap == heap);
        let lanes = here.flat_map(|pool| pool.lanes());
        lanes.map(|lane| lane.granted_bytes()).sum()
    }

    /// Returns whether host memory other than `heap` has room for the bytes.
    pub(super) fn could_spill(&self, heap: HeapId, size: u64) -> bool {
        let others = spill(&Request::new(size), self.caps());
        let mut others = others.as_slice().iter().filter(|other| **other != heap);
        others.any(|other| {
            let about = self.caps().heap(*other).map_or(0, |about| about.size);
            let held = self.heap_use(*other).ok();
            let room =
                held.map_or(0, |held| about.min(held.hard_limit).saturating_sub(held.reserved));
            room >= size
        })
    }

    /// The last rung: host memory, where the request permits it and everything else was full.
    pub(super) fn spill(
        &self,
        request: &Request<'_>,
        placement: Option<&Placement>,
        full: AllocateError,
    ) -> Result<Allocation<B>, AllocateError> {
        let Some(placement) = placement.filter(|_| request.spill == Spill::Allowed) else {
            return Err(full);
        };
        let tried = placement.heaps.as_slice();
        for heap in spill(request, self.caps()).as_slice() {
            if tried.contains(heap) {
                continue;
            }
            let spilled = self.corrected(*placement, *heap);
            let pool = self.pool(*heap)?;
            let made = self.allocate_in(pool, request, Some(&spilled), Some(Rung::Spill));
            if let Ok(allocation) = made {
                self.wish(&allocation, request, &placement.heaps);
                return Ok(allocation);
            }
        }
        Err(full)
    }
}
