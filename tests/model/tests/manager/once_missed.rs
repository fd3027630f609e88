//! More bugs that were planted by hand and that nothing noticed, one test for each; see also `missed.rs`.
use super::before::asked;
use omniheap_core::strategy::{Strategy, Tlsf};
use omniheap_core::{
    Align, Class, Defragmentation, ErrorKind, Event, HeapId, HeapKind, Layout, Manager,
    ManagerConfig, Observer, Request, Rung, Timelines, Usage,
};
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Verdict};
use omniheap_model::Random;
use std::sync::{Arc, Mutex};

const MIB: u64 = 1 << 20;
const HEAP: HeapId = HeapId(0);

fn device(size: u64) -> Arc<Host> {
    Arc::new(Host::builder().heap(heap(HeapKind::Device, size)).open().expect("a host device"))
}

fn plain() -> ManagerConfig {
    ManagerConfig::default().plain()
}

/// More than lies behind an aligned request of 64 KiB, and less than all that is free beside it.
const MORE: u64 = 980_000;

/// Asks on another thread for more than any hole has, when a request has its bytes and no owner yet. Whoever sets the manager
/// takes it out again: it holds its observer.
#[derive(Default)]
struct Meanwhile(Mutex<Option<Manager<Arc<Host>>>>);

impl core::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl Observer for Meanwhile {
    fn observe(&self, event: &Event<'_>) {
        let other = || self.0.lock().expect("no panic while held").clone();
        if let (Event::Climb { rung: Rung::Retire, .. }, Some(other)) = (event, other()) {
            let asks = move || drop(other.allocate(&Request::new(MORE)));
            std::thread::spawn(asks).join().expect("it does not panic");
        }
    }
}

#[test]
fn what_slides_before_it_has_an_owner_keeps_its_alignment() {
    let (host, meanwhile) = (device(MIB), Arc::new(Meanwhile::default()));
    let config = plain().observed(Arc::clone(&meanwhile) as _);
    let manager = Manager::with_config(Arc::clone(&host), config);
    let line = host.open().expect("another timeline");
    let _first = manager.allocate(&Request::new(256)).expect("fits");
    let rest = manager.allocate(&Request::new(MIB - 256)).expect("fits");
    // The allocation waits for a timeline that has passed, so the next request has to look.
    rest.use_on(line).expect("open");
    drop(rest);
    *meanwhile.0.lock().expect("no panic while held") = Some(manager.clone());
    let request = Request::new(64 << 10).align(Align::of(4096));
    let aligned = manager.allocate(&request).expect("fits");
    assert_eq!(manager.report().rungs[Rung::Retire as usize], 1, "the observer was called");
    assert_eq!(aligned.binding().span().offset % 4096, 0);
    let more = manager.allocate(&Request::new(MORE));
    assert!(more.is_err(), "there is no room for it behind the next multiple");
    drop(meanwhile.0.lock().expect("no panic while held").take());
}

#[test]
fn what_is_too_large_for_one_heap_goes_to_the_next() {
    // Its blocks may be larger than what it has, so a policy permits it.
    let mut small = heap(HeapKind::Device, 4 * MIB);
    (small.max_block, small.page) = (64 * MIB, None);
    let host = Host::builder().heap(small).heap(heap(HeapKind::Device, 64 * MIB)).open();
    let manager = Manager::with_config(host.expect("a host device"), plain());
    let large = manager.allocate(&Request::new(16 * MIB)).expect("the second heap has room");
    assert_eq!(large.heap(), HeapId(1));
}

/// A driver that gives as many addresses as there is memory: every unmapped range counts.
#[test]
fn unmapped_ranges_that_touch_are_one() {
    let host = device(8 * MIB);
    let manager = Manager::new(asked(&host, |call| match call.kind {
        CallKind::Reserve if call.size > 8 * MIB => Verdict::Refuse(ErrorKind::ExceedsLimit.into()),
        _ => Verdict::Forward,
    }));
    let pages = [(); 4].map(|()| manager.allocate(&Request::new(2 * MIB)).expect("fits"));
    for page in pages {
        drop(page);
        manager.trim().expect("alive");
    }
    assert_eq!(manager.heap_use(HEAP).expect("there").reserved, 0);
    let whole = manager.allocate(&Request::new(8 * MIB));
    assert!(whole.is_ok(), "{:?}", whole.err());
}

