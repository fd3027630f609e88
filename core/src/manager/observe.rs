//! What a manager tells an observer: everything that it does, as it does it.
use super::{AllocateError, Allocation, AllocationId, Manager, Rung};
use crate::device::Device;
use crate::pool::{Lane, LaneState, SlotId};
use crate::{Backend, HeapId, Placement, Request, TimelineId};
use alloc::sync::Arc;
use core::fmt;

/// Sees everything that a manager does; set it in [`ManagerConfig`](crate::ManagerConfig).
///
/// Without an observer nothing is paid for: requests take the fast path, which does not know of observers.
///
/// # Contract
///
/// It is called while a lock of the manager is held, so that events come in the order in which they took effect: it
/// must be quick, and must not call the manager. An allocation's events come between its [`Event::Allocate`] and its
/// [`Event::Free`]; a block's allocations come between its [`Event::TakeBlock`] and its [`Event::ReturnBlock`].
pub trait Observer: Send + Sync + fmt::Debug {
    /// Takes note of what happened.
    fn observe(&self, event: &Event<'_>);
}

/// Names one block for as long as the program runs: no later block has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockNumber(pub u64);

/// What gives a block its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backing {
    /// Memory of its own.
    Memory,
    /// Pages that come and go; the block itself is addresses.
    Pages,
}

/// Something that a manager did.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// An allocation began to live.
    Allocate {
        /// Its name for machines.
        id: AllocationId,
        /// What was asked for.
        request: &'a Request<'a>,
        /// The policy's decision, where it was asked; a plain request goes to the usual heap.
        placement: Option<&'a Placement>,
        /// The block that it lies in.
        block: BlockNumber,
        /// Its first byte in the block.
        offset: u64,
    },
    /// An allocation's owner let go of it; timelines may still use the bytes.
    FreeRequested {
        /// The allocation.
        id: AllocationId,
        /// The timeline in whose order it is used.
        timeline: Option<TimelineId>,
    },
    /// An allocation's bytes may be used again.
    Free {
        /// The allocation.
        id: AllocationId,
        /// The timeline in whose order it was used.
        timeline: Option<TimelineId>,
    },
    /// Another timeline uses an allocation.
    Use {
        /// The allocation.
        id: AllocationId,
        /// The timeline.
        timeline: TimelineId,
    },
    /// An allocation got another name.
    Name {
        /// The allocation.
        id: AllocationId,
        /// The name.
        name: &'a str,
    },
    /// Defragmentation moved an allocation.
    Move {
        /// The allocation.
        id: AllocationId,
        /// The block that it lies in now.
        block: BlockNumber,
        /// Its first byte in that block.
        offset: u64,
    },
    /// The driver gave a block.
    TakeBlock {
        /// The block.
        block: BlockNumber,
        /// Its bytes; for one that is made of pages, its addresses.
        size: u64,
        /// The heap.
        heap: HeapId,
        /// Whether the bytes come with it.
        backing: Backing,
        /// Where the device finds it, where it has addresses.
        address: Option<u64>,
    },
    /// The driver gets a block back, as soon as the observer has returned.
    ReturnBlock {
        /// The block.
        block: BlockNumber,
    },
    /// The driver made pages.
    TakePages {
        /// The heap.
        heap: HeapId,
        /// Their bytes.
        bytes: u64,
    },
    /// The driver got pages back.
    ReturnPages {
        /// The heap.
        heap: HeapId,
        /// Their bytes.
        bytes: u64,
    },
    /// A rung of the out-of-memory ladder served a request.
    Climb {
        /// The rung.
        rung: Rung,
        /// Bytes asked for.
        size: u64,
        /// The request's timeline.
        timeline: Option<TimelineId>,
    },
    /// No rung served a request.
    Fail {
        /// Bytes asked for.
        size: u64,
        /// The request's timeline.
        timeline: Option<TimelineId>,
    },
}

