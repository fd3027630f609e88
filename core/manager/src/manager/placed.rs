//! Heaps that requests are really served from: host-visible heaps that fill up, and spills to host memory.
use super::error::AllocateError;
use super::{Allocation, Manager};
use crate::event::Rung;
use crate::lane::Cause;
use crate::pool::Pool;
use crate::{
    Backend, Caps, HeapId, HeapKind, Placement, Ranking, Reason, Region, Request, Result, Spill,
    Substitution,
};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use omniheap_placement::spill;
use std::sync::OnceLock;

/// A host-visible heap is skipped when more than this part of it would be live, in sixteenths.
const LEAVE: u64 = 14;

/// The heap is used again when no more than this part of it would be live, in sixteenths. The gap keeps decisions from
/// flapping.
const RETURN: u64 = 12;

/// Host-visible heaps that are skipped because they are nearly full.
#[derive(Debug)]
pub(super) struct HostVisibleHeaps(Vec<AtomicBool>);

impl HostVisibleHeaps {
    pub(super) fn new(caps: &Caps) -> Self {
        Self(caps.heaps.iter().map(|_| AtomicBool::new(false)).collect())
    }

    /// Returns true if a heap is skipped, given the bytes that would be live and their limit.
    fn is_nearly_full(&self, heap: HeapId, live: u64, limit: u64) -> bool {
        let was_full = self.0.get(usize::from(heap.0)).is_some_and(|full| full.load(Relaxed));
        let sixteenths = if was_full { RETURN } else { LEAVE };
        live / 16 > limit / 256 * sixteenths
    }

    fn remember(&self, heap: HeapId, is_full: bool) {
        if let Some(full) = self.0.get(usize::from(heap.0)) {
            full.store(is_full, Relaxed);
        }
    }
}

/// Returns the policy's word for memory of this kind.
pub(super) const fn region_of(kind: HeapKind) -> Region {
    match kind {
        HeapKind::Constant => Region::Constant,
        HeapKind::Staging => Region::Staging,
        HeapKind::Unified => Region::Unified,
        // The device's own memory, and kinds that the seam may get later.
        _ => Region::Device,
    }
}

/// Place of an allocation, and the reason for it: [`Allocation::placed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Placed {
    /// The heap that the bytes lie in now.
    pub heap: HeapId,
    /// Policy's word for that memory.
    pub region: Region,
    /// Reason for the place.
    pub reason: Reason,
    /// The rung of the ladder that served the request when it was made; `None` where memory that was held and free did.
    pub rung: Option<Rung>,
}

impl<B: Backend> Allocation<B> {
    /// Returns where the bytes lie, and why: the policy's decision, or what replaced it because the better heaps were full.
    ///
    /// Costs a lock and a few loads. Requests with hints, and those that climb the ladder, record the decision in spare bytes of
    /// their slot. The fast path records nothing: its allocations get the policy's reason for requests without hints, even if
    /// the request named that same heap; in any other heap they get [`Reason::Named`].
    ///
    /// A [recall](Manager::begin_recall) brings the original decision back. [`Manager::resize`] keeps the answer.
    ///
    /// # Examples
    ///
    /// ```
    /// use omniheap_core::{Manager, Reason, Region, Request, Rung, Usage};
    /// use omniheap_host::Host;
    ///
    /// let manager = Manager::new(Host::new());
    /// let results = manager.allocate(&Request::new(4096).usage(Usage::Readback))?;
    /// let placed = results.placed();
    /// assert_eq!((placed.region, placed.reason), (Region::Staging, Reason::ReadByHost));
    /// assert_eq!(placed.rung, Some(Rung::Driver), "nothing was held yet");
    /// println!("heap {}, because {}", placed.heap.0, placed.reason);
    /// # Ok::<(), omniheap_core::AllocateError>(())
    /// ```
    #[must_use]
    pub fn placed(&self) -> Placed {
        let (heap, cause) = self.cause();
        let Cause { reason, region, rung, elsewhere } = cause;
        let here = || self.kind(heap).map_or(region, region_of);
        match (elsewhere, rung) {
            (false, _) => Placed { heap, region, reason, rung },
            (true, Some(Rung::Spill)) => {
                Placed { heap, region: here(), reason: Reason::Spilled, rung }
            }
            (true, _) => Placed { heap, region: here(), reason: Reason::Full(region), rung },
        }
    }

    fn kind(&self, heap: HeapId) -> Option<HeapKind> {
        self.lane().shared.device.heap(heap).ok().map(|about| about.kind)
    }

