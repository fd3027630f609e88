//! L: bytes in, out and across.
#![expect(unsafe_code, reason = "frees blocks of the seam")]
use super::{kind, place_of, take};
use crate::case::{Case, LARGE, Need};
use crate::rng::{Rng, is_all};
use crate::world::{Stack, World, timelines};
use omniheap_core::{
    Allocation, Backend, BlockOffset, CopyRegion, ErrorKind, HeapId, InsideBlock, Move, Request,
    TimelineId,
};

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    list! {
        random_copies_match_a_shadow proves [97] needs [Transfer];
        a_block_holds_what_was_asked_for proves [1, 18] needs [Transfer];
        a_batch_of_copies_is_done_whole proves [97] needs [Transfer];
        what_the_device_cannot_copy_is_refused_not_rounded proves [97] needs [Transfer];
        copies_that_overlap_or_reach_outside_are_refused proves [98] needs [Transfer];
        a_bad_batch_is_refused_by_the_backend_itself proves [98] needs [Transfer];
        calls_with_any_numbers_are_answered proves [98] needs [Transfer];
        a_writers_bytes_are_its_own_again_at_once proves [100] needs [Transfer, Timelines, Hold];
        work_on_one_timeline_runs_in_order proves [100] needs [Transfer];
        an_order_between_timelines_is_kept proves [83, 100] needs [Transfer, Timelines, Hold];
        a_resize_keeps_the_bytes_that_both_sizes_have proves [99] needs [Transfer];
        offsets_beyond_four_gibibytes_are_right proves [101] needs [Transfer, Large];
    }
}

const MAIN: TimelineId = TimelineId::MAIN;

fn slice(offset: u64, size: u64) -> core::ops::Range<usize> {
    let at = |value: u64| usize::try_from(value).expect("small");
    at(offset)..at(offset + size)
}

fn random_copies_match_a_shadow<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let (unit, mut rng) = (world.backend().caps().copy.align.get(), world.rng());
    // Dedicated, so that devices that forbid copies inside a block run the same steps.
    let live: Vec<_> =
        (0..6).map(|_| take(&manager, &Request::new(unit * 256).dedicated())).collect();
    let mut shadow = vec![vec![0u8; slice(0, unit * 256).len()]; live.len()];
    live.iter().for_each(|one| one.fill(0, unit * 256, 0).expect("inside"));
    for step in 0..400u64 {
        let (a, b) = (rng.index(6), rng.index(6));
        let size = (1 + rng.below(128)) * unit;
        let (from, to) = (rng.below(128) * unit, rng.below(128) * unit);
        let byte = u8::try_from(step % 253).expect("below 253");
        match rng.below(4) {
            0 => {
                let bytes: Vec<_> =
                    slice(0, size).map(|at| byte.wrapping_add(at.to_le_bytes()[0])).collect();
                live[a].write(to, &bytes).expect("inside");
                shadow[a][slice(to, size)].copy_from_slice(&bytes);
            }
            1 => {
                live[a].fill(to, size, byte).expect("inside");
                shadow[a][slice(to, size)].fill(byte);
            }
            2 if a != b => {
                let copy = CopyRegion {
                    from: &live[a],
                    from_offset: from,
                    to: &live[b],
                    to_offset: to,
                    size,
                };
                manager.copy(MAIN, &[copy]).expect("apart");
                let bytes = shadow[a][slice(from, size)].to_vec();
                shadow[b][slice(to, size)].copy_from_slice(&bytes);
            }
            _ => holds(&live[a], from, &shadow[a][slice(from, size)]),
        }
    }
    live.iter().zip(&shadow).for_each(|(one, wanted)| holds(one, 0, wanted));
}

/// Checks bytes of an allocation.
fn holds<B: Backend + 'static>(one: &Allocation<Stack<B>>, offset: u64, wanted: &[u8]) {
    let mut found = vec![0; wanted.len()];
    one.read(offset, &mut found).expect("inside");
    assert_eq!(found, wanted);
}

