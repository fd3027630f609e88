//! Mutants that survived all other tests, one test for each: exact counts, exact limits, exact shortages.
use super::before::asked;
use super::{HEAP, MIB, device, managed, one_lane, plain};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use omniheap_core::{
    Align, AllocationId, Backend, Background, BackingStore, BlockOffset, Budget, Caps, Decision,
    Defragmentation, ErrorKind, Event, GetPiece, Growth, HeapId, HeapKind, HostPinner, Limits,
    Manager, ManagerConfig, Observer, Placement, Policy, PoolConfig, Privacy, PutPiece, Ranking,
    Reason, Region, Relief, Request, Result, Rung, Shortage, Sleep, Step, TimelineId, Timelines,
    Wake,
};
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Verdict};
use std::sync::{Arc, Mutex, MutexGuard};

#[test]
fn every_call_that_takes_or_returns_memory_is_counted() {
    for config in [plain(), one_lane(ManagerConfig::default())] {
        let (host, count) = (device(64 * MIB), Arc::new(AtomicU64::new(0)));
        let seen = Arc::clone(&count);
        let device = asked(&host, move |call| {
            use CallKind::{Allocate, Create, Destroy, Free, MapPages, Reserve, UnmapPages};
            let counts = [Allocate, Free, Reserve, Create, Destroy, MapPages, UnmapPages];
            seen.fetch_add(u64::from(counts.contains(&call.kind)), Relaxed);
            Verdict::Forward
        });
        let manager = Manager::with_config(device, config);
        let check = |after: &str| {
            assert_eq!(manager.report().driver_calls, count.load(Relaxed), "after {after}");
        };
        check("nothing");
        let some = [1000, 3 * MIB, 9 * MIB];
        let some = some.map(|size| manager.allocate(&Request::new(size)).expect("fits"));
        check("three requests");
        let alone = manager.allocate(&Request::new(5 * MIB).dedicated()).expect("fits");
        check("a block of its own");
        let too_much = manager.allocate(&Request::new(60 * MIB));
        assert!(too_much.is_err());
        check("a shortage");
        drop((some, alone));
        manager.trim().expect("alive");
        check("a trim");
        assert!(count.load(Relaxed) >= 6, "{count:?}");
    }
}

#[test]
fn steps_add_up_to_what_the_report_says() {
    let mut config = plain();
    let how = Background::new(Budget::new().moves(5)).between(1, 5);
    config.defragmentation = Defragmentation::Background(how);
    let manager = managed(device(256 * MIB), config);
    let all: Vec<_> =
        (0..400).map(|_| manager.allocate(&Request::new(200_000)).expect("fits")).collect();
    let _kept: Vec<_> = all.into_iter().step_by(5).collect();
    let (mut moves, mut bytes, mut returned, mut blocks) = (0, 0, 0, 0);
    let mut idle = 0;
    while idle < 3 {
        match manager.step().expect("alive") {
            Step::Committed(outcome) => {
                let moved = outcome.moved;
                assert!(moved.returned_blocks <= 1, "a step returns one block");
                (moves, bytes) = (moves + moved.moves, bytes + moved.bytes);
                (returned, blocks) =
                    (returned + moved.returned_bytes, blocks + moved.returned_blocks);
                idle = 0;
            }
            Step::Idle => idle += 1,
            _ => std::thread::yield_now(),
        }
    }
    let report = manager.report();
    let sums = report.defragmentation;
    assert!(moves > 20 && returned > 8 * MIB, "{sums:?}");
    assert_eq!((sums.moves, sums.bytes, report.moved_bytes), (moves, bytes, bytes));
    assert_eq!((sums.returned_bytes, sums.returned_blocks), (returned, blocks));
}

