//! The pieces of [`Tlsf`](super::Tlsf)'s blocks: one node for each live span and each hole, linked by neighbourhood.
use crate::strategy::{BlockId, Key};
use crate::{Class, ErrorKind, Span};
use alloc::vec::Vec;

/// No node.
pub(super) const NONE: u32 = u32::MAX;
/// Stamps from here on are never handed out: a node that gets here is put aside for good.
const WORN: u32 = u32::MAX - 3;

/// One piece of a block.
///
/// `stamp` is odd while the piece is live; it changes with every hand-out and every return, so an old key never fits.
/// The two links chain holes of one bin, or unused nodes; a live node keeps its class in the second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) previous: u32,
    pub(super) next: u32,
    link_back: u32,
    link: u32,
    pub(super) block: u32,
    stamp: u32,
}

impl Node {
    #[inline]
    pub(super) const fn span(&self) -> Span {
        Span { offset: self.offset, size: self.size }
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
        &self.nodes[index as usize]
    }

    #[inline]
    fn at_mut(&mut self, index: u32) -> &mut Node {
        &mut self.nodes[index as usize]
    }

    /// Makes sure that the next `count` nodes need no memory.
    #[inline]
    pub(super) fn reserve(&mut self, count: u32) -> Result<(), ErrorKind> {
        if self.unused_count >= count { Ok(()) } else { self.grow(count) }
    }

    #[cold]
    fn grow(&mut self, count: u32) -> Result<(), ErrorKind> {
        let more = (self.nodes.len() / 2).max(count as usize).clamp(16, 1 << 16);
        if self.nodes.len() + more >= NONE as usize {
            return Err(ErrorKind::OutOfHostMemory);
        }
        self.nodes.try_reserve_exact(more).map_err(|_| ErrorKind::OutOfHostMemory)?;
        for _ in 0..more {
            let index = u32::try_from(self.nodes.len()).expect("checked against NONE above");
            self.nodes.push(Node {
                offset: 0,
                size: 0,
                previous: NONE,
                next: NONE,
                link_back: NONE,
                link: self.unused,
                block: 0,
                stamp: 0,
            });
            self.unused = index;
        }
        self.unused_count += u32::try_from(more).expect("at most 65,536");
        Ok(())
    }

    /// Takes an unused node; the caller reserved it.
    #[inline]
    fn take_unused(&mut self) -> u32 {
        let index = self.unused;
        self.unused = self.at(index).link;
        self.unused_count -= 1;
        index
    }

    /// Puts a node aside; its stamp moves on to the next even one, so that no key to what it was fits any more. One whose stamps ran out
    /// stays aside for good.
    #[inline]
    pub(super) fn discard(&mut self, index: u32) {
        let unused = self.unused;
        let node = self.at_mut(index);
        if node.stamp >= WORN {
            return;
        }
        node.stamp = (node.stamp | 1) + 1;
        node.link = unused;
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
        let Node { offset, size, previous, next, block, .. } = *self.at(worn);
        let stamp = self.at(fresh).stamp;
        *self.at_mut(fresh) =
            Node { offset, size, previous, next, link_back: NONE, link: NONE, block, stamp };
        if previous != NONE {
            self.at_mut(previous).next = fresh;
        }
        if next != NONE {
            self.at_mut(next).previous = fresh;
        }
        fresh
    }

    /// A first node for a new block.
    pub(super) fn add(&mut self, block: BlockId, span: Span) -> u32 {
        let index = self.take_unused();
        let node = self.at_mut(index);
        (node.offset, node.size, node.block) = (span.offset, span.size, block.0);
        (node.previous, node.next) = (NONE, NONE);
        index
    }

