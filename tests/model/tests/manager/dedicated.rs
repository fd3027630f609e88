//! Allocations with a block of their own, in pools of pages and of other strategies.
use omniheap_core::strategy::Bump;
use omniheap_core::{
    Budget, HeapId, HeapKind, Layout, Manager, ManagerConfig, Point, PoolConfig, Request,
    StrategyKind, TimelineId, Timelines as _,
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

/// Another strategy than the general one may put an allocation beside others in the block that was taken for it alone, or place it
/// elsewhere. A trim counted the block as everyone's then: the pool's books wrapped, or it stayed below a minimum of others.
#[test]
fn a_trim_counts_each_block_as_what_it_was_taken_for() {
    let layout = Layout::new(4 * KIB);
    let all = [
        StrategyKind::General,
        StrategyKind::Buddy(4 * KIB),
        StrategyKind::Slab(layout),
        StrategyKind::Stack,
        StrategyKind::Bump,
        StrategyKind::Ring,
        StrategyKind::Custom,
    ];
    let plain = Request::new(layout.size);
    for strategy in all {
        for minimum in [0, 1024 * KIB] {
            for orders in [[plain.dedicated(), plain], [plain, plain.dedicated()]] {
                let has_one_block = strategy == StrategyKind::Ring;
                if has_one_block && (minimum > 0 || orders[0] == plain) {
                    continue; // It refuses the second.
                }
                let what = format!("{strategy:?}, {minimum}, {:?}", orders[0].sharing);
                let host = Host::builder().heap(heap(HeapKind::Device, 64 << 20)).open();
                let manager = Manager::new(host.expect("a device"));
                let config = PoolConfig::new().lanes(1).block(1024 * KIB).minimum(minimum);
                let pool = match strategy {
                    StrategyKind::Custom => {
                        let own = |granularity| Box::new(Bump::new(granularity)) as Box<_>;
                        manager.create_pool_with(HeapId(0), config, own)
                    }
                    _ => manager.create_pool(HeapId(0), config.strategy(strategy)),
                };
                let pool = pool.expect("valid");
                for _ in 0..2 {
                    // In the order of their requests.
                    drop(orders.map(|request| pool.allocate(&request).expect("fits")));
                    pool.trim().expect("alive");
                    assert_eq!(pool.reserved(), minimum, "{what}");
                }
                manager.validate().expect("sound");
            }
        }
    }
}
