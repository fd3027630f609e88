//! The heaps that may serve a request, best first.
use super::WhenFull;
use crate::MemoryLocation;
use ash::vk;
use omniheap_core::{Backend, HeapId, HeapKind, HostAccess, Manager, Ranking};
use omniheap_vulkan::Vulkan;

/// Choices made so far: programs use a few combinations of types and location, over and over.
#[derive(Debug, Default)]
pub(super) struct Heaps {
    known: Vec<((u32, MemoryLocation), Ranking)>,
}

impl Heaps {
    /// Returns the heaps for memory of these types at this location; none where no memory type suits.
    pub(super) fn find(
        &mut self,
        vulkan: &Vulkan,
        types: u32,
        location: MemoryLocation,
        when_full: WhenFull,
    ) -> Ranking {
        let key = (types, location);
        let at = self.known.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            let mut heaps = Ranking::new();
            for heap in choose(vulkan, types, location, when_full) {
                heaps.push(heap);
            }
            self.known.push((key, heaps));
            self.known.len() - 1
        });
        self.known[at].1
    }

    pub(super) fn forget(&mut self) {
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
pub(super) fn is_host(vulkan: &Vulkan, heap: HeapId) -> bool {
    vulkan.caps().heap(heap).is_some_and(|heap| heap.kind == HeapKind::Staging)
}

/// Returns whether a heap is a small window into device memory that these bytes would nearly fill.
///
/// Such a window is worth keeping for what the host writes every frame; uploads of a whole scene go to host memory.
pub(super) fn is_crowded_window(manager: &Manager<Vulkan>, id: HeapId, size: u64) -> bool {
    let caps = manager.caps();
    let Some(heap) = caps.heap(id).filter(|heap| heap.kind == HeapKind::Unified) else {
        return false;
    };
    let is_larger = |other: &omniheap_core::Heap| {
        other.kind == HeapKind::Device && other.physical != heap.physical && other.size > heap.size
    };
    if !caps.heaps.iter().any(is_larger) {
        return false;
    }
    let held = manager.heap_use(id).map_or(0, |held| held.reserved);
    held.saturating_add(size) > heap.size / 16 * 14
}