/// Guard bytes lie behind an allocation, and an owner that copies its bytes does not copy those.
#[test]
fn an_allocation_that_its_owner_moved_has_no_guard_any_more() {
    let manager = managed(device(64 * MIB), plain().guarded());
    let all: Vec<_> =
        (0..60).map(|_| manager.allocate(&Request::new(200_000)).expect("fits")).collect();
    let kept: Vec<_> = all.into_iter().step_by(3).collect();
    kept.iter().for_each(|one| one.fill(0, 200_000, 0x77).expect("in range"));
    let before = manager.guard_report().unguarded;
    let pass = manager.begin_defragment(&Budget::new()).expect("alive");
    let moved = pass.run(|_| Decision::OwnerCopies).expect("alive").moved.moves;
    assert!(moved > 0);
    assert_eq!(manager.guard_report().unguarded, before + moved);
    drop(kept);
    assert_eq!(manager.overwrites().expect("guards are on").len(), 0, "nobody wrote there");
}

/// A timeline that was ordered behind another takes more of its bytes without a further order.
#[test]
fn an_order_is_made_once() {
    let (host, orders) = (device(1 << 30), Arc::new(AtomicU64::new(0)));
    let seen = Arc::clone(&orders);
    let device = asked(&host, move |call| {
        seen.fetch_add(u64::from(call.kind == CallKind::Order), Relaxed);
        Verdict::Forward
    });
    let manager = Manager::with_config(device, plain());
    let other = host.open().expect("another timeline");
    let ask = |on| manager.allocate(&Request::new(100 * MIB).on(on)).expect("there is room");
    let both = [ask(TimelineId::MAIN), ask(TimelineId::MAIN)];
    let held = host.hold(TimelineId::MAIN).expect("it is open");
    drop(both);
    let reserved = manager.heap_use(HEAP).expect("there").reserved;
    let taken = [ask(other), ask(other)];
    assert_eq!(manager.heap_use(HEAP).expect("there").reserved, reserved, "nothing was grown");
    assert_eq!(orders.load(Relaxed), 1);
    drop(held);
    drop(taken);
}

/// Every number of a shortage, and the first size that fits.
#[test]
fn a_shortage_is_exact() {
    let manager = managed(device(8 * MIB), plain());
    let ask = |size| manager.allocate(&Request::new(size));
    let [first, second, _third] = [3, 3, 2].map(|size| ask(size * MIB).expect("fits"));
    let shortage = |requested, largest_hole, free, reserved, live| Shortage {
        heap: HEAP,
        requested,
        largest_hole,
        free,
        reserved,
        live,
        deferred: 0,
        hard_limit: u64::MAX,
        fits_after_defragment: free >= requested,
        fits_after_wait: free >= requested,
        fits_after_spill: false,
    };
    let said = |size| *ask(size).expect_err("no room").shortage().expect("it was short");
    assert_eq!(said(MIB), shortage(MIB, 0, 0, 8 * MIB, 8 * MIB));
    drop(second);
    assert_eq!(said(4 * MIB), shortage(4 * MIB, 3 * MIB, 3 * MIB, 8 * MIB, 5 * MIB));
    drop(first);
    // The empty block was returned, and the driver has no more than its bytes.
    assert_eq!(said(7 * MIB), shortage(7 * MIB, 0, 0, 2 * MIB, 2 * MIB));
    let last = ask(6 * MIB).expect("just what the driver has");
    assert_eq!(manager.report().rungs[Rung::Driver as usize], 3);
    drop(last);
}

/// Staging memory has room for just as much, or one byte less.
#[test]
fn a_shortage_says_whether_host_memory_has_room() {
    for (size, fits) in [(4 * MIB, true), (4 * MIB + 1, false)] {
        let mut staging = heap(HeapKind::Staging, 4 * MIB);
        staging.physical = 1;
        let host = Host::builder().heap(heap(HeapKind::Device, 8 * MIB)).heap(staging).open();
        let manager = managed(host.expect("a host device"), plain());
        let _held = manager.allocate(&Request::new(8 * MIB).heap(HEAP)).expect("fits");
        let error = manager.allocate(&Request::new(size).heap(HEAP)).expect_err("it is full");
        assert_eq!(error.shortage().map(|short| short.fits_after_spill), Some(fits), "{size}");
    }
}

