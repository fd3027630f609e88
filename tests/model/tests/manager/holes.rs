//! Blocks that stay: their holes are closed, by passes that nobody waits for and by one full defragmentation.
use omniheap_core::{
    Align, Allocation, Budget, Class, Decision, Defragmentation, ErrorKind, HeapId, HeapKind,
    InsideBlock, Manager, ManagerConfig, MoveOutcome, PoolConfig, Request, Span, TimelineId,
    UserPool,
};
use omniheap_host::{Host, heap};
use omniheap_layers::{Fault, Plan};
use omniheap_model::{Random, sound, stamp};

const MIB: u64 = 1 << 20;
/// Bytes of a block.
const BLOCK: u64 = 8 * MIB;

fn manager(inside: InsideBlock, capacity: u64) -> Manager<Host> {
    let device = heap(HeapKind::Device, capacity);
    let host = Host::builder().heap(device).inside_block(inside).open().expect("a device");
    let mut config = ManagerConfig::default().plain();
    // Requests do not move anything themselves, so that what they find was done before.
    config.defragmentation = Defragmentation::Off;
    Manager::with_config(host, config)
}

fn pool(manager: &Manager<Host>, block: u64, most: u64) -> UserPool<Host> {
    let config = PoolConfig::new().block(block).maximum(most).lanes(1);
    manager.create_pool(HeapId(0), config).expect("valid")
}

type Live = Vec<(u64, Allocation<Host>)>;

/// Fills a pool, frees and fills again at random, then frees until half of it is free; stamps what is left.
fn churn(pool: &UserPool<Host>, largest: u64, capacity: u64) -> Live {
    let (mut random, mut live, mut id) = (Random(11), Live::new(), 0);
    for round in 0..4 {
        let size = |random: &mut Random| {
            let most = 1 + random.below(largest);
            (1 + random.below(most)).next_multiple_of(256)
        };
        while let Ok(one) = pool.allocate(&Request::new(size(&mut random))) {
            live.push((id, one));
            id += 1;
        }
        let mut bytes: u64 = live.iter().map(|(_, one)| one.size()).sum();
        let keep = if round == 3 { capacity / 2 } else { capacity / 8 * 7 };
        while bytes > keep {
            let (_, one) = live.swap_remove(random.index(live.len()));
            bytes -= one.size();
            one.free();
        }
    }
    live.iter().for_each(|(id, one)| one.write(0, &stamp(*id, one.size())).expect("in range"));
    live
}

fn place(one: &Allocation<Host>) -> Span {
    one.binding().span()
}

#[test]
fn one_full_defragmentation_makes_one_hole_of_half_a_block() {
    for inside in [InsideBlock::Allowed, InsideBlock::Forbidden] {
        let manager = manager(inside, 64 * MIB);
        let pool = pool(&manager, BLOCK, BLOCK);
        let live = churn(&pool, 256 << 10, BLOCK);
        let free = BLOCK - manager.totals().granted_bytes;
        let wanted = Request::new(free / 100 * 95);
        assert!(pool.allocate(&wanted).is_err(), "half of the block is free in one piece");
        manager.defragment().expect("alive");
        sound(&manager, &live);
        pool.allocate(&wanted).expect("the holes were closed").free();
        let moved = manager.report().defragmentation;
        assert_eq!(manager.defragment(), Ok(0));
        assert_eq!(manager.report().defragmentation.moves, moved.moves, "there was nothing left");
    }
}

#[test]
fn one_full_defragmentation_leaves_no_more_blocks_than_the_live_bytes_need() {
    let manager = manager(InsideBlock::Allowed, 64 * MIB);
    let pool = pool(&manager, MIB / 8, 24 * MIB);
    let live = churn(&pool, 4 << 10, 24 * MIB);
    let before = manager.totals();
    assert!(before.reserved_bytes > before.live_bytes / 100 * 190, "half of it is free");
    manager.defragment().expect("alive");
    let after = manager.totals();
    assert!(after.reserved_bytes * 100 <= after.live_bytes * 102, "{after:?}");
    sound(&manager, &live);
}

