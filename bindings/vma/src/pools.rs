//! Sources of memory that allocations share: the default pools of each memory type, by size, and pools that programs make.
#![expect(unsafe_code, reason = "chains structures that the program answers for")]
use crate::abi::{
    VMA_POOL_CREATE_IGNORE_BUFFER_IMAGE_GRANULARITY_BIT, VMA_POOL_CREATE_LINEAR_ALGORITHM_BIT,
    VmaAllocator, VmaPool, VmaPoolCreateInfo,
};
use crate::allocator::{Allocator, index, on, with};
use crate::args::{put, read, text};
use crate::call::Refused;
use crate::linear::{Linear, Side};
use crate::memory::{About, Managed, Seen};
use crate::slots::{Handle, NO_WEIGHT};
use ash::vk;
use core::ffi::{CStr, c_char};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};
use omniheap_core::{Align, AnyBackend, Growth, PoolConfig, UserPool};
use omniheap_seam::lock;
use omniheap_vulkan::MemoryExtras;
use std::ffi::CString;
use std::sync::{Arc, Mutex, OnceLock};

const KIB: u64 = 1 << 10;
/// Largest block of any kind.
const MOST_BLOCK: u64 = 32 * 1024 * KIB;
/// Part of what a pool holds that its next block has.
const PART: u64 = 8;

/// Kind of default pool. Larger allocations share a block with fewer others, so most blocks become empty when most of a scene is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Staging memory, freed soon.
    Scratch,
    /// Up to 32 KiB, eight or more to a block.
    Small,
    /// Up to 256 KiB, four or more to a block.
    Medium,
    /// Up to 1 MiB, four or more to a block.
    Large,
    /// Everything else that shares memory.
    Huge,
}

const KINDS: usize = Kind::Huge as usize + 1;

impl Kind {
    pub(crate) const fn of(size: u64) -> Self {
        match size {
            _ if size <= 32 * KIB => Self::Small,
            _ if size <= 256 * KIB => Self::Medium,
            _ if size <= 1024 * KIB => Self::Large,
            _ => Self::Huge,
        }
    }

    /// Returns the size of its first blocks.
    const fn first_block(self) -> u64 {
        match self {
            Self::Small => 256 * KIB,
            Self::Medium => 1024 * KIB,
            Self::Scratch | Self::Large | Self::Huge => 4096 * KIB,
        }
    }

    /// Returns the sizes of its blocks, which grow with the pool up to what the program prefers.
    pub(crate) fn growth(self, preferred: u64) -> Growth {
        let (granule, most) = (Align::of(64 * KIB), preferred.min(MOST_BLOCK));
        let smallest = self.first_block().min(most.max(granule.get()));
        Growth {
            smallest,
            granule,
            shared_up_to: most,
            part: PART,
            ..Growth::new(u64::MAX, granule)
        }
    }
}

/// Settings of a pool with one lane, in which places do not depend on threads.
pub(crate) fn one_lane() -> PoolConfig {
    PoolConfig::new().lanes(1)
}

/// The default pools, made at first use.
#[derive(Default)]
pub(crate) struct Defaults([[OfKind; KINDS]; vk::MAX_MEMORY_TYPES]);

type OfKind = OnceLock<UserPool<AnyBackend>>;

impl Defaults {
    /// Returns the pool of a memory type for a kind of request.
    #[inline]
    pub(crate) fn get(
        &self,
        of: &Allocator,
        memory_type: u32,
        kind: Kind,
    ) -> Result<&UserPool<AnyBackend>, Refused> {
        let slot = &self.0[index(memory_type)][kind as usize];
        match slot.get() {
            Some(pool) => Ok(pool),
            None => Self::make(of, memory_type, kind, slot),
        }
    }

    #[cold]
    fn make<'a>(
        of: &Allocator,
        memory_type: u32,
        kind: Kind,
        slot: &'a OfKind,
    ) -> Result<&'a UserPool<AnyBackend>, Refused> {
        let growth = kind.growth(of.preferred_block(memory_type));
        let config = PoolConfig::new().lanes(of.lanes()).growth(growth);
        let pool = of.manager.create_pool(of.heap(memory_type), config)?;
        // If another thread was first, its pool stays and this empty one is dropped.
        Ok(slot.get_or_init(|| pool))
    }

    /// Returns the pools of a memory type that were made.
    pub(crate) fn of_type(&self, memory_type: u32) -> impl Iterator<Item = &UserPool<AnyBackend>> {
        self.0[index(memory_type)].iter().filter_map(OnceLock::get)
    }
}

