//! Blocks of every heap.
#![expect(unsafe_code, reason = "frees blocks and looks at mapped memory")]
use crate::support::{
    DEVICE, MAIN, MIB, allocate, assert_same, at, free, heap, kind, pattern, pinned, read, write,
};
use omniheap_core::{
    Address, Backend, DriverBudget, ErrorKind, HeapKind, HostAccess, Map, Transfer,
};
use omniheap_cuda::{BlockSource, Config, Cuda, Feature, Memory, Verdict};

crate::cases! {
    Nothing: the_device_is_described, every_heap_round_trips, blocks_are_aligned_and_apart,
        the_host_sees_what_the_device_did, flush_and_invalidate_check_their_range,
        the_driver_tells_the_budget, the_driver_pool_gives_blocks, blocks_are_freed_from_any_thread,
        many_blocks_come_and_go;
}

fn the_device_is_described(cuda: &Cuda) {
    let caps = cuda.caps();
    assert_eq!(caps.device.backend, "cuda");
    assert!(!caps.device.name.is_empty());
    assert!(caps.device.uuid.is_some_and(|uuid| uuid != [0; 16]));
    let device = &caps.heaps[0];
    assert_eq!(device.kind, HeapKind::Device);
    assert!(device.size > 256 * MIB);
    assert!(caps.constant.is_some_and(|constant| constant.bank == 65_536));
    let shared = caps.shared.expect("kernels have it");
    assert!(shared.per_group >= 48 << 10 && shared.per_group_opt_in >= shared.per_group);
    // Every feature the caps show has passed, and none that failed is shown.
    for finding in cuda.findings() {
        println!("{finding}");
        let is_shown = match finding.feature {
            Feature::Pages => device.page.is_some(),
            Feature::Managed => caps.heaps.iter().any(|heap| heap.kind == HeapKind::Unified),
            _ => continue,
        };
        assert_eq!(is_shown, finding.verdict == Verdict::Works, "{finding}");
    }
}

fn every_heap_round_trips(cuda: &Cuda) {
    for (id, heap) in cuda.caps().heap_ids() {
        for size in [1u64, 257, 4096, MIB + 3, 5 * MIB, 70 * MIB + 1] {
            if size > heap.max_block {
                continue;
            }
            let block = allocate(cuda, id, size);
            let bytes = pattern(usize::try_from(size).expect("small"), size);
            write(cuda, &block, 0, &bytes);
            assert_same(&read(cuda, &block, 0, bytes.len()), &bytes, &heap.name);
            free(cuda, block);
        }
    }
}

fn blocks_are_aligned_and_apart(cuda: &Cuda) {
    for (id, heap) in cuda.caps().heap_ids() {
        if heap.kind == HeapKind::Constant {
            continue;
        }
        let blocks: Vec<_> = [1, 3, 511, 513, 70_000].map(|size| allocate(cuda, id, size)).into();
        let mut spans: Vec<_> = blocks.iter().map(|b| (cuda.address(b), b.size())).collect();
        spans.sort_unstable();
        assert!(spans.iter().all(|(base, _)| heap.align.divides(*base)), "{}", heap.name);
        assert!(spans.is_sorted_by(|a, b| a.0 + a.1 <= b.0), "{}: {spans:?}", heap.name);
        blocks.into_iter().for_each(|block| free(cuda, block));
    }
}

fn the_host_sees_what_the_device_did(cuda: &Cuda) {
    for (id, heap) in cuda.caps().heap_ids().filter(|(_, heap)| heap.host.is_visible()) {
        let block = allocate(cuda, id, 4096);
        let host = cuda.map(&block).expect("host-visible");
        assert_eq!(cuda.map(&block), Ok(host), "the place is constant");
        cuda.fill(MAIN, at(&block, 0), 4096, 0x5A).expect("in range");
        cuda.wait_idle().expect("the device works");
        // SAFETY: the block has 4096 mapped bytes, and the device is idle.
        let seen = unsafe { core::slice::from_raw_parts(host.as_ptr(), 4096) }.to_vec();
        assert_same(&seen, &[0x5A; 4096], &heap.name);
        // SAFETY: as above; nothing else looks at the byte.
        unsafe { host.as_ptr().write_volatile(0xC3) };
        assert_eq!(read(cuda, &block, 0, 2), [0xC3, 0x5A], "{}", heap.name);
        free(cuda, block);
    }
}