#[test]
fn background_work_begins_above_one_share_and_ends_below_another() {
    let mut config = plain();
    let how = Background::new(Budget::new().moves(1)).between(25, 25);
    config.defragmentation = Defragmentation::Background(how);
    config.pool.block = Some(4 * MIB);
    let manager = managed(device(64 * MIB), config);
    let ask = || manager.allocate(&Request::new(MIB / 4)).expect("fits");
    let mut all: Vec<_> = (0..16).map(|_| Some(ask())).collect();
    let mut free = |which: usize| drop(all[which].take());
    [1, 4, 7, 10].into_iter().for_each(&mut free);
    assert_eq!(manager.step().expect("alive"), Step::Idle, "25 of 100 are free, and not more");
    free(13);
    assert_ne!(manager.step().expect("alive"), Step::Idle, "more are free");
    while !matches!(manager.step().expect("alive"), Step::Committed(_)) {
        std::thread::yield_now();
    }
    let one = ask();
    assert_ne!(manager.step().expect("alive"), Step::Idle, "25 of 100 are free, and not less");
    while !matches!(manager.step().expect("alive"), Step::Committed(_)) {
        std::thread::yield_now();
    }
    let two = ask();
    assert_eq!(manager.step().expect("alive"), Step::Idle, "less are free");
    drop((one, two));
}

#[test]
fn a_request_as_large_as_its_pool_goes_without_a_guard() {
    let config = one_lane(ManagerConfig::default()).guarded();
    let manager = managed(device(1 << 30), config);
    let config = PoolConfig::new().paged().maximum(8 * MIB);
    let pool = manager.create_pool(HEAP, config).expect("valid");
    let before = manager.guard_report().unguarded;
    let whole = pool.allocate(&Request::new(8 * MIB)).expect("all of it");
    assert_eq!(manager.guard_report().unguarded, before + 1);
    drop(whole);
    let unit = ManagerConfig::default().unit.get();
    drop(pool.allocate(&Request::new(8 * MIB - unit)).expect("all but room for a guard"));
    assert_eq!(manager.guard_report().unguarded, before + 1, "there was room for a guard");
}

#[test]
fn what_is_aligned_as_far_as_its_heap_allows_comes_back() {
    let near = heap(HeapKind::Device, 16 * MIB);
    let mut far = heap(HeapKind::Staging, 16 * MIB);
    (far.physical, far.align) = (1, near.align);
    let align = near.align;
    let host = Host::builder().heap(near).heap(far).open().expect("a host device");
    let manager = managed(host, plain());
    let full = manager.allocate(&Request::new(16 * MIB).heap(HEAP)).expect("fits");
    let request = Request::new(64 << 10).align(align).may_spill();
    let spilled = manager.allocate(&request).expect("host memory");
    assert_eq!(spilled.heap(), HeapId(1));
    drop(full);
    let pass = manager.begin_recall(&Budget::new()).expect("alive");
    assert_eq!(pass.commit().expect("alive").moved.moves, 1);
    assert_eq!(spilled.heap(), HEAP);
}

#[test]
fn what_moves_take_is_learnt_from_those_that_were_made() {
    let manager = managed(device(64 * MIB), plain());
    let all: Vec<_> =
        (0..60).map(|_| manager.allocate(&Request::new(200_000)).expect("fits")).collect();
    let kept: Vec<_> = all.into_iter().step_by(3).collect();
    assert_eq!(manager.report().move_costs[0].per_copy, None, "nothing was copied yet");
    let mut pass = manager.begin_defragment(&Budget::new()).expect("alive");
    assert!(pass.moves().len() > 0);
    pass.start().expect("alive");
    pass.commit().expect("alive");
    assert!(manager.report().move_costs[0].per_copy.is_some());
    drop(kept);

    let manager = managed(device(64 * MIB), ManagerConfig::default());
    drop(manager.allocate(&Request::new(MIB)).expect("fits"));
    assert_eq!(manager.report().move_costs[0].per_remap, None, "nothing was unmapped yet");
    manager.trim().expect("alive");
    assert!(manager.report().move_costs[0].per_remap.is_some());
}

