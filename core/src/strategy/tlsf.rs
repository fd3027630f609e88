//! General purpose: any size, any order, every operation in constant time.
mod bins;
mod edit;
mod nodes;
mod relocate;
mod search;

use self::bins::{BINS, Bins, bin_of};
use self::nodes::{NONE, Node, Nodes};
use super::{BlockId, Grant, Key, LastUse, Piece, Strategy, Usage};
use crate::{Align, Class, ErrorKind, Layout, Span};
use alloc::vec::Vec;

/// How many holes of the request's own bin are tried before a larger bin is taken.
///
/// Holes of one bin differ by at most 1/32, so a longer search wins little memory and costs the worst case.
const TRIES: usize = 4;

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
/// `allocate` and `free` are *O*(1), with no loop longer than four steps; 48 bytes for each live span and each hole. Only a
/// request that these steps do not serve, though enough bytes are free, looks at every hole before it is refused.
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
    /// The edge and the size of each block; no edge where the id is unused.
    blocks: Vec<(u32, u64)>,
    total: u64,
    used: u64,
    live: u64,
    holes: u64,
    /// Uses up to this time count as none.
    passed: u64,
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
            passed: 0,
        }
    }

    /// Takes a span out of a hole whose last use `may` accepts, looking at a few holes only.
    ///
    /// # Errors
    ///
    /// As for [`allocate`](Strategy::allocate), where these few holes are all.
    #[inline]
    pub fn allocate_where(
        &mut self,
        layout: Layout,
        class: Class,
        may: impl Fn(LastUse) -> bool,
    ) -> Result<Grant, ErrorKind> {
        self.check_size(layout)?;
        self.reserve(2)?;
        let found = self.find(layout, class, &may);
        let (hole, start) = found.ok_or_else(|| self.refuse(layout))?;
        Ok(self.take(hole, start, start + layout.size, class))
    }

    /// As [`allocate_where`](Self::allocate_where), looking at every hole before it refuses.
    ///
    /// # Errors
    ///
    /// As for [`allocate`](Strategy::allocate).
    pub fn search_where(
        &mut self,
        layout: Layout,
        class: Class,
        may: impl Fn(LastUse) -> bool,
    ) -> Result<Grant, ErrorKind> {
        self.check_size(layout)?;
        self.reserve(2)?;
        let found = self.find(layout, class, &may).or_else(|| self.find_any(layout, class, &may));
        let (hole, start) = found.ok_or_else(|| self.refuse(layout))?;
        Ok(self.take(hole, start, start + layout.size, class))
    }

    /// Gives a span back that was used last as said.
    ///
    /// # Errors
    ///
    /// As for [`free`](Strategy::free), which gives a span back that nobody used since it was taken.
    #[inline]
    pub fn free_used(&mut self, key: Key, last_use: LastUse) -> Result<Grant, ErrorKind> {
        let node = self.nodes.live(key).ok_or(ErrorKind::Stale)?;
        self.give_back(key, node, last_use);
        Ok(Grant { block: node.block(), span: node.span(), key })
    }

    /// Who used the bytes of a live span before it was taken.
    ///
    /// # Errors
    ///
    /// `Stale` when the key is not live.
    pub fn last_use(&self, key: Key) -> Result<LastUse, ErrorKind> {
        self.nodes.live(key).map(|node| node.last_use).ok_or(ErrorKind::Stale)
    }

    /// Says who used the bytes of a live span before it was taken, where that is not what the hole said.
    #[inline]
    pub fn set_last_use(&mut self, key: Key, last_use: LastUse) {
        if self.nodes.live(key).is_some() {
            self.nodes.set_last_use(key.index, last_use);
        }
    }

    /// Who used the bytes of an empty block; `None` for one that is not empty.
    #[must_use]
    pub fn last_use_of_empty(&self, block: BlockId) -> Option<LastUse> {
        let edge = self.edge(block).ok().filter(|_| self.is_empty(block))?;
        Some(self.nodes.get(self.nodes.next(edge)).last_use)
    }

    /// Counts every use up to a time as none.
    pub fn set_passed(&mut self, time: u64) {
        self.passed = self.passed.max(time);
    }

    /// What is left of a use.
    #[inline]
    const fn unpassed(&self, last_use: LastUse) -> LastUse {
        if last_use.time() <= self.passed { LastUse::NONE } else { last_use }
    }

    #[inline]
    fn check_size(&self, layout: Layout) -> Result<(), ErrorKind> {
        // Zero wraps around, so one comparison refuses both ends.
        match layout.size {
            size if size.wrapping_sub(1) < self.total => Ok(()),
            0 => Err(ErrorKind::ZeroSize),
            _ => Err(ErrorKind::ExceedsLimit),
        }
    }

    #[inline]
    fn give_back(&mut self, key: Key, node: Node, last_use: LastUse) {
        self.used -= node.size;
        self.live -= 1;
        let (previous, next) = (self.nodes.get(node.previous), self.nodes.get(node.next));
        match (previous.is_hole(), next.is_hole()) {
            (false, false) => self.become_hole(key.index, last_use),
            (false, true) => self.merge_into_next(key.index, node, next, last_use),
            (true, _) => self.merge_into_previous(key.index, node, previous, next, last_use),
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
        let may = |_| true;
        layout.size > 0
            && layout.size <= self.free_bytes()
            && self
                .find(layout, class, &may)
                .or_else(|| self.find_any(layout, class, &may))
                .is_some()
    }

    /// The size of a block, or `None` when there is no such block.
    #[must_use]
    pub fn block_size(&self, block: BlockId) -> Option<u64> {
        let (edge, size) = *self.blocks.get(block.0 as usize)?;
        (edge != NONE).then_some(size)
    }

    fn edge(&self, block: BlockId) -> Result<u32, ErrorKind> {
        let edge = self.blocks.get(block.0 as usize).map_or(NONE, |(edge, _)| *edge);
        if edge == NONE { Err(ErrorKind::Stale) } else { Ok(edge) }
    }

    /// The pieces of a block, lowest offset first.
    fn pieces(&self, edge: u32) -> impl Iterator<Item = u32> + '_ {
        let step = move |at: u32| Some(self.nodes.next(at)).filter(|next| *next != edge);
        core::iter::successors(step(edge), move |at| step(*at))
    }

    /// The pieces of all blocks, block by block.
    fn all_pieces(&self) -> impl Iterator<Item = u32> + '_ {
        let edges = self.blocks.iter().map(|(edge, _)| *edge).filter(|edge| *edge != NONE);
        edges.flat_map(|edge| self.pieces(edge))
    }

    /// Makes sure that the next `count` nodes need no memory, and one more that a free may need.
    #[inline]
    fn reserve(&mut self, count: u32) -> Result<(), ErrorKind> {
        if self.nodes.has(SPARE + count) { Ok(()) } else { self.grow(SPARE + count) }
    }

    #[cold]
    fn grow(&mut self, count: u32) -> Result<(), ErrorKind> {
        let length = self.nodes.grown(count)?;
        self.bins.grow(length)?;
        self.nodes.grow(length)
    }

    #[inline]
    fn live_index(&self, key: Key) -> Result<u32, ErrorKind> {
        if self.nodes.live(key).is_some() { Ok(key.index) } else { Err(ErrorKind::Stale) }
    }

    #[inline]
    fn grant_of(&self, index: u32) -> Grant {
        let node = self.nodes.get(index);
        Grant { block: node.block(), span: node.span(), key: self.nodes.key(index) }
    }

    fn add_hole(&mut self, index: u32) {
        self.nodes.set_hole(index);
        self.bins.push(index, self.nodes.size(index));
        self.holes += 1;
    }

    fn remove_hole(&mut self, index: u32) {
        self.bins.remove(index, self.nodes.size(index));
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
        self.reserve(2)?;
        Ok(self.take(at, start, end, class))
    }

    /// Turns `start..end` of a hole into a live span. Two nodes were reserved by the caller.
    #[inline]
    fn take(&mut self, hole: u32, start: u64, end: u64, class: Class) -> Grant {
        let whole = self.nodes.get(hole);
        let size = end - start;
        let index = match (start > whole.offset, size < whole.size) {
            (false, false) => {
                self.bins.remove(hole, size);
                self.holes -= 1;
                hole
            }
            // The common case: the hole keeps its node, and starts later.
            (false, true) => {
                self.bins.resize(hole, whole.size, whole.size - size);
                self.nodes.split_front(hole, whole, size)
            }
            (true, _) => self.take_inside(hole, start, end),
        };
        self.nodes.set_live(index, class);
        self.used += size;
        self.live += 1;
        Grant {
            block: whole.block(),
            span: Span { offset: start, size },
            key: self.nodes.key(index),
        }
    }

    fn take_inside(&mut self, hole: u32, start: u64, end: u64) -> u32 {
        let whole = self.nodes.get(hole).span();
        self.remove_hole(hole);
        let index = self.nodes.split(hole, start - whole.offset);
        self.add_hole(hole);
        if end < whole.end() {
            let rest = self.nodes.split(index, end - start);
            self.add_hole(rest);
        }
        index
    }

    #[inline]
    fn become_hole(&mut self, index: u32, last_use: LastUse) {
        self.nodes.set_hole(index);
        self.nodes.set_last_use(index, last_use);
        let hole = if self.nodes.is_worn(index) { self.nodes.replace(index) } else { index };
        self.add_hole(hole);
    }

    /// The hole keeps its node, and starts earlier.
    #[inline]
    fn merge_into_next(&mut self, index: u32, node: Node, next: Node, last_use: LastUse) {
        self.bins.resize(node.next, next.size, next.size + node.size);
        self.nodes.absorb_previous(node.next, index, node);
        self.nodes.set_last_use(node.next, self.unpassed(next.last_use).join(last_use));
    }

    /// The hole keeps its node, and ends later, over the hole behind as well.
    #[inline]
    fn merge_into_previous(
        &mut self,
        index: u32,
        node: Node,
        previous: Node,
        next: Node,
        last_use: LastUse,
    ) {
        let (mut size, mut beyond) = (previous.size + node.size, node.next);
        let mut last_use = self.unpassed(previous.last_use).join(last_use);
        if next.is_hole() {
            last_use = self.unpassed(next.last_use).join(last_use);
            self.bins.remove(node.next, next.size);
            self.holes -= 1;
            self.nodes.discard(node.next);
            (size, beyond) = (size + next.size, next.next);
        }
        self.nodes.stretch(node.previous, size, beyond);
        self.nodes.set_last_use(node.previous, last_use);
        self.nodes.discard(index);
        self.bins.resize(node.previous, previous.size, size);
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
        let slot = self.blocks.iter().position(|(edge, _)| *edge == NONE);
        let id = slot.unwrap_or(self.blocks.len());
        let block = BlockId(
            u32::try_from(id).ok().filter(|id| *id < 1 << 31).ok_or(ErrorKind::ExceedsLimit)?,
        );
        self.reserve(2)?;
        if slot.is_none() {
            self.blocks.try_reserve(1).map_err(|_| ErrorKind::OutOfHostMemory)?;
            self.blocks.push((NONE, 0));
        }
        let (edge, piece) = self.nodes.add(block, size);
        self.blocks[id] = (edge, size);
        self.total += size;
        self.add_hole(piece);
        Ok(block)
    }

    fn remove_block(&mut self, block: BlockId) -> Result<(), ErrorKind> {
        let edge = self.edge(block)?;
        if !self.is_empty(block) {
            return Err(ErrorKind::Busy);
        }
        let piece = self.nodes.next(edge);
        self.remove_hole(piece);
        self.total -= self.nodes.size(piece);
        self.nodes.discard(piece);
        self.nodes.discard(edge);
        self.blocks[block.0 as usize] = (NONE, 0);
        Ok(())
    }

    #[inline]
    fn allocate(&mut self, layout: Layout, class: Class) -> Result<Grant, ErrorKind> {
        self.check_size(layout)?;
        self.reserve(2)?;
        let may = |_| true;
        let found = self.find(layout, class, &may).or_else(|| self.find_any(layout, class, &may));
        let (hole, start) = found.ok_or_else(|| self.refuse(layout))?;
        Ok(self.take(hole, start, start + layout.size, class))
    }

    #[inline]
    fn free(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        let node = self.nodes.live(key).ok_or(ErrorKind::Stale)?;
        self.give_back(key, node, node.last_use);
        Ok(Grant { block: node.block(), span: node.span(), key })
    }

    #[inline]
    fn grant(&self, key: Key) -> Result<Grant, ErrorKind> {
        Ok(self.grant_of(self.live_index(key)?))
    }

    fn usage(&self) -> Usage {
        let holes = self.bins.last().into_iter().flat_map(|bin| self.bins.holes(bin));
        let largest = holes.map(|hole| self.nodes.size(hole)).max().unwrap_or(0);
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
        self.edge(block).is_ok_and(|edge| {
            let piece = self.nodes.next(edge);
            self.nodes.is_hole(piece) && self.nodes.next(piece) == edge
        })
    }

    fn for_each(&self, visit: &mut dyn FnMut(Piece)) {
        self.all_pieces().for_each(|at| visit(self.piece(at)));
    }

    fn validate(&self) -> Result<(), &'static str> {
        let (mut total, mut used, mut holes, mut live) = (0, 0, 0, 0);
        let (mut before, mut expected) = (NONE, 0);
        for at in self.all_pieces() {
            let node = self.nodes.get(at);
            let previous = self.nodes.get(node.previous);
            if previous.is_edge() {
                expected = 0;
            } else if node.previous != before {
                return Err("a ring of neighbours is broken");
            }
            if node.offset != expected || node.size == 0 {
                return Err("the pieces of a block do not tile it");
            }
            if node.is_hole() && previous.is_hole() {
                return Err("two holes touch");
            }
            if node.is_hole() && !self.bins.contains(&self.nodes, at) {
                return Err("a hole is not in the list of its bin");
            }
            (total, expected, before) = (total + node.size, node.span().end(), at);
            match node.is_hole() {
                true => holes += 1,
                false => (used, live) = (used + node.size, live + 1),
            }
        }
        if (total, used, holes, live) != (self.total, self.used, self.holes, self.live) {
            return Err("the counters differ from a walk");
        }
        self.bins.validate(&self.nodes, holes)
    }
}
