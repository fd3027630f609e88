//! Limits to the byte: what sleeps, what is promised to a domain, what a shortage and a plan say.
use super::before::{Asked, asked};
use super::{HEAP, MIB, managed, one_lane, plain};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use omniheap_core::{
    Align, AllocationId, Backend, Budget, Caps, CopyRegion, ErrorKind, Event, HeapId, HeapKind,
    Limits, Manager, ManagerConfig, Observer, Pass, Point, PoolConfig, Relief, Request, Sleep,
    Slept, Source, StrategyKind, TimelineId, Timelines, Wake,
};
use omniheap_host::{Hold, Host, heap, real_devices};
use omniheap_layers::{Call, CallKind, Fault, Plan, Record, Verdict};
use omniheap_model::Store;
use std::sync::{Arc, Mutex};

const PAGE: u64 = 64 << 10;

fn device(size: u64) -> Arc<Host> {
    let about = heap(HeapKind::Device, size).page(Some(Align::of(PAGE)));
    Arc::new(Host::builder().heap(about).open().expect("a host device"))
}

/// A device of eight MiB, and host memory that requests may spill to.
fn with_host_memory() -> Host {
    let mut far = heap(HeapKind::Staging, 32 * MIB);
    (far.physical, far.page) = (1, None);
    let near = heap(HeapKind::Device, 8 * MIB);
    Host::builder().heap(near).heap(far).open().expect("a host device")
}

fn to_store() -> Sleep {
    Sleep::to(Arc::new(Store::default()))
}

#[test]
fn an_invalid_setting_is_named() {
    let cases = [
        (PoolConfig::new().maximum(0), "`maximum` is 0"),
        (PoolConfig::new().minimum(2).maximum(1), "`minimum` is above"),
        (PoolConfig::new().block(0), "`block` is 0"),
        (PoolConfig::new().block(2).maximum(1), "`block` is above"),
        (PoolConfig::new().lanes(0), "`lanes` is 0"),
        (PoolConfig::new().strategy(StrategyKind::Ring), "`block`"),
        (PoolConfig::new().strategy(StrategyKind::Bump).paged(), "`paged`"),
    ];
    for (config, named) in cases {
        let error = config.check(64, 64).expect_err(named);
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(format!("{error:?}").contains(named), "{error:?}");
    }
    let large = PoolConfig::new().block(65);
    assert_eq!(large.check(128, 64).map_err(|error| error.kind()), Err(ErrorKind::ExceedsLimit));
    assert_eq!(PoolConfig::new().check(64, 64), Ok(()));
}

#[test]
fn a_pool_may_hold_all_of_its_heap_and_no_more() {
    let config = |minimum| PoolConfig::new().minimum(minimum).block(64);
    assert_eq!(config(64).check(64, 64), Ok(()));
    let refused = [config(65).check(64, 64), config(64).check(64, 63)];
    for why in refused.map(|check| check.expect_err("more than there is")) {
        assert_eq!(why.kind(), ErrorKind::ExceedsLimit);
    }
}

#[test]
fn what_is_away_is_summed_over_the_pools_that_sleep() {
    let manager = managed(device(64 * MIB), one_lane(ManagerConfig::default()));
    let pools = [(); 3].map(|()| manager.create_pool(HEAP, PoolConfig::new().sleepable()));
    let pools = pools.map(|pool| pool.expect("there are pages"));
    let [one, two, three] =
        [0, 1, 2].map(|at| pools[at].allocate(&Request::new(MIB << at)).expect("it fits"));
    for (asleep, away) in [(0, MIB), (1, 3 * MIB)] {
        pools[asleep].sleep(&to_store()).expect("nothing is pinned");
        assert_eq!((manager.totals().away_bytes, manager.totals().live_bytes), (away, 7 * MIB));
    }
    drop(one);
    assert_eq!(manager.totals().away_bytes, 2 * MIB);
    pools[1].wake(&Wake::all()).expect("there is room");
    assert_eq!(manager.totals().away_bytes, 0);
    drop((two, three));
}

