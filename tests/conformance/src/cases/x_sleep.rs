//! X: pools that sleep.
#![expect(unsafe_code, reason = "maps pages through the seam itself")]
use super::kind;
use crate::case::{Case, Need};
use crate::kept::Kept;
use crate::rng::is_all;
use crate::world::{Stack, World, check_stamp, write_stamp};
use omniheap_core::{
    Allocation, AwakeReason, Backend, BlockOffset, ErrorKind, Limits, Manager, PoolConfig, Request,
    Sleep, TimelineId, UserPool, Wake,
};
use std::sync::Arc;

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    list! {
        a_sleeping_pool_holds_nothing_and_wakes_with_its_bytes proves [151] needs [Pages, Transfer, Unguarded];
        addresses_are_the_same_after_a_sleep proves [152] needs [Pages, Transfer, Address, Unguarded];
        a_sleeping_pool_refuses_access_and_requests proves [153] needs [Pages, Transfer, Unguarded];
        what_is_freed_asleep_stays_away proves [154] needs [Pages, Transfer, Unguarded];
        what_keeps_a_pool_awake_is_named proves [155] needs [Pages, Transfer, Unguarded];
        a_sleep_waits_for_the_work_on_its_bytes proves [155] needs [Pages, Transfer, Timelines, Unguarded];
        a_wake_without_room_leaves_the_pool_asleep proves [156] needs [Pages, Transfer, Unguarded];
        a_wake_without_room_may_take_host_memory proves [161] needs [Pages, HostPages, Transfer, Unguarded];
        host_pages_and_device_pages_take_each_others_place proves [161] needs [Pages, HostPages, Transfer];
    }
}

const MIB: u64 = 1 << 20;

fn sleepable<B: Backend + 'static>(
    world: &World<B>,
    manager: &Manager<Stack<B>>,
) -> UserPool<Stack<B>> {
    let config = PoolConfig::new().sleepable();
    manager.create_pool(world.device_heap(), config).expect("the heap has pages")
}

/// Allocations of several sizes with holes between them; each has the stamp of its number.
fn populate<B: Backend>(pool: &UserPool<Stack<B>>) -> Vec<(u64, Allocation<Stack<B>>)> {
    let sizes = [4096, 3 * MIB, 65_536, MIB, 256 * 1024, 5 * MIB];
    let all: Vec<_> = (0..18).zip(sizes.into_iter().cycle()).collect();
    let mut all: Vec<_> = all
        .into_iter()
        .map(|(id, size)| (id, pool.allocate(&Request::new(size)).expect("room")))
        .collect();
    all.retain(|(id, _)| id % 4 != 1);
    all.iter().for_each(|(id, one)| write_stamp(one, *id));
    all
}

fn a_sleeping_pool_holds_nothing_and_wakes_with_its_bytes<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let pool = sleepable(world, &manager);
    let before = stack.inner().live().bytes();
    let (all, store) = (populate(&pool), Kept::new());
    for _ in 0..3 {
        let slept = pool.sleep(&Sleep::to(store.clone())).expect("nothing forbids it");
        assert_eq!((slept.kept, pool.reserved()), (0, 0));
        assert_eq!(stack.inner().live().bytes(), before, "the driver has all memory back");
        assert_eq!(store.count(), all.len());
        assert!(slept.copied >= slept.live && pool.residence().stored == slept.copied);
        assert_eq!(kind(pool.sleep(&Sleep::to(store.clone()))), ErrorKind::AlreadyAsleep);
        pool.wake(&Wake::all()).expect("there is room");
        assert_eq!(kind(pool.wake(&Wake::all())), ErrorKind::AlreadyAwake);
        assert_eq!(store.count(), 0, "nothing stays in the store");
        all.iter().for_each(|(id, one)| check_stamp(one, *id));
    }
}

fn addresses_are_the_same_after_a_sleep<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let pool = sleepable(world, &manager);
    let all = populate(&pool);
    let addresses = || all.iter().map(|(_, one)| one.binding().address()).collect::<Vec<_>>();
    let before = addresses();
    pool.sleep(&Sleep::to(Kept::new())).expect("nothing forbids it");
    pool.wake(&Wake::all()).expect("there is room");
    assert_eq!(addresses(), before);
    all.iter().for_each(|(id, one)| check_stamp(one, *id));
}