fn flush_and_invalidate_check_their_range(cuda: &Cuda) {
    let block = allocate(cuda, pinned(cuda), 100);
    assert_eq!(cuda.flush(&block, 10, 90), Ok(()));
    assert_eq!(kind(cuda.flush(&block, 10, 91)), Some(ErrorKind::OutOfRange));
    assert_eq!(kind(cuda.invalidate(&block, u64::MAX, 2)), Some(ErrorKind::OutOfRange));
    free(cuda, block);
}

fn the_driver_tells_the_budget(cuda: &Cuda) {
    let size = 512 * MIB;
    let before = cuda.budget(DEVICE).expect("the driver tells");
    let block = allocate(cuda, DEVICE, size);
    let during = cuda.budget(DEVICE).expect("the driver tells");
    assert!(during.used >= before.used + size, "{before:?} {during:?}");
    assert!(during.budget >= during.used);
    free(cuda, block);
    let after = cuda.budget(DEVICE).expect("the driver tells");
    assert!(after.used <= during.used - size, "{during:?} {after:?}");
    let heap = pinned(cuda);
    let block = allocate(cuda, heap, MIB);
    assert_eq!(cuda.budget(heap).expect("counted").used, MIB);
    free(cuda, block);
    assert_eq!(cuda.budget(heap).expect("counted").used, 0);
}

fn the_driver_pool_gives_blocks(_: &Cuda) {
    let config = Config::new().block_source(BlockSource::AsyncPool);
    let cuda = Cuda::open_with(0, config).expect("the device opened before");
    let verdict = |feature| {
        let found = cuda.findings().iter().find(|finding| finding.feature == feature);
        found.map(|finding| finding.verdict)
    };
    let block = allocate(&cuda, DEVICE, 3 * MIB);
    let expected = match verdict(Feature::AsyncPool) {
        Some(Verdict::Works) => Memory::Pooled,
        _ => Memory::Device,
    };
    assert_eq!(block.memory(), expected);
    let bytes = pattern(3 << 20, 11);
    write(&cuda, &block, 0, &bytes);
    assert_same(&read(&cuda, &block, 0, bytes.len()), &bytes, "pooled");
    free(&cuda, block);
}

fn blocks_are_freed_from_any_thread(cuda: &Cuda) {
    let heaps: Vec<_> = cuda.caps().heap_ids().map(|(id, _)| id).collect();
    for heap in heaps {
        let block = allocate(cuda, heap, 4096);
        std::thread::scope(|scope| {
            scope.spawn(|| free(cuda, block));
        });
    }
}

fn many_blocks_come_and_go(cuda: &Cuda) {
    let unified = heap(cuda, HeapKind::Unified, HostAccess::Cached);
    for heap in [Some(DEVICE), Some(pinned(cuda)), unified].into_iter().flatten() {
        let before = cuda.budget(DEVICE).expect("the driver tells").used;
        for _ in 0..4 {
            let blocks: Vec<_> = (0..64).map(|_| allocate(cuda, heap, MIB)).collect();
            blocks.into_iter().for_each(|block| {
                // SAFETY: made just above, used by nothing.
                unsafe { cuda.free(block) }.expect("the driver takes it back");
            });
        }
        let after = cuda.budget(DEVICE).expect("the driver tells").used;
        assert!(after <= before + 64 * MIB, "{heap:?}: {before} then {after}");
    }
}