#[test]
fn a_domain_that_ends_asks_again_where_the_driver_unmaps_nothing() {
    let device = Arc::new(Fault::new(Record::new(device(64 * MIB))));
    let manager = Manager::new(Arc::clone(&device));
    let domain = manager.domain(ManagerConfig::default()).expect("it clears");
    drop(domain.allocate(&Request::new(4 * MIB)).expect("there is room"));
    assert!(device.inner().live().pages > 0);
    device.inject(Plan::Kind(CallKind::UnmapPages, 0), 0);
    drop(domain);
    assert_eq!(device.first_injected(), Some(CallKind::UnmapPages));
    assert_eq!(device.inner().live().pages, 0, "nobody else knows of the memory");
}

#[test]
fn a_sleep_tells_every_byte_that_it_copied_returned_and_kept() {
    for refused in [0, 1] {
        let (host, left) = (device(64 * MIB), Arc::new(AtomicU64::new(0)));
        let refusals = Arc::clone(&left);
        let device = asked(&host, move |call| {
            let take = |left: u64| left.checked_sub(1);
            let refuses = call.kind == CallKind::UnmapPages
                && refusals.fetch_update(Relaxed, Relaxed, take).is_ok();
            if refuses { Verdict::Refuse(ErrorKind::Driver.into()) } else { Verdict::Forward }
        });
        let manager = Manager::with_config(device, one_lane(ManagerConfig::default()));
        let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable()).expect("pages");
        let all = [3 * MIB, 100, 5 * MIB].map(|size| pool.allocate(&Request::new(size)));
        let [first, middle, last] = all.map(|one| one.expect("there is room"));
        drop(middle);
        for (one, byte) in [(&first, 7), (&last, 9)] {
            one.fill(0, one.size(), byte).expect("in range");
        }
        let held = pool.reserved();
        // Every attempt of the call that unmaps the pool's first pages.
        left.store(refused * 64, Relaxed);
        let Slept { live, copied, returned, kept, .. } = pool.sleep(&to_store()).expect("idle");
        left.store(0, Relaxed);
        assert_eq!((live, copied), (8 * MIB, 8 * MIB));
        assert_eq!((returned + kept, pool.reserved()), (held, kept));
        assert_eq!(kept > 0, refused > 0, "{kept} bytes were kept");
        let totals = manager.totals();
        let holes = (totals.free_bytes, totals.largest_hole, totals.holes);
        assert_eq!(holes, (0, 0, 0), "what sleeps has no memory to lend");
        assert_eq!((totals.live, totals.live_bytes), (2, 8 * MIB));
        pool.wake(&Wake::all()).expect("its memory is there");
        for (one, byte) in [(&first, 7), (&last, 9)] {
            let mut seen = vec![0; usize::try_from(one.size()).expect("small")];
            one.read(0, &mut seen).expect("awake");
            assert!(seen.iter().all(|it| *it == byte), "bytes were lost");
        }
    }
}

/// A device on which the first wait lets a held timeline go.
fn lets_go(host: &Arc<Host>, held: &Arc<Mutex<Option<Hold>>>) -> Asked {
    let held = Arc::clone(held);
    asked(host, move |call: &Call| {
        if matches!(call.kind, CallKind::Wait | CallKind::WaitIdle) {
            drop(held.lock().expect("no panic").take());
        }
        Verdict::Forward
    })
}

#[test]
fn a_pool_sleeps_after_every_timeline_that_was_told_to_use_its_bytes() {
    let (host, held) = (device(64 * MIB), Arc::new(Mutex::new(None)));
    let other = host.open().expect("another timeline");
    let manager = Manager::with_config(lets_go(&host, &held), one_lane(ManagerConfig::default()));
    let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable()).expect("pages");
    let source = manager.allocate(&Request::new(MIB)).expect("fits");
    source.fill(0, MIB, 5).expect("in range");
    let sleeper = pool.allocate(&Request::new(MIB).on(TimelineId::MAIN)).expect("fits");
    sleeper.fill(0, MIB, 1).expect("in range");
    manager.backend().wait_idle().expect("alive");
    *held.lock().expect("no panic") = Some(host.hold(other).expect("it is open"));
    let copy = CopyRegion { from: &source, from_offset: 0, to: &sleeper, to_offset: 0, size: MIB };
    manager.copy(other, &[copy]).expect("both are there");
    pool.sleep(&to_store()).expect("it waits");
    pool.wake(&Wake::all()).expect("its memory is there");
    let mut seen = vec![0; 1 << 20];
    sleeper.read(0, &mut seen).expect("awake");
    assert!(seen.iter().all(|byte| *byte == 5), "it slept before the copy had run");
}