fn a_batch_of_copies_is_done_whole<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let size = world.whole(64);
    let [from, beside, to] =
        [(); 3].map(|()| take(&manager, &Request::new(size * 200).dedicated()));
    crate::world::write_stamp(&from, 9);
    crate::world::write_stamp(&beside, 5);
    to.fill(0, size * 200, 0).expect("inside");
    // Runs of copies between the same two, and single ones.
    let source = |n: u64| if n % 7 == 3 || n > 150 { &beside } else { &from };
    let copies: Vec<_> = (0..200)
        .map(|n| CopyRegion {
            from: source(n),
            from_offset: n * size,
            to: &to,
            to_offset: (199 - n) * size,
            size,
        })
        .collect();
    manager.copy(MAIN, &copies).expect("no byte twice");
    let [mut wanted, mut seen] = [(); 2].map(|()| vec![0; slice(0, size).len()]);
    for n in 0..200 {
        source(n).read(n * size, &mut wanted).expect("inside");
        to.read((199 - n) * size, &mut seen).expect("inside");
        assert_eq!(wanted, seen, "copy {n}");
    }
}

fn what_the_device_cannot_copy_is_refused_not_rounded<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let caps = world.backend().caps();
    let [one, other] = [(); 2].map(|()| take(&manager, &Request::new(4096)));
    let calls = stack.inner().calls().total();
    if caps.copy.align.get() > 1 {
        let unit = caps.copy.align.get();
        for (offset, size) in [(1, unit), (0, unit - 1), (unit - 1, 1)] {
            let bytes = vec![0; slice(0, size).len()];
            assert_eq!(kind(one.write(offset, &bytes)), ErrorKind::Misaligned);
            assert_eq!(kind(one.read(offset, &mut bytes.clone())), ErrorKind::Misaligned);
            assert_eq!(kind(one.fill(offset, size, 0)), ErrorKind::Misaligned);
            let copy =
                CopyRegion { from: &one, from_offset: offset, to: &other, to_offset: 0, size };
            assert_eq!(kind(manager.copy(MAIN, &[copy])), ErrorKind::Misaligned);
        }
        assert_eq!(stack.inner().calls().total(), calls, "refused before the driver");
    }
    let copy = CopyRegion { from: &one, from_offset: 0, to: &other, to_offset: 0, size: 1024 };
    let same = place_of(&one).0 == place_of(&other).0;
    let answer = manager.copy(MAIN, &[copy]);
    if same && caps.copy.inside_block == InsideBlock::Forbidden {
        assert_eq!(kind(answer), ErrorKind::Unsupported);
    } else {
        answer.expect("apart");
    }
}

fn copies_that_overlap_or_reach_outside_are_refused<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let [one, other] = [(); 2].map(|()| take(&manager, &Request::new(4096).dedicated()));
    let calls = stack.inner().calls().total();
    let copy = |from: &'static str, from_offset, to_offset, size| {
        let from = if from == "one" { &one } else { &other };
        CopyRegion { from, from_offset, to: &one, to_offset, size }
    };
    let overlapping: [&[CopyRegion<'_, Stack<B>>]; 4] = [
        &[copy("one", 0, 256, 512)],
        &[copy("one", 256, 0, 512)],
        &[copy("other", 0, 0, 512), copy("other", 1024, 256, 512)],
        &[copy("other", 0, 0, 512), copy("one", 256, 2048, 512)],
    ];
    for batch in overlapping {
        assert_eq!(kind(manager.copy(MAIN, batch)), ErrorKind::Overlap);
    }
    for outside in [copy("other", 4096, 0, 4), copy("other", 0, 3840, 512)] {
        assert_eq!(kind(manager.copy(MAIN, &[outside])), ErrorKind::OutOfRange);
    }
    assert_eq!(stack.inner().calls().total(), calls, "refused before the driver");
}

