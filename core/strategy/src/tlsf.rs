//! TLSF, the general strategy: any size, any order, allocation and free in constant time.
mod bins;
mod edit;
mod nodes;
#[cfg(test)]
mod worn;

pub use self::nodes::LastUse;

use self::bins::{BINS, Bins, bin_of, bin_that_fits};
use self::nodes::{Node, Nodes};
use super::keys::NONE;
use super::{BlockId, Grant, Key, Piece, PieceState, Strategy, Usage, refusal, validate_pieces};
use alloc::{collections::BinaryHeap, vec::Vec};
use core::cmp::Reverse;
use omniheap_seam::{Align, Class, ErrorKind, Layout, Span};

/// Holes of the request's own bin to try before a larger bin is taken.
///
/// Holes of one bin differ by at most 1/32, so a longer search saves little memory and slows the worst case.
const TRIES: usize = 4;

/// Two-level segregated fit with 32 bins per power of two.
///
/// # Algorithm
///
/// Holes are kept in lists by size: one list for each 1/32 of a power of two, with a bitmap over the lists. A request
/// looks at a few holes of its own bin, then takes the first hole of the next larger bin that has one, which is found
/// with two bit scans: a best fit to within 3 %. The rest of the hole stays a hole. A freed span merges with the holes
/// beside it at once, except where another user may still use theirs: those merge when one of the two uses has finished.
/// All blocks share the lists, so a search covers every block at the price of one.
///
/// # Cost
///
/// `allocate` and `free` are *O*(1), with no loop longer than four steps; 48 bytes for each live span and each hole. Only a
/// request that these steps do not serve, though enough bytes are free, looks at every hole before it is refused. With a
/// granularity, a hole that is long enough is looked at together with the holes that share a granule with one of its ends.
/// [`usage`](Strategy::usage) looks at the holes of one bin, `for_each` and `validate` walk everything.
///
/// Choose it unless you know better: when sizes and lifetimes are mixed. Where every size is equal, a slab is smaller
/// and never fragments; where all bytes die together, a bump is faster.
///
/// # Examples
///
/// ```
/// use omniheap_seam::{Align, Class, Layout};
/// use omniheap_strategy::{Strategy, Tlsf};
///
/// let mut offsets = Tlsf::new(Align::ONE);
/// offsets.add_block(1 << 20)?;
/// let a = offsets.allocate(Layout::new(1000).align(Align::of(256)), Class::Linear)?;
/// let b = offsets.allocate(Layout::new(64), Class::Linear)?;
/// assert!(!a.span.overlaps(b.span));
/// offsets.free(a.key)?;
/// assert_eq!(offsets.free(a.key), Err(omniheap_seam::ErrorKind::Stale));
/// # Ok::<(), omniheap_seam::ErrorKind>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tlsf {
    granularity: Align,
    nodes: Nodes,
    bins: Bins,
    /// The edge and the size of each block. The edge is `NONE` where the id is unused.
    blocks: Vec<(u32, u64)>,
    /// No id below this is unused.
    lowest_unused: usize,
    /// No block is smaller than this.
    smallest: u64,
    /// The size of the largest block.
    largest: u64,
    /// The number of blocks of that size.
    as_large: usize,
    total: u64,
    used: u64,
    live: u64,
    holes: u64,
    /// Nodes that slides to come may need.
    pledged: u32,
    /// Uses up to this time have finished.
    passed: u64,
    /// Holes that touch the hole before them. Some notes are outdated.
    touching: BinaryHeap<Reverse<Touching>>,
}

/// A note of a hole that touches the hole before it. The least note is the first to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Touching {
    /// Time at which the first of the two uses finishes: the holes may merge from then on.
    time: u64,
    /// Bytes of both. Of two neighbours, a hole merges with the shorter one: what still has to wait stays short.
    size: u64,
    /// Offset of the hole. Nothing is decided by the numbers of nodes, which follow from what was there long ago.
    offset: u64,
    index: u32,
    stamp: u32,
}

