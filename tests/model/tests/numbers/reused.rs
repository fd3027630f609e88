//! Bytes and slots that are used again: as soon as may be, and with nothing of those who had them before.
use super::before::{Asked, asked};
use super::{HEAP, MIB, Managed, device, managed};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use omniheap_core::{
    Align, Allocation, AllocationId, BackingStore, Epoch, ErrorKind, Event, GetPiece, HeapKind,
    Manager, ManagerConfig, Observer, Point, PoolConfig, Privacy, PutPiece, Request, Result, Rung,
    Sleep, SpanState, StoreKind, TimelineId, Timelines, Usage, Uses, Wake,
};
use omniheap_host::{Hold, Host, heap};
use omniheap_layers::{CallKind, Verdict};
use omniheap_model::Store;
use std::sync::{Arc, Mutex};

fn manager(host: &Arc<Host>) -> Managed {
    let mut config = ManagerConfig::default().plain();
    config.pool.lanes = Some(1);
    managed(Arc::clone(host), config)
}

fn ask(manager: &Manager<Asked>, size: u64, on: TimelineId) -> Allocation<Asked> {
    manager.allocate(&Request::new(size).on(on)).expect("there is room")
}

fn reserved(manager: &Manager<Asked>) -> u64 {
    manager.heap_use(HEAP).expect("it is there").reserved
}

/// Waits until a timeline has done what it was given so far.
fn wait(host: &Host, timeline: TimelineId) {
    let epoch = host.mark(timeline).expect("it is open");
    host.wait(Point { timeline, epoch }).expect("it is open");
}

/// One timeline has freed and is behind; another freed last, and has passed.
#[test]
fn what_has_passed_is_used_while_another_timeline_is_behind() {
    let host = device(256 * MIB);
    let manager = manager(&host);
    let [behind, passed, next] = [(); 3].map(|()| host.open().expect("another timeline"));
    let slow = ask(&manager, 3 * MIB, behind);
    let quick = ask(&manager, 8 * MIB, passed);
    let place = quick.binding().span();
    let held = host.hold(behind).expect("it is open");
    slow.fill(0, MIB, 1).expect("in range");
    drop(slow);
    drop(quick);
    wait(&host, passed);
    let before = reserved(&manager);
    let again = ask(&manager, 8 * MIB, next);
    assert_eq!((again.binding().span(), reserved(&manager)), (place, before));
    drop(held);
}

/// A timeline that always has more to do passes what it had to do before all the same.
#[test]
fn what_was_freed_goes_back_though_its_timeline_goes_on() {
    let host = device(256 * MIB);
    let manager = manager(&host);
    let line = host.open().expect("another timeline");
    let mut ahead = host.hold(line).expect("it is open");
    for round in 0..4 {
        drop(ask(&manager, 8 * MIB, line));
        assert_eq!(manager.trim().expect("alive"), 0, "round {round}: it is in use");
        let epoch = host.mark(line).expect("it is open");
        let next = host.hold(line).expect("it is open");
        drop(core::mem::replace(&mut ahead, next));
        host.wait(Point { timeline: line, epoch }).expect("it is open");
        assert_eq!(manager.trim().expect("alive"), 8 * MIB, "round {round}: it has passed");
    }
}

/// The first that waits, for a point that everything has passed.
#[test]
fn what_waits_for_the_start_of_a_timeline_is_free() {
    let host = device(64 * MIB);
    let manager = manager(&host);
    for timeline in [TimelineId::MAIN, host.open().expect("another timeline")] {
        let one = manager.allocate(&Request::new(MIB)).expect("fits");
        one.free_after(Point { timeline, epoch: Epoch::START });
        manager.retire().expect("alive");
        assert_eq!(manager.totals().live, 0);
    }
}

