//! The memory objects that allocations lie in, and when empty ones go back to the driver.
use super::allocation::Pointer;
use ash::vk;
use omniheap_core::HeapId;
use std::collections::BTreeMap;

/// Empty bytes that may be held: one in 32 of what is live, and this much at least.
const LEAST_SLACK: u64 = 4 << 20;
/// The most that is held besides because the program took it again soon.
const MOST_MISSED: u64 = 64 << 20;
/// A program that grows before it has allocated this many times what was returned needed its empty blocks.
const SOON: u64 = 4;

/// A memory object that allocations lie in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) memory: vk::DeviceMemory,
    pub(super) size: u64,
    pub(super) heap: HeapId,
    pub(super) properties: vk::MemoryPropertyFlags,
    /// Where the host sees its first byte.
    pub(super) base: Option<Pointer>,
}

#[derive(Debug)]
struct Known {
    block: Block,
    live: u64,
}

/// Every memory object that an allocation ever lay in, until it is trimmed.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    known: Vec<Known>,
    by_memory: BTreeMap<vk::DeviceMemory, usize>,
    /// Places without a memory object.
    free: Vec<usize>,
    /// The place of the memory object that was asked for last.
    last: usize,
    live_bytes: u64,
    empty_bytes: u64,
    /// Empty bytes to hold besides, because they were returned too soon before. Halved each time when returning them was right.
    missed: u64,
    /// Bytes that were returned of late and not missed since, how many may be allocated until that counts as right, and whether it
    /// was wrong already.
    returned: u64,
    on_trial: u64,
    was_missed: bool,
    /// Bytes that were freed since the last allocation.
    freed_in_a_row: u64,
}

impl Blocks {
    /// Notes an allocation of `bytes` in a memory object that has live ones already. Returns its place, and what it is.
    ///
    /// Nothing is known of an empty one: the manager may have returned it, and the driver may use its handle again.
    #[inline]
    pub(super) fn enter(&mut self, memory: vk::DeviceMemory, bytes: u64) -> Option<(usize, Block)> {
        let is_it = |known: &Known| known.block.memory == memory && known.live > 0;
        let at = match self.known.get(self.last) {
            Some(known) if is_it(known) => self.last,
            _ => *self.by_memory.get(&memory)?,
        };
        let known = self.known.get_mut(at).filter(|known| is_it(known))?;
        known.live += 1;
        let block = known.block;
        self.last = at;
        self.allocated(bytes);
        Some((at, block))
    }

    /// Notes the first allocation in a memory object. Returns its place, and what it is.
    pub(super) fn enter_new(&mut self, block: Block, bytes: u64) -> (usize, Block) {
        let at = match self.by_memory.get(&block.memory).copied() {
            Some(at) => {
                self.empty_bytes = self.empty_bytes.saturating_sub(self.known[at].block.size);
                at
            }
            None => self.grow(block),
        };
        self.known[at] = Known { block, live: 1 };
        self.last = at;
        self.allocated(bytes);
        (at, block)
    }

    /// Makes a place for one more memory object.
    fn grow(&mut self, block: Block) -> usize {
        self.grew(block.size);
        let at = self.free.pop().unwrap_or_else(|| {
            self.known.push(Known { block, live: 0 });
            self.known.len() - 1
        });
        self.by_memory.insert(block.memory, at);
        at
    }

    /// Notes that the program needed one more memory object of so many bytes. It misses no more than was returned.
    fn grew(&mut self, bytes: u64) {
        if self.on_trial > 0 {
            let missed = bytes.min(self.returned);
            self.returned -= missed;
            self.missed = (self.missed + missed).min(MOST_MISSED);
            self.was_missed = true;
        }
    }

    #[inline]
    fn allocated(&mut self, bytes: u64) {
        self.live_bytes += bytes;
        self.freed_in_a_row = 0;
        if self.on_trial > 0 {
            self.on_trial = self.on_trial.saturating_sub(bytes);
            if self.on_trial == 0 {
                self.end_trial();
            }
        }
    }

    fn end_trial(&mut self) {
        self.missed /= if self.was_missed { 1 } else { 2 };
        (self.returned, self.was_missed) = (0, false);
    }

