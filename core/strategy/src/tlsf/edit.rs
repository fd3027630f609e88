//! Operations on exact spans: carve, split, join, widen and slide. Pools and defragmentation use them.
use super::bins::bin_of;
use super::nodes::Node;
use super::{LastUse, Tlsf};
use crate::{BlockId, Grant, Key, Strategy};
use core::ops::ControlFlow;
use omniheap_seam::{Class, ErrorKind, Layout, Span};

impl Tlsf {
    /// Allocates exactly `span` of `block`. Where it covers holes of several users that touch, all of them used it last.
    ///
    /// # Errors
    ///
    /// `Stale` for an unknown block, `ZeroSize`, `OutOfRange` when the span leaves the block, `Busy` when part of it is live;
    /// `OutOfHostMemory` when the bookkeeping cannot grow.
    pub fn carve(&mut self, block: BlockId, span: Span, class: Class) -> Result<Grant, ErrorKind> {
        let edge = self.edge(block)?;
        if span.size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        let (_, size) = self.blocks[block.0 as usize];
        let end = span.offset.checked_add(span.size).filter(|end| *end <= size);
        let end = end.ok_or(ErrorKind::OutOfRange)?;
        let mut covered = self.pieces(edge).skip_while(|at| self.nodes.end(*at) <= span.offset);
        let first = covered.next().ok_or(ErrorKind::OutOfRange)?;
        let mut more = 0;
        for at in core::iter::once(first).chain(covered) {
            if self.nodes.offset(at) >= end {
                break;
            }
            if !self.nodes.is_hole(at) {
                return Err(ErrorKind::Busy);
            }
            more += 1;
        }
        self.reserve(more + 1)?;
        let mut grant = self.take(first, span.offset, end.min(self.nodes.end(first)), class);
        while grant.span.end() < end {
            let next = self.nodes.next(grant.key.index);
            let (from, to) = (self.nodes.offset(next), self.nodes.end(next));
            self.take(next, from, end.min(to), class);
            grant = self.absorb_live(grant.key.index);
        }
        Ok(grant)
    }

    /// Allocates exactly `span` of a hole that [`for_each_in`](Self::for_each_in) visited, in constant time. The caller keeps it out of
    /// the granules of neighbours of another class.
    ///
    /// # Errors
    ///
    /// `Stale` when the hole is gone, `ZeroSize`, `OutOfRange` when the hole no longer has all of the span; `OutOfHostMemory`
    /// when the bookkeeping cannot grow.
    pub fn carve_in(&mut self, hole: Key, span: Span, class: Class) -> Result<Grant, ErrorKind> {
        if hole.stamp & 1 == 1 || !self.nodes.is_latest(hole) {
            return Err(ErrorKind::Stale);
        }
        if span.size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        let whole = self.nodes.get(hole.index).span();
        let end = span.offset.checked_add(span.size).filter(|end| *end <= whole.end());
        let end = end.filter(|_| span.offset >= whole.offset).ok_or(ErrorKind::OutOfRange)?;
        self.reserve(2)?;
        Ok(self.take(hole.index, span.offset, end, class))
    }

    /// As [`carve_in`](Self::carve_in) for whole holes, all or none. Their keys become those of the live spans.
    ///
    /// # Errors
    ///
    /// As for [`carve_in`](Self::carve_in); the holes are then as they were, under new keys.
    pub fn carve_all(&mut self, holes: &mut [(Key, Span)]) -> Result<(), ErrorKind> {
        for at in 0..holes.len() {
            let (key, hole) = holes[at];
            match self.carve_in(key, hole, Class::Linear) {
                Ok(grant) => holes[at].0 = grant.key,
                Err(kind) => {
                    self.free_all(&holes[..at]);
                    return Err(kind);
                }
            }
        }
        Ok(())
    }

    /// Frees what [`carve_all`](Self::carve_all) took.
    pub fn free_all(&mut self, spans: &[(Key, Span)]) {
        for (key, _) in spans {
            let freed = self.free(*key);
            debug_assert!(freed.is_ok(), "held until now");
        }
    }

    /// Returns the grant and the class of a live key.
    ///
    /// # Errors
    ///
    /// `Stale` when the key is not live.
    #[inline]
    pub fn granted(&self, key: Key) -> Result<(Grant, Class), ErrorKind> {
        let node = self.nodes.live(key).ok_or(ErrorKind::Stale)?;
        Ok((Grant { block: node.block(), span: node.span(), key }, node.class()))
    }

