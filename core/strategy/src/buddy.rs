//! Buddy: power-of-two spans that split in halves and merge with their twins.
#![forbid(unsafe_code)]
use super::blocks::Blocks;
use super::keys::{Keys, NONE};
use super::{BlockId, Grant, Key, Piece, PieceState, Strategy, Usage, refusal, validate_pieces};
use alloc::vec::Vec;
use omniheap_seam::{Align, Class, ErrorKind, Layout, Span};

/// Allocates spans whose size is a power of two, at multiples of their size.
///
/// # Algorithm
///
/// A request is rounded up to a power of two that is at least its alignment and at least the unit. The smallest free
/// span that is large enough, in any block, is halved until it has that size; the upper halves are free. A freed span
/// merges with its twin, the other half, while that is free too, so that no two free twins ever stand side by side.
///
/// A block need not be a power of two: it begins as the powers of two that its size is the sum of, largest first. Only
/// what is left below one unit is padding.
///
/// Classes: a `Tiled` span takes at least a granule. It starts and ends on granules, so it shares none; `Linear`
/// spans share granules only among themselves.
///
/// # Cost
///
/// Allocating and freeing are *O*(log(block ÷ unit)): at most one split or merge for each power of two, and one bit scan
/// over all blocks. A free span of the rounded size always holds the request.
/// Bookkeeping is 32 bytes for each node of the tree of halves, and 12 for a live span: about 76 bytes for a live span where
/// spans fill their blocks, up to 64 for each halving where they are few. A request loses up to half of its span to rounding.
///
/// # When to choose it
///
/// For sizes that are powers of two anyway, or where alignment equals size: page tables, texture tiles, reserved
/// address space. Not for sizes that are not: a quarter of the memory is lost on average.
///
/// # Examples
///
/// ```
/// use omniheap_strategy::{Buddy, Strategy};
/// use omniheap_seam::{Align, Class, ErrorKind, Layout};
///
/// let mut buddy = Buddy::new(Align::of(16), Align::ONE);
/// buddy.add_block(1024)?;
/// let a = buddy.allocate(Layout::new(200), Class::Linear)?;
/// let b = buddy.allocate(Layout::new(512), Class::Linear)?;
/// assert_eq!((a.span.offset, a.span.size, b.span.offset), (0, 256, 512));
///
/// buddy.free(a.key)?;
/// buddy.free(b.key)?;
/// assert_eq!(buddy.usage().largest_hole, 1024);
/// assert_eq!(buddy.free(b.key), Err(ErrorKind::Stale));
/// # Ok::<(), ErrorKind>(())
/// ```
#[derive(Clone, Debug)]
pub struct Buddy {
    unit: Align,
    granularity: Align,
    /// The spans that each block began as, as indices of nodes, lowest offset first.
    blocks: Blocks<Vec<u32>>,
    nodes: Nodes,
    /// The node of each live span.
    spans: Keys<u32>,
}

impl Buddy {
    /// Creates a strategy without blocks that divides down to `unit`. Spans of different class stay `granularity` apart.
    #[must_use]
    pub const fn new(unit: Align, granularity: Align) -> Self {
        Self { unit, granularity, blocks: Blocks::new(), nodes: Nodes::new(), spans: Keys::new() }
    }

    /// Rounds a request up to the power of two that it takes; `None` when that does not fit in 64 bits.
    fn rounded(&self, layout: Layout, class: Class) -> Option<u64> {
        let granule = match class {
            Class::Linear => Align::ONE,
            Class::Tiled => self.granularity,
        };
        let least = layout.align.max(self.unit).max(granule).get();
        layout.size.checked_next_power_of_two().map(|size| size.max(least))
    }

    /// Divides `size` into powers of two down to the unit, largest first, with their offsets.
    fn roots(&self, size: u64) -> impl Iterator<Item = Span> + use<> {
        let mut rest = self.unit.down(size);
        let mut offset = 0;
        core::iter::from_fn(move || {
            let size = 1 << rest.checked_ilog2()?;
            let span = Span { offset, size };
            rest -= size;
            offset += size;
            Some(span)
        })
    }

    fn visit(&self, index: u32, visit: &mut dyn FnMut(Piece)) {
        let node = self.nodes.get(index);
        let state = match node.state {
            State::Split { pair } => {
                self.visit(pair, visit);
                return self.visit(pair + 1, visit);
            }
            State::Live { span } => match self.spans.at(span) {
                Some((key, _)) => PieceState::Live(key),
                None => unreachable!("`free` ends the key and the node together"),
            },
            State::Free { .. } => PieceState::Hole,
            State::Vacant { .. } => unreachable!("a tree holds no vacant node"),
        };
        visit(Piece { block: node.block, span: node.span(), state });
    }
}

