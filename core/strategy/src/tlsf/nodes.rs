//! The nodes of [`Tlsf`](super::Tlsf): one for each live span and each hole, linked to their neighbours.
//!
//! The nodes of a block form a ring that the block's edge closes: a node without bytes that is never free. Every piece
//! then has a neighbour on both sides, and no branch has to check.
use crate::keys::NONE;
use crate::{BlockId, Key};
use alloc::vec::Vec;
use core::fmt;
use omniheap_seam::{Class, ErrorKind, Span};

/// The maximum number of nodes: the index of a node plus the number of bins fits in 32 bits.
const MOST: usize = 1 << 31;
/// A node whose stamp reaches this value never lives again, so that no key repeats. It may still be a hole, and the end of
/// that hole adds two more to the stamp.
const WORN: u32 = u32::MAX - 3;

/// One piece of a block.
///
/// `stamp` is odd while the piece is live. Every allocation and every free changes it, so that old keys are stale.
/// `next` of an unused node is the next unused node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) offset: u64,
    pub(super) size: u64,
    /// The last use of the bytes; of a live span, before it was allocated.
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

    /// Returns whether the node closes the ring of a block.
    pub(super) const fn is_edge(&self) -> bool {
        self.size == 0
    }

    /// Returns the class of a live node.
    #[inline]
    pub(super) const fn class(&self) -> Class {
        if self.place & 1 == 0 { Class::Linear } else { Class::Tiled }
    }
}

/// Every node of a strategy, and the list of unused ones.
#[derive(Clone, Debug)]
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
    pub(super) fn at(&self, index: u32) -> &Node {
        #[cfg(test)]
        crate::steps::count();
        &self.nodes[index as usize]
    }

    #[inline]
    fn at_mut(&mut self, index: u32) -> &mut Node {
        #[cfg(test)]
        crate::steps::count();
        &mut self.nodes[index as usize]
    }

    /// Returns whether `count` nodes are unused.
    #[inline]
    pub(super) const fn has(&self, count: u32) -> bool {
        self.unused_count >= count
    }

    /// Returns the length after growing by `count` or more.
    pub(super) fn grown(&self, count: u32) -> Result<usize, ErrorKind> {
        let more = (self.nodes.len() / 2).clamp(16, 1 << 16).max(count as usize);
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

    /// Leaves every unused node `lives` more lives.
    #[cfg(test)]
    pub(super) fn wear(&mut self, lives: u32) {
        let mut index = self.unused;
        while let Some(node) = self.nodes.get_mut(index as usize) {
            (node.stamp, index) = (WORN - 2 * lives, node.next);
        }
    }

    /// Takes an unused node; the caller reserved it.
    #[inline]
    fn take_unused(&mut self) -> u32 {
        let index = self.unused;
        self.unused = self.at(index).next;
        self.unused_count -= 1;
        index
    }

    /// Makes a node unused, or retires it when its stamps ran out. Its old keys are stale either way.
    #[inline]
    pub(super) fn discard(&mut self, index: u32) {
        let unused = self.unused;
        let node = self.at_mut(index);
        node.stamp = (node.stamp | 1) + 1;
        if node.stamp >= WORN {
            return;
        }
        node.next = unused;
        self.unused = index;
        self.unused_count += 1;
    }

    /// Returns whether the node's stamps have run out.
    #[inline]
    pub(super) fn is_worn(&self, index: u32) -> bool {
        self.at(index).stamp >= WORN
    }

    /// Retires a node that ran out of stamps, and puts an unused one in its place. The caller reserved it.
    pub(super) fn replace(&mut self, worn: u32) -> u32 {
        let fresh = self.take_unused();
        let stamp = self.at(fresh).stamp;
        let node = Node { stamp, ..self.get(worn) };
        *self.at_mut(fresh) = node;
        self.at_mut(node.previous).next = fresh;
        self.at_mut(node.next).previous = fresh;
        self.discard(worn);
        fresh
    }

    /// Creates the nodes of a new block, its edge and one piece. The caller reserved two.
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

    /// Splits a node: it keeps `size` bytes, a new node after it has the rest. The caller reserved a node.
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

    /// Divides a node the other way: the new node before it has the first `size` bytes. The caller reserved a node.
    #[inline]
    pub(super) fn split_front(&mut self, index: u32, size: u64) -> u32 {
        let front = self.take_unused();
        let node = self.at_mut(index);
        let Node { offset, previous, last_use, place, .. } = *node;
        (node.offset, node.size, node.previous) = (offset + size, node.size - size, front);
        let new = self.at_mut(front);
        (new.offset, new.size, new.place) = (offset, size, place);
        (new.previous, new.next, new.last_use) = (previous, index, last_use);
        self.at_mut(previous).next = front;
        front
    }

    /// Returns a copy of a node.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Node {
        *self.at(index)
    }

    /// Returns the node of a live key.
    #[inline]
    pub(super) fn live(&self, key: Key) -> Option<&Node> {
        let node = self.nodes.get(key.index as usize)?;
        (key.stamp & 1 == 1 && node.stamp == key.stamp).then_some(node)
    }

    /// Sets the size of a node and the node after it.
    #[inline]
    pub(super) fn stretch(&mut self, index: u32, size: u64, next: u32) {
        let node = self.at_mut(index);
        (node.size, node.next) = (size, next);
        self.at_mut(next).previous = index;
    }

    /// Swaps two neighbours in the ring.
    pub(super) fn swap_with_previous(&mut self, before: u32, index: u32) {
        let (outer, next) = (self.at(before).previous, self.at(index).next);
        (self.at_mut(index).previous, self.at_mut(index).next) = (outer, before);
        (self.at_mut(before).previous, self.at_mut(before).next) = (index, next);
        self.at_mut(outer).next = index;
        self.at_mut(next).previous = before;
    }

    /// Moves a node after another one of the same ring.
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

    /// Makes a node that is in no list start `bytes` earlier.
    pub(super) fn grow_down(&mut self, index: u32, bytes: u64) -> u32 {
        let node = self.at_mut(index);
        (node.offset, node.size) = (node.offset - bytes, node.size + bytes);
        index
    }

    /// Inserts a node of `bytes` after another. The caller reserved it.
    pub(super) fn insert_after(&mut self, index: u32, bytes: u64) -> u32 {
        self.at_mut(index).size += bytes;
        let size = self.at(index).size - bytes;
        self.split(index, size)
    }

    /// Merges the previous node, which is in no list, into a node, which keeps its last use.
    #[inline]
    pub(super) fn absorb_previous(&mut self, index: u32) {
        let absorbed = self.at(index).previous;
        let Node { offset, size, previous, .. } = *self.at(absorbed);
        let whole = self.at_mut(index);
        (whole.offset, whole.size, whole.previous) = (offset, whole.size + size, previous);
        self.at_mut(previous).next = index;
        self.discard(absorbed);
    }

    /// Merges the next node, which is in no list, into a node, which keeps its last use.
    #[inline]
    pub(super) fn absorb_next(&mut self, index: u32) {
        let absorbed = self.at(index).next;
        let Node { size, next, .. } = *self.at(absorbed);
        self.stretch(index, self.at(index).size + size, next);
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

    /// Returns whether the key is the latest of its node. The size of a hole may have changed.
    #[inline]
    pub(super) fn is_latest(&self, key: Key) -> bool {
        self.nodes.get(key.index as usize).is_some_and(|node| node.stamp == key.stamp)
    }

    /// Marks a node as live, and returns its new stamp.
    #[inline]
    pub(super) fn set_live(&mut self, index: u32, class: Class) -> u32 {
        let node = self.at_mut(index);
        node.stamp += 1;
        node.place = (node.place & !1) | u32::from(class == Class::Tiled);
        node.stamp
    }

    /// Marks a node as a hole.
    #[inline]
    pub(super) fn set_hole(&mut self, index: u32) {
        let node = self.at_mut(index);
        node.stamp += node.stamp & 1;
    }
}