/// Additions to the driver allocations of a pool's blocks. The chain belongs to the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extras(pub(crate) MemoryExtras);

// SAFETY: the chain is only read, by the driver; the program promised that it stays as it is while the pool lives.
unsafe impl Send for Extras {}
// SAFETY: as above.
unsafe impl Sync for Extras {}

/// One block of a linear pool.
struct LinearBlock {
    number: u64,
    block: Managed,
    seen: Seen,
    linear: Linear,
}

/// Algorithm that divides a pool's memory.
enum Source {
    General(UserPool<AnyBackend>),
    /// Blocks by age, and the number of the next.
    Linear(Mutex<(Vec<LinearBlock>, u64)>),
}

/// A pool that a program made.
pub(crate) struct CustomPool {
    pub(crate) memory_type: u32,
    pub(crate) flags: u32,
    /// Size of blocks; zero if the pool chooses.
    pub(crate) block_size: u64,
    min_blocks: usize,
    max_blocks: usize,
    pub(crate) min_align: u64,
    pub(crate) extras: Extras,
    /// Number of allocations, and of those with memory of their own.
    pub(crate) live: AtomicU64,
    pub(crate) live_bytes: AtomicU64,
    pub(crate) alone: AtomicU64,
    pub(crate) alone_bytes: AtomicU64,
    /// Bytes that were freed since blocks were last returned.
    freed: AtomicU64,
    name: Mutex<Option<CString>>,
    shown_name: AtomicPtr<c_char>,
    source: Source,
}

impl CustomPool {
    fn new(of: &Allocator, info: &VmaPoolCreateInfo) -> Result<Self, Refused> {
        let is_linear = info.flags & VMA_POOL_CREATE_LINEAR_ALGORITHM_BIT != 0;
        let preferred = of.preferred_block(info.memory_type_index);
        let max_blocks = if info.max_block_count == 0 { usize::MAX } else { info.max_block_count };
        // The engine divides blocks into whole units.
        let unit = if is_linear { 1 } else { of.manager.config().unit.get() };
        let block_size = info.block_size.next_multiple_of(unit);
        let extras = MemoryExtras::default().priority(info.priority.clamp(0.0, 1.0));
        // SAFETY: the program promised that the chain lives as long as the pool, and that it suits memory.
        let extras = unsafe { extras.next(info.p_memory_allocate_next) };
        let source = if is_linear {
            Source::Linear(Mutex::new((Vec::new(), 0)))
        } else {
            let blocks = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
            let size = if block_size == 0 { preferred } else { block_size };
            let fixed = (block_size > 0 || info.min_block_count > 0).then_some(size);
            let config = one_lane().block(fixed);
            let config = config.minimum(blocks(info.min_block_count).saturating_mul(size));
            let config = config.maximum(blocks(max_blocks).saturating_mul(size));
            let heap = of.heap(info.memory_type_index);
            Source::General(extras.scoped(|| of.manager.create_pool(heap, config))?)
        };
        let pool = Self {
            memory_type: info.memory_type_index,
            flags: info.flags,
            block_size: if is_linear && block_size == 0 { preferred } else { block_size },
            min_blocks: info.min_block_count,
            max_blocks,
            min_align: info.min_allocation_alignment.max(1),
            extras: Extras(extras),
            live: AtomicU64::new(0),
            live_bytes: AtomicU64::new(0),
            alone: AtomicU64::new(0),
            alone_bytes: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            name: Mutex::new(None),
            shown_name: AtomicPtr::new(ptr::null_mut()),
            source,
        };
        pool.prime(of)?;
        Ok(pool)
    }

    /// Makes the blocks that a linear pool keeps from the start.
    fn prime(&self, of: &Allocator) -> Result<(), Refused> {
        let Source::Linear(blocks) = &self.source else { return Ok(()) };
        let mut blocks = lock(blocks);
        while blocks.0.len() < self.min_blocks {
            self.grow(of, &mut blocks)?;
        }
        Ok(())
    }

