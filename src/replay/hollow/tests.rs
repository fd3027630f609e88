//! The accounts of a device without bytes.
use super::Hollow;
use core::sync::atomic::Ordering::Relaxed;
use omniheap::host::{Host, heap};
use omniheap::{Backend as _, ErrorKind, HeapKind, Manager, ManagerConfig, Request};

const SIZE: u64 = 64 << 20;

fn hollow() -> Hollow {
    let config = Host::builder().heap(heap(HeapKind::Device, SIZE)).max_blocks(3);
    Hollow::new(config.open().expect("one heap").caps().clone())
}

#[test]
fn everything_that_is_taken_comes_back() {
    for config in [ManagerConfig::default(), ManagerConfig::default().plain()] {
        let manager = Manager::with_config(hollow(), config);
        let allocation = manager.allocate(&Request::new(10 << 20)).expect("it fits");
        let used = || manager.backend().used[0].load(Relaxed);
        assert!(used() >= 10 << 20);
        allocation.write(0, &[1; 4096]).expect("inside");
        drop(allocation);
        manager.trim().expect("no device is lost");
        assert_eq!(used(), 0);
    }
}

#[test]
fn capacity_and_block_limit_hold() {
    let hollow = hollow();
    let heap = omniheap::HeapId(0);
    let kind = |result: omniheap::Result<super::Block>| result.map_err(|error| error.kind());
    assert_eq!(kind(hollow.allocate(heap, SIZE + 1)).unwrap_err(), ErrorKind::ExceedsLimit);
    assert_eq!(kind(hollow.allocate(heap, 0)).unwrap_err(), ErrorKind::ZeroSize);
    let _first = hollow.allocate(heap, SIZE / 2).expect("it fits");
    assert_eq!(kind(hollow.allocate(heap, SIZE)).unwrap_err(), ErrorKind::OutOfDeviceMemory);
    let _second = hollow.allocate(heap, 1).expect("it fits");
    let _third = hollow.allocate(heap, 1).expect("it fits");
    assert_eq!(kind(hollow.allocate(heap, 1)).unwrap_err(), ErrorKind::OutOfDeviceMemory);
    assert_eq!(hollow.used[0].load(Relaxed), SIZE / 2 + 2 * 4096, "a refused block costs nothing");
}
