//! The host's view, coherent and not.
#![expect(unsafe_code, reason = "touches mapped bytes")]
use crate::common::{HEAP, MAIN, MIB, at, free, host, kind, read};
use omniheap_core::{
    Align, Backend, CopyRegion, ErrorKind, HeapKind, HostAccess, Manager, ManagerConfig, Map,
    PoolConfig, Request, SpanState, Transfer,
};
use omniheap_host::{Block, Host, heap};

fn visible(access: HostAccess) -> Host {
    let heap = heap(HeapKind::Staging, MIB).host(access);
    Host::builder().heap(heap).atom(Align::of(64)).open().expect("valid")
}

fn poke(host: &Host, block: &Block, offset: usize, value: u8) {
    let base = host.map(block).expect("visible");
    // SAFETY: the tests stay inside the block.
    let byte = unsafe { base.add(offset) };
    // SAFETY: no work touches the byte while a test writes it.
    unsafe { byte.write(value) };
}

fn peek(host: &Host, block: &Block, offset: usize) -> u8 {
    let base = host.map(block).expect("visible");
    // SAFETY: the tests stay inside the block.
    let byte = unsafe { base.add(offset) };
    // SAFETY: no work writes the byte while a test reads it.
    unsafe { byte.read() }
}

#[test]
fn an_incoherent_heap_needs_flush_and_invalidate() {
    let host = visible(HostAccess::Incoherent);
    let block = host.allocate(HEAP, 4096).expect("fits");
    poke(&host, &block, 70, 7);
    assert_eq!(read(&host, MAIN, &block, 70, 1), [0], "not flushed");
    host.flush(&block, 0, 64).expect("aligned");
    assert_eq!(read(&host, MAIN, &block, 70, 1), [0], "another atom was flushed");
    host.flush(&block, 64, 64).expect("aligned");
    assert_eq!(read(&host, MAIN, &block, 70, 1), [7]);
    host.fill(MAIN, at(&block, 0), 4096, 9).expect("inside");
    host.wait_idle().expect("alive");
    assert_eq!(peek(&host, &block, 70), 7, "not invalidated");
    host.invalidate(&block, 64, 64).expect("aligned");
    assert_eq!((peek(&host, &block, 70), peek(&host, &block, 0)), (9, 0));
    free(&host, block).expect("idle");
}

#[test]
fn a_coherent_heap_needs_neither() {
    for access in [HostAccess::Cached, HostAccess::Combined] {
        let host = visible(access);
        let block = host.allocate(HEAP, 4096).expect("fits");
        poke(&host, &block, 70, 7);
        assert_eq!(read(&host, MAIN, &block, 70, 1), [7]);
        host.flush(&block, 0, 4096).expect("allowed");
        assert_eq!(host.map(&block), host.map(&block), "mapped once");
        free(&host, block).expect("idle");
    }
}

#[test]
fn what_cannot_be_mapped_or_flushed_is_refused() {
    let hidden = host(MIB);
    let block = hidden.allocate(HEAP, 4096).expect("fits");
    for _ in 0..1000 {
        assert_eq!(kind(hidden.map(&block)), ErrorKind::NotMappable);
    }
    free(&hidden, block).expect("idle");
    let host = visible(HostAccess::Incoherent);
    let block = host.allocate(HEAP, 4096).expect("fits");
    assert_eq!(kind(host.flush(&block, 1, 64)), ErrorKind::Misaligned);
    assert_eq!(kind(host.invalidate(&block, 0, 65)), ErrorKind::Misaligned);
    assert_eq!(kind(host.flush(&block, 4096, 64)), ErrorKind::OutOfRange);
    free(&host, block).expect("idle");
}

#[test]
fn a_flush_leaves_neighbours_as_the_device_wrote_them() {
    let config = ManagerConfig::default().plain();
    let manager = Manager::with_config(visible(HostAccess::Incoherent), config);
    let both = [(); 2].map(|()| manager.allocate(&Request::new(64).heap(HEAP)).expect("fits"));
    for (one, neighbour) in [(&both[0], &both[1]), (&both[1], &both[0])] {
        neighbour.fill(0, 64, 9).expect("inside");
        one.map().expect("visible").flush(0, 64).expect("inside");
        let mut seen = [0; 64];
        neighbour.read(0, &mut seen).expect("inside");
        assert_eq!(seen, [9; 64]);
    }
}

