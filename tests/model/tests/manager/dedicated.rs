//! Allocations with a block of their own, in pools of pages.
use omniheap_core::{Budget, HeapKind, Manager, Request};
use omniheap_host::{Host, heap};

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