/// Without a manager in front, which would have refused the batch before the backend saw it.
/// Safe calls of the backend itself, with numbers at every edge: each is answered, and touches its own block alone.
fn calls_with_any_numbers_are_answered<B: Backend + 'static>(world: &World<B>) {
    let (backend, id) = (world.backend(), world.device_heap());
    let heap = backend.caps().heap(id).expect("it was just listed");
    let size = heap.granule.up(world.whole(2048)).expect("small");
    let [block, beside] = [(); 2].map(|()| backend.allocate(id, size).expect("small"));
    let transfer = backend.as_transfer().expect("needed");
    for (block, value) in [(&block, 7), (&beside, 9)] {
        transfer.fill(MAIN, BlockOffset { block, offset: 0 }, size, value).expect("inside");
    }
    let mut rng = world.rng();
    for _ in 0..3000 {
        any_transfer(&**backend, &block, size, &mut rng);
        let heap_id = HeapId([id.0, 1, 99, 255][rng.index(4)]);
        let absurd = [0, u64::MAX, u64::MAX - 1, 1 << 63][rng.index(4)];
        assert!(backend.allocate(heap_id, absurd).is_err(), "{absurd} bytes in {heap_id:?}");
    }
    for (block, value) in [(block, 7), (beside, 9)] {
        let mut bytes = vec![0; slice(0, size).len()];
        let place = BlockOffset { block: &block, offset: 0 };
        transfer.read(MAIN, place, &mut bytes).expect("inside");
        assert!(is_all(&bytes, value), "bytes outside a range were touched");
        backend.wait_idle().expect("alive");
        // SAFETY: the block is this backend's, and nothing runs.
        unsafe { backend.free(block) }.expect("idle");
    }
}

/// Makes one call on a block whose bytes are all sevens, and leaves them so.
fn any_transfer<B: Backend>(backend: &B, block: &B::Block, size: u64, rng: &mut Rng) {
    let unit = backend.caps().copy.align.get();
    let numbers = [
        [0, 1, 3, unit, size / 2, size - unit, size - 1, size],
        [
            size + 1,
            1 << 31,
            1 << 32,
            1 << 63,
            u64::MAX - size,
            u64::MAX - unit,
            u64::MAX - 1,
            u64::MAX,
        ],
    ];
    let [offset, length, other] = [(); 3].map(|()| numbers[rng.index(2)][rng.index(8)]);
    let on = TimelineId([0, 0, 0, 1, 77, u32::MAX][rng.index(6)]);
    let transfer = backend.as_transfer().expect("needed");
    let mut bytes = vec![7; slice(0, length.min(2 * size)).len()];
    let short = bytes.len() as u64;
    let at = |offset| BlockOffset { block, offset };
    let (answer, length) = match rng.below(5) {
        0 => (transfer.fill(on, at(offset), length, 7), length),
        1 => (transfer.write(on, at(offset), &bytes), short),
        2 => (transfer.read(on, at(offset), &mut bytes), short),
        3 => {
            let step = Move { from: at(offset), to: at(other), size: length };
            (transfer.copy(on, &[step]), length)
        }
        _ => (backend.as_map().map_or(Ok(()), |map| map.flush(block, offset, length)), 0),
    };
    let is_inside = offset.checked_add(length).is_some_and(|end| end <= size);
    assert!(answer.is_err() || is_inside || length == 0, "{length} at {offset} of {size}");
}

