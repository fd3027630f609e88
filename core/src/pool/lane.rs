//! One lane of a pool: a lock, a strategy, and the blocks it divides. One thread or one timeline uses it.
#![forbid(unsafe_code)]
use super::deferred::Deferred;
use super::growth::{Ration, Thrift};
use super::guest::{ELSEWHERE, Guest, Left};
use super::notes::{Home, Notes};
use super::pager::Pager;
use super::shared::Shared;
use super::slots::{Ended, Noted, Slot, SlotId, Slots};
use super::warm::{StateLock, Warm};
use crate::device::Block;
use crate::strategy::{BlockId, Grant, Key, Strategy, Tlsf, Usage};
use crate::sync::Signal;
use crate::{Align, Backend, Class, Epoch, ErrorKind, Layout, Sharing, Span, TimelineId};
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc, vec::Vec};
use core::sync::atomic::AtomicU32;

/// A rounded layout, and the bytes that were really asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) layout: Layout,
    pub(crate) class: Class,
    pub(crate) size: u64,
}

impl Ask {
    /// How many requests this is whose alignment must be noted: one, where it is above the pool's own.
    pub(crate) fn unsettled(&self, unit: Align) -> u64 {
        u64::from(self.layout.align > unit)
    }
}

/// The general-purpose strategy, called directly, or any other.
#[expect(
    clippy::large_enum_variant,
    reason = "one a lane, and the fast path must not chase a pointer"
)]
#[derive(Debug)]
pub(crate) enum Divider {
    General(Tlsf),
    Other(Box<dyn Strategy>),
}

impl Divider {
    pub(crate) fn as_strategy(&self) -> &dyn Strategy {
        match self {
            Self::General(tlsf) => tlsf,
            Self::Other(other) => other.as_ref(),
        }
    }

    pub(crate) fn as_strategy_mut(&mut self) -> &mut dyn Strategy {
        match self {
            Self::General(tlsf) => tlsf,
            Self::Other(other) => other.as_mut(),
        }
    }

    #[inline]
    pub(crate) fn free(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        match self {
            Self::General(tlsf) => tlsf.free(key),
            Self::Other(other) => other.free(key),
        }
    }

    /// Bytes in holes, and bytes of all blocks.
    pub(crate) fn free_and_total(&self) -> (u64, u64) {
        match self {
            Self::General(tlsf) => (tlsf.free_bytes(), tlsf.total_bytes()),
            Self::Other(other) => {
                let usage = other.usage();
                (usage.free, usage.total)
            }
        }
    }

    /// The general-purpose strategy, where it is the one in use.
    pub(crate) const fn general(&mut self) -> Option<&mut Tlsf> {
        match self {
            Self::General(tlsf) => Some(tlsf),
            Self::Other(_) => None,
        }
    }
}

/// Counters of a lane; sums of bytes are of what callers asked for unless they say otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) live_bytes: u64,
    pub(crate) granted_bytes: u64,
    pub(crate) peak_live_bytes: u64,
    pub(crate) allocated: u64,
    pub(crate) freed: u64,
}

impl Counts {
    /// Allocations that are live or wait for a timeline.
    pub(crate) const fn live(&self) -> u64 {
        self.allocated - self.freed
    }

    /// Requests served so far.
    pub(crate) const fn operations(&self) -> u64 {
        self.allocated + self.freed
    }
}

/// A block of a lane, and the free after which nobody has touched its holes.
pub(crate) struct Held<B: Backend> {
    pub(crate) block: Arc<Block<B>>,
    pub(crate) last_free: u64,
    pub(crate) sharing: Sharing,
}

