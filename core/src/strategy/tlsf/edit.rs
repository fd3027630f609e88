//! Exact spans: carving, dividing, joining and sliding, for pools that know where they want their bytes.
use super::nodes::Node;
use super::{BINS, Tlsf, bin_of};
use crate::strategy::{BlockId, Grant, Key, LastUse};
use crate::{Class, ErrorKind, Layout, Span};
use core::ops::ControlFlow;

impl Tlsf {
    /// Takes exactly `span` of `block`.
    ///
    /// # Errors
    ///
    /// `Stale` for an unknown block, `ZeroSize`, `OutOfRange`, `Busy` when part of the span is live.
    pub fn carve(&mut self, block: BlockId, span: Span, class: Class) -> Result<Grant, ErrorKind> {
        if span.size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        let end = span.offset.checked_add(span.size).ok_or(ErrorKind::OutOfRange)?;
        let mut pieces = self.pieces(self.edge(block)?);
        let at = pieces.find(|at| self.nodes.end(*at) > span.offset);
        drop(pieces);
        self.carve_node(at.ok_or(ErrorKind::OutOfRange)?, span.offset, end, class)
    }

    /// Takes exactly `span` out of a hole that [`holes_from_largest`](Self::holes_from_largest) showed.
    ///
    /// # Errors
    ///
    /// `Stale` when the hole changed since; otherwise as for [`carve`](Self::carve), but in constant time.
    pub fn carve_in(&mut self, hole: Key, span: Span) -> Result<Grant, ErrorKind> {
        let end = span.offset.checked_add(span.size).ok_or(ErrorKind::OutOfRange)?;
        if hole.stamp & 1 == 1 || !self.nodes.is_latest(hole) {
            return Err(ErrorKind::Stale);
        }
        if span.size == 0 || span.offset < self.nodes.offset(hole.index) {
            return Err(ErrorKind::OutOfRange);
        }
        self.carve_node(hole.index, span.offset, end, Class::Linear)
    }

    /// What a key stands for, and what is in it.
    ///
    /// # Errors
    ///
    /// `Stale` when the key is not live.
    #[inline]
    pub fn granted(&self, key: Key) -> Result<(Grant, Class), ErrorKind> {
        let node = self.nodes.live(key).ok_or(ErrorKind::Stale)?;
        Ok((Grant { block: node.block(), span: node.span(), key }, node.class()))
    }

    /// Divides a live span in two: `key` keeps the first `size` bytes, the new grant has the rest.
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

    /// Makes one live span of two that touch: `key` grows over `next`, whose key is used up.
    ///
    /// # Errors
    ///
    /// `Stale` when one of them is not live, `OutOfRange` when `next` does not follow `key` directly.
    pub fn join(&mut self, key: Key, next: Key) -> Result<Grant, ErrorKind> {
        let (index, next) = (self.live_index(key)?, self.live_index(next)?);
        if self.nodes.next(index) != next {
            return Err(ErrorKind::OutOfRange);
        }
        self.nodes.absorb_next(index);
        self.live -= 1;
        Ok(self.grant_of(index))
    }

    /// Takes a span out of a live one that nobody uses and the holes beside it whose last use `may` accepts; the rest is free.
    ///
    /// # Errors
    ///
    /// `Stale` when the key is not live; `Fragmented` when it does not fit, and the live span is free.
    pub fn take_around(
        &mut self,
        key: Key,
        layout: Layout,
        class: Class,
        may: impl Fn(LastUse) -> bool,
    ) -> Result<Grant, ErrorKind> {
        let index = self.live_index(key)?;
        self.reserve(2)?;
        self.nodes.set_last_use(index, LastUse::NONE);
        self.absorb_holes(index, may);
        self.used -= self.nodes.size(index);
        self.live -= 1;
        // For a moment it may touch holes that are none of its business.
        self.become_hole(index, self.nodes.get(index).last_use);
        let hole = self.nodes.next(self.nodes.previous(index));
        let found = self.start_in(hole, layout, class);
        let taken = found.map(|start| self.take(hole, start, start + layout.size, class));
        match taken {
            Some(grant) => {
                self.merge_with_next(self.nodes.previous(self.nodes.previous(grant.key.index)));
                self.merge_with_next(self.nodes.next(grant.key.index));
            }
            None => {
                let whole = self.merge_with_next(self.nodes.previous(hole)).unwrap_or(hole);
                self.merge_with_next(whole);
            }
        }
        taken.ok_or(ErrorKind::Fragmented)
    }

