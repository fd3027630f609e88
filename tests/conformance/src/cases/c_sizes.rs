//! C: sizes and overflow.
use super::{fill_up, kind, take};
use crate::case::{Case, Need};
use crate::world::{Stack, World, in_heap};
use omniheap_core::{
    Align, Backend, CopyRegion, ErrorKind, Manager, PoolConfig, Request, StrategyKind, TimelineId,
    Usage,
};
use omniheap_layers::CallKind;

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    list! {
        odd_sizes_are_served_whole_or_refused proves [18] needs [Transfer];
        sizes_near_the_end_of_64_bits_overflow_before_the_driver proves [19] needs [];
        arrays_too_large_for_64_bits_overflow proves [20] needs [];
        ranges_that_overflow_are_refused proves [21] needs [Transfer];
        mapped_ranges_that_overflow_are_refused proves [21] needs [Map];
        pool_settings_that_contradict_are_refused proves [22] needs [];
        more_than_the_largest_block_is_refused_before_the_driver proves [23] needs [];
        a_backend_tells_never_from_not_now proves [23] needs [];
        the_driver_never_sees_more_blocks_than_it_tolerates proves [24] needs [];
    }
}

fn odd_sizes_are_served_whole_or_refused<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager_over(&world.limited(32 << 20, u64::MAX));
    let edges =
        [1, 256, 4096, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 1 << 31, 1 << 32, 1 << 33];
    for edge in edges {
        for size in [edge - 1, edge, edge + 1].into_iter().filter(|size| *size > 0) {
            match manager.allocate(&Request::new(world.whole(size))) {
                Ok(one) => {
                    assert!(size <= 32 << 20, "{size} bytes were truncated");
                    let ends = [0, world.backend().caps().copy.align.down(size - 1)];
                    let count = usize::try_from(world.whole(1)).expect("small");
                    ends.iter().for_each(|at| one.write(*at, &vec![7; count]).expect("inside"));
                    let mut found = vec![0; count];
                    one.read(ends[1], &mut found).expect("inside");
                    assert_eq!(found, vec![7; count], "the last of {size} bytes");
                }
                Err(error) => assert!(
                    size > 16 << 20 && matches!(error.kind(), ErrorKind::ExceedsLimit)
                        || error.kind().is_out_of_memory(),
                    "{size}: {error}"
                ),
            }
        }
    }
}

fn sizes_near_the_end_of_64_bits_overflow_before_the_driver<B: Backend + 'static>(
    world: &World<B>,
) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let heap = world.device_heap();
    let most = world.backend().caps().heap(heap).expect("exists").align;
    // Rounding up overflows only above the last multiple.
    let overflows = |less: &u64| *less < most.get() - 1;
    for less in [0, 1, 100, most.get().saturating_sub(2)].into_iter().filter(overflows) {
        for request in [Request::new(u64::MAX - less), in_heap(heap, u64::MAX - less)] {
            assert_eq!(kind(manager.allocate(&request.align(most))), ErrorKind::SizeOverflow);
            let loose = kind(manager.allocate(&request));
            assert!(matches!(loose, ErrorKind::SizeOverflow | ErrorKind::ExceedsLimit));
            let alone = kind(manager.allocate(&request.dedicated()));
            assert!(matches!(alone, ErrorKind::SizeOverflow | ErrorKind::ExceedsLimit));
        }
    }
    assert_eq!(stack.inner().calls().total(), 0);
}

fn arrays_too_large_for_64_bits_overflow<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    for count in [u64::MAX, u64::MAX / 8 + 1] {
        assert_eq!(
            kind(manager.allocate_slice::<u64>(count, Usage::Device)),
            ErrorKind::SizeOverflow
        );
    }
    assert_eq!(kind(manager.allocate_slice::<u64>(0, Usage::Device)), ErrorKind::ZeroSize);
    assert_eq!(stack.inner().calls().total(), 0);
    let small = manager.allocate_slice::<u64>(8, Usage::Device).expect("fits");
    assert_eq!(kind(small.read(u64::MAX / 4, &mut [0])), ErrorKind::SizeOverflow);
    assert_eq!(kind(small.write(u64::MAX / 4, &[0])), ErrorKind::SizeOverflow);
}

fn ranges_that_overflow_are_refused<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let (one, other) = (take(&manager, &Request::new(4096)), take(&manager, &Request::new(4096)));
    let calls = stack.inner().calls().total();
    for offset in [4096, 4092, 1 << 32, u64::MAX - 3, u64::MAX - 7] {
        assert_eq!(kind(one.write(offset, &[0; 16])), ErrorKind::OutOfRange);
        assert_eq!(kind(one.read(offset, &mut [0; 16])), ErrorKind::OutOfRange);
        for size in [16, u64::MAX - 3] {
            assert_eq!(kind(one.fill(offset, size, 1)), ErrorKind::OutOfRange);
            let copy = |from_offset, to_offset| {
                let copy = CopyRegion { from: &one, from_offset, to: &other, to_offset, size };
                manager.copy(TimelineId::MAIN, &[copy])
            };
            for refused in [copy(offset, 0), copy(0, offset), copy(offset, offset)] {
                let why = kind(refused);
                assert!(matches!(why, ErrorKind::OutOfRange | ErrorKind::Misaligned), "{why:?}");
            }
        }
    }
    assert_eq!(stack.inner().calls().total(), calls, "refused before the driver");
}

