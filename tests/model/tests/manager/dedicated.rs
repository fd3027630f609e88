//! Allocations with a block of their own, in pools of pages.
use omniheap_core::{
    Budget, HeapId, HeapKind, Manager, ManagerConfig, Point, PoolConfig, Request, TimelineId,
    Timelines as _,
};
use omniheap_host::{Host, heap};
use std::sync::Arc;

const KIB: u64 = 1 << 10;

/// A pass takes the block's offsets for those of pages and moves the allocation away. A trim then takes its empty block for
/// pages, and unmaps those of others.
#[test]
fn a_pass_over_pages_leaves_a_dedicated_block_alone() {
    let host = Host::builder().heap(heap(HeapKind::Device, 64 << 20)).open().expect("a device");
    let manager = Manager::new(host);
    let own = manager.allocate(&Request::new(128 * KIB).dedicated()).expect("fits");
    let ask = |size: u64| manager.allocate(&Request::new(size * KIB)).expect("fits");
    let all = [1536, 1024, 2048, 512, 1536, 2048, 1920].map(ask);
    let kept: Vec<_> = all.into_iter().enumerate().filter(|(n, _)| [2, 5].contains(n)).collect();
    let pass = manager.begin_defragment(&Budget::new()).expect("alive");
    let moving: Vec<_> = pass.moves().map(|planned| planned.allocation()).collect();
    assert!(!moving.contains(&own.id()), "it moves beside {} others", kept.len());
}

/// A request looked for what had passed in its own pool alone, and failed beside a block that nothing used any more.
#[test]
fn what_another_pool_freed_after_a_point_makes_room() {
    for is_held in [false, true] {
        let host = Arc::new(
            Host::builder().heap(heap(HeapKind::Device, 8 << 20)).open().expect("a device"),
        );
        let manager = Manager::with_config(Arc::clone(&host), ManagerConfig::default().plain());
        let other = manager.create_pool(HeapId(0), PoolConfig::new()).expect("a pool");
        let own = manager.allocate(&Request::new(6 << 20).dedicated()).expect("fits");
        let gate = is_held.then(|| host.hold(TimelineId::MAIN).expect("it is open"));
        let epoch = host.mark(TimelineId::MAIN).expect("it is open");
        own.free_after(Point { timeline: TimelineId::MAIN, epoch });
        let opened = std::thread::spawn(move || {
            std::thread::sleep(core::time::Duration::from_millis(20));
            drop(gate);
        });
        let request = Request::new(6 << 20);
        let made = other.allocate(&request);
        assert!(made.is_ok(), "shared, held: {is_held}: {made:?}");
        drop(made);
        opened.join().expect("it only waits");
    }
}
