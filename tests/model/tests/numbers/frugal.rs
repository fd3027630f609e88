//! Costs of moves and lanes, counted in calls of the driver and in memory that goes back: nothing here is timed.
use super::before::{Asked, asked};
use super::{HEAP, KIB, MIB, Managed, device, managed, one_lane};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use omniheap_core::{
    Align, Allocation, Budget, ErrorKind, HeapId, HeapKind, Limits, Manager, ManagerConfig,
    PoolConfig, Request, Sleep, Timelines, UserPool, Wake,
};
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Verdict};
use omniheap_model::Store;
use std::sync::Arc;

/// A device that counts its calls of one kind.
fn counted(host: &Arc<Host>, kind: CallKind) -> (Asked, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&count);
    let device = asked(host, move |call| {
        seen.fetch_add(u64::from(call.kind == kind), Relaxed);
        Verdict::Forward
    });
    (device, count)
}

fn blocks(manager: &Manager<Asked>, size: u64) -> UserPool<Asked> {
    manager.create_pool(HEAP, PoolConfig::new().block(size).lanes(1)).expect("valid")
}

/// One move empties a block of each pool. Slots have other numbers in each.
#[test]
fn a_pass_gives_back_what_it_emptied_in_every_pool() {
    let (device, frees) = counted(&device(64 * MIB), CallKind::Free);
    let manager = Manager::with_config(device, one_lane(ManagerConfig::default().plain()));
    let pools = [(); 3].map(|()| blocks(&manager, 4 * MIB));
    let ask = |pool: &UserPool<Asked>, size| pool.allocate(&Request::new(size)).expect("fits");
    let two_blocks = |(number, pool): (u8, &UserPool<Asked>)| {
        let first: Vec<_> = (0..number).map(|_| ask(pool, KIB)).collect();
        let all: Vec<_> = (0..8).map(|_| ask(pool, MIB - 2 * KIB)).collect();
        drop(first);
        let kept: Vec<_> = all.into_iter().skip(1).step_by(4).collect();
        for (byte, one) in (number * 8..).zip(&kept) {
            one.fill(0, one.size(), byte).expect("in range");
        }
        kept
    };
    let kept: Vec<_> = (0..).zip(&pools).map(two_blocks).collect();
    let pass = manager.begin_defragment(&Budget::new()).expect("alive");
    assert_eq!(pass.moves().len(), 3, "one in each pool");
    let moved = pass.commit().expect("alive").moved;
    assert_eq!((moved.returned_blocks, frees.load(Relaxed)), (3, 3), "{moved:?}");
    assert!(pools.iter().all(|pool| pool.reserved() == 4 * MIB));
    for (number, kept) in (0..).zip(&kept) {
        for (byte, one) in (number * 8..).zip(kept) {
            let mut seen = vec![!byte; usize::try_from(one.size()).expect("small")];
            one.read(0, &mut seen).expect("in range");
            assert!(seen.iter().all(|seen| *seen == byte), "{byte} lost its bytes");
        }
    }
}

/// Bytes that move by less than their length would overwrite themselves: they go through another block, many at a time.
#[test]
fn much_that_moves_a_little_takes_few_copies() {
    let (device, copies) = counted(&device(64 * MIB), CallKind::Copy);
    let manager = Manager::with_config(device, one_lane(ManagerConfig::default().plain()));
    let pool = manager.create_pool(HEAP, PoolConfig::new().block(16 * MIB).maximum(16 * MIB));
    let pool = pool.expect("valid");
    let [_below, little, much, rest] = [MIB, 4 * KIB, 11 * MIB, 4 * MIB - 4 * KIB]
        .map(|size| pool.allocate(&Request::new(size)).expect("fits"));
    much.fill(0, 11 * MIB, 0x5A).expect("in range");
    drop((little, rest));
    let larger = pool.allocate(&Request::new(4 * MIB)).expect("when the others have moved");
    assert!((2..=8).contains(&copies.load(Relaxed)), "{copies:?}");
    larger.fill(0, 4 * MIB, 1).expect("in range");
    let mut seen = vec![0; 11 << 20];
    much.read(0, &mut seen).expect("in range");
    assert!(seen.iter().all(|byte| *byte == 0x5A));
}

