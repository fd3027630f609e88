//! Pools and managers that end while the device cannot be waited for, as during a capture: what work may still use stays.
use super::before::{Asked, asked};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use omniheap_core::{
    Allocation, Backend, DriverBudget, ErrorKind, HeapId, HeapKind, Manager, ManagerConfig,
    PoolConfig, Request, TimelineId, Timelines, UserPool,
};
use omniheap_host::{Hold, Host, heap};
use omniheap_layers::{CallKind, Verdict};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const DEVICE: HeapId = HeapId(0);

/// Waits that a device refuses while its work is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refuses {
    /// To be waited for as a whole.
    Idle,
    /// Every wait.
    Waits,
}

/// True while the device refuses to be waited for, and the number of things that it was told to take back meanwhile.
#[derive(Default)]
struct Capture {
    is_on: AtomicBool,
    given_up: AtomicU64,
}

/// A device that is as busy as one whose work is captured, for as long as the capture lasts.
fn capturing(host: &Arc<Host>, refuses: Refuses) -> (Arc<Capture>, Asked) {
    let capture = Arc::new(Capture::default());
    let seen = Arc::clone(&capture);
    let device = asked(host, move |call| {
        let is_on = seen.is_on.load(Relaxed);
        let is_wait = refuses == Refuses::Waits && call.kind == CallKind::Wait;
        if is_on && (is_wait || call.kind == CallKind::WaitIdle) {
            return Verdict::Refuse(ErrorKind::Busy.into());
        }
        let gives_up = call.kind.gives_up() && call.kind != CallKind::Close;
        seen.given_up.fetch_add(u64::from(is_on && gives_up), Relaxed);
        Verdict::Forward
    });
    (capture, device)
}

struct Scene {
    host: Arc<Host>,
    capture: Arc<Capture>,
    manager: Manager<Asked>,
    pool: UserPool<Asked>,
    line: TimelineId,
}

/// A pool with a hole that a held timeline still writes.
fn scene(is_paged: bool, refuses: Refuses) -> (Scene, Hold) {
    let host = Host::builder().heap(heap(HeapKind::Device, 64 * MIB)).open();
    let host = Arc::new(host.expect("a host device"));
    let (capture, device) = capturing(&host, refuses);
    let manager = Manager::with_config(device, ManagerConfig::default());
    let mut config = PoolConfig::new();
    config.paged = is_paged;
    let pool = manager.create_pool(DEVICE, config).expect("a pool");
    let line = host.open().expect("another timeline");
    let one: Allocation<Asked> = pool.allocate(&Request::new(4 * MIB).on(line)).expect("room");
    let held = host.hold(line).expect("open");
    one.fill(0, 4 * MIB, 7).expect("submitted, and it waits");
    drop(one); // In the order of its timeline: the pool counts as idle.
    capture.is_on.store(true, Relaxed);
    (Scene { host, capture, manager, pool, line }, held)
}

fn held_bytes(host: &Host) -> u64 {
    host.budget(DEVICE).expect("it is there").used
}

#[test]
fn a_pool_that_cannot_be_waited_for_is_busy() {
    for is_paged in [false, true] {
        let (Scene { host, capture, manager, pool, .. }, held) = scene(is_paged, Refuses::Waits);
        let refused = manager.destroy_pool(pool).expect_err("work may use its memory");
        assert_eq!((refused.error.kind(), capture.given_up.load(Relaxed)), (ErrorKind::Busy, 0));
        let one = refused.given.allocate(&Request::new(MIB)).expect("it serves as before");
        drop(one);
        capture.is_on.store(false, Relaxed);
        drop(held);
        manager.destroy_pool(refused.given).map_err(|refused| refused.error).expect("idle");
        manager.trim().expect("alive");
        assert_eq!((held_bytes(&host), manager.report().quarantined_bytes), (0, 0));
    }
}

#[test]
fn a_dropped_pool_that_cannot_be_waited_for_ends_later() {
    for is_paged in [false, true] {
        let (Scene { host, capture, manager, pool, .. }, held) = scene(is_paged, Refuses::Waits);
        drop(pool);
        manager.trim().expect("alive");
        assert_eq!(capture.given_up.load(Relaxed), 0, "work may use its memory");
        capture.is_on.store(false, Relaxed);
        drop(held);
        manager.trim().expect("alive");
        assert_eq!((held_bytes(&host), manager.report().quarantined_bytes), (0, 0));
    }
}

#[test]
fn a_manager_that_cannot_wait_for_the_device_leaves_it_the_memory() {
    for is_paged in [false, true] {
        let (Scene { host, capture, manager, pool, line }, held) = scene(is_paged, Refuses::Waits);
        let before = held_bytes(&host);
        drop((pool, manager));
        assert_eq!((capture.given_up.load(Relaxed), held_bytes(&host)), (0, before));
        drop(held);
        host.close(line).expect("its work runs to its end, on memory that is still there");
        host.wait_idle().expect("alive");
    }
}

/// The timelines that used the memory tell enough; the end of a manager waits for them.
#[test]
fn what_nothing_uses_goes_back_though_the_device_cannot_be_waited_for() {
    for is_paged in [false, true] {
        let (Scene { host, manager, pool, .. }, held) = scene(is_paged, Refuses::Idle);
        let unused = manager.create_pool(DEVICE, PoolConfig::new()).expect("a pool");
        drop(unused.allocate(&Request::new(MIB)).expect("room"));
        manager.destroy_pool(unused).map_err(|refused| refused.error).expect("out of use");
        std::thread::scope(|scope| {
            scope.spawn(move || drop(held));
            drop((pool, manager));
        });
        assert_eq!(held_bytes(&host), 0);
    }
}

/// Addresses may be given back only where no page is mapped.
#[test]
fn addresses_stay_reserved_where_pages_stay_mapped() {
    let host = Host::builder().heap(heap(HeapKind::Device, 64 * MIB)).open();
    let host = Arc::new(host.expect("a host device"));
    let given_up = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&given_up);
    let device = asked(&host, move |call| match call.kind {
        CallKind::UnmapPages => Verdict::Refuse(ErrorKind::Driver.into()),
        CallKind::Free if call.origin == Some(CallKind::Reserve) => {
            count.fetch_add(1, Relaxed);
            Verdict::Forward
        }
        _ => Verdict::Forward,
    });
    let manager = Manager::with_config(device, ManagerConfig::default());
    drop(manager.allocate(&Request::new(MIB)).expect("room"));
    drop(manager);
    assert_eq!(given_up.load(Relaxed), 0, "pages were mapped there");
}
