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
}

impl Blocks {
    /// Notes an allocation of `bytes` in a memory object of `size` bytes.
    pub(super) fn allocated(&mut self, memory: vk::DeviceMemory, size: u64, bytes: u64) {
        self.live_bytes += bytes;
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
        if let Some(block) = self.by_memory.get_mut(&memory) {
            block.live -= 1;
            self.empty_bytes += if block.live == 0 { block.size } else { 0 };
        }
        self.empty_bytes > LEAST_SLACK.max(self.live_bytes / 10) + self.missed
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