fn a_sleeping_pool_refuses_access_and_requests<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let pool = sleepable(world, &manager);
    let all = populate(&pool);
    pool.sleep(&Sleep::to(Kept::new())).expect("nothing forbids it");
    let one = &all[0].1;
    assert_eq!(kind(one.write(0, &[0; 256])), ErrorKind::Asleep);
    assert_eq!(kind(one.read(0, &mut [0; 256])), ErrorKind::Asleep);
    assert_eq!(kind(one.fill(0, 256, 1)), ErrorKind::Asleep);
    assert_eq!(kind(pool.allocate(&Request::new(256))), ErrorKind::Asleep);
    assert_eq!(kind(pool.allocate(&Request::new(256).on(TimelineId::MAIN))), ErrorKind::Asleep);
    manager.trim().expect("alive");
    manager.defragment().expect("it passes over the pool");
    pool.wake(&Wake::all()).expect("there is room");
    all.iter().for_each(|(id, one)| check_stamp(one, *id));
}

fn what_is_freed_asleep_stays_away<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let pool = sleepable(world, &manager);
    let (mut all, store) = (populate(&pool), Kept::new());
    let before = pool.reserved();
    pool.sleep(&Sleep::to(store.clone())).expect("nothing forbids it");
    all.retain(|(id, _)| id % 2 == 0);
    assert_eq!(store.count(), all.len(), "freed bytes are dropped");
    pool.wake(&Wake::all()).expect("there is room");
    assert!(pool.reserved() < before, "pages without a live byte stay away");
    all.iter().for_each(|(id, one)| check_stamp(one, *id));
    let more = populate(&pool);
    more.iter().chain(&all).for_each(|(id, one)| check_stamp(one, *id));
}

fn what_keeps_a_pool_awake_is_named<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let pool = sleepable(world, &manager);
    let (all, store) = (populate(&pool), Kept::new());
    let binding = all[2].1.binding();
    let error = pool.sleep(&Sleep::to(store.clone())).expect_err("it is pinned");
    let named: Vec<_> = error.refused().iter().map(|one| (one.id, one.why)).collect();
    assert_eq!(named, [(all[2].1.id(), AwakeReason::Pinned)]);
    drop(binding);
    all.iter().for_each(|(id, one)| check_stamp(one, *id));
    let alone = pool.allocate(&Request::new(MIB).dedicated().name("alone")).expect("room");
    let error = pool.sleep(&Sleep::to(store.clone())).expect_err("it may be exported");
    assert_eq!(error.refused()[0].name.as_deref(), Some("alone"));
    drop(alone);
    pool.sleep(&Sleep::to(store)).expect("nothing forbids it");
    drop((all, pool)); // All that is asleep may be dropped.
}

fn a_sleep_waits_for_the_work_on_its_bytes<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let pool = sleepable(world, &manager);
    let timelines = manager.backend().as_timelines().expect("needed");
    let line = timelines.open().expect("one more");
    let one = pool.allocate(&Request::new(8 * MIB).on(line)).expect("room");
    for round in 0..8 {
        one.fill(0, 8 * MIB, round).expect("alive");
        pool.sleep(&Sleep::to(Kept::new())).expect("nothing forbids it");
        pool.wake(&Wake::all()).expect("there is room");
        let mut seen = [0; 64];
        one.read(8 * MIB - 64, &mut seen).expect("alive");
        assert_eq!(seen, [round; 64]);
    }
    drop(one);
    timelines.close(line).expect("it is open");
}

fn a_wake_without_room_leaves_the_pool_asleep<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let pool = sleepable(world, &manager);
    let (all, store) = (populate(&pool), Kept::new());
    pool.sleep(&Sleep::to(Arc::clone(&store) as _)).expect("nothing forbids it");
    let heap = world.device_heap();
    manager.set_budget(heap, Limits::hard(4 * MIB)).expect("valid");
    let refused = pool.wake(&Wake::all()).expect_err("there is no room");
    assert!(refused.kind().is_out_of_memory(), "{refused}");
    assert_eq!((pool.reserved(), pool.residence().asleep), (0, true));
    assert_eq!(store.count(), all.len());
    manager.set_budget(heap, Limits::NONE).expect("valid");
    pool.wake(&Wake::all()).expect("there is room again");
    all.iter().for_each(|(id, one)| check_stamp(one, *id));
}

