//! Blocks: contents, mapping, addresses, budget, limits, names.
use crate::rig::{Rig, at, first, free, normal, pattern, read, transfer, write};
use omniheap_core::{Backend, ErrorKind, HostAccess, Use};
use omniheap_vulkan::{BlockOptions, Feature, Vulkan};

crate::cases! {
    bytes_survive_a_round_trip_in_every_heap if |_| true;
    the_host_and_the_device_see_the_same_bytes if |_| true;
    hidden_heaps_are_not_mappable if |v| v.caps().heaps.iter().any(|h| !h.host.is_visible());
    a_mapping_stays_where_it_is if |_| true;
    addresses_are_aligned_and_apart if |v| v.as_address().is_some();
    the_budget_moves_with_blocks if |v| v.has(Feature::MemoryBudget);
    blocks_churn_ten_thousand_times if |_| true;
    names_and_priorities_change_nothing if |_| true;
    named_heaps_answer_or_refuse if |_| true;
    the_limit_on_blocks_holds if |_| true;
    the_description_is_sound if |_| true;
}

fn bytes_survive_a_round_trip_in_every_heap(rig: &Rig) {
    let vulkan = rig.open();
    for heap in normal(&vulkan) {
        let block = vulkan.allocate(heap, 70_000).expect("a small block fits");
        assert!(block.size() >= 70_000);
        for (seed, offset, len) in [(1, 0, 1), (2, 1, 3), (3, 4095, 4098), (4, 0, 70_000)] {
            let bytes = pattern(seed, len);
            write(&vulkan, &block, offset, &bytes);
            assert_eq!(read(&vulkan, &block, offset, len), bytes, "heap {heap:?} at {offset}");
        }
        free(&vulkan, block).expect("freed");
    }
}

#[expect(unsafe_code, reason = "reads and writes a mapping")]
fn the_host_and_the_device_see_the_same_bytes(rig: &Rig) {
    let vulkan = rig.open();
    let map = vulkan.as_map().expect("always");
    let atom = vulkan.caps().atom.get();
    let len = usize::try_from(atom * 64).unwrap();
    let visible = vulkan.caps().heap_ids().filter(|(_, h)| h.host.is_visible());
    for (heap, _) in visible.filter(|(_, h)| h.use_when == Use::Normal) {
        let block = vulkan.allocate(heap, 4 * atom * 64).expect("a small block fits");
        let start = map.map(&block).expect("a visible heap");
        let offset = 64 * atom;
        let there = start.as_ptr().wrapping_add(usize::try_from(offset).unwrap());
        let out = pattern(7, len);
        // SAFETY: inside the mapping, which nothing else touches now.
        unsafe { core::ptr::copy_nonoverlapping(out.as_ptr(), there, len) };
        map.flush(&block, offset, 64 * atom).expect("whole atoms");
        assert_eq!(read(&vulkan, &block, offset, len), out, "host to device in {heap:?}");
        let back = pattern(8, len);
        write(&vulkan, &block, offset, &back);
        vulkan.wait_idle().unwrap();
        map.invalidate(&block, offset, 64 * atom).expect("whole atoms");
        // SAFETY: inside the mapping; the device is idle.
        let seen = unsafe { core::slice::from_raw_parts(there, len) };
        assert_eq!(seen, back, "device to host in {heap:?}");
    }
}

fn hidden_heaps_are_not_mappable(rig: &Rig) {
    let vulkan = rig.open();
    let hidden = vulkan.caps().heap_ids().find(|(_, h)| h.host == HostAccess::None);
    let (heap, _) = hidden.expect("the case needs one");
    let block = vulkan.allocate(heap, 4096).expect("a small block fits");
    let refused = vulkan.as_map().expect("always").map(&block).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotMappable);
}

fn a_mapping_stays_where_it_is(rig: &Rig) {
    let vulkan = rig.open();
    let visible = vulkan.caps().heap_ids().find(|(_, h)| h.host.is_visible());
    let (heap, _) = visible.expect("every device shows the host some memory");
    let block = vulkan.allocate(heap, 4096).unwrap();
    let map = vulkan.as_map().expect("always");
    assert_eq!(map.map(&block).unwrap(), map.map(&block).unwrap());
}

fn addresses_are_aligned_and_apart(rig: &Rig) {
    let vulkan = rig.open();
    let address = vulkan.as_address().expect("the case needs it");
    for heap in normal(&vulkan) {
        let align = vulkan.caps().heap(heap).unwrap().align;
        let sizes = [1, 4096, 100_000, 1 << 20, 5 << 20];
        let blocks: Vec<_> = sizes.iter().map(|n| vulkan.allocate(heap, *n).unwrap()).collect();
        let mut ranges: Vec<_> =
            blocks.iter().map(|b| (address.address(b), address.address(b) + b.size())).collect();
        ranges.sort_unstable();
        assert!(
            ranges.iter().all(|(start, _)| *start != 0 && align.divides(*start)),
            "{ranges:x?}"
        );
        assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{ranges:x?}");
    }
}

