//! Where the manager's memory comes from: its own pools, pools for scratch, or memory of a resource alone.
#![expect(unsafe_code, reason = "takes handles that the caller answers for")]
use super::heaps::Candidate;
use super::{AllocationCreateDesc, AllocationScheme};
use omniheap_core::{
    Align, AllocateError, Allocation as Managed, Class, HeapId, HeapKind, Manager, PoolConfig,
    Request, UserPool,
};
use omniheap_vulkan::{Alone, Native, Vulkan};
use std::collections::BTreeMap;

/// Pools for memory that programs rarely keep, by heap.
#[derive(Default)]
pub(super) struct Scratch(BTreeMap<HeapId, UserPool<Vulkan>>);

impl Scratch {
    fn pool(
        &mut self,
        manager: &Manager<Vulkan>,
        heap: HeapId,
    ) -> omniheap_core::Result<&UserPool<Vulkan>> {
        if !self.0.contains_key(&heap) {
            self.0.insert(heap, manager.create_pool(heap, config())?);
        }
        Ok(&self.0[&heap])
    }
}

/// Returns the settings of every pool. Callers hold a lock of their own, so one lane is enough, and holds less memory.
pub(super) fn config() -> PoolConfig {
    PoolConfig::new().lanes(1)
}

/// Takes memory of one heap.
#[inline]
pub(super) fn take(
    manager: &Manager<Vulkan>,
    scratch: &mut Scratch,
    desc: &AllocationCreateDesc<'_>,
    align: Align,
    heap: &Candidate,
) -> Result<Managed<Vulkan>, AllocateError> {
    let class = if desc.linear { Class::Linear } else { Class::Tiled };
    match desc.allocation_scheme {
        AllocationScheme::GpuAllocatorManaged => {
            let size = desc.requirements.size;
            // It stays where it is without being pinned: this device copies nothing.
            let mut request = Request::new(size).align(align).class(class).heap(heap.id);
            if size > heap.shared {
                request = request.dedicated();
            }
            match is_scratch(desc.name) {
                true => scratch.pool(manager, heap.id)?.allocate(&request),
                false => manager.allocate(&request),
            }
        }
        AllocationScheme::DedicatedBuffer(buffer) => dedicate(manager, buffer, desc, class, heap),
        AllocationScheme::DedicatedImage(image) => dedicate(manager, image, desc, class, heap),
    }
}

#[cold]
fn dedicate<H: Native>(
    manager: &Manager<Vulkan>,
    handle: H,
    desc: &AllocationCreateDesc<'_>,
    class: Class,
    heap: &Candidate,
) -> Result<Managed<Vulkan>, AllocateError> {
    let kind = if heap.is_host { HeapKind::Staging } else { HeapKind::Device };
    let mut needs = manager.backend().needs(desc.requirements, Alone::Required, class, kind)?;
    needs.heaps = vec![heap.id];
    // SAFETY: as in the crate whose interface this is, the caller answers for a handle of this device with these requirements.
    unsafe { Vulkan::allocate_alone(manager, handle, &needs) }
}

/// Returns whether a name says that the memory is staging or scratch: wgpu names its own so, and passes no label on for what
/// programs did not name.
fn is_scratch(name: &str) -> bool {
    name.is_empty() || name.starts_with("(wgpu internal)") || name.starts_with("Unlabeled ")
}