impl Strategy for Buddy {
    fn add_block(&mut self, size: u64) -> Result<BlockId, ErrorKind> {
        let block = self.blocks.reserve(size)?;
        let count = self.roots(size).count();
        if count == 0 {
            return Err(ErrorKind::ExceedsLimit);
        }
        let mut roots = Vec::new();
        roots.try_reserve_exact(count).map_err(|_| ErrorKind::OutOfHostMemory)?;
        self.nodes.reserve(count)?;
        roots.extend(self.roots(size).map(|span| self.nodes.add_root(block, span)));
        self.blocks.insert(size, roots);
        Ok(block)
    }

    fn remove_block(&mut self, block: BlockId) -> Result<(), ErrorKind> {
        let roots = self.blocks.remove(block)?;
        roots.into_iter().for_each(|root| self.nodes.remove_root(root));
        Ok(())
    }

    fn allocate(&mut self, layout: Layout, class: Class) -> Result<Grant, ErrorKind> {
        if layout.size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        let size = self.rounded(layout, class).ok_or(ErrorKind::ExceedsLimit)?;
        let Some(free) = self.nodes.smallest_free(size) else {
            let largest = self.roots(self.blocks.largest()).next().map_or(0, |root| root.size);
            return Err(refusal(size, largest, self.nodes.free));
        };
        self.nodes.reserve(self.nodes.halvings(free, size))?;
        let key = self.spans.insert(NONE)?;
        let index = self.nodes.take(free, size, key);
        self.spans.at_mut(key.index).into_iter().for_each(|node| *node = index);
        let node = self.nodes.get(index);
        let (block, span) = (node.block, node.span());
        self.blocks.add_live(block, span.size);
        Ok(Grant { block, span, key })
    }

    fn free(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        let grant = self.grant(key)?;
        self.nodes.give(self.spans.remove(key)?);
        self.blocks.remove_live(grant.block, grant.span.size);
        Ok(grant)
    }

    fn grant(&self, key: Key) -> Result<Grant, ErrorKind> {
        let node = self.nodes.get(*self.spans.get(key)?);
        Ok(Grant { block: node.block, span: node.span(), key })
    }

    fn usage(&self) -> Usage {
        Usage {
            free: self.nodes.free,
            largest_hole: self.nodes.largest_free(),
            holes: self.nodes.holes,
            ..self.blocks.usage()
        }
    }

    fn is_empty(&self, block: BlockId) -> bool {
        self.blocks.is_empty(block)
    }

    fn for_each(&self, visit: &mut dyn FnMut(Piece)) {
        for (block, roots) in self.blocks.iter() {
            roots.iter().for_each(|&root| self.visit(root, visit));
            let end = self.unit.down(roots.size());
            if end < roots.size() {
                let span = Span { offset: end, size: roots.size() - end };
                visit(Piece { block, span, state: PieceState::Padding });
            }
        }
    }

    fn validate(&self) -> Result<(), &'static str> {
        for (block, roots) in self.blocks.iter() {
            let spans = roots.iter().map(|&root| self.nodes.get(root).span());
            if !self.roots(roots.size()).eq(spans) {
                return Err("a block's roots are not the powers of two of its size");
            }
            for &root in roots.iter() {
                self.nodes.validate_tree(root, (NONE, block))?;
            }
        }
        self.nodes.validate_lists()?;
        validate_pieces(self)
    }
}

/// One power-of-two span of a block.
#[derive(Clone, Debug)]
struct Node {
    offset: u64,
    block: BlockId,
    /// The node that was split into this one and its twin, `NONE` for a root.
    parent: u32,
    /// The size is two to this power.
    order: u8,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// Allocated under the key with this index.
    Live { span: u32 },
    /// Free, in the list of its order, between these nodes.
    Free { before: u32, after: u32 },
    /// Split into the nodes `pair` and `pair + 1`.
    Split { pair: u32 },
    /// Unused. The lower node of a vacant pair names the next vacant pair.
    Vacant { next: u32 },
}

impl Node {
    const fn span(&self) -> Span {
        Span { offset: self.offset, size: 1 << self.order }
    }
}

