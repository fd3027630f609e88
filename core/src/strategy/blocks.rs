//! The blocks of a strategy: ids, sizes, and how much of each block is live.
use super::max_tree::MaxTree;
use super::{BlockId, Usage};
use crate::ErrorKind;
use alloc::vec::Vec;

/// Blocks by id, each with a value of the strategy's own. A new block gets the lowest unused id.
#[derive(Clone, Debug)]
pub(super) struct Blocks<T> {
    entries: Vec<Option<Entry<T>>>,
    /// The size of each block, 0 for an unused id.
    sizes: MaxTree,
    total: u64,
    used: u64,
    live: u64,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    live: u64,
    value: T,
}

impl<T> Blocks<T> {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new(), sizes: MaxTree::new(), total: 0, used: 0, live: 0 }
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
        self.entries.try_reserve(1).map_err(|_| ErrorKind::OutOfHostMemory)?;
        Ok(block)
    }

    /// Adds the block that the last [`reserve`](Self::reserve) prepared.
    pub(super) fn insert(&mut self, size: u64, value: T) {
        let id = self.unused();
        if id == self.entries.len() {
            self.entries.push(None);
        }
        self.entries[id] = Some(Entry { live: 0, value });
        self.sizes.set(id, size);
        self.total += size;
    }

    fn unused(&self) -> usize {
        self.entries.iter().position(Option::is_none).unwrap_or(self.entries.len())
    }

    /// Removes an empty block. Fails with `Stale` for an unknown block, `Busy` while a span of it is live.
    pub(super) fn remove(&mut self, block: BlockId) -> Result<T, ErrorKind> {
        let id = block.0 as usize;
        let slot = self.entries.get_mut(id).ok_or(ErrorKind::Stale)?;
        if slot.as_ref().is_some_and(|entry| entry.live > 0) {
            return Err(ErrorKind::Busy);
        }
        let entry = slot.take().ok_or(ErrorKind::Stale)?;
        self.total -= self.sizes.get(id);
        self.sizes.set(id, 0);
        Ok(entry.value)
    }

    pub(super) fn find(&self, block: BlockId) -> Option<&T> {
        self.entries.get(block.0 as usize)?.as_ref().map(|entry| &entry.value)
    }

    /// Returns the value of a block that is known to exist, for example because it has a live span.
    pub(super) fn get_mut(&mut self, block: BlockId) -> &mut T {
        &mut self.entry_mut(block).value
    }

    fn entry_mut(&mut self, block: BlockId) -> &mut Entry<T> {
        let entry = self.entries[block.0 as usize].as_mut();
        entry.expect("a block with a live span or a hole cannot be removed")
    }

    /// Counts a span of a block as live.
    pub(super) fn add_live(&mut self, block: BlockId, bytes: u64) {
        self.entry_mut(block).live += 1;
        self.live += 1;
        self.used += bytes;
    }

    /// Counts a span of a block as freed.
    pub(super) fn remove_live(&mut self, block: BlockId, bytes: u64) {
        self.entry_mut(block).live -= 1;
        self.live -= 1;
        self.used -= bytes;
    }

    pub(super) fn is_empty(&self, block: BlockId) -> bool {
        let entry = self.entries.get(block.0 as usize).and_then(Option::as_ref);
        entry.is_some_and(|entry| entry.live == 0)
    }

    /// Visits every block in the order of ids: id, size, value.
    pub(super) fn iter(&self) -> impl Iterator<Item = (BlockId, u64, &T)> {
        (0..).zip(&self.entries).filter_map(|(id, entry)| {
            let entry = entry.as_ref()?;
            Some((BlockId(id), self.size(BlockId(id)), &entry.value))
        })
    }

    pub(super) fn size(&self, block: BlockId) -> u64 {
        self.sizes.get(block.0 as usize)
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
