//! General purpose: any size, any order, every operation in constant time.
mod bins;
mod edit;
mod nodes;
mod search;

use self::bins::{BINS, Bins, bin_of};
use self::nodes::{NONE, Node, Nodes};
use super::{BlockId, Grant, Key, Piece, PieceState, Strategy, Usage};
use crate::{Align, Class, ErrorKind, Layout, Span};
use alloc::vec::Vec;

/// How many holes of the request's own bin are tried before a larger bin is taken.
///
/// Holes of one bin differ by at most 1/32, so a longer search wins little memory and costs the worst case.
const TRIES: u32 = 4;

/// Nodes kept unused, so that a free never needs memory: one may have to replace a node whose stamps ran out.
const SPARE: u32 = 1;

/// Two-level segregated fit with 32 bins per power of two.
///
/// # Algorithm
///
/// Holes are kept in lists by size: one list for each 1/32 of a power of two, with a bitmap over the lists. A request
/// looks at a few holes of its own bin, then takes the first hole of the next larger bin that has one, which is found
/// with two bit scans: a best fit to within 3 %. The rest of the hole stays a hole. A freed span merges with the holes
/// beside it at once. All blocks share the lists, so a search covers every block at the price of one.
///
/// # Cost
///
/// `allocate` and `free` are *O*(1), with no loop longer than four steps; 40 bytes for each live span and each hole.
/// [`usage`](Strategy::usage) looks at the holes of one bin, `for_each` and `validate` walk everything.
///
/// Choose it unless you know better: when sizes and lifetimes are mixed. Where every size is equal, a slab is smaller
/// and never fragments; where all bytes die together, a bump is faster.
///
/// # Examples
///
/// ```
/// use omniheap_core::{Align, Class, Layout, strategy::{Strategy, Tlsf}};
///
/// let mut offsets = Tlsf::new(Align::ONE);
/// offsets.add_block(1 << 20)?;
/// let a = offsets.allocate(Layout::new(1000).align(Align::of(256)), Class::Linear)?;
/// let b = offsets.allocate(Layout::new(64), Class::Linear)?;
/// assert!(!a.span.overlaps(b.span));
/// offsets.free(a.key)?;
/// assert_eq!(offsets.free(a.key), Err(omniheap_core::ErrorKind::Stale));
/// # Ok::<(), omniheap_core::ErrorKind>(())
/// ```
#[derive(Debug)]
pub struct Tlsf {
    granularity: Align,
    nodes: Nodes,
    bins: Bins,
    /// The first node and the size of each block; no node where the id is unused.
    blocks: Vec<(u32, u64)>,
    total: u64,
    used: u64,
    live: u64,
    holes: u64,
}

impl Tlsf {
    /// A strategy without blocks that keeps unlike neighbours `granularity` apart.
    #[must_use]
    pub const fn new(granularity: Align) -> Self {
        Self {
            granularity,
            nodes: Nodes::new(),
            bins: Bins::new(),
            blocks: Vec::new(),
            total: 0,
            used: 0,
            live: 0,
            holes: 0,
        }
    }

    /// Bytes of all blocks.
    #[must_use]
    pub const fn total_bytes(&self) -> u64 {
        self.total
    }

    /// Bytes in holes.
    #[must_use]
    pub const fn free_bytes(&self) -> u64 {
        self.total - self.used
    }

    /// Whether [`allocate`](Strategy::allocate) would succeed. Changes nothing.
    #[must_use]
    pub fn would_fit(&self, layout: Layout, class: Class) -> bool {
        layout.size > 0 && layout.size <= self.free_bytes() && self.find(layout, class).is_some()
    }

    /// The size of a block, or `None` when there is no such block.
    #[must_use]
    pub fn block_size(&self, block: BlockId) -> Option<u64> {
        let (first, size) = *self.blocks.get(block.0 as usize)?;
        (first != NONE).then_some(size)
    }

    fn first(&self, block: BlockId) -> Result<u32, ErrorKind> {
        let first = self.blocks.get(block.0 as usize).map_or(NONE, |(first, _)| *first);
        if first == NONE { Err(ErrorKind::Stale) } else { Ok(first) }
    }