    /// The heap that the bytes lie in, and why; for what the fast path served, its pool, or what the policy says of requests without hints.
    fn cause(&self) -> (HeapId, Cause) {
        let (heap, noted) = self.lane().cause_of(self.slot());
        let usual = self.lane().shared.device.usual();
        let usual = usual.filter(|usual| usual.heaps.as_slice().first() == Some(&heap));
        let here = || self.kind(heap).map_or(Region::Device, region_of);
        let (region, reason) = match usual {
            _ if self.lane().shared.config.is_own => (here(), Reason::OwnPool),
            Some(usual) => (usual.region, usual.reason),
            None => (here(), Reason::Named),
        };
        (heap, noted.unwrap_or(Cause { reason, region, rung: None, elsewhere: false }))
    }

    /// Takes over why another allocation lies in the same pool.
    pub(super) fn keep_reason(&self, of: &Self) {
        self.lane().set_cause(self.slot(), of.cause().1);
    }
}

impl<B: Backend> Manager<B> {
    /// The placement of a request that a pool serves, and what its allocation remembers of it.
    pub(super) fn cause(
        &self,
        pool: &Arc<Pool<B>>,
        decided: Option<&Placement>,
        rung: Option<Rung>,
    ) -> (Option<Placement>, Cause) {
        let heap = pool.shared.heap;
        let Some(decided) = decided else {
            let default = self.inner.pools.get(usize::from(heap.0)).and_then(OnceLock::get);
            let is_named = default.is_some_and(|default| Arc::ptr_eq(default, pool));
            let reason = if is_named { Reason::Named } else { Reason::OwnPool };
            let region =
                self.caps().heap(heap).map_or(Region::Device, |about| region_of(about.kind));
            return (None, Cause { reason, region, rung, elsewhere: false });
        };
        let here = self.corrected(*decided, heap);
        let (Placement { region, reason, .. }, elsewhere) = (*decided, here != *decided);
        (Some(here), Cause { reason, region, rung, elsewhere })
    }

    /// A placement, given the heap that served it.
    fn corrected(&self, placement: Placement, heap: HeapId) -> Placement {
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

    /// Skips a host-visible heap that is nearly full, and comes back to it only when there is room again.
    pub(super) fn skip_nearly_full(
        &self,
        request: &Request<'_>,
        placement: Placement,
    ) -> Placement {
        let Some((visible, others)) = placement.heaps.as_slice().split_first() else {
            return placement;
        };
        if placement.reason != Reason::WrittenInPlace
            || request.substitution == Substitution::Forbidden
            || !self.is_nearly_full(*visible, request.layout.size)
        {
            return placement;
        }
        let mut heaps = Ranking::new();
        others.iter().chain([visible]).for_each(|heap| heaps.push(*heap));
        let first = heaps.as_slice().first().and_then(|heap| self.caps().heap(*heap));
        let region = first.map_or(placement.region, |heap| region_of(heap.kind));
        let reason = match region == placement.region {
            true => placement.reason,
            false => Reason::NearlyFull(placement.region),
        };
        Placement { region, heaps, reason }
    }

    fn is_nearly_full(&self, heap: HeapId, size: u64) -> bool {
        let live = self.live_in(heap).saturating_add(size);
        let about = self.caps().heap(heap).map_or(0, |heap| heap.size);
        let limit = self.heap_use(heap).map_or(about, |held| about.min(held.hard_limit));
        self.inner.host_visible.is_nearly_full(heap, live, limit)
    }

    /// Decides for a request that is about to be served, and remembers whether its host-visible heap is skipped.
    pub(super) fn decide_and_watch(&self, request: &Request<'_>) -> Result<Placement> {
        let placement = self.decide(request)?;
        let visible = match placement.reason {
            Reason::WrittenInPlace => placement.heaps.as_slice().first(),
            Reason::NearlyFull(_) => placement.heaps.as_slice().last(),
            _ => None,
        };
        if let Some(heap) = visible {
            let is_full = self.is_nearly_full(*heap, request.layout.size);
            self.inner.host_visible.remember(*heap, is_full);
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
            let pool = self.pool(*heap)?;
            let made = self.allocate_in(pool, request, Some(placement), Some(Rung::Spill));
            if let Ok(allocation) = made {
                self.wish(&allocation, request, &placement.heaps);
                return Ok(allocation);
            }
        }
        Err(full)
    }
}