#[test]
fn only_pools_of_pages_without_guards_can_sleep() {
    let refused = |manager: &Manager<Asked>| {
        let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable());
        pool.map(drop).map_err(|error| error.kind())
    };
    assert_eq!(refused(&managed(device(16 * MIB), one_lane(ManagerConfig::default()))), Ok(()));
    let guards = managed(device(16 * MIB), one_lane(ManagerConfig::default()).guarded());
    assert_eq!(refused(&guards), Err(ErrorKind::Unsupported));
    let without_pages = heap(HeapKind::Device, 16 * MIB).page(None);
    let host = Host::builder().heap(without_pages).open().expect("a host device");
    assert_eq!(
        refused(&managed(host, one_lane(ManagerConfig::default()))),
        Err(ErrorKind::Unsupported)
    );
}

#[test]
fn what_a_domain_was_promised_is_free_when_it_ends() {
    let manager = managed(device(16 * MIB), plain());
    let other = manager.domain(plain()).expect("host memory can be cleared");
    other.set_reserve(HEAP, 12 * MIB).expect("it is there");
    let most = |domain: &Manager<_>| {
        let held = domain.heap_use(HEAP).expect("a heap");
        assert!(held.soft_limit <= held.hard_limit, "{held:?}");
        held.hard_limit
    };
    assert_eq!((most(&manager), most(&other)), (4 * MIB, u64::MAX));
    let one = other.allocate(&Request::new(8 * MIB).dedicated()).expect("it was promised");
    assert_eq!((most(&manager), most(&other)), (4 * MIB, u64::MAX), "held or not, it is its");
    drop(one);
    let refused = manager.set_reserve(HEAP, 4 * MIB + 1).map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::ExceedsLimit));
    manager.set_reserve(HEAP, 4 * MIB).expect("what is left");
    drop(other);
    manager.set_reserve(HEAP, 16 * MIB).expect("all of it");
    let third = manager.domain(plain()).expect("host memory can be cleared");
    assert!(third.set_reserve(HEAP, 1).is_err(), "nothing is left to promise");
    manager.set_reserve(HEAP, 0).expect("less is never refused");
    third.set_reserve(HEAP, 16 * MIB).expect("all of it");
}

/// Checks the bytes that two domains hold, were promised and may hold, heap by heap.
fn accounts_on(caps: Caps) {
    let name = caps.device.name.clone();
    let manager = managed(Host::like(caps).expect("host memory acts it out"), plain());
    let other = manager.domain(plain()).expect("host memory can be cleared");
    for (heap, about) in manager.caps().heap_ids() {
        let part = (4 * MIB).min(about.size / 4);
        let held = |domain: &Manager<_>| domain.heap_use(heap).expect("a heap").reserved;
        let most = |domain: &Manager<_>| domain.heap_use(heap).expect("a heap").hard_limit;
        let ask = |domain: &Manager<_>| {
            let asked = domain.allocate(&Request::new(part).heap(heap).dedicated());
            asked.map_err(|error| error.kind())
        };
        let what = format!("{name}, heap {}", heap.0);
        other.set_reserve(heap, about.size - part).expect("it is there");
        let one = ask(&manager).expect("it was left");
        assert_eq!((held(&manager), held(&other), most(&manager)), (part, 0, part), "{what}");
        assert_eq!(ask(&manager).map(drop), Err(ErrorKind::OverBudget), "{what}");
        let two = ask(&other).expect("it was promised");
        assert_eq!((held(&manager), held(&other), most(&manager)), (part, part, part), "{what}");
        drop((one, two));
        other.set_reserve(heap, 0).expect("less is never refused");
        manager.set_budget(heap, Limits::hard(part)).expect("a heap");
        let one = ask(&manager).expect("within the budget");
        assert_eq!(ask(&manager).map(drop), Err(ErrorKind::OverBudget), "{what}");
        drop(one);
        manager.set_budget(heap, Limits::hard(u64::MAX)).expect("a heap");
        for domain in [&manager, &other] {
            assert_eq!((held(domain), most(domain)), (0, u64::MAX), "{what}");
            assert_eq!(domain.validate(), Ok(()), "{what}");
        }
    }
}