/// Everything that can be noted about an allocation ends with it.
#[test]
fn a_new_allocation_inherits_nothing_from_the_one_that_had_its_slot() {
    let host = device(64 * MIB);
    let manager = manager(&host);
    let line = host.open().expect("another timeline");
    let request = Request::new(4096);
    let first = request.name("first").align(Align::of(4096));
    for kind in 0..5 {
        let old = match kind {
            0 => manager.allocate(&first.secret()),
            1 => manager.allocate(&first.moved_on_consent()),
            2 => manager.allocate(&first.pinned()),
            3 => manager.allocate(&first.dedicated()),
            _ => manager.allocate(&first),
        };
        let old = old.expect("fits");
        let slot = old.id().slot();
        old.use_on(line).expect("it is open");
        drop(old);
        wait(&host, TimelineId::MAIN);
        wait(&host, line);
        manager.retire().expect("alive");
        let held = host.hold(line).expect("it is open");
        for request in [request, request.name("second")] {
            let new = manager.allocate(&request).expect("fits");
            assert_eq!(new.id().slot(), slot, "kind {kind}");
            let report = manager.report();
            let mut spans =
                report.pools.iter().flat_map(|pool| &pool.blocks).flat_map(|block| &block.live);
            let span = spans.next().expect("it lives");
            assert_eq!(span.name.as_deref(), request.name, "kind {kind}");
            assert_eq!(span.state, SpanState::Movable, "kind {kind}");
            drop(new);
            assert_eq!(manager.totals().live, 0, "kind {kind}: it waits for nobody");
        }
        drop(held);
    }
}

/// The zeros that end a secret come in its timeline's order, and the host writes in no order at all.
#[test]
fn the_host_gets_the_bytes_of_a_secret_after_they_were_zeroed() {
    let host = Host::builder().heap(heap(HeapKind::Unified, 16 * MIB)).open();
    let host = Arc::new(host.expect("a host device"));
    let manager = manager(&host);
    let line = host.open().expect("another timeline");
    let upload = Request::new(64 << 10).usage(Usage::Upload).on(line);
    let secret = manager.allocate(&upload.secret()).expect("fits");
    let held = host.hold(line).expect("it is open");
    drop(secret);
    let next = manager.allocate(&upload).expect("there is room elsewhere");
    let bytes = vec![7; 64 << 10];
    next.map().and_then(|view| view.write(0, &bytes)).expect("the host sees it");
    drop(held);
    wait(&host, line);
    let mut seen = vec![0; 64 << 10];
    next.map().and_then(|view| view.read(0, &mut seen)).expect("the host sees it");
    assert!(seen == bytes, "zeros came over it");
}

/// Anybody may use the bytes, and the device cannot mark what everybody does: who must have them waits until it is idle, and who
/// need not does not.
#[test]
fn bytes_that_anybody_may_use_are_waited_for_where_they_are_needed() {
    let host = device(16 * MIB);
    let held: Arc<Mutex<Option<Hold>>> = Arc::default();
    let let_go = Arc::clone(&held);
    let device = asked(&host, move |call| match call.kind {
        CallKind::Mark if call.timeline == Some(TimelineId::ALL) => {
            Verdict::Refuse(ErrorKind::NoSuchTimeline.into())
        }
        CallKind::WaitIdle => {
            drop(let_go.lock().expect("no panic").take());
            Verdict::Forward
        }
        _ => Verdict::Forward,
    });
    let mut config = ManagerConfig::default().plain();
    (config.pool.lanes, config.pool.uses) = (Some(1), Uses::Undeclared);
    let manager = Manager::with_config(device, config);
    let line = host.open().expect("another timeline");
    let old = ask(&manager, 12 * MIB, line);
    *held.lock().expect("no panic") = Some(host.hold(line).expect("it is open"));
    old.fill(0, MIB, 1).expect("in range");
    drop(old);
    assert_eq!(manager.trim().expect("alive"), 0, "it may be in use");
    assert!(held.lock().expect("no panic").is_some(), "a trim waits for nobody");
    drop(ask(&manager, 12 * MIB, TimelineId::MAIN));
    assert!(held.lock().expect("no panic").is_none(), "it had to wait");
}

/// An allocation that dies while its pool sleeps needs no memory when it wakes, whoever used it.
#[test]
fn a_pool_wakes_with_the_memory_of_what_lives() {
    let page = 64 << 10;
    let about = heap(HeapKind::Device, 64 * MIB).page(Some(Align::of(page)));
    let host = Arc::new(Host::builder().heap(about).open().expect("a host device"));
    let manager = managed(Arc::clone(&host), ManagerConfig::default());
    let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable()).expect("there are pages");
    let lines = [(); 2].map(|()| host.open().expect("another timeline"));
    let request = Request::new(page * 3 / 2);
    let mut all: Vec<_> =
        (0..16).map(|n| pool.allocate(&request.on(lines[n % 2])).expect("fits")).collect();
    assert_eq!(pool.reserved(), 24 * page);
    pool.sleep(&Sleep::to(Arc::new(Store::default()))).expect("nothing is pinned");
    all.truncate(2);
    pool.wake(&Wake::all()).expect("there is room");
    assert_eq!(pool.reserved(), 3 * page);
    manager.validate().expect("sound");
}

