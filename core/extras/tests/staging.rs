//! The staging ring: what it refuses, what threads may do with it, and what a failing driver leaves of it.
use omniheap_core::{
    Allocation, Backend, ErrorKind, HeapKind, InsideBlock, Manager, Request, TimelineId, Timelines,
    Usage,
};
use omniheap_extras::Staging;
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Fault, Plan};
use std::sync::Arc;
use std::thread;

const MAIN: TimelineId = TimelineId::MAIN;
const KIB: u64 = 1 << 10;

fn bytes<B: Backend>(of: &Allocation<B>) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(of.size()).expect("small")];
    of.read(0, &mut bytes).expect("inside");
    bytes
}

fn stamp(n: u8, size: u64) -> Vec<u8> {
    vec![n; usize::try_from(size).expect("small")]
}

#[test]
fn published_bytes_and_those_of_others_are_refused() {
    let (mine, other) = (Manager::new(Host::new()), Manager::new(Host::new()));
    let ring = Staging::new(&mine, 64 * KIB).expect("host memory");
    let (a, b) = (mine.allocate(&Request::new(KIB)), other.allocate(&Request::new(KIB)));
    let (a, b) = (a.expect("small"), b.expect("small"));
    a.fill(0, KIB, 7).expect("inside");
    a.publish().expect("nothing fails");
    let kind = |done: omniheap_core::Result<()>| done.err().map(|error| error.kind());
    assert_eq!(kind(ring.upload(MAIN, &a, 0, &stamp(9, KIB))), Some(ErrorKind::Published));
    assert_eq!(kind(ring.upload(MAIN, &b, 0, &stamp(9, KIB))), Some(ErrorKind::Foreign));
    let mut seen = stamp(0, KIB);
    assert_eq!(kind(ring.read_back(MAIN, &b, 0, &mut seen)), Some(ErrorKind::Foreign));
    ring.read_back(MAIN, &a, 0, &mut seen).expect("published bytes are read");
    assert_eq!((seen, bytes(&a)), (stamp(7, KIB), stamp(7, KIB)));
}

/// Memory that spilled beside the ring is reached even where a device forbids copies inside a block.
#[test]
fn what_spilled_into_the_heap_of_the_ring_is_uploaded_and_read() {
    let host = Host::builder()
        .heap(heap(HeapKind::Device, 1 << 20))
        .heap(heap(HeapKind::Staging, 1 << 20))
        .inside_block(InsideBlock::Forbidden);
    let manager = Manager::new(host.open().expect("host memory"));
    let ring = Staging::new(&manager, 4 * KIB).expect("host memory");
    let spilled = manager.allocate(&Request::new(KIB).usage(Usage::Upload)).expect("small");
    ring.upload(MAIN, &spilled, 0, &stamp(5, KIB)).expect("the ring has a block of its own");
    let mut seen = stamp(0, KIB);
    ring.read_back(MAIN, &spilled, 0, &mut seen).expect("the ring has a block of its own");
    assert_eq!(seen, stamp(5, KIB));
}

/// Reads of one thread beside writes and reads of others through one small ring: each sees its own bytes, and none is told
/// that the ring is full.
#[test]
fn threads_share_a_ring_and_see_their_own_bytes() {
    let manager = Manager::new(Host::new());
    let ring = Staging::new(&manager, 4 * KIB).expect("host memory");
    thread::scope(|scope| {
        for n in 1..=6 {
            let (manager, ring) = (&manager, &ring);
            scope.spawn(move || {
                let mine = manager.allocate(&Request::new(KIB)).expect("small");
                let mut seen = stamp(0, KIB);
                for _ in 0..2000 {
                    ring.upload(MAIN, &mine, 0, &stamp(n, KIB)).expect("a full ring waits");
                    ring.read_back(MAIN, &mine, 0, &mut seen).expect("a full ring waits");
                    assert_eq!(seen, stamp(n, KIB), "another thread's bytes");
                }
            });
        }
    });
}

type Failing = Fault<Arc<Host>>;

/// Returns a ring over a driver that fails on demand, whose timeline a test holds back.
fn failing() -> (Arc<Host>, Manager<Failing>, Staging<Failing>) {
    let host = Arc::new(Host::new());
    let manager = Manager::new(Fault::new(Arc::clone(&host)));
    let ring = Staging::new(&manager, 4 * KIB).expect("host memory");
    (host, manager, ring)
}

