//! Promises of the manager beyond the strategies: moves, pins, staging and soft limits, on host memory.
use super::before::{Asked, asked};
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_core::{
    Align, Allocation, Budget, Class, ErrorKind, HeapId, HeapKind, Layout, Limits, Manager,
    ManagerConfig, PoolConfig, Relief, Request, Rung, StrategyKind, TimelineId, Timelines,
};
use omniheap_extras::Staging;
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Verdict};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

const MIB: u64 = 1 << 20;
const DEVICE: HeapId = HeapId(0);

/// A manager of one heap of `size` bytes, grown by blocks.
fn plain(size: u64) -> Manager<Host> {
    let host = Host::builder().heap(heap(HeapKind::Device, size)).open().expect("a host device");
    Manager::with_config(host, ManagerConfig::default().plain())
}

fn stamp(n: u64) -> Vec<u8> {
    (0..MIB).map(|i| (n.wrapping_mul(31) ^ i.wrapping_mul(7) ^ (i >> 8)).to_le_bytes()[0]).collect()
}

fn check(allocation: &Allocation<Host>, n: u64) {
    let mut seen = vec![0; usize::try_from(MIB).expect("small")];
    allocation.read(0, &mut seen).expect("in range");
    assert!(seen == stamp(n), "allocation {n} lost its bytes");
}

/// Sixteen stamped allocations that fill the heap, of which every other one is freed again.
fn half_full(
    manager: &Manager<Host>,
    request: impl Fn() -> Request<'static>,
) -> Vec<(u64, Allocation<Host>)> {
    let all: Vec<_> = (0..16).map(|n| (n, manager.allocate(&request()).expect("fits"))).collect();
    all.iter().for_each(|(n, allocation)| allocation.write(0, &stamp(*n)).expect("in range"));
    all.into_iter().filter(|(n, _)| n % 2 == 1).collect()
}

#[test]
fn live_data_moves_together_before_a_request_fails() {
    let manager = plain(16 * MIB);
    let kept = half_full(&manager, || Request::new(MIB));
    let large = manager.allocate(&Request::new(8 * MIB)).expect("eight free MiB become one hole");
    large.fill(0, 8 * MIB, 0xEE).expect("in range");
    kept.iter().for_each(|(n, allocation)| check(allocation, *n));
    let report = manager.report();
    assert_eq!(report.rungs[Rung::Defragment as usize], 1);
    assert!(
        report.moved_bytes > 0 && report.moved_bytes <= 8 * MIB,
        "moved {}",
        report.moved_bytes
    );
    manager.validate().expect("consistent after the move");
}

#[test]
fn one_large_block_is_slid_together() {
    let manager = plain(16 * MIB);
    manager.allocate(&Request::new(16 * MIB)).expect("one block").free();
    let kept = half_full(&manager, || Request::new(MIB));
    let large =
        manager.allocate(&Request::new(6 * MIB)).expect("six of eight free MiB become one hole");
    large.fill(0, 6 * MIB, 0xEE).expect("in range");
    kept.iter().for_each(|(n, allocation)| check(allocation, *n));
    assert!(manager.report().moved_bytes <= 6 * MIB, "more moved than was needed");
    manager.validate().expect("consistent after the move");
}

#[test]
fn defragmentation_returns_what_is_not_needed() {
    let manager = plain(1 << 30);
    let all: Vec<_> =
        (0..64).map(|n| (n, manager.allocate(&Request::new(MIB)).expect("fits"))).collect();
    all.iter().for_each(|(n, allocation)| allocation.write(0, &stamp(*n)).expect("in range"));
    let kept: Vec<_> = all.into_iter().filter(|(n, _)| n % 4 == 3).collect();
    assert_eq!(manager.trim().expect("alive"), 0, "every block is in use");
    let returned = manager.defragment().expect("alive");
    assert_eq!(returned, 48 * MIB);
    assert_eq!(manager.totals().reserved_bytes, 16 * MIB);
    kept.iter().for_each(|(n, allocation)| check(allocation, *n));
    assert_eq!(manager.defragment().expect("alive"), 0, "a compact pool moves nothing");
    manager.validate().expect("consistent");
}

