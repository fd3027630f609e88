//! N: memory that communication libraries can register.
#![expect(unsafe_code, reason = "frees a block")]
use super::{kind, place_of, take};
use crate::case::{Case, Need};
use crate::kept::Kept;
use crate::world::{Stack, World, check_stamp, in_heap, write_stamp};
use omniheap_core::{
    Align, Allocation, Backend, BlockOffset, ErrorKind, Export, Exported, HeapId, PoolConfig,
    Request, Sleep, Source, SpanState, TimelineId,
};

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    list! {
        registrable_memory_is_one_handle_of_its_own proves [157] needs [Registrable, Unguarded];
        registrable_memory_is_rounded_to_the_granule proves [157] needs [Registrable, Unguarded];
        registrable_memory_never_moves proves [158] needs [Registrable, Transfer];
        registrable_memory_keeps_its_pool_awake proves [158] needs [Registrable, Pages, Unguarded];
        registrable_memory_keeps_its_bytes_for_importers proves [159] needs [Registrable, Transfer, Unguarded];
        registrable_memory_that_is_short_is_made_room_for proves [160] needs [Registrable, Unguarded];
        registrable_requests_are_refused_in_words_elsewhere proves [160] needs [];
    }
}

/// A heap with registrable memory, and what its sizes are multiples of.
fn heap<B: Backend + 'static>(world: &World<B>) -> (HeapId, Align) {
    let mut heaps = world.backend().caps().heap_ids();
    heaps.find_map(|(id, heap)| Some((id, heap.registrable?))).expect("needed")
}

fn share<B: Backend>(stack: &Stack<B>) -> &dyn Export<Block = <Stack<B> as Backend>::Block> {
    stack.as_export().expect("needed")
}

fn export<B: Backend>(stack: &Stack<B>, one: &Allocation<Stack<B>>) -> Exported {
    share(stack).export(one.binding().block()).expect("registrable memory can be exported")
}

fn registrable_memory_is_one_handle_of_its_own<B: Backend + 'static>(world: &World<B>) {
    let (stack, (heap, granule)) = (world.stack(), heap(world));
    let manager = world.manager_over(&stack);
    let size = granule.get();
    let _neighbours: Vec<_> = (0..8).map(|_| take(&manager, &in_heap(heap, 4096))).collect();
    let all: Vec<_> = (0..4).map(|_| take(&manager, &in_heap(heap, size).registrable())).collect();
    let mut blocks: Vec<_> = all.iter().map(|one| place_of(one).0).collect();
    blocks.sort_unstable();
    blocks.dedup();
    assert_eq!(blocks.len(), 4, "one handle each");
    for one in &all {
        let span = one.binding().span();
        assert_eq!((span.offset, span.size), (0, size), "from the first byte of it to the last");
        assert_eq!(export(&stack, one).size, size);
    }
    let plain = take(&manager, &in_heap(heap, size).dedicated());
    assert_eq!(kind(share(&stack).export(plain.binding().block())), ErrorKind::Unsupported);
    let before = stack.inner().live();
    drop(all);
    let after = stack.inner().live();
    assert_eq!(before.blocks - after.blocks, 4, "freed at once, and kept for nobody else");
}

fn registrable_memory_is_rounded_to_the_granule<B: Backend + 'static>(world: &World<B>) {
    let (stack, (heap, granule)) = (world.stack(), heap(world));
    let manager = world.manager_over(&stack);
    for (size, whole) in [(1, 1), (granule.get(), 1), (granule.get() + 1, 2)] {
        let (request, whole) = (in_heap(heap, size).registrable(), whole * granule.get());
        let plan = manager.plan(&request).expect("it fits");
        assert_eq!((plan.source, plan.new_bytes), (Source::Dedicated, whole), "{size}");
        let one = take(&manager, &request);
        assert_eq!((one.size(), export(&stack, &one).size), (size, whole));
        assert_eq!(manager.heap_use(heap).expect("there").reserved, whole, "all of it is counted");
        let report = manager.report();
        let spans = || report.pools.iter().flat_map(|pool| &pool.blocks).flat_map(|it| &it.live);
        let found: Vec<_> = spans().map(|it| (it.span.size, it.state)).collect();
        assert_eq!(found, [(whole, SpanState::Pinned)], "the report shows it");
    }
    let most = manager.caps().heap(heap).expect("there").max_block;
    let refused = manager.allocate(&in_heap(heap, most.saturating_add(1)).registrable());
    assert_eq!(kind(refused), ErrorKind::ExceedsLimit);
}

