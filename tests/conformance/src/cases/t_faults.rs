//! T: a driver that fails or lies.
use super::{kind, take};
use crate::case::Case;
use crate::rng::is_all;
use crate::world::{World, in_heap, timelines};
use omniheap_core::{Backend, ErrorKind, Request, TimelineId};
use omniheap_layers::{CallKind, Corruption, Live, Plan, errors};

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    use crate::case::Need;
    list! {
        a_failed_call_is_told_and_changes_nothing proves [141] needs [];
        a_driver_that_recovers_is_used_again proves [142] needs [];
        what_the_driver_refuses_to_take_back_is_quarantined proves [143] needs [];
        a_block_that_is_too_short_harms_nobody proves [144] needs [Transfer, Unguarded];
        a_timeline_that_never_ends_harms_nobody proves [144] needs [Timelines];
    }
}

const MIB: u64 = 1 << 20;

fn a_failed_call_is_told_and_changes_nothing<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let _held = take(&manager, &Request::new(1000));
    let before = (manager.totals(), stack.inner().live());
    for (pick, wanted) in errors(CallKind::Allocate).iter().enumerate() {
        stack.inject(Plan::Nth(0), pick);
        let why = kind(manager.allocate(&in_heap(world.device_heap(), MIB).dedicated()));
        assert!(why == *wanted || why.is_out_of_memory() && wanted.is_out_of_memory(), "{why:?}");
        assert_eq!((manager.totals(), stack.inner().live()), before);
        manager.validate().expect("sound");
    }
    stack.inject(Plan::Never, 0);
    drop(take(&manager, &in_heap(world.device_heap(), MIB).dedicated()));
}

fn a_driver_that_recovers_is_used_again<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    for plan in [Plan::From(0), Plan::NthThenOk { at: 0, times: 2 }, Plan::Pair(0, 1)] {
        stack.inject(plan, 0);
        let failed = (0..2)
            .filter(|_| manager.allocate(&in_heap(world.device_heap(), MIB).dedicated()).is_err())
            .count();
        assert!(failed > 0, "{plan:?}");
        stack.inject(Plan::Never, 0);
        drop(take(&manager, &in_heap(world.device_heap(), MIB).dedicated()));
        assert_eq!(manager.totals().live, 0);
    }
}

fn what_the_driver_refuses_to_take_back_is_quarantined<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.loose_manager(&stack);
    let one = take(&manager, &in_heap(world.device_heap(), MIB).dedicated());
    stack.inject(Plan::Kind(CallKind::Free, 0), 0);
    one.free();
    manager.retire().expect("alive");
    stack.inject(Plan::Never, 0);
    assert!(manager.report().quarantined_bytes >= MIB, "reported");
    assert_eq!(manager.totals().live, 0);
    drop(take(&manager, &in_heap(world.device_heap(), MIB).dedicated()));
    drop(manager);
    assert_eq!(stack.quarantine().blocks, 1, "asked once");
    let live = stack.inner().live();
    assert_eq!((live.blocks, live.reservations, live.pages), (1, 0, 0), "only what was refused");
    // The layer kept the call from the driver on purpose, so the device still counts the block.
    world.forgive(&stack);
}

fn a_block_that_is_too_short_harms_nobody<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let neighbour = take(&manager, &Request::new(64 << 10).dedicated());
    neighbour.fill(0, 64 << 10, 1).expect("inside");
    stack.inject(Plan::Corruption(0, Corruption::ShortBlock), 0);
    let short = take(&manager, &Request::new(64 << 20).dedicated());
    stack.inject(Plan::Never, 0);
    let past = short.fill((64 << 20) - 4096, 4096, 2);
    assert_eq!(kind(past), ErrorKind::OutOfRange, "the backend checks what it gave");
    let mut found = vec![0; 64 << 10];
    neighbour.read(0, &mut found).expect("inside");
    assert!(is_all(&found, 1));
}

fn a_timeline_that_never_ends_harms_nobody<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.loose_manager(&stack);
    let line = timelines(&stack).open().expect("one more");
    let one = take(&manager, &Request::new(MIB).on(TimelineId::MAIN));
    one.use_on(line).expect("open");
    if world.backend().as_transfer().is_some() {
        one.fill(0, MIB, 1).expect("inside");
    }
    stack.inject(Plan::Corruption(0, Corruption::NeverReached), 0);
    let place = super::place_of(&one);
    one.free();
    for _ in 0..5 {
        manager.retire().expect("alive");
        let other = take(&manager, &Request::new(MIB).on(TimelineId::MAIN));
        let now = super::place_of(&other);
        assert!(
            now.0 != place.0 || !now.1.overlaps(place.1) || manager.totals().deferred_bytes == 0
        );
    }
    drop(manager);
    stack.inject(Plan::Never, 0);
    timelines(&stack).close(line).expect("idle");
    assert_eq!(
        stack.inner().live(),
        Live::default(),
        "teardown waits for the device, not for its word"
    );
}
