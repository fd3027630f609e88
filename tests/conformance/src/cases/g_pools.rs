//! G: pools.
use super::{kind, place_of, take};
use crate::case::{Case, Need};
use crate::first_fit::FirstFit;
use crate::world::{Stack, World, check_stamp, in_heap, pool_of, timelines, write_stamp};
use omniheap_core::strategy::Strategy;
use omniheap_core::{
    Align, Backend, ErrorKind, GiveBack, Layout, Manager, PoolConfig, Request, StrategyKind,
    UserPool,
};
use omniheap_layers::CallKind;

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    list! {
        a_minimum_is_taken_at_once_and_kept proves [45] needs [];
        a_maximum_lets_exactly_so_many_in proves [46] needs [Unguarded];
        a_pool_asks_for_nothing_until_it_is_used proves [47] needs [];
        growth_covers_the_request_and_obeys_the_cap proves [47] needs [];
        trim_gives_back_empty_blocks_only proves [48] needs [Unguarded];
        trim_gives_back_empty_pages_only proves [48] needs [Pages, Unguarded];
        a_dedicated_allocation_is_alone_at_offset_zero proves [49] needs [];
        pools_keep_to_themselves proves [50] needs [];
        a_pool_in_use_is_busy proves [51] needs [];
        a_dropped_pool_gives_its_memory_back proves [51] needs [Unguarded];
        trim_leaves_memory_with_queued_work_alone proves [52] needs [Transfer, Timelines, Hold];
        trim_from_another_thread_is_safe proves [52] needs [Transfer];
        a_pool_can_hold_one_allocation_a_block proves [53] needs [];
        every_kind_of_pool_serves_and_empties proves [47, 59] needs [Transfer];
    }
}

const MIB: u64 = 1 << 20;

fn end<B: Backend + 'static>(manager: &Manager<Stack<B>>, pool: UserPool<Stack<B>>) {
    manager.destroy_pool(pool).map_err(|refused| refused.error).expect("the pool is empty");
}

fn a_minimum_is_taken_at_once_and_kept<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let config = pool_of(4 * MIB).minimum(8 * MIB);
    let pool = manager.create_pool(world.device_heap(), config).expect("valid");
    assert_eq!((pool.reserved(), stack.inner().live().blocks), (8 * MIB, 2));
    assert_eq!(pool.trim(), Ok(0), "the minimum stays");
    let mut counts = Vec::new();
    let mut live = Vec::new();
    for _ in 0..3 {
        live.push(pool.allocate(&Request::new(4 * MIB)).expect("fits"));
        counts.push(stack.inner().live().blocks);
    }
    live.clear();
    pool.trim().expect("alive");
    counts.push(stack.inner().live().blocks);
    assert_eq!(counts, [2, 2, 3, 2]);
    assert_eq!(manager.trim(), Ok(0), "the minimum stays");
    end(&manager, pool);
}

fn a_maximum_lets_exactly_so_many_in<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let config = pool_of(4 * MIB).maximum(12 * MIB);
    let pool = manager.create_pool(world.device_heap(), config).expect("valid");
    let mut live: Vec<_> =
        (0..6).map(|_| pool.allocate(&Request::new(2 * MIB)).expect("fits")).collect();
    for _ in 0..6 {
        assert!(kind(pool.allocate(&Request::new(2 * MIB))).is_out_of_memory());
        assert_eq!(pool.reserved(), 12 * MIB);
        live.remove(0).free();
        live.push(pool.allocate(&Request::new(2 * MIB)).expect("room for one again"));
    }
    drop(live);
    end(&manager, pool);
}

fn a_dropped_pool_gives_its_memory_back<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let config = pool_of(4 * MIB).minimum(4 * MIB);
    let make = || manager.create_pool(world.device_heap(), config).expect("valid");
    let pool = make();
    pool.allocate(&Request::new(MIB)).expect("fits").free();
    assert!(stack.inner().live().bytes() >= 4 * MIB);
    drop(pool);
    assert_eq!(stack.inner().live().bytes(), 0, "nothing in it was live");
    let pool = make();
    let one = pool.allocate(&Request::new(MIB)).expect("fits");
    drop(pool);
    assert_eq!(manager.totals().live, 1, "what is live stays, and is known");
    one.free();
    assert_eq!(manager.trim(), Ok(4 * MIB), "with its minimum: nobody asks for it any more");
    assert_eq!(stack.inner().live().bytes(), 0);
}

