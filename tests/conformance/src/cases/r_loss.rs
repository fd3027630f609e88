//! R: the device is gone. U: how things end. V: the same again.
use super::{kind, place_of, take};
use crate::case::Case;
use crate::world::{World, pool_of, timelines};
use omniheap_core::{Backend, CopyRegion, ErrorKind, Request, TimelineId};
use omniheap_layers::CallKind;

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    use crate::case::Need;
    list! {
        a_lost_device_says_so_at_once_and_is_left_alone proves [135] needs [Transfer, Timelines, Loss];
        frees_after_a_loss_leave_nothing proves [136] needs [Transfer, Timelines, Loss, Unguarded];
        every_order_of_dropping_is_safe proves [145] needs [];
        the_same_seed_gives_the_same_places proves [147] needs [Unguarded];
    }
}

const MAIN: TimelineId = TimelineId::MAIN;

fn lose<B: Backend + 'static>(world: &World<B>) {
    world.extras().lose.as_ref().expect("needed")();
}

fn a_lost_device_says_so_at_once_and_is_left_alone<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.loose_manager(&stack);
    let request = Request::new(1 << 20).on(MAIN).dedicated();
    let [one, other] = [(); 2].map(|()| take(&manager, &request));
    let line = timelines(&stack).open().expect("one more");
    // Work that cannot end: a call that waited for the device would never come back.
    let held = world.extras().hold.is_some().then(|| [world.hold(MAIN), world.hold(line)]);
    one.fill(0, 64, 1).expect("queued");
    other.fill(0, 64, 1).expect("queued");
    lose(world);
    let lost = ErrorKind::DeviceLost;
    assert_eq!(kind(one.write(0, &[1; 64])), lost);
    assert_eq!(kind(one.read(0, &mut [1; 64])), lost);
    assert_eq!(kind(one.fill(0, 64, 1)), lost);
    let copy = CopyRegion { from: &one, from_offset: 0, to: &other, to_offset: 0, size: 64 };
    assert_eq!(kind(manager.copy(MAIN, &[copy])), lost);
    assert_eq!(kind(manager.allocate(&Request::new(1 << 20).dedicated())), lost);
    assert_eq!(kind(manager.allocate(&Request::new(64 << 20))), lost);
    assert_eq!(kind(timelines(&stack).mark(line)), lost);
    assert_eq!(kind(timelines(&stack).open()), lost);
    assert_eq!(kind(stack.wait_idle()), lost);
    let _sums = (manager.totals(), manager.report(), manager.validate());
    drop((one, other, manager));
    drop(held);
}

fn frees_after_a_loss_leave_nothing<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.loose_manager(&stack);
    let line = timelines(&stack).open().expect("one more");
    let shared: Vec<_> = (0..20).map(|n| take(&manager, &Request::new(1000 * (n + 1)))).collect();
    let alone = take(&manager, &Request::new(1 << 20).dedicated());
    let waiting = take(&manager, &Request::new(1 << 20).on(line));
    waiting.fill(0, 1 << 20, 1).expect("queued");
    waiting.use_on(MAIN).expect("open");
    lose(world);
    drop((waiting, alone, shared));
    drop(manager);
    let calls = stack.inner().calls();
    assert_eq!(stack.inner().live(), omniheap_layers::Live::default());
    let made = calls.of(CallKind::Allocate) + calls.of(CallKind::Reserve);
    assert_eq!(made, calls.of(CallKind::Free), "each object once");
}

fn every_order_of_dropping_is_safe<B: Backend + 'static>(world: &World<B>) {
    // Each of the 24 orders of: an allocation, an allocation of a pool, the pool, the manager.
    for order in 0..24 {
        let stack = world.stack();
        let manager = world.loose_manager(&stack);
        let pool = manager.create_pool(world.device_heap(), pool_of(1 << 20)).expect("valid");
        let one = take(&manager, &Request::new(1000));
        let two = pool.allocate(&Request::new(1000)).expect("fits");
        let (mut one, mut two, mut pool, mut manager) =
            (Some(one), Some(two), Some(pool), Some(manager));
        let mut left = vec![0, 1, 2, 3];
        let mut code = order;
        while !left.is_empty() {
            let at = code % left.len();
            code /= left.len();
            match left.remove(at) {
                0 => drop(one.take()),
                1 => drop(two.take()),
                2 => drop(pool.take()),
                _ => drop(manager.take()),
            }
        }
        assert_eq!(stack.inner().live(), omniheap_layers::Live::default(), "order {order}");
    }
}

fn the_same_seed_gives_the_same_places<B: Backend + 'static>(world: &World<B>) {
    let run = || {
        let stack = world.stack();
        stack.inner().start_log();
        let manager = world.manager_over(&stack);
        let (mut rng, mut live, mut seen) = (world.rng(), Vec::new(), Vec::new());
        for _ in 0..600 {
            if rng.below(5) < 3 || live.is_empty() {
                let one = take(&manager, &Request::new(rng.size(300_000)));
                seen.push(place_of(&one));
                live.push(one);
            } else {
                live.swap_remove(rng.index(live.len())).free();
            }
        }
        (seen, stack.inner().take_log())
    };
    let first = run();
    assert!(first == run() && first == run(), "three runs, one result");
}