#[test]
fn passes_close_holes_within_their_budget_and_end() {
    for inside in [InsideBlock::Allowed, InsideBlock::Forbidden] {
        let manager = manager(inside, 64 * MIB);
        let pool = pool(&manager, BLOCK, BLOCK);
        let live = churn(&pool, 64 << 10, BLOCK);
        let before = manager.totals();
        let mut passes = 0;
        loop {
            let pass =
                manager.begin_defragment(&Budget::new().moves(20).bytes(MIB)).expect("alive");
            if pass.is_empty() {
                break;
            }
            let bytes: u64 = pass.moves().map(|one| one.size()).sum();
            assert!(pass.moves().len() <= 20 && bytes <= MIB, "over the budget");
            for one in pass.moves() {
                let (from, to) = (one.from(), one.to());
                assert!(core::ptr::eq(from.block, to.block) && to.span.end() <= from.span.offset);
            }
            let outcome = pass.commit().expect("alive");
            assert!(outcome.moves.iter().all(|(_, one)| *one == MoveOutcome::Moved));
            passes += 1;
            assert!(passes < 500, "passes do not end");
        }
        assert!(passes > 3, "one pass did it all");
        let after = manager.totals();
        assert_eq!(after.reserved_bytes, before.reserved_bytes, "the bounce block was returned");
        assert!(after.largest_hole > before.largest_hole * 3, "{before:?} {after:?}");
        assert!(after.largest_hole > after.free_bytes / 4 * 3, "{after:?}");
        sound(&manager, &live);
    }
}

#[test]
fn what_is_asked_for_while_holes_are_closed_stays() {
    for inside in [InsideBlock::Allowed, InsideBlock::Forbidden] {
        let manager = manager(inside, 64 * MIB);
        let pool = pool(&manager, BLOCK, BLOCK);
        let live = churn(&pool, 64 << 10, BLOCK);
        let mut pass = manager.begin_defragment(&Budget::new()).expect("alive");
        pass.start().expect("alive");
        let asked: Vec<_> = live.iter().step_by(3).map(|(_, one)| place(one)).collect();
        let outcome = pass.commit().expect("alive");
        let stayed = outcome.moves.iter().filter(|(_, one)| *one == MoveOutcome::Stayed).count();
        assert!(stayed > 0 && outcome.moved.moves > 0);
        let now: Vec<_> = live.iter().step_by(3).map(|(_, one)| place(one)).collect();
        assert_eq!(asked, now, "a place that was shown did not hold");
        sound(&manager, &live);
        // Dropped half-way, every allocation is where it was.
        let mut pass = manager.begin_defragment(&Budget::new()).expect("alive");
        pass.start().expect("alive");
        let planned = pass.moves().len();
        drop(pass);
        assert!(planned > 0);
        sound(&manager, &live);
    }
}

#[test]
fn without_memory_for_a_bounce_block_nothing_moves_inside_a_block() {
    let manager = manager(InsideBlock::Forbidden, BLOCK);
    let pool = pool(&manager, BLOCK, BLOCK);
    let live = churn(&pool, 64 << 10, BLOCK);
    let outcome = manager.begin_defragment(&Budget::new()).and_then(|pass| pass.commit());
    let outcomes = outcome.expect("no bounce block is no failure").moves;
    assert!(!outcomes.is_empty() && outcomes.iter().all(|(_, one)| *one == MoveOutcome::Stayed));
    manager.defragment().expect("alive");
    sound(&manager, &live);
}

#[test]
fn calls_that_fail_one_after_another_lose_nothing() {
    for inside in [InsideBlock::Allowed, InsideBlock::Forbidden] {
        let mut most = 0;
        for apart in [1, 3] {
            for nth in 0.. {
                let device = heap(HeapKind::Device, 4 * MIB);
                let host = Host::builder().heap(device).inside_block(inside).open();
                let mut config = ManagerConfig::default().plain();
                config.defragmentation = Defragmentation::Off;
                let manager = Manager::with_config(Fault::new(host.expect("a device")), config);
                let block = PoolConfig::new().block(MIB).lanes(1);
                let pool = manager.create_pool(HeapId(0), block).expect("valid");
                // Every hole is smaller than what lies behind it, so that all of it slides over its own bytes.
                let size = |id: u64| if id.is_multiple_of(2) { 96 << 10 } else { 32 << 10 };
                let all = (0..16).map(|id| (id, pool.allocate(&Request::new(size(id)))));
                let all: Vec<_> = all.map(|(id, one)| (id, one.expect("fits"))).collect();
                let live: Vec<_> = all.into_iter().filter(|(id, _)| id % 2 == 0).collect();
                for (id, one) in &live {
                    one.write(0, &stamp(*id, one.size())).expect("in range");
                }
                manager.backend().inject(Plan::Pair(nth, nth + apart), 0);
                let done = manager.defragment();
                let failed = manager.backend().injected();
                manager.backend().inject(Plan::Never, 0);
                sound(&manager, &live);
                if failed == 0 {
                    assert!(done.is_ok(), "{done:?}");
                    break;
                }
                most = most.max(failed);
            }
        }
        assert_eq!(most, 2, "two calls failed");
    }
}

