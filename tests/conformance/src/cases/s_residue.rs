//! S: what one domain leaves behind, another never reads.
use super::{kind, take};
use crate::case::{Case, Need};
use crate::rng::difference;
use crate::world::{Stack, World, in_heap, timelines};
use omniheap_core::{
    Allocation, Backend, ErrorKind, HeapKind, Limits, Manager, Request, TimelineId,
};
use omniheap_layers::{CallKind, Plan};

const SECRET: u8 = 0xA5;

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    list! {
        memory_that_changes_its_domain_reads_zero proves [137] needs [Transfer, Unguarded];
        a_domain_alone_pays_for_no_clearing proves [137] needs [Transfer, Unguarded];
        a_domain_within_its_reserve_is_served_whatever_others_hold proves [43] needs [Transfer];
        zeroed_memory_reads_zero_to_its_last_byte proves [138] needs [Transfer, Unguarded];
        zeros_arrive_in_the_order_of_the_timeline proves [139] needs [Transfer, Timelines];
        a_secret_is_zeroed_before_its_bytes_are_used_again proves [137, 139] needs [Transfer, Unguarded];
        memory_that_could_not_be_cleared_is_handed_to_nobody proves [139] needs [Transfer, Unguarded];
    }
}

fn bytes_of<B: Backend>(allocation: &Allocation<B>) -> Vec<u8> {
    let mut bytes =
        vec![SECRET; usize::try_from(allocation.size()).expect("cases use small sizes")];
    allocation.read(0, &mut bytes).expect("an allocation can be read");
    bytes
}

#[track_caller]
fn assert_zero<B: Backend>(allocation: &Allocation<B>) {
    let found = bytes_of(allocation);
    let other = difference(&found, &vec![0; found.len()]);
    assert_eq!(other, None, "the first byte of another owner");
}

/// Sizes that fill their padding, so that reading them reads all that was granted.
fn sizes<B: Backend + 'static>(world: &World<B>) -> [u64; 3] {
    [world.whole(256), world.whole(64 << 10), world.whole(3 << 20)]
}

fn another<B: Backend + 'static>(world: &World<B>, of: &Manager<Stack<B>>) -> Manager<Stack<B>> {
    of.domain(world.config()).expect("the device clears memory")
}

fn memory_that_changes_its_domain_reads_zero<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let victim = world.manager_over(&stack);
    let attacker = another(world, &victim);
    let heaps = world.backend().caps().heap_ids();
    let heaps = heaps.filter(|(_, heap)| heap.kind != HeapKind::Constant).map(|(id, _)| id);
    for heap in heaps {
        for size in sizes(world) {
            let left = take(&victim, &in_heap(heap, size));
            left.fill(0, size, SECRET).expect("an allocation can be filled");
            drop(left);
            victim.trim().expect("empty blocks go back");
            let fills = stack.inner().calls().of(CallKind::Fill);
            let found = take(&attacker, &in_heap(heap, size));
            assert_zero(&found);
            assert!(stack.inner().calls().of(CallKind::Fill) > fills, "the driver is not trusted");
            drop(found);
            attacker.trim().expect("empty blocks go back");
        }
    }
}

fn a_domain_alone_pays_for_no_clearing<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let _one = take(&manager, &Request::new(world.whole(1 << 20)));
    assert_eq!(stack.inner().calls().of(CallKind::Fill), 0);
}

