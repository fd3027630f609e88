//! E: out of memory, and what is tried before.
use super::{fill_up, kind, place_of, take};
use crate::case::{Case, Need};
use crate::world::{Stack, World, check_stamp, in_heap, pool_of, timelines, write_stamp};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use omniheap_core::{
    Access, Backend, ErrorKind, Heap, HeapId, HeapKind, Limits, Manager, Reason, Region, Relief,
    Request, Rung, TimelineId, Writer,
};
use omniheap_layers::{CallKind, Plan};
use std::sync::{Arc, Mutex};

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    list! {
        a_shortage_is_told_in_numbers_and_changes_nothing proves [28] needs [];
        older_bytes_survive_a_shortage proves [29] needs [Transfer];
        what_is_freed_serves_the_next_request proves [30] needs [];
        a_fitting_hole_of_another_thread_is_found proves [31] needs [];
        a_fitting_hole_of_another_timeline_is_found proves [31] needs [Timelines];
        empty_blocks_of_other_pools_are_given_back_first proves [31] needs [];
        the_pressure_callback_is_told_and_may_free proves [32] needs [];
        relief_buys_exactly_one_more_try proves [32] needs [];
        only_a_shortage_calls_for_relief proves [33] needs [];
        the_next_heap_of_the_policy_is_tried_and_counted proves [34] needs [];
        what_may_spill_goes_to_host_memory_last_and_says_so proves [34] needs [];
        memory_that_must_be_held_never_comes_from_the_driver proves [34, 44] needs [];
        a_broken_driver_is_no_reason_to_go_elsewhere proves [35] needs [];
        a_destroyed_pool_serves_nobody proves [36] needs [];
        ten_thousand_shortages_cost_no_more_than_one proves [37] needs [];
    }
}

const MIB: u64 = 1 << 20;

fn a_shortage_is_told_in_numbers_and_changes_nothing<B: Backend + 'static>(world: &World<B>) {
    let stack = world.limited(32 * MIB, u64::MAX);
    let manager = world.manager_over(&stack);
    let heap = world.device_heap();
    let _held = take(&manager, &in_heap(heap, 20 * MIB));
    let (before, live) = (manager.report(), stack.inner().live());
    let error = manager.allocate(&in_heap(heap, 24 * MIB)).expect_err("too much");
    assert!(error.kind().is_out_of_memory(), "{error}");
    let shortage = error.shortage().expect("memory is what is missing");
    assert_eq!((shortage.requested, shortage.heap, shortage.live), (24 * MIB, heap, 20 * MIB));
    assert!(shortage.reserved >= 20 * MIB && shortage.largest_hole <= shortage.free);
    assert!(!shortage.fits_after_defragment && !shortage.fits_after_wait);
    let after = manager.report();
    assert_eq!(after.totals.live, before.totals.live);
    assert_eq!(
        (after.totals.live_bytes, after.totals.granted_bytes),
        (20 * MIB, before.totals.granted_bytes)
    );
    assert!(stack.inner().live().bytes() <= live.bytes(), "it may give back, never keep");
}

fn older_bytes_survive_a_shortage<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager_over(&world.limited(16 * MIB, u64::MAX));
    let (live, why) = fill_up(&manager, &in_heap(world.device_heap(), MIB));
    assert!(why.is_out_of_memory() && live.len() >= 8, "{why:?} after {}", live.len());
    (0..).zip(&live).for_each(|(id, one)| write_stamp(one, id));
    for _ in 0..10 {
        assert!(manager.allocate(&in_heap(world.device_heap(), MIB)).is_err());
    }
    (0..).zip(&live).for_each(|(id, one)| check_stamp(one, id));
    live[0].fill(0, MIB, 3).expect("the device still works");
}

fn what_is_freed_serves_the_next_request<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager_over(&world.limited(16 * MIB, u64::MAX));
    let request = in_heap(world.device_heap(), MIB);
    let (mut live, _) = fill_up(&manager, &request);
    for at in 0..live.len() {
        let last = live.len() - 1;
        live.swap(at, last);
        live.pop().expect("not empty").free();
        live.push(take(&manager, &request));
    }
    assert!(manager.allocate(&request).is_err());
}