#[test]
fn what_is_pinned_or_aligned_keeps_its_place_or_its_alignment() {
    let manager = manager(InsideBlock::Allowed, 64 * MIB);
    let pool = pool(&manager, BLOCK, BLOCK);
    let mut all = Live::new();
    let align = |id: u64| Align::of(256 << (id % 5));
    for id in 0.. {
        let request = Request::new(20_000 + id % 7 * 9_000).align(align(id));
        match pool.allocate(&request) {
            Ok(one) => all.push((id, one)),
            Err(_) => break,
        }
    }
    let live: Live = all.into_iter().filter(|(id, _)| id % 2 == 0).collect();
    live.iter().for_each(|(id, one)| one.write(0, &stamp(*id, one.size())).expect("in range"));
    let pinned: Vec<_> = live.iter().filter(|(id, _)| id % 100 == 0).collect();
    let pins: Vec<_> = pinned.iter().map(|(_, one)| (one.binding(), place(one))).collect();
    let before = manager.totals();
    manager.defragment().expect("alive");
    assert!(pins.iter().zip(&pinned).all(|((_, span), (_, one))| place(one) == *span));
    assert!(manager.totals().largest_hole > before.largest_hole * 4);
    drop(pins);
    assert!(
        live.iter().all(|(id, one)| place(one).offset.is_multiple_of(align(*id).get())),
        "misaligned"
    );
    sound(&manager, &live);
}

/// Bytes of an image, at most.
const IMAGE: u64 = 64 << 10;

/// Runs passes with an owner that copies, until one is empty; returns the size of the largest hole then.
fn close_holes(class: impl Fn(u64) -> Class, granularity: Align) -> (u64, Live) {
    let device = heap(HeapKind::Device, 64 * MIB);
    let host = Host::builder().heap(device).neighbour_granularity(granularity);
    let mut config = ManagerConfig::default().plain();
    config.defragmentation = Defragmentation::Off;
    let manager = Manager::with_config(host.open().expect("a device"), config);
    let pool = pool(&manager, 2 * BLOCK, 2 * BLOCK);
    let one = |id| Request::new(IMAGE - id % 3 * 256).class(class(id)).moved_on_consent();
    let all: Vec<_> = (0..200).map(|id| (id, pool.allocate(&one(id)).expect("fits"))).collect();
    // Keeps one of four images, at changing places.
    let live: Live = all.into_iter().filter(|(id, _)| id * 7 % 4 == id / 40 % 4).collect();
    for pass in 0.. {
        assert!(pass < 100, "passes do not end");
        let pass = manager.begin_defragment(&Budget::new()).expect("alive");
        if pass.is_empty() {
            break;
        }
        assert!(pass.moves().all(|one| one.needs_consent()));
        let outcome = pass.run(|_| Decision::OwnerCopies).expect("alive");
        assert!(outcome.moves.iter().all(|(_, one)| *one == MoveOutcome::Moved));
    }
    (manager.totals().largest_hole, live)
}

#[test]
fn holes_between_images_are_closed_as_those_between_other_bytes() {
    let (linear, _) = close_holes(|_| Class::Linear, Align::ONE);
    let (tiled, _) = close_holes(|_| Class::Tiled, Align::ONE);
    assert_eq!(tiled, linear);
    assert!(tiled > 12 * MIB, "{tiled} of 12.9 MB are in one piece");
}