/// Two thirds of each page are in use by one allocation, which fits into no hole: three pages become two. There is memory for
/// these two, and for the page more that a span at the start of a page is looked for with.
#[test]
fn pages_are_packed_where_there_is_memory_for_a_few_more() {
    let page = 64 * KIB;
    let device = heap(HeapKind::Device, 12 * page).page(Some(Align::of(page)));
    let host = Arc::new(Host::builder().heap(device).open().expect("a host device"));
    let (device, _) = counted(&host, CallKind::Copy);
    let manager = Manager::with_config(device, one_lane(ManagerConfig::default()));
    let ask = |size| manager.allocate(&Request::new(size)).expect("fits");
    let both: Vec<_> = (0..9).map(|_| (ask(42 * KIB), ask(22 * KIB))).collect();
    let kept: Vec<_> = both.into_iter().map(|(kept, _)| kept).collect();
    assert_eq!(manager.totals().reserved_bytes, 9 * page);
    assert_eq!(manager.defragment().expect("alive"), 3 * page);
    assert_eq!(manager.totals().reserved_bytes, 6 * page);
    drop(kept);
}

/// Each comes, allocates, frees and stays open: looking for closed ones among them must not cost more with each.
#[test]
fn many_open_timelines_are_asked_a_few_times_each() {
    const LINES: u64 = 600;
    let host = device(64 * MIB);
    let (device, asks) = counted(&host, CallKind::Reached);
    let manager = Manager::with_config(device, one_lane(ManagerConfig::default().plain()));
    for _ in 0..LINES {
        let line = host.open().expect("another timeline");
        drop(manager.allocate(&Request::new(MIB).on(line)).expect("fits"));
    }
    assert!(asks.load(Relaxed) < 8 * LINES, "{asks:?}");
}

/// A driver that has no more for one has no more for seven others of its size.
#[test]
fn a_recall_that_found_no_room_does_not_ask_again_for_as_much() {
    let far = heap(HeapKind::Staging, 16 * MIB).physical(1);
    let host = Host::builder().heap(heap(HeapKind::Device, 16 * MIB)).heap(far).open();
    let host = Arc::new(host.expect("a host device"));
    let refusals = Arc::new(AtomicU64::new(u64::MAX));
    let count = Arc::clone(&refusals);
    let device = asked(&host, move |call| {
        if call.kind != CallKind::Allocate || count.load(Relaxed) == u64::MAX {
            return Verdict::Forward;
        }
        count.fetch_add(1, Relaxed);
        Verdict::Refuse(ErrorKind::OutOfDeviceMemory.into())
    });
    let manager = Manager::with_config(device, one_lane(ManagerConfig::default().plain()));
    let near = manager.allocate(&Request::new(16 * MIB).heap(HEAP)).expect("fits");
    let ask = |_| manager.allocate(&Request::new(MIB).may_spill()).expect("the far heap has room");
    let spilled: Vec<_> = (0..8).map(ask).collect();
    assert!(spilled.iter().all(|one| one.heap() != HEAP));
    drop(near);
    manager.trim().expect("alive");
    refusals.store(0, Relaxed);
    assert!(manager.begin_recall(&Budget::new()).expect("alive").is_empty());
    assert!((1..=2).contains(&refusals.load(Relaxed)), "a block, or a smaller one: {refusals:?}");
    refusals.store(u64::MAX, Relaxed);
    let pass = manager.begin_recall(&Budget::new()).expect("alive");
    assert_eq!(pass.commit().expect("alive").moved.moves, 8, "there is room again");
    drop(spilled);
}

/// The largest finds no room, and the budget is for one.
#[test]
fn what_finds_no_room_costs_nothing_of_a_budget() {
    let far = heap(HeapKind::Staging, 16 * MIB).physical(1);
    let host = Host::builder().heap(heap(HeapKind::Device, 16 * MIB)).heap(far).open();
    let manager = managed(host.expect("a host device"), one_lane(ManagerConfig::default().plain()));
    let [_most, rest] =
        [15 * MIB, MIB].map(|size| manager.allocate(&Request::new(size).heap(HEAP)).expect("fits"));
    let spilled = [4 * MIB, MIB / 2]
        .map(|size| manager.allocate(&Request::new(size).may_spill()).expect("the far heap"));
    drop(rest);
    for budget in [Budget::new().moves(1), Budget::new().bytes(4 * MIB)] {
        let pass = manager.begin_recall(&budget).expect("alive");
        assert_eq!(pass.moves().map(|planned| planned.size()).collect::<Vec<_>>(), [MIB / 2]);
    }
    drop(spilled);
}