/// What the lock guards.
pub(crate) struct State<B: Backend> {
    pub(crate) divider: Divider,
    pub(crate) blocks: Vec<Option<Held<B>>>,
    pub(crate) slots: Slots,
    pub(crate) notes: Notes,
    pub(crate) deferred: Deferred,
    /// Where allocations lie whose bytes are in another lane, by slot.
    pub(crate) guests: BTreeMap<u32, Guest<B>>,
    pub(crate) counts: Counts,
    pub(crate) ration: Ration,
    pub(crate) thrift: Thrift,
    pub(crate) pager: Option<Pager>,
    /// The span that was freed last, until something else than a request of its size comes.
    pub(super) warm: Option<Warm>,
    /// Bytes of the strategy that a defragmentation pass holds.
    pub(crate) held_bytes: u64,
    /// Allocations that callers own: together they keep the lane alive.
    pub(crate) owners: u64,
    /// Frees so far: the lane's own clock.
    pub(crate) clock: u64,
    /// Everything freed up to this reading of the clock is out of use on the device.
    pub(crate) quiet: u64,
    /// A reading of the clock, and the epoch that makes it quiet.
    pub(crate) marked: Option<(u64, Epoch)>,
}

/// One lane.
pub(crate) struct Lane<B: Backend> {
    pub(crate) shared: Arc<Shared<B>>,
    /// The timeline whose order makes reuse at once legal; `None` where callers free only what is out of use.
    pub(crate) timeline: Option<TimelineId>,
    /// Tells lanes of one manager apart.
    pub(crate) number: u32,
    /// The manager, by number.
    pub(crate) manager: u32,
    pub(crate) state: StateLock<B>,
    /// Raised when allocations that were moving have arrived.
    pub(crate) moved: Signal,
    /// How often this lane has looked for a hole in others since pages were last mapped for it.
    pub(crate) borrowing: AtomicU32,
}

/// Why the fast path did not serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    /// The strategy's answer.
    Refused(ErrorKind),
    /// A hole fits, but an empty block would be broken for it: a block of the right size is better.
    WouldBreak,
}

impl<B: Backend> State<B> {
    pub(crate) const fn new(divider: Divider) -> Self {
        Self {
            divider,
            blocks: Vec::new(),
            slots: Slots::new(),
            notes: Notes::new(),
            deferred: Deferred::new(),
            guests: BTreeMap::new(),
            counts: Counts {
                live_bytes: 0,
                granted_bytes: 0,
                peak_live_bytes: 0,
                allocated: 0,
                freed: 0,
            },
            ration: Ration::NEW,
            thrift: Thrift::OFF,
            pager: None,
            warm: None,
            held_bytes: 0,
            owners: 0,
            clock: 0,
            quiet: 0,
            marked: None,
        }
    }

    /// The fast path: a span of what the lane holds.
    #[inline]
    pub(crate) fn allocate(&mut self, ask: Ask) -> Result<SlotId, Miss> {
        self.slots.reserve().map_err(Miss::Refused)?;
        if let Some(grant) = self.take_warm(ask) {
            return Ok(self.admit(grant, ask.size));
        }
        let grant = match &mut self.divider {
            Divider::General(tlsf) => tlsf.allocate(ask.layout, ask.class),
            Divider::Other(other) => other.allocate(ask.layout, ask.class),
        };
        let grant = grant.map_err(Miss::Refused)?;
        if self.thrift.is_on(self.counts.granted_bytes) && self.breaks_a_block(grant, ask) {
            return Err(Miss::WouldBreak);
        }
        Ok(self.admit(grant, ask.size))
    }

    /// Undoes a grant that would break a large empty block, if the ration allows a better one.
    fn breaks_a_block(&mut self, grant: Grant, ask: Ask) -> bool {
        let Divider::General(tlsf) = &mut self.divider else { return false };
        let Some(left) = tlsf.free_beside_only(grant.key) else { return false };
        let operations = self.counts.operations();
        if !self.thrift.keeps_whole(ask.layout.size, left)
            || !self.ration.allows_exchange(operations)
        {
            return false;
        }
        tlsf.free(grant.key).is_ok()
    }

    /// As [`allocate`](Self::allocate), breaking whatever fits.
    pub(crate) fn allocate_anyhow(&mut self, ask: Ask) -> Result<SlotId, ErrorKind> {
        self.slots.reserve()?;
        let grant = self.divider.as_strategy_mut().allocate(ask.layout, ask.class)?;
        Ok(self.admit(grant, ask.size))
    }

