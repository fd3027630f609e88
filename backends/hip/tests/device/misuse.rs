//! Wrong calls, and the typed errors they get.
#![expect(unsafe_code, reason = "frees blocks that are refused")]
use crate::support::{DEVICE, MAIN, MIB, allocate, at, constant, free, kind, pinned, read};
use omniheap_core::{Advice, Backend, DriverBudget, ErrorKind, HeapId, Map, Move, Remap, Transfer};
use omniheap_hip::Hip;

crate::cases! {
    Nothing: a_wrong_ordinal_is_refused, wrong_sizes_are_refused, wrong_heaps_are_refused,
        too_much_for_now_is_out_of_memory, ranges_outside_are_refused,
        foreign_blocks_are_refused, device_memory_is_not_mapped;
}

fn a_wrong_ordinal_is_refused(_: &Hip) {
    for ordinal in [Hip::count(), 12_345, u32::MAX] {
        assert_eq!(kind(Hip::open(ordinal)), Some(ErrorKind::InvalidConfig), "{ordinal}");
    }
}

fn wrong_sizes_are_refused(hip: &Hip) {
    for (id, heap) in hip.caps().heap_ids() {
        assert_eq!(kind(hip.allocate(id, 0)), Some(ErrorKind::ZeroSize), "{}", heap.name);
        for size in [heap.max_block + 1, u64::MAX - 1, u64::MAX] {
            let result = kind(hip.allocate(id, size));
            assert_eq!(result, Some(ErrorKind::ExceedsLimit), "{}", heap.name);
        }
    }
}

fn wrong_heaps_are_refused(hip: &Hip) {
    let beyond = HeapId(u8::try_from(hip.caps().heaps.len()).expect("a few"));
    for heap in [beyond, HeapId(u8::MAX)] {
        assert_eq!(kind(hip.allocate(heap, 1)), Some(ErrorKind::NoSuchHeap));
        assert_eq!(kind(hip.budget(heap)), Some(ErrorKind::NoSuchHeap));
        assert_eq!(kind(hip.create(heap, 1, &mut Vec::new())), Some(ErrorKind::NoSuchHeap));
    }
}

fn too_much_for_now_is_out_of_memory(hip: &Hip) {
    let (some, all) = (allocate(hip, DEVICE, MIB), hip.caps().heaps[0].max_block);
    let error = hip.allocate(DEVICE, all).expect_err("some of it is taken");
    assert_eq!(error.kind(), ErrorKind::OutOfDeviceMemory);
    assert_eq!(error.kind().advice(), Advice::Reclaim);
    let block = allocate(hip, DEVICE, MIB);
    assert_eq!(read(hip, &block, 0, 1).len(), 1, "and the device is well");
    free(hip, block);
    free(hip, some);
}

fn ranges_outside_are_refused(hip: &Hip) {
    let refused = Some(ErrorKind::OutOfRange);
    for heap in [DEVICE, pinned(hip), constant(hip)] {
        let block = allocate(hip, heap, 100);
        for (offset, size) in [(0, 101), (100, 1), (50, 51), (u64::MAX, 1), (u64::MAX, 2)] {
            let mut bytes = vec![0; usize::try_from(size).expect("small")];
            assert_eq!(kind(hip.write(MAIN, at(&block, offset), &bytes)), refused);
            assert_eq!(kind(hip.read(MAIN, at(&block, offset), &mut bytes)), refused);
            assert_eq!(kind(hip.fill(MAIN, at(&block, offset), size, 0)), refused);
            let step = Move { from: at(&block, offset), to: at(&block, 0), size };
            assert_eq!(kind(hip.copy(MAIN, &[step])), refused);
        }
        let endless = hip.fill(MAIN, at(&block, 1), u64::MAX, 0);
        assert_eq!(kind(endless), refused);
        free(hip, block);
    }
}

fn foreign_blocks_are_refused(hip: &Hip) {
    let other = Hip::open(0).expect("it opened before");
    let block = allocate(&other, pinned(&other), 100);
    let refused = Some(ErrorKind::Foreign);
    assert_eq!(kind(hip.write(MAIN, at(&block, 0), &[1])), refused);
    assert_eq!(kind(hip.fill(MAIN, at(&block, 0), 1, 0)), refused);
    assert_eq!(kind(hip.map(&block)), refused);
    assert_eq!(kind(hip.flush(&block, 0, 1)), refused);
    let stray = allocate(&other, DEVICE, 100);
    // SAFETY: the call is refused before anything is freed; the block is lost, as documented.
    assert_eq!(kind(unsafe { hip.free(stray) }), refused);
    free(&other, block);
}

fn device_memory_is_not_mapped(hip: &Hip) {
    for heap in [DEVICE, constant(hip)] {
        let block = allocate(hip, heap, 100);
        assert_eq!(kind(hip.map(&block)), Some(ErrorKind::NotMappable));
        assert_eq!(kind(hip.flush(&block, 0, 1)), Some(ErrorKind::NotMappable));
        free(hip, block);
    }
}