    fn firsts(&self) -> impl Iterator<Item = u32> + '_ {
        self.blocks.iter().map(|(first, _)| *first).filter(|first| *first != NONE)
    }

    fn live_index(&self, key: Key) -> Result<u32, ErrorKind> {
        if self.nodes.is_live_key(key) { Ok(key.index) } else { Err(ErrorKind::Stale) }
    }

    fn grant_of(&self, index: u32) -> Grant {
        Grant {
            block: self.nodes.block(index),
            span: self.nodes.span(index),
            key: self.nodes.key(index),
        }
    }

    fn add_hole(&mut self, index: u32) {
        self.nodes.set_hole(index);
        self.bins.push(&mut self.nodes, index);
        self.holes += 1;
    }

    /// Puts a fresh node in the place of one whose stamps ran out.
    #[cold]
    fn replace(&mut self, worn: u32) -> u32 {
        let fresh = self.nodes.replace(worn);
        let block = self.nodes.block(fresh).0 as usize;
        if self.blocks[block].0 == worn {
            self.blocks[block].0 = fresh;
        }
        fresh
    }

    fn remove_hole(&mut self, index: u32) {
        self.bins.remove(&mut self.nodes, index);
        self.holes -= 1;
    }

    fn carve_node(
        &mut self,
        at: u32,
        start: u64,
        end: u64,
        class: Class,
    ) -> Result<Grant, ErrorKind> {
        if !self.nodes.is_hole(at) || end > self.nodes.end(at) {
            return Err(ErrorKind::Busy);
        }
        self.nodes.reserve(SPARE + 2)?;
        Ok(self.take(at, start, end, class))
    }

    /// Turns `start..end` of a hole into a live span. Two nodes were reserved by the caller.
    #[inline]
    fn take(&mut self, hole: u32, start: u64, end: u64, class: Class) -> Grant {
        let whole = self.nodes.span(hole);
        let index = match (start > whole.offset, end < whole.end()) {
            (false, false) => {
                self.remove_hole(hole);
                hole
            }
            // The common case: the hole keeps its node and its list, and starts later.
            (false, true) => self.take_front(hole, end - start),
            (true, rest) => self.take_inside(hole, start, rest.then_some(end)),
        };
        self.nodes.set_live(index, class);
        self.used += end - start;
        self.live += 1;
        self.grant_of(index)
    }

    #[inline]
    fn take_front(&mut self, hole: u32, size: u64) -> u32 {
        let whole = self.nodes.get(hole);
        let front = self.nodes.split_front(hole, whole, size);
        if whole.previous == NONE {
            self.blocks[whole.block as usize].0 = front;
        }
        self.bins.moved(&mut self.nodes, hole, bin_of(whole.size), bin_of(whole.size - size));
        front
    }

    fn take_inside(&mut self, hole: u32, start: u64, end: Option<u64>) -> u32 {
        self.remove_hole(hole);
        let index = self.nodes.split(hole, start - self.nodes.offset(hole));
        self.add_hole(hole);
        if let Some(end) = end {
            let rest = self.nodes.split(index, end - start);
            self.add_hole(rest);
        }
        index
    }

    #[inline]
    fn become_hole(&mut self, index: u32) {
        self.nodes.set_hole(index);
        let hole = if self.nodes.is_worn(index) { self.replace(index) } else { index };
        self.add_hole(hole);
    }

    /// The hole keeps its node and its list, and starts earlier.
    #[inline]
    fn merge_into_next(&mut self, index: u32, node: Node, next: Node) {
        if node.previous == NONE {
            self.blocks[node.block as usize].0 = node.next;
        }
        self.nodes.absorb_previous(node.next, index, node);
        self.bins.moved(
            &mut self.nodes,
            node.next,
            bin_of(next.size),
            bin_of(next.size + node.size),
        );
    }

    /// The hole keeps its node and its list, and ends later, over the hole behind as well.
    #[inline]
    fn merge_into_previous(&mut self, index: u32, node: Node, previous: Node, next: Option<Node>) {
        let (mut size, mut beyond) = (previous.size + node.size, node.next);
        if let Some(next) = next {
            self.bins.remove(&mut self.nodes, node.next);
            self.holes -= 1;
            self.nodes.discard(node.next);
            (size, beyond) = (size + next.size, next.next);
        }
        self.nodes.stretch(node.previous, size, beyond);
        self.nodes.discard(index);
        self.bins.moved(&mut self.nodes, node.previous, bin_of(previous.size), bin_of(size));
    }
}