/// Safe code may do all this at once. Which bytes arrive is the program's business; that it is no data race is ours, and
/// `cargo xtask sanitize thread` looks.
#[test]
fn mapped_bytes_may_be_written_from_anywhere_at_once() {
    const SIZE: usize = 64 << 10;
    for access in [HostAccess::Cached, HostAccess::Incoherent] {
        let heap = heap(HeapKind::Unified, 8 * MIB).host(access);
        let manager = Manager::new(Host::builder().heap(heap).open().expect("valid"));
        let [one, other] =
            [(); 2].map(|()| manager.allocate(&Request::new(SIZE as u64)).expect("fits"));
        let views = [(); 3].map(|()| one.map().expect("visible"));
        let [first, second, third] = views;
        std::thread::scope(|scope| {
            for (view, value) in [(first, 3), (second, 5)] {
                scope.spawn(move || {
                    (0..50).for_each(|_| view.write(0, &[value; SIZE]).expect("inside"));
                });
            }
            scope.spawn(move || {
                (0..50).for_each(|_| third.read(1, &mut [0; SIZE - 1]).expect("inside"));
            });
            for (from, to) in [(&one, &other), (&other, &one)] {
                let (manager, size) = (&manager, SIZE as u64);
                let copy = move || CopyRegion { from, from_offset: 0, to, to_offset: 0, size };
                scope.spawn(move || {
                    (0..50).for_each(|_| manager.copy(MAIN, &[copy()]).expect("inside"));
                });
            }
        });
    }
}

#[test]
fn an_owned_mapping_keeps_its_allocation_alive_and_in_place() {
    for access in [HostAccess::Cached, HostAccess::Incoherent] {
        let heap = heap(HeapKind::Unified, 8 * MIB).host(access);
        let host = Host::builder().heap(heap).atom(Align::of(64)).open().expect("valid");
        let manager = Manager::with_config(host, ManagerConfig::default().plain());
        let pool = PoolConfig::new().block(64 << 10).lanes(1);
        let pool = manager.create_pool(HEAP, pool).expect("valid");
        // The second block has one allocation, and the first one room for it.
        let mut first =
            [(); 2].map(|()| Some(pool.allocate(&Request::new(32 << 10)).expect("fits")));
        let moved = pool.allocate(&Request::new(4096)).expect("fits");
        first[1] = None;
        let mapping = moved.into_mapping().expect("visible");
        let before = mapping.as_ptr();
        mapping.write(100, b"pinned").expect("inside");
        assert_eq!(kind(mapping.write(4095, b"ab")), ErrorKind::OutOfRange);
        manager.defragment().expect("it may");
        assert_eq!(mapping.as_ptr(), before, "it does not move");
        let mut seen = [0; 6];
        mapping.allocation().read(100, &mut seen).expect("inside");
        assert_eq!(&seen, b"pinned", "the device sees what was written");
        mapping.allocation().fill(100, 6, 9).expect("inside");
        manager.backend().wait_idle().expect("alive");
        mapping.read(100, &mut seen).expect("inside");
        assert_eq!(seen, [9; 6], "and the host what the device wrote");
        let may_move = || {
            let report = manager.report();
            let spans =
                report.pools.iter().flat_map(|pool| &pool.blocks).flat_map(|block| &block.live);
            spans.filter(|span| span.state == SpanState::Movable).count()
        };
        assert_eq!(may_move(), 1, "the other one");
        let moved = mapping.into_allocation();
        assert_eq!(may_move(), 2);
        drop(moved.into_mapping().expect("visible"));
        drop(first);
        assert_eq!(manager.totals().live, 0, "dropping a mapping frees");
    }
}

#[test]
fn what_cannot_be_mapped_comes_back() {
    let manager = Manager::new(host(8 * MIB));
    let hidden = manager.allocate(&Request::new(4096)).expect("fits");
    let refused = hidden.into_mapping().expect_err("the host cannot see it");
    assert_eq!(refused.error.kind(), ErrorKind::NotMappable);
    refused.given.write(0, b"still here").expect("live");
}