    /// Splits a live span: `key` keeps the first `size` bytes, the new grant has the rest.
    ///
    /// # Errors
    ///
    /// `Stale` when the key is not live, `OutOfRange` when nothing would be left on one side.
    pub fn split(&mut self, key: Key, size: u64) -> Result<Grant, ErrorKind> {
        let index = self.live_index(key)?;
        self.reserve(1)?;
        if size == 0 || size >= self.nodes.size(index) {
            return Err(ErrorKind::OutOfRange);
        }
        let rest = self.nodes.split(index, size);
        self.nodes.set_live(rest, self.nodes.get(index).class());
        self.live += 1;
        Ok(self.grant_of(rest))
    }

    /// Joins two live spans that touch: `key` grows over `next`, whose key becomes stale.
    ///
    /// # Errors
    ///
    /// `Stale` when one of them is not live, `OutOfRange` when `next` does not follow `key` directly.
    pub fn join(&mut self, key: Key, next: Key) -> Result<Grant, ErrorKind> {
        let (index, next) = (self.live_index(key)?, self.live_index(next)?);
        if self.nodes.next(index) != next {
            return Err(ErrorKind::OutOfRange);
        }
        Ok(self.absorb_live(index))
    }

    /// Joins a live node with the live one after it.
    fn absorb_live(&mut self, index: u32) -> Grant {
        let next = self.nodes.at(self.nodes.next(index)).last_use;
        self.nodes.set_last_use(index, self.nodes.at(index).last_use.join(next));
        self.nodes.absorb_next(index);
        self.live -= 1;
        self.grant_of(index)
    }

    /// Frees a live span that nobody uses, and allocates from its bytes and the holes beside it that `may` accepts.
    ///
    /// # Errors
    ///
    /// `Stale` when the key is not live; `Fragmented` when the request does not fit, `OutOfHostMemory`. The live span is then free.
    pub fn take_around(
        &mut self,
        key: Key,
        layout: Layout,
        class: Class,
        may: impl Fn(LastUse) -> bool,
    ) -> Result<Grant, ErrorKind> {
        let index = self.live_index(key)?;
        if let Err(refused) = self.reserve(2) {
            self.free_used(key, LastUse::NONE)?;
            return Err(refused);
        }
        self.nodes.set_last_use(index, LastUse::NONE);
        self.absorb_holes(index, may);
        self.used -= self.nodes.size(index);
        self.live -= 1;
        // The new hole may touch holes that `may` refused, until they are merged below.
        self.become_hole(index, self.nodes.get(index).last_use);
        let found = self.start_in(self.nodes.at(index), layout, class);
        let taken = found.map(|start| self.take(index, start, start + layout.size, class));
        match taken {
            Some(Grant { key, .. }) => {
                self.merge_or_note(self.nodes.previous(key.index));
                self.merge_or_note(self.nodes.next(self.nodes.next(key.index)));
            }
            None => {
                let whole = self.merge_or_note(index);
                self.merge_or_note(self.nodes.next(whole));
            }
        }
        taken.ok_or(ErrorKind::Fragmented)
    }

    /// Keeps host memory for `count` more slides until [`redeem`](Self::redeem): whatever else happens meanwhile, they do not fail for
    /// want of it.
    ///
    /// # Errors
    ///
    /// `OutOfHostMemory`; nothing has changed then.
    pub fn pledge(&mut self, count: usize) -> Result<(), ErrorKind> {
        let count = u32::try_from(count).map_err(|_| ErrorKind::OutOfHostMemory)?;
        self.reserve(count)?;
        self.pledged += count;
        Ok(())
    }