#[test]
fn pinned_allocations_never_move() {
    let manager = plain(16 * MIB);
    let kept = half_full(&manager, || Request::new(MIB).pinned());
    let refused = manager.allocate(&Request::new(8 * MIB)).expect_err("nothing may move");
    assert_eq!(refused.kind(), ErrorKind::Fragmented);
    let shortage = refused.shortage().expect("out of memory is explained");
    assert!(shortage.fits_after_defragment && shortage.largest_hole == MIB);
    kept.iter().for_each(|(n, allocation)| check(allocation, *n));
}

#[test]
fn an_allocation_whose_binding_is_held_does_not_move() {
    let manager = plain(16 * MIB);
    let kept = half_full(&manager, || Request::new(MIB));
    let bindings: Vec<_> = kept.iter().map(|(_, allocation)| allocation.binding()).collect();
    let places: Vec<_> = bindings.iter().map(|binding| binding.address()).collect();
    assert_eq!(
        manager.allocate(&Request::new(8 * MIB)).err().map(|e| e.kind()),
        Some(ErrorKind::Fragmented)
    );
    assert_eq!(places, bindings.iter().map(|binding| binding.address()).collect::<Vec<_>>());
    drop(bindings);
    manager.allocate(&Request::new(8 * MIB)).expect("movable again").free();
    kept.iter().for_each(|(n, allocation)| check(allocation, *n));
}

#[test]
fn bytes_survive_a_ring_smaller_than_themselves() {
    let host = Host::new();
    let lines = [TimelineId::MAIN, host.open().expect("a timeline")];
    let manager = Manager::new(host);
    let ring = Staging::new(&manager, 64 << 10).expect("a host has staging memory");
    let target = manager.allocate(&Request::new(MIB)).expect("fits");
    for (n, on) in lines.into_iter().cycle().take(8).enumerate() {
        ring.upload(on, &target, 0, &stamp(n as u64)).expect("in range");
        let mut seen = vec![0; usize::try_from(MIB).expect("small")];
        ring.read_back(on, &target, 0, &mut seen).expect("in range");
        assert!(seen == stamp(n as u64), "round {n}");
    }
    assert_eq!(
        ring.upload(lines[0], &target, 1, &stamp(0)).err().map(|e| e.kind()),
        Some(ErrorKind::OutOfRange)
    );
}

#[test]
fn the_soft_limit_asks_and_the_hard_limit_refuses() {
    let manager = plain(1 << 30);
    manager.set_budget(DEVICE, Limits { soft: 8 * MIB, hard: 16 * MIB }).expect("soft below hard");
    let asked = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&asked);
    manager.on_pressure(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        Relief::Nothing
    });
    let first = manager.allocate(&Request::new(6 * MIB)).expect("below both");
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    let second = manager.allocate(&Request::new(6 * MIB)).expect("above soft, below hard");
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let refused = manager.allocate(&Request::new(12 * MIB)).expect_err("above hard");
    assert_eq!(refused.kind(), ErrorKind::OverBudget);
    assert!(asked.load(Ordering::Relaxed) > 1);
    drop((first, second));
    for wrong in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        assert_eq!(
            manager.set_budget_share(DEVICE, wrong).err().map(|e| e.kind()),
            Some(ErrorKind::InvalidConfig)
        );
    }
    manager.set_budget_share(DEVICE, 0.5).expect("a share");
}

