//! Wrong calls, and the typed errors they get.
#![expect(unsafe_code, reason = "frees blocks that are refused")]
use crate::support::{DEVICE, MAIN, MIB, allocate, at, constant, free, kind, pinned, read};
use omniheap_core::{Advice, Backend, DriverBudget, ErrorKind, HeapId, Map, Move, Remap, Transfer};
use omniheap_cuda::Cuda;

crate::cases! {
    Nothing: a_wrong_ordinal_is_refused, wrong_sizes_are_refused, wrong_heaps_are_refused,
        too_much_for_now_is_out_of_memory, ranges_outside_are_refused,
        foreign_blocks_are_refused, device_memory_is_not_mapped;
}

fn a_wrong_ordinal_is_refused(_: &Cuda) {
    for ordinal in [Cuda::count(), 12_345, u32::MAX] {
        assert_eq!(kind(Cuda::open(ordinal)), Some(ErrorKind::InvalidConfig), "{ordinal}");
    }
}

fn wrong_sizes_are_refused(cuda: &Cuda) {
    for (id, heap) in cuda.caps().heap_ids() {
        assert_eq!(kind(cuda.allocate(id, 0)), Some(ErrorKind::ZeroSize), "{}", heap.name);
        for size in [heap.max_block + 1, u64::MAX - 1, u64::MAX] {
            let result = kind(cuda.allocate(id, size));
            assert_eq!(result, Some(ErrorKind::ExceedsLimit), "{}", heap.name);
        }
    }
}

fn wrong_heaps_are_refused(cuda: &Cuda) {
    let beyond = HeapId(u8::try_from(cuda.caps().heaps.len()).expect("a few"));
    for heap in [beyond, HeapId(u8::MAX)] {
        assert_eq!(kind(cuda.allocate(heap, 1)), Some(ErrorKind::NoSuchHeap));
        assert_eq!(kind(cuda.budget(heap)), Some(ErrorKind::NoSuchHeap));
        assert_eq!(kind(cuda.create(heap, 1, &mut Vec::new())), Some(ErrorKind::NoSuchHeap));
    }
}

fn too_much_for_now_is_out_of_memory(cuda: &Cuda) {
    // The context itself takes some, so all of it is never free.
    let all = cuda.caps().heaps[0].max_block;
    let error = cuda.allocate(DEVICE, all).expect_err("the context needs some");
    assert_eq!(error.kind(), ErrorKind::OutOfDeviceMemory);
    assert_eq!(error.kind().advice(), Advice::Reclaim);
    let block = allocate(cuda, DEVICE, MIB);
    assert_eq!(read(cuda, &block, 0, 1).len(), 1, "and the device is well");
    free(cuda, block);
}

fn ranges_outside_are_refused(cuda: &Cuda) {
    let refused = Some(ErrorKind::OutOfRange);
    for heap in [DEVICE, pinned(cuda), constant(cuda)] {
        let block = allocate(cuda, heap, 100);
        for (offset, size) in [(0, 101), (100, 1), (50, 51), (u64::MAX, 1), (u64::MAX, 2)] {
            let mut bytes = vec![0; usize::try_from(size).expect("small")];
            assert_eq!(kind(cuda.write(MAIN, at(&block, offset), &bytes)), refused);
            assert_eq!(kind(cuda.read(MAIN, at(&block, offset), &mut bytes)), refused);
            assert_eq!(kind(cuda.fill(MAIN, at(&block, offset), size, 0)), refused);
            let step = Move { from: at(&block, offset), to: at(&block, 0), size };
            assert_eq!(kind(cuda.copy(MAIN, &[step])), refused);
        }
        let endless = cuda.fill(MAIN, at(&block, 1), u64::MAX, 0);
        assert_eq!(kind(endless), refused);
        free(cuda, block);
    }
}

fn foreign_blocks_are_refused(cuda: &Cuda) {
    let other = Cuda::open(0).expect("it opened before");
    let block = allocate(&other, pinned(&other), 100);
    let refused = Some(ErrorKind::Foreign);
    assert_eq!(kind(cuda.write(MAIN, at(&block, 0), &[1])), refused);
    assert_eq!(kind(cuda.fill(MAIN, at(&block, 0), 1, 0)), refused);
    assert_eq!(kind(cuda.map(&block)), refused);
    assert_eq!(kind(cuda.flush(&block, 0, 1)), refused);
    let stray = allocate(&other, DEVICE, 100);
    // SAFETY: the call is refused before anything is freed; the block is lost, as documented.
    assert_eq!(kind(unsafe { cuda.free(stray) }), refused);
    free(&other, block);
}

fn device_memory_is_not_mapped(cuda: &Cuda) {
    for heap in [DEVICE, constant(cuda)] {
        let block = allocate(cuda, heap, 100);
        assert_eq!(kind(cuda.map(&block)), Some(ErrorKind::NotMappable));
        assert_eq!(kind(cuda.flush(&block, 0, 1)), Some(ErrorKind::NotMappable));
        free(cuda, block);
    }
}
