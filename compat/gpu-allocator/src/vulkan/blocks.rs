//! The memory objects that allocations lie in, and when empty ones go back to the driver.
use ash::vk;
use std::collections::BTreeMap;

/// Empty bytes that may be held: a tenth of what is live, and this much at least.
const LEAST_SLACK: u64 = 8 << 20;
/// The most that is held besides because the program took it again soon.
const MOST_MISSED: u64 = 64 << 20;
/// A program that grows before it has allocated this many times what was returned needed its empty blocks.
const SOON: u64 = 4;

#[derive(Debug)]
struct Block {
    size: u64,
    live: u64,
}

/// Counts of every memory object that an allocation ever lay in, until it is trimmed.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    by_memory: BTreeMap<vk::DeviceMemory, Block>,
    live_bytes: u64,
    empty_bytes: u64,
    /// Empty bytes to hold besides, because they were returned too soon before. Halved each time when returning them was right.
    missed: u64,
    /// Bytes that were returned last, and how many may be allocated until that counts as right.
    returned: u64,
    on_trial: u64,
    /// Bytes that were freed since the last allocation.
    freed_in_a_row: u64,
}

impl Blocks {
    /// Notes an allocation of `bytes` in a memory object of `size` bytes.
    pub(super) fn allocated(&mut self, memory: vk::DeviceMemory, size: u64, bytes: u64) {
        self.live_bytes += bytes;
        self.freed_in_a_row = 0;
        let mut is_new = false;
        let block = self.by_memory.entry(memory).or_insert_with(|| {
            is_new = true;
            Block { size, live: 0 }
        });
        if block.live == 0 {
            // The manager may have returned an empty block, and the driver may use its handle again.
            let known = core::mem::replace(&mut block.size, size);
            self.empty_bytes = self.empty_bytes.saturating_sub(if is_new { 0 } else { known });
        }
        block.live += 1;
        if is_new && self.on_trial > 0 {
            self.missed = (self.missed * 2).max(self.returned).min(MOST_MISSED);
            self.on_trial = 0;
        } else if self.on_trial > 0 {
            self.on_trial = self.on_trial.saturating_sub(bytes);
            self.missed /= if self.on_trial == 0 { 2 } else { 1 };
        }
    }

    /// Notes a free; returns whether it is time to return empty blocks.
    pub(super) fn freed(&mut self, memory: vk::DeviceMemory, bytes: u64) -> bool {
        self.live_bytes -= bytes;
        self.freed_in_a_row = self.freed_in_a_row.saturating_add(bytes);
        if let Some(block) = self.by_memory.get_mut(&memory) {
            block.live -= 1;
            self.empty_bytes += if block.live == 0 { block.size } else { 0 };
        }
        // Who frees that much at once does not take it again at once: a level ended.
        let missed = if self.freed_in_a_row > self.missed * 2 { 0 } else { self.missed };
        self.empty_bytes > LEAST_SLACK.max(self.live_bytes / 10) + missed
    }

    /// Forgets the empty blocks, which were returned.
    pub(super) fn trimmed(&mut self) {
        (self.returned, self.on_trial) = (self.empty_bytes, self.empty_bytes.saturating_mul(SOON));
        self.by_memory.retain(|_, block| block.live > 0);
        self.empty_bytes = 0;
    }

    /// Returns the memory objects with something live, and their sizes.
    pub(super) fn in_use(&self) -> impl Iterator<Item = (vk::DeviceMemory, u64)> + '_ {
        let used = self.by_memory.iter().filter(|(_, block)| block.live > 0);
        used.map(|(memory, block)| (*memory, block.size))
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

    /// Fills `count` blocks.
    fn take(blocks: &mut Blocks, count: u64) {
        (1..=count).for_each(|n| blocks.allocated(vk::DeviceMemory::from_raw(n), 4 * MIB, 4 * MIB));
    }

    /// Empties them; returns how often empty blocks went back.
    fn give(blocks: &mut Blocks, count: u64) -> u32 {
        let mut trims = 0;
        for n in 1..=count {
            if blocks.freed(vk::DeviceMemory::from_raw(n), 4 * MIB) {
                blocks.trimmed();
                trims += 1;
            }
        }
        trims
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
