//! The bytes of a lane: its blocks, the strategy that divides them, and which of their addresses have memory.
#![forbid(unsafe_code)]
mod last_freed;

use self::last_freed::LastFreed;
use super::extra::Kept;
use super::growth::{Growth, Ration, Thrift};
use super::occupancy::REMOTE;
use super::order::User;
use super::shared::Leaving;
use crate::device::Block;
use crate::{Align, Backend, Class, ErrorKind, Layout, Page, Sharing, Span, TimelineId};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::cell::Cell;
use omniheap_strategy::pages::Pager;
use omniheap_strategy::{BlockId, Grant, Key, LastUse, Strategy, Tlsf};

/// A rounded layout, the requested bytes, and the timeline that orders their uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) layout: Layout,
    pub(crate) class: Class,
    pub(crate) size: u64,
    pub(crate) timeline: Option<TimelineId>,
}

impl Ask {
    /// Returns the bytes and the alignment, which an allocation keeps of its request.
    #[inline]
    pub(super) const fn bytes(&self) -> (u64, Align) {
        (self.size, self.layout.align)
    }
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

/// A block of a lane.
struct Held<B: Backend> {
    block: Arc<Block<B>>,
    /// Last user of any of its holes, where the strategy does not know that of each.
    last_use: LastUse,
    sharing: Sharing,
}

/// The bytes of a lane.
///
/// Methods that look at holes are right once the span that was freed last is one: see [`flush`](Self::flush).
pub(super) struct Bytes<B: Backend> {
    suballocator: Suballocator,
    blocks: Vec<Option<Held<B>>>,
    pager: Option<Pager>,
    /// The span that was freed last, until something else than a request of its size comes.
    last_freed: Option<LastFreed>,
    /// The key of the span that the fast path took last.
    last_taken: Key,
    ration: Ration,
    thrift: Thrift,
    /// Bytes of spans that no allocation has: a defragmentation pass holds them, or they are kept.
    held: u64,
    /// Bytes of secrets that no fill has reached.
    kept: Vec<Kept>,
}

impl<B: Backend> Bytes<B> {
    pub(super) const fn new(suballocator: Suballocator) -> Self {
        Self {
            suballocator,
            blocks: Vec::new(),
            pager: None,
            last_freed: None,
            last_taken: REMOTE,
            ration: Ration::NEW,
            thrift: Thrift::OFF,
            held: 0,
            kept: Vec::new(),
        }
    }

    /// The strategy that divides the blocks, to look at.
    pub(super) fn strategy(&self) -> &dyn Strategy {
        match &self.suballocator {
            Suballocator::General(tlsf) => tlsf,
            Suballocator::Other(other) => other.as_ref(),
        }
    }

    fn strategy_mut(&mut self) -> &mut dyn Strategy {
        match &mut self.suballocator {
            Suballocator::General(tlsf) => tlsf,
            Suballocator::Other(other) => other.as_mut(),
        }
    }

    fn held(&self, block: BlockId) -> &Held<B> {
        self.blocks[block.0 as usize].as_ref().expect("a span's block is held")
    }

    /// The native block of a span.
    pub(super) fn block(&self, block: BlockId) -> &Arc<Block<B>> {
        &self.held(block).block
    }

    /// Returns `Dedicated` if the block was taken for one allocation. Another strategy than the general one may have put others there.
    pub(super) fn sharing(&self, block: BlockId) -> Sharing {
        self.held(block).sharing
    }

    /// Every block, by its id.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (BlockId, &Arc<Block<B>>)> {
        let ids = (0u32..).map(BlockId).zip(&self.blocks);
        ids.filter_map(|(id, held)| Some((id, &held.as_ref()?.block)))
    }

    /// Blocks that there were at once.
    pub(super) const fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// Adds a block to divide.
    pub(super) fn add_block(
        &mut self,
        block: Arc<Block<B>>,
        sharing: Sharing,
    ) -> Result<BlockId, ErrorKind> {
        self.blocks.try_reserve(1).map_err(|_| ErrorKind::OutOfHostMemory)?;
        let id = self.strategy_mut().add_block(block.size())?;
        let at = id.0 as usize;
        if at == self.blocks.len() {
            self.blocks.push(None);
        }
        self.blocks[at] = Some(Held { block, last_use: LastUse::NONE, sharing });
        Ok(id)
    }

    /// Takes an empty block away.
    pub(super) fn remove_block(&mut self, id: BlockId) -> Option<Leaving<B>> {
        self.strategy_mut().remove_block(id).ok()?;
        self.blocks[id.0 as usize].take().map(|held| (held.block, held.sharing))
    }