    /// Makes a granted span a live allocation; a slot was reserved.
    #[inline]
    pub(crate) fn admit(&mut self, grant: Grant, size: u64) -> SlotId {
        let counts = &mut self.counts;
        counts.allocated += 1;
        counts.live_bytes += size;
        counts.granted_bytes += grant.span.size;
        counts.peak_live_bytes = counts.peak_live_bytes.max(counts.live_bytes);
        self.slots.insert(grant.key, size)
    }

    /// Frees an allocation at once. Returns its block when that was made for it alone, and its place in another lane.
    #[inline]
    pub(crate) fn free(&mut self, id: SlotId) -> Result<Option<Left<B>>, ErrorKind> {
        match self.slots.end_ownership(id)? {
            Ended::Now(key) => self.finish(id, key),
            Ended::AfterMove => Ok(None),
        }
    }

    /// Frees an allocation of which nothing more is known than its bytes; `false` where that is not so.
    #[inline]
    pub(crate) fn free_plain(&mut self, id: SlotId, timeline: Option<TimelineId>) -> bool {
        let Some((key, size)) = self.slots.take_plain(id) else { return false };
        let grant = self.keep_warm(key).expect("a live slot has a live span");
        self.counts.freed += 1;
        self.counts.live_bytes -= size;
        self.counts.granted_bytes -= grant.span.size;
        if timeline.is_some() {
            self.clock += 1;
            let held = self.blocks[grant.block.0 as usize].as_mut();
            held.expect("a live span's block is held").last_free = self.clock;
        }
        true
    }

    /// Frees an allocation that was deferred and whose timelines have passed.
    pub(crate) fn free_deferred(&mut self, id: SlotId) -> Option<Left<B>> {
        let key = self.slots.deferred_key(id)?;
        self.finish(id, key).ok().flatten()
    }

    #[inline]
    fn finish(&mut self, id: SlotId, key: Key) -> Result<Option<Left<B>>, ErrorKind> {
        if key == ELSEWHERE {
            return self.see_off(id);
        }
        let grant = self.divider.free(key)?;
        let slot = self.slots.remove(id)?;
        if matches!(slot.noted, Noted::Yes | Noted::YesAndWatched) {
            self.notes.forget(id.index);
        }
        let counts = &mut self.counts;
        counts.freed += 1;
        counts.live_bytes -= slot.size;
        counts.granted_bytes -= grant.span.size;
        self.clock += 1;
        let held =
            self.blocks[grant.block.0 as usize].as_mut().expect("a live span's block is held");
        held.last_free = self.clock;
        Ok(match held.sharing {
            Sharing::Shared => None,
            Sharing::Dedicated => self.remove_block(grant.block).map(Left::Block),
        })
    }

    /// Adds a block to divide.
    pub(crate) fn add_block(
        &mut self,
        block: Arc<Block<B>>,
        sharing: Sharing,
    ) -> Result<BlockId, ErrorKind> {
        self.blocks.try_reserve(1).map_err(|_| ErrorKind::OutOfHostMemory)?;
        let id = self.divider.as_strategy_mut().add_block(block.size())?;
        let at = id.0 as usize;
        if at == self.blocks.len() {
            self.blocks.push(None);
        }
        // Nothing was freed in it yet, so nothing on the device uses it.
        self.blocks[at] = Some(Held { block, last_free: 0, sharing });
        Ok(id)
    }

    /// Takes an empty block away.
    pub(crate) fn remove_block(&mut self, id: BlockId) -> Option<Arc<Block<B>>> {
        self.divider.as_strategy_mut().remove_block(id).ok()?;
        self.blocks[id.0 as usize].take().map(|held| held.block)
    }

    /// Whether an allocation that was freed and waits has a block of its own.
    pub(crate) fn is_alone(&self, id: SlotId) -> bool {
        let block = self
            .slots
            .deferred_key(id)
            .and_then(|key| self.divider.as_strategy().grant(key).ok().map(|grant| grant.block));
        let held = block.and_then(|block| self.blocks[block.0 as usize].as_ref());
        held.is_none_or(|held| held.sharing == Sharing::Dedicated)
    }

