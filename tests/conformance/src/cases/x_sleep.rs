//! X: pools that sleep.
use super::kind;
use crate::case::{Case, Need};
use crate::kept::Kept;
use crate::world::{Stack, World, check_stamp, write_stamp};
use omniheap_core::{
    Allocation, AwakeReason, Backend, ErrorKind, Limits, Manager, PoolConfig, Request, Sleep,
    TimelineId, UserPool, Wake,
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