#[test]
fn images_and_other_bytes_close_holes_and_share_no_granule() {
    let granule = 4096;
    let class = |id: u64| if id.is_multiple_of(3) { Class::Tiled } else { Class::Linear };
    let (largest, mut live) = close_holes(class, Align::of(granule));
    assert!(largest > 10 * MIB, "{largest} of 12.9 MB are in one piece");
    live.sort_by_key(|(_, one)| place(one).offset);
    for pair in live.windows(2) {
        let [first, second] = [&pair[0], &pair[1]].map(|(_, one)| place(one));
        let apart = (first.end() - 1) / granule < second.offset / granule;
        assert!(class(pair[0].0) == class(pair[1].0) || apart, "unlike neighbours share a granule");
    }
}

#[test]
fn the_lowest_hole_is_taken_of_the_first_block() {
    let manager = manager(InsideBlock::Allowed, 4 * BLOCK);
    let pool = pool(&manager, BLOCK, 2 * BLOCK);
    let quarter = Request::new(BLOCK / 4);
    let mut live: Vec<_> =
        (0..8).map(|_| Some(pool.allocate(&quarter).expect("there is room"))).collect();
    for at in [6, 3, 1, 7] {
        live[at] = None;
    }
    let take = |request: &Request<'_>| {
        let at = |_: &_, span: Span| (span.offset > 0).then_some(span);
        pool.allocate_lowest(request, at).map_err(|error| error.kind())
    };
    let (first, span) = take(&quarter).expect("a hole");
    assert_eq!(span, Span { offset: BLOCK / 4, size: BLOCK / 4 });
    assert_eq!(first.binding().span(), span);
    let wide = take(&Request::new(BLOCK / 2)).expect("both at the end of the second block");
    assert_eq!(wide.1.offset, BLOCK / 2);
    let none = pool.allocate_lowest(&quarter, |_, _| None::<()>);
    assert!(none.expect_err("nothing suits").kind().is_out_of_memory());
    let before = manager.totals();
    for (wrong, kind) in [
        (Request::new(0), ErrorKind::ZeroSize),
        (Request::new(2 * BLOCK), ErrorKind::ExceedsLimit),
        (quarter.dedicated(), ErrorKind::Unsupported),
        (quarter.align(Align::of(1 << 40)), ErrorKind::InvalidAlignment),
        (quarter.on(TimelineId(77)), ErrorKind::NoSuchTimeline),
    ] {
        assert_eq!(take(&wrong).map(drop), Err(kind));
    }
    assert_eq!(manager.totals(), before);
    manager.validate().expect("sound");
}

#[test]
fn the_lowest_hole_between_two_allocations_is_taken() {
    let manager = manager(InsideBlock::Allowed, 8 * BLOCK);
    let pool = pool(&manager, BLOCK, 2 * BLOCK);
    let other = self::pool(&manager, BLOCK, BLOCK);
    let eighth = Request::new(BLOCK / 8);
    let mut live: Vec<_> =
        (0..16).map(|_| Some(pool.allocate(&eighth).expect("there is room"))).collect();
    for at in [0, 3, 5, 9] {
        live[at] = None;
    }
    let at = |number: usize| live[number].as_ref().expect("it is live");
    let take = |request: &Request<'_>, after: Option<usize>, before: usize| {
        let taken = pool.allocate_between(request, after.map(at), at(before), |_, span| span);
        taken.map_err(|error| error.kind())
    };
    let (first, span) = take(&eighth, None, 7).expect("a hole");
    assert_eq!((span.offset, first.binding().span()), (0, span));
    let (third, span) = take(&eighth, Some(4), 7).expect("a hole");
    assert_eq!(span.offset, 5 * BLOCK / 8);
    assert!(take(&eighth, Some(4), 7).expect_err("none is left there").is_out_of_memory());
    assert!(take(&eighth, Some(7), 4).expect_err("the wrong order").is_out_of_memory());
    assert!(take(&Request::new(BLOCK / 4), None, 7).expect_err("too long").is_out_of_memory());
    assert_eq!(take(&eighth, Some(1), 12).map(drop), Err(ErrorKind::Stale));
    assert_eq!(take(&eighth.dedicated(), None, 7).map(drop), Err(ErrorKind::Unsupported));
    let foreign = other.allocate(&eighth).expect("there is room");
    for (after, before) in [(None, &foreign), (Some(&foreign), at(7))] {
        let refused = pool.allocate_between(&eighth, after, before, |_, _| ());
        assert_eq!(refused.map(drop).map_err(|error| error.kind()), Err(ErrorKind::Foreign));
    }
    drop((first, third));
    manager.validate().expect("sound");
}