    /// The block of what is in a slot, and everything that it occupies there, padding included.
    pub(crate) fn spot(
        &self,
        id: SlotId,
        slot: &Slot,
    ) -> Result<(&Arc<Block<B>>, Span), ErrorKind> {
        if let Some(guest) = self.guests.get(&id.index) {
            return Ok((&guest.block, guest.span));
        }
        let grant = match &self.divider {
            Divider::General(tlsf) => tlsf.grant(slot.key),
            Divider::Other(other) => other.grant(slot.key),
        }?;
        let held =
            self.blocks[grant.block.0 as usize].as_ref().expect("a live span's block is held");
        Ok((&held.block, grant.span))
    }

    /// Where an allocation is.
    pub(crate) fn locate(&self, id: SlotId) -> Result<(Arc<Block<B>>, Span), ErrorKind> {
        let slot = self.slots.get(id)?;
        let (block, Span { offset, .. }) = self.spot(id, slot)?;
        Ok((Arc::clone(block), Span { offset, size: slot.size }))
    }

    /// Everything that an allocation occupies, padding included.
    pub(crate) fn granted(&self, id: SlotId) -> Result<Span, ErrorKind> {
        Ok(self.spot(id, self.slots.get(id)?)?.1)
    }

    /// Where an allocation is, in an observer's words.
    pub(crate) fn place_of(&self, id: SlotId) -> Result<(crate::BlockNumber, u64), ErrorKind> {
        let (block, span) = self.spot(id, self.slots.get(id)?)?;
        Ok((block.number(), span.offset))
    }

    /// The timeline in whose order an allocation's bytes are used, if it has one. `lane` is that of this lane.
    pub(crate) fn home(&self, lane: Option<TimelineId>, slot: u32) -> Option<TimelineId> {
        match self.notes.get(slot).and_then(|note| note.home) {
            Some(Home::Timeline(home)) => Some(home),
            Some(Home::Host) => None,
            None => lane,
        }
    }

    /// Notes that the host accesses an allocation's bytes directly; nothing on the device uses them now.
    pub(crate) fn set_host_access(&mut self, id: SlotId) {
        if self.slots.set_noted(id).is_ok() {
            self.notes.of(id.index).host_access = true;
        }
    }

    /// Counts work of the manager itself on an allocation as a use that has to pass, as a free would.
    pub(crate) fn touch(&mut self, id: SlotId) {
        let key = self.slots.get(id).map(|slot| slot.key);
        let Ok(grant) = key.and_then(|key| self.divider.as_strategy().grant(key)) else { return };
        self.clock += 1;
        if let Some(held) = self.blocks[grant.block.0 as usize].as_mut() {
            held.last_free = self.clock;
        }
    }

    /// Whether the device may still use the bytes of an allocation on behalf of earlier owners. `lane` is that of this lane.
    pub(crate) fn may_be_in_use(&self, lane: Option<TimelineId>, id: SlotId) -> bool {
        if self.notes.get(id.index).is_some_and(|note| note.host_access) {
            return false;
        }
        // Bytes that are in another lane were copied there, after everything that used their place.
        let key = self.slots.get(id).map(|slot| slot.key);
        let grant = key.and_then(|key| self.divider.as_strategy().grant(key));
        grant.is_ok_and(|grant| !self.is_quiet(lane, grant.block))
    }

    /// Whether nothing on the device uses a block's holes any more.
    pub(crate) fn is_quiet(&self, lane: Option<TimelineId>, id: BlockId) -> bool {
        let held = self.blocks.get(id.0 as usize).and_then(Option::as_ref);
        lane.is_none() || held.is_some_and(|held| held.last_free <= self.quiet)
    }

    /// Empty blocks that can be returned to the driver, with their sizes.
    pub(crate) fn empty_blocks(&self, lane: Option<TimelineId>) -> Vec<(u64, BlockId)> {
        let strategy = self.divider.as_strategy();
        let ids = (0u32..).map(BlockId).zip(&self.blocks);
        let empty = ids.filter_map(|(id, held)| {
            let held = held.as_ref()?;
            let returnable =
                self.pager.is_none() && strategy.is_empty(id) && self.is_quiet(lane, id);
            returnable.then_some((held.block.size(), id))
        });
        empty.collect()
    }

    pub(crate) fn usage(&self) -> Usage {
        self.divider.as_strategy().usage()
    }
}
