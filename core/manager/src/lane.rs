//! One lane of a pool: a lock, a strategy, and the blocks it divides. One thread uses it, on any number of timelines.
//!
//! Everything that the lock guards is private to this module; its files are cut by what they do with it. `pool`, `defrag` and
//! `manager` call methods of [`Lane`].
mod away;
mod blocks;
mod config;
mod extra;
mod free;
mod last_freed;
mod moves;
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
mod table;
mod users;

pub use blocks::Growth;
pub(crate) use config::{MakeStrategy, other};
pub use config::{PoolConfig, StrategyKind, Uses, Waiting};
pub(crate) use extra::Consent;
pub use moves::MoveOutcome;
pub(crate) use moves::{MoveGuard, Presence};
pub(crate) use owned::LaneSlot;
pub(crate) use remote::Reservation;
pub use report::{BlockReport, SpanReport, SpanState, Totals};
pub(crate) use reuse::WaitMode;
pub(crate) use shared::Shared;
pub(crate) use slides::{BegunSlides, Copies};
pub(crate) use snapshot::{Inside, Resident, Scan, SlotsByBlock, Snapshot};
pub(crate) use table::{Cause, REMOTE, SlotId};

use crate::device::Block;
use crate::event::{AllocationId, Event};
use crate::sync::Signal;
use crate::{
    Align, Backend, Class, ErrorKind, Layout, Placement, Request, Sharing, Span, TimelineId,
};
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc, vec::Vec};
use away::Away;
use blocks::{Ration, Thrift};
use core::cell::Cell;
use core::sync::atomic::AtomicU32;
use extra::SlotExtras;
use last_freed::{LastFreed, StateLock};
use omniheap_strategy::pages::Pager;
use omniheap_strategy::{BlockId, Grant, Key, LastUse, Strategy, Tlsf, Usage};
use remote::{FreeOutcome, RemoteSpan};
use reuse::Deferred;
use table::{Slot, Slots};
use users::{User, Users};

/// A rounded layout, the requested bytes, and the timeline that orders their uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) layout: Layout,
    pub(crate) class: Class,
    pub(crate) size: u64,
    pub(crate) timeline: Option<TimelineId>,
}

/// The general-purpose strategy, called directly, or any other.
#[expect(
    clippy::large_enum_variant,
    reason = "one a lane, and the fast path must not chase a pointer"
)]
#[derive(Debug)]
pub(crate) enum Suballocator {
    General(Tlsf),
    Other(Box<dyn Strategy>),
}

impl Suballocator {
    fn as_strategy(&self) -> &dyn Strategy {
        match self {
            Self::General(tlsf) => tlsf,
            Self::Other(other) => other.as_ref(),
        }
    }

    fn as_strategy_mut(&mut self) -> &mut dyn Strategy {
        match self {
            Self::General(tlsf) => tlsf,
            Self::Other(other) => other.as_mut(),
        }
    }

    /// Frees a span that was not used since it was taken.
    #[inline]
    fn free(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        match self {
            Self::General(tlsf) => tlsf.free(key),
            Self::Other(other) => other.free(key),
        }
    }

    /// Bytes in holes, and bytes of all blocks.
    fn free_and_total(&self) -> (u64, u64) {
        match self {
            Self::General(tlsf) => (tlsf.free_bytes(), tlsf.total_bytes()),
            Self::Other(other) => {
                let usage = other.usage();
                (usage.free, usage.total)
            }
        }
    }

    /// The general-purpose strategy, where it is the one in use.
    const fn general(&mut self) -> Option<&mut Tlsf> {
        match self {
            Self::General(tlsf) => Some(tlsf),
            Self::Other(_) => None,
        }
    }
}

/// Counters of a lane; sums of bytes are of what callers asked for unless they say otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    live_bytes: u64,
    granted_bytes: u64,
    peak_live_bytes: u64,
    /// The most that owners had at a time, without what was freed and waited for a timeline.
    peak_owned_bytes: u64,
    /// The lower of the two peaks. What is owned is never more than what lives: up to here neither peak rises.
    lower_peak: u64,
    allocated: u64,
    freed: u64,
}