/// Memory that leaves and comes back as a whole is taken as a whole.
#[test]
fn a_pool_that_sleeps_takes_much_memory_with_one_call() {
    let (device, created) = counted(&device(4 << 30), CallKind::Create);
    let manager = Manager::with_config(device, one_lane(ManagerConfig::default()));
    let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable()).expect("there are pages");
    drop(pool.allocate(&Request::new(MIB)).expect("fits"));
    assert_eq!((created.load(Relaxed), pool.reserved()), (1, 32 * MIB));
    drop(pool.allocate(&Request::new(64 * MIB)).expect("fits"));
    assert_eq!(pool.reserved() % (32 * MIB), 0, "whole groups");
    assert!(created.load(Relaxed) <= 3, "{created:?}");
}

/// Three quarters of each page are in use: four pages become three, which they fill to the last byte.
#[test]
fn pages_are_packed_to_the_last_byte() {
    let page = 64 * KIB;
    let device = heap(HeapKind::Device, 4 * MIB).page(Some(Align::of(page)));
    let host = Host::builder().heap(device).open().expect("a host device");
    let manager = managed(host, one_lane(ManagerConfig::default()));
    let ask = |size| manager.allocate(&Request::new(size)).expect("fits");
    let both: Vec<_> = (0..4).map(|_| (ask(48 * KIB), ask(16 * KIB))).collect();
    let kept: Vec<_> = both.into_iter().map(|(kept, _)| kept).collect();
    assert_eq!(manager.defragment().expect("alive"), page);
    let totals = manager.totals();
    assert_eq!((totals.reserved_bytes, totals.free_bytes), (3 * page, 0));
    drop(kept);
}

/// Four blocks hold a quarter of their bytes each; the request needs as much as two of them.
#[test]
fn a_request_moves_no_more_than_it_needs() {
    let manager = managed(device(16 * MIB), one_lane(ManagerConfig::default().plain()));
    let ask = |size| manager.allocate(&Request::new(size)).expect("fits");
    let all: Vec<_> = (0..16).map(|_| ask(MIB)).collect();
    let kept: Vec<_> = all.into_iter().step_by(4).collect();
    assert_eq!(manager.totals().reserved_bytes, 16 * MIB);
    let large = ask(8 * MIB);
    assert_eq!(manager.report().defragmentation.moves, 2);
    drop((kept, large));
}

/// Two heaps: the near one is full, and something lies in the far one that would rather be there.
fn spilled(config: ManagerConfig) -> (Managed, Vec<Allocation<Asked>>, Allocation<Asked>) {
    let far = heap(HeapKind::Staging, 16 * MIB).physical(1);
    let host = Host::builder().heap(heap(HeapKind::Device, 16 * MIB)).heap(far).open();
    let manager = managed(host.expect("a host device"), one_lane(config));
    let full = |_| manager.allocate(&Request::new(4 * MIB).heap(HEAP)).expect("fits");
    let near = (0..4).map(full).collect();
    let one = manager.allocate(&Request::new(MIB).may_spill()).expect("the far heap has room");
    (manager, near, one)
}

/// Recalls to memory that the heap holds, and to memory that the driver gives.
#[test]
fn a_recall_that_is_given_up_leaves_both_heaps_as_they_were() {
    for config in [ManagerConfig::default(), ManagerConfig::default().plain()] {
        for trims in [false, true] {
            let (manager, mut near, one) = spilled(config.clone());
            near.truncate(1);
            if trims {
                manager.trim().expect("alive");
            }
            let before = manager.totals();
            let mut pass = manager.begin_recall(&Budget::new()).expect("alive");
            assert_eq!(pass.moves().len(), 1);
            pass.start().expect("alive");
            drop(pass);
            assert_eq!(manager.totals(), before);
            drop((near, one));
        }
    }
}

/// More than a pass looks at under one lock.
#[test]
fn many_that_spilled_come_back_together() {
    const MANY: u64 = 6000;
    let (manager, near, _one) = spilled(ManagerConfig::default().plain());
    let ask = |_| manager.allocate(&Request::new(KIB).may_spill()).expect("the far heap has room");
    let all: Vec<_> = (0..MANY).map(ask).collect();
    drop(near);
    let pass = manager.begin_recall(&Budget::new()).expect("alive");
    assert_eq!(pass.commit().expect("alive").moved.moves, MANY + 1);
    assert!(all.iter().all(|one| one.heap() == HEAP));
}