#[test]
fn a_pressure_callback_that_allocates_is_not_asked_about_that() {
    let manager = plain(16 * MIB);
    // A callback that held the manager itself would keep it alive for ever.
    let way = Arc::new(Mutex::new(Some(manager.clone())));
    let (asked, back) = (Arc::new(AtomicU64::new(0)), Arc::clone(&way));
    let (count, other) = (Arc::clone(&asked), plain(16 * MIB));
    let all = manager.allocate(&Request::new(16 * MIB)).expect("fits");
    let elsewhere = Arc::new(AtomicU64::new(0));
    let there = Arc::clone(&elsewhere);
    other.on_pressure(move |_| {
        there.fetch_add(1, Ordering::Relaxed);
        Relief::Nothing
    });
    manager.on_pressure(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        let own = back.lock().expect("no panic").clone().expect("until the end");
        assert!(own.allocate(&Request::new(MIB)).is_err(), "memory is short, and still is");
        let both = [(); 2].map(|()| other.allocate(&Request::new(12 * MIB)));
        assert!(both.iter().any(Result::is_err));
        Relief::Nothing
    });
    assert!(manager.allocate(&Request::new(MIB)).is_err());
    // A request that lost a race climbs again, at most 32 times, and asks each time.
    assert!((1..=33).contains(&asked.load(Ordering::Relaxed)), "asked without end");
    assert!(elsewhere.load(Ordering::Relaxed) > 0, "another manager's callback is asked");
    drop(all);
    manager.allocate(&Request::new(MIB)).expect("there is room again").free();
    way.lock().expect("no panic").take();
}

/// Above the soft limit callbacks run after the driver gave memory, and before the caller has it.
#[test]
fn a_pressure_callback_that_panics_leaks_no_request() {
    for config in [ManagerConfig::default(), ManagerConfig::default().plain()] {
        let host = Host::builder().heap(heap(HeapKind::Device, 1 << 30)).open().expect("a device");
        let manager = Manager::with_config(host, config);
        manager
            .set_budget(HeapId(0), Limits { soft: 1 << 20, hard: 1 << 30 })
            .expect("the heap is there");
        manager.on_pressure(|_| std::panic::resume_unwind(Box::new("the program's own")));
        let ask = || manager.allocate(&Request::new(8 << 20));
        assert!(std::panic::catch_unwind(core::panic::AssertUnwindSafe(ask)).is_err());
        assert_eq!(manager.report().totals.live, 0);
        assert_eq!(manager.trim(), Ok(8 << 20));
    }
}

/// A driver that says once that the device is lost, and goes on: what it did not zero, nobody gets.
#[test]
fn a_loss_that_is_none_hands_no_secret_on() {
    let host = Host::builder().heap(heap(HeapKind::Device, 1 << 30)).open().expect("a device");
    let host = Arc::new(host);
    for kind in [CallKind::Fill, CallKind::Mark, CallKind::Reached] {
        for timeline in [None, Some(TimelineId::MAIN)] {
            let armed = Arc::new(AtomicU64::new(0));
            let refuse = Arc::clone(&armed);
            let device = asked(&host, move |call| match call.kind == kind {
                true if refuse.swap(0, Ordering::Relaxed) == 1 => {
                    Verdict::Refuse(ErrorKind::DeviceLost.into())
                }
                _ => Verdict::Forward,
            });
            let manager = Manager::with_config(device, ManagerConfig::default().plain());
            let mut request = Request::new(64 << 10);
            request.timeline = timeline;
            let secret = manager.allocate(&request.secret()).expect("room");
            secret.fill(0, 64 << 10, 0x5e).expect("in range");
            armed.store(1, Ordering::Relaxed);
            drop(secret);
            armed.store(0, Ordering::Relaxed);
            let rest = manager.allocate(&request.layout(Layout::new(4 << 20)));
            let small = manager.allocate(&request).expect("room");
            for one in [rest.expect("room"), small] {
                let mut seen = vec![0; usize::try_from(one.size()).expect("small")];
                one.read(0, &mut seen).expect("in range");
                assert!(!seen.contains(&0x5e), "{kind:?} {timeline:?}: a secret was handed on");
            }
        }
    }
}

