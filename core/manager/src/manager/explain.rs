//! Answers what the manager would do, and why, without doing it.
use super::Manager;
use super::error::AllocateError;
use super::placed::region_of;
use crate::{
    Backend, Caps, DefaultPolicy, Error, ErrorKind, HeapId, Placement, Policy, Profile, Ranking,
    Reason, RegionVerdict, Rejection, Request, Result, Sharing,
};
use alloc::vec::Vec;
use omniheap_placement::{judge, refused, reject};
use std::panic;

/// Source of a request's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A hole of memory that is held.
    Held,
    /// A new block that others may share.
    NewBlock,
    /// New or freed pages, mapped where they are needed.
    Pages,
    /// A block of its own.
    Dedicated,
}

/// Forecast of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The heap.
    pub heap: HeapId,
    /// Source of the bytes.
    pub source: Source,
    /// Bytes that the driver would be asked for, at most.
    pub new_bytes: u64,
    /// Bytes of the heap that would be held afterwards.
    pub reserved_after: u64,
    /// Bytes that the budget leaves afterwards.
    pub budget_after: u64,
}

/// Verdict of a policy on one heap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The heap.
    pub heap: HeapId,
    /// Reason for the rejection; `None` for the heaps to try.
    pub rejected: Option<Rejection>,
}

/// A placement with everything that led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The decision.
    pub placement: Placement,
    /// Every heap, in the device's order.
    pub verdicts: Vec<Verdict>,
    /// Every region.
    pub regions: Vec<RegionVerdict>,
}

impl<B: Backend> Manager<B> {
    /// The placement of a request, from its own words or from the policy.
    fn place(&self, request: &Request<'_>) -> Result<Placement> {
        let Some(heap) = request.heap else {
            return self.decide(request);
        };
        let kind = self.caps().heap(heap).ok_or(ErrorKind::NoSuchHeap)?.kind;
        let mut heaps = Ranking::new();
        heaps.push(heap);
        Ok(Placement { region: region_of(kind), heaps, reason: Reason::Named })
    }

    /// Asks the policy, and skips host-visible heaps that are nearly full.
    pub(super) fn decide(&self, request: &Request<'_>) -> Result<Placement> {
        let placement = decide(self.inner.config.policy.as_ref(), request, self.caps())?;
        Ok(self.skip_nearly_full(request, placement))
    }

    /// Says where a request would go, why, and what was rejected. Allocates nothing.
    ///
    /// # Errors
    ///
    /// As [`allocate`](Self::allocate) for requests that can never be served: with the region that would suit it, the
    /// limit and the bytes.
    pub fn explain(&self, request: &Request<'_>) -> Result<Explanation, AllocateError> {
        let placement = self.place(request).map_err(|error| self.refused(request, error))?;
        let chosen = placement.heaps.as_slice();
        let verdict = |(heap, about): (HeapId, &crate::Heap)| {
            let kind = Rejection::Kind(about.kind);
            let rejected = (!chosen.contains(&heap))
                .then(|| reject(request, about, self.caps()).unwrap_or(kind));
            Verdict { heap, rejected }
        };
        let verdicts = self.caps().heap_ids().map(verdict).collect();
        let profile = self.inner.config.policy.profile(self.caps());
        let regions = judge(request, self.caps(), &profile, placement.region);
        Ok(Explanation { placement, verdicts, regions })
    }

    /// An error of the policy, with the region that would suit the request and why it cannot have it.
    pub(super) fn refused(&self, request: &Request<'_>, error: Error) -> AllocateError {
        // The default rules have the last word on what cannot be placed.
        AllocateError::refusing(
            error,
            refused(request, self.caps(), &Profile::assumed(self.caps())),
        )
    }

    /// Says what an allocation would do: which heap, from where, how many new bytes, what the budget leaves.
    ///
    /// Changes nothing; another thread may of course be faster.
    ///
    /// # Errors
    ///
    /// As for [`explain`](Self::explain).
    pub fn plan(&self, request: &Request<'_>) -> Result<Plan> {
        if request.layout.size == 0 {
            return Err(ErrorKind::ZeroSize.into());
        }
        let placement = self.place(request)?;
        let heap = *placement.heaps.as_slice().first().ok_or(ErrorKind::NoSuchHeap)?;
        let pool = self.pool(heap)?;
        let decided = Some(&placement).filter(|_| request.heap.is_none());
        let timeline = self.order_of(pool, request, decided)?;
        let mut ordered = *request;
        ordered.timeline = timeline;
        let ask = pool.ask_with_room(&ordered)?;
        let (growth, lane) = (&pool.shared.growth, pool.lane_for(timeline)?);
        let (source, new_bytes) = if request.sharing == Sharing::Dedicated {
            (Source::Dedicated, self.own_size(pool, ask.layout.size, request)?)
        } else if lane.would_fit(ask) {
            (Source::Held, 0)
        } else if let Some(page) = pool.shared.page() {
            let pages = ask.layout.size.div_ceil(page);
            (Source::Pages, pages.checked_mul(page).ok_or(ErrorKind::SizeOverflow)?)
        } else {
            let block = growth.block_for(ask.layout.size, pool.shared.reserved());
            (Source::NewBlock, block.ok_or(ErrorKind::ExceedsLimit)?)
        };
        let held = self.heap_use(heap)?;
        let reserved_after = held.reserved.saturating_add(new_bytes);
        let budget_after = held.hard_limit.saturating_sub(reserved_after);
        Ok(Plan { heap, source, new_bytes, reserved_after, budget_after })
    }
}

/// Asks a policy. One that fails, panics, or names a heap that is not there gives way to the default rules.
pub(super) fn decide(policy: &dyn Policy, request: &Request<'_>, caps: &Caps) -> Result<Placement> {
    let known = |placement: &Placement| {
        let heaps = placement.heaps.as_slice();
        !heaps.is_empty() && heaps.iter().all(|heap| caps.heap(*heap).is_some())
    };
    match panic::catch_unwind(panic::AssertUnwindSafe(|| policy.place(request, caps))) {
        Ok(Ok(placement)) if known(&placement) => Ok(placement),
        refused => {
            tracing::debug!(panicked = refused.is_err(), "the default rules place a request");
            DefaultPolicy.place(request, caps)
        }
    }
}
