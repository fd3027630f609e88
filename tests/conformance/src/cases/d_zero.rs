//! D: nothing at all.
use super::{kind, take};
use crate::case::{Case, Need};
use crate::world::{World, in_heap, pool_of};
use omniheap_core::{
    Backend, CopyRegion, ErrorKind, HeapId, Limits, PoolConfig, Request, TimelineId,
};
use omniheap_layers::CallKind;

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    list! {
        zero_bytes_are_refused_everywhere proves [25, 27] needs [];
        moving_zero_bytes_succeeds_without_a_call proves [26] needs [Transfer];
        mapping_zero_bytes_succeeds_without_a_call proves [26] needs [Map];
        heaps_that_do_not_exist_are_refused proves [27] needs [];
    }
}

fn zero_bytes_are_refused_everywhere<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    assert_eq!(kind(manager.allocate(&Request::new(0))), ErrorKind::ZeroSize);
    assert_eq!(kind(manager.allocate(&Request::new(0).dedicated())), ErrorKind::ZeroSize);
    assert_eq!(kind(manager.allocate(&Request::new(0).on(TimelineId::MAIN))), ErrorKind::ZeroSize);
    assert_eq!(kind(manager.plan(&Request::new(0))), ErrorKind::ZeroSize);
    for (heap, _) in world.backend().caps().heap_ids() {
        assert_eq!(kind(manager.allocate(&in_heap(heap, 0))), ErrorKind::ZeroSize);
        let direct = world.backend().allocate(heap, 0).err().map(|error| error.kind());
        assert_eq!(direct, Some(ErrorKind::ZeroSize), "the backend itself");
    }
    let pool = manager.create_pool(world.device_heap(), pool_of(1 << 20)).expect("valid");
    assert_eq!(kind(pool.allocate(&Request::new(0))), ErrorKind::ZeroSize);
    assert_eq!(stack.inner().calls().total(), 0);
    for config in [pool_of(0), PoolConfig::new().maximum(0)] {
        let why = manager.create_pool(world.device_heap(), config).err().map(|e| e.kind());
        assert_eq!(why, Some(ErrorKind::InvalidConfig));
    }
    manager.destroy_pool(pool).map_err(|refused| refused.error).expect("empty");
}

fn moving_zero_bytes_succeeds_without_a_call<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let (one, other) = (take(&manager, &Request::new(64)), take(&manager, &Request::new(64)));
    let calls = stack.inner().calls().total();
    for offset in [0, 64] {
        one.write(offset, &[]).expect("nothing to do");
        one.read(offset, &mut []).expect("nothing to do");
        one.fill(offset, 0, 7).expect("nothing to do");
        let copy =
            CopyRegion { from: &one, from_offset: offset, to: &other, to_offset: 64, size: 0 };
        manager.copy(TimelineId::MAIN, &[copy]).expect("nothing to do");
    }
    manager.copy(TimelineId::MAIN, &[]).expect("nothing to do");
    assert_eq!(stack.inner().calls().total(), calls);
    let whole = world.whole(1);
    assert_eq!(kind(one.fill(64 + whole, 0, 7)), ErrorKind::OutOfRange, "outside is outside");
}

fn mapping_zero_bytes_succeeds_without_a_call<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let one = take(&manager, &in_heap(world.visible_heap().expect("needed"), 64));
    let mapped = one.map().expect("visible");
    mapped.write(64, &[]).expect("nothing to do");
    mapped.read(64, &mut []).expect("nothing to do");
    mapped.flush(0, 0).expect("nothing to do");
    mapped.invalidate(64, 0).expect("nothing to do");
    let calls = stack.inner().calls();
    assert_eq!((calls.of(CallKind::Flush), calls.of(CallKind::Invalidate)), (0, 0));
}

fn heaps_that_do_not_exist_are_refused<B: Backend + 'static>(world: &World<B>) {
    let heap = HeapId(250);
    let manager = world.manager();
    assert_eq!(kind(manager.allocate(&in_heap(heap, 64))), ErrorKind::NoSuchHeap);
    assert_eq!(kind(manager.plan(&in_heap(heap, 64))), ErrorKind::NoSuchHeap);
    assert_eq!(kind(manager.explain(&in_heap(heap, 64))), ErrorKind::NoSuchHeap);
    assert_eq!(kind(manager.set_budget(heap, Limits::hard(1))), ErrorKind::NoSuchHeap);
    assert_eq!(kind(manager.heap_use(heap)), ErrorKind::NoSuchHeap);
    let direct = world.backend().allocate(heap, 64).err().map(|error| error.kind());
    assert_eq!(direct, Some(ErrorKind::NoSuchHeap), "the backend itself");
}
