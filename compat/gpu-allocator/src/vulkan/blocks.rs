//! The memory objects that allocations lie in, and when empty ones go back to the driver.
use ash::vk;
use std::collections::HashMap;

/// Empty bytes that may be held: a tenth of what is live, and this much at least.
const LEAST_SLACK: u64 = 8 << 20;
/// Frees that a trim is put off at most.
const MOST_PATIENCE: u32 = 4096;
/// A program that grows within this many operations after a trim needed its empty blocks.
const SOON: u32 = 256;

#[derive(Debug)]
struct Block {
    size: u64,
    live: u64,
}

/// Counts of every memory object that an allocation ever lay in, until it is trimmed.
#[derive(Debug)]
pub(super) struct Blocks {
    by_memory: HashMap<vk::DeviceMemory, Block>,
    live_bytes: u64,
    empty_bytes: u64,
    /// Frees to wait before empty blocks are returned. Grows where the program takes them again at once.
    patience: u32,
    waited: u32,
    since_trim: u32,
}

impl Default for Blocks {
    fn default() -> Self {
        Self {
            by_memory: HashMap::new(),
            live_bytes: 0,
            empty_bytes: 0,
            patience: 1,
            waited: 0,
            since_trim: SOON,
        }
    }
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
        if is_new && self.since_trim < SOON {
            self.patience = (self.patience * 4).min(MOST_PATIENCE);
            self.since_trim = SOON;
        }
        self.since_trim = self.since_trim.saturating_add(1);
    }

    /// Notes a free; returns whether it is time to return empty blocks.
    pub(super) fn freed(&mut self, memory: vk::DeviceMemory, bytes: u64) -> bool {
        self.live_bytes -= bytes;
        self.since_trim = self.since_trim.saturating_add(1);
        if let Some(block) = self.by_memory.get_mut(&memory) {
            block.live -= 1;
            self.empty_bytes += if block.live == 0 { block.size } else { 0 };
        }
        if self.empty_bytes <= LEAST_SLACK.max(self.live_bytes / 10) {
            self.waited = 0;
            return false;
        }
        self.waited += 1;
        self.waited >= self.patience
    }

    /// Forgets the empty blocks, which were returned.
    pub(super) fn trimmed(&mut self) {
        if self.since_trim >= SOON {
            self.patience = (self.patience / 2).max(1);
        }
        self.by_memory.retain(|_, block| block.live > 0);
        (self.empty_bytes, self.waited, self.since_trim) = (0, 0, 0);
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