fn a_fitting_hole_of_another_thread_is_found<B: Backend + 'static>(world: &World<B>) {
    let mut config = world.config();
    config.pool.lanes = Some(8);
    let manager = world.manager_with(&world.limited(16 * MIB, u64::MAX), config);
    let request = in_heap(world.device_heap(), MIB);
    let theirs = std::thread::scope(|scope| {
        scope.spawn(|| fill_up(&manager, &request).0).join().expect("no panic")
    });
    let (theirs, count) = thinned(theirs);
    let ours: Vec<_> = (0..count).map(|_| take(&manager, &request)).collect();
    assert!(ours.len() >= 4 && theirs.len() >= 4);
}

/// Frees every second allocation, so that there are holes and no empty block; says how many that were.
fn thinned<T>(all: Vec<T>) -> (Vec<T>, usize) {
    let count = all.len();
    let left: Vec<T> = all.into_iter().step_by(2).collect();
    let freed = count - left.len();
    (left, freed)
}

fn a_fitting_hole_of_another_timeline_is_found<B: Backend + 'static>(world: &World<B>) {
    let stack = world.limited(16 * MIB, u64::MAX);
    let manager = world.manager_over(&stack);
    let lines = timelines(&stack);
    let other = lines.open().expect("one more timeline");
    let request = in_heap(world.device_heap(), MIB);
    let (theirs, count) = thinned(fill_up(&manager, &request.on(other)).0);
    let ours: Vec<_> = (0..count).map(|_| take(&manager, &request.on(TimelineId::MAIN))).collect();
    assert!(ours.len() >= 4 && theirs.len() >= 4, "what is idle is lent");
    drop((ours, theirs));
    world.backend().wait_idle().expect("alive");
    manager.trim().expect("alive");
    lines.close(other).expect("idle");
}

fn empty_blocks_of_other_pools_are_given_back_first<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager_over(&world.limited(16 * MIB, u64::MAX));
    let heap = world.device_heap();
    let pool = manager.create_pool(heap, pool_of(4 * MIB)).expect("valid");
    let live: Vec<_> =
        (0..3).map(|_| pool.allocate(&Request::new(4 * MIB)).expect("fits")).collect();
    drop(live);
    assert_eq!(pool.reserved(), 12 * MIB, "cached");
    let large = take(&manager, &in_heap(heap, 10 * MIB));
    assert!(pool.reserved() <= 4 * MIB, "given back");
    assert!(manager.report().rungs[Rung::Trim as usize] > 0, "and counted");
    drop(large);
    manager.destroy_pool(pool).map_err(|refused| refused.error).expect("empty");
}

type Hostage<B> = Arc<Mutex<Vec<omniheap_core::Allocation<Stack<B>>>>>;

/// A full manager, and what fills it, within reach of a callback.
fn hostages<B: Backend + 'static>(world: &World<B>) -> (Manager<Stack<B>>, Hostage<B>) {
    let manager = world.manager_over(&world.limited(16 * MIB, u64::MAX));
    let (live, _) = fill_up(&manager, &in_heap(world.device_heap(), MIB));
    (manager, Arc::new(Mutex::new(live)))
}

fn the_pressure_callback_is_told_and_may_free<B: Backend + 'static>(world: &World<B>) {
    let (manager, live) = hostages(world);
    let heap = world.device_heap();
    let (hostages, through) = (Arc::downgrade(&live), Arc::new(Mutex::new(Vec::new())));
    let told = Arc::clone(&through);
    manager.on_pressure(move |pressure| {
        told.lock().expect("no panic").push(*pressure);
        let Some(hostages) = hostages.upgrade() else { return Relief::Nothing };
        let freed = hostages.lock().expect("no panic").pop();
        if freed.is_some() { Relief::Freed } else { Relief::Nothing }
    });
    let one = take(&manager, &in_heap(heap, MIB));
    let told = through.lock().expect("no panic").clone();
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].heap, told[0].wanted), (heap, MIB));
    assert!(told[0].reserved > 8 * MIB);
    assert!(manager.report().rungs[Rung::Pressure as usize] > 0, "counted");
    drop(one);
    live.lock().expect("no panic").clear();
}

