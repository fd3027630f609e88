//! F: budgets.
use super::{fill_up, kind, take};
use crate::case::{Case, Need};
use crate::world::{World, in_heap, pool_of};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use omniheap_core::{Backend, ErrorKind, Limits, Request};
use omniheap_layers::CallKind;

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    list! {
        a_budget_holds_against_sixteen_threads proves [38] needs [];
        freed_bytes_are_credited_once proves [39] needs [];
        an_inner_refusal_rolls_the_outer_claim_back proves [39] needs [];
        a_budget_below_use_stops_growth_and_frees_nothing proves [41] needs [Unguarded];
        the_driver_counts_what_we_take proves [42] needs [Budget];
        a_share_of_a_heap_lies_between_nothing_and_all proves [40] needs [];
        a_soft_limit_above_the_hard_one_is_refused proves [41] needs [];
    }
}

const MIB: u64 = 1 << 20;
/// Number of looks at a count that others may change.
const ATTEMPTS: u32 = 50;

fn a_budget_holds_against_sixteen_threads<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let mut config = world.config();
    config.pool.lanes = Some(16);
    let manager = world.manager_with(&stack, config);
    let (heap, limit) = (world.device_heap(), 48 * MIB);
    manager.set_budget(heap, Limits::hard(limit)).expect("exists");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !stop.load(Relaxed) {
                assert!(manager.heap_use(heap).expect("exists").reserved <= limit);
                assert!(stack.inner().live().bytes() <= limit, "the driver gave more");
            }
        });
        let work = |n: u64| {
            let mut live = Vec::new();
            for step in 0..60 {
                live.extend(manager.allocate(&in_heap(heap, (1 + (n + step) % 5) * MIB)).ok());
                if step % 4 == n % 4 {
                    live.clear();
                }
            }
        };
        let threads: Vec<_> = (0..16).map(|n| scope.spawn(move || work(n))).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        stop.store(true, Relaxed);
        watch.join().expect("never above");
    });
    assert!(manager.heap_use(heap).expect("exists").peak_reserved <= limit);
}

fn freed_bytes_are_credited_once<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let heap = world.device_heap();
    for _ in 0..20 {
        let live: Vec<_> = (0..4).map(|_| take(&manager, &in_heap(heap, 3 * MIB))).collect();
        let held = manager.heap_use(heap).expect("exists").reserved;
        assert_eq!(held, stack.inner().live().bytes(), "the account is the ledger's");
        drop(live);
        manager.trim().expect("alive");
        let held = manager.heap_use(heap).expect("exists").reserved;
        assert_eq!((held, stack.inner().live().bytes()), (0, 0));
    }
}

fn an_inner_refusal_rolls_the_outer_claim_back<B: Backend + 'static>(world: &World<B>) {
    let stack = world.limited(32 * MIB, u64::MAX);
    let manager = world.manager_over(&stack);
    let heap = world.device_heap();
    let config = pool_of(4 * MIB).maximum(16 * MIB);
    let pool = manager.create_pool(heap, config).expect("valid");
    manager.set_budget(heap, Limits::hard(8 * MIB)).expect("exists");
    let live: Vec<_> =
        (0..2).map(|_| pool.allocate(&Request::new(4 * MIB)).expect("fits")).collect();
    for _ in 0..5 {
        assert_eq!(kind(pool.allocate(&Request::new(4 * MIB))), ErrorKind::OverBudget);
        assert_eq!(pool.reserved(), 8 * MIB, "the pool took its claim back");
        assert_eq!(manager.heap_use(heap).expect("exists").reserved, 8 * MIB);
    }
    manager.set_budget(heap, Limits::hard(u64::MAX)).expect("exists");
    let more: Vec<_> =
        (0..2).map(|_| pool.allocate(&Request::new(4 * MIB)).expect("fits")).collect();
    assert!(kind(pool.allocate(&Request::new(4 * MIB))).is_out_of_memory());
    assert_eq!(manager.heap_use(heap).expect("exists").reserved, 16 * MIB, "the heap too");
    drop((live, more));
    manager.destroy_pool(pool).map_err(|refused| refused.error).expect("empty");
}

fn a_budget_below_use_stops_growth_and_frees_nothing<B: Backend + 'static>(world: &World<B>) {
    let stack = world.limited(32 * MIB, u64::MAX);
    let manager = world.manager_over(&stack);
    let heap = world.device_heap();
    let mut live: Vec<_> = (0..4).map(|_| take(&manager, &in_heap(heap, 4 * MIB))).collect();
    let held = manager.heap_use(heap).expect("exists").reserved;
    manager.set_budget(heap, Limits::hard(MIB)).expect("lower than use is allowed");
    assert_eq!(manager.heap_use(heap).expect("exists").reserved, held, "nothing is freed by force");
    let why = kind(manager.allocate(&in_heap(heap, 6 * MIB)));
    assert!(why.is_out_of_memory(), "{why:?}");
    assert_eq!(manager.totals().live, 4);
    manager.set_budget(heap, Limits::hard(u64::MAX)).expect("exists");
    live.push(take(&manager, &in_heap(heap, 6 * MIB)));
}

fn the_driver_counts_what_we_take<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    for (heap, about) in world.backend().caps().heap_ids() {
        let ask = || world.backend().as_budget().expect("needed").budget(heap).expect("alive");
        let size = (8 * MIB).min(about.max_block / 2).max(1);
        let before = ask();
        assert!(before.budget > 0 && before.budget <= about.size, "{before:?} of {}", about.size);
        // Other cases of this process may give memory back meanwhile, but not every time.
        let grows = (0..ATTEMPTS).any(|_| {
            let was = ask().used;
            let one = take(&manager, &in_heap(heap, size).dedicated());
            let used = ask().used;
            assert!(used >= manager.heap_use(heap).expect("exists").reserved);
            one.free();
            used >= was
        });
        assert!(grows, "it moves with what we take of {heap:?}");
    }
    assert!(stack.inner().calls().of(CallKind::Allocate) > 0);
    let unknown = world.backend().as_budget().expect("needed").budget(omniheap_core::HeapId(250));
    assert_eq!(kind(unknown), ErrorKind::NoSuchHeap);
}

fn a_soft_limit_above_the_hard_one_is_refused<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let heap = world.device_heap();
    let before = manager.heap_use(heap);
    assert_eq!(
        kind(manager.set_budget(heap, Limits { soft: 2, hard: 1 })),
        ErrorKind::InvalidConfig
    );
    assert_eq!(manager.heap_use(heap), before);
    manager.set_budget(heap, Limits::hard(0)).expect("nothing may be held");
    let (live, why) = fill_up(&manager, &in_heap(heap, 64));
    assert_eq!((live.len(), why), (0, ErrorKind::OverBudget));
}

fn a_share_of_a_heap_lies_between_nothing_and_all<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let heap = world.device_heap();
    let size = manager.caps().heap(heap).expect("exists").size;
    for (share, limit) in [(0.0, 0), (0.5, size / 2), (1.0, size)] {
        manager.set_budget_share(heap, share).expect("a share");
        assert_eq!(manager.heap_use(heap).expect("exists").hard_limit, limit);
    }
    let before = manager.heap_use(heap);
    for share in [-0.1, 1.1, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(kind(manager.set_budget_share(heap, share)), ErrorKind::InvalidConfig);
    }
    assert_eq!(manager.heap_use(heap), before);
}
