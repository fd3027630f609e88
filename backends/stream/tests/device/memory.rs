//! Blocks of every heap.
#![expect(unsafe_code, reason = "frees blocks and looks at mapped memory")]
use super::support::{
    DEVICE, MAIN, MIB, allocate, assert_same, at, free, heap, kind, pattern, pinned, read, write,
};
use crate::own::{BlockSource, Config, Device, Feature, Memory, NAME, Verdict};
use omniheap_core::{
    Address, Backend, DriverBudget, ErrorKind, HeapKind, HostAccess, Map, Transfer,
};

cases! {
    Nothing: the_device_is_described, every_heap_round_trips, blocks_are_aligned_and_apart,
        the_host_sees_what_the_device_did, flush_and_invalidate_check_their_range,
        the_driver_tells_the_budget, the_driver_pool_gives_blocks, blocks_are_freed_from_any_thread,
        many_blocks_come_and_go,
        a_pooled_block_outlives_its_backend;
}

fn the_device_is_described(device: &Device) {
    let caps = device.caps();
    assert_eq!(caps.device.backend, NAME);
    assert!(!caps.device.name.is_empty());
    assert!(caps.device.uuid.is_some_and(|uuid| uuid != [0; 16]));
    let usual = &caps.heaps[0];
    assert_eq!(usual.kind, HeapKind::Device);
    assert!(usual.size > 256 * MIB);
    let constants = caps.heaps.iter().find(|heap| heap.kind == HeapKind::Constant);
    assert_eq!(caps.constant.map(|constant| constant.bank), constants.map(|heap| heap.size));
    let shared = caps.shared.expect("kernels have it");
    assert!(shared.per_group >= 48 << 10 && shared.per_group_opt_in >= shared.per_group);
    // Every feature the caps show has passed, and none that failed is shown.
    for finding in device.findings() {
        println!("{finding}");
        let is_shown = match finding.feature {
            Feature::Pages => usual.page.is_some(),
            Feature::Managed => caps.heaps.iter().any(|heap| heap.kind == HeapKind::Unified),
            _ => continue,
        };
        assert_eq!(is_shown, finding.verdict == Verdict::Works, "{finding}");
    }
}

fn every_heap_round_trips(device: &Device) {
    for (id, heap) in device.caps().heap_ids() {
        for size in [1u64, 257, 4096, MIB + 3, 5 * MIB, 70 * MIB + 1] {
            if size > heap.max_block {
                continue;
            }
            let block = allocate(device, id, size);
            let bytes = pattern(usize::try_from(size).expect("small"), size);
            write(device, &block, 0, &bytes);
            assert_same(&read(device, &block, 0, bytes.len()), &bytes, &heap.name);
            free(device, block);
        }
    }
}

fn blocks_are_aligned_and_apart(device: &Device) {
    for (id, heap) in device.caps().heap_ids() {
        if heap.kind == HeapKind::Constant {
            continue;
        }
        let blocks: Vec<_> = [1, 3, 511, 513, 70_000].map(|size| allocate(device, id, size)).into();
        let mut spans: Vec<_> = blocks.iter().map(|b| (device.address(b), b.size())).collect();
        spans.sort_unstable();
        assert!(spans.iter().all(|(base, _)| heap.align.divides(*base)), "{}", heap.name);
        assert!(spans.is_sorted_by(|a, b| a.0 + a.1 <= b.0), "{}: {spans:?}", heap.name);
        blocks.into_iter().for_each(|block| free(device, block));
    }
}

fn the_host_sees_what_the_device_did(device: &Device) {
    for (id, heap) in device.caps().heap_ids().filter(|(_, heap)| heap.host.is_visible()) {
        let block = allocate(device, id, 4096);
        let host = device.map(&block).expect("host-visible");
        assert_eq!(device.map(&block), Ok(host), "the place is constant");
        device.fill(MAIN, at(&block, 0), 4096, 0x5A).expect("in range");
        device.wait_idle().expect("the device works");
        // SAFETY: the block has 4096 mapped bytes, and the device is idle.
        let seen = unsafe { core::slice::from_raw_parts(host.as_ptr(), 4096) }.to_vec();
        assert_same(&seen, &[0x5A; 4096], &heap.name);
        // SAFETY: as above; nothing else looks at the byte.
        unsafe { host.as_ptr().write_volatile(0xC3) };
        assert_eq!(read(device, &block, 0, 2), [0xC3, 0x5A], "{}", heap.name);
        free(device, block);
    }
}