    /// Takes all blocks away, whatever lives in them.
    pub(super) fn take_blocks(&mut self) -> impl Iterator<Item = Arc<Block<B>>> + use<B> {
        core::mem::take(&mut self.blocks).into_iter().flatten().map(|held| held.block)
    }

    /// Empty blocks whose last users `may` accepts, with their sizes, in no order. Addresses are no block to return.
    pub(super) fn empty_blocks(&self, may: impl Fn(LastUse) -> bool) -> Vec<(u64, BlockId)> {
        match &self.suballocator {
            _ if self.pager.is_some() => Vec::new(),
            // Without a look at each block, of which there may be thousands.
            Suballocator::General(tlsf) if tlsf.free_bytes() == 0 => Vec::new(),
            Suballocator::General(tlsf) => {
                let empty = tlsf.empty_blocks().filter(|(.., last)| may(*last));
                empty.map(|(id, size, _)| (size, id)).collect()
            }
            Suballocator::Other(other) => {
                let is_empty = |id: BlockId| other.is_empty(id) && may(self.held(id).last_use);
                let empty = self.blocks().filter(|(id, _)| is_empty(*id));
                empty.map(|(id, block)| (block.size(), id)).collect()
            }
        }
    }

    /// Counts driver calls, and decides anew which blocks are kept whole: of a pool that held `high` bytes at most, for which
    /// a block of `size` bytes was taken.
    pub(super) fn note_growth(&mut self, calls: u64, high: u64, size: u64, growth: &Growth) {
        self.spend(calls);
        if let Some(tlsf) = self.general() {
            self.thrift = Thrift::new(high, tlsf.largest_block().max(size), growth);
        }
    }

    /// Counts driver calls.
    pub(super) const fn spend(&mut self, calls: u64) {
        self.ration.spend(calls);
    }
}

/// Spans that are taken. Each is the caller's to release.
impl<B: Backend> Bytes<B> {
    /// Takes a hole.
    #[inline]
    pub(super) fn take_hole(&mut self, layout: Layout, class: Class) -> Result<Grant, ErrorKind> {
        match &mut self.suballocator {
            Suballocator::General(tlsf) => tlsf.allocate(layout, class),
            Suballocator::Other(other) => other.allocate(layout, class),
        }
    }

    /// Takes a hole whose last users `may` accepts, or returns the last user of the first hole that fits; looks at a
    /// few only.
    pub(super) fn take_hole_where(
        &mut self,
        layout: Layout,
        class: Class,
        may: impl Fn(LastUse) -> bool,
    ) -> Result<Grant, LastUse> {
        // The first hole that fits but is in use: the one to ask about.
        let in_use = Cell::new(LastUse::NONE);
        let grant = match &mut self.suballocator {
            Suballocator::General(tlsf) => tlsf.allocate_where(layout, class, |last| {
                let is_usable = may(last);
                if !is_usable && in_use.get() == LastUse::NONE {
                    in_use.set(last);
                }
                is_usable
            }),
            Suballocator::Other(_) => {
                in_use.set(LastUse::SEVERAL);
                self.search(layout, class, may)
            }
        };
        grant.map_err(|_| in_use.get())
    }

    /// Takes a hole whose last users `may` accepts, wherever it is.
    pub(super) fn search(
        &mut self,
        layout: Layout,
        class: Class,
        may: impl Fn(LastUse) -> bool,
    ) -> Result<Grant, ErrorKind> {
        let other = match &mut self.suballocator {
            Suballocator::General(tlsf) => {
                return tlsf.search_where(layout, class, may);
            }
            Suballocator::Other(other) => other,
        };
        let grant = other.allocate(layout, class)?;
        let held = self.blocks[grant.block.0 as usize].as_ref();
        if held.is_some_and(|held| may(held.last_use)) {
            return Ok(grant);
        }
        other.free(grant.key)?;
        Err(ErrorKind::OutOfDeviceMemory)
    }