    /// Makes one hole of two that touch; the one that is left, if there were two.
    fn merge_with_next(&mut self, hole: u32) -> Option<u32> {
        let next = self.nodes.next(hole);
        if !self.nodes.is_hole(hole) || !self.nodes.is_hole(next) {
            return None;
        }
        self.remove_hole(next);
        self.remove_hole(hole);
        self.nodes.absorb_next(hole);
        self.add_hole(hole);
        Some(hole)
    }

    /// Moves a live span to the start of the hole before it, or to a later offset inside that hole.
    ///
    /// The key stays. What was free before the span is free behind it.
    ///
    /// # Errors
    ///
    /// `Stale` when the key is not live, `OutOfRange` when there is no hole before it that reaches down to `offset`.
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
        if offset > hole.offset {
            self.slide_inside(before, index, offset, after.then_some(next));
        } else {
            self.slide_over(before, index, after);
        }
        Ok(self.grant_of(index))
    }

    /// Moves a live span behind all that follow it up to `last`, which come down by its size. Keys stay.
    ///
    /// # Errors
    ///
    /// `Stale` when one of the two is not live, `OutOfRange` when `last` does not follow, or a hole is between them.
    pub fn put_behind(&mut self, key: Key, last: Key) -> Result<Grant, ErrorKind> {
        let (index, last) = (self.live_index(key)?, self.live_index(last)?);
        let Node { size, .. } = self.nodes.get(index);
        let mut at = index;
        while at != last {
            at = self.nodes.next(at);
            let node = self.nodes.get(at);
            if node.is_hole() || node.is_edge() {
                return Err(ErrorKind::OutOfRange);
            }
        }
        at = index;
        while at != last {
            at = self.nodes.next(at);
            self.nodes.set_offset(at, self.nodes.offset(at) - size);
        }
        self.nodes.set_offset(index, self.nodes.end(last));
        self.nodes.move_behind(index, last);
        Ok(self.grant_of(index))
    }

    /// Part of the hole stays before the span, the rest goes behind it.
    fn slide_inside(&mut self, before: u32, index: u32, offset: u64, hole_behind: Option<u32>) {
        let freed = self.nodes.end(before) - offset;
        self.nodes.set_size(before, offset - self.nodes.offset(before));
        self.add_hole(before);
        self.nodes.set_offset(index, offset);
        let behind = match hole_behind {
            Some(next) => self.nodes.grow_down(next, freed),
            None => self.nodes.insert_after(index, freed),
        };
        self.add_hole(behind);
    }

    /// The whole hole goes behind the span, and joins the hole there.
    fn slide_over(&mut self, before: u32, index: u32, hole_behind: bool) {
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
        self.add_hole(before);
    }

    /// The bytes of a live span's block that are free, when nothing else in the block is live.
    #[inline]
    #[must_use]
    pub fn free_beside_only(&self, key: Key) -> Option<u64> {
        let node = self.nodes.live(key)?;
        let hole = |at: u32| {
            let node = self.nodes.get(at);
            node.size * u64::from(node.is_hole())
        };
        // Sums instead of questions: half of those would be guessed wrong.
        let free = hole(node.previous) + hole(node.next);
        let (_, size) = self.blocks[node.block().0 as usize];
        (free + node.size == size).then_some(free)
    }

    /// The holes that touch a live span and whose last use `may` accepts: before it and after it.
    ///
    /// # Errors
    ///
    /// `Stale` when the key is not live.
    pub fn holes_beside(
        &self,
        key: Key,
        may: impl Fn(LastUse) -> bool,
    ) -> Result<[Option<Span>; 2], ErrorKind> {
        let index = self.live_index(key)?;
        let usable = |node: &Node| node.is_hole() && may(node.last_use);
        let hole = |at: u32| Some(self.nodes.get(at)).filter(usable).map(|node| node.span());
        Ok([hole(self.nodes.previous(index)), hole(self.nodes.next(index))])
    }

    /// Visits holes of at least `size` bytes with who used them last, largest bins first, until `visit` says stop.
    pub fn holes_from_largest(
        &self,
        size: u64,
        mut visit: impl FnMut(Key, Span, LastUse) -> ControlFlow<()>,
    ) {
        let lowest = bin_of(size.max(1));
        for hole in (lowest..BINS).rev().flat_map(|bin| self.bins.holes(bin)) {
            let node = self.nodes.get(hole);
            if node.size >= size
                && visit(self.nodes.key(hole), node.span(), node.last_use).is_break()
            {
                return;
            }
        }
    }
}