impl Counts {
    /// Notes new peaks; `deferred` bytes were freed and wait for a timeline.
    fn raise_peaks(&mut self, deferred: u64) {
        let owned = self.live_bytes.saturating_sub(deferred);
        self.peak_live_bytes = self.peak_live_bytes.max(self.live_bytes);
        self.peak_owned_bytes = self.peak_owned_bytes.max(owned);
        self.lower_peak = self.peak_live_bytes.min(self.peak_owned_bytes);
    }

    /// Allocations that are live or wait for a timeline.
    const fn live(&self) -> u64 {
        self.allocated - self.freed
    }

    /// Requests served so far.
    const fn operations(&self) -> u64 {
        self.allocated + self.freed
    }
}

/// A block of a lane.
struct Held<B: Backend> {
    block: Arc<Block<B>>,
    /// Who used any of its holes last, where the strategy does not know that of each.
    last_use: LastUse,
    sharing: Sharing,
}

/// What the lock guards.
struct State<B: Backend> {
    suballocator: Suballocator,
    blocks: Vec<Option<Held<B>>>,
    slots: Slots,
    extras: SlotExtras,
    deferred: Deferred,
    /// Where allocations lie whose bytes are in another lane, by slot.
    remote: BTreeMap<u32, RemoteSpan<B>>,
    counts: Counts,
    ration: Ration,
    thrift: Thrift,
    pager: Option<Pager>,
    /// The span that was freed last, until something else than a request of its size comes.
    last_freed: Option<LastFreed>,
    /// What a lane without memory remembers, from the start of a sleep to the end of a wake. No hole is granted meanwhile.
    away: Option<Away>,
    /// Bytes of the strategy that a defragmentation pass holds.
    held_bytes: u64,
    /// Allocations that callers own: together they keep the lane alive.
    owners: u64,
    /// The timelines that use its bytes.
    users: Users,
}

/// One lane.
pub(crate) struct Lane<B: Backend> {
    pub(crate) shared: Arc<Shared<B>>,
    /// Tells lanes of one manager apart.
    pub(crate) number: u32,
    /// The manager, by number.
    pub(crate) manager: u32,
    state: StateLock<B>,
    /// Requests that other lanes served since this one last thought of a block of its own.
    borrowed: AtomicU32,
    /// Raised when allocations that were moving have arrived.
    moved: Signal,
}

/// Why the fast path did not serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FastPathMiss {
    /// The strategy's answer.
    Refused(ErrorKind),
    /// A hole fits, but an empty block would be broken for it: a block of the right size is better.
    WouldBreak,
    /// A hole fits, but others may still use it; or the timeline is not known here.
    InUse(LastUse),
}

impl<B: Backend> State<B> {
    fn new(suballocator: Suballocator, uses: Uses) -> Self {
        Self {
            suballocator,
            blocks: Vec::new(),
            slots: Slots::new(),
            extras: SlotExtras::new(),
            deferred: Deferred::new(),
            remote: BTreeMap::new(),
            counts: Counts::default(),
            ration: Ration::NEW,
            thrift: Thrift::OFF,
            pager: None,
            last_freed: None,
            away: None,
            held_bytes: 0,
            owners: 0,
            users: Users::new(uses),
        }
    }

    /// The fast path: a span of what the lane holds.
    #[inline]
    fn allocate(&mut self, ask: Ask) -> Result<SlotId, FastPathMiss> {
        self.slots.reserve().map_err(FastPathMiss::Refused)?;
        let user = self.users.find(ask.timeline).ok_or(FastPathMiss::InUse(LastUse::NONE))?;
        if let Some(grant) = self.take_last_freed(ask, user) {
            return Ok(self.admit(grant, ask.size, ask.layout.align, user));
        }
        self.allocate_hole(ask, user)
    }

    /// Takes a hole; a slot is reserved.
    #[inline(never)]
    fn allocate_hole(&mut self, ask: Ask, user: User) -> Result<SlotId, FastPathMiss> {
        if !self.users.is_alone(user) {
            return self.allocate_beside_others(ask, user);
        }
        let grant = match &mut self.suballocator {
            Suballocator::General(tlsf) => tlsf.allocate(ask.layout, ask.class),
            Suballocator::Other(other) => other.allocate(ask.layout, ask.class),
        };
        let grant = grant.map_err(FastPathMiss::Refused)?;
        self.admit_unless_broken(grant, ask, user)
    }