fn a_bad_batch_is_refused_by_the_backend_itself<B: Backend + 'static>(world: &World<B>) {
    let (backend, heap) = (world.backend(), world.device_heap());
    let transfer = backend.as_transfer().expect("needed");
    let (unit, caps) = (world.whole(64), backend.caps().copy);
    // A whole granule: blocks end where they say.
    let size = backend.caps().heap(heap).and_then(|heap| heap.granule.up(unit * 8)).expect("small");
    let [one, other] = [(); 2].map(|()| backend.allocate(heap, size).expect("small"));
    let at = |block, offset| BlockOffset { block, offset };
    for (block, value) in [(&one, 1), (&other, 2)] {
        transfer.fill(MAIN, at(block, 0), size, value).expect("inside");
    }
    let step = |from, start, to, end, size| Move { from: at(from, start), to: at(to, end), size };
    let good = step(&one, 0, &other, 0, unit);
    let mut bad = vec![
        (ErrorKind::Overlap, step(&one, unit * 2, &other, 0, unit * 2)),
        (ErrorKind::Overlap, step(&other, 0, &one, unit * 4, unit)),
        (ErrorKind::OutOfRange, step(&one, size, &other, unit, unit)),
        (ErrorKind::OutOfRange, step(&one, unit, &other, size, unit)),
        (ErrorKind::OutOfRange, step(&one, unit, &other, u64::MAX - unit + 1, unit)),
        (ErrorKind::Overlap, step(&one, unit * 4, &one, unit * 5, unit * 2)),
    ];
    if caps.inside_block == InsideBlock::Forbidden {
        bad.push((ErrorKind::Unsupported, step(&one, unit * 2, &one, unit * 6, unit)));
    }
    if caps.align.get() > 1 {
        bad.push((ErrorKind::Misaligned, step(&one, unit + 1, &other, unit, unit)));
        bad.push((ErrorKind::Misaligned, step(&one, unit, &other, unit + 1, unit)));
    }
    for (expected, bad) in bad {
        assert_eq!(kind(transfer.copy(MAIN, &[good, bad])), expected, "{}", bad.size);
        for (block, value) in [(&one, 1), (&other, 2)] {
            let mut found = vec![0; slice(0, size).len()];
            transfer.read(MAIN, at(block, 0), &mut found).expect("inside");
            assert!(is_all(&found, value), "a refused batch copies nothing");
        }
    }
    transfer.copy(MAIN, &[good, step(&one, unit, &other, unit, unit)]).expect("side by side");
    backend.wait_idle().expect("alive");
    for block in [one, other] {
        // SAFETY: the block is this backend's, and nothing runs.
        unsafe { backend.free(block) }.expect("idle");
    }
}

fn a_writers_bytes_are_its_own_again_at_once<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let line = timelines(&stack).open().expect("one more");
    let one: Allocation<Stack<B>> = take(&manager, &Request::new(64 << 10).on(line));
    let held = world.hold(line);
    let mut bytes = vec![1; 64 << 10];
    one.write(0, &bytes).expect("queued");
    bytes.fill(2);
    drop(held);
    let mut found = vec![0; 64 << 10];
    one.read(0, &mut found).expect("inside");
    assert!(is_all(&found, 1), "the bytes as they were");
    drop(one);
    world.backend().wait_idle().expect("alive");
    manager.trim().expect("alive");
    timelines(&stack).close(line).expect("idle");
}

fn work_on_one_timeline_runs_in_order<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let size = world.whole(100_000);
    let [one, other] = [(); 2].map(|()| take(&manager, &Request::new(size).dedicated()));
    let copy = |from, to| CopyRegion { from, from_offset: 0, to, to_offset: 0, size };
    for round in 0..50u8 {
        one.fill(0, size, round).expect("queued");
        manager.copy(MAIN, &[copy(&one, &other)]).expect("queued");
        one.fill(0, size, 255).expect("queued");
        let mut found = vec![0; slice(0, size).len()];
        other.read(0, &mut found).expect("inside");
        assert!(is_all(&found, round), "round {round}");
    }
}