    /// Divides a node: it keeps `size` bytes, the new node after it has the rest. The caller reserved a node.
    #[inline]
    pub(super) fn split(&mut self, index: u32, size: u64) -> u32 {
        let rest = self.take_unused();
        let node = self.at_mut(index);
        let (offset, left, next, block) =
            (node.offset + size, node.size - size, node.next, node.block);
        node.size = size;
        node.next = rest;
        let new = self.at_mut(rest);
        (new.offset, new.size, new.block) = (offset, left, block);
        (new.previous, new.next) = (index, next);
        if next != NONE {
            self.at_mut(next).previous = rest;
        }
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
        (new.offset, new.size, new.block) = (whole.offset, size, whole.block);
        (new.previous, new.next) = (whole.previous, index);
        if whole.previous != NONE {
            self.at_mut(whole.previous).next = front;
        }
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

    /// The node, if there is one and it is a hole.
    #[inline]
    pub(super) fn hole(&self, index: u32) -> Option<Node> {
        let node = *self.nodes.get(index as usize)?;
        (node.stamp & 1 == 0).then_some(node)
    }

    /// Gives a node another end: its size, and what follows it.
    #[inline]
    pub(super) fn stretch(&mut self, index: u32, size: u64, next: u32) {
        let node = self.at_mut(index);
        (node.size, node.next) = (size, next);
        if next != NONE {
            self.at_mut(next).previous = index;
        }
    }

    /// Exchanges two neighbours in the chain.
    pub(super) fn swap_with_previous(&mut self, before: u32, index: u32) {
        let (outer, next) = (self.at(before).previous, self.at(index).next);
        (self.at_mut(index).previous, self.at_mut(index).next) = (outer, before);
        (self.at_mut(before).previous, self.at_mut(before).next) = (index, next);
        if outer != NONE {
            self.at_mut(outer).next = index;
        }
        if next != NONE {
            self.at_mut(next).previous = before;
        }
    }

    pub(super) fn set_offset(&mut self, index: u32, offset: u64) {
        self.at_mut(index).offset = offset;
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
        whole.previous = node.previous;
        if node.previous != NONE {
            self.at_mut(node.previous).next = index;
        }
        self.discard(absorbed);
    }

    /// Lets a node swallow the one after it, which is in no list.
    #[inline]
    pub(super) fn absorb_next(&mut self, index: u32) {
        let absorbed = self.at(index).next;
        let Node { size, next, .. } = *self.at(absorbed);
        let node = self.at_mut(index);
        node.size += size;
        node.next = next;
        if next != NONE {
            self.at_mut(next).previous = index;
        }
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
        let node = self.at(index);
        node.offset + node.size
    }
    #[inline]
    pub(super) fn span(&self, index: u32) -> Span {
        let node = self.at(index);
        Span { offset: node.offset, size: node.size }
    }
    #[inline]
    pub(super) fn block(&self, index: u32) -> BlockId {
        BlockId(self.at(index).block)
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
    pub(super) fn next_hole(&self, index: u32) -> u32 {
        self.at(index).link
    }
    #[inline]
    pub(super) fn is_hole(&self, index: u32) -> bool {
        self.at(index).stamp & 1 == 0
    }

    #[inline]
    pub(super) fn key(&self, index: u32) -> Key {
        Key { index, stamp: self.at(index).stamp }
    }

    /// Whether the key is the latest of its node, and the node is live.
    #[inline]
    pub(super) fn is_live_key(&self, key: Key) -> bool {
        key.stamp & 1 == 1
            && self.nodes.get(key.index as usize).is_some_and(|node| node.stamp == key.stamp)
    }

    /// Whether the key shows a hole that has not changed hands since. Its size may have changed.
    pub(super) fn is_hole_key(&self, key: Key) -> bool {
        key.stamp & 1 == 0
            && self.nodes.get(key.index as usize).is_some_and(|node| node.stamp == key.stamp)
    }

    #[inline]
    pub(super) fn set_live(&mut self, index: u32, class: Class) {
        let node = self.at_mut(index);
        node.stamp += 1;
        node.link = match class {
            Class::Linear => 0,
            Class::Tiled => 1,
        };
    }

    /// Marks a live node as a hole; a hole stays one.
    #[inline]
    pub(super) fn set_hole(&mut self, index: u32) {
        let node = self.at_mut(index);
        node.stamp += node.stamp & 1;
    }

    /// The class of a live node.
    #[inline]
    pub(super) fn class(&self, index: u32) -> Class {
        if self.at(index).link == 0 { Class::Linear } else { Class::Tiled }
    }

    #[inline]
    pub(super) fn link_hole(&mut self, index: u32, back: u32, next: u32) {
        let node = self.at_mut(index);
        (node.link_back, node.link) = (back, next);
        if next != NONE {
            self.at_mut(next).link_back = index;
        }
    }

    /// Takes a hole out of its list; returns what stood before and after it.
    #[inline]
    pub(super) fn unlink_hole(&mut self, index: u32) -> (u32, u32) {
        let Node { link_back, link, .. } = *self.at(index);
        if link_back != NONE {
            self.at_mut(link_back).link = link;
        }
        if link != NONE {
            self.at_mut(link).link_back = link_back;
        }
        (link_back, link)
    }
}
