use super::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn memory(heaps: &[u64], types: &[(u32, u8)]) -> DriverMemory {
    let types = types.iter().map(|&(properties, heap)| MemoryType { properties, heap });
    DriverMemory {
        heaps: heaps.into(),
        types: types.collect(),
        max_blocks: 4096,
        ..DriverMemory::default()
    }
}

fn describe_with(device: DeviceType, memory: Option<&DriverMemory>) -> Caps {
    let info = AdapterInfo::new(device, wgpu::Backend::Vulkan);
    describe(&info, &Limits::default(), 0, memory)
}

/// Physical heap and size of each heap.
fn layout(memory: &DriverMemory) -> Vec<(u8, u64)> {
    let caps = describe_with(DeviceType::DiscreteGpu, Some(memory));
    caps.heaps.iter().map(|heap| (heap.physical, heap.size)).collect()
}

#[test]
fn heaps_follow_the_memory_types_that_wgpu_would_choose() {
    // Discrete, small window into device memory: 1 = device local, 6 = host, 14 = host cached, 7 = window.
    let small_window =
        memory(&[24 * GIB, 32 * GIB, 246 * MIB], &[(0, 1), (1, 0), (6, 1), (14, 1), (7, 2)]);
    let (device, host, window) = ((0, 24 * GIB), (1, 32 * GIB), (2, 246 * MIB));
    assert_eq!(layout(&small_window), [device, device, window, host, device]);
    // Discrete, all device memory visible.
    let visible = memory(&[24 * GIB, 32 * GIB], &[(0, 1), (1, 0), (6, 1), (14, 1), (7, 0)]);
    assert_eq!(layout(&visible), [device, device, device, host, device]);
    // No window at all.
    let blind = memory(&[24 * GIB, 32 * GIB], &[(1, 0), (6, 1), (14, 1)]);
    assert_eq!(layout(&blind), [device, device, host, host, device]);
    // Software: one heap for all.
    assert_eq!(layout(&memory(&[4 * GIB], &[(15, 0)])), [(0, 4 * GIB); 5]);
}

#[test]
fn a_block_is_never_larger_than_its_heap_or_a_buffer() {
    let tiny = memory(&[GIB, 10 * MIB + 3], &[(1, 0), (6, 1)]);
    let caps = describe_with(DeviceType::DiscreteGpu, Some(&tiny));
    assert_eq!(caps.heaps[0].max_block, 256 * MIB);
    assert_eq!(caps.heaps[2].max_block, 10 * MIB);
    assert_eq!(caps.max_blocks, 4096);
}

#[test]
fn an_unknown_size_is_said_to_be_unknown() {
    let caps = describe_with(DeviceType::DiscreteGpu, None);
    for heap in &caps.heaps {
        assert_eq!(heap.size, 256 * MIB);
        assert!(heap.name.contains("unknown"), "{}", heap.name);
    }
    assert_eq!(caps.heaps[0].physical, caps.heaps[1].physical);
    assert_ne!(caps.heaps[0].physical, caps.heaps[2].physical);
    let shared = describe_with(DeviceType::IntegratedGpu, None);
    assert!(shared.heaps.iter().all(|heap| heap.physical == 0));
}

#[test]
fn limits_without_bound_stay_clear_of_overflow() {
    let info = AdapterInfo::new(DeviceType::Cpu, wgpu::Backend::Noop);
    let caps = describe(&info, &Limits::unlimited(), 0, None);
    for heap in &caps.heaps {
        assert!(heap.max_block < u64::MAX / 2);
        assert!(heap.granule.divides(heap.max_block));
    }
}

#[test]
fn limits_keep_their_meaning() {
    let caps = describe_with(DeviceType::DiscreteGpu, None);
    let constant = caps.constant.expect("uniform bindings");
    assert_eq!((constant.align.get(), constant.max_bind), (256, 64 << 10));
    assert_eq!(caps.shared.expect("workgroup memory").per_group, 16 << 10);
    assert_eq!(caps.copy, CopyCaps { align: COPY_ALIGN, inside_block: InsideBlock::Forbidden });
}

#[test]
fn uploads_are_placed_where_kernels_can_bind_them() {
    use omniheap_core::{DefaultPolicy, Policy as _, Reason, Request, Usage};
    let caps = describe_with(DeviceType::DiscreteGpu, None);
    let place = |usage| DefaultPolicy.place(&Request::new(64).usage(usage), &caps).unwrap();
    let class = |heaps: omniheap_core::Ranking| HeapClass::of(heaps.as_slice()[0]).unwrap();
    assert_eq!(class(place(Usage::Readback).heaps), HeapClass::ReadBack);
    let upload = place(Usage::Upload);
    assert_eq!(class(upload.heaps), HeapClass::ReadOnly);
    assert_eq!((upload.heaps.as_slice().len(), upload.reason), (1, Reason::StagingUnbindable));
    assert!(upload.reason.to_string().contains("cannot bind staging memory"));
}

#[test]
fn what_kernels_write_is_kept_apart_from_what_they_read() {
    use omniheap_core::{DefaultPolicy, Policy as _, Request, Writer};
    let caps = describe_with(DeviceType::DiscreteGpu, None);
    let classes = |request: Request<'_>| {
        let heaps = DefaultPolicy.place(&request, &caps).unwrap().heaps;
        heaps.as_slice().iter().filter_map(|heap| HeapClass::of(*heap)).collect::<Vec<_>>()
    };
    assert_eq!(classes(Request::new(64)), [HeapClass::Device]);
    assert_eq!(classes(Request::new(64).writer(Writer::HostOnce)), [HeapClass::ReadOnly]);
}