impl Touching {
    const fn key(self) -> Key {
        Key { index: self.index, stamp: self.stamp }
    }
}

impl Tlsf {
    /// Creates a strategy without blocks that keeps spans of different class `granularity` apart.
    #[must_use]
    pub const fn new(granularity: Align) -> Self {
        Self {
            granularity,
            nodes: Nodes::new(),
            bins: Bins::new(),
            blocks: Vec::new(),
            lowest_unused: 0,
            smallest: u64::MAX,
            largest: 0,
            as_large: 0,
            total: 0,
            used: 0,
            live: 0,
            holes: 0,
            pledged: 0,
            passed: 0,
            touching: BinaryHeap::new(),
        }
    }

    /// Allocates from a hole whose last use `may` accepts. Looks at a few holes only.
    ///
    /// # Errors
    ///
    /// As for [`allocate`](Strategy::allocate), but also when only other holes would fit.
    #[inline]
    pub fn allocate_where(
        &mut self,
        layout: Layout,
        class: Class,
        may: impl Fn(LastUse) -> bool,
    ) -> Result<Grant, ErrorKind> {
        self.prepare(layout)?;
        let own = bin_of(layout.size);
        if let Some((hole, start)) = self.find_first(own, layout, class, &may) {
            return Ok(self.take(hole, start, start + layout.size, class));
        }
        self.take_found(self.find_further(own, layout, class, &may), layout, class)
    }

