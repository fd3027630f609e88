//! Wrong calls, and the typed errors they get.
#![expect(unsafe_code, reason = "frees blocks that are refused")]
use super::support::{DEVICE, MAIN, MIB, allocate, at, constant, free, kind, pinned, read};
use crate::own::Device;
use omniheap_core::{Advice, Backend, DriverBudget, ErrorKind, HeapId, Map, Move, Remap, Transfer};

cases! {
    Nothing: a_wrong_ordinal_is_refused, wrong_sizes_are_refused, wrong_heaps_are_refused,
        too_much_for_now_is_out_of_memory, ranges_outside_are_refused,
        foreign_blocks_are_refused, device_memory_is_not_mapped;
}

fn a_wrong_ordinal_is_refused(_: &Device) {
    for ordinal in [Device::count(), 12_345, u32::MAX] {
        assert_eq!(kind(Device::open(ordinal)), Some(ErrorKind::InvalidConfig), "{ordinal}");
    }
}

fn wrong_sizes_are_refused(device: &Device) {
    for (id, heap) in device.caps().heap_ids() {
        assert_eq!(kind(device.allocate(id, 0)), Some(ErrorKind::ZeroSize), "{}", heap.name);
        for size in [heap.max_block + 1, u64::MAX - 1, u64::MAX] {
            let result = kind(device.allocate(id, size));
            assert_eq!(result, Some(ErrorKind::ExceedsLimit), "{}", heap.name);
        }
    }
}

fn wrong_heaps_are_refused(device: &Device) {
    let beyond = HeapId(u8::try_from(device.caps().heaps.len()).expect("a few"));
    for heap in [beyond, HeapId(u8::MAX)] {
        assert_eq!(kind(device.allocate(heap, 1)), Some(ErrorKind::NoSuchHeap));
        assert_eq!(kind(device.budget(heap)), Some(ErrorKind::NoSuchHeap));
        assert_eq!(kind(device.create(heap, 1, &mut Vec::new())), Some(ErrorKind::NoSuchHeap));
    }
}

fn too_much_for_now_is_out_of_memory(device: &Device) {
    let (some, all) = (allocate(device, DEVICE, MIB), device.caps().heaps[0].max_block);
    let error = device.allocate(DEVICE, all).expect_err("some of it is taken");
    assert_eq!(error.kind(), ErrorKind::OutOfDeviceMemory);
    assert_eq!(error.kind().advice(), Advice::Reclaim);
    let block = allocate(device, DEVICE, MIB);
    assert_eq!(read(device, &block, 0, 1).len(), 1, "and the device is well");
    free(device, block);
    free(device, some);
}

fn ranges_outside_are_refused(device: &Device) {
    let refused = Some(ErrorKind::OutOfRange);
    for heap in [DEVICE, pinned(device), constant(device)] {
        let block = allocate(device, heap, 100);
        for (offset, size) in [(0, 101), (100, 1), (50, 51), (u64::MAX, 1), (u64::MAX, 2)] {
            let mut bytes = vec![0; usize::try_from(size).expect("small")];
            assert_eq!(kind(device.write(MAIN, at(&block, offset), &bytes)), refused);
            assert_eq!(kind(device.read(MAIN, at(&block, offset), &mut bytes)), refused);
            assert_eq!(kind(device.fill(MAIN, at(&block, offset), size, 0)), refused);
            let step = Move { from: at(&block, offset), to: at(&block, 0), size };
            assert_eq!(kind(device.copy(MAIN, &[step])), refused);
        }
        let endless = device.fill(MAIN, at(&block, 1), u64::MAX, 0);
        assert_eq!(kind(endless), refused);
        free(device, block);
    }
}

fn foreign_blocks_are_refused(device: &Device) {
    let other = Device::open(0).expect("it opened before");
    let block = allocate(&other, pinned(&other), 100);
    let refused = Some(ErrorKind::Foreign);
    assert_eq!(kind(device.write(MAIN, at(&block, 0), &[1])), refused);
    assert_eq!(kind(device.fill(MAIN, at(&block, 0), 1, 0)), refused);
    assert_eq!(kind(device.map(&block)), refused);
    assert_eq!(kind(device.flush(&block, 0, 1)), refused);
    let stray = allocate(&other, DEVICE, 100);
    // SAFETY: the call is refused before anything is freed; the block is lost, as documented.
    assert_eq!(kind(unsafe { device.free(stray) }), refused);
    free(&other, block);
}

fn device_memory_is_not_mapped(device: &Device) {
    for heap in [DEVICE, constant(device)] {
        let block = allocate(device, heap, 100);
        assert_eq!(kind(device.map(&block)), Some(ErrorKind::NotMappable));
        assert_eq!(kind(device.flush(&block, 0, 1)), Some(ErrorKind::NotMappable));
        free(device, block);
    }
}
