//! Costs of bookkeeping: bytes for each live allocation, and nothing at all where memory is reused.
use super::{BYTES, CALLS};
use omniheap_core::strategy::{Buddy, Slab, Strategy, Tlsf};
use omniheap_core::{
    Align, Class, HeapKind, Layout, Manager, ManagerConfig, Request, TimelineId, Timelines, Usage,
};
use omniheap_host::{Host, heap};

fn manager(config: ManagerConfig) -> Manager<Host> {
    let host = Host::builder().heap(heap(HeapKind::Device, 1 << 36)).open().expect("a host device");
    Manager::with_config(host, config)
}

#[test]
fn reuse_costs_no_driver_call_and_no_host_memory() {
    for config in [ManagerConfig::default(), ManagerConfig::default().plain()] {
        let manager = manager(config);
        let sizes = [256, 5000, 70_000, 1 << 20, 3 << 20];
        let round = || {
            let held = sizes.map(|size| manager.allocate(&Request::new(size)).expect("fits"));
            drop(held);
        };
        (0..3).for_each(|_| round());
        let (driver, host) = (manager.report().driver_calls, CALLS.get());
        (0..1000).for_each(|_| round());
        let host = CALLS.get() - host;
        assert_eq!(manager.report().driver_calls, driver, "a reuse asked the driver");
        assert_eq!(host, 0, "a reuse took host memory");
    }
}

#[test]
fn rounds_of_other_sizes_settle_on_what_is_held() {
    let manager = manager(ManagerConfig::default().plain());
    let mut state = 5_u64;
    let mut random = |limit: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % limit
    };
    let mut take = |unit: u64| {
        let request = Request::new((1 + random(64)) * unit);
        manager.allocate(&request).expect("fits")
    };
    let _live: Vec<_> = (0..1000).map(|_| take(1 << 10)).collect();
    let mut round = || drop((0..200).map(|_| take(1 << 12)).collect::<Vec<_>>());
    (0..5).for_each(|_| round());
    let before = manager.report().driver_calls;
    (0..50).for_each(|_| round());
    let calls = manager.report().driver_calls - before;
    assert!(calls <= 10, "{calls} driver calls in 50 rounds of as many bytes, give or take");
}

#[test]
fn bookkeeping_is_small() {
    const LIVE: usize = 100_000;
    let manager = manager(ManagerConfig::default().plain());
    let mut held = Vec::with_capacity(LIVE);
    let before = BYTES.get();
    held.extend(
        (0..LIVE).map(|n| manager.allocate(&Request::new(256 + n as u64 % 4096)).expect("fits")),
    );
    let each = (BYTES.get() - before) / LIVE as i64;
    println!("{each} bytes of bookkeeping for each live allocation");
    assert!(each <= 128, "{each} bytes for each live allocation");
}

/// Records of pieces that are gone are used again, also those of blocks that are gone.
#[test]
fn strategies_that_split_and_join_for_ever_need_no_more_host_memory() {
    let new: [fn() -> Box<dyn Strategy>; 3] = [
        || Box::new(Tlsf::new(Align::ONE)),
        || Box::new(Buddy::new(Align::of(16), Align::ONE)),
        || Box::new(Slab::new(Layout::new(64), Align::ONE).expect("a size")),
    ];
    for (which, new) in new.into_iter().enumerate() {
        let mut strategy = new();
        let mut held = Vec::with_capacity(64);
        let mut round = || {
            let block = strategy.add_block(4096).expect("a block");
            while let Ok(grant) = strategy.allocate(Layout::new(64), Class::Linear) {
                held.push(grant.key);
            }
            assert_eq!(held.len(), 64);
            // Neighbours last: everything is joined again.
            for step in [0, 1] {
                for key in held.iter().skip(step).step_by(2) {
                    strategy.free(*key).expect("it is live");
                }
            }
            held.clear();
            strategy.remove_block(block).expect("it is empty");
        };
        (0..8).for_each(|_| round());
        let before = BYTES.get();
        (0..1000).for_each(|_| round());
        assert!(BYTES.get() <= before, "{} bytes more, strategy {which}", BYTES.get() - before);
    }
}

/// Returns what a round leaves behind, in bytes of this thread.
fn left_by(round: impl Fn()) -> i64 {
    const ROUNDS: i64 = 2000;
    (0..200).for_each(|_| round());
    let before = BYTES.get();
    (0..ROUNDS).for_each(|_| round());
    (BYTES.get() - before) / ROUNDS
}

/// A timeline that was closed and of which nothing lives is forgotten, whatever its allocations went through.
#[test]
fn timelines_that_come_and_go_leave_nothing_behind() {
    let unified = heap(HeapKind::Unified, 1 << 30);
    let host = Host::builder().heap(unified).open().expect("a host device");
    let mut config = ManagerConfig::default().plain();
    config.pool.lanes = Some(1);
    let manager = Manager::with_config(host, config);
    let with_timeline = |work: &dyn Fn(TimelineId)| {
        let line = manager.backend().open().expect("another timeline");
        work(line);
        manager.backend().close(line).expect("it is open");
        manager.retire().expect("alive"); // What has a block of its own waited for the timeline.
    };
    let ask = |request: Request<'_>| manager.allocate(&request).expect("fits");
    let alone = left_by(|| with_timeline(&|_| ()));
    let works: [(&str, &dyn Fn(TimelineId)); 4] = [
        ("freed", &|line| drop(ask(Request::new(4096).on(line)))),
        ("named", &|line| drop(ask(Request::new(4096).on(line).name("a name")))),
        ("its own block", &|line| drop(ask(Request::new(4096).on(line).dedicated()))),
        ("mapped", &|line| drop(ask(Request::new(4096).on(line).usage(Usage::Upload)))),
    ];
    for (what, work) in works {
        let left = left_by(|| with_timeline(work)) - alone;
        assert!(left < 32, "{what}: {left} bytes for each timeline");
    }
}
