//! The blocks of a strategy: ids, sizes, and how much of each block is live.
use super::max_tree::MaxTree;
use super::{BlockId, Usage};
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};
use omniheap_seam::ErrorKind;

/// Blocks by id. A new block gets the lowest unused id.
#[derive(Clone, Debug)]
pub(super) struct Blocks<T> {
    blocks: Vec<Option<Block<T>>>,
    /// The size of each block, 0 for an unused id.
    sizes: MaxTree,
    total: u64,
    used: u64,
    live: u64,
}

/// One block, with what the strategy keeps for it.
#[derive(Clone, Debug)]
pub(super) struct Block<T> {
    size: u64,
    live: u64,
    value: T,
}

impl<T> Block<T> {
    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.live == 0
    }
}

impl<T> Deref for Block<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Block<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Blocks<T> {
    pub(super) const fn new() -> Self {
        Self { blocks: Vec::new(), sizes: MaxTree::new(), total: 0, used: 0, live: 0 }
    }

    /// Checks that a block of `size` bytes can be added, and reserves host memory for it.
    ///
    /// Returns the id that [`insert`](Self::insert) will give it.
    pub(super) fn reserve(&mut self, size: u64) -> Result<BlockId, ErrorKind> {
        if size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        self.total.checked_add(size).ok_or(ErrorKind::ExceedsLimit)?;
        let id = self.unused();
        let block = BlockId(u32::try_from(id).map_err(|_| ErrorKind::ExceedsLimit)?);
        self.sizes.grow(id + 1)?;
        self.blocks.try_reserve(1).map_err(|_| ErrorKind::OutOfHostMemory)?;
        Ok(block)
    }

    /// Adds the block that the last [`reserve`](Self::reserve) prepared.
    pub(super) fn insert(&mut self, size: u64, value: T) {
        let id = self.unused();
        if id == self.blocks.len() {
            self.blocks.push(None);
        }
        self.blocks[id] = Some(Block { size, live: 0, value });
        self.sizes.set(id, size);
        self.total += size;
    }

    fn unused(&self) -> usize {
        self.blocks.iter().position(Option::is_none).unwrap_or(self.blocks.len())
    }

    /// Removes an empty block. Fails with `Stale` for an unknown block, `Busy` while a span of it is live.
    pub(super) fn remove(&mut self, block: BlockId) -> Result<T, ErrorKind> {
        let id = block.0 as usize;
        let slot = self.blocks.get_mut(id).ok_or(ErrorKind::Stale)?;
        if slot.as_ref().is_some_and(|block| !block.is_empty()) {
            return Err(ErrorKind::Busy);
        }
        let gone = slot.take().ok_or(ErrorKind::Stale)?;
        self.total -= gone.size;
        self.sizes.set(id, 0);
        Ok(gone.value)
    }

    #[inline]
    pub(super) fn get(&self, block: BlockId) -> Option<&Block<T>> {
        self.blocks.get(block.0 as usize)?.as_ref()
    }

    /// Returns a block that has, or just had, a live span or a hole.
    #[inline]
    pub(super) fn get_mut(&mut self, block: BlockId) -> &mut Block<T> {
        let block = self.blocks[block.0 as usize].as_mut();
        block.expect("blocks in use are not removed")
    }

    /// Counts a span of a block as live.
    #[inline]
    pub(super) fn add_live(&mut self, block: BlockId, bytes: u64) -> &mut Block<T> {
        self.live += 1;
        self.used += bytes;
        let block = self.get_mut(block);
        block.live += 1;
        block
    }

    /// Counts a span of a block as freed.
    #[inline]
    pub(super) fn remove_live(&mut self, block: BlockId, bytes: u64) -> &mut Block<T> {
        self.live -= 1;
        self.used -= bytes;
        let block = self.get_mut(block);
        block.live -= 1;
        block
    }

    pub(super) fn is_empty(&self, block: BlockId) -> bool {
        self.get(block).is_some_and(Block::is_empty)
    }

    /// Visits every block in the order of ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = (BlockId, &Block<T>)> {
        let named = |(id, block)| Some((BlockId(id), Option::as_ref(block)?));
        (0..).zip(&self.blocks).filter_map(named)
    }

    /// Returns the size of the largest block, 0 without blocks.
    pub(super) fn largest(&self) -> u64 {
        self.sizes.max()
    }

    /// Returns the usage with everything but the holes.
    pub(super) fn usage(&self) -> Usage {
        Usage { total: self.total, used: self.used, live: self.live, ..Usage::default() }
    }
}
