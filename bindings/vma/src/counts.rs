//! Numbers of allocations and driver allocations by memory type, and when empty blocks go back to the driver.
#![forbid(unsafe_code)]
use crate::abi::VmaStatistics;
use ash::vk;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use omniheap_vulkan::{MemoryEvent, MemoryEventKind};

/// Empty bytes that may be held: one in 32 of what is live, and this much at least.
const LEAST_SLACK: u64 = 4 << 20;
/// The most that is held besides because the program took it again soon.
const MOST_MISSED: u64 = 64 << 20;

/// One memory type, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Type {
    live: AtomicU64,
    live_bytes: AtomicU64,
    blocks: AtomicU64,
    block_bytes: AtomicU64,
}

/// All memory types of an allocator.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    types: [Type; vk::MAX_MEMORY_TYPES],
    /// Driver allocations of all types, and their bytes: every request reads these.
    blocks: AtomicU64,
    block_bytes: AtomicU64,
    /// Bytes that were freed since empty blocks were last looked for.
    freed: AtomicU64,
    /// Bytes that the driver gave since then.
    grown: AtomicU64,
    /// Bytes that the last look returned.
    returned: AtomicU64,
    /// Empty bytes to hold besides, because they were returned too soon before.
    missed: AtomicU64,
    /// Set while a thread returns empty blocks.
    is_returning: AtomicBool,
}

impl Counts {
    fn of(&self, memory_type: u32) -> &Type {
        &self.types[usize::try_from(memory_type).unwrap_or(0).min(vk::MAX_MEMORY_TYPES - 1)]
    }

    #[inline]
    pub(crate) fn allocated(&self, memory_type: u32, bytes: u64) {
        let of = self.of(memory_type);
        of.live.fetch_add(1, Relaxed);
        of.live_bytes.fetch_add(bytes, Relaxed);
    }

    /// Notes a free; returns whether it is time to look for empty blocks.
    #[inline]
    pub(crate) fn freed(&self, memory_type: u32, bytes: u64) -> bool {
        let of = self.of(memory_type);
        of.live.fetch_sub(1, Relaxed);
        of.live_bytes.fetch_sub(bytes, Relaxed);
        self.freed.fetch_add(bytes, Relaxed) + bytes > LEAST_SLACK
    }

    /// Notes a driver allocation that was made, or that goes back.
    pub(crate) fn told(&self, event: MemoryEvent) {
        let of = self.of(event.memory_type);
        match event.kind {
            MemoryEventKind::Allocated => {
                of.blocks.fetch_add(1, Relaxed);
                of.block_bytes.fetch_add(event.size, Relaxed);
                self.blocks.fetch_add(1, Relaxed);
                self.block_bytes.fetch_add(event.size, Relaxed);
                self.grown.fetch_add(event.size, Relaxed);
            }
            MemoryEventKind::Freed => {
                of.blocks.fetch_sub(1, Relaxed);
                of.block_bytes.fetch_sub(event.size, Relaxed);
                self.blocks.fetch_sub(1, Relaxed);
                self.block_bytes.fetch_sub(event.size, Relaxed);
            }
        }
    }

    /// Returns empty blocks by `trim`, which says how many bytes that were, where more is empty than worth holding. A program that
    /// takes back what was returned gets more to hold.
    #[cold]
    pub(crate) fn return_empty(&self, trim: impl FnOnce() -> u64) {
        if self.is_returning.swap(true, Relaxed) {
            return;
        }
        let (live, held) = (self.live_bytes(), self.block_bytes());
        let returned = self.returned.load(Relaxed);
        if returned > 0 {
            let missed = self.missed.load(Relaxed);
            let was_missed = self.grown.load(Relaxed) >= returned / 2;
            let now = if was_missed { (missed + returned).min(MOST_MISSED) } else { missed / 2 };
            self.missed.store(now, Relaxed);
        }
        let freed = self.freed.swap(0, Relaxed);
        let missed = self.missed.load(Relaxed);
        // Who frees that much at once does not take it again at once.
        let missed = if freed > missed * 2 && live < held / 4 { 0 } else { missed };
        let worth = LEAST_SLACK.max(live / 32) + missed;
        let now = if held.saturating_sub(live) > worth { trim() } else { 0 };
        self.returned.store(now, Relaxed);
        self.grown.store(0, Relaxed);
        self.is_returning.store(false, Relaxed);
    }

    fn live_bytes(&self) -> u64 {
        self.types.iter().map(|of| of.live_bytes.load(Relaxed)).sum()
    }

    pub(crate) fn block_bytes(&self) -> u64 {
        self.block_bytes.load(Relaxed)
    }

    /// Returns the number of driver allocations.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.load(Relaxed)
    }

    /// Returns the sums of one memory type.
    pub(crate) fn statistics(&self, memory_type: u32) -> VmaStatistics {
        let of = self.of(memory_type);
        let count = |count: &AtomicU64| u32::try_from(count.load(Relaxed)).unwrap_or(u32::MAX);
        VmaStatistics {
            block_count: count(&of.blocks),
            allocation_count: count(&of.live),
            block_bytes: of.block_bytes.load(Relaxed),
            allocation_bytes: of.live_bytes.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Takes and frees `bytes` in blocks of a MiB; returns what goes back.
    fn round(counts: &Counts, held: &mut u64, bytes: u64) -> u64 {
        for _ in 0..bytes / MIB {
            counts.allocated(0, MIB);
            if counts.live_bytes() > *held {
                *held += MIB;
                counts.grown.fetch_add(MIB, Relaxed);
            }
            counts.block_bytes.store(*held, Relaxed);
        }
        let mut returned = 0;
        for _ in 0..bytes / MIB {
            if counts.freed(0, MIB) {
                counts.return_empty(|| {
                    let empty = *held - counts.live_bytes();
                    *held -= empty;
                    returned += empty;
                    empty
                });
                counts.block_bytes.store(*held, Relaxed);
            }
        }
        returned
    }

    #[test]
    fn what_comes_back_is_held_and_what_does_not_is_returned() {
        let (counts, mut held) = (Counts::default(), 0);
        // Something that lasts, so that the rounds are no end of a level.
        for _ in 0..64 {
            counts.allocated(0, MIB);
        }
        held += 64 * MIB;
        let rounds: Vec<u64> = (0..8).map(|_| round(&counts, &mut held, 16 * MIB)).collect();
        assert!(rounds[0] > 0, "{rounds:?}");
        assert_eq!(rounds[7], 0, "{rounds:?}");
        assert!(round(&counts, &mut held, 1024 * MIB) > 900 * MIB);
    }
}