fn an_order_between_timelines_is_kept<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let lines = timelines(&stack);
    let [first, second] = [(); 2].map(|()| lines.open().expect("two more"));
    let size = 64 << 10;
    let source = take(&manager, &Request::new(size).on(first).dedicated());
    let target = take(&manager, &Request::new(size).on(second).dedicated());
    source.fill(0, size, 1).expect("queued");
    world.backend().wait_idle().expect("alive");
    let held = world.hold(first);
    source.fill(0, size, 2).expect("queued");
    let probe = take(&manager, &Request::new(size).on(MAIN).dedicated());
    let peek = CopyRegion { from: &source, from_offset: 0, to: &probe, to_offset: 0, size };
    manager.copy(MAIN, &[peek]).expect("queued");
    let mut found = vec![0; slice(0, size).len()];
    probe.read(0, &mut found).expect("inside");
    assert!(is_all(&found, 1), "what is held back has not happened");
    let epoch = lines.mark(first).expect("open");
    let point = omniheap_core::Point { timeline: first, epoch };
    lines.order(second, point).expect("open");
    let copy = CopyRegion { from: &source, from_offset: 0, to: &target, to_offset: 0, size };
    manager.copy(second, &[copy]).expect("queued");
    let after = lines.mark(second).expect("open");
    // A backend that forgot the order needs a moment to show it.
    for _ in 0..30 {
        assert!(lines.reached(second).expect("open") < after, "it waits for the first timeline");
        std::thread::sleep(core::time::Duration::from_millis(1));
    }
    drop(held);
    lines.wait(omniheap_core::Point { timeline: second, epoch: after }).expect("open");
    assert!(lines.reached(second).expect("open") >= after);
    let mut found = vec![0; slice(0, size).len()];
    target.read(0, &mut found).expect("inside");
    assert!(is_all(&found, 2), "the copy saw what came before");
    drop((source, target, probe));
    world.backend().wait_idle().expect("alive");
    manager.trim().expect("alive");
    for line in [first, second] {
        lines.close(line).expect("idle");
    }
}

fn offsets_beyond_four_gibibytes_are_right<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager_over(&world.limited(u64::MAX, u64::MAX));
    let one = take(&manager, &Request::new(LARGE).dedicated());
    let edge = 1u64 << 32;
    let places = [0, (1 << 31) - 128, edge - 128, edge - 64, edge, edge + 4096, LARGE - 256];
    for (byte, offset) in (1u8..).zip(places) {
        one.fill(offset, 64, byte).expect("inside");
    }
    for (byte, offset) in (1u8..).zip(places) {
        let mut found = [0; 64];
        one.read(offset, &mut found).expect("inside");
        assert_eq!(found, [byte; 64], "at {offset}");
    }
    assert_eq!(kind(one.fill(LARGE - 32, 64, 0)), ErrorKind::OutOfRange);
}

fn a_block_holds_what_was_asked_for<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let unit = usize::try_from(world.whole(1)).expect("small");
    for (heap, about) in world.backend().caps().heap_ids() {
        for size in [world.whole(1), 4096, 64 << 10, 6 << 20]
            .into_iter()
            .filter(|size| *size <= about.max_block)
        {
            let one = take(&manager, &Request::new(size).heap(heap).dedicated());
            let last = size - world.whole(1);
            one.write(last, &vec![5; unit]).expect("the last bytes are there");
            let mut found = vec![0; unit];
            one.read(last, &mut found).expect("inside");
            assert_eq!(
                found,
                vec![5; unit],
                "the last bytes of a block of {size} on heap {} are not those that were written",
                heap.0
            );
        }
    }
}

fn a_resize_keeps_the_bytes_that_both_sizes_have<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let guard = take(&manager, &Request::new(world.whole(4096)));
    guard.fill(0, guard.size(), 9).expect("inside");
    let mut one = take(&manager, &Request::new(world.whole(1000)).name("it"));
    one.fill(0, one.size(), 7).expect("inside");
    let mut kept = one.size();
    for size in [300_000, 1000, 64, 3 << 20].map(|size| world.whole(size)) {
        one = manager.resize(one, size).expect("it fits");
        assert_eq!(one.size(), size);
        kept = kept.min(size);
        let mut bytes = vec![0; slice(0, kept).len()];
        one.read(0, &mut bytes).expect("inside");
        assert!(is_all(&bytes, 7), "the first {kept} bytes changed in a resize to {size}");
    }
    let refused = manager.resize(one, u64::MAX / 4).expect_err("never fits");
    assert_eq!(refused.error.kind(), ErrorKind::ExceedsLimit);
    assert_eq!(refused.given.size(), world.whole(3 << 20), "as it was");
    let mut bytes = vec![0; slice(0, guard.size()).len()];
    guard.read(0, &mut bytes).expect("inside");
    assert!(is_all(&bytes, 9), "a neighbour's bytes");
    let foreign = world.manager().resize(refused.given, 64).expect_err("another manager's");
    assert_eq!(foreign.error.kind(), ErrorKind::Foreign);
}