    /// Allocates from a hole whose last use `may` accepts. Looks at every hole before it refuses.
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
        self.prepare(layout)?;
        self.take_found(self.search(layout, class, &may), layout, class)
    }

    /// Allocates from the first hole in the order of blocks and offsets that fits and that `may` accepts, which is told the place
    /// and its last use. Looks at every span before that hole.
    ///
    /// # Errors
    ///
    /// As for [`allocate`](Strategy::allocate).
    pub fn allocate_lowest(
        &mut self,
        layout: Layout,
        class: Class,
        mut may: impl FnMut(BlockId, Span, LastUse) -> bool,
    ) -> Result<Grant, ErrorKind> {
        self.prepare(layout)?;
        let found = self.all_pieces().find_map(|at| self.place_in(at, layout, class, &mut may));
        self.take_found(found, layout, class)
    }

    /// Returns a node and where a request begins in it, if it is a hole that fits and that `may` accepts.
    fn place_in(
        &self,
        at: u32,
        layout: Layout,
        class: Class,
        may: &mut impl FnMut(BlockId, Span, LastUse) -> bool,
    ) -> Option<(u32, u64)> {
        let node = Some(self.nodes.at(at)).filter(|node| node.is_hole())?;
        let start = self.start_in(node, layout, class)?;
        let span = Span { offset: start, size: layout.size };
        may(node.block(), span, node.last_use).then_some((at, start))
    }

    /// Frees a span, and records its last use.
    ///
    /// # Errors
    ///
    /// As for [`free`](Strategy::free), which keeps the last use that the bytes had before the span was allocated.
    #[inline]
    pub fn free_used(&mut self, key: Key, last_use: LastUse) -> Result<Grant, ErrorKind> {
        let node = self.nodes.live(key).ok_or(ErrorKind::Stale)?;
        let (block, span) = (node.block(), node.span());
        self.give_back(key.index, last_use);
        Ok(Grant { block, span, key })
    }

    /// Returns the last use of a live span's bytes before it was allocated.
    ///
    /// # Errors
    ///
    /// `Stale` when the key is not live.
    pub fn last_use(&self, key: Key) -> Result<LastUse, ErrorKind> {
        self.nodes.live(key).map(|node| node.last_use).ok_or(ErrorKind::Stale)
    }

    /// Replaces the last use of a live span's bytes before it was allocated. Does nothing for a stale key.
    #[inline]
    pub fn set_last_use(&mut self, key: Key, last_use: LastUse) {
        if self.nodes.live(key).is_some() {
            self.nodes.set_last_use(key.index, last_use);
        }
    }

    /// Returns every empty block with its size and its last use, in no order. Looks at the holes that are as long as the smallest
    /// block; at all blocks only where holes touch.
    pub fn empty_blocks(&self) -> impl Iterator<Item = (BlockId, u64, LastUse)> + '_ {
        let bins = core::iter::successors(self.bins.last(), |bin| self.bins.last_below(*bin));
        let least = bin_of(self.smallest);
        let long = bins.take_while(move |bin| *bin >= least).flat_map(|bin| self.bins.holes(bin));
        let whole = long.map(|hole| self.nodes.at(hole)).filter(|node| node.previous == node.next);
        let whole = whole.map(|node| (node.block(), node.size, node.last_use));
        // An empty block that is no hole is several, and each that follows another one has a note.
        let divided = if self.touching.is_empty() { &[] } else { self.blocks.as_slice() };
        let divided = (0..).map(BlockId).zip(divided).filter_map(|(id, (edge, size))| {
            if *edge == NONE || self.nodes.next(*edge) == self.nodes.previous(*edge) {
                return None;
            }
            let joined = self.pieces(*edge).try_fold(LastUse::NONE, |joined, at| {
                let node = self.nodes.at(at);
                node.is_hole().then(|| joined.join(node.last_use))
            });
            joined.map(|last_use| (id, *size, last_use))
        });
        whole.chain(divided)
    }

    /// Looks at all blocks for the size of the largest, and the number of those.
    fn largest_blocks(&self) -> (u64, usize) {
        let sizes = || self.blocks.iter().filter(|(edge, _)| *edge != NONE).map(|(_, size)| *size);
        let largest = sizes().max().unwrap_or(0);
        (largest, sizes().filter(|size| *size == largest).count())
    }

    /// Returns the size of the largest block, 0 without blocks.
    #[must_use]
    pub const fn largest_block(&self) -> u64 {
        self.largest
    }

    /// Declares every use up to a time finished.
    pub fn set_passed(&mut self, time: u64) {
        self.passed = self.passed.max(time);
        while let Some(Reverse(note)) = self.touching.pop() {
            if note.time > self.passed {
                self.touching.push(Reverse(note));
                return;
            }
            if self.is_touching(note.key()) {
                self.merge_or_note(note.index);
            }
        }
    }

    /// Merges all holes that touch. Nobody may use the result before all users of its parts have finished.
    pub fn merge_touching(&mut self) {
        while let Some(Reverse(note)) = self.touching.pop() {
            if self.is_touching(note.key()) {
                self.merge_with_previous(note.index);
            }
        }
    }

    /// Returns whether a key is the latest of a hole that follows another hole.
    fn is_touching(&self, hole: Key) -> bool {
        let is_hole = |at: u32| self.nodes.is_hole(at);
        self.nodes.is_latest(hole)
            && is_hole(hole.index)
            && is_hole(self.nodes.previous(hole.index))
    }

    /// Returns whether two holes can be one without making either wait for a user that it does not wait for now.
    #[inline]
    const fn may_merge(&self, one: LastUse, other: LastUse) -> bool {
        one.same_user(other) || one.time() <= self.passed || other.time() <= self.passed
    }

    /// Merges a hole with the hole before it, now or when one of their uses has finished. Returns the hole that its bytes are
    /// in then.
    fn merge_or_note(&mut self, hole: u32) -> u32 {
        let (before, after) = (self.nodes.get(self.nodes.previous(hole)), self.nodes.get(hole));
        if !before.is_hole() || !after.is_hole() {
            return hole;
        }
        if self.may_merge(before.last_use, after.last_use) || !self.reserve_touching() {
            return self.merge_with_previous(hole);
        }
        let time = before.last_use.time().min(after.last_use.time());
        let (size, offset) = (before.size + after.size, after.offset);
        let Key { index, stamp } = self.nodes.key(hole);
        self.touching.push(Reverse(Touching { time, size, offset, index, stamp }));
        hole
    }

    /// Makes room for one more note of holes that touch; `false` without host memory.
    fn reserve_touching(&mut self) -> bool {
        if self.touching.len() as u64 > 2 * self.holes + 64 {
            let mut notes = core::mem::take(&mut self.touching).into_vec();
            notes.sort_unstable_by_key(|Reverse(note)| (note.index, *note));
            notes.retain(|Reverse(note)| self.is_touching(note.key()));
            notes.dedup_by_key(|Reverse(note)| note.index);
            self.touching = BinaryHeap::from(notes);
        }
        self.touching.try_reserve(1).is_ok()
    }

    /// Merges a hole with the hole before it. Returns the merged hole.
    fn merge_with_previous(&mut self, hole: u32) -> u32 {
        let before = self.nodes.previous(hole);
        let last_use = [before, hole].map(|at| self.unpassed(self.nodes.get(at).last_use));
        self.remove_hole(hole);
        self.remove_hole(before);
        self.nodes.absorb_next(before);
        self.nodes.set_last_use(before, last_use[0].join(last_use[1]));
        self.add_hole(before);
        before
    }

    /// Returns the use, or `NONE` when it has finished.
    #[inline]
    const fn unpassed(&self, last_use: LastUse) -> LastUse {
        if last_use.time() <= self.passed { LastUse::NONE } else { last_use }
    }

    /// Checks the size of a request, and reserves the two nodes that it may need.
    #[inline]
    fn prepare(&mut self, layout: Layout) -> Result<(), ErrorKind> {
        // Zero wraps around, so that one comparison refuses both ends.
        match layout.size {
            size if size.wrapping_sub(1) < self.total => self.reserve(2),
            0 => Err(ErrorKind::ZeroSize),
            _ => Err(ErrorKind::ExceedsLimit),
        }
    }

    #[inline]
    fn take_found(
        &mut self,
        found: Option<(u32, u64)>,
        layout: Layout,
        class: Class,
    ) -> Result<Grant, ErrorKind> {
        let (hole, start) = found.ok_or_else(|| self.refuse(layout))?;
        Ok(self.take(hole, start, start + layout.size, class))
    }

    fn give_back(&mut self, index: u32, last_use: LastUse) {
        let node = self.nodes.at(index);
        let (size, before, after) = (node.size, node.previous, node.next);
        self.used -= size;
        self.live -= 1;
        // A finished use adds no user to the holes beside it.
        let last_use = self.unpassed(last_use);
        let (previous, next) = (self.nodes.at(before), self.nodes.at(after));
        match (previous.is_hole(), next.is_hole()) {
            (false, false) => self.become_hole(index, last_use),
            (false, true) if self.may_merge(next.last_use, last_use) => {
                self.merge_into_next(index, after, last_use);
            }
            (true, false) if self.may_merge(previous.last_use, last_use) => {
                self.merge_into_previous(index, before, last_use);
            }
            (true, true) if self.may_merge_three(previous.last_use, last_use, next.last_use) => {
                self.merge_into_previous(index, before, last_use);
            }
            _ => self.give_back_beside_others(index, last_use),
        }
    }

    #[inline]
    const fn may_merge_three(&self, before: LastUse, own: LastUse, after: LastUse) -> bool {
        self.may_merge(before, own) && self.may_merge(own, after) && self.may_merge(before, after)
    }

    /// Frees a span beside holes of other users.
    #[cold]
    fn give_back_beside_others(&mut self, index: u32, last_use: LastUse) {
        self.become_hole(index, last_use);
        let hole = self.merge_or_note(index);
        self.merge_or_note(self.nodes.next(hole));
    }

    /// Returns the bytes of all blocks.
    #[must_use]
    pub const fn total_bytes(&self) -> u64 {
        self.total
    }

    /// Returns the bytes in holes.
    #[must_use]
    pub const fn free_bytes(&self) -> u64 {
        self.total - self.used
    }

    /// Returns whether [`allocate`](Strategy::allocate) would succeed.
    #[must_use]
    pub fn would_fit(&self, layout: Layout, class: Class) -> bool {
        layout.size > 0
            && layout.size <= self.free_bytes()
            && self.search(layout, class, &|_| true).is_some()
    }

    /// Describes a node as a piece.
    fn piece(&self, at: u32) -> Piece {
        let node = self.nodes.get(at);
        let state = match node.is_hole() {
            true => PieceState::Hole,
            false => PieceState::Live(self.nodes.key(at)),
        };
        Piece { block: node.block(), span: node.span(), state }
    }

    fn edge(&self, block: BlockId) -> Result<u32, ErrorKind> {
        let edge = self.blocks.get(block.0 as usize).map_or(NONE, |(edge, _)| *edge);
        if edge == NONE { Err(ErrorKind::Stale) } else { Ok(edge) }
    }

    /// Returns the nodes of a block, lowest offset first.
    fn pieces(&self, edge: u32) -> impl Iterator<Item = u32> + '_ {
        self.pieces_behind(edge, edge)
    }

    /// Returns the nodes of a block behind one of them, lowest offset first.
    fn pieces_behind(&self, start: u32, edge: u32) -> impl Iterator<Item = u32> + '_ {
        let step = move |at: u32| Some(self.nodes.next(at)).filter(|next| *next != edge);
        core::iter::successors(step(start), move |at| step(*at))
    }

    /// Returns the nodes of all blocks, block by block.
    fn all_pieces(&self) -> impl Iterator<Item = u32> + '_ {
        let edges = self.blocks.iter().map(|(edge, _)| *edge).filter(|edge| *edge != NONE);
        edges.flat_map(|edge| self.pieces(edge))
    }

    /// Reserves host memory for `count` nodes, beside those that are pledged. A free needs none.
    #[inline]
    fn reserve(&mut self, count: u32) -> Result<(), ErrorKind> {
        let count = self.pledged + count;
        if self.nodes.has(count) { Ok(()) } else { self.grow(count) }
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

    /// Turns `start..end` of a hole into a live span. The caller reserved two nodes.
    #[inline(always)]
    fn take(&mut self, hole: u32, start: u64, end: u64, class: Class) -> Grant {
        let whole = self.nodes.at(hole);
        let (block, had, size) = (whole.block(), whole.size, end - start);
        let index = if start == whole.offset && size < had {
            // The common case: the hole keeps its node and starts later.
            self.bins.resize(hole, had, had - size);
            self.nodes.split_front(hole, size)
        } else {
            self.take_other(hole, start, end)
        };
        let stamp = self.nodes.set_live(index, class);
        self.used += size;
        self.live += 1;
        Grant { block, span: Span { offset: start, size }, key: Key { index, stamp } }
    }

    /// Takes all of a hole, or a part that does not begin with it, for [`take`](Self::take).
    #[inline(never)]
    fn take_other(&mut self, hole: u32, start: u64, end: u64) -> u32 {
        let whole = self.nodes.at(hole).span();
        self.remove_hole(hole);
        if start == whole.offset {
            return if self.nodes.is_worn(hole) { self.nodes.replace(hole) } else { hole };
        }
        let index = self.nodes.split(hole, start - whole.offset);
        self.add_hole(hole);
        if end < whole.end() {
            let rest = self.nodes.split(index, end - start);
            self.add_hole(rest);
        }
        index
    }

    /// Makes a live span a hole of its own.
    #[inline]
    fn become_hole(&mut self, index: u32, last_use: LastUse) {
        self.nodes.set_last_use(index, last_use);
        self.add_hole(index);
    }

    /// Merges a freed span into the hole after it, which keeps its node.
    #[inline]
    fn merge_into_next(&mut self, index: u32, hole: u32, last_use: LastUse) {
        let (size, next) = (self.nodes.size(index), self.nodes.at(hole));
        let (had, last_use) = (next.size, self.unpassed(next.last_use).join(last_use));
        self.bins.resize(hole, had, had + size);
        self.nodes.absorb_previous(hole);
        self.nodes.set_last_use(hole, last_use);
    }

    /// Merges a freed span, and the hole after it if there is one, into the hole before it, which keeps its node.
    fn merge_into_previous(&mut self, index: u32, hole: u32, last_use: LastUse) {
        let Node { size, next, .. } = self.nodes.get(index);
        let (previous, after) = (self.nodes.at(hole), self.nodes.get(next));
        let (had, mut size, mut beyond) = (previous.size, previous.size + size, next);
        let mut last_use = self.unpassed(previous.last_use).join(last_use);
        if after.is_hole() {
            last_use = self.unpassed(after.last_use).join(last_use);
            self.bins.remove(next, after.size);
            self.holes -= 1;
            self.nodes.discard(next);
            (size, beyond) = (size + after.size, after.next);
        }
        self.nodes.stretch(hole, size, beyond);
        self.nodes.set_last_use(hole, last_use);
        self.nodes.discard(index);
        self.bins.resize(hole, had, size);
    }
}