    /// As [`allocate`](Self::allocate), where other timelines may still use some holes.
    fn allocate_beside_others(&mut self, ask: Ask, user: User) -> Result<SlotId, FastPathMiss> {
        // The first hole that fits but is in use: the one to ask about.
        let in_use = Cell::new(LastUse::NONE);
        let grant = match &mut self.suballocator {
            Suballocator::General(tlsf) => tlsf.allocate_where(ask.layout, ask.class, |last| {
                let may = self.users.may(user, last);
                if !may && in_use.get() == LastUse::NONE {
                    in_use.set(last);
                }
                may
            }),
            Suballocator::Other(_) => {
                in_use.set(LastUse::SEVERAL);
                self.search(ask, user)
            }
        };
        let grant = grant.map_err(|_| FastPathMiss::InUse(in_use.get()))?;
        self.admit_unless_broken(grant, ask, user)
    }

    /// A span of the lane that a user may have at once, wherever it is.
    fn search(&mut self, ask: Ask, user: User) -> Result<Grant, ErrorKind> {
        let users = &self.users;
        match &mut self.suballocator {
            Suballocator::General(tlsf) => {
                tlsf.search_where(ask.layout, ask.class, |last| users.may(user, last))
            }
            Suballocator::Other(other) => {
                let grant = other.allocate(ask.layout, ask.class)?;
                let held = self.blocks[grant.block.0 as usize].as_ref();
                if held.is_some_and(|held| users.may(user, held.last_use)) {
                    return Ok(grant);
                }
                other.free(grant.key)?;
                Err(ErrorKind::OutOfDeviceMemory)
            }
        }
    }

    #[inline]
    fn admit_unless_broken(
        &mut self,
        grant: Grant,
        ask: Ask,
        user: User,
    ) -> Result<SlotId, FastPathMiss> {
        if self.thrift.is_on(self.counts.granted_bytes) && self.breaks_a_block(grant, ask) {
            return Err(FastPathMiss::WouldBreak);
        }
        Ok(self.admit(grant, ask.size, ask.layout.align, user))
    }

    /// As [`allocate`](Self::allocate), breaking whatever fits and looking at every hole.
    fn allocate_usable(&mut self, ask: Ask) -> Result<SlotId, ErrorKind> {
        self.slots.reserve()?;
        let user = self.enter(ask.timeline)?;
        let grant = self.search(ask, user)?;
        Ok(self.admit(grant, ask.size, ask.layout.align, user))
    }

    /// Undoes a grant that would break a large empty block, if the ration allows a better one.
    fn breaks_a_block(&mut self, grant: Grant, ask: Ask) -> bool {
        let Suballocator::General(tlsf) = &mut self.suballocator else { return false };
        let Some(left) = tlsf.free_beside_only(grant.key) else { return false };
        let operations = self.counts.operations();
        if !self.thrift.keeps_whole(ask.layout.size, left, self.counts.granted_bytes)
            || !self.ration.allows_exchange(operations)
        {
            return false;
        }
        tlsf.free(grant.key).is_ok()
    }

    /// Takes whatever fits, also what other timelines may still use: see [`last_use`](Self::last_use).
    fn allocate_anyhow(&mut self, ask: Ask) -> Result<SlotId, ErrorKind> {
        self.slots.reserve()?;
        let user = self.enter(ask.timeline)?;
        if let Suballocator::General(tlsf) = &mut self.suballocator {
            // This request runs after all users, so holes need not be kept apart, and long holes waste less.
            tlsf.merge_touching();
        }
        let grant = self.suballocator.as_strategy_mut().allocate(ask.layout, ask.class)?;
        Ok(self.admit(grant, ask.size, ask.layout.align, user))
    }

    /// Takes back an allocation that was not used.
    fn withdraw(&mut self, id: SlotId) -> Result<(), ErrorKind> {
        let key = self.slots.get(id)?.key;
        let grant = self.suballocator.free(key)?;
        let slot = self.slots.remove(id)?;
        self.users.leave(slot.user);
        self.counts.allocated -= 1;
        self.counts.live_bytes -= slot.size;
        self.counts.granted_bytes -= grant.span.size;
        Ok(())
    }

    /// Makes a granted span a live allocation; a slot was reserved.
    #[inline]
    fn admit(&mut self, grant: Grant, size: u64, align: Align, user: User) -> SlotId {
        self.users.admit(user);
        let counts = &mut self.counts;
        counts.allocated += 1;
        counts.live_bytes += size;
        counts.granted_bytes += grant.span.size;
        if counts.live_bytes > counts.lower_peak {
            counts.raise_peaks(self.deferred.bytes());
        }
        self.slots.insert(grant.key, size, align, user)
    }