/// A hundred allocations on two timelines.
#[test]
fn a_pool_that_falls_asleep_waits_for_each_timeline_once() {
    let host = device(1 << 30);
    let (device, marks) = counted(&host, CallKind::Mark);
    let manager = Manager::with_config(device, one_lane(ManagerConfig::default()));
    let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable()).expect("there are pages");
    let lines = [(); 2].map(|()| host.open().expect("another timeline"));
    let ask = |n: usize| pool.allocate(&Request::new(4096).on(lines[n % 2])).expect("fits");
    let all: Vec<_> = (0..100).map(ask).collect();
    let before = marks.load(Relaxed);
    pool.sleep(&Sleep::to(Arc::new(Store::default()))).expect("nothing is pinned");
    assert!(marks.load(Relaxed) - before <= 8, "{marks:?}");
    pool.wake(&Wake::all()).expect("there is room");
    drop(all);
}

/// Every other page is free, after the driver had no more: they serve a request as they are.
#[test]
fn a_request_that_free_pages_serve_asks_the_driver_for_none() {
    let page = 64 * KIB;
    let about = heap(HeapKind::Device, 16 * page).page(Some(Align::of(page)));
    let host = Arc::new(Host::builder().heap(about).open().expect("a host device"));
    let (device, created) = counted(&host, CallKind::Create);
    let manager = Manager::with_config(device, one_lane(ManagerConfig::default()));
    let ask = |size| manager.allocate(&Request::new(size));
    let all: Vec<_> = (0..16).map(|_| ask(page).expect("fits")).collect();
    assert!(ask(page).is_err(), "it is full");
    let before = created.load(Relaxed);
    let kept: Vec<_> = all.into_iter().step_by(2).collect();
    let large = ask(6 * page).expect("as much is free");
    assert_eq!((created.load(Relaxed), manager.report().defragmentation.moves), (before, 0));
    drop((kept, large));
}

/// Their alignment leaves gaps between those that are packed side by side: these are holes like others.
#[test]
fn gaps_between_what_is_packed_are_free() {
    let page = 64 * KIB;
    let about = heap(HeapKind::Device, 4 * MIB).page(Some(Align::of(page)));
    let host = Host::builder().heap(about).open().expect("a host device");
    let manager = managed(host, one_lane(ManagerConfig::default()));
    let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable()).expect("there are pages");
    let request = |size| Request::new(size).align(Align::of(4096));
    let ask = |size| pool.allocate(&request(size)).expect("fits");
    let both: Vec<_> = (0..9).map(|_| (ask(40 * KIB + 256), ask(16 * KIB))).collect();
    let kept: Vec<_> = both.into_iter().map(|(kept, _)| kept).collect();
    assert!(manager.defragment().expect("alive") > 0);
    let totals = manager.totals();
    assert_eq!(totals.reserved_bytes, totals.granted_bytes + totals.free_bytes);
    pool.sleep(&Sleep::to(Arc::new(Store::default()))).expect("no move holds anything");
    drop(kept);
}

/// The smallest block that will do is just what the heap may still take.
#[test]
fn a_recall_takes_all_that_a_heap_may_have() {
    let far = heap(HeapKind::Staging, 16 * MIB).physical(1);
    let host = Host::builder().heap(heap(HeapKind::Device, 16 * MIB)).heap(far).open();
    let manager = managed(host.expect("a host device"), one_lane(ManagerConfig::default().plain()));
    let [_most, rest] = [14 * MIB, 2 * MIB]
        .map(|size| manager.allocate(&Request::new(size).heap(HEAP).dedicated()).expect("fits"));
    let one = manager.allocate(&Request::new(MIB).may_spill()).expect("the far heap has room");
    drop(rest);
    manager.set_budget(HEAP, Limits { soft: 16 * MIB, hard: 16 * MIB }).expect("it is there");
    assert_eq!(manager.heap_use(HEAP).expect("there").reserved, 14 * MIB);
    let pass = manager.begin_recall(&Budget::new()).expect("alive");
    assert_eq!(pass.commit().expect("alive").moved.moves, 1);
    assert_eq!(one.heap(), HEAP);
}