    /// Takes the first hole in the order of blocks and offsets whose last users `may` accepts and for which `look` returns something.
    pub(super) fn take_lowest<R>(
        &mut self,
        ask: Ask,
        may: impl Fn(LastUse) -> bool,
        look: impl Fn(&B::Block, Span) -> Option<R>,
    ) -> Result<(Grant, R), ErrorKind> {
        let Suballocator::General(tlsf) = &mut self.suballocator else {
            return Err(ErrorKind::Unsupported);
        };
        let (blocks, mut seen) = (&self.blocks, None);
        let grant = tlsf.allocate_lowest(ask.layout, ask.class, |block, span, last| {
            let held = blocks[block.0 as usize].as_ref().filter(|_| may(last));
            seen = held.and_then(|held| look(held.block.raw(), Span { size: ask.size, ..span }));
            seen.is_some()
        })?;
        Ok((grant, seen.expect("accepted for it")))
    }

    /// Takes the first hole between two spans of a block whose last users `may` accepts, and shows it to `look`.
    pub(super) fn take_between<R>(
        &mut self,
        ask: Ask,
        spans: (Option<Key>, Key),
        may: impl Fn(LastUse) -> bool,
        look: impl Fn(&B::Block, Span) -> R,
    ) -> Result<(Grant, R), ErrorKind> {
        let tlsf = self.general_mut().ok_or(ErrorKind::Unsupported)?;
        let grant = tlsf.allocate_between(ask.layout, ask.class, spans, may)?;
        let seen = look(self.block(grant.block).raw(), Span { size: ask.size, ..grant.span });
        Ok((grant, seen))
    }

    /// Takes a hole, whoever used it last: the request runs after all of them.
    pub(super) fn take_anyhow(&mut self, ask: Ask) -> Result<Grant, ErrorKind> {
        if let Some(tlsf) = self.general_mut() {
            // This request runs after all users, so holes need not be kept apart, and long holes waste less.
            tlsf.merge_touching();
        }
        self.take_hole(ask.layout, ask.class)
    }

    /// Adds a block and takes its first `size` bytes, or what the strategy makes of the request; all or nothing.
    pub(super) fn take_of_new(
        &mut self,
        block: Arc<Block<B>>,
        sharing: Sharing,
        size: u64,
        ask: Ask,
    ) -> Result<Grant, ErrorKind> {
        let id = self.add_block(block, sharing)?;
        let grant = match &mut self.suballocator {
            Suballocator::General(tlsf) => tlsf.carve(id, Span { offset: 0, size }, ask.class),
            Suballocator::Other(other) => take_from(other.as_mut(), id, ask),
        };
        grant.inspect_err(|_| drop(self.remove_block(id)))
    }

    /// Takes exactly `span` of the first block.
    pub(super) fn take_at(&mut self, span: Span) -> Result<Grant, ErrorKind> {
        let take = self.strategy_mut().as_take().ok_or(ErrorKind::Unsupported)?;
        take.take(BlockId(0), span)
    }

    /// Takes a request from an unused live span and the holes beside it that `may` accepts; the rest is free.
    pub(super) fn take_around(
        &mut self,
        key: Key,
        ask: Ask,
        may: impl Fn(LastUse) -> bool,
    ) -> Result<Grant, ErrorKind> {
        let tlsf = self.general_mut().ok_or(ErrorKind::Unsupported)?;
        tlsf.take_around(key, ask.layout, ask.class, may)
    }

    /// Takes a hole and holds it, for something that moves there.
    pub(super) fn hold(&mut self, layout: Layout, class: Class) -> Result<Grant, ErrorKind> {
        let grant = self.strategy_mut().allocate(layout, class)?;
        self.held += grant.span.size;
        Ok(grant)
    }

    /// Counts bytes of a live span as held; no allocation has them from now on.
    pub(super) const fn count_held(&mut self, bytes: u64) {
        self.held += bytes;
    }

    /// Counts bytes that were held as an allocation's.
    pub(super) const fn count_let_go(&mut self, bytes: u64) {
        self.held -= bytes;
    }

    /// Returns true if a grant may be one that should be undone: see [`keeps_whole`](Self::keeps_whole).
    #[inline]
    pub(super) const fn is_thrifty(&self, granted: u64) -> bool {
        self.thrift.is_on(granted)
    }

    /// Undoes a grant of `size` bytes that would break a large empty block, if the ration allows a better one; whether it did.
    pub(super) fn keeps_whole(
        &mut self,
        key: Key,
        size: u64,
        granted: u64,
        operations: u64,
    ) -> bool {
        let Suballocator::General(tlsf) = &mut self.suballocator else { return false };
        let Some(left) = tlsf.free_beside_only(key) else { return false };
        let saving = self.thrift.saving(size, left, granted);
        saving.is_some_and(|saving| self.ration.allows_exchange(operations, saving))
            && tlsf.free(key).is_ok()
    }
}

