//! Books of the addresses of a reserved block that have memory. Pure bookkeeping: the driver is called elsewhere.
//!
//! The strategy divides the whole reserved range. Addresses without memory are spans that the pager itself holds
//! (unmapped ranges). Giving one back to the strategy makes it a hole, carving one out of a hole takes its memory away. So a
//! hole is always memory, and a page that lies wholly inside a hole can be moved to any other address.
mod shift;

pub use shift::{Leftover, Shift, Shifted, Stretch};

use crate::{BlockId, Grant, Key, LastUse, Strategy, Tlsf};
use alloc::{collections::BTreeMap, vec::Vec};
use core::ops::{ControlFlow, Range};
use omniheap_seam::{Class, ErrorKind, Page, Span};

/// Stands for no page in the table.
const NO_PAGE: Page = Page(u64::MAX);

/// Positions that a table has at most, so that its books take a gibibyte at most. At 2 MiB a page that is 256 TiB of memory.
const MOST_POSITIONS: usize = 1 << 27;

/// The page table of one reserved block, which a [`Tlsf`] divides.
///
/// Methods take the same strategy, and spans that it or this table gave; others may panic.
#[derive(Clone, Debug)]
pub struct Pager {
    page: u64,
    block: BlockId,
    /// Spans without memory, by offset.
    unmapped: BTreeMap<u64, Key>,
    /// The page at each position up to the highest that ever had one.
    table: Vec<Page>,
    /// Bytes of spans that are between two states while the driver is called.
    in_flight: u64,
    /// Bytes of those that stay so until the block ends.
    stranded: u64,
}

impl Pager {
    /// Takes over a reserved block that was just added to the strategy: nothing of it has memory.
    ///
    /// # Errors
    ///
    /// As for [`Tlsf::carve`].
    pub fn new(tlsf: &mut Tlsf, block: BlockId, size: u64, page: u64) -> Result<Self, ErrorKind> {
        let whole = tlsf.carve(block, Span { offset: 0, size }, Class::Linear)?;
        let unmapped = BTreeMap::from([(0, whole.key)]);
        Ok(Self { page, block, unmapped, table: Vec::new(), in_flight: 0, stranded: 0 })
    }

    /// Gives the whole block back to the strategy, for its end; returns false where something of it has memory or is between two
    /// states. The table is of no use afterwards.
    pub fn end(&self, tlsf: &mut Tlsf, size: u64) -> bool {
        let first = self.unmapped.get(&0).copied();
        let is_whole = |key: &Key| tlsf.grant(*key).is_ok_and(|range| range.span.size == size);
        first.filter(is_whole).is_some_and(|key| tlsf.free(key).is_ok())
    }

    /// The reserved block.
    #[must_use]
    pub const fn block(&self) -> BlockId {
        self.block
    }

    /// The size of a page.
    pub const fn page(&self) -> u64 {
        self.page
    }

    /// The positions of the pages that were made as one with the page here; `None` where there is no memory.
    pub fn group_at(&self, position: u64) -> Option<Range<u64>> {
        let at = usize::try_from(position).ok()?;
        let page = self.table.get(at).filter(|page| **page != NO_PAGE)?;
        let same = |other: &&Page| *other == page;
        let before = self.table[..at].iter().rev().take_while(same).count();
        let after = self.table[at..].iter().take_while(same).count();
        Some(position - before as u64..position + after as u64)
    }

    /// Bytes of addresses that have none; the strategy counts them as used.
    pub fn unmapped_bytes(&self, tlsf: &Tlsf) -> u64 {
        self.unmapped
            .values()
            .filter_map(|key| tlsf.grant(*key).ok())
            .map(|range| range.span.size)
            .sum()
    }

    /// Sets apart the addresses that need the fewest new pages for a hole of `size` bytes, together with holes whose last use
    /// `may` accepts.
    ///
    /// # Errors
    ///
    /// `OutOfDeviceMemory` where no unmapped range is long enough; `OutOfHostMemory`.
    pub fn set_apart(
        &mut self,
        tlsf: &mut Tlsf,
        size: u64,
        may: impl Fn(LastUse) -> bool,
    ) -> Result<Grant, ErrorKind> {
        let mut best: Option<(u64, Key, Span)> = None;
        for key in self.unmapped.values() {
            let range = tlsf.grant(*key)?.span;
            if let Some(span) = self.cheapest_in(range, tlsf.holes_beside(*key, &may)?, size)
                && best.as_ref().is_none_or(|(least, ..)| span.size < *least)
            {
                best = Some((span.size, *key, span));
            }
        }
        let (_, key, span) = best.ok_or(ErrorKind::OutOfDeviceMemory)?;
        let piece = self.isolate(tlsf, key, span)?;
        self.in_flight += piece.span.size;
        Ok(piece)
    }