    /// Gives host memory back that [`pledge`](Self::pledge) kept for `count` slides: they are made next, or not at all.
    pub fn redeem(&mut self, count: usize) {
        self.pledged = self.pledged.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// Moves a live span down to `offset` in the hole before it. The key stays.
    ///
    /// The bytes that the span leaves join the hole after it. Nobody may use that hole before the users of both holes have
    /// finished.
    ///
    /// # Errors
    ///
    /// `Stale` when the key is not live, `OutOfRange` when there is no hole before it that reaches down to `offset`,
    /// `OutOfHostMemory` where none was [pledged](Self::pledge).
    pub fn slide_to(&mut self, key: Key, offset: u64) -> Result<Grant, ErrorKind> {
        let index = self.live_index(key)?;
        let before = self.nodes.previous(index);
        if !self.nodes.is_hole(before) {
            return Err(ErrorKind::OutOfRange);
        }
        let hole = self.nodes.get(before).span();
        if offset < hole.offset || offset >= hole.end() {
            return Err(ErrorKind::OutOfRange);
        }
        self.reserve(1)?;
        self.remove_hole(before);
        let next = self.nodes.next(index);
        let after = self.nodes.is_hole(next);
        if after {
            self.remove_hole(next);
        }
        let uses = [before, next].map(|at| self.unpassed(self.nodes.get(at).last_use));
        let last_use = if after { uses[0].join(uses[1]) } else { uses[0] };
        let behind = if offset > hole.offset {
            self.slide_inside(before, index, offset, after.then_some(next))
        } else {
            self.slide_over(before, index, after)
        };
        self.nodes.set_last_use(behind, last_use);
        self.add_hole(behind);
        // The hole behind the span may now be mergeable with the one after it.
        self.merge_or_note(self.nodes.next(behind));
        Ok(self.grant_of(index))
    }

    /// Exchanges a live span with the live spans from `first` to `last`, which follow it or are as long together. Keys stay.
    ///
    /// # Errors
    ///
    /// `Stale` when one of them is not live, `OutOfRange` when `last` does not follow `first`, when a hole or the span itself is
    /// among them, or when they neither follow the span nor are as long, in its block.
    pub fn exchange(&mut self, key: Key, first: Key, last: Key) -> Result<Grant, ErrorKind> {
        let [index, first, last] =
            [self.live_index(key)?, self.live_index(first)?, self.live_index(last)?];
        let mut at = first;
        while at != last {
            at = self.nodes.next(at);
            let node = self.nodes.get(at);
            if node.is_hole() || node.is_edge() || at == index {
                return Err(ErrorKind::OutOfRange);
            }
        }
        let (from, to) = (self.nodes.offset(first), self.nodes.offset(index));
        let (length, follows) = (self.nodes.end(last) - from, self.nodes.next(index) == first);
        let fits = follows || length == self.nodes.size(index);
        if index == first || !fits || self.grant_of(index).block != self.grant_of(first).block {
            return Err(ErrorKind::OutOfRange);
        }
        self.nodes.set_offset(index, if follows { to + length } else { from });
        let before = self.nodes.previous(first);
        let (mut behind, mut at) = (index, first);
        loop {
            let next = self.nodes.next(at);
            self.nodes.set_offset(at, self.nodes.offset(at) - from + to);
            self.nodes.move_behind(at, behind);
            if at == last {
                break;
            }
            (behind, at) = (at, next);
        }
        self.nodes.move_behind(index, if follows { last } else { before });
        Ok(self.grant_of(index))
    }

    /// Leaves part of the hole before the span, and moves the rest after it. Returns the hole after it, which is in no list.
    fn slide_inside(
        &mut self,
        before: u32,
        index: u32,
        offset: u64,
        hole_behind: Option<u32>,
    ) -> u32 {
        let freed = self.nodes.end(before) - offset;
        self.nodes.set_size(before, offset - self.nodes.offset(before));
        self.add_hole(before);
        self.nodes.set_offset(index, offset);
        match hole_behind {
            Some(next) => self.nodes.grow_down(next, freed),
            None => self.nodes.insert_after(index, freed),
        }
    }

    /// Moves the whole hole after the span, where it joins the next hole. Returns it; it is in no list.
    fn slide_over(&mut self, before: u32, index: u32, hole_behind: bool) -> u32 {
        let (offset, size) = (self.nodes.offset(before), self.nodes.size(index));
        let mut free = self.nodes.size(before);
        self.nodes.swap_with_previous(before, index);
        self.nodes.set_offset(index, offset);
        if hole_behind {
            free += self.nodes.size(self.nodes.next(before));
            self.nodes.absorb_next(before);
        }
        self.nodes.set_offset(before, offset + size);
        self.nodes.set_size(before, free);
        before
    }

    /// Returns the free bytes of a live span's block, `None` when something else in the block is live.
    #[inline]
    #[must_use]
    pub fn free_beside_only(&self, key: Key) -> Option<u64> {
        let node = self.nodes.live(key)?;
        let hole = |at: u32| {
            let node = self.nodes.get(at);
            node.size * u64::from(node.is_hole())
        };
        // Sums instead of branches: half of those would be mispredicted.
        let free = hole(node.previous) + hole(node.next);
        let (_, size) = self.blocks[node.block().0 as usize];
        (free + node.size == size).then_some(free)
    }

    /// Returns the holes before and after a live span whose last use `may` accepts.
    ///
    /// # Errors
    ///
    /// `Stale` when the key is not live.
    pub(crate) fn holes_beside(
        &self,
        key: Key,
        may: impl Fn(LastUse) -> bool,
    ) -> Result<[Option<Span>; 2], ErrorKind> {
        let index = self.live_index(key)?;
        let usable = |node: &Node| node.is_hole() && may(node.last_use);
        let hole = |at: u32| Some(self.nodes.get(at)).filter(usable).map(|node| node.span());
        Ok([hole(self.nodes.previous(index)), hole(self.nodes.next(index))])
    }

    /// Visits the holes of a block of at least `size` bytes with their last use, largest bins first, until `visit` breaks.
    pub(crate) fn holes_from_largest(
        &self,
        block: BlockId,
        size: u64,
        mut visit: impl FnMut(Key, Span, LastUse) -> ControlFlow<()>,
    ) {
        let lowest = bin_of(size.max(1));
        let bins = core::iter::successors(self.bins.last(), |bin| self.bins.last_below(*bin));
        let bins = bins.take_while(|bin| *bin >= lowest);
        for hole in bins.flat_map(|bin| self.bins.holes(bin)) {
            let node = self.nodes.get(hole);
            if node.size >= size
                && node.block() == block
                && visit(self.nodes.key(hole), node.span(), node.last_use).is_break()
            {
                return;
            }
        }
    }

    /// Allocates from the first hole of a block that lies before the live span `before`, that fits, and whose last use `may` accepts.
    /// Begins behind the live span `after` of the same block, or at the block's start, and looks at no span outside.
    ///
    /// # Errors
    ///
    /// As for [`allocate`](Strategy::allocate); `Stale` when a key is not live, or `after` is of another block.
    pub fn allocate_between(
        &mut self,
        layout: Layout,
        class: Class,
        (after, before): (Option<Key>, Key),
        may: impl Fn(LastUse) -> bool,
    ) -> Result<Grant, ErrorKind> {
        self.prepare(layout)?;
        let end = self.nodes.live(before).ok_or(ErrorKind::Stale)?;
        let is_near = |node: &&Node| node.block() == end.block();
        let edge = self.edge(end.block())?;
        let start = after.map_or(Ok(edge), |key| {
            self.nodes.live(key).filter(is_near).map(|_| key.index).ok_or(ErrorKind::Stale)
        })?;
        let is_before = |at: &u32| self.nodes.get(*at).offset < end.offset;
        let found = self
            .pieces_behind(start, edge)
            .take_while(is_before)
            .find_map(|at| self.place_in(at, layout, class, &mut |_, _, last| may(last)));
        self.take_found(found, layout, class)
    }

    /// Visits every piece of one block, lowest offset first: its key, span and class, `None` for a hole. An unknown block
    /// has no pieces.
    ///
    /// The key of a live span frees it; the key of a hole is for [`carve_in`](Self::carve_in).
    pub fn for_each_in(&self, block: BlockId, mut visit: impl FnMut(Key, Span, Option<Class>)) {
        let Ok(edge) = self.edge(block) else { return };
        for at in self.pieces(edge) {
            let node = self.nodes.get(at);
            let holds = if node.is_hole() { None } else { Some(node.class()) };
            visit(self.nodes.key(at), node.span(), holds);
        }
    }

    /// Grows a live span over the holes beside it, so that no search finds them until it is freed.
    ///
    /// # Errors
    ///
    /// `Stale` when the key is not live.
    pub fn widen(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        let index = self.live_index(key)?;
        self.absorb_holes(index, |_| true);
        Ok(self.grant_of(index))
    }

    /// Grows a live span over the holes beside it whose last use `may` accepts.
    fn absorb_holes(&mut self, index: u32, may: impl Fn(LastUse) -> bool) {
        let usable = |node: &Node| node.is_hole() && may(node.last_use);
        // A finished use adds no user.
        let mut last_use = self.unpassed(self.nodes.get(index).last_use);
        let (at, node) = (self.nodes.previous(index), self.nodes.get(self.nodes.previous(index)));
        if usable(&node) {
            self.remove_hole(at);
            self.used += node.size;
            self.nodes.absorb_previous(index);
            last_use = last_use.join(self.unpassed(node.last_use));
        }
        let (at, node) = (self.nodes.next(index), self.nodes.get(self.nodes.next(index)));
        if usable(&node) {
            self.remove_hole(at);
            self.used += node.size;
            self.nodes.absorb_next(index);
            last_use = last_use.join(self.unpassed(node.last_use));
        }
        self.nodes.set_last_use(index, last_use);
    }
}
