//! Placement when the best heap is full: nearly full host windows, and spilling.
use omniheap_core::{
    Access, Align, Allocation, Budget, CopyRegion, ErrorKind, Event, HeapId, HeapKind, HostAccess,
    Limits, Manager, ManagerConfig, Observer, Pattern, PoolConfig, Reason, Refusal, Region,
    RegionVerdict, Rejection, Request, Rung, TimelineId, Usage, Writer,
};
use omniheap_host::{Host, heap};
use std::sync::{Arc, Mutex};

const MIB: u64 = 1 << 20;
const DEVICE: HeapId = HeapId(0);
const STAGING: HeapId = HeapId(1);
const WINDOW: HeapId = HeapId(2);

/// Returns a device with little memory, plenty of host memory, and a window of 16 MiB.
fn device() -> Host {
    let mut window = heap(HeapKind::Unified, 16 * MIB);
    (window.host, window.page, window.physical) = (HostAccess::Combined, None, 2);
    let mut staging = heap(HeapKind::Staging, 256 * MIB);
    staging.physical = 1;
    let device = heap(HeapKind::Device, 32 * MIB);
    Host::builder().heap(device).heap(staging).heap(window).open().expect("small")
}

fn heap_of(allocation: &Allocation<Host>) -> HeapId {
    allocation.binding().block().heap()
}

#[test]
fn a_window_at_its_limit_changes_the_decision_once() {
    let manager = Manager::new(device());
    let frame = Request::new(MIB / 4).usage(Usage::Upload);
    let mut live: Vec<_> = (0..52).map(|_| manager.allocate(&frame).expect("fits")).collect();
    assert!(live.iter().all(|one| heap_of(one) == WINDOW), "13 of 16 MiB");
    // Around the limit of 14 MiB, a thousand times up and down.
    let mut heaps = Vec::new();
    for _ in 0..1000 {
        let more: Vec<_> = (0..6).map(|_| manager.allocate(&frame).expect("fits")).collect();
        heaps.extend(more.iter().map(heap_of));
    }
    let flips = heaps.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!(flips, 1, "it leaves the window, and stays away");
    let told = manager.explain(&frame).expect("told").placement;
    assert_eq!((told.region, told.reason), (Region::Staging, Reason::NearlyFull(Region::Unified)));
    assert_eq!(manager.explain(&frame).expect("told").placement, told, "asking changes nothing");
    // The request returns to the window only when there is room: at most 12 MiB.
    live.truncate(48);
    assert_eq!(heap_of(&manager.allocate(&frame).expect("fits")), STAGING);
    live.truncate(47);
    assert_eq!(heap_of(&manager.allocate(&frame).expect("fits")), WINDOW);
    let told = manager.explain(&frame).expect("told").placement;
    assert_eq!((told.region, told.reason), (Region::Unified, Reason::WrittenInPlace));
}

#[test]
fn who_permits_no_substitute_stays_in_the_window() {
    let manager = Manager::new(device());
    let frame = Request::new(MIB).usage(Usage::Upload).no_substitute();
    let live: Vec<_> = (0..16).map(|_| manager.allocate(&frame).expect("fits")).collect();
    assert!(live.iter().all(|one| heap_of(one) == WINDOW));
}

/// The rungs and regions that an observer was told of.
#[derive(Debug, Default)]
struct Told(Mutex<(Vec<Rung>, Vec<Region>)>);

impl Observer for Told {
    fn observe(&self, event: &Event<'_>) {
        let mut told = self.0.lock().expect("nobody panicked");
        match event {
            Event::Climb { rung, .. } => told.0.push(*rung),
            Event::Allocate { placement: Some(placement), .. } => told.1.push(placement.region),
            _ => {}
        }
    }
}

