//! Numbers of driver allocations by memory type, and the rule for returning empty blocks to the driver.
#![forbid(unsafe_code)]
use crate::slots::WORTH_A_LOOK;
use ash::vk;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use omniheap_vulkan::{MemoryEvent, MemoryEventKind};

/// Empty bytes that may be held: 1/32 of the live bytes, and at least this many.
const LEAST_SLACK: u64 = WORTH_A_LOOK;
/// The most that is held besides because the program took it again.
const MOST_MISSED: u64 = 32 << 20;
/// Part of that which a look lets go of where the program took less again, one in so many: half of it in some 180 MiB that are freed.
const FORGOTTEN: u64 = 64;

/// One memory type, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Type {
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
    /// Bytes that were returned and not taken again since.
    returned: AtomicU64,
    /// Empty bytes to hold besides, because they were taken again after they had been returned.
    missed: AtomicU64,
    /// Set while a thread returns empty blocks.
    is_returning: AtomicBool,
}

impl Counts {
    fn of(&self, memory_type: u32) -> &Type {
        &self.types[usize::try_from(memory_type).unwrap_or(0).min(vk::MAX_MEMORY_TYPES - 1)]
    }

    /// Counts a driver allocation that was made or is about to be freed.
    pub(crate) fn told(&self, event: MemoryEvent) {
        let of = self.of(event.memory_type);
        match event.kind {
            MemoryEventKind::Allocated => {
                of.blocks.fetch_add(1, Relaxed);
                of.block_bytes.fetch_add(event.size, Relaxed);
                self.blocks.fetch_add(1, Relaxed);
                self.block_bytes.fetch_add(event.size, Relaxed);
                self.miss(event.size);
            }
            MemoryEventKind::Freed => {
                of.blocks.fetch_sub(1, Relaxed);
                of.block_bytes.fetch_sub(event.size, Relaxed);
                self.blocks.fetch_sub(1, Relaxed);
                self.block_bytes.fetch_sub(event.size, Relaxed);
            }
        }
    }

    /// Notes that the driver gave bytes: those that were returned before had better been held.
    fn miss(&self, bytes: u64) {
        let returned = self.returned.load(Relaxed);
        let missed = returned.min(bytes);
        // Another thread's numbers may get lost: they only say how much is worth holding.
        self.returned.store(returned - missed, Relaxed);
        self.missed.store((self.missed.load(Relaxed) + missed).min(MOST_MISSED), Relaxed);
    }

    /// Returns empty blocks by `trim`, which is told how many bytes are enough and says how many it returned, where more is empty
    /// than worth holding. A program that takes back what was returned gets more to hold. `live` is how many bytes are in use.
    #[cold]
    pub(crate) fn return_empty(&self, live: u64, trim: impl FnOnce(u64) -> u64) {
        if self.is_returning.swap(true, Relaxed) {
            return;
        }
        let held = self.block_bytes();
        let missed = self.missed.load(Relaxed);
        // While the program holds as much as before, it holds nothing too much.
        let is_smaller = self.returned.load(Relaxed) > 0;
        let missed = if is_smaller { missed - missed.div_ceil(FORGOTTEN) } else { missed };
        // A program that has just freed most of the held bytes will not take them again at once.
        let missed = if held > missed * 2 && live < held / 4 { 0 } else { missed };
        self.missed.store(missed, Relaxed);
        let worth = LEAST_SLACK.max(live / 32) + missed;
        let excess = held.saturating_sub(live).saturating_sub(worth);
        if excess > 0 {
            self.returned.fetch_add(trim(excess), Relaxed);
        }
        self.is_returning.store(false, Relaxed);
    }

    pub(crate) fn block_bytes(&self) -> u64 {
        self.block_bytes.load(Relaxed)
    }

    /// Returns the number of driver allocations.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.load(Relaxed)
    }

    /// Returns the number of a memory type's driver allocations, and their bytes.
    pub(crate) fn blocks_of(&self, memory_type: u32) -> (u64, u64) {
        let of = self.of(memory_type);
        (of.blocks.load(Relaxed), of.block_bytes.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Takes and frees `bytes` beside what lasts; returns what goes back.
    fn round(counts: &Counts, held: &mut u64, lasting: u64, bytes: u64) -> u64 {
        let missing = (lasting + bytes).saturating_sub(*held);
        *held += missing;
        counts.miss(missing);
        let mut returned = 0;
        for left in (0..bytes / (8 * MIB)).rev() {
            counts.block_bytes.store(*held, Relaxed);
            let live = lasting + left * 8 * MIB;
            counts.return_empty(live, |enough| {
                *held -= enough;
                returned += enough;
                enough
            });
        }
        returned
    }

    #[test]
    fn what_comes_back_is_held_and_what_does_not_is_returned() {
        // Something lasts, so that the rounds are no end of a level.
        let (counts, mut held, lasting) = (Counts::default(), 64 * MIB, 64 * MIB);
        let rounds: Vec<u64> =
            (0..8).map(|_| round(&counts, &mut held, lasting, 16 * MIB)).collect();
        assert!(rounds[0] > 0, "{rounds:?}");
        assert_eq!(rounds[7], 0, "{rounds:?}");
        assert!(round(&counts, &mut held, lasting, 1024 * MIB) > 900 * MIB);
    }

    #[test]
    fn levels_that_come_and_go_keep_some_of_what_they_take_again() {
        let (counts, mut held, lasting) = (Counts::default(), 256 * MIB, 128 * MIB);
        let rounds: Vec<u64> =
            (0..4).map(|_| round(&counts, &mut held, lasting, 128 * MIB)).collect();
        assert!(rounds[0] > 120 * MIB, "{rounds:?}");
        assert!(rounds[1..].iter().all(|returned| *returned < 104 * MIB), "{rounds:?}");
        assert!(rounds[1..].iter().all(|returned| *returned > 90 * MIB), "{rounds:?}");
    }
}