    /// Frees an allocation at once. Returns its block when that was made for it alone, and its place in another lane.
    #[inline]
    fn free(&mut self, id: SlotId) -> Result<Option<FreeOutcome<B>>, ErrorKind> {
        match self.slots.end_ownership(id)? {
            Some(key) => self.finish(id, key),
            None => Ok(None),
        }
    }

    /// Frees an allocation of which nothing more is known than its bytes; `false` where that is not so.
    #[inline]
    fn free_plain(&mut self, id: SlotId) -> bool {
        let Some((key, size, user)) = self.slots.take_plain(id) else { return false };
        let granted = self.keep_last_freed(key, user).expect("a live slot has a live span");
        self.users.leave(user);
        self.counts.freed += 1;
        self.counts.live_bytes -= size;
        self.counts.granted_bytes -= granted;
        true
    }

    /// Gives a span back that was used last as said.
    fn release(&mut self, key: Key, last: LastUse) -> Result<Grant, ErrorKind> {
        match &mut self.suballocator {
            Suballocator::General(tlsf) => tlsf.free_used(key, last),
            Suballocator::Other(other) => {
                let grant = other.free(key)?;
                let held = self.blocks[grant.block.0 as usize].as_mut();
                let held = held.expect("a live span's block is held");
                held.last_use = held.last_use.join(last);
                Ok(grant)
            }
        }
    }

    /// Frees an allocation that was deferred and whose timelines have passed.
    fn free_deferred(&mut self, id: SlotId) -> Option<FreeOutcome<B>> {
        let key = self.slots.deferred_key(id)?;
        self.finish(id, key).ok().flatten()
    }

    #[inline]
    fn finish(&mut self, id: SlotId, key: Key) -> Result<Option<FreeOutcome<B>>, ErrorKind> {
        if key == REMOTE {
            return self.free_remote(id);
        }
        // What the host accessed waited for all its users.
        let user = if self.has_host_access(id) { User::HOST } else { self.slots.user(id)? };
        let last = self.users.free(user);
        self.end(id, key, last)
    }

    /// Ends an allocation whose bytes were used last as said.
    fn end(
        &mut self,
        id: SlotId,
        key: Key,
        last: LastUse,
    ) -> Result<Option<FreeOutcome<B>>, ErrorKind> {
        let grant = self.release(key, last)?;
        let slot = self.slots.remove(id)?;
        let privacy = self.privacy(id, &slot);
        self.users.leave(slot.user);
        if slot.has_extra() {
            self.extras.forget(id.index);
        }
        let counts = &mut self.counts;
        counts.freed += 1;
        counts.live_bytes -= slot.size;
        counts.granted_bytes -= grant.span.size;
        let held = self.blocks[grant.block.0 as usize].as_ref();
        Ok(match held.expect("a live span's block is held").sharing {
            Sharing::Shared if slot.is_away() => self.stored(id, grant.span, privacy),
            Sharing::Shared => None,
            Sharing::Dedicated => self.remove_block(grant.block).map(FreeOutcome::Block),
        })
    }

    /// Adds a block to divide.
    fn add_block(&mut self, block: Arc<Block<B>>, sharing: Sharing) -> Result<BlockId, ErrorKind> {
        self.blocks.try_reserve(1).map_err(|_| ErrorKind::OutOfHostMemory)?;
        let id = self.suballocator.as_strategy_mut().add_block(block.size())?;
        let at = id.0 as usize;
        if at == self.blocks.len() {
            self.blocks.push(None);
        }
        self.blocks[at] = Some(Held { block, last_use: LastUse::NONE, sharing });
        Ok(id)
    }

    /// Takes an empty block away.
    fn remove_block(&mut self, id: BlockId) -> Option<Arc<Block<B>>> {
        self.suballocator.as_strategy_mut().remove_block(id).ok()?;
        self.blocks[id.0 as usize].take().map(|held| held.block)
    }

    /// Whether an allocation that was freed and waits has a block of its own.
    fn is_alone(&self, id: SlotId) -> bool {
        let block = self.slots.deferred_key(id).and_then(|key| {
            self.suballocator.as_strategy().grant(key).ok().map(|grant| grant.block)
        });
        let held = block.and_then(|block| self.blocks[block.0 as usize].as_ref());
        held.is_none_or(|held| held.sharing == Sharing::Dedicated)
    }