/// The trees of all blocks, and a list of the free nodes for each size. The twin of node `i` is node `i ^ 1`.
#[derive(Clone, Debug)]
struct Nodes {
    /// Pairs of twins. A root is the lower node of a pair whose upper node stays vacant.
    nodes: Vec<Node>,
    /// The first vacant pair, and how many there are.
    vacant: u32,
    vacancies: usize,
    /// The first free node of each order.
    lists: [u32; 64],
    /// A bit for each order whose list is not empty.
    filled: u64,
    free: u64,
    holes: u64,
}

impl Nodes {
    const fn new() -> Self {
        Self {
            nodes: Vec::new(),
            vacant: NONE,
            vacancies: 0,
            lists: [NONE; 64],
            filled: 0,
            free: 0,
            holes: 0,
        }
    }

    fn get(&self, index: u32) -> &Node {
        #[cfg(test)]
        super::steps::count();
        &self.nodes[index as usize]
    }

    fn get_mut(&mut self, index: u32) -> &mut Node {
        #[cfg(test)]
        super::steps::count();
        &mut self.nodes[index as usize]
    }

    const fn largest_free(&self) -> u64 {
        match self.filled.checked_ilog2() {
            Some(order) => 1 << order,
            None => 0,
        }
    }

    /// Reserves host memory for `pairs` calls of `pair`.
    fn reserve(&mut self, pairs: usize) -> Result<(), ErrorKind> {
        let missing = pairs.saturating_sub(self.vacancies).saturating_mul(2);
        let len = self.nodes.len().saturating_add(missing);
        if u32::try_from(len).is_err() {
            return Err(ErrorKind::ExceedsLimit);
        }
        self.nodes.try_reserve(missing).map_err(|_| ErrorKind::OutOfHostMemory)
    }

    /// Takes a vacant pair, and returns its lower node. The caller reserved it.
    fn pair(&mut self) -> u32 {
        if self.vacant == NONE {
            let lower = u32::try_from(self.nodes.len()).expect("`reserve` keeps nodes in 32 bits");
            let state = State::Vacant { next: NONE };
            let node = Node { offset: 0, block: BlockId(0), parent: NONE, order: 0, state };
            self.nodes.push(node.clone());
            self.nodes.push(node);
            return lower;
        }
        let lower = self.vacant;
        let State::Vacant { next } = self.get(lower).state else {
            unreachable!("only `vacate` extends the vacant list")
        };
        self.vacant = next;
        self.vacancies -= 1;
        lower
    }

    /// Makes the pair of `index` vacant.
    fn vacate(&mut self, index: u32) {
        let lower = index & !1;
        self.get_mut(lower).state = State::Vacant { next: self.vacant };
        self.get_mut(lower + 1).state = State::Vacant { next: NONE };
        self.vacant = lower;
        self.vacancies += 1;
    }

    /// Adds a free root. The caller reserved a pair.
    fn add_root(&mut self, block: BlockId, span: Span) -> u32 {
        let root = self.pair();
        let order = u8::try_from(span.size.trailing_zeros()).expect("a size has 64 bits");
        let node = self.get_mut(root);
        (node.offset, node.block, node.parent, node.order) = (span.offset, block, NONE, order);
        self.push(root);
        root
    }

    /// Removes a free root.
    fn remove_root(&mut self, root: u32) {
        self.unlink(root);
        self.vacate(root);
    }

    /// Returns the first of the smallest free nodes that hold `size` bytes, a power of two.
    fn smallest_free(&self, size: u64) -> Option<u32> {
        let order = size.trailing_zeros();
        let larger = self.filled >> order;
        (larger != 0).then(|| self.lists[(order + larger.trailing_zeros()) as usize])
    }

    /// Returns how often a node is halved until it has `size` bytes.
    fn halvings(&self, index: u32, size: u64) -> usize {
        usize::from(self.get(index).order) - size.trailing_zeros() as usize
    }

    /// Makes `size` bytes of a free node live under a key. The caller reserved a pair for each halving.
    fn take(&mut self, free: u32, size: u64, key: Key) -> u32 {
        let mut index = free;
        self.unlink(index);
        for _ in 0..self.halvings(free, size) {
            index = self.halve(index);
        }
        self.get_mut(index).state = State::Live { span: key.index };
        index
    }

    /// Splits a node, frees its upper half and returns the lower. The caller reserved a pair.
    fn halve(&mut self, index: u32) -> u32 {
        let pair = self.pair();
        let node = self.get_mut(index);
        node.state = State::Split { pair };
        let (block, offset, order) = (node.block, node.offset, node.order - 1);
        for (half, offset) in [(pair, offset), (pair + 1, offset + (1 << order))] {
            let node = self.get_mut(half);
            (node.offset, node.block, node.parent, node.order) = (offset, block, index, order);
        }
        self.push(pair + 1);
        pair
    }

