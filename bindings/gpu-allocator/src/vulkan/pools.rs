//! Sources of memory: pools by lifetime and size, or memory of a resource alone.
#![expect(unsafe_code, reason = "takes handles that the caller answers for")]
use super::blocks::Tag;
use super::heaps::Candidate;
use super::{AllocationCreateDesc, AllocationScheme};
use crate::MemoryLocation;
use core::sync::atomic::Ordering::Relaxed;
use omniheap_core::{
    Align, AllocateError, Allocation as Managed, Class, HeapId, HeapKind, Manager, PoolConfig,
    Request, Span, UserPool,
};
use omniheap_vulkan::{Alone, Block, Native, Vulkan};

/// Kind of pool that memory comes from.
///
/// Allocations of different lifetimes, or of very different sizes, do not share blocks: one small or lasting piece
/// would keep a whole block. The larger a piece, the fewer share its block, so that most blocks become empty when most of
/// a scene goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Staging and scratch: gone soon.
    Scratch,
    /// Up to 32 KiB, eight or more to a block.
    Small,
    /// Up to 256 KiB, four or more to a block.
    Medium,
    /// Up to 1 MiB.
    Large,
    /// In blocks that the pool chooses by request, or alone.
    Huge,
}

const KIB: u64 = 1 << 10;
const MEDIUM_BLOCK: u64 = 1024 * KIB;
/// Blocks of no kind grow beyond this.
const MOST_BLOCK: u64 = 32 * 1024 * KIB;
/// Number of kinds of pools, and of sizes of blocks that each may have.
const KINDS: usize = Kind::Huge as usize + 1;
const GROWTHS: usize = (MOST_BLOCK.ilog2() - MEDIUM_BLOCK.ilog2()) as usize + 1;

impl Kind {
    #[inline]
    fn of(desc: &AllocationCreateDesc<'_>) -> Self {
        if desc.linear && is_scratch(desc) {
            return Self::Scratch;
        }
        match desc.requirements.size {
            size if size <= 32 * KIB => Self::Small,
            size if size <= 256 * KIB => Self::Medium,
            size if size <= 1024 * KIB => Self::Large,
            _ => Self::Huge,
        }
    }

    /// Returns the size of its blocks; `None` where the pool chooses by request.
    const fn block(self) -> Option<u64> {
        match self {
            Self::Small => Some(256 * KIB),
            Self::Medium | Self::Large => Some(MEDIUM_BLOCK),
            Self::Scratch | Self::Huge => None,
        }
    }
}

/// A pool: of what kind, and by how many powers of two its blocks are larger.
type Key = (HeapId, Kind, u32);

/// The pools of each heap, by kind and growth, made at first use.
#[derive(Default)]
pub(super) struct Pools(Vec<Option<UserPool<Vulkan>>>);

impl Pools {
    #[inline]
    fn get(
        &mut self,
        manager: &Manager<Vulkan>,
        (heap, kind, growth): Key,
    ) -> omniheap_core::Result<&UserPool<Vulkan>> {
        let at = (usize::from(heap.0) * KINDS + kind as usize) * GROWTHS + growth as usize;
        if self.0.get(at).is_none_or(Option::is_none) {
            self.make(manager, at, (heap, kind, growth))?;
        }
        Ok(self.0[at].as_ref().expect("made at first use"))
    }

    #[cold]
    fn make(
        &mut self,
        manager: &Manager<Vulkan>,
        at: usize,
        (heap, kind, growth): Key,
    ) -> omniheap_core::Result<()> {
        let block = kind.block().map(|block| block << growth);
        let pool = manager.create_pool(heap, one_lane().block(block))?;
        if at >= self.0.len() {
            self.0.resize_with(at + 1, || None);
        }
        self.0[at] = Some(pool);
        Ok(())
    }
}

/// Callers hold a lock of their own, so one lane is enough, and holds less memory.
pub(super) fn one_lane() -> PoolConfig {
    PoolConfig::new().lanes(1)
}

/// Returns by how many powers of two blocks are larger: a program of many GiB has larger ones, and so some thousand memory objects.
/// Drivers need support no more than 4,096. `bound` is what the caller set, 4 MiB at least.
#[inline]
fn growth(live_bytes: u64, bound: u64) -> u32 {
    let wanted = (live_bytes >> 30).checked_ilog2().map_or(0, |doubled| doubled + 1);
    wanted.min(bound.min(MOST_BLOCK).ilog2() - MEDIUM_BLOCK.ilog2())
}

