//! Threads and their lanes: who lends to whom, who is woken, and what a lane does with memory that others hold.
use super::before::asked;
use super::managed;
use core::time::Duration;
use omniheap_core::{HeapId, HeapKind, Manager, ManagerConfig, PoolConfig, Request};
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Verdict};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const HEAP: HeapId = HeapId(0);

fn device(size: u64) -> Arc<Host> {
    Arc::new(Host::builder().heap(heap(HeapKind::Device, size)).open().expect("a host device"))
}

/// As many lanes as there can be: threads that live at the same time have different ones.
fn many_lanes() -> ManagerConfig {
    let mut config = ManagerConfig::default().plain();
    config.pool.lanes = Some(64);
    config
}

/// Runs something on another thread.
fn elsewhere<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(run).join().expect("no panic"))
}

#[test]
fn a_lane_lends_while_more_than_an_eighth_of_it_is_free() {
    for (free, lends) in [(3, true), (2, false)] {
        let manager = managed(device(64 * MIB), many_lanes());
        let ask = || manager.allocate(&Request::new(256 * KIB)).expect("fits");
        let mut full: Vec<_> = (0..16).map(|_| ask()).collect();
        assert_eq!(manager.totals().reserved_bytes, 4 * MIB);
        full.truncate(16 - free);
        let theirs = elsewhere(ask);
        assert_eq!(theirs.id().lane() == full[0].id().lane(), lends, "{free} of 16 are free");
        assert_eq!(manager.totals().reserved_bytes, if lends { 4 * MIB } else { 8 * MIB });
    }
}

#[test]
fn a_lane_that_borrows_time_and_again_takes_one_block_of_its_own() {
    let manager = managed(device(256 * MIB), many_lanes());
    let ask = |size| manager.allocate(&Request::new(size)).expect("fits");
    let first = ask(KIB);
    let lender = first.id().lane();
    let lanes: Vec<u32> = elsewhere(|| (0..2000).map(|_| ask(KIB).id().lane()).collect());
    let borrowed = lanes.iter().take_while(|lane| **lane == lender).count();
    assert!((16..1000).contains(&borrowed), "{borrowed}");
    assert!(lanes[borrowed..].iter().all(|lane| *lane != lender), "it has its own from then on");
    assert_eq!(manager.totals().reserved_bytes, 8 * MIB, "one block for each");
}

/// Where the pool says how large blocks are, a lane that has none does not take one while others have much to lend.
#[test]
fn a_lane_goes_on_borrowing_where_blocks_have_one_size() {
    let mut config = many_lanes();
    config.pool.block = Some(16 * MIB);
    let manager = managed(device(256 * MIB), config);
    let ask = |size| manager.allocate(&Request::new(size)).expect("fits");
    let first = ask(KIB);
    let lender = first.id().lane();
    assert!(elsewhere(|| (0..2000).all(|_| ask(KIB).id().lane() == lender)));
    assert_eq!(manager.totals().reserved_bytes, 16 * MIB);
}

/// While bytes slide over themselves nobody is shown their place; who asks waits, and is woken when they have arrived.
#[test]
fn who_asks_for_bytes_that_slide_is_woken_when_they_have_arrived() {
    let (copying, copies) = mpsc::channel();
    let copying = Mutex::new(Some(copying));
    let manager = Manager::with_config(
        asked(&device(16 * MIB), move |call| {
            if call.kind == CallKind::Copy
                && let Some(copying) = copying.lock().expect("no panic").take()
            {
                copying.send(()).expect("somebody asks");
                thread::sleep(Duration::from_millis(50)); // Long enough to begin to wait.
            }
            Verdict::Forward
        }),
        ManagerConfig::default().plain(),
    );
    let pool = PoolConfig::new().block(16 * MIB).lanes(1);
    let pool = manager.create_pool(HEAP, pool).expect("valid");
    let ask = |size| pool.allocate(&Request::new(size)).expect("fits");
    let [below, slides, above, _last] = [MIB, 8 * MIB, MIB, 6 * MIB].map(ask);
    let slides = Arc::new(slides);
    drop((below, above));
    let (tell, told) = mpsc::channel();
    let asks = Arc::clone(&slides);
    thread::spawn(move || {
        copies.recv().expect("something slides");
        tell.send(asks.binding().span().offset).expect("it is waited for");
    });
    let large = ask(2 * MIB);
    // It never comes where nobody wakes the thread.
    assert_eq!(told.recv_timeout(Duration::from_secs(120)), Ok(0));
    drop(large);
}