/// The search for a hole: the nearest size first, every hole before a refusal.
impl Tlsf {
    /// Returns whether freeing a live span and allocating its size again would give the same span and the same lists.
    ///
    /// The span's offset must have the alignment of the request.
    #[inline]
    #[must_use]
    pub fn would_come_back(&self, key: Key) -> bool {
        let Some(node) = self.nodes.live(key) else { return false };
        let (before, after) = (self.nodes.get(node.previous), self.nodes.get(node.next));
        // Merged with a hole before it, the request would start there.
        if before.is_hole() {
            return false;
        }
        // A hole of its own becomes the first of its bin, fits exactly, and is removed again.
        if !after.is_hole() {
            return true;
        }
        // The hole after it grows into another bin and shrinks back. It must be the first of both to end where it was.
        let (rest, whole) = (bin_of(after.size), bin_of(after.size + node.size));
        let mut tightest = self.bins.first_from(bin_of(node.size));
        if tightest == Some(rest) && rest != whole {
            if self.bins.next_hole(node.next).is_some() {
                return false;
            }
            tightest = self.bins.first_from(rest + 1);
        }
        self.bins.head(rest) == Some(node.next) && tightest.is_none_or(|bin| bin >= whole)
    }

    /// Returns where a span of this layout would start in a hole, if it fits.
    #[inline]
    fn start_in(&self, hole: &Node, layout: Layout, class: Class) -> Option<u64> {
        let start = layout.align.up(hole.offset)?;
        // The size first: neighbours are looked at only where it is enough.
        if start.checked_add(layout.size)? > hole.span().end() {
            return None;
        }
        if self.granularity > Align::ONE {
            return self.start_apart(hole, start, layout, class);
        }
        Some(start)
    }