/// A request for memory.
pub(super) struct Ask<'a> {
    pub(super) manager: &'a Manager<Vulkan>,
    pub(super) desc: &'a AllocationCreateDesc<'a>,
    pub(super) align: Align,
    /// Bytes that are live in all heaps together.
    pub(super) live_bytes: u64,
}

/// Memory, and its place: what its memory object carries, and the offset there. It does not move: this device copies nothing.
pub(super) type Taken = (Managed<Vulkan>, (Option<Tag>, u64));

fn place(block: &Block, span: Span) -> (Option<Tag>, u64) {
    (Tag::from_raw(block.user_data().load(Relaxed)), span.offset)
}

/// Takes memory of one heap.
#[inline]
pub(super) fn take(
    &Ask { manager, desc, align, live_bytes }: &Ask<'_>,
    pools: &mut Pools,
    heap: &Candidate,
) -> Result<Taken, AllocateError> {
    let class = if desc.linear { Class::Linear } else { Class::Tiled };
    match desc.allocation_scheme {
        AllocationScheme::GpuAllocatorManaged => {
            let size = desc.requirements.size;
            let request = Request::new(size).align(align).class(class);
            let kind = Kind::of(desc);
            let growth = kind.block().map_or(0, |_| growth(live_bytes, heap.bound));
            let pool = pools.get(manager, (heap.id, kind, growth))?;
            if size > heap.shared {
                return alone(pool, request);
            }
            pool.allocate_and_look(&request, place)
        }
        AllocationScheme::DedicatedBuffer(buffer) => dedicate(manager, buffer, desc, class, heap),
        AllocationScheme::DedicatedImage(image) => dedicate(manager, image, desc, class, heap),
    }
}

/// Takes memory for a request that is too large to share a block.
#[cold]
fn alone(pool: &UserPool<Vulkan>, request: Request<'_>) -> Result<Taken, AllocateError> {
    pool.allocate_and_look(&request.dedicated(), place)
}

#[cold]
fn dedicate<H: Native>(
    manager: &Manager<Vulkan>,
    handle: H,
    desc: &AllocationCreateDesc<'_>,
    class: Class,
    heap: &Candidate,
) -> Result<Taken, AllocateError> {
    let kind = if heap.is_host { HeapKind::Staging } else { HeapKind::Device };
    let mut needs = manager.backend().needs(desc.requirements, Alone::Required, class, kind)?;
    needs.heaps = vec![heap.id];
    // SAFETY: as in the crate whose interface this is, the caller answers for a handle of this device with these requirements.
    let managed = unsafe { Vulkan::allocate_alone(manager, handle, &needs) }?;
    let binding = managed.binding();
    let place = place(binding.block(), binding.span());
    drop(binding);
    Ok((managed, place))
}

/// Returns whether it is staging or scratch: wgpu names its own so. What programs did not name counts as such where the host
/// writes it; on the device it is as likely a texture of the scene.
fn is_scratch(desc: &AllocationCreateDesc<'_>) -> bool {
    let name = desc.name;
    match desc.location {
        MemoryLocation::CpuToGpu | MemoryLocation::GpuToCpu => {
            name.is_empty() || name.starts_with("(wgpu internal)") || name.starts_with("Unlabeled ")
        }
        MemoryLocation::GpuOnly | MemoryLocation::Unknown => name.starts_with("(wgpu) scratch"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_grow_with_the_program_and_stay_below_the_bound() {
        const GIB: u64 = 1 << 30;
        let sizes = |bound: u64| {
            [0, GIB - 1, GIB, 2 * GIB, 16 * GIB, u64::MAX].map(|live| growth(live, bound))
        };
        assert_eq!(sizes(256 << 20), [0, 0, 1, 2, 5, 5]);
        assert_eq!(sizes(4 << 20), [0, 0, 1, 2, 2, 2]);
        for bound in [4, 8, 12, 64, 256].map(|mib: u64| mib << 20) {
            assert!(sizes(bound).iter().all(|growth| MEDIUM_BLOCK << growth <= bound));
        }
    }
}