    fn grow(&self, of: &Allocator, blocks: &mut (Vec<LinearBlock>, u64)) -> Result<(), Refused> {
        let (block, seen) = of.block(self.memory_type, self.block_size, self.extras)?;
        let number = blocks.1;
        blocks.1 += 1;
        blocks.0.push(LinearBlock { number, block, seen, linear: Linear::new(self.block_size) });
        Ok(())
    }

    pub(crate) const fn is_linear(&self) -> bool {
        matches!(self.source, Source::Linear(_))
    }

    /// Returns true if the pool has at most one block, so that both ends can be used.
    pub(crate) const fn is_single(&self) -> bool {
        self.max_blocks == 1
    }

    pub(crate) const fn ignores_neighbours(&self) -> bool {
        self.flags & VMA_POOL_CREATE_IGNORE_BUFFER_IMAGE_GRANULARITY_BIT != 0
    }

    /// Returns true if the pool has as many blocks as it may.
    pub(crate) fn is_at_most(&self) -> bool {
        let blocks = u64::try_from(self.max_blocks).unwrap_or(u64::MAX);
        let most = blocks.saturating_mul(self.block_size);
        self.block_size > 0 && self.general().is_some_and(|pool| pool.reserved() >= most)
    }

    /// Returns the pool of the engine behind it; none for a linear one.
    pub(crate) const fn general(&self) -> Option<&UserPool<AnyBackend>> {
        match &self.source {
            Source::General(pool) => Some(pool),
            Source::Linear(_) => None,
        }
    }

    /// Takes bytes from the newest block of a linear pool, or from a new block. Returns the block's number and the place.
    pub(crate) fn take_linear(
        &self,
        of: &Allocator,
        (size, align, side): (u64, u64, Side),
        may_grow: impl FnOnce(u64) -> Result<(), Refused>,
    ) -> Result<(u64, Seen), Refused> {
        let Source::Linear(blocks) = &self.source else {
            return Err(Refused::invalid("the pool is not linear"));
        };
        let mut blocks = lock(blocks);
        let take = |blocks: &mut (Vec<LinearBlock>, u64)| {
            let block = blocks.0.last_mut()?;
            let offset = block.linear.allocate(size, align, side)?;
            Some((block.number, Seen { offset, ..block.seen }))
        };
        if let Some(taken) = take(&mut blocks) {
            return Ok(taken);
        }
        let full = || Refused::quietly(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY, "the pool is full");
        if blocks.0.len() >= self.max_blocks || size > self.block_size {
            return Err(full());
        }
        may_grow(self.block_size)?;
        self.grow(of, &mut blocks)?;
        take(&mut blocks).ok_or_else(full)
    }

    /// Frees bytes of a linear pool. Also gives one empty block back, if an earlier call left one.
    pub(crate) fn free_linear(&self, number: u64, offset: u64) {
        let Source::Linear(blocks) = &self.source else { return };
        let mut held = lock(blocks);
        let blocks = &mut held.0;
        let Some(at) = blocks.iter().position(|block| block.number == number) else { return };
        let was_live = blocks[at].linear.free(offset);
        debug_assert!(was_live, "a slot frees its bytes once");
        let is_other =
            |(other, block): (usize, &LinearBlock)| other != at && block.linear.is_empty();
        let other = blocks.iter().enumerate().position(is_other);
        let spare = if blocks[at].linear.is_empty() { Some(at) } else { other };
        let spare = spare.filter(|_| other.is_some() && blocks.len() > self.min_blocks);
        let ended = spare.map(|spare| blocks.remove(spare));
        drop(held);
        drop(ended.map(|ended| ended.block));
    }

    /// Runs `with` on the allocation behind a linear block.
    pub(crate) fn linear_block<R>(
        &self,
        number: u64,
        with: impl FnOnce(&Managed) -> R,
    ) -> Option<R> {
        let Source::Linear(blocks) = &self.source else { return None };
        let blocks = lock(blocks);
        blocks.0.iter().find(|block| block.number == number).map(|block| with(&block.block))
    }