/// The last use of some bytes: the number of the user, and when it released them on a clock of the caller's.
///
/// [`Tlsf`](super::Tlsf) keeps one for each hole, so that a pool can tell which holes a stream may reuse at once. Users
/// are numbered from 1; number 0 is nobody.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LastUse(u64);

/// Bits of the time.
const TIME: u32 = 48;
/// Stands for more than one user.
const SEVERAL: u16 = u16::MAX;

impl LastUse {
    /// Bytes that nobody used.
    pub const NONE: Self = Self(0);

    /// Bytes that several users may use, at any time.
    pub const SEVERAL: Self = Self(u64::MAX);

    /// The highest number of a user.
    pub const MOST_USERS: u16 = SEVERAL - 1;

    /// Creates the use of a user that released the bytes at a time. Only the lower 48 bits of the time count.
    #[must_use]
    pub const fn new(user: u16, time: u64) -> Self {
        Self((user as u64) << TIME | time & ((1 << TIME) - 1))
    }

    /// Returns the only user; `None` for several users. Number 0 is nobody.
    #[inline]
    #[must_use]
    pub const fn user(self) -> Option<u16> {
        let user = (self.0 >> TIME) as u16;
        if user == SEVERAL { None } else { Some(user) }
    }

    /// Returns when the last user released the bytes.
    #[inline]
    #[must_use]
    pub const fn time(self) -> u64 {
        self.0 & ((1 << TIME) - 1)
    }

    /// Returns whether two uses have the same users.
    #[inline]
    #[must_use]
    pub const fn same_user(self, other: Self) -> bool {
        (self.0 ^ other.0) >> TIME == 0
    }

    /// Joins the uses of two neighbours: the later time, and `None` as the user where they differ.
    #[inline]
    #[must_use]
    pub const fn join(self, other: Self) -> Self {
        if self.0 == 0 || self.0 == other.0 {
            return other;
        }
        if other.0 == 0 {
            return self;
        }
        let time = if self.time() > other.time() { self.time() } else { other.time() };
        let user = if self.0 >> TIME == other.0 >> TIME { self.0 >> TIME } else { SEVERAL as u64 };
        Self(user << TIME | time)
    }
}

impl fmt::Debug for LastUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.user() {
            Some(0) => f.write_str("nobody"),
            Some(user) => write!(f, "{user} at {}", self.time()),
            None => write!(f, "several at {}", self.time()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_have_the_later_time_and_all_users() {
        let [a, b, c] = [LastUse::new(1, 5), LastUse::new(1, 9), LastUse::new(2, 7)];
        assert_eq!((a.join(b), b.join(a)), (b, b));
        assert_eq!((a.join(LastUse::NONE), LastUse::NONE.join(a)), (a, a));
        let both = b.join(c);
        assert_eq!((both, both.user(), both.time()), (c.join(b), None, 9));
        assert_eq!((both.join(a).user(), both.join(LastUse::new(3, 11)).time()), (None, 11));
        assert_eq!(LastUse::NONE.user(), Some(0));
    }
}