fn a_pool_asks_for_nothing_until_it_is_used<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let pool = manager.create_pool(world.device_heap(), PoolConfig::new()).expect("valid");
    let _told =
        (manager.report(), manager.plan(&Request::new(64)), manager.explain(&Request::new(64)));
    assert_eq!((manager.trim(), manager.retire()), (Ok(0), Ok(0)));
    assert_eq!(stack.inner().calls().total(), 0);
    end(&manager, pool);
    assert_eq!(stack.inner().calls().total(), 0);
}

fn growth_covers_the_request_and_obeys_the_cap<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let config = PoolConfig::new().maximum(40 * MIB).lanes(1);
    let pool = manager.create_pool(world.device_heap(), config).expect("valid");
    let mut live = Vec::new();
    for size in [100, MIB, 3 * MIB, 9 * MIB, 5 * MIB] {
        live.push(pool.allocate(&Request::new(size)).expect("fits"));
        assert!(pool.reserved() <= 40 * MIB && pool.reserved() >= size);
        assert_eq!(pool.reserved(), stack.inner().live().bytes());
    }
    let why = kind(pool.allocate(&Request::new(39 * MIB)));
    assert!(why.is_out_of_memory(), "{why:?}");
    assert_eq!(kind(pool.allocate(&Request::new(41 * MIB))), ErrorKind::ExceedsLimit);
    drop(live);
    end(&manager, pool);
}

fn trim_gives_back_empty_blocks_only<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let pool = manager.create_pool(world.device_heap(), pool_of(4 * MIB)).expect("valid");
    let mut live: Vec<_> =
        (0..8).map(|_| pool.allocate(&Request::new(2 * MIB)).expect("fits")).collect();
    assert_eq!(pool.reserved(), 16 * MIB);
    live.drain(..4).for_each(drop);
    live.remove(1).free();
    let before = stack.inner().live().bytes();
    let freed = pool.trim().expect("alive");
    assert_eq!(before - stack.inner().live().bytes(), freed, "what it says is what it did");
    assert_eq!((freed, pool.reserved()), (8 * MIB, 8 * MIB));
    assert_eq!(pool.trim(), Ok(0));
    drop(live);
    assert_eq!(pool.trim(), Ok(8 * MIB));
    end(&manager, pool);
}

fn trim_gives_back_empty_pages_only<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let heap = world.device_heap();
    let mut live: Vec<_> = (0..6).map(|_| take(&manager, &in_heap(heap, 8 * MIB))).collect();
    if world.backend().as_transfer().is_some() {
        (0..).zip(&live).for_each(|(id, one)| write_stamp(one, id));
    }
    live.remove(4).free();
    live.remove(1).free();
    let before = stack.inner().live().bytes();
    let freed = manager.trim().expect("alive");
    assert_eq!(before - stack.inner().live().bytes(), freed);
    assert_eq!(freed, 16 * MIB, "two holes of whole pages");
    if world.backend().as_transfer().is_some() {
        [0, 2, 3, 5].into_iter().zip(&live).for_each(|(id, one)| check_stamp(one, id));
    }
}

fn a_dedicated_allocation_is_alone_at_offset_zero<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let others: Vec<_> = (0..20).map(|_| take(&manager, &Request::new(1000))).collect();
    let made = stack.inner().calls().of(CallKind::Allocate);
    let alone = take(&manager, &Request::new(100_000).dedicated());
    assert_eq!(stack.inner().calls().of(CallKind::Allocate), made + 1, "its own driver object");
    let (block, span) = place_of(&alone);
    assert_eq!((span.offset, span.size), (0, 100_000));
    let later: Vec<_> = (0..200).map(|_| take(&manager, &Request::new(1000))).collect();
    assert!(others.iter().chain(&later).all(|one| place_of(one).0 != block));
    let frees = stack.inner().calls().of(CallKind::Free);
    alone.free();
    manager.retire().expect("alive");
    assert_eq!(stack.inner().calls().of(CallKind::Free), frees + 1, "and goes back at once");
}