#[test]
fn accounts_are_exact_in_each_heap_of_every_real_device() {
    real_devices().into_iter().for_each(accounts_on);
}

#[test]
fn memory_for_others_is_what_was_empty_and_what_the_program_frees_where_that_is_too_little() {
    let manager = managed(device(64 * MIB), plain());
    let (asked, wanted) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let ask = |size| manager.allocate(&Request::new(size)).expect("fits");
    // A block of its own goes back to the driver within the callback, and counts.
    let own = manager.allocate(&Request::new(4 * MIB).dedicated()).expect("fits");
    let kept = Arc::new(Mutex::new(Some((ask(20 * MIB), own))));
    let (count, size, held) = (Arc::clone(&asked), Arc::clone(&wanted), Arc::clone(&kept));
    manager.on_pressure(move |pressure| {
        count.fetch_add(1, Relaxed);
        size.store(pressure.wanted, Relaxed);
        held.lock().expect("no panic").take().map_or(Relief::Nothing, |_| Relief::Freed)
    });
    let reserved = || manager.heap_use(HEAP).expect("there").reserved;
    let full = reserved();
    let empty = || {
        drop(ask(4 * MIB));
        reserved() - full
    };
    let bytes = empty();
    assert!(bytes > 0);
    assert_eq!(manager.return_memory(bytes).expect("alive"), bytes);
    assert_eq!(asked.load(Relaxed), 0, "what was empty was enough");
    assert_eq!(empty(), bytes);
    assert_eq!(manager.return_memory(bytes + 1).expect("alive"), bytes + full);
    assert_eq!((asked.load(Relaxed), wanted.load(Relaxed), reserved()), (1, 1, 0));
}

#[test]
fn others_get_the_empty_memory_that_they_need_and_the_rest_stays() {
    let mut small_blocks = plain();
    small_blocks.pool = small_blocks.pool.block(MIB);
    for config in [small_blocks, one_lane(ManagerConfig::default())] {
        let manager = managed(device(256 * MIB), config);
        let many = (0..192).map(|_| manager.allocate(&Request::new(MIB)).expect("fits"));
        drop(many.collect::<Vec<_>>());
        let held = || manager.heap_use(HEAP).expect("there").reserved;
        let full = held();
        let returned = manager.return_memory(40 * MIB + 1).expect("alive");
        assert_eq!(held(), full - returned);
        // The last block, or page group of at most 32 MiB, is more than was asked for.
        assert!((40 * MIB + 1..=72 * MIB + 1).contains(&returned), "{returned}");
        assert_eq!(manager.return_memory(0).expect("alive"), 0);
        assert_eq!(manager.trim().expect("alive"), full - returned);
    }
}

#[test]
fn a_pool_takes_its_minimum_and_no_block_more() {
    let mut about = heap(HeapKind::Device, 64 * MIB);
    about.max_block = 10 * MIB;
    let host = Host::builder().heap(about).open().expect("a host device");
    let manager = managed(host, plain());
    // Blocks have four MiB at least, and ten at most.
    for (minimum, held, blocks) in [(1, 4, 1), (4, 4, 1), (12, 14, 2)] {
        let config = PoolConfig::new().minimum(minimum * MIB).lanes(Some(1));
        let pool = manager.create_pool(HEAP, config).expect("there is room");
        let minimum = held * MIB;
        assert_eq!((pool.reserved(), manager.report().blocks), (minimum, blocks));
        assert_eq!((pool.trim().expect("alive"), pool.reserved()), (0, minimum));
        manager.destroy_pool(pool).expect("it is empty");
    }
}

/// Eight pinned allocations fill one block; two that do not touch are freed.
#[test]
fn a_shortage_says_whether_moving_all_together_would_do_to_the_byte() {
    let manager = managed(device(8 * MIB), plain());
    manager.allocate(&Request::new(8 * MIB)).expect("one block").free();
    let all = (0..8).map(|_| manager.allocate(&Request::new(MIB).pinned()).expect("fits"));
    let mut all: Vec<_> = all.collect();
    drop((all.remove(5), all.remove(2)));
    for (size, fits) in [(2 * MIB, true), (2 * MIB + 1, false)] {
        let error = manager.allocate(&Request::new(size)).expect_err("they may not move");
        let shortage = error.shortage().expect("it was short");
        assert_eq!((shortage.free, shortage.largest_hole), (2 * MIB, MIB));
        assert_eq!((shortage.fits_after_defragment, shortage.fits_after_wait), (fits, fits));
        assert!(!shortage.to_string().contains("may hold"), "no limit was set");
    }
    manager.set_budget(HEAP, Limits::hard(8 * MIB)).expect("a limit");
    let error = manager.allocate(&Request::new(2 * MIB)).expect_err("they may not move");
    let said = error.shortage().expect("it was short").to_string();
    assert!(said.contains("may hold 8388608"), "{said}");
}

