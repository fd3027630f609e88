//! Blocks from an engine's gpu-allocator.
#![expect(unsafe_code, reason = "hands one device to two allocators")]
use crate::rig::{MAIN, Rig, first, free, normal, pattern, read, write};
use gpu_allocator::vulkan::{Allocator, AllocatorCreateDesc};
use omniheap_core::Backend;
use omniheap_vulkan::{Existing, Feature, GpuAllocator, Vulkan};
use std::sync::{Arc, Mutex};

crate::cases! {
    blocks_come_from_an_engines_allocator if |_| true;
}

fn guest(rig: &Rig, owner: &Vulkan) -> (Vulkan, Arc<GpuAllocator>) {
    let enabled: Vec<_> = [Feature::TimelineSemaphore, Feature::BufferDeviceAddress]
        .into_iter()
        .filter(|feature| owner.has(*feature))
        .collect();
    let (queue, family) = owner.with_queue(MAIN, |queue, family| (queue, family)).unwrap();
    let existing = Existing {
        entry: owner.ash_entry().clone(),
        instance: owner.ash_instance().clone(),
        physical_device: owner.physical_device(),
        device: owner.ash_device().clone(),
        queues: &[(family, queue)],
        enabled: &enabled,
    };
    let allocator = Allocator::new(&AllocatorCreateDesc {
        instance: owner.ash_instance().clone(),
        device: owner.ash_device().clone(),
        physical_device: owner.physical_device(),
        debug_settings: gpu_allocator::AllocatorDebugSettings::default(),
        buffer_device_address: owner.has(Feature::BufferDeviceAddress),
        allocation_sizes: gpu_allocator::AllocationSizes::default(),
    });
    let source = Arc::new(GpuAllocator::new(Arc::new(Mutex::new(allocator.unwrap()))));
    // SAFETY: the owner outlives the guest and does not touch its queue meanwhile.
    let guest = unsafe { Vulkan::wrap(existing, rig.options) }.unwrap();
    // SAFETY: the allocator is of the same device.
    let guest = unsafe { guest.with_source(source.clone()) };
    (guest, source)
}

fn blocks_come_from_an_engines_allocator(rig: &Rig) {
    let owner = rig.open();
    let (guest, source) = guest(rig, &owner);
    let mut blocks = Vec::new();
    for (n, heap) in (0u64..).zip(normal(&guest).into_iter().cycle().take(12)) {
        let block = guest.allocate(heap, 30_000 + n).unwrap();
        write(&guest, &block, 1, &pattern(n, 20_000));
        blocks.push(block);
    }
    assert_eq!(source.live(), 12);
    assert!(blocks.iter().any(|block| block.memory_offset() > 0), "they share driver memory");
    for (n, block) in (0u64..).zip(&blocks) {
        assert!(read(&guest, block, 1, 20_000) == pattern(n, 20_000), "block {n}");
    }
    let visible = guest.caps().heap_ids().find(|(_, heap)| heap.host.is_visible());
    let (heap, _) = visible.expect("every device shows the host some memory");
    let block = guest.allocate(heap, 4096).unwrap();
    write(&guest, &block, 0, b"seen");
    guest.wait_idle().unwrap();
    let map = guest.as_map().expect("always");
    let start = map.map(&block).unwrap();
    map.invalidate(&block, 0, guest.caps().atom.get()).unwrap();
    // SAFETY: four bytes of a mapped block, on an idle device.
    assert_eq!(unsafe { core::slice::from_raw_parts(start.as_ptr(), 4) }, b"seen");
    free(&guest, block).unwrap();
    drop(blocks);
    assert_eq!(source.live(), 0, "all went back");
    assert!(guest.allocate(first(&guest), 64).is_ok());
}
