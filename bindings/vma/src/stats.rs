//! Sums over allocations and blocks: statistics, with the extremes of sizes.
#![expect(unsafe_code, reason = "writes through the caller's pointers")]
use crate::abi::{
    VmaAllocator, VmaBudget, VmaDetailedStatistics, VmaPool, VmaStatistics, VmaTotalStatistics,
};
use crate::allocator::{Allocator, index, on};
use crate::args::put;
use crate::budget::small;
use crate::call::Refused;
use crate::memory::{About, Memory};
use crate::pools::CustomPool;
use crate::slots::Slot;
use ash::vk;
use core::sync::atomic::Ordering::Relaxed;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One memory object, and what lies in it by offset.
pub(crate) struct BlockMap<'a> {
    pub(crate) size: u64,
    pub(crate) is_alone: bool,
    /// Spans are whole units: nobody can have what an allocation leaves of its last.
    unit: u64,
    pub(crate) live: Vec<&'a Slot<Memory>>,
}

/// Owner of a block: its memory type, and the number of its pool or zero.
pub(crate) type Home = (u32, u32);

/// All blocks, by their owners.
pub(crate) type Blocks<'a> = BTreeMap<Home, Vec<BlockMap<'a>>>;

impl VmaDetailedStatistics {
    /// Statistics of nothing: the smallest size is larger than every size.
    const EMPTY: Self = Self {
        statistics: VmaStatistics {
            block_count: 0,
            allocation_count: 0,
            block_bytes: 0,
            allocation_bytes: 0,
        },
        unused_range_count: 0,
        allocation_size_min: vk::WHOLE_SIZE,
        allocation_size_max: 0,
        unused_range_size_min: vk::WHOLE_SIZE,
        unused_range_size_max: 0,
    };

    fn add_hole(&mut self, bytes: u64) {
        self.unused_range_count += 1;
        self.unused_range_size_min = self.unused_range_size_min.min(bytes);
        self.unused_range_size_max = self.unused_range_size_max.max(bytes);
    }

    fn add_live(&mut self, bytes: u64) {
        self.statistics.allocation_count += 1;
        self.statistics.allocation_bytes += bytes;
        self.allocation_size_min = self.allocation_size_min.min(bytes);
        self.allocation_size_max = self.allocation_size_max.max(bytes);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.statistics.block_count += other.statistics.block_count;
        self.statistics.allocation_count += other.statistics.allocation_count;
        self.statistics.block_bytes += other.statistics.block_bytes;
        self.statistics.allocation_bytes += other.statistics.allocation_bytes;
        self.unused_range_count += other.unused_range_count;
        self.allocation_size_min = self.allocation_size_min.min(other.allocation_size_min);
        self.allocation_size_max = self.allocation_size_max.max(other.allocation_size_max);
        self.unused_range_size_min = self.unused_range_size_min.min(other.unused_range_size_min);
        self.unused_range_size_max = self.unused_range_size_max.max(other.unused_range_size_max);
    }
}

impl<'a> BlockMap<'a> {
    /// Visits allocations and holes by rising offset.
    pub(crate) fn each(&self, mut visit: impl FnMut(u64, u64, Option<&'a Slot<Memory>>)) {
        let mut end = 0;
        for slot in &self.live {
            let (offset, size) = (slot.facts.offset.load(Relaxed), slot.facts.size.load(Relaxed));
            if offset > end {
                visit(end, offset - end, None);
            }
            visit(offset, size, Some(slot));
            end = end.max((offset + size).next_multiple_of(self.unit));
        }
        if self.size > end {
            visit(end, self.size - end, None);
        }
    }

    fn statistics(&self) -> VmaDetailedStatistics {
        let mut sum = VmaDetailedStatistics::EMPTY;
        (sum.statistics.block_count, sum.statistics.block_bytes) = (1, self.size);
        self.each(|_, size, slot| match slot {
            Some(_) => sum.add_live(size),
            None if self.is_alone => {}
            None => sum.add_hole(size),
        });
        sum
    }
}

pub(crate) fn sum(blocks: &[BlockMap<'_>]) -> VmaDetailedStatistics {
    let mut sum = VmaDetailedStatistics::EMPTY;
    blocks.iter().for_each(|block| sum.add(&block.statistics()));
    sum
}

impl Allocator {
    /// Returns all blocks as they are now, empty ones included.
    pub(crate) fn blocks(&self) -> Blocks<'_> {
        let mut blocks = self.live_blocks(|_| true);
        for (home, size) in self.empty_blocks() {
            let block = BlockMap { size, is_alone: false, unit: 1, live: Vec::new() };
            blocks.entry(home).or_default().push(block);
        }
        blocks
    }

    /// Returns the blocks of some owners in which something lies.
    pub(crate) fn live_blocks(&self, is_asked: impl Fn(Home) -> bool) -> Blocks<'_> {
        let linear: BTreeSet<u32> = self
            .pools
            .iter()
            .filter(|slot| slot.with(|pool| pool.is_linear()).unwrap_or(false))
            .map(|slot| slot.handle().number())
            .collect();
        let mut by_memory: BTreeMap<(Home, u64), BlockMap<'_>> = BTreeMap::new();
        for slot in self.slots.iter() {
            let (facts, about) = (&slot.facts, About::of(&slot.facts));
            let home = (about.memory_type(), about.pool());
            if !is_asked(home) {
                continue;
            }
            let block = by_memory.entry((home, facts.memory.load(Relaxed))).or_insert_with(|| {
                let size = facts.block_size.load(Relaxed);
                let (is_alone, live) = (about.is_alone(), Vec::new());
                let packs = is_alone || linear.contains(&about.pool());
                let unit = if packs { 1 } else { self.manager.config().unit.get() };
                BlockMap { size, is_alone, unit, live }
            });
            block.live.push(slot);
        }
        let mut blocks = Blocks::new();
        for ((home, _), mut block) in by_memory {
            // Other threads free and take meanwhile: each offset is read once.
            block.live.sort_by_cached_key(|slot| slot.facts.offset.load(Relaxed));
            blocks.entry(home).or_default().push(block);
        }
        blocks
    }