#[test]
fn a_shortage_says_whether_waiting_would_do_to_the_byte() {
    let host = device(8 * MIB);
    let busy = |call: &Call| match call.kind {
        CallKind::Wait | CallKind::WaitIdle => Verdict::Refuse(ErrorKind::Busy.into()),
        _ => Verdict::Forward,
    };
    let manager = Manager::with_config(asked(&host, busy), plain());
    let line = host.open().expect("another timeline");
    let [first, _second] = [4 * MIB, 4 * MIB].map(|size| manager.allocate(&Request::new(size)));
    let held = host.hold(line).expect("it is open");
    let epoch = host.mark(line).expect("it is open");
    first.expect("fits").free_after(Point { timeline: line, epoch });
    for (size, fits) in [(4 * MIB, true), (4 * MIB + 1, false)] {
        let error = manager.allocate(&Request::new(size)).expect_err("in use");
        let shortage = error.shortage().expect("it was short");
        assert_eq!((shortage.deferred, shortage.free), (4 * MIB, 0));
        assert_eq!((shortage.fits_after_wait, shortage.fits_after_defragment), (fits, false));
    }
    drop(held);
}

#[test]
fn a_plan_says_where_bytes_come_from_and_what_is_left_of_the_budget() {
    for (config, grows) in
        [(plain(), Source::NewBlock), (one_lane(ManagerConfig::default()), Source::Pages)]
    {
        let manager = managed(device(64 * MIB), config);
        manager.set_budget(HEAP, Limits::hard(32 * MIB)).expect("a limit");
        let request = Request::new(3 * MIB);
        let check = |source, request: &Request<'_>| {
            let before = manager.heap_use(HEAP).expect("there").reserved;
            let plan = manager.plan(request).expect("it can be served");
            assert_eq!((plan.source, plan.heap), (source, HEAP));
            assert_eq!(plan.new_bytes == 0, source == Source::Held);
            assert_eq!(plan.reserved_after, before + plan.new_bytes);
            assert_eq!(plan.budget_after, 32 * MIB - plan.reserved_after);
            assert_eq!(manager.heap_use(HEAP).expect("there").reserved, before, "it did nothing");
            let one = manager.allocate(request).expect("as planned");
            let after = manager.heap_use(HEAP).expect("there").reserved;
            // Empty blocks may go back before one of its own is taken.
            let exact = after == plan.reserved_after;
            let less = source == Source::Dedicated && after < plan.reserved_after;
            assert!(exact || less, "{plan:?} and {after}");
            one
        };
        drop(check(grows, &request));
        drop(check(Source::Held, &request));
        drop(check(Source::Dedicated, &Request::new(5 * MIB).dedicated()));
    }
}

#[test]
fn every_commit_is_one_pass_and_every_slide_is_one() {
    let manager = managed(device(16 * MIB), plain());
    manager.allocate(&Request::new(16 * MIB)).expect("one block").free();
    let all = (0..16).map(|_| manager.allocate(&Request::new(MIB)).expect("fits"));
    let kept: Vec<_> = all.collect::<Vec<_>>().into_iter().step_by(2).collect();
    assert_eq!(manager.report().defragmentation.passes, 0);
    let large = manager.allocate(&Request::new(6 * MIB)).expect("they slide together");
    assert_eq!(manager.report().defragmentation.passes, 1);
    drop(large);
    let pass = manager.begin_defragment(&Budget::new()).expect("alive");
    assert_eq!(pass.commit().expect("alive").moved.passes, 1);
    assert_eq!(manager.report().defragmentation.passes, 2);
    drop(kept);
}

