//! Limits: exact, typed, and never exceeded.
use crate::common::{HEAP, MIB, free, host, kind, used};
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_core::{Align, Backend, ErrorKind, HeapId, HeapKind};
use omniheap_host::{Host, heap};
use std::thread;

#[test]
fn impossible_requests_differ_from_unlucky_ones() {
    let host = host(MIB);
    assert_eq!(kind(host.allocate(HEAP, 0)), ErrorKind::ZeroSize);
    assert_eq!(kind(host.allocate(HeapId(7), 1)), ErrorKind::NoSuchHeap);
    assert_eq!(kind(host.allocate(HEAP, MIB + 1)), ErrorKind::ExceedsLimit);
    assert_eq!(kind(host.allocate(HEAP, u64::MAX)), ErrorKind::ExceedsLimit);
    let block = host.allocate(HEAP, MIB).expect("fits exactly");
    assert_eq!(kind(host.allocate(HEAP, 1)), ErrorKind::OutOfDeviceMemory);
    free(&host, block).expect("idle");
    assert_eq!(used(&host), 0);
    free(&host, host.allocate(HEAP, MIB).expect("fits again")).expect("idle");
}

#[test]
fn blocks_are_rounded_aligned_and_counted() {
    let shape = heap(HeapKind::Device, 64 * MIB)
        .align(Align::of(MIB))
        .granule(Align::of(8192))
        .max_block(4 * MIB);
    let host = Host::builder().heap(shape).max_blocks(2).open().expect("valid");
    let block = host.allocate(HEAP, 1).expect("fits");
    assert_eq!((block.size(), used(&host)), (8192, 8192));
    let address = host.as_address().expect("has addresses").address(&block);
    assert!(Align::of(MIB).divides(address));
    assert_eq!(kind(host.allocate(HEAP, 5 * MIB)), ErrorKind::ExceedsLimit);
    let second = host.allocate(HEAP, 1).expect("the second of two");
    assert_eq!(kind(host.allocate(HEAP, 1)), ErrorKind::OutOfDeviceMemory);
    free(&host, block).expect("idle");
    free(&host, host.allocate(HEAP, 1).expect("one was freed")).expect("idle");
    free(&host, second).expect("idle");
}

#[test]
fn heaps_of_one_physical_memory_add_up() {
    let host = Host::builder()
        .heap(heap(HeapKind::Device, 4 * MIB))
        .heap(heap(HeapKind::Staging, 2 * MIB))
        .open()
        .expect("valid");
    let block = host.allocate(HEAP, 3 * MIB).expect("fits");
    assert_eq!(kind(host.allocate(HeapId(1), 2 * MIB)), ErrorKind::OutOfDeviceMemory);
    let budget = host.as_budget().expect("has one").budget(HeapId(1)).expect("alive");
    assert_eq!((budget.budget, budget.used), (MIB, 0));
    let staging = host.allocate(HeapId(1), MIB).expect("what is left");
    assert_eq!(kind(host.allocate(HEAP, 1)), ErrorKind::OutOfDeviceMemory);
    free(&host, block).expect("idle");
    free(&host, staging).expect("idle");
}

#[test]
fn sixteen_threads_never_exceed_a_heap() {
    let host = host(8 << 12);
    let (live, peak) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                // Whoever is refused comes again: eight others hold one, and they give it back.
                let mut got = 0;
                while got < 500 {
                    let block = match host.allocate(HEAP, 1) {
                        Ok(block) => block,
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::OutOfDeviceMemory);
                            thread::yield_now();
                            continue;
                        }
                    };
                    got += 1;
                    peak.fetch_max(live.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    live.fetch_sub(1, Ordering::SeqCst);
                    free(&host, block).expect("idle");
                }
            });
        }
    });
    assert!(peak.load(Ordering::SeqCst) <= 8, "a heap of eight held {peak:?}");
    assert_eq!(used(&host), 0);
}

#[test]
fn exactly_what_fits_is_granted_to_sixteen_threads() {
    let host = host(100 << 12);
    let blocks: Vec<_> = thread::scope(|scope| {
        let ask = || (0..10).filter_map(|_| host.allocate(HEAP, 4096).ok()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(blocks.len(), 100);
    blocks.into_iter().for_each(|block| free(&host, block).expect("idle"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_heap_larger_than_the_machine_costs_nothing_untouched() {
    let host = host(4 << 40);
    let blocks: Vec<_> = (0..8).map(|_| host.allocate(HEAP, 256 << 30).expect("room")).collect();
    blocks.into_iter().for_each(|block| free(&host, block).expect("idle"));
}

#[cfg(target_os = "linux")]
#[test]
fn impossible_devices_are_refused() {
    let empty = Host::builder().open();
    assert_eq!(kind(empty), ErrorKind::InvalidConfig);
    let many =
        |count| (0..count).fold(Host::builder(), |with, _| with.heap(heap(HeapKind::Device, MIB)));
    assert_eq!(many(256).open().map(drop), Ok(()), "as many as there are numbers for them");
    assert_eq!(kind(many(257).open()), ErrorKind::InvalidConfig);
    for broken in [
        heap(HeapKind::Device, 0).max_block(1),
        heap(HeapKind::Device, MIB).max_block(0),
        heap(HeapKind::Device, MIB).align(Align::of(1 << 40)),
        heap(HeapKind::Device, MIB).page(Some(Align::of(512))),
    ] {
        assert_eq!(kind(Host::builder().heap(broken).open()), ErrorKind::InvalidConfig);
    }
}

#[test]
fn a_block_of_another_device_is_refused() {
    let (mine, other) = (host(MIB), host(MIB));
    let block = other.allocate(HEAP, 4096).expect("fits");
    assert_eq!(kind(mine.as_map().expect("maps").map(&block)), ErrorKind::Foreign);
    assert_eq!(kind(free(&mine, block)), ErrorKind::Foreign);
    assert_eq!(used(&other), 4096, "a block given to the wrong device is a leak of its own");
}