    /// Bytes of spans that are between two states while the driver is called; the strategy counts them as used.
    pub const fn in_flight_bytes(&self) -> u64 {
        self.in_flight
    }

    /// Takes back a span that was set apart and got no memory.
    pub fn abandon(&mut self, tlsf: &mut Tlsf, piece: Grant) {
        self.in_flight -= piece.span.size;
        self.add_unmapped(tlsf, piece);
    }

    /// Takes back a carved span that kept its memory: it is a hole again.
    ///
    /// # Errors
    ///
    /// `Stale` when it is not live.
    pub fn restore(&mut self, tlsf: &mut Tlsf, piece: Grant) -> Result<(), ErrorKind> {
        self.in_flight -= piece.span.size;
        tlsf.free(piece.key).map(|_| ())
    }

    /// The fewest pages at the edge of an unmapped range that make a hole of `size` bytes together with a hole beside it.
    fn cheapest_in(
        &self,
        range: Span,
        [before, after]: [Option<Span>; 2],
        size: u64,
    ) -> Option<Span> {
        let beside = |hole: Option<Span>| hole.map_or(0, |hole| hole.size);
        let pages = |beside: u64| {
            let missing = size.saturating_sub(beside).max(1);
            missing.div_ceil(self.page).checked_mul(self.page)
        };
        let low = pages(beside(before))?;
        let high = pages(beside(after))?;
        if low <= range.size && low <= high {
            return Some(Span { offset: range.offset, size: low });
        }
        if high <= range.size {
            return Some(Span { offset: range.end() - high, size: high });
        }
        let whole = beside(before).checked_add(range.size)?.checked_add(beside(after))?;
        (whole >= size).then_some(range)
    }

    /// Cuts `span` out of an unmapped range; what is left on each side stays unmapped.
    fn isolate(&mut self, tlsf: &mut Tlsf, key: Key, span: Span) -> Result<Grant, ErrorKind> {
        let range = tlsf.grant(key)?;
        let mut piece = range;
        if span.offset > range.span.offset {
            piece = tlsf.split(key, span.offset - range.span.offset)?;
        } else {
            self.unmapped.remove(&range.span.offset);
        }
        if span.size < piece.span.size {
            match tlsf.split(piece.key, span.size) {
                Ok(rest) => {
                    self.unmapped.insert(rest.span.offset, rest.key);
                }
                Err(error) => {
                    self.add_unmapped(tlsf, piece);
                    return Err(error);
                }
            }
        }
        tlsf.grant(piece.key)
    }

    /// Makes a span without memory an unmapped range, joined with those that touch it.
    fn add_unmapped(&mut self, tlsf: &mut Tlsf, piece: Grant) {
        let mut piece = piece;
        let below =
            self.unmapped.range(..piece.span.offset).next_back().map(|(at, key)| (*at, *key));
        if let Some((_, key)) = below
            && let Ok(joined) = tlsf.join(key, piece.key)
        {
            piece = joined;
        }
        if let Some(above) = self.unmapped.get(&piece.span.end()).copied()
            && let Ok(joined) = tlsf.join(piece.key, above)
        {
            self.unmapped.remove(&piece.span.end());
            piece = joined;
        }
        self.unmapped.insert(piece.span.offset, piece.key);
    }

    /// Returns true if a live span of the strategy is an unmapped range.
    pub fn is_unmapped(&self, key: Key, span: Span) -> bool {
        self.unmapped.get(&span.offset) == Some(&key)
    }

    /// Sets a whole unmapped range apart.
    fn take_unmapped(&mut self, range: Span) {
        self.unmapped.remove(&range.offset);
        self.in_flight += range.size;
    }

    /// The pages of a span that has memory.
    pub fn pages_at(&self, span: Span) -> Vec<Page> {
        self.table[self.slots(span)].to_vec()
    }