#[test]
fn what_may_spill_goes_to_host_memory_last_and_says_so() {
    let told = Arc::new(Told::default());
    let observer = Arc::clone(&told) as Arc<dyn Observer>;
    let manager = Manager::with_config(device(), ManagerConfig::default().observed(observer));
    let request = Request::new(8 * MIB).may_spill();
    let live: Vec<_> = (0..8).map(|_| manager.allocate(&request).expect("somewhere")).collect();
    let heaps: Vec<_> = live.iter().map(heap_of).collect();
    assert_eq!(heaps[..4], [DEVICE; 4], "device memory first");
    assert_eq!(heaps[4..6], [WINDOW; 2], "then what the policy permits");
    assert_eq!(heaps[6..], [STAGING; 2], "host memory last");
    let placed: Vec<_> = live.iter().map(Allocation::placed).collect();
    assert_eq!((placed[0].region, placed[0].reason), (Region::Device, Reason::WrittenByKernels));
    assert_eq!(
        (placed[4].region, placed[4].reason),
        (Region::Unified, Reason::Full(Region::Device))
    );
    assert_eq!((placed[6].region, placed[6].reason), (Region::Staging, Reason::Spilled));
    assert!(placed.iter().map(|one| one.heap).eq(heaps), "and where");
    let rungs: Vec<_> = placed[4..].iter().map(|one| one.rung).collect();
    let (next, spill) = (Some(Rung::NextHeap), Some(Rung::Spill));
    assert_eq!(rungs, [next, next, spill, spill], "and how");
    assert_eq!(manager.report().rungs[Rung::Spill as usize], 2, "and it is counted");
    let told = told.0.lock().expect("nobody panicked");
    assert_eq!(told.0.iter().filter(|rung| **rung == Rung::Spill).count(), 2, "and told");
    assert_eq!(told.1.iter().filter(|region| **region == Region::Staging).count(), 2);
    // Bytes are bytes, wherever they are.
    live[7].write(0, &[7; 64]).expect("written");
    let mut back = [0; 64];
    live[7].read(0, &mut back).expect("read");
    assert_eq!(back, [7; 64]);
}

#[test]
fn without_leave_to_spill_the_error_says_that_it_would_help() {
    let manager = Manager::new(device());
    let request = Request::new(8 * MIB);
    let live: Vec<_> = (0..6).map(|_| manager.allocate(&request).expect("fits")).collect();
    let before = manager.report();
    let error = manager.allocate(&request).expect_err("full");
    assert!(error.kind().is_out_of_memory());
    assert!(error.shortage().is_some_and(|shortage| shortage.fits_after_spill));
    assert!(error.to_string().contains("let it spill"), "{error}");
    assert_eq!(manager.report().totals.live_bytes, before.totals.live_bytes, "nothing changed");
    assert_eq!(manager.report().rungs[Rung::Spill as usize], 0);
    // A named heap means that heap.
    let named = manager.allocate(&request.may_spill().heap(DEVICE)).expect_err("full");
    assert!(named.kind().is_out_of_memory());
    // And where host memory is full too, nothing helps.
    manager.set_budget(STAGING, Limits::hard(0)).expect("set");
    let error = manager.allocate(&request.may_spill()).expect_err("full");
    assert!(error.shortage().is_some_and(|shortage| !shortage.fits_after_spill), "{error}");
    drop(live);
    assert_eq!(heap_of(&manager.allocate(&request.may_spill()).expect("fits")), DEVICE);
}

#[test]
fn what_cannot_be_placed_is_refused_with_the_region_the_limit_and_the_value() {
    let table = Request::new(MIB).writer(Writer::HostOnce).pattern(Pattern::Broadcast);
    let table = table.reuse(2).no_substitute();
    let manager = Manager::new(Host::new());
    let error = manager.allocate(&table).expect_err("larger than the bank");
    assert_eq!(error.kind(), ErrorKind::ExceedsLimit);
    let limit = 64 << 10;
    let why = Refusal::TooLarge { size: MIB, limit };
    let wanted = RegionVerdict { region: Region::Constant, refusal: Some(why) };
    assert_eq!((error.refused(), error.shortage()), (Some(&wanted), None));
    assert!(error.to_string().contains("1048576") && error.to_string().contains("65536"));
    assert_eq!(manager.explain(&table).expect_err("as allocate"), error);
    // A device without the region names it as well.
    let bare = Host::builder().heap(heap(HeapKind::Device, 64 * MIB)).open().expect("small");
    let both = Request::new(64).access(Access::Both).no_substitute();
    let error = Manager::new(bare).allocate(&both).expect_err("no such memory");
    assert_eq!(error.kind(), ErrorKind::NoSuchHeap);
    assert_eq!(error.refused().and_then(|verdict| verdict.refusal), Some(Refusal::Missing));
    assert!(
        error
            .to_string()
            .contains("unified memory suits it best, but the device has no such memory")
    );
}

