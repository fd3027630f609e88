//! Bytes and slots that are used again: as soon as may be, and with nothing of those who had them before.
use super::before::Asked;
use super::managed;
use omniheap_core::{
    Align, Allocation, Epoch, HeapId, HeapKind, Manager, ManagerConfig, Point, Request, SpanState,
    TimelineId, Timelines,
};
use omniheap_host::{Host, heap};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const HEAP: HeapId = HeapId(0);

fn device(size: u64) -> Arc<Host> {
    Arc::new(Host::builder().heap(heap(HeapKind::Device, size)).open().expect("a host device"))
}

fn manager(host: &Arc<Host>) -> Manager<Asked> {
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