/// The largest come first. What finds no room costs nothing of the budget.
#[test]
fn a_recall_spends_its_budget_on_what_has_room() {
    let manager = managed(with_host_memory(), plain());
    let ask =
        |size: u64| manager.allocate(&Request::new(size).heap(HEAP).dedicated()).expect("fits");
    let [_stays, goes] = [ask(4 * MIB), ask(4 * MIB)];
    let spilled = [MIB, 2 * MIB, 6 * MIB, 5 * MIB].map(|size| {
        let one = manager.allocate(&Request::new(size).may_spill()).expect("host memory");
        assert_eq!(one.heap(), HeapId(1));
        one
    });
    drop(goes);
    for (bytes, count) in [(u64::MAX, 1), (3 * MIB, 2)] {
        let budget = Budget::new().moves(count).bytes(bytes);
        let pass = manager.begin_recall(&budget).expect("alive");
        let moved: Vec<_> = pass.moves().map(|one| one.size()).collect();
        let wanted = if count == 1 { vec![2 * MIB] } else { vec![2 * MIB, MIB] };
        assert_eq!(moved, wanted);
    }
    drop(spilled);
}

/// Notes where moves end.
#[derive(Debug, Default)]
struct Moves(Mutex<Vec<(AllocationId, u64)>>);

impl Observer for Moves {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Move { id, offset, .. } = *event {
            self.0.lock().expect("no panic").push((id, offset));
        }
    }
}

#[test]
fn an_observer_is_told_of_what_came_back_and_where_it_lies() {
    let moves = Arc::new(Moves::default());
    let manager = managed(with_host_memory(), plain().observed(Arc::<Moves>::clone(&moves)));
    let full = manager.allocate(&Request::new(8 * MIB).heap(HEAP)).expect("fits");
    let spilled = manager.allocate(&Request::new(MIB).may_spill()).expect("host memory");
    drop(full);
    manager.begin_recall(&Budget::new()).and_then(Pass::commit).expect("alive");
    assert_eq!(spilled.heap(), HEAP);
    let told = moves.0.lock().expect("no panic").clone();
    assert_eq!(told, [(spilled.id(), spilled.binding().span().offset)]);
}

#[test]
fn a_secret_that_cannot_be_zeroed_is_never_handed_out_and_a_lost_device_keeps_none() {
    let (host, refuses) = (device(16 * MIB), Arc::new(AtomicU64::new(0)));
    let asked_to = Arc::clone(&refuses);
    let lost = move |call: &Call| match (asked_to.load(Relaxed), call.kind) {
        (1, CallKind::Fill) => Verdict::Refuse(ErrorKind::DeviceLost.into()),
        _ => Verdict::Forward,
    };
    let manager = Manager::with_config(asked(&host, lost), plain());
    let secret = || manager.allocate(&Request::new(MIB).secret()).expect("fits");
    let [first, second] = [secret(), secret()];
    refuses.store(1, Relaxed);
    drop(first);
    refuses.store(0, Relaxed);
    assert_eq!(manager.report().quarantined_bytes, MIB, "one call was wrong about the device");
    host.lose();
    drop(second);
    assert_eq!(manager.report().quarantined_bytes, MIB, "nobody reads a lost device");
}

#[test]
fn pages_that_the_driver_does_not_take_back_are_counted() {
    let (host, refuses) = (device(64 * MIB), Arc::new(AtomicU64::new(1)));
    let asked_to = Arc::clone(&refuses);
    let device = asked(&host, move |call: &Call| match (asked_to.load(Relaxed), call.kind) {
        (1, CallKind::Destroy) => Verdict::Refuse(ErrorKind::Driver.into()),
        _ => Verdict::Forward,
    });
    let manager = Manager::with_config(device, one_lane(ManagerConfig::default()));
    drop(manager.allocate(&Request::new(3 * MIB)).expect("fits"));
    let returned = manager.trim().expect("alive");
    assert!(returned >= 3 * MIB);
    assert_eq!(manager.report().quarantined_bytes, returned);
    refuses.store(0, Relaxed);
}

#[test]
fn the_driver_is_asked_for_no_block_more_than_it_allows() {
    let mut caps = device(16 * MIB).caps().clone();
    caps.max_blocks = 2;
    let (host, count) =
        (Arc::new(Host::like(caps).expect("a device")), Arc::new(AtomicU64::new(0)));
    let seen = Arc::clone(&count);
    let device = asked(&host, move |call: &Call| {
        seen.fetch_add(u64::from(call.kind == CallKind::Allocate), Relaxed);
        Verdict::Forward
    });
    let manager = Manager::with_config(device, plain());
    let ask = || manager.allocate(&Request::new(MIB).dedicated());
    let both = [ask().expect("the first"), ask().expect("the second")];
    assert!(ask().is_err());
    assert_eq!(count.load(Relaxed), 2);
    drop(both);
    drop([ask().expect("one of them"), ask().expect("and the other")]);
}

