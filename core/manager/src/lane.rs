//! One lane of a pool: a lock, a strategy, and the blocks it divides. One thread uses it, on any number of timelines.
//!
//! Everything that the lock guards is private to this module: [`state`] composes it of [`occupancy`], [`bytes`] and
//! [`order`], whose fields are private to each. The other files are cut by what they do with it. `pool`, `defrag` and
//! `manager` call methods of [`Lane`].
mod away;
mod blocks;
mod bytes;
mod config;
mod extra;
mod free;
mod growth;
mod kept;
mod moves;
mod occupancy;
mod order;
mod owned;
mod pages;
mod properties;
mod remote;
mod report;
mod reuse;
mod sanitize;
mod shared;
mod slides;
mod snapshot;
mod state;

pub(crate) use bytes::{Ask, Suballocator};
pub(crate) use config::{MakeStrategy, other};
pub use config::{PoolConfig, StrategyKind, Uses, Waiting};
pub(crate) use extra::{Consent, SlotId};
pub use growth::Growth;
pub use moves::MoveOutcome;
pub(crate) use moves::{MoveGuard, Presence};
pub(crate) use occupancy::{Cause, REMOTE};
pub(crate) use owned::LaneSlot;
pub(crate) use remote::Reservation;
pub use report::{BlockReport, SpanReport, SpanState, Totals};
pub(crate) use reuse::WaitMode;
pub(crate) use shared::Shared;
pub(crate) use slides::{BegunSlides, Copies};
pub(crate) use snapshot::{Inside, Resident, Scan, SlotsByBlock, Snapshot};
pub(crate) use state::{FastPathMiss, Lane};

use crate::event::Event;
use crate::{Backend, ErrorKind, Placement, Request, Span};
use state::State;

impl<B: Backend> Lane<B> {
    /// A hole that is free now.
    pub(crate) fn find_hole(&self, ask: Ask) -> Result<SlotId, FastPathMiss> {
        let mut state = self.state.lock_flushed();
        state.check_awake().map_err(FastPathMiss::Refused)?;
        state.allocate(ask)
    }

    /// As [`find_hole`](Self::find_hole), breaking whatever fits and looking at every hole.
    pub(crate) fn find_any_hole(&self, ask: Ask) -> Result<SlotId, ErrorKind> {
        self.state.lock_flushed().allocate_usable(ask)
    }

    /// Takes the first hole in the order of blocks and offsets for which `look` returns something, and remembers what the request says
    /// beyond its bytes: what is pinned stays where `look` saw it.
    pub(crate) fn find_lowest_hole<R>(
        &self,
        ask: Ask,
        request: &Request<'_>,
        look: impl Fn(&B::Block, Span) -> Option<R>,
    ) -> Result<(SlotId, R), ErrorKind> {
        let mut state = self.state.lock_flushed();
        let (slot, seen) = state.allocate_lowest(ask, look)?;
        state.set_properties(slot, request);
        Ok((slot, seen))
    }

    /// Takes the lowest hole between two allocations of a block, and shows it to `look`.
    pub(crate) fn find_hole_between<R>(
        &self,
        ask: Ask,
        slots: (Option<SlotId>, SlotId),
        look: impl Fn(&B::Block, Span) -> R,
    ) -> Result<(SlotId, R), ErrorKind> {
        self.state.lock_flushed().allocate_between(ask, slots, look)
    }

    /// Returns true if a hole that is held fits.
    pub(crate) fn would_fit(&self, ask: Ask) -> bool {
        let state = self.state.lock_flushed();
        state.away.is_none() && state.bytes.would_fit(ask)
    }

    /// Takes exactly `span` of the lane's first block, and remembers what the request says beyond its bytes.
    ///
    /// # Errors
    ///
    /// `InUse` when the bytes may still be used by another timeline; otherwise as
    /// [`TakeSpan::take`](omniheap_strategy::TakeSpan::take), and `Unsupported` where the strategy does not take spans.
    pub(crate) fn take_span(
        &self,
        span: Span,
        request: &Request<'_>,
    ) -> Result<SlotId, FastPathMiss> {
        let mut state = self.state.lock_flushed();
        let slot = state.take(span, request.layout.align, request.timeline)?;
        state.set_properties(slot, request);
        Ok(slot)
    }

    /// Frees a slot without an owner.
    pub(crate) fn free_unowned(&self, slot: SlotId) {
        let freed = self.state.lock_flushed().free(slot);
        self.give_back_freed(freed.ok().flatten());
    }

    /// Bytes that live allocations occupy, rounding included.
    pub(crate) fn granted_bytes(&self) -> u64 {
        self.state.lock().occupancy.counts().granted_bytes
    }

    /// The lane's time: it goes on with each free of bytes that a timeline used.
    pub(crate) fn clock(&self) -> u64 {
        self.state.lock().order.clock()
    }

    /// Returns true if nothing lives in the lane or waits for a timeline.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.lock().occupancy.counts().live() == 0
    }

    /// Blocks that the lane has had at once.
    pub(crate) fn block_count(&self) -> usize {
        self.state.lock().bytes.block_count()
    }

    /// Counts peaks from now on.
    pub(crate) fn reset_peaks(&self) {
        self.state.lock().occupancy.reset_peaks();
    }
}

/// Reports to an observer. `state` is the locked state of this lane.
impl<B: Backend> Lane<B> {
    /// Tells the observer that an allocation was made; from now on its free is told too.
    ///
    /// `state` is the locked state of this lane.
    fn tell_allocate(
        &self,
        state: &mut State<B>,
        slot: SlotId,
        request: &Request<'_>,
        placement: Option<&Placement>,
    ) {
        let Some(observer) = self.shared.device.observer() else { return };
        state.occupancy.set_observed(slot);
        if let Ok((block, Span { offset, .. })) = state.place(slot) {
            let (id, block) = (self.id_of(slot), block.number());
            observer.observe(&Event::Allocate { id, request, placement, block, offset });
        }
    }

    /// Tells the observer that an allocation's bytes can be reused from now on. `state` is the locked state of this lane.
    fn tell_free(&self, state: &State<B>, slot: SlotId) {
        if let Some(observer) = self.shared.device.observer() {
            let (id, timeline) = (self.id_of(slot), state.home_of(slot));
            observer.observe(&Event::Free { id, timeline });
        }
    }

    /// Tells the observer that an allocation's owner freed it. `state` is the locked state of this lane.
    fn tell_free_requested(&self, state: &State<B>, slot: SlotId) {
        if let Some(observer) = self.shared.device.observer() {
            let (id, timeline) = (self.id_of(slot), state.home_of(slot));
            observer.observe(&Event::FreeRequested { id, timeline });
        }
    }

    /// Tells the observer where an allocation lies after a move. `state` is the locked state of this lane.
    fn tell_move(&self, state: &State<B>, slot: SlotId) {
        let Some(observer) = self.shared.device.observer() else { return };
        // An allocation that the observer was not told of yet is reported later, at its place then.
        if state.occupancy.is_observed(slot)
            && let Ok((block, Span { offset, .. })) = state.place(slot)
        {
            let (id, block) = (self.id_of(slot), block.number());
            observer.observe(&Event::Move { id, block, offset });
        }
    }
}