fn relief_buys_exactly_one_more_try<B: Backend + 'static>(world: &World<B>) {
    let (manager, live) = hostages(world);
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    manager.on_pressure(move |_| {
        count.fetch_add(1, Relaxed);
        Relief::Freed // Not true: the next try fails as well.
    });
    for round in 1..=5 {
        let why = kind(manager.allocate(&in_heap(world.device_heap(), MIB)));
        assert!(why.is_out_of_memory());
        assert_eq!(calls.load(Relaxed), round, "one call for one request");
    }
    live.lock().expect("no panic").clear();
}

fn only_a_shortage_calls_for_relief<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    manager.on_pressure(move |_| {
        count.fetch_add(1, Relaxed);
        Relief::Nothing
    });
    let making = if world.is_paged() { CallKind::Create } else { CallKind::Allocate };
    let refusals = omniheap_layers::errors(making);
    for (pick, wanted) in refusals.iter().enumerate().filter(|(_, kind)| !kind.is_out_of_memory()) {
        stack.inject(Plan::Kind(making, 0), pick);
        assert_eq!(kind(manager.allocate(&Request::new(MIB))), *wanted, "passes untouched");
    }
    stack.inject(Plan::Never, 0);
    assert_eq!(kind(manager.allocate(&Request::new(0))), ErrorKind::ZeroSize);
    assert_eq!(calls.load(Relaxed), 0);
    drop(take(&manager, &Request::new(MIB)));
}

/// A request for which the policy names more than one heap.
fn with_a_choice<B: Backend + 'static>(manager: &Manager<Stack<B>>) -> Option<Request<'static>> {
    let base = Request::new(MIB);
    let requests = [
        base,
        base.access(Access::Both),
        base.access(Access::Host),
        base.writer(Writer::HostPerFrame),
        base.writer(Writer::HostOnce),
    ];
    requests.into_iter().find(|request| {
        manager.explain(request).is_ok_and(|told| told.placement.heaps.as_slice().len() > 1)
    })
}

fn the_next_heap_of_the_policy_is_tried_and_counted<B: Backend + 'static>(world: &World<B>) {
    let stack = world.limited(16 * MIB, u64::MAX);
    let manager = world.manager_over(&stack);
    let Some(request) = with_a_choice(&manager) else {
        let (_live, why) = fill_up(&manager, &Request::new(MIB));
        assert!(why.is_out_of_memory(), "one heap: no other to try");
        return;
    };
    let told = manager.explain(&request).expect("served").placement.heaps;
    let order = told.as_slice();
    manager.set_budget(order[0], Limits::hard(4 * MIB)).expect("exists");
    let heap_of = |one: &omniheap_core::Allocation<Stack<B>>| {
        one.binding().block().origin().heap.expect("made for a heap")
    };
    let live: Vec<_> = (0..8).map(|_| take(&manager, &request)).collect();
    let firsts = live.iter().take_while(|one| heap_of(one) == order[0]).count();
    assert!((1..8).contains(&firsts), "the first heap serves first, then the second");
    assert!(live[firsts..].iter().all(|one| heap_of(one) == order[1]));
    assert_eq!(manager.report().rungs[Rung::NextHeap as usize], 8 - firsts as u64);
}