    /// Returns the empty blocks: their owners and sizes.
    fn empty_blocks(&self) -> Vec<(Home, u64)> {
        let mut found = Vec::new();
        for memory_type in 0..self.type_count() {
            for pool in self.defaults.of_type(memory_type) {
                let blocks = pool.report().blocks;
                let empty = blocks.iter().filter(|block| block.live.is_empty());
                found.extend(empty.map(|block| ((memory_type, 0), block.size)));
            }
        }
        for slot in self.pools.iter() {
            let number = slot.handle().number();
            // Allocations from the pool wait for its slot, so that is not held meanwhile.
            let Some(pool) = slot.with(|pool| Arc::clone(pool)) else { continue };
            let blocks = pool.blocks().into_iter().filter(|(_, is_empty)| *is_empty);
            found.extend(blocks.map(|(size, _)| ((pool.memory_type, number), size)));
        }
        found
    }
}

fn pool_statistics(pool: &CustomPool) -> VmaStatistics {
    let (blocks, bytes) = pool.held();
    let alone = pool.alone.load(Relaxed);
    VmaStatistics {
        block_count: small(alone.saturating_add(blocks)),
        allocation_count: small(pool.live.load(Relaxed)),
        block_bytes: bytes + pool.alone_bytes.load(Relaxed),
        allocation_bytes: pool.live_bytes.load(Relaxed),
    }
}

/// Sums over everything. It walks all allocations.
///
/// # Safety
///
/// `stats` is null or may be written; no other thread destroys the allocator. The same holds for all functions here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaCalculateStatistics(
    allocator: VmaAllocator,
    stats: *mut VmaTotalStatistics,
) {
    let work = |of: &Allocator| {
        let empty = VmaDetailedStatistics::EMPTY;
        let mut all = VmaTotalStatistics {
            memory_type: [empty; vk::MAX_MEMORY_TYPES],
            memory_heap: [empty; vk::MAX_MEMORY_HEAPS],
            total: empty,
        };
        // SAFETY: the caller's promise.
        unsafe { put(stats, all, "pStats") }?;
        for ((memory_type, _), blocks) in of.blocks() {
            let sum = sum(&blocks);
            all.memory_type[index(memory_type)].add(&sum);
            all.memory_heap[of.heap_of(memory_type)].add(&sum);
            all.total.add(&sum);
        }
        // SAFETY: as above.
        unsafe { put(stats, all, "pStats") }
    };
    // SAFETY: as above.
    unsafe { on("vmaCalculateStatistics", allocator, work) };
}

/// Writes the held bytes and the budget of each heap. Cheap enough for every frame.
///
/// # Safety
///
/// As for [`vmaCalculateStatistics`]; `budgets` has an element for each heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaGetHeapBudgets(allocator: VmaAllocator, budgets: *mut VmaBudget) {
    let work = |of: &Allocator| {
        if budgets.is_null() {
            return Err(Refused::invalid("pBudgets is null"));
        }
        for (heap, budget) in of.budgets().into_iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { put(budgets.wrapping_add(heap), budget, "pBudgets") }?;
        }
        Ok(())
    };
    // SAFETY: as above.
    unsafe { on("vmaGetHeapBudgets", allocator, work) };
}

/// Sums over a pool.
///
/// # Safety
///
/// As for [`vmaCalculateStatistics`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaGetPoolStatistics(
    allocator: VmaAllocator,
    pool: VmaPool,
    stats: *mut VmaStatistics,
) {
    let work = |of: &Allocator| {
        let (pool, _) = of.pool(pool)?;
        // SAFETY: the caller's promise.
        unsafe { put(stats, pool_statistics(&pool), "pPoolStats") }
    };
    // SAFETY: as above.
    unsafe { on("vmaGetPoolStatistics", allocator, work) };
}

/// Sums over a pool, with the extremes of sizes. It walks all allocations.
///
/// # Safety
///
/// As for [`vmaCalculateStatistics`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaCalculatePoolStatistics(
    allocator: VmaAllocator,
    pool: VmaPool,
    stats: *mut VmaDetailedStatistics,
) {
    let work = |of: &Allocator| {
        let (found, number) = of.pool(pool)?;
        // SAFETY: the caller's promise.
        unsafe { put(stats, VmaDetailedStatistics::EMPTY, "pPoolStats") }?;
        let blocks = of.blocks().remove(&(found.memory_type, number));
        // SAFETY: as above.
        unsafe { put(stats, sum(&blocks.unwrap_or_default()), "pPoolStats") }
    };
    // SAFETY: as above.
    unsafe { on("vmaCalculatePoolStatistics", allocator, work) };
}
