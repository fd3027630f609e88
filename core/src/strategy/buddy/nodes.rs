//! The trees of halves: nodes in pairs, so that the twin of node `i` is node `i ^ 1`.
mod validate;

pub(super) use self::validate::Sums;
use crate::strategy::BlockId;
use crate::strategy::slab::keys::NONE;
use crate::{ErrorKind, Span};
use alloc::vec::Vec;

/// One power-of-two span of a block.
#[derive(Clone, Debug)]
pub(super) struct Node {
    offset: u64,
    pub(super) block: BlockId,
    /// How often this node was freed. It takes 2³² frees of one node until a key repeats.
    pub(super) stamp: u32,
    /// The node that this one is a half of, `NONE` for a root.
    parent: u32,
    /// The size is this power of two.
    order: u8,
    pub(super) state: State,
}

#[derive(Clone, Debug)]
pub(super) enum State {
    Live,
    /// In the list of its order, between these.
    Free {
        before: u32,
        after: u32,
    },
    /// Halved into nodes `pair` and `pair + 1`.
    Split {
        pair: u32,
    },
    /// Not part of any tree; the lower node of a vacant pair leads to the next such pair.
    Vacant {
        next: u32,
    },
}

impl Node {
    pub(super) const fn span(&self) -> Span {
        Span { offset: self.offset, size: 1 << self.order }
    }
}

/// All nodes of all blocks, and a list of the free ones for each size.
#[derive(Clone, Debug)]
pub(super) struct Nodes {
    /// Pairs; a root is the lower node of a pair whose upper node stays vacant.
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
    pub(super) const fn new() -> Self {
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

    pub(super) fn find(&self, index: u32) -> Option<&Node> {
        self.nodes.get(index as usize)
    }

    pub(super) fn get(&self, index: u32) -> &Node {
        #[cfg(test)]
        crate::strategy::steps::count();
        &self.nodes[index as usize]
    }

    fn get_mut(&mut self, index: u32) -> &mut Node {
        #[cfg(test)]
        crate::strategy::steps::count();
        &mut self.nodes[index as usize]
    }

    pub(super) const fn free(&self) -> u64 {
        self.free
    }

    pub(super) const fn holes(&self) -> u64 {
        self.holes
    }

    pub(super) const fn largest_free(&self) -> u64 {
        match self.filled.checked_ilog2() {
            Some(order) => 1 << order,
            None => 0,
        }
    }

    /// Makes sure that the next `pairs` calls of `pair` find one.
    pub(super) fn reserve(&mut self, pairs: usize) -> Result<(), ErrorKind> {
        let missing = pairs.saturating_sub(self.vacancies).saturating_mul(2);
        let len = self.nodes.len().saturating_add(missing);
        if u32::try_from(len).is_err() {
            return Err(ErrorKind::ExceedsLimit);
        }
        self.nodes.try_reserve(missing).map_err(|_| ErrorKind::OutOfHostMemory)
    }

    /// A vacant pair, by its lower node.
    fn pair(&mut self) -> u32 {
        if self.vacant == NONE {
            let lower = u32::try_from(self.nodes.len()).expect("`reserve` keeps nodes in 32 bits");
            let state = State::Vacant { next: NONE };
            let node =
                Node { offset: 0, block: BlockId(0), stamp: 0, parent: NONE, order: 0, state };
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

    /// Gives the pair of `index` back; stamps stay, so that old keys stay stale.
    fn vacate(&mut self, index: u32) {
        let lower = index & !1;
        self.get_mut(lower).state = State::Vacant { next: self.vacant };
        self.get_mut(lower + 1).state = State::Vacant { next: NONE };
        self.vacant = lower;
        self.vacancies += 1;
    }

    /// Adds a free root; a pair is reserved.
    pub(super) fn plant(&mut self, block: BlockId, span: Span) -> u32 {
        let root = self.pair();
        let order = u8::try_from(span.size.trailing_zeros()).expect("a size has 64 bits");
        let node = self.get_mut(root);
        *node = Node { offset: span.offset, block, parent: NONE, order, ..node.clone() };
        self.push(root);
        root
    }

    /// Takes a free root away.
    pub(super) fn uproot(&mut self, root: u32) {
        self.unlink(root);
        self.vacate(root);
    }

    /// Makes a free node of `size` bytes live, halving a larger one if need be; `None` when there is none.
    pub(super) fn take(&mut self, size: u64) -> Result<Option<u32>, ErrorKind> {
        let order = size.trailing_zeros();
        let larger = self.filled >> order;
        if larger == 0 {
            return Ok(None);
        }
        let halvings = larger.trailing_zeros();
        self.reserve(halvings as usize)?;
        let mut index = self.lists[(order + halvings) as usize];
        self.unlink(index);
        for _ in 0..halvings {
            index = self.halve(index);
        }
        self.get_mut(index).state = State::Live;
        Ok(Some(index))
    }

    /// Splits a node, frees its upper half and returns the lower; a pair is reserved.
    fn halve(&mut self, index: u32) -> u32 {
        let pair = self.pair();
        let node = self.get_mut(index);
        node.state = State::Split { pair };
        let (block, offset, order) = (node.block, node.offset, node.order - 1);
        for (half, offset) in [(pair, offset), (pair + 1, offset + (1 << order))] {
            let node = self.get_mut(half);
            *node = Node { offset, block, parent: index, order, ..node.clone() };
        }
        self.push(pair + 1);
        pair
    }

    /// Frees a live node and merges it with free twins.
    pub(super) fn give(&mut self, live: u32) {
        let node = self.get_mut(live);
        node.stamp = node.stamp.wrapping_add(1);
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

    /// Changes the links of a free node, if there is such a node.
    fn relink(&mut self, index: u32, change: impl FnOnce(&mut u32, &mut u32)) {
        if let Some(Node { state: State::Free { before, after }, .. }) =
            self.nodes.get_mut(index as usize)
        {
            change(before, after);
        }
    }
}
