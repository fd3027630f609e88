//! Number of lanes that a pool has by default: as many as threads use it at the same time. One test, because every
//! thread of the process counts.
use core::iter;
use omniheap_core::{HeapKind, Manager, ManagerConfig, Request, Rung};
use omniheap_host::{Host, heap};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Barrier;
use std::thread;

/// Rounds of a thread: many more than it borrows memory of other threads before it has its own.
const ROUNDS: u64 = 4000;

fn manager(config: ManagerConfig) -> Manager<Host> {
    on(1 << 36, config)
}

fn on(bytes: u64, config: ManagerConfig) -> Manager<Host> {
    let host = Host::builder().heap(heap(HeapKind::Device, bytes)).open().expect("a host device");
    Manager::with_config(host, config)
}

/// Allocates and frees with the last few allocations alive; returns the lane that serves the thread in the end.
///
/// A lane with a block has in it some of what is alive. A block that is empty for a moment may go back to the driver,
/// which depends on what other threads free at that time, and its lane borrows again.
fn work(manager: &Manager<Host>) -> u32 {
    let allocate = |size| manager.allocate(&Request::new(size)).expect("it fits");
    let mut live: VecDeque<_> = (0..16).map(|number| allocate(1 + number * 1000)).collect();
    for round in 0..ROUNDS {
        live.push_back(allocate(1 + round % 7 * 1000));
        drop(live.pop_front());
    }
    allocate(1000).id().lane()
}

/// Threads that live at the same time, as many as there are lanes even on one core: each has a lane of its own.
fn threads_at_once_do_not_share(config: ManagerConfig) {
    let (manager, count) = (manager(config), 4);
    let together = Barrier::new(count);
    let lanes: BTreeSet<u32> = thread::scope(|scope| {
        let one = || {
            together.wait();
            let lane = work(&manager);
            together.wait();
            lane
        };
        let threads: Vec<_> = iter::repeat_with(|| scope.spawn(one)).take(count).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(lanes.len(), count, "{lanes:?}");
    let report = manager.report();
    let (lent, asked) = (report.rungs[Rung::Lend as usize], ROUNDS * count as u64);
    assert!(lent < asked / 8, "{lent} of {asked} requests were served by other threads' lanes");
    let driver = report.rungs[Rung::Driver as usize];
    assert!(driver < asked / 100, "{driver} of {asked} requests asked the driver");
}

/// Threads that come and go do not leave a lane each: the next one has the lane of the one that ended.
fn threads_one_after_the_other_share(config: ManagerConfig) {
    let manager = manager(config);
    let one = || thread::scope(|scope| scope.spawn(|| work(&manager)).join().expect("no panic"));
    let lanes: BTreeSet<u32> = iter::repeat_with(one).take(20).collect();
    assert_eq!(lanes.len(), 1, "{lanes:?}");
}

/// A lane that wants a block of its own and gets none goes on borrowing, and does not ask the driver each time.
fn a_lane_without_a_block_goes_on_borrowing() {
    // One block is all that there is.
    let manager = on(4 << 20, ManagerConfig::default().plain());
    let first = manager.allocate(&Request::new(1000)).expect("it fits");
    let before = manager.report().driver_calls;
    let lane = thread::scope(|scope| scope.spawn(|| work(&manager)).join().expect("no panic"));
    assert_eq!(lane, first.id().lane());
    let report = manager.report();
    assert!(report.rungs[Rung::Lend as usize] > ROUNDS / 2, "{:?}", report.rungs);
    let calls = report.driver_calls - before;
    assert!(calls < ROUNDS / 50, "{calls} driver calls for {ROUNDS} requests");
}

#[test]
fn a_pool_has_a_lane_for_each_thread_that_uses_it_now() {
    for config in [ManagerConfig::default(), ManagerConfig::default().plain()] {
        threads_at_once_do_not_share(config.clone());
        threads_one_after_the_other_share(config);
    }
    a_lane_without_a_block_goes_on_borrowing();
}
