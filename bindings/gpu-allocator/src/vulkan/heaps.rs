//! The heaps that may serve a request, best first.
use super::WhenFull;
use crate::{AllocationSizes, MemoryLocation};
use ash::vk;
use omniheap_core::{Backend, Heap, HeapId, HeapKind, HostAccess, Manager};
use omniheap_vulkan::Vulkan;

/// A heap that may serve a request, with what each request asks of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) id: HeapId,
    pub(super) is_host: bool,
    /// The bit of its physical memory: the driver numbers at most 16.
    pub(super) physical: u32,
    /// The largest request that fits a block.
    largest: u64,
    /// The largest request that shares a block, and the largest block that is shared.
    pub(super) shared: u64,
    pub(super) bound: u64,
    /// Bytes of a small window into device memory that uploads may fill; `None` for other heaps.
    window: Option<u64>,
}

impl Candidate {
    /// Returns whether a request of `size` may go here; the last heap serves what it can.
    #[inline]
    pub(super) fn may_serve(&self, manager: &Manager<Vulkan>, size: u64, is_last: bool) -> bool {
        size <= self.largest && (is_last || !self.is_crowded(manager, size))
    }

    /// Returns whether it is a small window into device memory that these bytes would nearly fill.
    ///
    /// Such a window is worth keeping for what the host writes every frame; uploads of a whole scene go to host memory.
    fn is_crowded(&self, manager: &Manager<Vulkan>, size: u64) -> bool {
        self.window.is_some_and(|most| {
            let held = manager.heap_use(self.id).map_or(0, |held| held.reserved);
            held.saturating_add(size) > most
        })
    }
}

/// Memory types, and where the memory should lie.
type Asked = (u32, MemoryLocation);

/// Choices made so far: programs use a few combinations of types and location, over and over.
#[derive(Debug)]
pub(super) struct Heaps {
    when_full: WhenFull,
    sizes: AllocationSizes,
    known: Vec<(Asked, Box<[Candidate]>)>,
}

impl Heaps {
    pub(super) const fn new(sizes: AllocationSizes, when_full: WhenFull) -> Self {
        Self { when_full, sizes, known: Vec::new() }
    }

    /// Returns the heaps for memory of these types at this location, best first; none where no memory type suits.
    #[inline]
    pub(super) fn find(
        &mut self,
        vulkan: &Vulkan,
        types: u32,
        location: MemoryLocation,
    ) -> &[Candidate] {
        let is_it = |((t, l), _): &(Asked, _)| *t == types && *l == location;
        let known = self.known.iter().position(is_it);
        let at = known.unwrap_or_else(|| self.choose(vulkan, types, location));
        &self.known[at].1
    }

    #[cold]
    fn choose(&mut self, vulkan: &Vulkan, types: u32, location: MemoryLocation) -> usize {
        let heaps = choose(vulkan, types, location, self.when_full);
        let heaps = heaps.into_iter().filter_map(|id| self.candidate(vulkan, id)).collect();
        self.known.push(((types, location), heaps));
        self.known.len() - 1
    }

    fn candidate(&self, vulkan: &Vulkan, id: HeapId) -> Option<Candidate> {
        let heap = vulkan.caps().heap(id)?;
        let is_host = is_host(vulkan, id);
        Some(Candidate {
            id,
            is_host,
            physical: 1 << heap.physical,
            largest: heap.max_block,
            shared: self.sizes.largest_shared(is_host),
            bound: self.sizes.bound(is_host),
            window: is_small_window(vulkan, heap).then_some(heap.size / 16 * 14),
        })
    }

    pub(super) fn set_when_full(&mut self, when_full: WhenFull) {
        self.when_full = when_full;
        self.known.clear();
    }
}

fn choose(
    vulkan: &Vulkan,
    types: u32,
    location: MemoryLocation,
    when_full: WhenFull,
) -> Vec<HeapId> {
    use vk::MemoryPropertyFlags as F;
    let kind = match location {
        MemoryLocation::GpuOnly | MemoryLocation::Unknown => HeapKind::Device,
        MemoryLocation::CpuToGpu => HeapKind::Unified,
        MemoryLocation::GpuToCpu => HeapKind::Staging,
    };
    let mut heaps = vulkan.candidates(types, kind);
    if heaps.is_empty() && kind == HeapKind::Device {
        // A resource that accepts only special memory, such as lazily allocated attachments.
        heaps = vulkan.heaps_with(types & !protected(vulkan), F::DEVICE_LOCAL);
    }
    let access = |id| vulkan.caps().heap(id).map_or(HostAccess::None, |heap| heap.host);
    match location {
        MemoryLocation::GpuOnly if when_full == WhenFull::Fail => {
            heaps.retain(|id| !is_host(vulkan, *id));
        }
        MemoryLocation::GpuOnly | MemoryLocation::Unknown => {}
        MemoryLocation::CpuToGpu | MemoryLocation::GpuToCpu => {
            heaps.retain(|id| matches!(access(*id), HostAccess::Cached | HostAccess::Combined));
        }
    }
    if location == MemoryLocation::GpuToCpu {
        heaps.sort_by_key(|id| access(*id) != HostAccess::Cached);
    }
    heaps
}

/// Returns the memory types that only protected resources may use.
fn protected(vulkan: &Vulkan) -> u32 {
    let heaps = vulkan.heaps_with(!0, vk::MemoryPropertyFlags::PROTECTED);
    let types = heaps.iter().filter_map(|heap| vulkan.memory_type(*heap));
    types.fold(0, |all, one| all | 1 << one)
}

/// Returns whether a heap is host memory.
fn is_host(vulkan: &Vulkan, heap: HeapId) -> bool {
    vulkan.caps().heap(heap).is_some_and(|heap| heap.kind == HeapKind::Staging)
}

/// Returns whether a heap is a window into a larger heap of device memory.
fn is_small_window(vulkan: &Vulkan, heap: &Heap) -> bool {
    let is_larger = |other: &Heap| {
        other.kind == HeapKind::Device && other.physical != heap.physical && other.size > heap.size
    };
    heap.kind == HeapKind::Unified && vulkan.caps().heaps.iter().any(is_larger)
}