/// Says what is rare through `tracing`, under names that stay (`docs/tracing.md`). Allocations and frees that need no
/// driver are for observers only: they are too many.
fn say(event: &Event<'_>) {
    match *event {
        Event::TakeBlock { block: BlockNumber(block), size, heap, backing, .. } => {
            tracing::debug!(name: "omniheap.block.take", target: "omniheap", block, size, heap = heap.0, ?backing);
        }
        Event::ReturnBlock { block: BlockNumber(block) } => {
            tracing::debug!(name: "omniheap.block.return", target: "omniheap", block);
        }
        Event::TakePages { heap, bytes } => {
            tracing::debug!(name: "omniheap.pages.take", target: "omniheap", heap = heap.0, bytes);
        }
        Event::ReturnPages { heap, bytes } => {
            tracing::debug!(name: "omniheap.pages.return", target: "omniheap", heap = heap.0, bytes);
        }
        Event::Climb { rung, size, timeline } => {
            let timeline = timeline.map(|timeline| timeline.0);
            tracing::debug!(name: "omniheap.rung", target: "omniheap", ?rung, size, timeline);
        }
        Event::Fail { size, timeline } => {
            let timeline = timeline.map(|timeline| timeline.0);
            tracing::warn!(name: "omniheap.out_of_memory", target: "omniheap", size, timeline);
        }
        _ => {}
    }
}

impl<B: Backend> Device<B> {
    /// Tells the observer, if there is one, and whoever listens to `tracing`.
    pub(crate) fn tell(&self, event: &Event<'_>) {
        say(event);
        if let Some(observer) = self.observer() {
            observer.observe(event);
        }
    }
}

impl<B: Backend> Lane<B> {
    /// Tells the observer that an allocation was made; from now on its free is told too.
    ///
    /// `state` is the locked state of this lane.
    pub(super) fn tell_allocate(
        &self,
        state: &mut LaneState<B>,
        slot: SlotId,
        request: &Request<'_>,
        placement: Option<&Placement>,
    ) {
        let Some(observer) = self.shared.device.observer() else { return };
        state.slots.watch(slot);
        if let Ok((block, offset)) = state.place_of(slot) {
            let id = self.id_of(slot);
            observer.observe(&Event::Allocate { id, request, placement, block, offset });
        }
    }

    /// Tells the observer that an allocation's bytes are about to be anyone's. `state` is the locked state of this lane.
    pub(crate) fn tell_free(&self, state: &LaneState<B>, slot: SlotId) {
        if let Some(observer) = self.shared.device.observer() {
            let (id, timeline) = (self.id_of(slot), state.home_of(slot));
            observer.observe(&Event::Free { id, timeline });
        }
    }

    /// Tells the observer that an allocation's owner let go of it. `state` is the locked state of this lane.
    pub(super) fn tell_free_requested(&self, state: &LaneState<B>, slot: SlotId) {
        if let Some(observer) = self.shared.device.observer() {
            let (id, timeline) = (self.id_of(slot), state.home_of(slot));
            observer.observe(&Event::FreeRequested { id, timeline });
        }
    }

    /// Tells the observer where an allocation lies after a move. `state` is the locked state of this lane.
    pub(crate) fn tell_move(&self, state: &LaneState<B>, slot: SlotId) {
        let Some(observer) = self.shared.device.observer() else { return };
        // What is not told yet is told where it lies when it is.
        if state.slots.is_watched(slot)
            && let Ok((block, offset)) = state.place_of(slot)
        {
            observer.observe(&Event::Move { id: self.id_of(slot), block, offset });
        }
    }
}

impl<B: Backend> Manager<B> {
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
        let heap = self.inner.plain.as_slice().first()?;
        let pool = self.inner.pools[usize::from(heap.0)].get()?;
        let ask = pool.ask(request).ok()?;
        let lane = pool.known_lane()?;
        let mut state = lane.state.lock_warm();
        let slot = state.allocate(ask).ok()?;
        if is_labelled && state.slots.set_noted(slot).is_ok() {
            state.notes.set_label(slot.index, request);
        }
        lane.tell_allocate(&mut state, slot, request, None);
        Some(Allocation::claim(lane, &mut state, slot, request.layout.size))
    }

    /// Makes the owner of a slot that was just admitted, and tells the observer.
    pub(super) fn claim(
        &self,
        lane: &Arc<Lane<B>>,
        slot: SlotId,
        request: &Request<'_>,
        placement: Option<&Placement>,
    ) -> Allocation<B> {
        let mut state = lane.state.lock();
        lane.tell_allocate(&mut state, slot, request, placement);
        Allocation::claim(lane, &mut state, slot, request.layout.size)
    }

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
}
