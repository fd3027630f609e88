//! The pieces of [`Tlsf`](super::Tlsf)'s blocks: one node for each live span and each hole, linked by neighbourhood.
//!
//! The nodes of a block form a ring that is closed by the block's edge: a node without bytes that is never free. So
//! every piece has a neighbour on both sides, and no branch asks for one.
use crate::strategy::{BlockId, Key, LastUse};
use crate::{Class, ErrorKind, Span};
use alloc::vec::Vec;

/// No node.
pub(super) const NONE: u32 = u32::MAX;
/// Nodes at most: an index and a bin's number fit 32 bits together.
const MOST: usize = 1 << 31;
/// Stamps from here on are never handed out: a node that gets here is put aside for good.
const WORN: u32 = u32::MAX - 3;

/// One piece of a block.
///
/// `stamp` is odd while the piece is live; it changes with every hand-out and every return, so an old key never fits.
/// An unused node keeps the next unused one in `next`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) offset: u64,
    pub(super) size: u64,
    /// Who used the bytes last: of a hole, and of a live span before it was taken.
    pub(super) last_use: LastUse,
    pub(super) previous: u32,
    pub(super) next: u32,
    /// The block times two, plus one for tiled contents.
    place: u32,
    stamp: u32,
}

impl Node {
    const UNUSED: Self = Self {
        offset: 0,
        size: 0,
        last_use: LastUse::NONE,
        previous: NONE,
        next: NONE,
        place: 0,
        stamp: 0,
    };

    #[inline]
    pub(super) const fn span(&self) -> Span {
        Span { offset: self.offset, size: self.size }
    }

    #[inline]
    pub(super) const fn block(&self) -> BlockId {
        BlockId(self.place >> 1)
    }

    #[inline]
    pub(super) const fn is_hole(&self) -> bool {
        self.stamp & 1 == 0
    }

    /// Whether it closes the ring of a block.
    pub(super) const fn is_edge(&self) -> bool {
        self.size == 0
    }

    /// What a live node holds.
    #[inline]
    pub(super) const fn class(&self) -> Class {
        if self.place & 1 == 0 { Class::Linear } else { Class::Tiled }
    }
}

/// Every node of a strategy, and the list of unused ones.
#[derive(Debug)]
pub(super) struct Nodes {
    nodes: Vec<Node>,
    unused: u32,
    unused_count: u32,
}

impl Nodes {
    pub(super) const fn new() -> Self {
        Self { nodes: Vec::new(), unused: NONE, unused_count: 0 }
    }

    #[inline]
    fn at(&self, index: u32) -> &Node {
        #[cfg(test)]
        crate::strategy::steps::count();
        &self.nodes[index as usize]
    }

    #[inline]
    fn at_mut(&mut self, index: u32) -> &mut Node {
        #[cfg(test)]
        crate::strategy::steps::count();
        &mut self.nodes[index as usize]
    }

    /// Whether the next `count` nodes need no memory.
    #[inline]
    pub(super) const fn has(&self, count: u32) -> bool {
        self.unused_count >= count
    }

    /// How many there would be after growing by `count` or more.
    pub(super) fn grown(&self, count: u32) -> Result<usize, ErrorKind> {
        let more = (self.nodes.len() / 2).max(count as usize).clamp(16, 1 << 16);
        let length = self.nodes.len() + more;
        if length <= MOST { Ok(length) } else { Err(ErrorKind::OutOfHostMemory) }
    }

    /// Adds unused nodes until there are `length`.
    pub(super) fn grow(&mut self, length: usize) -> Result<(), ErrorKind> {
        let more = length - self.nodes.len();
        self.nodes.try_reserve_exact(more).map_err(|_| ErrorKind::OutOfHostMemory)?;
        for _ in 0..more {
            let index = u32::try_from(self.nodes.len()).expect("at most 2^31");
            self.nodes.push(Node { next: self.unused, ..Node::UNUSED });
            self.unused = index;
            self.unused_count += 1;
        }
        Ok(())
    }

    /// Takes an unused node; the caller reserved it.
    #[inline]
    fn take_unused(&mut self) -> u32 {
        let index = self.unused;
        self.unused = self.at(index).next;
        self.unused_count -= 1;
        index
    }