    /// Notes that the pages of `span`, which the live spans from `first` to `last` fill, were mapped where a span set apart was:
    /// right before it, or as long. That is now where they were.
    fn exchange(&mut self, tlsf: &mut Tlsf, range: Key, (first, last): (Key, Key), span: Span) {
        let old = tlsf.grant(range).map(|range| range.span);
        let exchanged = tlsf.exchange(range, first, last);
        debug_assert!(exchanged.is_ok(), "what is held stays side by side");
        let (Ok(old), Ok(_)) = (old, exchanged) else { return };
        let pages = self.pages_at(span);
        let (from, to) = (self.slots(span), self.slots(Span { offset: old.offset, ..span }));
        self.table[from].fill(NO_PAGE);
        self.extend_to(to.end);
        self.table[to].copy_from_slice(&pages);
    }

    /// Takes back an unmapped range that was set apart, wherever it is now.
    fn abandon_unmapped(&mut self, tlsf: &mut Tlsf, range: Key) {
        if let Ok(piece) = tlsf.grant(range) {
            self.abandon(tlsf, piece);
        }
    }

    /// Keeps a span that was set apart out of use until the block ends, wherever it is now.
    fn strand_unmapped(&mut self, tlsf: &Tlsf, range: Key) {
        self.stranded += tlsf.grant(range).map_or(0, |piece| piece.span.size);
    }

    /// Sets apart addresses at the start of the last unmapped range, if that has as many and begins behind everything else.
    fn set_aside(&mut self, tlsf: &mut Tlsf, behind: u64, size: u64) -> Option<Grant> {
        let (offset, key) = self.unmapped.last_key_value().map(|(at, key)| (*at, *key))?;
        let (range, span) = (tlsf.grant(key).ok()?.span, Span { offset, size });
        if offset < behind || size > range.size || self.reserve_table(span).is_err() {
            return None;
        }
        let piece = self.isolate(tlsf, key, span).ok()?;
        self.in_flight += size;
        Some(piece)
    }

    /// Takes whole pages out of holes, the largest first, until `wanted` bytes are found.
    ///
    /// Holes that touch `keep` are left alone: they are about to be used; so are those whose last use `may` refuses.
    pub fn take_pages(
        &mut self,
        tlsf: &mut Tlsf,
        wanted: u64,
        keep: Option<Span>,
        may: impl Fn(LastUse) -> bool,
    ) -> Vec<Grant> {
        let chosen = self.choose_pages(tlsf, wanted, keep, may);
        let carve = |(key, span)| tlsf.carve_in(key, span, Class::Linear).ok();
        let pieces: Vec<Grant> = chosen.into_iter().filter_map(carve).collect();
        self.in_flight += pieces.iter().map(|piece| piece.span.size).sum::<u64>();
        pieces
    }