#[test]
fn a_pressure_callback_that_panics_leaves_data_movable() {
    let manager = plain(16 * MIB);
    let (panics, once) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(0)));
    let seen = Arc::clone(&once);
    manager.on_pressure(move |_| match panics.swap(0, Ordering::Relaxed) {
        0 => Relief::Nothing,
        _ => {
            seen.store(1, Ordering::Relaxed);
            std::panic::resume_unwind(Box::new("the program's own"));
        }
    });
    let kept = half_full(&manager, || Request::new(MIB));
    let aligned = Request::new(2 * MIB).align(Align::of(4096));
    let ask = || manager.allocate(&aligned).map(Allocation::free);
    assert!(std::panic::catch_unwind(core::panic::AssertUnwindSafe(ask)).is_err());
    assert_eq!(once.load(Ordering::Relaxed), 1, "it ran and panicked");
    manager.allocate(&Request::new(8 * MIB)).expect("live data moves together").free();
    kept.iter().for_each(|(n, allocation)| check(allocation, *n));
}

#[test]
fn allocations_outlive_their_manager() {
    let manager = plain(16 * MIB);
    let kept: Vec<_> =
        (0..4).map(|n| (n, manager.allocate(&Request::new(MIB)).expect("fits"))).collect();
    kept.iter().for_each(|(n, allocation)| allocation.write(0, &stamp(*n)).expect("in range"));
    drop(manager);
    kept.iter().for_each(|(n, allocation)| check(allocation, *n));
}

#[test]
fn threads_that_grow_a_small_heap_together_all_find_its_hole() {
    for round in 0..500 {
        let host =
            Host::builder().heap(heap(HeapKind::Device, 1 << 16)).open().expect("a host device");
        let manager = Manager::with_config(host, ManagerConfig::default().plain());
        let ready = Barrier::new(4);
        let held: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        ready.wait();
                        manager.allocate(&Request::new(1246))
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        for one in &held {
            assert!(one.is_ok(), "round {round}: {one:?}");
        }
    }
}

#[test]
fn a_block_of_its_own_gets_what_is_held_for_nobody() {
    let manager = plain(16 * MIB);
    let pool = manager.create_pool(DEVICE, PoolConfig::new()).expect("valid");
    pool.allocate(&Request::new(12 * MIB)).expect("fits").free();
    assert!(manager.totals().reserved_bytes >= 12 * MIB, "the empty block is kept");
    let own = manager.allocate(&Request::new(8 * MIB).dedicated()).expect("the empty one goes");
    assert_eq!(own.binding().span().offset, 0);
    let rungs = manager.report().rungs;
    assert_eq!(rungs[Rung::Trim as usize] + rungs[Rung::Wait as usize], 1);
    let short = manager.allocate(&Request::new(12 * MIB).dedicated()).expect_err("no room");
    assert!(short.kind().is_out_of_memory());
}

#[test]
fn a_promise_ends_with_its_domain() {
    let manager = plain(16 * MIB);
    let domain = manager.domain(ManagerConfig::default().plain()).expect("host memory is cleared");
    domain.set_reserve(DEVICE, 12 * MIB).expect("nobody holds anything");
    let held = domain.allocate(&Request::new(MIB)).expect("promised");
    let asked = || manager.allocate(&Request::new(8 * MIB)).map(Allocation::free);
    assert_eq!(asked().map_err(|error| error.kind()), Err(ErrorKind::OverBudget));
    drop(domain);
    assert_eq!(asked().map_err(|error| error.kind()), Err(ErrorKind::OverBudget), "it has bytes");
    drop(held);
    assert_eq!(asked().map_err(|error| error.kind()), Ok(()), "nobody is promised anything");
}

#[test]
fn a_timeline_that_nobody_opened_is_refused_whatever_its_number() {
    let host = Host::new();
    let line = host.open().expect("a timeline");
    let manager = Manager::new(host);
    let refused = |request: &Request<'_>| {
        let asked = manager.allocate(request).map(Allocation::free).map_err(|error| error.kind());
        let planned = manager.plan(request).map(drop).map_err(|error| error.kind());
        assert_eq!(asked, planned);
        asked
    };
    // The first goes the long way, the second would have gone the short one.
    for known in [line, TimelineId::MAIN, line] {
        assert_eq!(refused(&Request::new(MIB).on(known)), Ok(()));
        for number in [99, 1 << 16, u32::MAX / 2, u32::MAX] {
            let request = Request::new(MIB).on(TimelineId(number));
            assert_eq!(refused(&request), Err(ErrorKind::NoSuchTimeline), "{number}");
            assert_eq!(refused(&request.dedicated()), Err(ErrorKind::NoSuchTimeline), "{number}");
            assert_eq!(refused(&request.name("it")), Err(ErrorKind::NoSuchTimeline), "{number}");
        }
    }
}