/// Plans of [`Plan::Kind`] pick among the answers of a kind: this one is not the loss of the device.
const DRIVER: usize = 1;

#[test]
fn a_piece_is_not_used_again_before_its_copy_has_passed_though_a_wait_fails() {
    let (host, manager, ring) = failing();
    let line = host.open().expect("a timeline");
    let target = manager.allocate(&Request::new(4 * KIB).on(line)).expect("small");
    let held = host.hold(line).expect("open");
    ring.upload(line, &target, 0, &stamp(1, 4 * KIB)).expect("four pieces fill the ring");
    let other = manager.allocate(&Request::new(KIB)).expect("small");
    manager.backend().inject(Plan::Kind(CallKind::Wait, 0), DRIVER);
    let refused = ring.upload(MAIN, &other, 0, &stamp(2, KIB)).expect_err("the wait fails");
    assert_eq!(refused.kind(), ErrorKind::Driver);
    // With the piece free again this would write over bytes that the held copy has yet to read.
    manager.backend().inject(Plan::Kind(CallKind::Wait, 0), DRIVER);
    ring.upload(MAIN, &other, 0, &stamp(3, KIB)).expect_err("still not free");
    manager.backend().inject(Plan::Never, 0);
    drop(held);
    ring.upload(MAIN, &other, 0, &stamp(4, KIB)).expect("the driver is well again");
    ring.drain().expect("all arrive");
    assert_eq!((bytes(&target), bytes(&other)), (stamp(1, 4 * KIB), stamp(4, KIB)));
}

#[test]
fn failing_calls_cost_no_piece_of_the_ring() {
    let (_, manager, ring) = failing();
    let target = manager.allocate(&Request::new(KIB)).expect("small");
    let mut seen = stamp(0, KIB);
    for kind in [CallKind::Map, CallKind::Copy, CallKind::Mark, CallKind::Wait] {
        for _ in 0..8 {
            manager.backend().inject(Plan::Kind(kind, 0), DRIVER);
            let _ = ring.upload(MAIN, &target, 0, &stamp(1, KIB));
            manager.backend().inject(Plan::Kind(kind, 0), DRIVER);
            let _ = ring.read_back(MAIN, &target, 0, &mut seen);
        }
        manager.backend().inject(Plan::Never, 0);
        for n in 0..8 {
            ring.upload(MAIN, &target, 0, &stamp(n, KIB)).expect("the ring has room");
            ring.read_back(MAIN, &target, 0, &mut seen).expect("and again");
            assert_eq!(seen, stamp(n, KIB), "after {kind:?}");
        }
    }
}

#[test]
fn a_closed_timeline_leaves_no_piece_behind() {
    let (host, manager, ring) = failing();
    let target = manager.allocate(&Request::new(4 * KIB)).expect("small");
    for n in 0..3 {
        let line = host.open().expect("a timeline");
        ring.upload(line, &target, 0, &stamp(n, 4 * KIB)).expect("fits");
        host.close(line).expect("waits for its work");
        assert_eq!(bytes(&target), stamp(n, 4 * KIB));
    }
    ring.drain().expect("everything has arrived");
}

/// The copy out of the allocation is still to come when the call fails.
#[test]
fn what_a_failed_read_back_may_still_read_is_kept() {
    let (host, manager, ring) = failing();
    let line = host.open().expect("a timeline");
    let one = manager.allocate(&Request::new(KIB).dedicated()).expect("small");
    one.fill(0, KIB, 7).expect("inside");
    let held = host.hold(line).expect("open");
    // The copy is made; its mark fails, and so does the wait for the device.
    manager.backend().inject(Plan::Pair(1, 2), DRIVER);
    let refused = ring.read_back(line, &one, 0, &mut stamp(0, KIB)).expect_err("two calls fail");
    assert_eq!((refused.kind(), manager.backend().injected()), (ErrorKind::Driver, 2));
    manager.backend().inject(Plan::Never, 0);
    drop(one);
    assert_eq!(manager.report().quarantined_bytes, 0, "its block was freed under the copy");
    drop(held);
    host.wait_idle().expect("alive");
    manager.retire().expect("alive");
    assert_eq!((manager.totals().live, manager.report().quarantined_bytes), (1, 0));
}