    /// The block of what is in a slot, and everything that it occupies there, padding included.
    #[inline]
    fn spot(&self, id: SlotId, slot: &Slot) -> Result<(&Arc<Block<B>>, Span), ErrorKind> {
        if let Some(remote) = self.remote.get(&id.index) {
            return Ok((&remote.block, remote.span));
        }
        let grant = match &self.suballocator {
            Suballocator::General(tlsf) => tlsf.grant(slot.key),
            Suballocator::Other(other) => other.grant(slot.key),
        }?;
        let held =
            self.blocks[grant.block.0 as usize].as_ref().expect("a live span's block is held");
        Ok((&held.block, grant.span))
    }

    /// Where an allocation is.
    fn locate(&self, id: SlotId) -> Result<(Arc<Block<B>>, Span), ErrorKind> {
        let slot = self.slots.get(id)?;
        let (block, Span { offset, .. }) = self.spot(id, slot)?;
        Ok((Arc::clone(block), Span { offset, size: slot.size }))
    }

    /// Everything that an allocation occupies, padding included.
    fn granted(&self, id: SlotId) -> Result<Span, ErrorKind> {
        Ok(self.spot(id, self.slots.get(id)?)?.1)
    }

    /// Where an allocation is, in an observer's words.
    fn place_of(&self, id: SlotId) -> Result<(crate::event::BlockNumber, u64), ErrorKind> {
        let (block, span) = self.spot(id, self.slots.get(id)?)?;
        Ok((block.number(), span.offset))
    }

    /// Returns the timeline that orders the uses of an allocation, if it has one.
    fn home_of(&self, id: SlotId) -> Option<TimelineId> {
        self.users.timeline(self.slots.user(id).ok()?)
    }

    /// Whether the host accesses an allocation's bytes directly.
    fn has_host_access(&self, id: SlotId) -> bool {
        self.extras.get(id.index).is_some_and(|note| note.host_access)
    }

    /// Who used the bytes of an allocation before it had them.
    fn last_use(&self, id: SlotId) -> LastUse {
        let Ok(slot) = self.slots.get(id) else { return LastUse::NONE };
        let last = match &self.suballocator {
            Suballocator::General(tlsf) => tlsf.last_use(slot.key),
            Suballocator::Other(other) => other.grant(slot.key).map(|grant| {
                let held = self.blocks[grant.block.0 as usize].as_ref();
                held.map_or(LastUse::NONE, |held| held.last_use)
            }),
        };
        last.unwrap_or(LastUse::NONE)
    }

    /// Notes that everything that was freed up to a time has passed.
    fn pass_all(&mut self, time: u64) {
        self.users.pass_all(time);
        self.forget_passed();
    }

    /// Tells the strategy how much has passed.
    fn forget_passed(&mut self) {
        let passed = self.users.passed();
        if let Suballocator::General(tlsf) = &mut self.suballocator {
            tlsf.set_passed(passed);
        }
    }

    /// Whether nothing is live in a block, and nothing on the device uses it.
    fn is_returnable(&self, id: BlockId, held: &Held<B>) -> bool {
        let last = match &self.suballocator {
            Suballocator::General(tlsf) => tlsf.last_use_of_empty(id),
            Suballocator::Other(other) => other.is_empty(id).then_some(held.last_use),
        };
        self.pager.is_none() && last.is_some_and(|last| self.users.may(User::HOST, last))
    }

    /// Empty blocks that can be returned to the driver, with their sizes.
    fn empty_blocks(&self) -> Vec<(u64, BlockId)> {
        let ids = (0u32..).map(BlockId).zip(&self.blocks);
        let empty = ids.filter_map(|(id, held)| {
            let held = held.as_ref()?;
            self.is_returnable(id, held).then_some((held.block.size(), id))
        });
        empty.collect()
    }

    fn usage(&self) -> Usage {
        self.suballocator.as_strategy().usage()
    }
}

impl<B: Backend> Lane<B> {
    pub(crate) fn new(
        shared: Arc<Shared<B>>,
        suballocator: Suballocator,
        manager: u32,
        number: u32,
    ) -> Self {
        let state = StateLock::new(State::new(suballocator, shared.config.uses));
        Self {
            shared,
            number,
            manager,
            state,
            borrowed: AtomicU32::new(0),
            moved: Signal::default(),
        }
    }

