//! Exchanges of blocks: near the high-water mark, a small request gets a block of its size and leaves a large empty one whole.
use omniheap_core::{Allocation, HeapId, HeapKind, Manager, ManagerConfig, PoolConfig, Request};
use omniheap_host::{Host, heap};

const MIB: u64 = 1 << 20;
/// Dedicated blocks whose driver calls leave the ration of a pool one exchange: 512 calls are granted in advance, and one for each
/// 140 operations.
const CALLS: u64 = 509;

#[test]
fn the_last_call_of_the_ration_still_leaves_the_other_empty_block_whole() {
    let host = Host::builder().heap(heap(HeapKind::Device, 8 << 30)).open().expect("a device");
    let manager = Manager::with_config(host, ManagerConfig::default().plain());
    let config = PoolConfig::new().lanes(1);
    let pool = manager.create_pool(HeapId(0), config).expect("valid");
    let ask = |size: u64| pool.allocate(&Request::new(size)).expect("there is room");
    let live = ask(1000 * MIB);
    let [small, large] = [100, 200].map(|size| ask(size * MIB));
    let alone = |_| pool.allocate(&Request::new(256).dedicated()).expect("there is room");
    let spent: Vec<Allocation<_>> = (0..CALLS).map(alone).collect();
    drop((small, large));
    let (held, calls) = (pool.reserved(), manager.report().driver_calls);
    let request = ask(2 * MIB);
    assert_eq!(manager.report().driver_calls - calls, 2, "one block returned, and one taken");
    assert_eq!(pool.reserved(), held - 98 * MIB);
    let again = ask(200 * MIB);
    assert_eq!(manager.report().driver_calls - calls, 2, "the other empty block stayed whole");
    drop((live, spent, request, again));
}