impl Strategy for Tlsf {
    fn add_block(&mut self, size: u64) -> Result<BlockId, ErrorKind> {
        if size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        if size > 1 << 62 || self.total.checked_add(size).is_none() {
            return Err(ErrorKind::ExceedsLimit);
        }
        let slot = self.blocks.iter().position(|(first, _)| *first == NONE);
        let id = slot.unwrap_or(self.blocks.len());
        let block = BlockId(u32::try_from(id).map_err(|_| ErrorKind::ExceedsLimit)?);
        self.nodes.reserve(SPARE + 1)?;
        if slot.is_none() {
            self.blocks.try_reserve(1).map_err(|_| ErrorKind::OutOfHostMemory)?;
            self.blocks.push((NONE, 0));
        }
        let first = self.nodes.add(block, Span { offset: 0, size });
        self.blocks[id] = (first, size);
        self.total += size;
        self.add_hole(first);
        Ok(block)
    }

    fn remove_block(&mut self, block: BlockId) -> Result<(), ErrorKind> {
        let first = self.first(block)?;
        if !self.is_empty(block) {
            return Err(ErrorKind::Busy);
        }
        self.remove_hole(first);
        self.total -= self.nodes.size(first);
        self.nodes.discard(first);
        self.blocks[block.0 as usize] = (NONE, 0);
        Ok(())
    }

    #[inline]
    fn allocate(&mut self, layout: Layout, class: Class) -> Result<Grant, ErrorKind> {
        // Zero wraps around, so one comparison refuses both ends.
        if layout.size.wrapping_sub(1) >= self.total {
            return Err(if layout.size == 0 {
                ErrorKind::ZeroSize
            } else {
                ErrorKind::ExceedsLimit
            });
        }
        self.nodes.reserve(SPARE + 2)?;
        let (hole, start) = self.find(layout, class).ok_or_else(|| self.refuse(layout))?;
        Ok(self.take(hole, start, start + layout.size, class))
    }

    #[inline]
    fn free(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        let node = self.nodes.live(key).ok_or(ErrorKind::Stale)?;
        let grant = Grant { block: BlockId(node.block), span: node.span(), key };
        self.used -= node.size;
        self.live -= 1;
        let (before, after) = (self.nodes.hole(node.previous), self.nodes.hole(node.next));
        match (before, after) {
            (None, None) => self.become_hole(key.index),
            (None, Some(next)) => self.merge_into_next(key.index, node, next),
            (Some(previous), next) => self.merge_into_previous(key.index, node, previous, next),
        }
        Ok(grant)
    }

    #[inline]
    fn grant(&self, key: Key) -> Result<Grant, ErrorKind> {
        Ok(self.grant_of(self.live_index(key)?))
    }

    fn usage(&self) -> Usage {
        let mut largest = 0;
        if let Some(bin) = self.bins.last() {
            let mut at = self.bins.head(bin);
            while at != NONE {
                largest = largest.max(self.nodes.size(at));
                at = self.nodes.next_hole(at);
            }
        }
        Usage {
            total: self.total,
            used: self.used,
            free: self.free_bytes(),
            largest_hole: largest,
            live: self.live,
            holes: self.holes,
        }
    }

    fn is_empty(&self, block: BlockId) -> bool {
        self.first(block)
            .is_ok_and(|first| self.nodes.is_hole(first) && self.nodes.next(first) == NONE)
    }

    fn for_each(&self, visit: &mut dyn FnMut(Piece)) {
        for first in self.firsts() {
            let mut at = first;
            while at != NONE {
                let state = match self.nodes.is_hole(at) {
                    true => PieceState::Hole,
                    false => PieceState::Live(self.nodes.key(at)),
                };
                visit(Piece { block: self.nodes.block(at), span: self.nodes.span(at), state });
                at = self.nodes.next(at);
            }
        }
    }

    fn validate(&self) -> Result<(), &'static str> {
        let (mut total, mut used, mut holes, mut live) = (0, 0, 0, 0);
        for first in self.firsts() {
            let (mut at, mut expected, mut after_hole) = (first, 0, false);
            while at != NONE {
                let span = self.nodes.span(at);
                if span.offset != expected || span.size == 0 {
                    return Err("the pieces of a block do not tile it");
                }
                let hole = self.nodes.is_hole(at);
                if hole && after_hole {
                    return Err("two holes touch");
                }
                if hole && !self.bins.contains(&self.nodes, at) {
                    return Err("a hole is not in the list of its bin");
                }
                (total, expected, after_hole) = (total + span.size, span.end(), hole);
                if hole {
                    holes += 1;
                } else {
                    (used, live) = (used + span.size, live + 1);
                }
                at = self.nodes.next(at);
            }
        }
        if (total, used, holes, live) != (self.total, self.used, self.holes, self.live) {
            return Err("the counters differ from a walk");
        }
        self.bins.validate(&self.nodes, holes)
    }
}