#[test]
fn a_rung_that_is_busy_is_no_answer() {
    let host = device(16 * MIB);
    let busy = |call: &omniheap_layers::Call| match call.kind {
        CallKind::Wait | CallKind::WaitIdle => Verdict::Refuse(ErrorKind::Busy.into()),
        _ => Verdict::Forward,
    };
    let manager = Manager::with_config(asked(&host, busy), plain());
    let timeline = host.open().expect("another timeline");
    let first = manager.allocate(&Request::new(12 * MIB).on(timeline)).expect("fits");
    let held = host.hold(timeline).expect("it is open");
    first.fill(0, MIB, 1).expect("inside");
    drop(first);
    let asked = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&asked);
    manager.on_pressure(move |_| {
        seen.fetch_add(1, Relaxed);
        Relief::Nothing
    });
    let refused = manager.allocate(&Request::new(12 * MIB)).expect_err("in use");
    assert!(refused.kind().is_out_of_memory(), "{refused:?}");
    assert_eq!(asked.load(Relaxed), 1, "the program was asked all the same");
    drop(held);
}

#[test]
fn a_block_that_the_driver_refuses_does_not_count_against_its_limit() {
    let mut caps = device(16 * MIB).caps().clone();
    caps.max_blocks = 1;
    let host = Arc::new(Host::like(caps).expect("a host device"));
    let refusals = AtomicU64::new(0);
    let manager = Manager::with_config(
        asked(&host, move |call| match call.kind {
            CallKind::Allocate if refusals.fetch_add(1, Relaxed) < 8 => {
                Verdict::Refuse(ErrorKind::OutOfDeviceMemory.into())
            }
            _ => Verdict::Forward,
        }),
        plain(),
    );
    let served = (0..9).find_map(|_| manager.allocate(&Request::new(MIB)).ok());
    assert!(served.is_some(), "the driver has room for one block");
}

/// Bytes that one domain leaves in the driver's memory are cleared before another gets it; alone, nobody pays for that.
#[test]
fn memory_is_cleared_for_a_domain_that_has_neighbours() {
    for config in [plain(), one_lane(ManagerConfig::default())] {
        let host = device(64 * MIB);
        let cleared = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&cleared);
        let backend = asked(&host, move |call| {
            if call.kind == CallKind::Fill {
                seen.fetch_add(call.size, Relaxed);
            }
            Verdict::Forward
        });
        let manager = Manager::with_config(backend, config.clone());
        drop(manager.allocate(&Request::new(MIB)).expect("fits"));
        assert_eq!(cleared.load(Relaxed), 0, "nobody else was there");
        manager.trim().expect("alive");
        let other = manager.domain(config).expect("host memory can be cleared");
        let _theirs = other.allocate(&Request::new(MIB)).expect("fits");
        let held = other.heap_use(HEAP).expect("there").reserved;
        assert_eq!(cleared.load(Relaxed), held, "all that it got");
    }
}

#[test]
fn a_block_holds_as_many_of_a_size_as_leave_little_over() {
    let half = MIB / 2;
    let growth = Growth {
        smallest: 4 * MIB,
        largest: 10 * MIB,
        granule: Align::of(2 * MIB),
        shared_up_to: 32 * MIB,
        part: 0,
    };
    // One leaves a sixth of its block over, and two fill the largest block there is.
    assert_eq!(growth.block_for(5 * MIB, 0), Some(10 * MIB));
    assert_eq!(growth.block_for(10 * MIB + 1, 0), None);
    // One and two leave the same share over.
    let growth = Growth { largest: 4 * MIB, ..growth };
    assert_eq!(growth.block_for(3 * half, 0), Some(2 * MIB));
    let growth = Growth::new(1 << 30, Align::ONE);
    // Two of these would leave less over, and are more than requests share.
    assert_eq!(growth.block_for(33 * half, 0), Some(18 * MIB));
    assert_eq!(growth.block_for(31 * half, 0), Some(16 * MIB));
}

/// Keeps zeros: as many as it was given bytes last. Counts how often it was lent a way to pin host memory.
#[derive(Debug, Default)]
struct Zeros {
    size: AtomicU64,
    pinned: AtomicU64,
}

impl Zeros {
    fn bytes(&self) -> Vec<u8> {
        vec![0; usize::try_from(self.size.load(Relaxed)).expect("small")]
    }
}

impl BackingStore for Zeros {
    fn prepare(&self, _: u64, _: &HostPinner<'_>) -> Result<()> {
        self.pinned.fetch_add(1, Relaxed);
        Ok(())
    }