#[test]
fn coherent_requests_avoid_memory_that_needs_a_flush() {
    let mut lazy = heap(HeapKind::Staging, 64 * MIB);
    lazy.host = HostAccess::Incoherent;
    let device = heap(HeapKind::Device, 64 * MIB);
    let only = Host::builder().heap(device.clone()).heap(lazy.clone()).open().expect("small");
    let manager = Manager::new(only);
    let back = Request::new(MIB).usage(Usage::Readback);
    assert_eq!(manager.explain(&back).expect("told").placement.region, Region::Staging);
    let refused = manager.allocate(&back.coherent()).map_err(|error| error.kind());
    assert_eq!(refused.map(drop), Err(ErrorKind::NoSuchHeap), "there is none");
    drop(manager.allocate(&Request::new(MIB).coherent()).expect("the host never looks at it"));
    let combined = {
        let mut combined = heap(HeapKind::Staging, 64 * MIB);
        combined.host = HostAccess::Combined;
        combined
    };
    let both = Host::builder().heap(device).heap(lazy).heap(combined).open().expect("small");
    let manager = Manager::new(both);
    assert_eq!(heap_of(&manager.allocate(&back).expect("fits")), HeapId(1), "cached is faster");
    for request in [back.coherent(), Request::new(MIB).access(Access::Both).coherent()] {
        let told = manager.explain(&request).expect("told");
        assert_eq!(told.placement.heaps.as_slice(), [HeapId(2)]);
        assert_eq!(told.verdicts[1].rejected, Some(Rejection::Incoherent));
    }
}

#[test]
fn published_bytes_are_final() {
    let manager = Manager::new(Host::new());
    let constant = manager.caps().heap_ids().find(|(_, heap)| heap.kind == HeapKind::Constant);
    let constant = constant.expect("host memory has constants").0;
    for heap in [constant, DEVICE] {
        let table = manager.allocate(&Request::new(256).heap(heap)).expect("fits");
        table.write(0, &[1; 256]).expect("open");
        assert!(!table.is_published());
        table.publish().expect("final");
        table.publish().expect("once more is the same");
        let kind = |result: omniheap_core::Result<()>| result.map_err(|error| error.kind());
        assert_eq!(kind(table.write(0, &[2; 256])), Err(ErrorKind::Published));
        assert_eq!(kind(table.fill(0, 256, 2)), Err(ErrorKind::Published));
        assert_eq!(table.map().map(drop).map_err(|e| e.kind()), Err(ErrorKind::Published));
        let other = manager.allocate(&Request::new(256)).expect("fits");
        let copy = CopyRegion { from: &other, from_offset: 0, to: &table, to_offset: 0, size: 256 };
        let copied = manager.copy(TimelineId::MAIN, &[copy]);
        assert_eq!(kind(copied), Err(ErrorKind::Published));
        let mut back = [0; 256];
        table.read(0, &mut back).expect("reading is free");
        assert_eq!(back, [1; 256]);
        drop(table);
        let next = manager.allocate(&Request::new(256).heap(heap).align(Align::of(256)));
        next.expect("fits").write(0, &[3; 256]).expect("the next owner writes");
    }
}

/// The region, reason and rung that an allocation remembers.
fn why(allocation: &Allocation<Host>) -> (HeapId, Region, Reason, Option<Rung>) {
    let placed = allocation.placed();
    assert_eq!(placed.heap, heap_of(allocation));
    (placed.heap, placed.region, placed.reason, placed.rung)
}