    /// As [`start_in`](Self::start_in), a granule away from neighbours of the other class.
    #[cold]
    fn start_apart(&self, hole: &Node, start: u64, layout: Layout, class: Class) -> Option<u64> {
        let start = self.apart_from_previous(hole, start, layout.align, class)?;
        let end = start.checked_add(layout.size)?;
        (end <= hole.span().end() && !self.meets_next(hole, end, class)).then_some(start)
    }

    fn apart_from_previous(
        &self,
        hole: &Node,
        start: u64,
        align: Align,
        class: Class,
    ) -> Option<u64> {
        let granule = self.granularity.down(start);
        let mut previous = self.nodes.at(hole.previous);
        // A span that ends before this granule shares none, so no hole below it is looked at.
        while previous.is_hole() && previous.offset > granule {
            previous = self.nodes.at(previous.previous);
        }
        let is_apart = previous.is_hole() || previous.is_edge() || previous.class() == class;
        if is_apart || previous.span().end() <= granule {
            return Some(start);
        }
        align.max(self.granularity).up(start)
    }

    fn meets_next(&self, hole: &Node, end: u64, class: Class) -> bool {
        let granule = self.granularity.down(end - 1);
        let mut next = self.nodes.at(hole.next);
        // A span behind a hole that reaches out of this granule begins in a later granule.
        while next.is_hole() && self.granularity.down(next.span().end() - 1) == granule {
            next = self.nodes.at(next.next);
        }
        !next.is_hole()
            && !next.is_edge()
            && next.class() != class
            && self.granularity.down(next.offset) == granule
    }