#[test]
fn a_pool_knows_whether_pressure_is_on_its_account() {
    let manager = managed(device(8 * MIB), plain());
    let config = PoolConfig::new().lanes(Some(1));
    let pools = [(); 2].map(|()| Arc::new(manager.create_pool(HEAP, config).expect("valid")));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (told, weak) = (Arc::clone(&seen), pools.each_ref().map(Arc::downgrade));
    manager.on_pressure(move |pressure| {
        let is =
            weak.each_ref().map(|pool| pool.upgrade().is_some_and(|it| it.is_asking(pressure)));
        told.lock().expect("no panic").push(is);
        Relief::Nothing
    });
    let _full = manager.allocate(&Request::new(8 * MIB)).expect("all of it");
    for pool in &pools {
        assert!(pool.allocate(&Request::new(MIB)).is_err());
    }
    assert!(manager.allocate(&Request::new(MIB)).is_err());
    let seen = seen.lock().expect("no panic");
    assert_eq!(*seen, [[true, false], [false, true], [false, false]]);
}

/// Also where a driver gives no more addresses than there is memory.
#[test]
fn the_first_request_may_be_as_large_as_its_heap() {
    for (plain, addresses) in [(true, u64::MAX), (false, u64::MAX), (false, 8 * MIB)] {
        let config = ManagerConfig::default();
        let config = if plain { config.plain() } else { config };
        let host = Host::builder().heap(heap(HeapKind::Device, 8 * MIB)).open();
        let device = asked(&Arc::new(host.expect("a host device")), move |call| match call.kind {
            CallKind::Reserve if call.size > addresses => {
                Verdict::Refuse(ErrorKind::ExceedsLimit.into())
            }
            _ => Verdict::Forward,
        });
        let whole = Manager::with_config(device, config).allocate(&Request::new(8 * MIB));
        assert!(whole.is_ok(), "{whole:?}");
    }
}

/// Several blocks are empty, and some of them are the minimum.
#[test]
fn a_trim_ends_at_the_minimum_of_a_pool() {
    let manager = managed(device(64 * MIB), ManagerConfig::default().plain());
    let config = PoolConfig::new().block(4 * MIB).minimum(8 * MIB).lanes(1);
    let pool = manager.create_pool(HEAP, config).expect("valid");
    let all: Vec<_> =
        (0..5).map(|_| pool.allocate(&Request::new(4 * MIB)).expect("fits")).collect();
    drop(all);
    assert_eq!(pool.reserved(), 20 * MIB);
    assert_eq!(manager.trim().expect("alive"), 12 * MIB);
    assert_eq!(pool.reserved(), 8 * MIB);
}

/// A pool that nobody has used has nothing to tell, awake and asleep.
#[test]
fn a_pool_without_bytes_sleeps_with_none() {
    let manager = managed(device(64 * MIB), ManagerConfig::default());
    let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable()).expect("there are pages");
    let awake = pool.residence();
    assert_eq!((awake.asleep, awake.device, awake.evicted, awake.stored), (false, 0, 0, 0));
    assert_eq!(pool.sleep(&Sleep::to(Arc::new(Store::default()))).expect("idle"), Slept::default());
    let asleep = pool.residence();
    assert_eq!((asleep.asleep, asleep.device, asleep.evicted, asleep.stored), (true, 0, 0, 0));
    pool.wake(&Wake::all()).expect("there is nothing to wake");
    let one = pool.allocate(&Request::new(MIB)).expect("fits");
    let awake = pool.residence();
    assert_eq!((awake.evicted, awake.stored), (0, 0));
    drop(one);
}