#[test]
fn an_allocation_remembers_what_was_decided_for_it() {
    let manager = Manager::new(device());
    let driver = Some(Rung::Driver);
    let usual = (DEVICE, Region::Device, Reason::WrittenByKernels);
    let plain = manager.allocate(&Request::new(4096)).expect("fits");
    assert_eq!(why(&plain), (usual.0, usual.1, usual.2, driver), "the ladder served it");
    let warm = manager.allocate(&Request::new(4096)).expect("fits");
    assert_eq!(why(&warm), (usual.0, usual.1, usual.2, None), "the fast path did");
    let labelled = manager.allocate(&Request::new(4096).name("mesh")).expect("fits");
    assert_eq!(why(&labelled), (usual.0, usual.1, usual.2, None));
    let own = manager.create_pool(DEVICE, PoolConfig::new()).expect("a pool");
    let kept = [(); 2].map(|()| own.allocate(&Request::new(4096)).expect("fits"));
    let of_own = |rung| (DEVICE, Region::Device, Reason::OwnPool, rung);
    assert_eq!(kept.each_ref().map(why), [of_own(driver), of_own(None)], "both ways of a pool");
    let read = manager.allocate(&Request::new(4096).usage(Usage::Readback)).expect("fits");
    assert_eq!(why(&read), (STAGING, Region::Staging, Reason::ReadByHost, driver));
    let again = manager.allocate(&Request::new(4096).usage(Usage::Readback)).expect("fits");
    assert_eq!(why(&again), (STAGING, Region::Staging, Reason::ReadByHost, None));
    let named = manager.allocate(&Request::new(4096).heap(STAGING)).expect("fits");
    assert_eq!(why(&named), (STAGING, Region::Staging, Reason::Named, None));
    // A slot that is used again has nothing of the one before.
    let slot = read.id().slot();
    drop((read, again));
    let reused = manager.allocate(&Request::new(4096).heap(STAGING)).expect("fits");
    let other = manager.allocate(&Request::new(4096).heap(STAGING)).expect("fits");
    assert!([&reused, &other].iter().any(|one| one.id().slot() == slot), "one has its slot");
    assert_eq!(why(&reused).2, Reason::Named);
    assert_eq!(why(&other).2, Reason::Named);
}

#[test]
fn a_pool_of_the_program_and_a_resize_are_remembered() {
    let manager = Manager::new(device());
    let pool = manager.create_pool(WINDOW, PoolConfig::new()).expect("small");
    let own = pool.allocate(&Request::new(4096)).expect("fits");
    assert_eq!(why(&own).1, Region::Unified);
    assert_eq!(why(&own).2, Reason::OwnPool);
    let own = manager.resize(own, 8192).expect("fits");
    assert_eq!(why(&own).2, Reason::OwnPool, "a resize keeps it");
    let plain = manager.allocate(&Request::new(4096)).expect("fits");
    let plain = manager.resize(plain, 8192).expect("fits");
    assert_eq!(why(&plain).2, Reason::WrittenByKernels);
    let request = Request::new(30 * MIB).may_spill();
    let near = manager.allocate(&request).expect("fits");
    let far = manager.allocate(&request).expect("host memory has room");
    assert_eq!(why(&far), (STAGING, Region::Staging, Reason::Spilled, Some(Rung::Spill)));
    let far = manager.resize(far, 20 * MIB).expect("fits");
    assert_eq!(why(&far), (STAGING, Region::Staging, Reason::Spilled, Some(Rung::Spill)));
    drop((near, plain));
    let back = manager.begin_recall(&Budget::new()).expect("alive").commit().expect("alive");
    assert_eq!(back.moved.moves, 1);
    let (heap, region, reason, _) = why(&far);
    assert_eq!((heap, region, reason), (DEVICE, Region::Device, Reason::WrittenByKernels));
    let far = manager.resize(far, 10 * MIB).expect("there is room");
    assert_eq!(why(&far).2, Reason::WrittenByKernels, "it is at home");
}

#[test]
fn an_observed_manager_remembers_as_well() {
    let observer = Arc::new(Told::default()) as Arc<dyn Observer>;
    let manager = Manager::with_config(device(), ManagerConfig::default().observed(observer));
    let frame = Request::new(4096).usage(Usage::Upload);
    let live: Vec<_> = (0..3).map(|_| manager.allocate(&frame).expect("fits")).collect();
    assert!(live.iter().all(|one| why(one).2 == Reason::WrittenInPlace));
    let plain: Vec<_> =
        (0..3).map(|_| manager.allocate(&Request::new(64)).expect("fits")).collect();
    assert!(plain.iter().all(|one| why(one).2 == Reason::WrittenByKernels));
    drop((live, plain));
    manager.validate().expect("sound");
}