    /// The pages that [`take_pages`](Self::take_pages) would take, and the holes that they are in.
    pub fn choose_pages(
        &self,
        tlsf: &Tlsf,
        wanted: u64,
        keep: Option<Span>,
        may: impl Fn(LastUse) -> bool,
    ) -> Vec<(Key, Span)> {
        let (mut found, mut chosen) = (0u64, Vec::new());
        let touches = |hole: Span| {
            keep.is_some_and(|keep| hole.end() == keep.offset || hole.offset == keep.end())
        };
        tlsf.holes_from_largest(self.block, self.page, |key, hole, last| {
            if !touches(hole)
                && may(last)
                && let Some(span) = self.whole_groups(hole, wanted - found)
            {
                chosen.push((key, span));
                found += span.size;
            }
            if found >= wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        chosen
    }

    /// The last page groups that lie wholly inside a hole, of at most `wanted` bytes together.
    fn whole_groups(&self, hole: Span, wanted: u64) -> Option<Span> {
        let at = |offset: u64| usize::try_from(offset / self.page).expect("below the table's end");
        let (first, mut last) = (at(hole.offset.next_multiple_of(self.page)), at(hole.end()));
        let continues = |at: usize| {
            at > 0 && self.table.get(at).is_some_and(|page| *page == self.table[at - 1])
        };
        while last > first && continues(last) {
            last -= 1;
        }
        let (end, mut start, most) = (last, last, wanted / self.page);
        let mut group = last;
        while group > first && (end - group) as u64 <= most {
            group -= 1;
            if !continues(group) && (end - group) as u64 <= most {
                start = group;
            }
        }
        let (offset, size) = (start as u64 * self.page, (end - start) as u64 * self.page);
        (size > 0).then_some(Span { offset, size })
    }

    /// Returns the start of a span, in pages, and its number of pages.
    pub const fn positions(&self, span: Span) -> (u64, u64) {
        (span.offset / self.page, span.size / self.page)
    }

    fn slots(&self, span: Span) -> Range<usize> {
        let (first, count) = self.positions(span);
        let at = |position: u64| usize::try_from(position).expect("bounded by the reserved block");
        at(first)..at(first + count)
    }

    /// Notes that a carved span lost its memory; returns the pages.
    pub fn note_unmapped(&mut self, tlsf: &mut Tlsf, piece: Grant) -> Vec<Page> {
        let pages = self.pages_at(piece.span);
        self.clear_pages(piece.span);
        self.abandon(tlsf, piece);
        pages
    }

    /// Makes sure that [`hand_over`](Self::hand_over) needs no memory.
    ///
    /// # Errors
    ///
    /// `OutOfHostMemory`.
    pub fn reserve_table(&mut self, span: Span) -> Result<(), ErrorKind> {
        let end = self.slots(span).end;
        let more = end.saturating_sub(self.table.len());
        let room = if end > MOST_POSITIONS { None } else { self.table.try_reserve(more).ok() };
        room.ok_or(ErrorKind::OutOfHostMemory)
    }

    /// Makes positions below `end` part of the table; room was [reserved](Self::reserve_table). Only memory that is there is written down:
    /// the driver may refuse most of what is asked for.
    fn extend_to(&mut self, end: usize) {
        if self.table.len() < end {
            self.table.resize(end, NO_PAGE);
        }
    }

    /// Records that a span set apart has memory that must not be used: it stays set apart until the block ends.
    pub fn strand(&mut self, piece: Grant, pages: &[Page]) {
        self.set_pages(piece.span, pages);
        self.stranded += piece.span.size;
    }

    /// Notes that addresses have memory now.
    pub fn set_pages(&mut self, span: Span, pages: &[Page]) {
        let slots = self.slots(span);
        self.extend_to(slots.end);
        self.table[slots].copy_from_slice(pages);
    }

    /// Notes that addresses have no memory any more.
    pub fn clear_pages(&mut self, span: Span) {
        let slots = self.slots(span);
        self.table[slots].fill(NO_PAGE);
    }

    /// Notes that a span set apart has memory now; it is the caller's.
    pub fn hand_over(&mut self, piece: Grant, pages: &[Page]) {
        self.set_pages(piece.span, pages);
        self.in_flight -= piece.span.size;
    }

    /// Every span that has memory, for teardown.
    pub fn mapped_spans(&self) -> Vec<(Span, Vec<Page>)> {
        let mut spans: Vec<(Span, Vec<Page>)> = Vec::new();
        for (position, page) in (0u64..).zip(&self.table).filter(|(_, page)| **page != NO_PAGE) {
            let offset = position * self.page;
            match spans.last_mut() {
                Some((span, pages)) if span.end() == offset => {
                    span.size += self.page;
                    pages.push(*page);
                }
                _ => spans.push((Span { offset, size: self.page }, Vec::from([*page]))),
            }
        }
        spans
    }
}

/// Memory that leaves and comes back.
impl Pager {
    /// Returns true if memory is between two states now.
    pub const fn is_in_transit(&self) -> bool {
        self.in_flight > self.stranded
    }

    /// Bytes that stay set apart until the block ends.
    pub const fn stranded_bytes(&self) -> u64 {
        self.stranded
    }

    /// The whole pages that spans touch, joined where they touch each other. The spans are in the order of addresses.
    fn around(&self, spans: impl Iterator<Item = Span>) -> Vec<Span> {
        let mut joined: Vec<Span> = Vec::new();
        for span in spans {
            let offset = span.offset / self.page * self.page;
            let end = span.end().next_multiple_of(self.page);
            match joined.last_mut() {
                Some(last) if last.end() >= offset => last.size = last.size.max(end - last.offset),
                _ => joined.push(Span { offset, size: end - offset }),
            }
        }
        joined
    }

    /// The parts of a span that have no memory.
    pub fn gaps(&self, span: Span) -> Vec<Span> {
        let pages =
            self.table[self.slots(span)].chunk_by(|a, b| (*a == NO_PAGE) == (*b == NO_PAGE));
        let (mut offset, mut gaps) = (span.offset, Vec::new());
        for run in pages {
            let size = run.len() as u64 * self.page;
            if run[0] == NO_PAGE {
                gaps.push(Span { offset, size });
            }
            offset += size;
        }
        gaps
    }

    /// The parts of a span that have memory; it need not be of whole pages.
    pub fn mapped_in(&self, span: Span) -> Vec<Span> {
        let pages = self.around(core::iter::once(span));
        let gaps: Vec<_> = pages.into_iter().flat_map(|pages| self.gaps(pages)).collect();
        without(&[span], &gaps)
    }

    /// Finds the whole pages that live spans touch, of those that had memory. The others become unmapped ranges where they have none;
    /// what cannot counts among what is found.
    pub fn keep_around(
        &mut self,
        tlsf: &mut Tlsf,
        had: &[Span],
        live: impl Iterator<Item = Span>,
    ) -> Vec<Span> {
        let mut needed = self.around(live);
        for dead in without(had, &needed) {
            for gap in self.gaps(dead) {
                if !self.give_up(tlsf, gap) {
                    needed.push(gap);
                }
            }
        }
        needed
    }

    /// Makes part of a hole that has no memory an unmapped range; whether it is one.
    fn give_up(&mut self, tlsf: &mut Tlsf, span: Span) -> bool {
        let carved = tlsf.carve(self.block, span, Class::Linear);
        carved.map(|piece| self.add_unmapped(tlsf, piece)).is_ok()
    }
}

/// Returns the parts of spans that no other span covers; both are in the order of addresses.
fn without(spans: &[Span], others: &[Span]) -> Vec<Span> {
    let mut left = Vec::new();
    for span in spans {
        let mut from = span.offset;
        for other in others.iter().filter(|other| other.overlaps(*span)) {
            if other.offset > from {
                left.push(Span { offset: from, size: other.offset - from });
            }
            from = from.max(other.end());
        }
        if from < span.end() {
            left.push(Span { offset: from, size: span.end() - from });
        }
    }
    left
}

/// Moves whole page groups of at most `count` pages together from one list to another, the last ones; they keep their order.
pub fn take_groups(from: &mut Vec<Page>, count: u64, to: &mut Vec<Page>) {
    let mut left = usize::try_from(count).unwrap_or(usize::MAX);
    let (mut end, mut taken) = (from.len(), Vec::new());
    while left > 0 && end > 0 {
        let group = from[..end].chunk_by(PartialEq::eq).next_back().map_or(0, <[Page]>::len);
        if group <= left {
            left -= group;
            taken.push(end - group..end);
        }
        end -= group;
    }
    for range in taken.iter().rev() {
        to.extend_from_slice(&from[range.clone()]);
    }
    for range in taken {
        from.drain(range);
    }
}

#[cfg(test)]
mod tests {
    //! Page groups are taken whole or not at all.
    use super::*;
    use omniheap_seam::Align;

    const PAGE: u64 = 1 << 21;

    fn pages(numbers: &[u64]) -> Vec<Page> {
        numbers.iter().copied().map(Page).collect()
    }

    /// A table with these pages in one hole at the start of a block.
    fn table(numbers: &[u64]) -> (Pager, Tlsf) {
        let mut tlsf = Tlsf::new(Align::ONE);
        let block = tlsf.add_block(64 * PAGE).unwrap();
        let mut pager = Pager::new(&mut tlsf, block, 64 * PAGE, PAGE).unwrap();
        let piece = pager.set_apart(&mut tlsf, numbers.len() as u64 * PAGE, |_| true).unwrap();
        pager.reserve_table(piece.span).unwrap();
        pager.hand_over(piece, &pages(numbers));
        tlsf.free(piece.key).unwrap();
        (pager, tlsf)
    }

    fn taken(pager: &mut Pager, tlsf: &mut Tlsf, wanted: u64) -> Vec<(u64, u64)> {
        let pieces = pager.take_pages(tlsf, wanted * PAGE, None, |_| true);
        pieces.iter().map(|piece| pager.positions(piece.span)).collect()
    }

    #[test]
    fn a_page_group_that_something_lives_in_stays() {
        let (mut pager, mut tlsf) = table(&[1, 1, 1, 2, 3, 3, 3, 3]);
        tlsf.carve(pager.block(), Span { offset: PAGE, size: 1 }, Class::Linear).unwrap();
        assert_eq!(taken(&mut pager, &mut tlsf, 100), [(3, 5)]);
        let (mut pager, mut tlsf) = table(&[1, 1, 1, 2, 3, 3, 3, 3]);
        tlsf.carve(pager.block(), Span { offset: 6 * PAGE, size: 1 }, Class::Linear).unwrap();
        assert_eq!(taken(&mut pager, &mut tlsf, 100), [(0, 4)]);
    }

    #[test]
    fn a_request_that_gets_no_memory_costs_none() {
        const HUGE: u64 = 1 << 62;
        let mut tlsf = Tlsf::new(Align::ONE);
        let block = tlsf.add_block(HUGE).unwrap();
        let mut pager = Pager::new(&mut tlsf, block, HUGE, PAGE).unwrap();
        for (size, room) in [(HUGE, Err(ErrorKind::OutOfHostMemory)), (PAGE << 24, Ok(()))] {
            let piece = pager.set_apart(&mut tlsf, size, |_| true).unwrap();
            assert_eq!(pager.reserve_table(piece.span), room, "{size}");
            assert!(pager.table.is_empty(), "nothing is written before there is memory");
            pager.abandon(&mut tlsf, piece);
        }
        assert_eq!(pager.unmapped_bytes(&tlsf), HUGE);
    }

    #[test]
    fn pages_around_spans_are_joined_and_taken_apart() {
        let span = |from: u64, to: u64| Span { offset: from * PAGE, size: (to - from) * PAGE };
        let (mut pager, mut tlsf) = table(&[1, 2, 3, 4, 5, 6, 7, 8]);
        let bytes = |offset: u64, size: u64| Span { offset, size };
        let live = [bytes(5, 5), bytes(PAGE - 1, 2), bytes(4 * PAGE, 1), bytes(6 * PAGE - 1, 1)];
        let needed = pager.around(live.into_iter());
        assert_eq!(needed, [span(0, 2), span(4, 6)]);
        assert_eq!(without(&[span(0, 8)], &needed), [span(2, 4), span(6, 8)]);
        assert_eq!(without(&[span(0, 1), span(4, 6)], &needed), []);
        pager.clear_pages(span(1, 5));
        pager.clear_pages(span(7, 8));
        assert_eq!(pager.gaps(span(0, 8)), [span(1, 5), span(7, 8)]);
        assert_eq!(pager.gaps(span(5, 7)), []);
        pager.set_pages(span(2, 3), &pages(&[9]));
        assert_eq!(pager.gaps(span(1, 5)), [span(1, 2), span(3, 5)]);
        assert!(pager.give_up(&mut tlsf, span(3, 5)), "a hole becomes an unmapped range");
        assert!(!pager.give_up(&mut tlsf, span(4, 6)), "that is no hole any more");
        assert_eq!(pager.unmapped_bytes(&tlsf), (64 - 8 + 2) * PAGE);
    }

    #[test]
    fn no_more_is_taken_than_is_wanted() {
        let (mut pager, mut tlsf) = table(&[1, 1, 1, 2, 3, 3, 3, 3]);
        let chosen = pager.choose_pages(&tlsf, 3 * PAGE, None, |_| true);
        assert_eq!(chosen, [], "a hole without a page group of that size is not chosen");
        assert_eq!(taken(&mut pager, &mut tlsf, 3), []);
        assert_eq!(taken(&mut pager, &mut tlsf, 5), [(3, 5)]);
        let (mut pager, mut tlsf) = table(&[1, 2, 3, 4]);
        assert_eq!(taken(&mut pager, &mut tlsf, 3), [(1, 3)]);
    }

    #[test]
    fn spare_page_groups_that_are_too_long_are_passed_over() {
        let (mut from, mut to) = (pages(&[1, 1, 1, 2, 2, 2, 2, 3]), Vec::new());
        take_groups(&mut from, 2, &mut to);
        assert_eq!((&from, &to), (&pages(&[1, 1, 1, 2, 2, 2, 2]), &pages(&[3])));
        take_groups(&mut from, 3, &mut to);
        assert_eq!((&from, &to), (&pages(&[2, 2, 2, 2]), &pages(&[3, 1, 1, 1])));
        let (mut from, mut to) = (pages(&[5, 6, 7, 8]), Vec::new());
        take_groups(&mut from, 3, &mut to);
        assert_eq!((from, to), (pages(&[5]), pages(&[6, 7, 8])));
    }
}