fn registrable_memory_never_moves<B: Backend + 'static>(world: &World<B>) {
    let (stack, (heap, _)) = (world.stack(), heap(world));
    let manager = world.manager_over(&stack);
    let small: Vec<_> = (0..64).map(|_| take(&manager, &in_heap(heap, 65_536))).collect();
    let one = take(&manager, &in_heap(heap, 65_536).registrable());
    let before = place_of(&one);
    write_stamp(&one, 1);
    drop(small.into_iter().step_by(2).collect::<Vec<_>>());
    manager.defragment().expect("alive");
    assert_eq!(place_of(&one), before, "a registered address stays");
    check_stamp(&one, 1);
}

fn registrable_memory_keeps_its_pool_awake<B: Backend + 'static>(world: &World<B>) {
    let (manager, heap) = (world.manager(), world.device_heap());
    let pool = manager.create_pool(heap, PoolConfig::new().sleepable()).expect("it has pages");
    let one = pool.allocate(&Request::new(65_536).registrable().name("registered")).expect("fits");
    let store = Kept::new();
    let error = pool.sleep(&Sleep::to(store.clone())).expect_err("it is registered");
    let named: Vec<_> = error.refused().iter().map(|it| it.name.as_deref()).collect();
    assert_eq!(named, [Some("registered")]);
    drop(one);
    pool.sleep(&Sleep::to(store)).expect("nothing forbids it");
}

fn registrable_memory_keeps_its_bytes_for_importers<B: Backend + 'static>(world: &World<B>) {
    let (stack, (heap, _)) = (world.stack(), heap(world));
    let manager = world.manager_over(&stack);
    let one = take(&manager, &in_heap(heap, 65_536).registrable());
    one.fill(0, 65_536, 7).expect("alive");
    stack.wait_idle().expect("alive");
    let exported = export(&stack, &one);
    let imported = share(&stack).import(heap, &exported).expect("the same device");
    drop((one, exported));
    manager.trim().expect("alive");
    let _other = take(&manager, &in_heap(heap, 65_536).registrable().zeroed());
    let transfer = stack.as_transfer().expect("needed");
    let mut found = [0; 64];
    let place = BlockOffset { block: &imported, offset: 4096 };
    transfer.read(TimelineId::MAIN, place, &mut found).expect("inside");
    assert_eq!(found, [7; 64], "registered memory that was freed too early harms nobody else");
    stack.wait_idle().expect("alive");
    // SAFETY: imported above by this backend, which is idle.
    unsafe { stack.free(imported) }.expect("idle");
}

fn registrable_memory_that_is_short_is_made_room_for<B: Backend + 'static>(world: &World<B>) {
    let (heap, granule) = heap(world);
    let stack = world.limited(3 * granule.get(), u64::MAX);
    let manager = world.manager_over(&stack);
    let request = in_heap(heap, granule.get()).registrable();
    // Empty memory that a pool keeps: it goes back to the driver before the request fails.
    drop(take(&manager, &in_heap(heap, granule.get())));
    let all: Vec<_> = (0..3).map(|_| take(&manager, &request)).collect();
    let before = (manager.totals(), stack.inner().live());
    assert_eq!(kind(manager.allocate(&request)), ErrorKind::OutOfDeviceMemory);
    assert_eq!((manager.totals(), stack.inner().live()), before, "a refusal changes nothing");
    drop(all);
    drop(take(&manager, &request));
}

fn registrable_requests_are_refused_in_words_elsewhere<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let (mut can, before) = (false, (manager.totals(), stack.inner().live()));
    for (id, heap) in manager.caps().heap_ids() {
        if heap.registrable.is_some() {
            can = true;
            continue;
        }
        let Err(error) = manager.allocate(&in_heap(id, 4096).registrable()) else {
            panic!("heap {} has no registrable memory", id.0);
        };
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("register"), "{error}");
    }
    let anywhere = manager.allocate(&Request::new(4096).registrable());
    if !can {
        assert_eq!(kind(anywhere), ErrorKind::Unsupported);
        assert_eq!((manager.totals(), stack.inner().live()), before, "a refusal changes nothing");
    }
}