    /// Puts a node aside; its stamp moves on to the next even one, so that no key to what it was fits any more. One
    /// whose stamps ran out stays aside for good.
    #[inline]
    pub(super) fn discard(&mut self, index: u32) {
        let unused = self.unused;
        let node = self.at_mut(index);
        if node.stamp >= WORN {
            return;
        }
        node.stamp = (node.stamp | 1) + 1;
        node.next = unused;
        self.unused = index;
        self.unused_count += 1;
    }

    /// Whether the node's stamps have run out.
    #[inline]
    pub(super) fn is_worn(&self, index: u32) -> bool {
        self.at(index).stamp >= WORN
    }

    /// Copies a worn node to a fresh one, which takes its place among the neighbours. The caller kept a spare.
    pub(super) fn replace(&mut self, worn: u32) -> u32 {
        let fresh = self.take_unused();
        let stamp = self.at(fresh).stamp;
        let node = Node { stamp, ..self.get(worn) };
        *self.at_mut(fresh) = node;
        self.at_mut(node.previous).next = fresh;
        self.at_mut(node.next).previous = fresh;
        fresh
    }

    /// The nodes of a new block: its edge, and one piece. The caller reserved two.
    pub(super) fn add(&mut self, block: BlockId, size: u64) -> (u32, u32) {
        let (edge, piece) = (self.take_unused(), self.take_unused());
        let place = block.0 << 1;
        for (index, other, size) in [(edge, piece, 0), (piece, edge, size)] {
            let stamp = self.at(index).stamp;
            let node = Node { size, previous: other, next: other, place, stamp, ..Node::UNUSED };
            *self.at_mut(index) = node;
        }
        self.at_mut(edge).stamp += 1;
        (edge, piece)
    }

    /// Divides a node: it keeps `size` bytes, the new node after it has the rest. The caller reserved a node.
    #[inline]
    pub(super) fn split(&mut self, index: u32, size: u64) -> u32 {
        let rest = self.take_unused();
        let node = self.at_mut(index);
        let whole = *node;
        (node.size, node.next) = (size, rest);
        let new = self.at_mut(rest);
        (new.offset, new.size, new.place) = (whole.offset + size, whole.size - size, whole.place);
        (new.previous, new.next, new.last_use) = (index, whole.next, whole.last_use);
        self.at_mut(whole.next).previous = rest;
        rest
    }

    /// Divides a node the other way: the new node before it has the first `size` bytes. `whole` is what it was; the
    /// caller reserved a node.
    #[inline]
    pub(super) fn split_front(&mut self, index: u32, whole: Node, size: u64) -> u32 {
        let front = self.take_unused();
        let node = self.at_mut(index);
        (node.offset, node.size, node.previous) = (whole.offset + size, whole.size - size, front);
        let new = self.at_mut(front);
        (new.offset, new.size, new.place) = (whole.offset, size, whole.place);
        (new.previous, new.next, new.last_use) = (whole.previous, index, whole.last_use);
        self.at_mut(whole.previous).next = front;
        front
    }

