//! Blocks from an engine's gpu-allocator.
#![expect(unsafe_code, reason = "hands one device to two allocators")]
use crate::rig::{MAIN, Rig, first, free, normal, pattern, read, write};
use gpu_allocator::vulkan::{Allocator, AllocatorCreateDesc};
use omniheap_core::{Backend, ErrorKind, HeapKind};
use omniheap_vulkan::{
    Existing, Feature, GpuAllocator, Vulkan,
    ash::vk,
    gpu_allocator::{self as ours, AllocationCreateDesc, AllocationScheme, MemoryLocation},
};
use std::sync::{Arc, Mutex};

crate::cases! {
    blocks_come_from_an_engines_allocator if |_| true;
    code_for_gpu_allocator_runs_on_the_adapter if |_| true;
    the_adapter_refuses_what_nobody_can_serve if |_| true;
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

fn desc(
    requirements: vk::MemoryRequirements,
    location: MemoryLocation,
) -> AllocationCreateDesc<'static> {
    let allocation_scheme = AllocationScheme::GpuAllocatorManaged;
    AllocationCreateDesc { name: "piece", requirements, location, linear: true, allocation_scheme }
}

fn code_for_gpu_allocator_runs_on_the_adapter(rig: &Rig) {
    // SAFETY: the one dedicated buffer below is the device's, with its own requirements.
    let allocator = unsafe { ours::Allocator::new(rig.open()) };
    let device = allocator.manager().backend().ash_device().clone();
    let info = vk::BufferCreateInfo::default()
        .size(3000)
        .usage(vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST);
    let mut places = Vec::new();
    let mut made = Vec::new();
    for location in [MemoryLocation::GpuOnly, MemoryLocation::CpuToGpu, MemoryLocation::GpuToCpu] {
        for dedicated in [false, true] {
            // SAFETY: a plain buffer.
            let buffer = unsafe { device.create_buffer(&info, None) }.unwrap();
            // SAFETY: created just above.
            let asked = unsafe { device.get_buffer_memory_requirements(buffer) };
            let mut wish = desc(asked, location);
            if dedicated {
                wish.allocation_scheme = AllocationScheme::DedicatedBuffer(buffer);
            }
            let mut piece = allocator.allocate(&wish).unwrap();
            assert_eq!((piece.is_dedicated(), piece.size()), (dedicated, asked.size));
            assert!(piece.offset().is_multiple_of(asked.alignment));
            // SAFETY: kept as long as the buffer.
            let memory = unsafe { piece.memory() };
            // SAFETY: fresh, and the memory is for it.
            unsafe { device.bind_buffer_memory(buffer, memory, piece.offset()) }.unwrap();
            places.push((memory, piece.offset(), piece.size()));
            // SAFETY: the device does not use it.
            if let Some(bytes) = unsafe { piece.mapped_slice_mut() } {
                bytes.fill(7);
                // SAFETY: as above.
                assert_eq!(unsafe { piece.mapped_slice() }.unwrap()[2999], 7);
            } else {
                assert_eq!(location, MemoryLocation::GpuOnly, "the host sees the others");
            }
            made.push((buffer, piece));
        }
    }
    let apart = |a: &(vk::DeviceMemory, u64, u64), b: &(vk::DeviceMemory, u64, u64)| {
        a.0 != b.0 || a.1 + a.2 <= b.1 || b.1 + b.2 <= a.1
    };
    let pairs = |n: usize| places[..n].iter().all(|other| apart(other, &places[n]));
    assert!((0..places.len()).all(pairs), "{places:?}");
    for (buffer, piece) in made {
        // SAFETY: no work ever used it.
        unsafe { device.destroy_buffer(buffer, None) };
        allocator.free(piece);
    }
    assert_eq!(allocator.manager().totals().live_bytes, 0);
}

fn the_adapter_refuses_what_nobody_can_serve(rig: &Rig) {
    // SAFETY: no dedicated resource is named.
    let allocator = unsafe { ours::Allocator::new(rig.open()) };
    let vulkan = allocator.manager().backend();
    let types = 1 << vulkan.memory_type(vulkan.candidates(!0, HeapKind::Device)[0]).unwrap();
    let refused = |size, alignment, memory_type_bits| {
        let asked = vk::MemoryRequirements { size, alignment, memory_type_bits };
        allocator.allocate(&desc(asked, MemoryLocation::GpuOnly)).unwrap_err().kind()
    };
    assert_eq!(refused(0, 16, types), ErrorKind::ZeroSize);
    assert_eq!(refused(64, 0, types), ErrorKind::InvalidAlignment);
    assert_eq!(refused(64, 48, types), ErrorKind::InvalidAlignment);
    assert_eq!(refused(64, 16, 0), ErrorKind::NoSuchHeap);
    assert_eq!(refused(u64::MAX, 16, types), ErrorKind::ExceedsLimit);
    assert_eq!(allocator.manager().totals().reserved_bytes, 0, "nothing was taken");
}
