//! The accounts of a device without bytes.
use super::Null;
use omniheap_core::{Backend as _, ErrorKind, HeapId, HeapKind, Manager, ManagerConfig, Request};
use omniheap_host::{Host, heap};

const SIZE: u64 = 64 << 20;

fn null() -> Null {
    let config = Host::builder().heap(heap(HeapKind::Device, SIZE)).max_blocks(3);
    Null::new(config.open().expect("one heap").caps().clone())
}

#[test]
fn everything_that_is_taken_comes_back() {
    for config in [ManagerConfig::default(), ManagerConfig::default().plain()] {
        let manager = Manager::with_config(null(), config);
        let allocation = manager.allocate(&Request::new(10 << 20)).expect("it fits");
        let used = || manager.backend().used(HeapId(0));
        assert!(used() >= 10 << 20);
        allocation.write(0, &[1; 4096]).expect("inside");
        drop(allocation);
        manager.trim().expect("no device is lost");
        assert_eq!(used(), 0);
    }
}

#[test]
fn capacity_and_block_limit_hold() {
    let null = null();
    let heap = HeapId(0);
    let kind = |result: omniheap_core::Result<super::Block>| result.map_err(|error| error.kind());
    assert_eq!(kind(null.allocate(heap, SIZE + 1)).unwrap_err(), ErrorKind::ExceedsLimit);
    assert_eq!(kind(null.allocate(heap, 0)).unwrap_err(), ErrorKind::ZeroSize);
    let _first = null.allocate(heap, SIZE / 2).expect("it fits");
    assert_eq!(kind(null.allocate(heap, SIZE)).unwrap_err(), ErrorKind::OutOfDeviceMemory);
    let _second = null.allocate(heap, 1).expect("it fits");
    let _third = null.allocate(heap, 1).expect("it fits");
    assert_eq!(kind(null.allocate(heap, 1)).unwrap_err(), ErrorKind::OutOfDeviceMemory);
    assert_eq!(null.used(heap), SIZE / 2 + 2 * 4096, "a refused block costs nothing");
}