/// Takes a request from one block, whichever the strategy would choose: work may still use what is free in the others.
fn take_from(other: &mut dyn Strategy, block: BlockId, ask: Ask) -> Result<Grant, ErrorKind> {
    let mut elsewhere = Vec::new();
    let taken = loop {
        let room = elsewhere.try_reserve(1).map_err(|_| ErrorKind::OutOfHostMemory);
        match room.and_then(|()| other.allocate(ask.layout, ask.class)) {
            Ok(grant) if grant.block != block => elsewhere.push(grant.key),
            taken => break taken,
        }
    };
    // The last one first, as a stack has them back.
    for key in elsewhere.into_iter().rev() {
        let freed = other.free(key);
        debug_assert!(freed.is_ok(), "taken just above");
    }
    taken
}

/// Spans that are given back.
impl<B: Backend> Bytes<B> {
    /// Releases a span that was used last as said.
    #[inline]
    pub(super) fn release(&mut self, key: Key, last: LastUse) -> Result<Grant, ErrorKind> {
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

    /// Holds a span of an allocation that ends and used it last as said.
    pub(super) fn hold_freed(&mut self, key: Key, last: LastUse) -> Result<Grant, ErrorKind> {
        let grant = self.strategy().grant(key)?;
        self.add_use(key, last);
        self.count_held(grant.span.size);
        Ok(grant)
    }

    /// Releases a span that was not used since it was taken.
    pub(super) fn release_unused(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        self.strategy_mut().free(key)
    }

    /// Releases a span that was held.
    pub(super) fn release_held(&mut self, held: Grant) {
        self.count_let_go(held.span.size);
        let freed = self.release_unused(held.key);
        debug_assert!(freed.is_ok(), "held until now");
    }

    /// Notes bytes of a secret that no fill has reached.
    pub(super) fn keep(&mut self, one: Kept) {
        self.kept.push(one);
    }

    /// The number of those that [`keep`](Self::keep) noted.
    pub(super) const fn kept_count(&self) -> usize {
        self.kept.len()
    }

    /// Takes out the first that [`keep`](Self::keep) noted.
    pub(super) fn take_first_kept(&mut self) -> Kept {
        self.kept.remove(0)
    }

    /// Takes out everything that [`keep`](Self::keep) noted.
    pub(super) fn take_kept(&mut self) -> Vec<Kept> {
        core::mem::take(&mut self.kept)
    }
}

/// Lookups of spans, and sums over all bytes.
impl<B: Backend> Bytes<B> {
    /// The block and the span of a live key.
    #[inline]
    pub(super) fn spot(&self, key: Key) -> Result<(&Arc<Block<B>>, Span), ErrorKind> {
        let grant = match &self.suballocator {
            Suballocator::General(tlsf) => tlsf.grant(key),
            Suballocator::Other(other) => other.grant(key),
        }?;
        Ok((self.block(grant.block), grant.span))
    }

    /// Returns the last user of the bytes of a live span before it was taken.
    pub(super) fn last_use(&self, key: Key) -> LastUse {
        let last = match &self.suballocator {
            Suballocator::General(tlsf) => tlsf.last_use(key),
            Suballocator::Other(other) => {
                other.grant(key).map(|grant| self.held(grant.block).last_use)
            }
        };
        last.unwrap_or(LastUse::NONE)
    }

    /// Returns the last user of the first block, where the strategy does not know that of each hole.
    pub(super) fn last_use_of_first(&self) -> LastUse {
        let first = self.blocks.first().and_then(Option::as_ref);
        first.map_or(LastUse::NONE, |held| held.last_use)
    }

    /// Counts a use of a live span's bytes as one before it was taken.
    pub(super) fn add_use(&mut self, key: Key, last: LastUse) {
        match &mut self.suballocator {
            Suballocator::General(tlsf) => tlsf.set_last_use(key, last),
            Suballocator::Other(other) => {
                let block = other.grant(key).ok().map(|grant| grant.block.0 as usize);
                if let Some(held) = block.and_then(|block| self.blocks[block].as_mut()) {
                    held.last_use = held.last_use.join(last);
                }
            }
        }
    }

    /// Tells the strategy up to which time all uses have passed.
    pub(super) fn set_passed(&mut self, time: u64) {
        if let Some(tlsf) = self.general_mut() {
            tlsf.set_passed(time);
        }
    }