fn flush_and_invalidate_check_their_range(device: &Device) {
    let block = allocate(device, pinned(device), 100);
    assert_eq!(device.flush(&block, 10, 90), Ok(()));
    assert_eq!(kind(device.flush(&block, 10, 91)), Some(ErrorKind::OutOfRange));
    assert_eq!(kind(device.invalidate(&block, u64::MAX, 2)), Some(ErrorKind::OutOfRange));
    free(device, block);
}

fn the_driver_tells_the_budget(device: &Device) {
    let size = 512 * MIB;
    let before = device.budget(DEVICE).expect("the driver tells");
    let block = allocate(device, DEVICE, size);
    let during = device.budget(DEVICE).expect("the driver tells");
    assert!(during.used >= before.used + size, "{before:?} {during:?}");
    assert!(during.budget >= during.used);
    free(device, block);
    let after = device.budget(DEVICE).expect("the driver tells");
    assert!(after.used <= during.used - size, "{during:?} {after:?}");
    let heap = pinned(device);
    let block = allocate(device, heap, MIB);
    assert_eq!(device.budget(heap).expect("counted").used, MIB);
    free(device, block);
    assert_eq!(device.budget(heap).expect("counted").used, 0);
}

fn the_driver_pool_gives_blocks(_: &Device) {
    let config = Config::new().block_source(BlockSource::AsyncPool);
    let device = Device::open_with(0, config).expect("the device opened before");
    let verdict = |feature| {
        let found = device.findings().iter().find(|finding| finding.feature == feature);
        found.map(|finding| finding.verdict)
    };
    let block = allocate(&device, DEVICE, 3 * MIB);
    let expected = match verdict(Feature::AsyncPool) {
        Some(Verdict::Works) => Memory::Pooled,
        _ => Memory::Device,
    };
    assert_eq!(block.memory(), expected);
    let bytes = pattern(3 << 20, 11);
    write(&device, &block, 0, &bytes);
    assert_same(&read(&device, &block, 0, bytes.len()), &bytes, "pooled");
    free(&device, block);
}

fn blocks_are_freed_from_any_thread(device: &Device) {
    let heaps: Vec<_> = device.caps().heap_ids().map(|(id, _)| id).collect();
    for heap in heaps {
        let block = allocate(device, heap, 4096);
        std::thread::scope(|scope| {
            scope.spawn(|| free(device, block));
        });
    }
}

fn many_blocks_come_and_go(device: &Device) {
    let unified = heap(device, HeapKind::Unified, HostAccess::Cached);
    for heap in [Some(DEVICE), Some(pinned(device)), unified].into_iter().flatten() {
        let before = device.budget(DEVICE).expect("the driver tells").used;
        for _ in 0..4 {
            let blocks: Vec<_> = (0..64).map(|_| allocate(device, heap, MIB)).collect();
            blocks.into_iter().for_each(|block| {
                // SAFETY: made just above, used by nothing.
                unsafe { device.free(block) }.expect("the driver takes it back");
            });
        }
        let after = device.budget(DEVICE).expect("the driver tells").used;
        assert!(after <= before + 64 * MIB, "{heap:?}: {before} then {after}");
    }
}

fn a_pooled_block_outlives_its_backend(device: &Device) {
    let config = Config::new().block_source(BlockSource::AsyncPool);
    let other = Device::open_with(0, config).expect("the device opened before");
    let (kept, freed) = (allocate(&other, DEVICE, MIB), allocate(&other, DEVICE, MIB));
    free(&other, freed);
    drop(other);
    drop(kept);
    let block = allocate(device, DEVICE, MIB);
    write(device, &block, 0, &[7; 64]);
    assert_eq!(read(device, &block, 0, 64), [7; 64], "and the device is well");
    free(device, block);
}