/// Those that are aligned more strictly lie side by side, so that nothing is lost before them.
#[test]
fn what_is_aligned_and_what_is_not_are_packed_apart() {
    let page = 64 * KIB;
    let about = heap(HeapKind::Device, 4 * MIB).page(Some(Align::of(page)));
    let host = Host::builder().heap(about).open().expect("a host device");
    let manager = managed(host, one_lane(ManagerConfig::default()));
    let ask = |request: Request<'_>| manager.allocate(&request).expect("fits");
    let mut both = Vec::new();
    for _ in 0..5 {
        both.push((
            ask(Request::new(40 * KIB).align(Align::of(4096))),
            ask(Request::new(24 * KIB)),
        ));
        both.push((ask(Request::new(36 * KIB + 256)), ask(Request::new(28 * KIB - 256))));
    }
    let kept: Vec<_> = both.into_iter().map(|(kept, _)| kept).collect();
    assert_eq!(manager.totals().reserved_bytes, 10 * page);
    manager.defragment().expect("alive");
    assert_eq!(manager.totals().reserved_bytes, 6 * page);
    drop(kept);
}

/// A pool that keeps some pages for itself, in no place.
#[test]
fn a_pool_that_ends_returns_the_pages_that_it_kept() {
    let (made, gone) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let counts = [Arc::clone(&made), Arc::clone(&gone)];
    let device = asked(&device(64 * MIB), move |call| {
        match call.kind {
            CallKind::Create => counts[0].fetch_add(call.count, Relaxed),
            CallKind::Destroy => counts[1].fetch_add(call.count, Relaxed),
            _ => 0,
        };
        Verdict::Forward
    });
    let manager = Manager::with_config(device, one_lane(ManagerConfig::default()));
    let config = PoolConfig::new().paged().minimum(8 * MIB);
    let pool = manager.create_pool(HEAP, config).expect("valid");
    drop(pool.allocate(&Request::new(16 * MIB)).expect("fits"));
    manager.trim().expect("alive");
    assert_eq!(pool.reserved(), 8 * MIB);
    drop(pool);
    drop(manager);
    assert!(made.load(Relaxed) > 0);
    assert_eq!(made.load(Relaxed), gone.load(Relaxed), "pages");
}

/// The resized allocation is another one, and wishes for the same heap.
#[test]
fn what_spilled_and_was_resized_comes_back() {
    let (manager, near, one) = spilled(ManagerConfig::default().plain());
    let resized = manager.resize(one, 2 * MIB).map_err(|refused| refused.error);
    let one = resized.expect("the far heap has room");
    assert_ne!(one.heap(), HEAP);
    drop(near);
    let pass = manager.begin_recall(&Budget::new()).expect("alive");
    assert_eq!(pass.commit().expect("alive").moved.moves, 1);
    assert_eq!(one.heap(), HEAP);
}

/// A recalled allocation waits for its own timeline when it is freed; the next one in its slot lies where it was
/// allocated.
#[test]
fn the_slot_of_what_came_back_is_like_any_other_afterwards() {
    let far = heap(HeapKind::Device, 16 * MIB).physical(1);
    let host = Host::builder().heap(heap(HeapKind::Device, 16 * MIB)).heap(far).open();
    let host = Arc::new(host.expect("a host device"));
    let manager = managed(Arc::clone(&host), one_lane(ManagerConfig::default().plain()));
    let near = manager.allocate(&Request::new(16 * MIB).heap(HEAP)).expect("fits");
    let one = manager.allocate(&Request::new(MIB).name("first")).expect("fits");
    assert_eq!(one.heap(), HeapId(1), "the first heap is full");
    let id = one.id();
    drop(near);
    let pass = manager.begin_recall(&Budget::new()).expect("alive");
    assert_eq!(pass.commit().expect("alive").moved.moves, 1);
    drop(one);
    manager.retire().expect("alive");
    assert_eq!(manager.totals().live, 0);
    let line = host.open().expect("another timeline");
    let held = host.hold(line).expect("it is open");
    let request = Request::new(MIB).heap(HeapId(1)).name("second").on(line);
    let next = manager.allocate(&request).expect("fits");
    assert_eq!((next.id().lane(), next.id().slot()), (id.lane(), id.slot()), "the same slot");
    assert_eq!(next.heap(), HeapId(1));
    drop(next);
    assert_eq!(manager.totals().live, 0, "it waits for nobody");
    drop(held);
}