    /// Finds a hole as [`allocate_where`](Self::allocate_where) does, and tries every hole before it gives up.
    #[inline]
    fn search(
        &self,
        layout: Layout,
        class: Class,
        may: &impl Fn(LastUse) -> bool,
    ) -> Option<(u32, u64)> {
        let own = bin_of(layout.size);
        self.find_first(own, layout, class, may)
            .or_else(|| self.search_further(own, layout, class, may))
    }

    /// Looks at the first hole of the nearest bin from a request's own on, and returns where in it the span starts.
    #[inline]
    fn find_first(
        &self,
        own: u32,
        layout: Layout,
        class: Class,
        may: &impl Fn(LastUse) -> bool,
    ) -> Option<(u32, u64)> {
        self.fits(self.bins.head(self.bins.first_from(own)?)?, layout, class, may)
    }

    #[inline]
    fn fits(
        &self,
        hole: u32,
        layout: Layout,
        class: Class,
        may: &impl Fn(LastUse) -> bool,
    ) -> Option<(u32, u64)> {
        let node = self.nodes.at(hole);
        // Callers hear only of holes that fit: they may wait for the first that is in use.
        let start = self.start_in(node, layout, class)?;
        may(node.last_use).then_some((hole, start))
    }

    /// Continues [`find_first`](Self::find_first) when that hole did not fit: tries a few holes of the request's own bin, which may be
    /// too small by less than 1/32, then larger bins.
    #[inline(never)]
    fn find_further(
        &self,
        own: u32,
        layout: Layout,
        class: Class,
        may: &impl Fn(LastUse) -> bool,
    ) -> Option<(u32, u64)> {
        let mut few = self.bins.holes(own).take(TRIES);
        few.find_map(|hole| self.fits(hole, layout, class, may))
            .or_else(|| self.find_larger(layout, class, may))
    }