fn mapped_ranges_that_overflow_are_refused<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let one = take(&manager, &in_heap(world.visible_heap().expect("needed"), 4096));
    let mapped = one.map().expect("visible");
    for offset in [4096, 4092, u64::MAX, u64::MAX - 7] {
        assert_eq!(kind(mapped.write(offset, &[0; 16])), ErrorKind::OutOfRange);
        assert_eq!(kind(mapped.read(offset, &mut [0; 16])), ErrorKind::OutOfRange);
        assert_eq!(kind(mapped.flush(offset, u64::MAX - 1)), ErrorKind::OutOfRange);
        assert_eq!(kind(mapped.invalidate(offset, 16)), ErrorKind::OutOfRange);
    }
    mapped.write(4080, &[9; 16]).expect("the last bytes are inside");
}

fn pool_settings_that_contradict_are_refused<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager: Manager<Stack<B>> = world.manager_over(&stack);
    let heap = world.device_heap();
    let base = PoolConfig::new().lanes(1);
    let wrong = [
        base.minimum(2 << 20).maximum(1 << 20),
        base.maximum(0),
        base.maximum(1).minimum(1),
        base.block(0),
        base.block(2 << 20).maximum(1 << 20),
        base.lanes(0),
        base.strategy(StrategyKind::Ring),
        base.strategy(StrategyKind::Buddy(3)).block(1 << 20),
        base.strategy(StrategyKind::Stack).paged().block(1 << 20),
    ];
    for config in wrong {
        let why = manager.create_pool(heap, config).err().map(|error| error.kind());
        assert_eq!(why, Some(ErrorKind::InvalidConfig), "{config:?}");
    }
    let large = [base.minimum(u64::MAX / 2), base.block(u64::MAX / 2)];
    for config in large {
        let why = manager.create_pool(heap, config).err().map(|error| error.kind());
        assert_eq!(why, Some(ErrorKind::ExceedsLimit), "{config:?}");
    }
    let nowhere = manager.create_pool(omniheap_core::HeapId(200), base).err().map(|e| e.kind());
    assert_eq!(nowhere, Some(ErrorKind::NoSuchHeap));
    assert_eq!(stack.inner().calls().total(), 0);
}

fn more_than_the_largest_block_is_refused_before_the_driver<B: Backend + 'static>(
    world: &World<B>,
) {
    let stack = world.limited(8 << 20, u64::MAX);
    let manager = world.manager_over(&stack);
    for size in [(8 << 20) + 1, 64 << 20, 1 << 60] {
        assert_eq!(kind(manager.allocate(&Request::new(size))), ErrorKind::ExceedsLimit);
        for (heap, _) in world.backend().caps().heap_ids() {
            assert_eq!(kind(manager.allocate(&in_heap(heap, size))), ErrorKind::ExceedsLimit);
            let alone = in_heap(heap, size).dedicated();
            assert_eq!(kind(manager.allocate(&alone)), ErrorKind::ExceedsLimit);
        }
    }
    assert_eq!(stack.inner().calls().total(), 0, "refused before the driver");
}

fn the_driver_never_sees_more_blocks_than_it_tolerates<B: Backend + 'static>(world: &World<B>) {
    let stack = world.limited(128 << 20, 5);
    let manager = world.manager_over(&stack);
    let (live, why) = fill_up(&manager, &Request::new(64 << 10).dedicated());
    assert_eq!((live.len(), why.is_out_of_memory()), (5, true), "{why:?}");
    let live_blocks = stack.inner().live();
    assert_eq!(live_blocks.blocks + live_blocks.reservations, 5);
    let calls = stack.inner().calls();
    let asked = calls.iter().filter(|(kind, _)| *kind == CallKind::Allocate);
    assert_eq!(asked.map(|(_, count)| count).sum::<u64>(), 5, "it was not asked for a sixth");
    drop(live);
    let shared: Vec<_> =
        (0..2000).map(|_| take(&manager, &Request::new(1000).align(Align::of(16)))).collect();
    let now = stack.inner().live();
    assert!(now.blocks + now.reservations <= 5 && shared.len() == 2000);
}

fn a_backend_tells_never_from_not_now<B: Backend + 'static>(world: &World<B>) {
    let backend = world.backend();
    for (heap, about) in backend.caps().heap_ids() {
        let Some(size) = about.max_block.max(about.size).checked_add(1) else { continue };
        assert_eq!(kind(backend.allocate(heap, size).map(drop)), ErrorKind::ExceedsLimit);
    }
}