    /// A hole that is free now.
    pub(crate) fn find_hole(&self, ask: Ask) -> Result<SlotId, FastPathMiss> {
        let mut state = self.state.lock();
        state.check_awake().map_err(FastPathMiss::Refused)?;
        state.allocate(ask)
    }

    /// As [`find_hole`](Self::find_hole), breaking whatever fits and looking at every hole.
    pub(crate) fn find_any_hole(&self, ask: Ask) -> Result<SlotId, ErrorKind> {
        self.state.lock().allocate_usable(ask)
    }

    /// Whether a hole that is held fits.
    pub(crate) fn would_fit(&self, ask: Ask) -> bool {
        let mut state = self.state.lock();
        if state.away.is_some() {
            return false;
        }
        match state.suballocator.general() {
            Some(tlsf) => tlsf.would_fit(ask.layout, ask.class),
            None => state.usage().largest_hole >= ask.layout.size,
        }
    }

    /// Takes exactly `span` of the lane's first block.
    ///
    /// # Errors
    ///
    /// `InUse` when the bytes may still be used by another timeline; otherwise as
    /// [`TakeSpan::take`](omniheap_strategy::TakeSpan::take), and `Unsupported` where the strategy does not take spans.
    pub(crate) fn take_span(
        &self,
        span: Span,
        align: Align,
        timeline: Option<TimelineId>,
    ) -> Result<SlotId, FastPathMiss> {
        self.state.lock().take(span, align, timeline)
    }

    /// Frees a slot without an owner.
    pub(crate) fn free_unowned(&self, slot: SlotId) {
        let freed = self.state.lock().free(slot);
        self.shared.give_back_freed(freed.ok().flatten());
    }

    /// Bytes that live allocations occupy, rounding included.
    pub(crate) fn granted_bytes(&self) -> u64 {
        self.state.lock().counts.granted_bytes
    }

    /// The lane's time: it goes on with each free of bytes that a timeline used.
    pub(crate) fn clock(&self) -> u64 {
        self.state.lock().users.clock()
    }

    /// Whether nothing lives in the lane or waits for a timeline.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.lock().counts.live() == 0
    }

    /// Blocks that the lane has had at once.
    pub(crate) fn block_count(&self) -> usize {
        self.state.lock().blocks.len()
    }

    /// Counts peaks from now on.
    pub(crate) fn reset_peaks(&self) {
        let counts = &mut self.state.lock().counts;
        counts.peak_live_bytes = counts.live_bytes;
        counts.lower_peak = counts.live_bytes.min(counts.peak_owned_bytes);
    }

    /// The name of the allocation in a slot.
    pub(crate) const fn id_of(&self, slot: SlotId) -> AllocationId {
        AllocationId {
            manager: self.manager,
            lane: self.number,
            slot: slot.index,
            generation: slot.generation,
        }
    }

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
        state.slots.set_observed(slot);
        if let Ok((block, offset)) = state.place_of(slot) {
            let id = self.id_of(slot);
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
        // What is not told yet is told where it lies when it is.
        if state.slots.is_observed(slot)
            && let Ok((block, offset)) = state.place_of(slot)
        {
            observer.observe(&Event::Move { id: self.id_of(slot), block, offset });
        }
    }
}

impl<B: Backend> State<B> {
    fn take(
        &mut self,
        span: Span,
        align: Align,
        timeline: Option<TimelineId>,
    ) -> Result<SlotId, FastPathMiss> {
        self.slots.reserve().map_err(FastPathMiss::Refused)?;
        let user = self.enter(timeline).map_err(FastPathMiss::Refused)?;
        let last = self.blocks.first().and_then(Option::as_ref).map(|held| held.last_use);
        if let Some(last) = last.filter(|last| !self.users.may(user, *last)) {
            return Err(FastPathMiss::InUse(last));
        }
        let take = self.suballocator.as_strategy_mut().as_take();
        let take = take.ok_or(FastPathMiss::Refused(ErrorKind::Unsupported))?;
        let grant = take.take(BlockId(0), span).map_err(FastPathMiss::Refused)?;
        Ok(self.admit(grant, span.size, align, user))
    }
}