    /// As [`find_further`](Self::find_further), and tries every hole before it gives up.
    #[inline(never)]
    fn search_further(
        &self,
        own: u32,
        layout: Layout,
        class: Class,
        may: &impl Fn(LastUse) -> bool,
    ) -> Option<(u32, u64)> {
        let few = self.find_further(own, layout, class, may);
        few.or_else(|| self.find_any(layout, class, may))
    }

    /// Tries every hole that may be large enough.
    fn find_any(
        &self,
        layout: Layout,
        class: Class,
        may: &impl Fn(LastUse) -> bool,
    ) -> Option<(u32, u64)> {
        if layout.size > self.free_bytes() {
            return None;
        }
        let after = |bin: &u32| self.bins.first_from(bin + 1).filter(|_| bin + 1 < BINS);
        let bins = core::iter::successors(self.bins.first_from(bin_of(layout.size)), after);
        let mut holes = bins.flat_map(|bin| self.bins.holes(bin));
        holes.find_map(|hole| self.fits(hole, layout, class, may))
    }

    /// Finds a hole in a larger bin: the first that fits, else the first that fits at any alignment.
    #[inline]
    fn find_larger(
        &self,
        layout: Layout,
        class: Class,
        may: &impl Fn(LastUse) -> bool,
    ) -> Option<(u32, u64)> {
        let fits = |hole: u32| self.fits(hole, layout, class, may);
        let mut bin = self.bins.first_from(bin_that_fits(layout.size))?;
        for _ in 0..TRIES {
            let first = self.bins.head(bin)?;
            let node = self.nodes.at(first);
            if let Some(start) = self.start_in(node, layout, class) {
                if may(node.last_use) {
                    return Some((first, start));
                }
                // The last of the list was freed first, so its use has most probably finished.
                if let Some(found) = fits(self.bins.tail(bin)?) {
                    return Some(found);
                }
            }
            bin = self.bins.first_from(bin + 1)?;
        }
        let slack =
            (self.granularity.get() - 1).saturating_mul(2).saturating_add(layout.align.get() - 1);
        let bin = self.bins.first_from(bin_that_fits(layout.size.checked_add(slack)?))?;
        fits(self.bins.head(bin)?)
    }