    /// A copy of a node.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Node {
        *self.at(index)
    }

    /// The node of a key, if the key is the latest and the node live.
    #[inline]
    pub(super) fn live(&self, key: Key) -> Option<Node> {
        let node = *self.nodes.get(key.index as usize)?;
        (key.stamp & 1 == 1 && node.stamp == key.stamp).then_some(node)
    }

    /// Gives a node another end: its size, and what follows it.
    #[inline]
    pub(super) fn stretch(&mut self, index: u32, size: u64, next: u32) {
        let node = self.at_mut(index);
        (node.size, node.next) = (size, next);
        self.at_mut(next).previous = index;
    }

    /// Exchanges two neighbours in the ring.
    pub(super) fn swap_with_previous(&mut self, before: u32, index: u32) {
        let (outer, next) = (self.at(before).previous, self.at(index).next);
        (self.at_mut(index).previous, self.at_mut(index).next) = (outer, before);
        (self.at_mut(before).previous, self.at_mut(before).next) = (index, next);
        self.at_mut(outer).next = index;
        self.at_mut(next).previous = before;
    }

    /// Takes a node out of its place in the ring and puts it behind another one of the ring.
    pub(super) fn move_behind(&mut self, index: u32, last: u32) {
        if index == last {
            return;
        }
        let Node { previous, next, .. } = *self.at(index);
        (self.at_mut(previous).next, self.at_mut(next).previous) = (next, previous);
        let behind = self.at(last).next;
        (self.at_mut(index).previous, self.at_mut(index).next) = (last, behind);
        (self.at_mut(last).next, self.at_mut(behind).previous) = (index, index);
    }

    pub(super) fn set_offset(&mut self, index: u32, offset: u64) {
        self.at_mut(index).offset = offset;
    }

    #[inline]
    pub(super) fn set_last_use(&mut self, index: u32, last_use: LastUse) {
        self.at_mut(index).last_use = last_use;
    }

    pub(super) fn set_size(&mut self, index: u32, size: u64) {
        self.at_mut(index).size = size;
    }

    /// Lets a node that is in no list start `bytes` earlier.
    pub(super) fn grow_down(&mut self, index: u32, bytes: u64) -> u32 {
        let node = self.at_mut(index);
        (node.offset, node.size) = (node.offset - bytes, node.size + bytes);
        index
    }

    /// A new node of `bytes` behind another; the caller reserved it.
    pub(super) fn insert_after(&mut self, index: u32, bytes: u64) -> u32 {
        self.at_mut(index).size += bytes;
        let size = self.at(index).size - bytes;
        self.split(index, size)
    }

    /// Lets a node swallow the one before it, which is in no list; `node` is a copy of that.
    #[inline]
    pub(super) fn absorb_previous(&mut self, index: u32, absorbed: u32, node: Node) {
        let whole = self.at_mut(index);
        (whole.offset, whole.size) = (node.offset, whole.size + node.size);
        whole.last_use = whole.last_use.join(node.last_use);
        whole.previous = node.previous;
        self.at_mut(node.previous).next = index;
        self.discard(absorbed);
    }

    /// Lets a node swallow the one after it, which is in no list.
    #[inline]
    pub(super) fn absorb_next(&mut self, index: u32) {
        let absorbed = self.at(index).next;
        let Node { size, next, last_use, .. } = *self.at(absorbed);
        self.stretch(index, self.at(index).size + size, next);
        self.set_last_use(index, self.at(index).last_use.join(last_use));
        self.discard(absorbed);
    }

    #[inline]
    pub(super) fn offset(&self, index: u32) -> u64 {
        self.at(index).offset
    }
    #[inline]
    pub(super) fn size(&self, index: u32) -> u64 {
        self.at(index).size
    }
    #[inline]
    pub(super) fn end(&self, index: u32) -> u64 {
        self.at(index).span().end()
    }
    #[inline]
    pub(super) fn previous(&self, index: u32) -> u32 {
        self.at(index).previous
    }
    #[inline]
    pub(super) fn next(&self, index: u32) -> u32 {
        self.at(index).next
    }
    #[inline]
    pub(super) fn is_hole(&self, index: u32) -> bool {
        self.at(index).is_hole()
    }

    #[inline]
    pub(super) fn key(&self, index: u32) -> Key {
        Key { index, stamp: self.at(index).stamp }
    }

    /// Whether the key is the latest of its node, and the node live or a hole as the key says. A hole's size may have
    /// changed.
    #[inline]
    pub(super) fn is_latest(&self, key: Key) -> bool {
        self.nodes.get(key.index as usize).is_some_and(|node| node.stamp == key.stamp)
    }

    #[inline]
    pub(super) fn set_live(&mut self, index: u32, class: Class) {
        let node = self.at_mut(index);
        node.stamp += 1;
        node.place = (node.place & !1) | u32::from(class == Class::Tiled);
    }

    /// Marks a live node as a hole; a hole stays one.
    #[inline]
    pub(super) fn set_hole(&mut self, index: u32) {
        let node = self.at_mut(index);
        node.stamp += node.stamp & 1;
    }
}