/// Keeps nothing.
#[derive(Debug)]
struct Nothing;

impl BackingStore for Nothing {
    fn put(&self, _: AllocationId, _: u64, _: Privacy, _: &mut PutPiece<'_>) -> Result<()> {
        panic!("it is never asked")
    }

    fn get(&self, _: AllocationId, _: &mut GetPiece<'_>) -> Result<()> {
        panic!("it is never asked")
    }

    fn forget(&self, _: AllocationId) {
        panic!("it is never asked")
    }

    fn kind(&self) -> StoreKind {
        StoreKind::Nothing
    }
}

#[test]
fn bytes_that_nobody_keeps_wake_up_zeroed() {
    let manager = managed(device(64 * MIB), ManagerConfig::default());
    let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable()).expect("there are pages");
    let some = [1000, 70_000].map(|size| pool.allocate(&Request::new(size)).expect("fits"));
    some.iter().for_each(|one| one.fill(0, one.size(), 9).expect("in range"));
    pool.sleep(&Sleep::to(Arc::new(Nothing))).expect("nothing is pinned");
    pool.wake(&Wake::all()).expect("there is room");
    for one in &some {
        let mut seen = vec![1; usize::try_from(one.size()).expect("small")];
        one.read(0, &mut seen).expect("in range");
        assert!(seen.iter().all(|byte| *byte == 0));
    }
}

/// The live bytes are in two places, and there is memory for one.
#[test]
fn a_pool_that_cannot_wake_gives_back_what_it_got() {
    let page = 64 << 10;
    let about = heap(HeapKind::Device, 8 * MIB).page(Some(Align::of(page)));
    let host = Arc::new(Host::builder().heap(about).open().expect("a host device"));
    let manager = managed(Arc::clone(&host), ManagerConfig::default());
    let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable()).expect("there are pages");
    let ask = |size| pool.allocate(&Request::new(size)).expect("fits");
    let [first, between, last] = [2 * MIB, MIB, 3 * MIB].map(ask);
    first.fill(0, 2 * MIB, 1).expect("in range");
    last.fill(0, 3 * MIB, 2).expect("in range");
    pool.sleep(&Sleep::to(Arc::new(Store::default()))).expect("nothing is pinned");
    drop(between);
    let full = manager.allocate(&Request::new(5 * MIB).dedicated()).expect("fits");
    assert!(pool.wake(&Wake::all()).expect_err("no room for both").kind().is_out_of_memory());
    assert_eq!(pool.reserved(), 0, "it holds nothing while it sleeps");
    drop(full);
    pool.wake(&Wake::all()).expect("there is room");
    for (one, byte) in [(&first, 1), (&last, 2)] {
        let mut seen = vec![0; usize::try_from(one.size()).expect("small")];
        one.read(0, &mut seen).expect("in range");
        assert!(seen.iter().all(|seen| *seen == byte));
    }
}

/// A timeline runs after one for what that had freed until then, and after another for all of it; a hole is of the first and of a
/// third, after which it does not run.
#[test]
fn who_runs_after_some_does_not_get_what_others_use() {
    let host = device(1 << 30);
    let orders = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&orders);
    let device = asked(&host, move |call| {
        if call.kind == CallKind::Order {
            seen.lock().expect("no panic").extend(call.point.map(|point| point.timeline));
        }
        Verdict::Forward
    });
    let mut config = ManagerConfig::default().plain();
    (config.pool.lanes, config.pool.block) = (Some(1), Some(100 * MIB));
    let manager = Manager::with_config(device, config);
    let [one, two, three, asks] = [(); 4].map(|()| host.open().expect("another timeline"));
    let ask = |size, on| ask(&manager, size * MIB, on);
    let ordered = || core::mem::take(&mut *orders.lock().expect("no panic"));
    // Four blocks, and all of them are full.
    let both = (ask(45, one), ask(45, two), ask(10, asks));
    let first = ask(100, one);
    let (again, _rest) = (ask(30, one), ask(70, asks));
    let other = ask(100, three);
    let held = [one, two, three].map(|line| host.hold(line).expect("it is open"));
    let (left, right, _between) = both;
    drop((left, right, first));
    let _taken = ask(100, asks);
    assert_eq!(ordered(), [one]);
    drop((again, other));
    let _more = ask(100, asks);
    assert_eq!(ordered(), [three]);
    let _several = ask(90, asks);
    assert_eq!(ordered(), [two], "one of those who used it is still to come");
    assert_eq!(reserved(&manager), 400 * MIB);
    drop(held);
}