    fn put(&self, _: AllocationId, size: u64, _: Privacy, copy: &mut PutPiece<'_>) -> Result<()> {
        self.size.store(size, Relaxed);
        copy(0, &mut self.bytes())
    }

    fn get(&self, _: AllocationId, take: &mut GetPiece<'_>) -> Result<()> {
        take(0, &self.bytes())
    }

    fn forget(&self, _: AllocationId) {}
}

#[test]
fn a_pool_that_wakes_gets_what_others_hold_and_do_not_use() {
    let device = heap(HeapKind::Device, 16 * MIB).page(Some(Align::of(64 << 10)));
    let host = Host::builder().heap(device).open().expect("a host device");
    let manager = managed(host, one_lane(ManagerConfig::default()));
    let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable()).expect("pages are there");
    let sleeper = pool.allocate(&Request::new(10 * MIB)).expect("fits");
    let store = Arc::new(Zeros::default());
    pool.sleep(&Sleep::to(Arc::<Zeros>::clone(&store))).expect("nothing is pinned");
    assert_eq!(store.pinned.load(Relaxed), 1, "a store may pin once, before bytes come");
    let other = manager.create_pool(HEAP, PoolConfig::new().paged()).expect("valid");
    let full = other.allocate(&Request::new(12 * MIB)).expect("the sleeper's memory");
    let refused = pool.wake(&Wake::all()).expect_err("the memory is in use");
    assert!(refused.kind().is_out_of_memory(), "{refused:?}");
    drop(full);
    assert_eq!(other.reserved(), 12 * MIB, "it keeps what is free now");
    pool.wake(&Wake::all()).expect("nobody uses it");
    assert_eq!(pool.reserved(), 10 * MIB);
    drop(sleeper);
}

/// A driver that cannot make one timeline run after another: what was to run after it is not taken.
#[test]
fn a_request_whose_order_fails_is_served_elsewhere_and_counted_once() {
    let host = device(1 << 30);
    let device = asked(&host, |call| match call.kind {
        CallKind::Order => Verdict::Refuse(ErrorKind::Driver.into()),
        _ => Verdict::Forward,
    });
    let manager = Manager::with_config(device, plain());
    let other = host.open().expect("another timeline");
    let ask = |on| manager.allocate(&Request::new(100 * MIB).on(on)).expect("there is room");
    let first = ask(TimelineId::MAIN);
    let held = host.hold(TimelineId::MAIN).expect("it is open");
    drop(first);
    let (before, reserved) = (manager.report().totals, manager.heap_use(HEAP).expect("there"));
    let second = ask(other);
    let after = manager.report().totals;
    assert!(manager.heap_use(HEAP).expect("there").reserved > reserved.reserved, "it was grown");
    assert_eq!(after.live, before.live + 1);
    assert_eq!(after.live_bytes, before.live_bytes + 100 * MIB);
    assert_eq!(after.granted_bytes, before.granted_bytes + 100 * MIB);
    drop((held, second));
    manager.validate().expect("what is counted is there");
}

#[test]
fn pages_that_the_driver_keeps_are_not_said_to_be_returned() {
    let (host, refuses) = (device(64 * MIB), Arc::new(AtomicU64::new(0)));
    let asked_to = Arc::clone(&refuses);
    let device = asked(&host, move |call| match call.kind {
        CallKind::UnmapPages if asked_to.load(Relaxed) == 1 => {
            Verdict::Refuse(ErrorKind::Driver.into())
        }
        _ => Verdict::Forward,
    });
    let manager = Manager::with_config(device, one_lane(ManagerConfig::default()));
    let all: Vec<_> =
        (0..60).map(|_| manager.allocate(&Request::new(200_000)).expect("fits")).collect();
    let _kept: Vec<_> = all.into_iter().step_by(3).collect();
    refuses.store(1, Relaxed);
    let pass = manager.begin_defragment(&Budget::new()).expect("alive");
    let moved = pass.commit().expect("it changes nothing where it fails").moved;
    assert_eq!(moved.returned_bytes, 0, "{moved:?}");
    refuses.store(0, Relaxed);
    let returned = manager.trim().expect("alive");
    assert!(returned > 0);
}