/// The hook plays another thread: while this request makes the pool, another one has made it, with all its minimum.
#[test]
fn two_requests_make_a_pool_and_its_minimum_once() {
    let host = Host::builder().heap(heap(HeapKind::Device, 64 * MIB)).open().expect("a device");
    let other: Arc<Mutex<Option<Manager<Asked>>>> = Arc::default();
    let first = Arc::clone(&other);
    let device = asked(&Arc::new(host), move |call| {
        if call.kind == CallKind::Allocate
            && let Some(manager) = first.lock().map_or(None, |mut first| first.take())
        {
            drop(manager.allocate(&Request::new(MIB)).expect("within the minimum"));
        }
        Verdict::Forward
    });
    let mut config = ManagerConfig::default().plain();
    config.pool.minimum = 48 * MIB;
    let manager = Manager::with_config(device, config);
    *other.lock().expect("no panic") = Some(manager.clone());
    let one = manager.allocate(&Request::new(MIB));
    assert!(one.is_ok(), "{:?}", one.err());
    assert_eq!(manager.heap_use(DEVICE).expect("it is there").reserved, 48 * MIB);
}

#[test]
fn a_resized_image_keeps_its_distance() {
    let granule = 4096;
    let host = Host::builder().heap(heap(HeapKind::Device, MIB));
    let host = host.neighbour_granularity(Align::of(granule)).open().expect("a host device");
    let manager = Manager::with_config(host, ManagerConfig::default().plain());
    let image = manager.allocate(&Request::new(256).class(Class::Tiled)).expect("small");
    let image = manager.resize(image, 512).map_err(|refused| refused.error).expect("small");
    let buffers: Vec<_> =
        (0..64).map(|_| manager.allocate(&Request::new(256)).expect("small")).collect();
    let granule_of = |one: &Allocation<Host>| one.binding().span().offset / granule;
    let near = buffers.iter().filter(|one| granule_of(one) == granule_of(&image)).count();
    assert_eq!(near, 0, "buffers in the granule of an image");
}

#[test]
fn a_resized_allocation_stays_what_it_was() {
    let manager = plain(64 * MIB);
    let guards: Vec<_> =
        (0..64).map(|_| manager.allocate(&Request::new(MIB / 16)).expect("small")).collect();
    let resized = |request: Request<'_>| {
        let one = manager.allocate(&request).expect("small");
        one.fill(0, one.size(), 5).expect("inside");
        manager.resize(one, MIB / 8).map_err(|refused| refused.error).expect("fits")
    };
    let ask = Request::new(MIB / 16);
    let kept = [resized(ask.pinned()), resized(ask.secret()), resized(ask.moved_on_consent())];
    let alone = resized(ask.dedicated());
    assert_eq!(alone.binding().span().offset, 0, "a block of its own");
    let places = || kept.each_ref().map(|one| one.binding().address());
    let before = places();
    drop(guards);
    manager.begin_defragment(&Budget::new()).expect("nothing fails").commit().expect("copies");
    manager.defragment().expect("nothing fails");
    assert_eq!(places(), before, "pinned, secret and asked-for bytes do not move");
    for one in &kept {
        let mut bytes = vec![0; 1 << 16];
        one.read(0, &mut bytes).expect("inside");
        assert!(bytes.iter().all(|byte| *byte == 5), "the bytes that both sizes have");
    }
}