fn pools_keep_to_themselves<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let heap = world.device_heap();
    let pools = [(); 2].map(|()| manager.create_pool(heap, pool_of(2 * MIB)).expect("valid"));
    let mut blocks: [Vec<u64>; 3] = Default::default();
    let mut live = Vec::new();
    for size in (0..60).map(|n| 1000 + n * 997) {
        for (at, pool) in pools.iter().enumerate() {
            let one = pool.allocate(&Request::new(size)).expect("fits");
            blocks[at].push(place_of(&one).0);
            live.push(one);
        }
        let one = take(&manager, &in_heap(heap, size));
        blocks[2].push(place_of(&one).0);
        live.push(one);
    }
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        assert!(blocks[a].iter().all(|block| !blocks[b].contains(block)));
    }
    drop(live);
    pools.into_iter().for_each(|pool| end(&manager, pool));
}

fn a_pool_in_use_is_busy<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let pool = manager.create_pool(world.device_heap(), pool_of(MIB)).expect("valid");
    let one = pool.allocate(&Request::new(1000)).expect("fits");
    let GiveBack { given: pool, error } =
        manager.destroy_pool(pool).expect_err("something is live");
    assert_eq!(error.kind(), ErrorKind::Busy);
    let two = pool.allocate(&Request::new(1000)).expect("the pool still works");
    drop((one, two));
    end(&manager, pool);
    assert_eq!(stack.inner().live().blocks, 0);
}

fn trim_leaves_memory_with_queued_work_alone<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let line = timelines(&stack).open().expect("one more timeline");
    let one = take(&manager, &Request::new(8 * MIB).on(line));
    let held = world.hold(line);
    one.fill(0, 8 * MIB, 5).expect("queued");
    one.free();
    let before = stack.inner().live().bytes();
    manager.trim().expect("alive");
    assert_eq!(stack.inner().live().bytes(), before, "the fill is still to come");
    drop(held);
    world.backend().wait_idle().expect("alive");
    manager.trim().expect("alive");
    world.backend().wait_idle().expect("alive");
    manager.trim().expect("alive");
    assert_eq!(stack.inner().live().bytes(), 0);
    timelines(&stack).close(line).expect("idle");
}

fn trim_from_another_thread_is_safe<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    std::thread::scope(|scope| {
        let trims = scope.spawn(|| {
            for _ in 0..200 {
                manager.trim().expect("alive");
            }
        });
        for id in 0..100 {
            let one = take(&manager, &Request::new(world.whole(300_000)));
            write_stamp(&one, id);
            check_stamp(&one, id);
        }
        trims.join().expect("no panic");
    });
}

fn a_pool_can_hold_one_allocation_a_block<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let slot = Layout::new(MIB).align(Align::of(256));
    let config = pool_of(MIB).strategy(StrategyKind::Slab(slot));
    let pool = manager.create_pool(world.device_heap(), config).expect("valid");
    let live: Vec<_> = (0..5).map(|_| pool.allocate(&Request::new(MIB)).expect("fits")).collect();
    let mut blocks: Vec<_> = live.iter().map(|one| place_of(one).0).collect();
    blocks.dedup();
    assert_eq!((blocks.len(), stack.inner().live().blocks), (5, 5));
    drop(live);
    end(&manager, pool);
}

fn every_kind_of_pool_serves_and_empties<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let slot = Layout::new(4096).align(Align::of(256));
    let kinds = [
        StrategyKind::General,
        StrategyKind::Buddy(256),
        StrategyKind::Slab(slot),
        StrategyKind::Stack,
        StrategyKind::Ring,
        StrategyKind::Bump,
    ];
    let make = |granularity| Box::new(FirstFit::new(granularity)) as Box<dyn Strategy>;
    let own = manager.create_pool_with(world.device_heap(), pool_of(MIB), make).expect("valid");
    let made = kinds.map(|strategy| {
        let config = pool_of(MIB).strategy(strategy);
        (strategy, manager.create_pool(world.device_heap(), config).expect("valid"))
    });
    for (strategy, pool) in made.into_iter().chain([(StrategyKind::Custom, own)]) {
        for _ in 0..3 {
            let mut live: Vec<_> =
                (0..40).map(|_| pool.allocate(&Request::new(4096)).expect("fits")).collect();
            (0..).zip(&live).for_each(|(id, one)| write_stamp(one, id));
            (0..).zip(&live).for_each(|(id, one)| check_stamp(one, id));
            match strategy {
                StrategyKind::Ring => live.drain(..).for_each(drop),
                _ => live.drain(..).rev().for_each(drop),
            }
            manager.validate().expect("sound");
        }
        end(&manager, pool);
    }
}