    /// Frees a live node and merges it with free twins.
    fn give(&mut self, live: u32) {
        let mut index = live;
        loop {
            let parent = self.get(index).parent;
            let twin = index ^ 1;
            if parent == NONE || !matches!(self.get(twin).state, State::Free { .. }) {
                break;
            }
            self.unlink(twin);
            self.vacate(index);
            index = parent;
        }
        self.push(index);
    }

    fn push(&mut self, index: u32) {
        let order = self.get(index).order;
        let after = self.lists[usize::from(order)];
        self.get_mut(index).state = State::Free { before: NONE, after };
        self.relink(after, |before, _| *before = index);
        self.lists[usize::from(order)] = index;
        self.filled |= 1 << order;
        self.free += 1 << order;
        self.holes += 1;
    }

    fn unlink(&mut self, index: u32) {
        let &Node { order, state: State::Free { before, after }, .. } = self.get(index) else {
            unreachable!("callers unlink free nodes only")
        };
        self.relink(after, |link, _| *link = before);
        if before == NONE {
            self.lists[usize::from(order)] = after;
        } else {
            self.relink(before, |_, link| *link = after);
        }
        if self.lists[usize::from(order)] == NONE {
            self.filled &= !(1 << order);
        }
        self.free -= 1 << order;
        self.holes -= 1;
    }

    /// Changes the links of a free node. Does nothing for `NONE`.
    fn relink(&mut self, index: u32, change: impl FnOnce(&mut u32, &mut u32)) {
        if let Some(Node { state: State::Free { before, after }, .. }) =
            self.nodes.get_mut(index as usize)
        {
            change(before, after);
        }
    }

    /// Checks one tree; `home` is the parent and the block that its root must name.
    fn validate_tree(&self, index: u32, home: (u32, BlockId)) -> Result<(), &'static str> {
        let node = self.get(index);
        if (node.parent, node.block) != home || !node.offset.is_multiple_of(node.span().size) {
            return Err("a node is in the wrong place");
        }
        let State::Split { pair } = node.state else { return Ok(()) };
        let halves = [pair, pair + 1];
        let half = node.span().size / 2;
        let expected = [node.offset, node.offset + half].map(|offset| Span { offset, size: half });
        if halves.map(|half| self.get(half).span()) != expected {
            return Err("two halves do not make the whole");
        }
        if halves.iter().all(|&half| matches!(self.get(half).state, State::Free { .. })) {
            return Err("two free twins were not merged");
        }
        halves.iter().try_for_each(|&half| self.validate_tree(half, (index, node.block)))
    }

    /// Checks the free lists against the bitmap and the count of free nodes.
    fn validate_lists(&self) -> Result<(), &'static str> {
        let mut holes = 0;
        for (order, &first) in (0..).zip(&self.lists) {
            if (self.filled >> order & 1 == 1) != (first != NONE) {
                return Err("a list's bit disagrees with the list");
            }
            let (mut expected, mut index) = (NONE, first);
            while index != NONE {
                let node = self.get(index);
                let State::Free { before, after } = node.state else {
                    return Err("a list holds a node that is not free");
                };
                if before != expected || node.order != order {
                    return Err("a list is linked wrongly");
                }
                holes += 1;
                (expected, index) = (index, after);
            }
        }
        if holes == self.holes { Ok(()) } else { Err("the free lists disagree with their count") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn a_node_that_is_freed_again_and_again_never_repeats_a_key() {
        let mut buddy = Buddy::new(Align::of(16), Align::ONE);
        buddy.add_block(32).expect("a power of two");
        let take = |buddy: &mut Buddy| {
            let grant = buddy.allocate(Layout::new(16), Class::Linear).expect("half is free");
            assert_eq!(buddy.validate(), Ok(()));
            grant
        };
        take(&mut buddy);
        let first = take(&mut buddy);
        buddy.free(first.key).expect("it is live");
        buddy.spans.wear(3);
        let mut keys = BTreeSet::from([first.key]);
        for _ in 0..8 {
            let again = take(&mut buddy);
            assert_eq!(again.span, first.span, "the twin keeps the node where it is");
            assert!(keys.insert(again.key), "{:?} is live a second time", again.key);
            buddy.free(again.key).expect("it is live");
            for key in &keys {
                assert_eq!(buddy.grant(*key), Err(ErrorKind::Stale));
            }
        }
    }
}