    /// Returns how many blocks its allocations share, and their bytes. Where blocks have one size, nothing is walked.
    pub(crate) fn held(&self) -> (u64, u64) {
        match &self.source {
            Source::General(pool) if self.block_size > 0 => {
                let bytes = pool.reserved();
                (bytes / self.block_size, bytes)
            }
            _ => {
                let sizes = self.blocks().into_iter().map(|(size, _)| size);
                sizes.fold((0, 0), |(blocks, bytes), size| (blocks + 1, bytes + size))
            }
        }
    }

    /// Returns the size of each shared block, and a flag for empty ones.
    pub(crate) fn blocks(&self) -> Vec<(u64, bool)> {
        match &self.source {
            Source::General(pool) => pool
                .report()
                .blocks
                .iter()
                .map(|block| (block.size, block.live.is_empty()))
                .collect(),
            Source::Linear(blocks) => lock(blocks)
                .0
                .iter()
                .map(|block| (block.seen.block_size, block.linear.is_empty()))
                .collect(),
        }
    }

    pub(crate) fn set_name(&self, name: Option<&CStr>) {
        let mut own = lock(&self.name);
        *own = name.map(CStr::to_owned);
        let shown = own.as_ref().map_or(ptr::null(), |name| name.as_ptr());
        self.shown_name.store(shown.cast_mut(), Relaxed);
    }

    pub(crate) fn name_text(&self) -> Option<String> {
        lock(&self.name).as_ref().map(|name| name.to_string_lossy().into_owned())
    }

    #[inline]
    pub(crate) fn count(&self, about: About, bytes: u64) {
        self.live.fetch_add(1, Relaxed);
        self.live_bytes.fetch_add(bytes, Relaxed);
        if about.is_alone() {
            self.alone.fetch_add(1, Relaxed);
            self.alone_bytes.fetch_add(bytes, Relaxed);
        }
    }

    /// Counts a free, and trims empty blocks once two of them may be empty.
    #[inline]
    pub(crate) fn uncount(&self, about: About, bytes: u64) {
        self.live.fetch_sub(1, Relaxed);
        let live = self.live_bytes.fetch_sub(bytes, Relaxed) - bytes;
        let freed = self.freed.fetch_add(bytes, Relaxed) + bytes;
        if let Source::General(pool) = &self.source
            && self.block_size > 0
            && freed >= self.block_size
            && pool.reserved().saturating_sub(live) / 2 >= self.block_size
        {
            self.freed.store(0, Relaxed);
            // A lost device has nothing to give back; the calls that allocate report it.
            let _ = pool.trim();
        }
        if about.is_alone() {
            self.alone.fetch_sub(1, Relaxed);
            self.alone_bytes.fetch_sub(bytes, Relaxed);
        }
    }
}

impl Allocator {
    /// Returns a pool by its handle, and its number, which its allocations carry.
    pub(crate) fn pool(&self, pool: VmaPool) -> Result<(Arc<CustomPool>, u32), Refused> {
        let handle = Handle::from_address(pool.0.addr());
        let found = self.pools.get(handle).and_then(|slot| slot.with(|pool| Arc::clone(pool)));
        let found = found.ok_or_else(|| {
            Refused::invalid(match pool.is_null() {
                true => "the pool is null",
                false => "the pool was destroyed, or is not this allocator's",
            })
        })?;
        Ok((found, handle.number()))
    }

    /// Refuses settings of a pool that contradict the device or each other.
    fn check_pool(&self, info: &VmaPoolCreateInfo) -> Result<(), Refused> {
        let missing = |why: &'static str| Refused::new(vk::Result::ERROR_FEATURE_NOT_PRESENT, why);
        if info.memory_type_index >= self.type_count() {
            return Err(missing("memoryTypeIndex is out of range"));
        }
        if self.types.usable & (1 << info.memory_type_index) == 0 {
            return Err(missing(
                "the memory type needs VMA_ALLOCATOR_CREATE_AMD_DEVICE_COHERENT_MEMORY_BIT",
            ));
        }
        if info.max_block_count > 0 && info.min_block_count > info.max_block_count {
            return Err(Refused::invalid("minBlockCount is above maxBlockCount"));
        }
        if info.min_allocation_alignment > 0 && !info.min_allocation_alignment.is_power_of_two() {
            return Err(Refused::invalid("minAllocationAlignment is not a power of two"));
        }
        let most = self.manager.caps().heap(self.heap(info.memory_type_index));
        if most.is_some_and(|heap| info.block_size > heap.max_block) {
            let why = "blockSize is above the largest block of the heap";
            return Err(Refused::new(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY, why));
        }
        Ok(())
    }
}