#[test]
fn a_reserve_can_always_be_made_smaller() {
    let manager = Manager::with_config(device(64 * MIB), plain());
    let other = manager.domain(plain()).expect("host memory can be cleared");
    other.set_reserve(HEAP, 32 * MIB).expect("nobody holds anything");
    let _held = manager.allocate(&Request::new(32 * MIB).dedicated()).expect("beside the reserve");
    let more = manager.allocate(&Request::new(16 * MIB).dedicated());
    assert!(more.is_err(), "it was promised to the other");
    drop(more);
    other.set_reserve(HEAP, 16 * MIB).expect("less is never refused");
    let more = manager.allocate(&Request::new(16 * MIB).dedicated());
    assert!(more.is_ok(), "{:?}", more.err());
    other.set_reserve(HEAP, 32 * MIB).expect_err("it is held by now");
}

/// Keys of holes, which defragmentation carves bytes out of.
#[test]
fn the_key_of_a_hole_that_is_gone_fits_nothing() {
    let mut random = Random(11);
    let mut tlsf = Tlsf::new(Align::ONE);
    let block = tlsf.add_block(1 << 16).expect("an empty strategy takes it");
    let (mut live, mut gone) = (Vec::new(), Vec::new());
    let mut known = Vec::new();
    for _ in 0..4000 {
        if random.below(2) == 0 && !live.is_empty() {
            let key = live.swap_remove(random.index(live.len()));
            tlsf.free(key).expect("live");
        } else if let Ok(grant) = tlsf.allocate(Layout::new(1 + random.below(2000)), Class::Linear)
        {
            live.push(grant.key);
        }
        let mut holes = Vec::new();
        tlsf.for_each_in(block, |key, span, holds| {
            holes.extend(holds.is_none().then_some((key, span)));
        });
        let is_there = |key| holes.iter().any(|(other, _)| *other == key);
        gone.extend(known.iter().copied().filter(|(key, _)| !is_there(*key)));
        for (key, span) in gone.iter().rev().take(16) {
            assert!(
                is_there(*key) || tlsf.carve_in(*key, *span, Class::Linear).is_err(),
                "{key:?} fits again"
            );
        }
        known = holes;
    }
    assert!(gone.len() > 200, "{}", gone.len());
}

/// A host-visible heap that fills is left at 14 sixteenths, and used again at 12: decisions do not flap.
#[test]
fn a_heap_that_filled_up_is_used_again_only_when_there_is_room() {
    let mut window = heap(HeapKind::Unified, 256 * MIB);
    (window.page, window.physical) = (None, 1);
    let host = Host::builder().heap(window).heap(heap(HeapKind::Staging, 256 * MIB)).open();
    let manager = Manager::with_config(host.expect("a host device"), plain());
    let request = Request::new(8 * MIB).usage(Usage::Upload);
    let ask = || manager.allocate(&request).expect("room");
    let mut live: Vec<_> = (0..28).map(|_| ask()).collect();
    assert!(live.iter().all(|one| one.heap() == HEAP), "up to 14 sixteenths");
    assert_ne!(ask().heap(), HEAP, "it is nearly full");
    live.truncate(26);
    assert_ne!(ask().heap(), HEAP, "27 of 32 are less than where it was left, and still too much");
    live.truncate(23);
    assert_eq!(ask().heap(), HEAP, "there is room again");
}

/// The blocks of one lane cannot go back, and nothing moves: only the search in other lanes serves the other threads.
#[test]
fn a_hole_in_the_lane_of_another_thread_is_found() {
    let mut config = plain();
    (config.pool.lanes, config.defragmentation) = (Some(2), Defragmentation::Off);
    let manager = Manager::with_config(device(16 * MIB), config);
    let mut live: Vec<_> =
        core::iter::from_fn(|| manager.allocate(&Request::new(1 << 18)).ok()).collect();
    let mut number = 0;
    live.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    for _ in 0..4 {
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| manager.allocate(&Request::new(1 << 18)).map(drop));
            asked.join().expect("no panic").expect("a hole of the other lane");
        });
    }
}