/// Software devices report the machine's memory, which others use too: there the numbers need only make sense.
fn the_budget_moves_with_blocks(rig: &Rig) {
    let vulkan = rig.open();
    let budget = vulkan.as_budget().expect("the case needs it");
    let heap = first(&vulkan);
    let before = budget.budget(heap).unwrap();
    assert!(before.budget > 0 && before.budget <= vulkan.caps().heap(heap).unwrap().size);
    let size = 256 << 20;
    let block = vulkan.allocate(heap, size).expect("256 MiB fit");
    transfer(&vulkan).fill(crate::rig::MAIN, at(&block, 0), block.size(), 1).unwrap();
    vulkan.wait_idle().unwrap();
    let during = budget.budget(heap).unwrap();
    let software = vulkan.caps().device.name.contains("llvmpipe");
    assert!(software || during.used >= before.used + size, "{before:?} then {during:?}");
    free(&vulkan, block).unwrap();
    let after = budget.budget(heap).unwrap();
    assert!(software || after.used < during.used, "{during:?} then {after:?}");
    let refused = budget.budget(omniheap_core::HeapId(200)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoSuchHeap);
}

fn blocks_churn_ten_thousand_times(rig: &Rig) {
    let vulkan = rig.open();
    let heap = first(&vulkan);
    let mut live = std::collections::VecDeque::new();
    for round in 0u64..10_000 {
        let block = vulkan.allocate(heap, 1 + (round * 7919) % 60_000).expect("little is live");
        if round % 100 == 0 {
            write(&vulkan, &block, 0, &[round.to_le_bytes()[0]]);
        }
        live.push_back((round, block));
        if live.len() > 32 {
            let (born, block) = live.pop_front().unwrap();
            if born % 100 == 0 {
                assert_eq!(read(&vulkan, &block, 0, 1), [born.to_le_bytes()[0]]);
            }
            free(&vulkan, block).unwrap();
        }
    }
}

fn names_and_priorities_change_nothing(rig: &Rig) {
    let vulkan = rig.open();
    for priority in [-1.0, 0.0, 0.5, 7.0, f32::NAN] {
        let options = BlockOptions::default().name("vertices \0 of the cave").priority(priority);
        let block = vulkan.allocate_with(first(&vulkan), 4096, options).expect("a small block");
        write(&vulkan, &block, 0, b"x");
        assert_eq!(read(&vulkan, &block, 0, 1), b"x");
    }
}

fn named_heaps_answer_or_refuse(rig: &Rig) {
    let vulkan = rig.open();
    for (heap, described) in vulkan.caps().heap_ids().filter(|(_, h)| h.use_when != Use::Normal) {
        match vulkan.allocate(heap, 4096) {
            Ok(block) => free(&vulkan, block).unwrap(),
            Err(why) => assert_eq!(why.kind(), ErrorKind::Unsupported, "{}", described.name),
        }
    }
}

fn the_limit_on_blocks_holds(rig: &Rig) {
    let vulkan = rig.open_with(rig.options.max_blocks(5));
    assert_eq!(vulkan.caps().max_blocks, 5);
    let heap = first(&vulkan);
    let mut blocks: Vec<_> = (0..5).map(|_| vulkan.allocate(heap, 64).unwrap()).collect();
    for _ in 0..3 {
        let refused = vulkan.allocate(heap, 64).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::OutOfDeviceMemory, "not now, but later");
    }
    free(&vulkan, blocks.pop().unwrap()).unwrap();
    blocks.push(vulkan.allocate(heap, 64).expect("one was freed"));
}

fn the_description_is_sound(rig: &Rig) {
    let vulkan: Vulkan = rig.open();
    let caps = vulkan.caps();
    assert_eq!(caps.device.backend, "vulkan");
    assert!(caps.max_blocks >= 4096, "the specification's least");
    assert!(!normal(&vulkan).is_empty());
    for heap in &caps.heaps {
        assert!(heap.max_block > 0 && heap.max_block <= heap.size, "{heap:?}");
        assert!(heap.granule.divides(heap.max_block) && heap.granule >= caps.atom, "{heap:?}");
        assert!(heap.page.is_none_or(|page| page.get() >= 2 << 20), "{heap:?}");
    }
}