fn what_may_spill_goes_to_host_memory_last_and_says_so<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager_over(&world.limited(8 * MIB, u64::MAX));
    let request = Request::new(MIB);
    let permitted = manager.explain(&request).expect("served").placement.heaps;
    let is_host = |(heap, about): &(HeapId, &Heap)| {
        about.kind == HeapKind::Staging && !permitted.as_slice().contains(heap)
    };
    let host: Vec<_> = manager.caps().heap_ids().filter(is_host).map(|(heap, _)| heap).collect();
    let (mut live, why) = fill_up(&manager, &request);
    assert!(why.is_out_of_memory(), "{why:?}");
    assert_eq!(manager.report().rungs[Rung::Spill as usize], 0, "nothing spills without leave");
    let shortage = *manager.allocate(&request).expect_err("full").shortage().expect("full");
    assert_eq!(shortage.fits_after_spill, !host.is_empty(), "and the error says whether it helps");
    if host.is_empty() {
        assert!(manager.allocate(&request.may_spill()).is_err(), "there is nowhere to go");
        return;
    }
    let spilled = take(&manager, &request.may_spill());
    assert!(host.contains(&spilled.binding().block().origin().heap.expect("made for a heap")));
    let placed = spilled.placed();
    assert_eq!((placed.region, placed.reason), (Region::Staging, Reason::Spilled));
    assert_eq!(manager.report().rungs[Rung::Spill as usize], 1, "counted");
    if world.backend().as_transfer().is_some() {
        write_stamp(&spilled, 7);
        check_stamp(&spilled, 7);
    }
    live.pop();
    let back = take(&manager, &request.may_spill());
    assert_ne!(back.placed().reason, Reason::Spilled, "room again");
}

fn memory_that_must_be_held_never_comes_from_the_driver<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let why = kind(manager.allocate(&Request::new(4096).no_grow()));
    assert!(why.is_out_of_memory() || why == ErrorKind::ExceedsLimit, "{why:?}");
    assert_eq!(stack.inner().driver_calls(), 0);
    let one = take(&manager, &Request::new(MIB));
    let calls = stack.inner().driver_calls();
    one.free();
    let again = take(&manager, &Request::new(MIB).no_grow());
    assert!(manager.allocate(&Request::new(128 * MIB).no_grow()).is_err());
    let why = kind(manager.allocate(&Request::new(4096).dedicated().no_grow()));
    assert!(why.is_out_of_memory(), "a block of its own is the driver's: {why:?}");
    assert_eq!(stack.inner().driver_calls(), calls, "only what is held");
    again.free();
}

fn a_broken_driver_is_no_reason_to_go_elsewhere<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let request = with_a_choice(&manager).unwrap_or(Request::new(MIB));
    stack.inject(Plan::Nth(0), 2);
    let why = kind(manager.allocate(&request.dedicated()));
    assert_eq!(why, ErrorKind::Driver, "the driver's own word");
    assert_eq!(stack.seen(), 1, "no other heap was asked");
    stack.inject(Plan::Nth(0), 3);
    assert_eq!(kind(manager.allocate(&request.dedicated())), ErrorKind::DeviceLost);
    assert_eq!(stack.seen(), 1, "no other heap was asked");
    stack.inject(Plan::Never, 0);
    drop(take(&manager, &request));
}

fn a_destroyed_pool_serves_nobody<B: Backend + 'static>(world: &World<B>) {
    let stack = world.limited(16 * MIB, u64::MAX);
    let manager = world.manager_over(&stack);
    let heap = world.device_heap();
    let pool = manager.create_pool(heap, pool_of(4 * MIB)).expect("valid");
    let ours = pool.allocate(&Request::new(MIB)).expect("fits");
    let block = place_of(&ours).0;
    ours.free();
    manager.destroy_pool(pool).map_err(|refused| refused.error).expect("empty");
    assert_eq!(stack.inner().live().bytes(), 0, "its blocks went back");
    let (live, _) = fill_up(&manager, &in_heap(heap, MIB));
    assert!(live.iter().all(|one| place_of(one).0 != block));
}

fn ten_thousand_shortages_cost_no_more_than_one<B: Backend + 'static>(world: &World<B>) {
    let stack = world.limited(16 * MIB, u64::MAX);
    let manager = world.manager_over(&stack);
    let request = in_heap(world.device_heap(), 10 * MIB);
    let _held = take(&manager, &request);
    let calls = || {
        let before = stack.inner().calls().total();
        assert!(manager.allocate(&request).is_err());
        stack.inner().calls().total() - before
    };
    let first = calls();
    let live = stack.inner().live();
    (0..10_000).for_each(|_| {
        calls();
    });
    assert!(calls() <= 2 * first);
    assert_eq!(stack.inner().live(), live);
}