    pub(super) fn would_fit(&self, ask: Ask) -> bool {
        match &self.suballocator {
            Suballocator::General(tlsf) => tlsf.would_fit(ask.layout, ask.class),
            Suballocator::Other(other) => other.usage().largest_hole >= ask.layout.size,
        }
    }

    /// Bytes in holes, and bytes of all blocks.
    pub(super) fn free_and_total(&self) -> (u64, u64) {
        match &self.suballocator {
            Suballocator::General(tlsf) => (tlsf.free_bytes(), tlsf.total_bytes()),
            Suballocator::Other(other) => {
                let usage = other.usage();
                (usage.free, usage.total)
            }
        }
    }

    /// Bytes that a defragmentation pass holds, or that are kept without an allocation.
    pub(super) const fn held_bytes(&self) -> u64 {
        self.held
    }

    /// Checks the strategy, whose allocations have `granted` bytes, against a full walk.
    pub(super) fn validate(&self, granted: u64) -> Result<(), &'static str> {
        self.strategy().validate()?;
        let without_memory = self
            .pages()
            .map_or(0, |(pager, tlsf)| pager.unmapped_bytes(tlsf) + pager.in_flight_bytes());
        match self.strategy().usage().used == granted + without_memory + self.held {
            true => Ok(()),
            false => Err("the strategy and the slots differ on bytes used"),
        }
    }
}

/// Access to the strategy for defragmentation and pages.
impl<B: Backend> Bytes<B> {
    /// The general-purpose strategy, where it is the one in use.
    pub(super) const fn general(&self) -> Option<&Tlsf> {
        match &self.suballocator {
            Suballocator::General(tlsf) => Some(tlsf),
            Suballocator::Other(_) => None,
        }
    }

    /// As [`general`](Self::general), to change it.
    pub(super) const fn general_mut(&mut self) -> Option<&mut Tlsf> {
        match &mut self.suballocator {
            Suballocator::General(tlsf) => Some(tlsf),
            Suballocator::Other(_) => None,
        }
    }

    /// Makes a block addresses without memory, the only ones of this lane.
    pub(super) fn reserve(&mut self, block: Arc<Block<B>>, page: u64) -> Result<(), ErrorKind> {
        let size = block.size();
        let id = self.add_block(block, Sharing::Shared)?;
        let tlsf = self.general_mut().ok_or(ErrorKind::Unsupported)?;
        self.pager = Some(Pager::new(tlsf, id, size, page)?);
        Ok(())
    }

    /// Takes the reserved block away, where none of its addresses has memory or is between two states.
    pub(super) fn end_reservation(&mut self) -> Option<Arc<Block<B>>> {
        let block = self.reservation()?;
        let (pager, tlsf) = self.pages_mut()?;
        let id = pager.block();
        if !pager.end(tlsf, block.size()) {
            return None;
        }
        self.pager = None;
        self.remove_block(id).map(|(block, _)| block)
    }

    /// The page table and the strategy of a lane of pages that has addresses.
    pub(super) const fn pages(&self) -> Option<(&Pager, &Tlsf)> {
        match (&self.pager, &self.suballocator) {
            (Some(pager), Suballocator::General(tlsf)) => Some((pager, tlsf)),
            _ => None,
        }
    }

    /// As [`pages`](Self::pages), to change them.
    pub(super) const fn pages_mut(&mut self) -> Option<(&mut Pager, &mut Tlsf)> {
        match (&mut self.pager, &mut self.suballocator) {
            (Some(pager), Suballocator::General(tlsf)) => Some((pager, tlsf)),
            _ => None,
        }
    }

    /// The reserved block of a lane of pages that has addresses.
    pub(super) fn reservation(&self) -> Option<Arc<Block<B>>> {
        self.pager.as_ref().map(|pager| Arc::clone(self.block(pager.block())))
    }

    /// Returns true if `block` is that [block](Self::reservation).
    pub(super) fn is_reserved(&self, block: &Block<B>) -> bool {
        let own = self.pager.as_ref().map(|pager| self.block(pager.block()));
        own.is_some_and(|own| core::ptr::eq(&**own, block))
    }

    /// Every span of a lane of pages that has memory, with its pages.
    pub(super) fn mapped_spans(&self) -> Vec<(Span, Vec<Page>)> {
        self.pager.as_ref().map_or(Vec::new(), Pager::mapped_spans)
    }

    /// Bytes of pages that stay out of use until the lane ends.
    pub(super) fn stranded_bytes(&self) -> u64 {
        self.pager.as_ref().map_or(0, Pager::stranded_bytes)
    }
}
