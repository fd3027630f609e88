//! Wrong calls: a typed error, nothing changed, and not a word from the validation layer.
use crate::rig::{MAIN, Rig, at, first, free, pattern, read, transfer, write};
use omniheap_core::{Backend, ErrorKind, HeapId, Move, TimelineId};
use omniheap_vulkan::{Options, Vulkan, Which};

crate::cases! {
    impossible_blocks_are_refused if |_| true;
    ranges_outside_a_block_are_refused if |_| true;
    overlapping_moves_are_refused if |_| true;
    flushes_keep_to_whole_atoms if |_| true;
    blocks_of_another_device_are_refused if |_| true;
    zero_bytes_are_nothing if |_| true;
    options_are_checked if |_| true;
}

fn impossible_blocks_are_refused(rig: &Rig) {
    let vulkan = rig.open();
    let refused = |heap, size| vulkan.allocate(heap, size).unwrap_err().kind();
    let heap = first(&vulkan);
    let most = vulkan.caps().heap(heap).unwrap().max_block;
    assert_eq!(refused(HeapId(255), 64), ErrorKind::NoSuchHeap);
    assert_eq!(refused(heap, 0), ErrorKind::ZeroSize);
    assert_eq!(refused(heap, most + 1), ErrorKind::ExceedsLimit);
    assert_eq!(refused(heap, u64::MAX), ErrorKind::ExceedsLimit);
    assert!(vulkan.allocate(heap, 64).is_ok(), "the device is as it was");
}

fn ranges_outside_a_block_are_refused(rig: &Rig) {
    let vulkan = rig.open();
    let block = vulkan.allocate(first(&vulkan), 4096).unwrap();
    let end = block.size();
    write(&vulkan, &block, 0, &pattern(1, 4096));
    let mut two = [0; 2];
    for offset in [end - 1, end, u64::MAX - 1, u64::MAX] {
        let place = at(&block, offset);
        let kinds = [
            transfer(&vulkan).write(MAIN, place, b"ab").unwrap_err().kind(),
            transfer(&vulkan).read(MAIN, place, &mut two).unwrap_err().kind(),
            transfer(&vulkan).fill(MAIN, place, 2, 0).unwrap_err().kind(),
            transfer(&vulkan).fill(MAIN, place, u64::MAX, 0).unwrap_err().kind(),
        ];
        assert_eq!(kinds, [ErrorKind::OutOfRange; 4], "{offset}");
        let good = Move { from: at(&block, 0), to: at(&block, 64), size: 8 };
        let bad = Move { from: at(&block, 0), to: place, size: 2 };
        let batch = transfer(&vulkan).copy(MAIN, &[good, bad]).unwrap_err().kind();
        assert_eq!(batch, ErrorKind::OutOfRange);
    }
    assert_eq!(read(&vulkan, &block, 0, 4096), pattern(1, 4096), "nothing moved");
}

fn overlapping_moves_are_refused(rig: &Rig) {
    let vulkan = rig.open();
    let block = vulkan.allocate(first(&vulkan), 4096).unwrap();
    let step = |from, to, size| Move { from: at(&block, from), to: at(&block, to), size };
    let batches: [&[_]; 3] = [
        &[step(0, 32, 64)],
        &[step(0, 1024, 64), step(512, 1080, 64)],
        &[step(0, 1024, 64), step(1060, 2048, 64)],
    ];
    for batch in batches {
        let refused = transfer(&vulkan).copy(MAIN, batch).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Overlap);
    }
}

fn flushes_keep_to_whole_atoms(rig: &Rig) {
    let vulkan = rig.open();
    let (atom, map) = (vulkan.caps().atom.get(), vulkan.as_map().expect("always"));
    let visible = vulkan.caps().heap_ids().filter(|(_, heap)| heap.host.is_visible());
    for (heap, _) in visible {
        let Ok(block) = vulkan.allocate(heap, 4096.max(4 * atom)) else { continue };
        let end = block.size();
        assert!(map.flush(&block, 0, end).is_ok() && map.invalidate(&block, 0, end).is_ok());
        assert_eq!(map.flush(&block, end, atom).unwrap_err().kind(), ErrorKind::OutOfRange);
        let wrapped = map.invalidate(&block, u64::MAX - 1, atom).unwrap_err();
        assert_eq!(wrapped.kind(), ErrorKind::OutOfRange);
        if atom > 1 {
            assert_eq!(map.flush(&block, 1, atom).unwrap_err().kind(), ErrorKind::Misaligned);
            let short = map.invalidate(&block, 0, atom - 1).unwrap_err();
            assert_eq!(short.kind(), ErrorKind::Misaligned);
        }
    }
}

fn blocks_of_another_device_are_refused(rig: &Rig) {
    let (mine, theirs) = (rig.open(), rig.open());
    let (own, block) = (mine.allocate(first(&mine), 64), theirs.allocate(first(&theirs), 64));
    let (own, block) = (own.unwrap(), block.unwrap());
    let foreign = ErrorKind::Foreign;
    let place = at(&block, 0);
    assert_eq!(transfer(&mine).write(MAIN, place, b"a").unwrap_err().kind(), foreign);
    assert_eq!(transfer(&mine).fill(MAIN, place, 4, 0).unwrap_err().kind(), foreign);
    let step = Move { from: at(&own, 0), to: place, size: 4 };
    assert_eq!(transfer(&mine).copy(MAIN, &[step]).unwrap_err().kind(), foreign);
    assert_eq!(mine.as_map().expect("always").map(&block).unwrap_err().kind(), foreign);
    assert_eq!(free(&mine, block).unwrap_err().kind(), foreign);
}

fn zero_bytes_are_nothing(rig: &Rig) {
    let vulkan = rig.open();
    let block = vulkan.allocate(first(&vulkan), 64).unwrap();
    let end = at(&block, block.size());
    let before = vulkan.as_timelines().expect("always").mark(MAIN).unwrap();
    transfer(&vulkan).write(MAIN, end, &[]).unwrap();
    transfer(&vulkan).read(MAIN, end, &mut []).unwrap();
    transfer(&vulkan).fill(MAIN, end, 0, 1).unwrap();
    transfer(&vulkan).copy(MAIN, &[Move { from: end, to: end, size: 0 }]).unwrap();
    transfer(&vulkan).copy(MAIN, &[]).unwrap();
    assert_eq!(vulkan.as_timelines().expect("always").mark(MAIN).unwrap(), before, "no call");
    let gone = transfer(&vulkan).write(TimelineId(9), end, &[]).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NoSuchTimeline);
}

fn options_are_checked(rig: &Rig) {
    let refused = |options| Vulkan::open_with(options).unwrap_err().kind();
    assert_eq!(refused(Options::default().device(Which::Index(999))), ErrorKind::Unsupported);
    assert_eq!(refused(Options::default().device(Which::Uuid([9; 16]))), ErrorKind::Unsupported);
    assert_eq!(refused(rig.options.staging(0)), ErrorKind::InvalidConfig);
    assert_eq!(refused(rig.options.staging(u64::MAX)), ErrorKind::InvalidConfig);
    assert!(Vulkan::open(0).is_ok());
}