fn a_wake_without_room_may_take_host_memory<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let (manager, heap) = (world.manager_over(&stack), world.device_heap());
    let pool = sleepable(world, &manager);
    let all = populate(&pool);
    pool.sleep(&Sleep::to(Kept::new())).expect("nothing forbids it");
    manager.set_budget(heap, Limits::hard(4 * MIB)).expect("valid");
    pool.wake(&Wake::all().host_mapped(u64::MAX)).expect("the host has room");
    let here = pool.residence();
    assert!(here.host_mapped > 0 && here.device <= 4 * MIB, "{here:?}");
    assert_eq!(stack.inner().live().host_page_bytes, here.host_mapped);
    all.iter().for_each(|(id, one)| check_stamp(one, *id));
    all.iter().for_each(|(id, one)| write_stamp(one, id + 100));
    pool.sleep(&Sleep::to(Kept::new())).expect("nothing forbids it");
    assert_eq!(stack.inner().live().host_page_bytes, 0, "the host has all memory back");
    manager.set_budget(heap, Limits::NONE).expect("valid");
    pool.wake(&Wake::all().host_mapped(u64::MAX)).expect("there is room again");
    assert_eq!((pool.residence().host_mapped, stack.inner().live().host_page_bytes), (0, 0));
    all.iter().for_each(|(id, one)| check_stamp(one, id + 100));
}

/// Eight positions: device pages at the first four, host pages at the others, and then the other way round.
fn host_pages_and_device_pages_take_each_others_place<B: Backend + 'static>(world: &World<B>) {
    let (backend, heap, on) = (world.backend(), world.device_heap(), TimelineId::MAIN);
    let page = backend.caps().heap(heap).and_then(|heap| heap.page).expect("needed").get();
    let (remap, transfer) =
        (backend.as_remap().expect("needed"), backend.as_transfer().expect("needed"));
    let used = || {
        let driver = backend.as_budget().and_then(|driver| driver.budget(heap).ok());
        driver.map_or(0, |driver| driver.used)
    };
    let block = remap.reserve(heap, 8 * page).expect("addresses");
    let (mut own, mut on_host) = (Vec::new(), Vec::new());
    remap.create_groups(heap, 4, 4, &mut own).expect("room");
    let before = used();
    remap.create_on_host(heap, 4, 4, &mut on_host).expect("room");
    assert!(used() < before + 4 * page, "host memory is none of the device's");
    let size = usize::try_from(8 * page).expect("small");
    for turn in 1..5 {
        let (low, high) = if turn % 2 == 1 { (&own, &on_host) } else { (&on_host, &own) };
        // SAFETY: the pages are mapped nowhere, and each group is whole.
        unsafe { remap.map_pages(&block, 0, low) }.expect("no memory there");
        // SAFETY: as above.
        unsafe { remap.map_pages(&block, 4, high) }.expect("no memory there");
        let at = |offset: u64| BlockOffset { block: &block, offset };
        let mut seen = vec![0; size];
        transfer.read(on, at(0), &mut seen).expect("mapped");
        let halves = seen.split_at(size / 2);
        let swapped = turn == 1 || (is_all(halves.0, turn - 1) && is_all(halves.1, 100 + turn));
        assert!(swapped, "what the other half was given in turn {turn} came along");
        // Across the border, then each half as the next turn finds it.
        transfer.fill(on, at(0), 8 * page, turn).expect("mapped");
        transfer.fill(on, at(0), 4 * page, 101 + turn).expect("mapped");
        backend.wait_idle().expect("alive");
        // SAFETY: the device is idle.
        unsafe { remap.unmap_pages(&block, 0, 8) }.expect("mapped there");
    }
    // SAFETY: mapped nowhere, and nobody else knows them.
    unsafe { remap.destroy(heap, &own) }.expect("made here");
    // SAFETY: as above.
    unsafe { remap.destroy_on_host(heap, &on_host) }.expect("made here");
    // SAFETY: the block came from this backend, which is idle, and has no pages.
    unsafe { backend.free(block) }.expect("empty");
}