/// A device on which nothing can be waited for during a capture, from its first write on, and which may refuse fills.
fn capturing(is_captured: &Arc<AtomicBool>, refuses_fills: &Arc<AtomicBool>) -> Asked {
    let (captured, refuses) = (Arc::clone(is_captured), Arc::clone(refuses_fills));
    let has_written = AtomicBool::new(false);
    asked(&device(64 * MIB), move |call| match call.kind {
        CallKind::Fill if refuses.load(Relaxed) => Verdict::Refuse(ErrorKind::Driver.into()),
        CallKind::Write => {
            has_written.store(captured.load(Relaxed), Relaxed);
            Verdict::Forward
        }
        CallKind::Mark | CallKind::Wait | CallKind::WaitIdle
            if captured.load(Relaxed) && has_written.load(Relaxed) =>
        {
            Verdict::Refuse(ErrorKind::Busy.into())
        }
        _ => Verdict::Forward,
    })
}

/// Pages stay mapped, with a secret in them, where a failed wake could not wait. The secret is freed before the next wake, which
/// zeroes it, or keeps its bytes from everybody.
#[test]
fn a_secret_that_a_failed_wake_left_is_read_by_nobody() {
    const SECRET: u8 = 0x5E;
    for is_zeroed in [true, false] {
        let [is_captured, refuses_fills] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let manager = Manager::with_config(capturing(&is_captured, &refuses_fills), plain());
        let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable()).expect("pages");
        let other = pool.allocate(&Request::new(MIB)).expect("fits");
        let secret = pool.allocate(&Request::new(MIB).secret()).expect("fits");
        let bytes = |value: u8| vec![value; usize::try_from(MIB).expect("small")];
        other.write(0, &bytes(1)).expect("in range");
        secret.write(0, &bytes(SECRET)).expect("in range");
        pool.sleep(&to_store()).expect("idle");
        is_captured.store(true, Relaxed);
        assert!(pool.wake(&Wake::all()).is_err(), "it cannot wait");
        assert!(pool.residence().device > 0, "what may still be written stays mapped");
        is_captured.store(false, Relaxed);
        drop(secret);
        refuses_fills.store(!is_zeroed, Relaxed);
        pool.wake(&Wake::all()).expect("it can wait now");
        refuses_fills.store(false, Relaxed);
        let lost = if is_zeroed { 0 } else { MIB };
        assert_eq!(manager.report().quarantined_bytes, lost);
        manager.validate().expect("sound");
        let next = pool.allocate(&Request::new(MIB)).expect("fits");
        let mut seen = bytes(0);
        next.read(0, &mut seen).expect("in range");
        assert!(!seen.contains(&SECRET), "its next owner reads the secret");
        other.read(0, &mut seen).expect("in range");
        assert!(seen == bytes(1), "a neighbour lost its bytes");
        pool.sleep(&to_store()).expect("the next zeroes what is kept");
        pool.wake(&Wake::all()).expect("idle");
        assert_eq!(manager.report().quarantined_bytes, 0);
        manager.validate().expect("sound");
    }
}

/// A lane that sleeps keeps its memory where the device cannot zero its secrets. One that is freed then is zeroed at once, and the
/// wake, which copies everything back, must not bring it back.
#[test]
fn a_secret_that_was_freed_asleep_does_not_come_back() {
    const SECRET: u8 = 0x5E;
    let [is_captured, refuses_fills] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let manager = Manager::with_config(capturing(&is_captured, &refuses_fills), plain());
    let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable()).expect("pages");
    let bytes = |value: u8| vec![value; usize::try_from(MIB).expect("small")];
    let secret = pool.allocate(&Request::new(MIB).secret()).expect("fits");
    secret.write(0, &bytes(SECRET)).expect("in range");
    refuses_fills.store(true, Relaxed);
    assert!(pool.sleep(&to_store()).expect("idle").kept > 0, "its memory stays");
    refuses_fills.store(false, Relaxed);
    drop(secret);
    pool.wake(&Wake::all()).expect("nothing refuses");
    manager.backend().wait_idle().expect("the zeros are work of the device");
    manager.retire().expect("alive");
    assert_eq!((manager.totals().live, manager.report().quarantined_bytes), (0, 0));
    let held = pool.reserved();
    let next = pool.allocate(&Request::new(held)).expect("all that is free");
    assert_eq!(pool.reserved(), held, "the bytes of the secret are among them");
    let mut seen = vec![0; usize::try_from(held).expect("small")];
    next.read(0, &mut seen).expect("in range");
    assert!(!seen.contains(&SECRET), "its next owner reads the secret");
}