#[test]
fn a_pool_that_cannot_grow_still_holds_its_minimum() {
    let manager = plain(64 * MIB);
    let _others = manager.allocate(&Request::new(16 * MIB).dedicated()).expect("fits");
    let config = PoolConfig::new().minimum(8 * MIB).lanes(1);
    let pool = manager.create_pool(DEVICE, config).expect("valid");
    let all: Vec<_> = (0..32).map(|_| pool.allocate(&Request::new(MIB)).expect("fits")).collect();
    drop(all);
    assert!(pool.reserved() >= 32 * MIB, "empty blocks are kept for what comes next");
    // Larger than what the others leave, whatever the pool gives back for it.
    let why = pool.allocate(&Request::new(50 * MIB)).expect_err("too large");
    assert!(why.kind().is_out_of_memory(), "{why}");
    assert!(pool.reserved() >= 8 * MIB, "{} MiB", pool.reserved() / MIB);
}

/// A vector drops its first element first, which is the wrong order for a stack.
#[test]
fn a_stack_pool_takes_frees_in_any_order() {
    let manager = plain(64 * MIB);
    let config = PoolConfig::new().strategy(StrategyKind::Stack).block(MIB);
    let pool = manager.create_pool(DEVICE, config).expect("valid");
    for _ in 0..3 {
        let all: Vec<_> =
            (0..16).map(|_| pool.allocate(&Request::new(MIB / 16)).expect("fits")).collect();
        assert_eq!(pool.reserved(), MIB, "the block of the round before");
        drop(all);
    }
    manager.trim().expect("nothing is live");
    assert_eq!(pool.reserved(), 0);
}

/// A huge block serves the next huge request, or goes back to the driver: small allocations do not keep it.
#[test]
fn small_allocations_do_not_live_in_what_a_huge_one_left() {
    let manager = plain(2048 * MIB);
    let mut small = Vec::new();
    for round in 0..8 {
        drop(manager.allocate(&Request::new((400 + round) * MIB)).expect("fits"));
        small.extend((0..50).map(|_| manager.allocate(&Request::new(MIB / 16)).expect("fits")));
    }
    let held = manager.report().peak_reserved_bytes;
    assert!(held <= 440 * MIB, "{} MiB held for 407 and 25 live", held / MIB);
}

/// In a pool of equal blocks, a block of the right size is no smaller: an empty one is used again.
#[test]
fn a_pool_of_equal_blocks_keeps_its_empty_one() {
    let manager = plain(1024 * MIB);
    let config = PoolConfig::new().block(256 * MIB).lanes(1);
    let pool = manager.create_pool(DEVICE, config).expect("valid");
    drop(pool.allocate(&Request::new(MIB)).expect("fits"));
    let calls = manager.report().driver_calls;
    (0..10).for_each(|_| drop(pool.allocate(&Request::new(MIB)).expect("fits")));
    assert_eq!(manager.report().driver_calls, calls);
}

/// A block that was freed and waited for a timeline goes back for a request that needs a block of its own.
#[test]
fn a_dedicated_request_takes_back_what_waited_for_timelines() {
    let manager = plain(64 * MIB);
    let other = manager.backend().open().expect("another timeline");
    let alone = |size| manager.allocate(&Request::new(size * MIB).dedicated());
    let used = alone(40).expect("fits");
    used.use_on(other).expect("open");
    drop(used);
    drop(alone(40).expect("the other timeline has nothing to do"));
}

#[test]
fn a_callback_that_uses_another_device_is_asked_once() {
    let [full, other] = [4, 64].map(|mib| {
        let device = heap(HeapKind::Device, mib << 20);
        Manager::new(Host::builder().heap(device).open().expect("a device"))
    });
    let asked = Arc::new(AtomicU64::new(0));
    full.on_pressure({
        let (asked, other) = (Arc::clone(&asked), other.clone());
        move |_| {
            asked.fetch_add(1, Ordering::Relaxed);
            drop(other.allocate(&Request::new(1 << 20)).expect("room"));
            other.trim().expect("alive");
            Relief::Nothing
        }
    });
    let _live = full.allocate(&Request::new(3 << 20)).expect("it fits");
    assert!(full.allocate(&Request::new(2 << 20)).is_err());
    assert_eq!(
        asked.load(Ordering::Relaxed),
        1,
        "what it did elsewhere is no memory for the request"
    );
}