    /// Says why no hole serves a request.
    #[cold]
    const fn refuse(&self, layout: Layout) -> ErrorKind {
        refusal(layout.size, self.largest, self.free_bytes())
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
        let mut later = self.blocks.iter().enumerate().skip(self.lowest_unused);
        let slot = later.find(|(_, (edge, _))| *edge == NONE);
        let id = slot.map_or(self.blocks.len(), |(id, _)| id);
        let block = BlockId(
            u32::try_from(id).ok().filter(|id| *id < 1 << 31).ok_or(ErrorKind::ExceedsLimit)?,
        );
        self.reserve(2)?;
        if id == self.blocks.len() {
            self.blocks.try_reserve(1).map_err(|_| ErrorKind::OutOfHostMemory)?;
            self.blocks.push((NONE, 0));
        }
        let (edge, piece) = self.nodes.add(block, size);
        self.blocks[id] = (edge, size);
        self.lowest_unused = id + 1;
        if size > self.largest {
            (self.largest, self.as_large) = (size, 0);
        }
        self.as_large += usize::from(size == self.largest);
        self.smallest = self.smallest.min(size);
        self.total += size;
        self.add_hole(piece);
        Ok(block)
    }

    fn remove_block(&mut self, block: BlockId) -> Result<(), ErrorKind> {
        let edge = self.edge(block)?;
        if !self.is_empty(block) {
            return Err(ErrorKind::Busy);
        }
        let mut piece = self.nodes.next(edge);
        while piece != edge {
            let next = self.nodes.next(piece);
            self.remove_hole(piece);
            self.total -= self.nodes.size(piece);
            self.nodes.discard(piece);
            piece = next;
        }
        self.nodes.discard(edge);
        let id = block.0 as usize;
        let (_, size) = core::mem::replace(&mut self.blocks[id], (NONE, 0));
        self.lowest_unused = self.lowest_unused.min(id);
        self.as_large -= usize::from(size == self.largest);
        if self.as_large == 0 {
            (self.largest, self.as_large) = self.largest_blocks();
        }
        if self.total == 0 {
            self.smallest = u64::MAX;
        }
        Ok(())
    }

    #[inline(always)]
    fn allocate(&mut self, layout: Layout, class: Class) -> Result<Grant, ErrorKind> {
        self.prepare(layout)?;
        let own = bin_of(layout.size);
        if let Some((hole, start)) = self.find_first(own, layout, class, &|_| true) {
            return Ok(self.take(hole, start, start + layout.size, class));
        }
        self.take_found(self.search_further(own, layout, class, &|_| true), layout, class)
    }

    #[inline]
    fn free(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        let last_use = self.last_use(key)?;
        self.free_used(key, last_use)
    }

    #[inline]
    fn grant(&self, key: Key) -> Result<Grant, ErrorKind> {
        self.granted(key).map(|(grant, _)| grant)
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
        self.edge(block).is_ok_and(|edge| self.pieces(edge).all(|at| self.nodes.is_hole(at)))
    }

    fn for_each(&self, visit: &mut dyn FnMut(Piece)) {
        self.all_pieces().for_each(|at| visit(self.piece(at)));
    }

    fn validate(&self) -> Result<(), &'static str> {
        for at in self.all_pieces() {
            let node = self.nodes.get(at);
            if self.nodes.next(node.previous) != at {
                return Err("a ring of neighbours is broken");
            }
            let before = self.nodes.get(node.previous);
            if node.is_hole() && before.is_hole() && self.may_merge(node.last_use, before.last_use)
            {
                return Err("two holes touch that could be one");
            }
        }
        if self.blocks.iter().take(self.lowest_unused).any(|(edge, _)| *edge == NONE) {
            return Err("an unused id of a block is below the lowest");
        }
        if self.largest_blocks() != (self.largest, self.as_large) {
            return Err("the size or the number of the largest blocks differs from a walk of them");
        }
        self.bins.validate(&self.nodes, self.holes)?;
        validate_pieces(self)
    }
}
