//! Which slots lie in which block.
#![forbid(unsafe_code)]
use crate::strategy::BlockId;
use alloc::vec::Vec;

/// The slots of each block, for when it is the block's turn.
#[derive(Debug, Default)]
pub(in crate::defrag) struct SlotsByBlock {
    /// Blocks and slots, as they were seen.
    pub(super) seen: Vec<(u32, u32)>,
    /// Slots in order of their blocks.
    slots: Vec<u32>,
    /// Where each block's slots end among them, by number.
    ends: Vec<usize>,
}

impl SlotsByBlock {
    /// Forgets everything, but keeps the memory.
    pub(in crate::defrag) fn clear(&mut self) {
        self.seen.clear();
        self.slots.clear();
        self.ends.clear();
    }

    /// Slots for which there is memory.
    pub(in crate::defrag) fn capacity(&self) -> usize {
        self.seen.capacity().max(self.slots.capacity())
    }

    /// Puts what was seen in order, block by block.
    pub(super) fn sort(&mut self) {
        let seen = core::mem::take(&mut self.seen);
        let blocks = seen.iter().map(|(block, _)| *block as usize + 1).max().unwrap_or(0);
        self.ends.resize(blocks, 0);
        seen.iter().for_each(|(block, _)| self.ends[*block as usize] += 1);
        let mut first = 0;
        for end in &mut self.ends {
            (*end, first) = (first, first + *end);
        }
        self.slots.resize(seen.len(), 0);
        for (block, slot) in &seen {
            let end = &mut self.ends[*block as usize];
            self.slots[*end] = *slot;
            *end += 1;
        }
        self.seen = seen;
    }

    /// The slots of one block.
    pub(super) fn of(&self, block: BlockId) -> &[u32] {
        let end = |block: usize| self.ends.get(block).copied();
        let block = block.0 as usize;
        let first = block.checked_sub(1).and_then(end).unwrap_or(0);
        &self.slots[first..end(block).unwrap_or(first)]
    }
}