#[test]
fn a_driver_that_refuses_to_unmap_is_asked_again() {
    let (host, refusals) = (device(64 * MIB), Arc::new(AtomicU64::new(0)));
    let left = Arc::clone(&refusals);
    let device = asked(&host, move |call| {
        let take = |left: u64| left.checked_sub(1);
        let refuses =
            call.kind == CallKind::UnmapPages && left.fetch_update(Relaxed, Relaxed, take).is_ok();
        if refuses { Verdict::Refuse(ErrorKind::Driver.into()) } else { Verdict::Forward }
    });
    let manager = Manager::with_config(device, one_lane(ManagerConfig::default()));
    drop(manager.allocate(&Request::new(8 * MIB)).expect("fits"));
    let held = manager.totals().reserved_bytes;
    refusals.store(2, Relaxed);
    // A call that was refused may have unmapped a part: nobody may be given the rest.
    assert_eq!(manager.trim().expect("the third call is not refused"), held);
    assert_eq!((refusals.load(Relaxed), manager.totals().reserved_bytes), (0, 0));
}

#[test]
fn pools_that_stay_small_share_few_addresses() {
    let (host, left) = (device(64 * MIB), AtomicU64::new(512 * MIB));
    let device = asked(&host, move |call| {
        let take = |left: u64| left.checked_sub(call.size);
        let refuses =
            call.kind == CallKind::Reserve && left.fetch_update(Relaxed, Relaxed, take).is_err();
        if refuses { Verdict::Refuse(ErrorKind::Driver.into()) } else { Verdict::Forward }
    });
    let manager = Manager::with_config(device, one_lane(ManagerConfig::default()));
    let config = PoolConfig::new().sleepable().maximum(2 * MIB);
    for _ in 0..16 {
        let pool = manager.create_pool(HEAP, config).expect("pages");
        let one = pool.allocate(&Request::new(MIB)).expect("there are addresses");
        core::mem::forget((pool, one));
    }
}

/// Puts everything into one heap.
#[derive(Debug)]
struct Into(HeapId);

impl Policy for Into {
    fn place(&self, _: &Request<'_>, _: &Caps) -> Result<Placement> {
        let mut heaps = Ranking::new();
        heaps.push(self.0);
        Ok(Placement { region: Region::Staging, heaps, reason: Reason::ReadByHost })
    }
}

#[test]
fn what_a_programs_own_policy_says_is_done() {
    let device =
        Host::builder().heap(heap(HeapKind::Device, MIB)).heap(heap(HeapKind::Staging, MIB));
    let mut config = plain();
    config.policy = Arc::new(Into(HeapId(1)));
    let manager = managed(device.open().expect("a host device"), config);
    let request = Request::new(4096);
    let placed = manager.explain(&request).expect("it is placed").placement;
    assert_eq!(placed, Into(HeapId(1)).place(&request, manager.caps()).expect("anywhere"));
    assert_eq!(manager.allocate(&request).expect("fits").heap(), HeapId(1));
}

#[test]
fn a_pool_of_blocks_of_one_unit_serves_requests() {
    let mut config = plain();
    config.unit = Align::of(4096);
    let manager = managed(device(MIB), config);
    let ask =
        |block| manager.create_pool(HEAP, PoolConfig::new().block(block)).map_err(|e| e.kind());
    let pool = ask(4096).expect("a block holds one");
    let two = [1, 4096].map(|size| pool.allocate(&Request::new(size)).expect("fits"));
    assert_eq!(pool.reserved(), 2 * 4096);
    drop(two);
    assert_eq!(ask(2048).err(), Some(ErrorKind::InvalidConfig), "no block could hold anything");
}

/// Has room for one allocation.
#[derive(Debug, Default)]
struct RoomForOne(Mutex<Vec<AllocationId>>);

impl RoomForOne {
    fn kept(&self) -> MutexGuard<'_, Vec<AllocationId>> {
        self.0.lock().expect("nobody panics")
    }
}

impl BackingStore for RoomForOne {
    fn put(&self, id: AllocationId, _: u64, _: Privacy, _: &mut PutPiece<'_>) -> Result<()> {
        let is_full = !self.kept().is_empty();
        if is_full {
            return Err(ErrorKind::OutOfHostMemory.into());
        }
        self.kept().push(id);
        Ok(())
    }