/// Makes a pool.
///
/// # Safety
///
/// `info` is null or what C says, `pool` is null or may be written; no other thread destroys the allocator. The same holds for
/// all functions here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaCreatePool(
    allocator: VmaAllocator,
    info: *const VmaPoolCreateInfo,
    pool: *mut VmaPool,
) -> vk::Result {
    let work = |of: &Allocator| {
        // SAFETY: the caller's promise.
        unsafe { put(pool, VmaPool::NULL, "pPool") }?;
        // SAFETY: as above.
        let info = unsafe { read(info, "pCreateInfo") }?;
        of.check_pool(&info)?;
        let made = Arc::new(CustomPool::new(of, &info)?);
        let handle = of.pools.keep(NO_WEIGHT, made, |_| ()).handle();
        let shown = VmaPool(ptr::without_provenance_mut(handle.address()));
        // SAFETY: as above.
        unsafe { put(pool, shown, "pPool") }
    };
    // SAFETY: as above.
    unsafe { with("vmaCreatePool", allocator, work) }
}

/// Destroys a pool. A pool with live allocations stays, and the log reports it.
///
/// # Safety
///
/// As for [`vmaCreatePool`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaDestroyPool(allocator: VmaAllocator, pool: VmaPool) {
    let work = |of: &Allocator| {
        if pool.is_null() {
            return Ok(());
        }
        let (found, _) = of.pool(pool)?;
        let live = found.live.load(Relaxed);
        if live > 0 {
            return Err(Refused::invalid(format!(
                "{live} allocations live in the pool; free them first"
            )));
        }
        of.pools.release(Handle::from_address(pool.0.addr()), |_| NO_WEIGHT);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { on("vmaDestroyPool", allocator, work) };
}

/// Writes a pool's name, or null if it has none. The name is valid until the next one is set.
///
/// # Safety
///
/// As for [`vmaCreatePool`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaGetPoolName(
    allocator: VmaAllocator,
    pool: VmaPool,
    name: *mut *const c_char,
) {
    let work = |of: &Allocator| {
        let (found, _) = of.pool(pool)?;
        // SAFETY: the caller's promise.
        unsafe { put(name, found.shown_name.load(Relaxed).cast_const(), "ppName") }
    };
    // SAFETY: as above.
    unsafe { on("vmaGetPoolName", allocator, work) };
}

/// Names a pool; null takes the name away.
///
/// # Safety
///
/// As for [`vmaCreatePool`]; `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaSetPoolName(
    allocator: VmaAllocator,
    pool: VmaPool,
    name: *const c_char,
) {
    let work = |of: &Allocator| {
        let (found, _) = of.pool(pool)?;
        // SAFETY: the caller's promise.
        found.set_name(unsafe { text(name) });
        Ok(())
    };
    // SAFETY: as above.
    unsafe { on("vmaSetPoolName", allocator, work) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_grow_with_a_pool_and_stay_below_the_bound() {
        const MIB: u64 = 1024 * KIB;
        let sizes = |kind: Kind, preferred: u64| {
            let growth = kind.growth(preferred);
            [0, 16 * MIB, 100 * MIB, u64::MAX].map(|held| growth.block_for(KIB, held))
        };
        let mib = |sizes: [u64; 4]| sizes.map(|size| Some(size * MIB));
        assert_eq!(sizes(Kind::Small, 256 * MIB)[0], Some(256 * KIB));
        assert_eq!(sizes(Kind::Medium, 256 * MIB), mib([1, 2, 8, 32]));
        assert_eq!(sizes(Kind::Huge, 256 * MIB), mib([4, 4, 8, 32]));
        assert_eq!(sizes(Kind::Large, 256 * MIB), mib([4, 4, 8, 32]));
        assert_eq!(sizes(Kind::Large, 2 * MIB), mib([2, 2, 2, 2]));
        assert_eq!(sizes(Kind::Large, 1), [64 * KIB; 4].map(Some));
    }
}