/// Some was freed before a timeline was looked at, and some after: who needs all of it waits for all.
#[test]
fn a_shortage_waits_also_for_what_was_freed_since_a_timeline_was_looked_at() {
    let host = device(16 * MIB);
    let held: Arc<Mutex<Vec<Hold>>> = Arc::default();
    let let_go = Arc::clone(&held);
    let device = asked(&host, move |call| {
        if matches!(call.kind, CallKind::Wait | CallKind::WaitIdle) {
            let mut held = let_go.lock().expect("no panic");
            let first = (!held.is_empty()).then(|| held.remove(0));
            drop(first);
        }
        Verdict::Forward
    });
    let mut config = ManagerConfig::default().plain();
    (config.pool.lanes, config.pool.block) = (Some(1), Some(16 * MIB));
    let manager = Manager::with_config(device, config);
    let line = host.open().expect("another timeline");
    let [first, second] = [8, 8].map(|size| ask(&manager, size * MIB, line));
    let hold = || held.lock().expect("no panic").push(host.hold(line).expect("it is open"));
    hold();
    drop(first);
    assert_eq!(manager.trim().expect("alive"), 0, "it is looked at");
    hold();
    drop(second);
    let all = manager.allocate(&Request::new(16 * MIB));
    assert!(all.is_ok(), "{all:?}");
}

/// Counts what can be used again.
#[derive(Debug, Default)]
struct Freed(AtomicU64);

impl Observer for Freed {
    fn observe(&self, event: &Event<'_>) {
        self.0.fetch_add(u64::from(matches!(event, Event::Free { .. })), Relaxed);
    }
}

/// The request runs after a timeline for which the bytes waited, and has them at once.
#[test]
fn an_observer_is_told_of_bytes_that_are_used_again_in_order() {
    let host = device(4 << 30);
    let freed = Arc::new(Freed::default());
    let mut config = ManagerConfig::default().plain().observed(Arc::<Freed>::clone(&freed));
    config.pool.lanes = Some(1);
    let manager = managed(Arc::clone(&host), config);
    let other = host.open().expect("another timeline");
    let old = ask(&manager, 160 * MIB, TimelineId::MAIN);
    let held = host.hold(other).expect("it is open");
    old.use_on(other).expect("it is open");
    drop(old);
    assert_eq!(freed.0.load(Relaxed), 0, "it may be in use");
    let new = ask(&manager, 160 * MIB, TimelineId::MAIN);
    assert_eq!(manager.report().rungs[Rung::Order as usize], 1, "it was taken in order");
    assert_eq!(freed.0.load(Relaxed), 1);
    drop(new);
    assert_eq!(freed.0.load(Relaxed), 2);
    drop(held);
}

/// There are holes of every kind, and none of them has memory.
#[test]
fn a_pool_that_sleeps_serves_nobody() {
    let host = device(64 * MIB);
    let manager = managed(Arc::clone(&host), ManagerConfig::default());
    let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable()).expect("there are pages");
    let line = host.open().expect("another timeline");
    let requests = [Request::new(4096), Request::new(4096).on(line), Request::new(4096).no_grow()];
    let requests =
        [requests[0], requests[1], requests[2], Request::new(MIB), requests[0].name("n")];
    let some = requests.map(|request| pool.allocate(&request).expect("fits"));
    let _kept = some.into_iter().step_by(2).collect::<Vec<_>>();
    pool.sleep(&Sleep::to(Arc::new(Store::default()))).expect("nothing is pinned");
    let before = manager.totals();
    for request in requests {
        let refused = pool.allocate(&request).expect_err("it sleeps").kind();
        assert_eq!(refused, ErrorKind::Asleep, "{request:?}");
    }
    assert_eq!((manager.totals(), pool.reserved()), (before, 0), "nothing has changed");
    pool.wake(&Wake::all()).expect("there is room");
    for request in requests {
        assert!(pool.allocate(&request).is_ok(), "it is awake: {request:?}");
    }
}