    fn get(&self, _: AllocationId, _: &mut GetPiece<'_>) -> Result<()> {
        Err(ErrorKind::Stale.into())
    }

    fn forget(&self, id: AllocationId) {
        self.kept().retain(|known| *known != id);
    }
}

#[test]
fn a_sleep_that_fails_leaves_nothing_in_the_store() {
    let manager = managed(device(64 * MIB), one_lane(ManagerConfig::default()));
    let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable()).expect("pages are there");
    let _both = [1, 2].map(|n| pool.allocate(&Request::new(n * MIB)).expect("fits"));
    let store = Arc::new(RoomForOne::default());
    pool.sleep(&Sleep::to(Arc::<RoomForOne>::clone(&store))).expect_err("one has no room");
    assert!(!pool.residence().asleep);
    assert_eq!(*store.kept(), [], "what was stored before is forgotten");
}

#[test]
fn what_was_bound_while_its_pool_slept_has_a_place_once_it_is_awake() {
    let manager = managed(device(64 * MIB), one_lane(ManagerConfig::default()));
    let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable()).expect("pages are there");
    let sleeper = pool.allocate(&Request::new(MIB)).expect("fits");
    pool.sleep(&Sleep::to(Arc::new(Zeros::default()))).expect("nothing is pinned");
    let bound = sleeper.binding();
    assert_eq!(bound.place(0, MIB).map(drop).map_err(|e| e.kind()), Err(ErrorKind::Asleep));
    pool.wake(&Wake::all()).expect("its memory is free");
    assert_eq!(bound.place(0, MIB).map(|place| place.offset), Ok(bound.span().offset));
}

#[test]
fn bytes_move_on_the_main_timeline_where_no_other_can_be_opened() {
    let host = device(64 * MIB);
    let device = asked(&host, |call| match call.kind {
        CallKind::Open => Verdict::Refuse(ErrorKind::Driver.into()),
        _ => Verdict::Forward,
    });
    let manager = Manager::with_config(device, plain());
    let all: Vec<_> =
        (0..60).map(|_| manager.allocate(&Request::new(200_000)).expect("fits")).collect();
    let _kept: Vec<_> = all.into_iter().step_by(3).collect();
    assert!(manager.defragment().expect("the main timeline copies") > 0);
}

/// A write behind an allocation's end that nobody looked at before the manager ended, though another allocation outlives that.
#[test]
fn a_manager_that_ends_tells_what_was_overwritten() {
    let told = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&told);
    let config = plain().guarded_with(move |_| {
        count.fetch_add(1, Relaxed);
    });
    let manager = managed(device(64 * MIB), config);
    let request = Request::new(100).on(TimelineId::MAIN);
    let [_outlives, one] = [(); 2].map(|()| manager.allocate(&request).expect("fits"));
    let bound = one.binding();
    let behind = BlockOffset { block: bound.block(), offset: bound.span().end() };
    let transfer = manager.backend().as_transfer().expect("a host copies");
    transfer.fill(TimelineId::MAIN, behind, 1, 1).expect("inside the block");
    drop(bound);
    drop(one);
    drop(manager);
    assert_eq!(told.load(Relaxed), 1);
}

#[test]
fn bytes_that_must_outlast_a_timeline_wait_for_it() {
    let host = device(64 * MIB);
    let line = host.open().expect("a timeline");
    let manager = managed(Arc::clone(&host), plain());
    let one = manager.allocate(&Request::new(MIB)).expect("fits");
    let held = host.hold(line).expect("it is open");
    one.outlast(line);
    drop(one);
    assert_eq!(manager.totals().deferred_bytes, MIB);
    drop(held);
    host.wait_idle().expect("alive");
    manager.retire().expect("alive");
    assert_eq!(manager.totals().deferred_bytes, 0);
}

/// Counts the allocations that it is told of.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Observer for Counter {
    fn observe(&self, event: &Event<'_>) {
        self.0.fetch_add(u64::from(matches!(event, Event::Allocate { .. })), Relaxed);
    }
}