fn a_domain_within_its_reserve_is_served_whatever_others_hold<B: Backend + 'static>(
    world: &World<B>,
) {
    let heap = world.device_heap();
    let size = world.backend().caps().heap(heap).expect("it exists").size;
    let share = 32 << 20;
    let stack = world.stack_with(64 << 20, u64::MAX, |caps| {
        caps.heaps[usize::from(heap.0)].size = size.min(64 << 20);
    });
    let greedy = world.manager_over(&stack);
    let modest = another(world, &greedy);
    modest.set_reserve(heap, share).expect("half of it");
    assert_eq!(kind(greedy.set_reserve(heap, 40 << 20)), ErrorKind::ExceedsLimit);
    let (taken, why) = super::fill_up(&greedy, &in_heap(heap, 1 << 20));
    assert_eq!(why, ErrorKind::OverBudget);
    assert!(!taken.is_empty(), "what was promised to nobody is anybody's");
    let served = take(&modest, &in_heap(heap, 8 << 20));
    drop((taken, served));
    modest.trim().expect("empty blocks go back");
    modest.set_reserve(heap, 0).expect("promises can be taken back");
    modest.set_budget(heap, Limits::hard(1 << 20)).expect("a quota");
    assert_eq!(kind(modest.allocate(&in_heap(heap, 8 << 20))), ErrorKind::OverBudget);
}

fn zeroed_memory_reads_zero_to_its_last_byte<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    for size in [1, 100, 4096, 70_000].map(|size| world.whole(size)) {
        let dirty = take(&manager, &Request::new(world.whole(128 << 10)));
        dirty.fill(0, dirty.size(), SECRET).expect("an allocation can be filled");
        drop(dirty);
        let _ = manager.allocate(&Request::new(u64::MAX / 2).zeroed()).expect_err("never fits");
        let clean = take(&manager, &Request::new(size).zeroed());
        assert_zero(&clean);
        drop(clean);
        // The padding of a moment ago is somebody's bytes now.
        let neighbour = take(&manager, &Request::new(world.whole(size.next_multiple_of(256))));
        assert_zero(&neighbour);
    }
}

fn zeros_arrive_in_the_order_of_the_timeline<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let lines = timelines(&**world.backend());
    let side = lines.open().expect("a second timeline");
    let size = world.whole(1 << 20);
    for on in [TimelineId::MAIN, side] {
        let dirty = take(&manager, &Request::new(size).on(on));
        dirty.fill(0, size, SECRET).expect("in order");
        drop(dirty); // Its fill may still run: the zeros come after it, on the same timeline.
        let clean = take(&manager, &Request::new(size).on(on).zeroed());
        assert_zero(&clean);
    }
    manager.backend().wait_idle().expect("everything ends");
    manager.trim().expect("nothing is in use");
    lines.close(side).expect("its work has ended");
}

fn a_secret_is_zeroed_before_its_bytes_are_used_again<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let size = world.whole(64 << 10);
    // Keeps the block, so that the next allocation gets the same bytes.
    let _keeper = take(&manager, &Request::new(256));
    let requests = [Request::new(size), Request::new(size).on(TimelineId::MAIN)];
    for request in requests {
        let secret = take(&manager, &request.secret());
        secret.fill(0, size, SECRET).expect("an allocation can be filled");
        let place = super::place_of(&secret);
        drop(secret);
        manager.backend().wait_idle().expect("everything ends");
        manager.retire().expect("the device is there");
        let next = take(&manager, &request);
        assert_eq!(super::place_of(&next), place, "the same bytes");
        assert_zero(&next);
    }
}

fn memory_that_could_not_be_cleared_is_handed_to_nobody<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.loose_manager(&stack);
    let size = world.whole(64 << 10);
    let _keeper = take(&manager, &Request::new(256));
    let secret = take(&manager, &Request::new(size).secret());
    secret.fill(0, size, SECRET).expect("an allocation can be filled");
    let place = super::place_of(&secret);
    stack.inject(Plan::Kind(CallKind::Fill, 0), 1);
    drop(secret);
    assert_eq!(stack.injected(), 1, "the clearing");
    stack.inject(Plan::Never, 0);
    assert!(manager.report().quarantined_bytes >= size);
    manager.backend().wait_idle().expect("everything ends");
    manager.retire().expect("the device is there");
    let next = take(&manager, &Request::new(size));
    assert_ne!(super::place_of(&next), place, "what still holds the secret");
}