    /// Notes a free; returns whether it is time to return empty blocks.
    #[inline]
    pub(super) fn freed(&mut self, at: usize, bytes: u64) -> bool {
        self.live_bytes -= bytes;
        self.freed_in_a_row = self.freed_in_a_row.saturating_add(bytes);
        let known = &mut self.known[at];
        known.live -= 1;
        self.empty_bytes += if known.live == 0 { known.block.size } else { 0 };
        if self.empty_bytes <= LEAST_SLACK {
            return false;
        }
        let missed = if self.is_the_end() { 0 } else { self.missed };
        self.empty_bytes > LEAST_SLACK.max(self.live_bytes / 32) + missed
    }

    /// Returns whether a level ended: who frees that much at once does not take it again at once.
    const fn is_the_end(&self) -> bool {
        self.freed_in_a_row > self.missed * 2
    }

    /// Forgets the empty blocks, which were returned.
    pub(super) fn trimmed(&mut self) {
        if self.is_the_end() {
            self.missed = 0;
        }
        self.returned += self.empty_bytes;
        self.on_trial = self.returned.saturating_mul(SOON);
        let (known, free) = (&self.known, &mut self.free);
        let empty = self.by_memory.extract_if(.., |_, at| known[*at].live == 0);
        free.extend(empty.map(|(_, at)| at));
        self.empty_bytes = 0;
    }

    /// Returns a memory object with live allocations.
    pub(super) fn get(&self, at: usize) -> &Block {
        &self.known[at].block
    }

    /// Returns the memory objects with live allocations, and their places.
    pub(super) fn in_use(&self) -> impl Iterator<Item = (usize, &Block)> + '_ {
        let used = self.known.iter().enumerate().filter(|(_, known)| known.live > 0);
        used.map(|(at, known)| (at, &known.block))
    }

    pub(super) const fn live_bytes(&self) -> u64 {
        self.live_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ash::vk::Handle as _;

    const MIB: u64 = 1 << 20;

    fn block(n: u64) -> Block {
        let (memory, properties) = (vk::DeviceMemory::from_raw(n), Default::default());
        Block { memory, size: 4 * MIB, heap: HeapId(0), properties, base: None }
    }

    /// Fills `count` blocks.
    fn take(blocks: &mut Blocks, count: u64) {
        for n in 1..=count {
            blocks.enter_new(block(n), 4 * MIB);
        }
    }

    /// Empties them; returns how often empty blocks went back.
    fn give(blocks: &mut Blocks, count: u64) -> u32 {
        let mut trims = 0;
        for n in 1..=count {
            let at = blocks.by_memory[&block(n).memory];
            if blocks.freed(at, 4 * MIB) {
                blocks.trimmed();
                trims += 1;
            }
        }
        trims
    }

    #[test]
    fn nothing_is_known_of_a_block_without_allocations() {
        let mut blocks = Blocks::default();
        assert!(blocks.enter(block(1).memory, 1).is_none());
        let (at, _) = blocks.enter_new(block(1), 1);
        assert_eq!(blocks.enter(block(1).memory, 1).map(|(at, _)| at), Some(at));
        assert!(!blocks.freed(at, 1) && !blocks.freed(at, 1));
        assert!(blocks.enter(block(1).memory, 1).is_none(), "its handle may be another block's");
        let (again, _) = blocks.enter_new(Block { size: 32 * MIB, ..block(1) }, 1);
        assert_eq!((again, blocks.get(again).size, blocks.empty_bytes), (at, 32 * MIB, 0));
        assert!(blocks.freed(again, 1), "32 MiB are too much to keep");
        blocks.trimmed();
        assert_eq!((blocks.by_memory.len(), blocks.free.len()), (0, 1));
    }

    #[test]
    fn rounds_that_come_back_keep_their_blocks_and_the_end_of_a_level_does_not() {
        let mut blocks = Blocks::default();
        let mut last = u32::MAX;
        for _ in 0..8 {
            take(&mut blocks, 6);
            last = give(&mut blocks, 6);
        }
        assert_eq!(last, 0, "24 MiB that come and go stay");
        take(&mut blocks, 100);
        assert!(give(&mut blocks, 100) > 0, "400 MiB that go do not");
        assert!(blocks.empty_bytes <= LEAST_SLACK);
    }
}