/// The fast path of a pool looks at nothing but the size, so what says more must not take it.
#[test]
fn a_pool_that_has_a_hole_honours_what_a_request_says() {
    let manager = managed(device(64 * MIB), plain());
    let pool = manager.create_pool(HEAP, PoolConfig::new()).expect("valid");
    drop(pool.allocate(&Request::new(MIB)).expect("fits"));
    let _named = pool.allocate(&Request::new(100).name("its name")).expect("fits");
    let pools = manager.report().pools;
    let spans = pools.iter().flat_map(|pool| &pool.blocks).flat_map(|block| &block.live);
    assert!(spans.into_iter().any(|span| span.name.as_deref() == Some("its name")));
    let too_far = Request::new(100).align(Align::of(8192));
    let refused = pool.allocate(&too_far).map(drop).map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::InvalidAlignment));
    let (counter, mut config) = (Arc::new(Counter::default()), plain());
    config.observer = Some(Arc::<Counter>::clone(&counter));
    let manager = managed(device(64 * MIB), config);
    let pool = manager.create_pool(HEAP, PoolConfig::new()).expect("valid");
    (0..3).for_each(|_| drop(pool.allocate(&Request::new(MIB)).expect("fits")));
    assert_eq!(counter.0.load(Relaxed), 3);
}

#[test]
fn a_heap_that_is_just_at_its_soft_limit_asks_nobody_for_memory() {
    let manager = managed(device(64 * MIB), plain());
    let limits = Limits { soft: 8 * MIB, hard: 64 * MIB };
    manager.set_budget(HEAP, limits).expect("soft is below hard");
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    manager.on_pressure(move |_| {
        count.fetch_add(1, Relaxed);
        Relief::Nothing
    });
    let pool = manager.create_pool(HEAP, PoolConfig::new().block(8 * MIB)).expect("valid");
    let _all = pool.allocate(&Request::new(8 * MIB)).expect("fits");
    assert_eq!(asked.load(Relaxed), 0);
    let _more = pool.allocate(&Request::new(MIB)).expect("below hard");
    assert_eq!(asked.load(Relaxed), 1);
}

#[test]
fn a_recall_for_which_the_driver_gives_no_block_says_why_unless_there_is_no_room() {
    for (refusal, answer) in [
        (ErrorKind::ExceedsLimit, Ok(0)),
        (ErrorKind::OutOfDeviceMemory, Ok(0)),
        (ErrorKind::Driver, Err(ErrorKind::Driver)),
    ] {
        let (near, far) = (heap(HeapKind::Device, 16 * MIB), heap(HeapKind::Staging, 16 * MIB));
        let host = Host::builder().heap(near).heap(far.physical(1)).open().expect("a host device");
        let refuses = Arc::new(AtomicU64::new(0));
        let refused = Arc::clone(&refuses);
        let device = asked(&Arc::new(host), move |call| match call.kind {
            CallKind::Allocate if refused.load(Relaxed) == 1 => Verdict::Refuse(refusal.into()),
            _ => Verdict::Forward,
        });
        let manager = Manager::with_config(device, plain());
        let full = manager.allocate(&Request::new(16 * MIB).heap(HEAP).dedicated()).expect("fits");
        let spilled = manager.allocate(&Request::new(MIB).may_spill()).expect("host memory");
        assert_eq!(spilled.heap(), HeapId(1));
        drop(full);
        manager.trim().expect("alive");
        refuses.store(1, Relaxed);
        let pass = manager.begin_recall(&Budget::new());
        assert_eq!(pass.map(|pass| pass.moves().count()).map_err(|e| e.kind()), answer);
    }
}

#[test]
fn a_single_move_that_empties_a_block_serves_a_request() {
    let manager = managed(device(16 * MIB), plain());
    let pool = manager.create_pool(HEAP, PoolConfig::new().block(8 * MIB)).expect("valid");
    let [_one, rest, _other] =
        [MIB, 7 * MIB, MIB].map(|size| pool.allocate(&Request::new(size)).expect("fits"));
    assert_eq!(pool.reserved(), 16 * MIB);
    drop(rest);
    let _whole = pool.allocate(&Request::new(8 * MIB)).expect("one block can be emptied");
    assert_eq!(manager.report().defragmentation.moves, 1);
}
