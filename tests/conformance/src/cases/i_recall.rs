//! I: calling back what spilled, the only move that leaves a heap.
use super::{fill_up, place_of, take};
use crate::case::Case;
use crate::world::{Stack, World, check_stamp, timelines, write_stamp};
use core::time::Duration;
use omniheap_core::{
    Allocation, Backend, Budget, Decision, HeapId, Manager, MoveOutcome, Pass, Reason, Request,
};
use omniheap_layers::Plan;

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    use crate::case::Need;
    list! {
        what_spilled_is_called_back_when_there_is_room proves [34, 78] needs [Transfer, Spill];
        a_recall_heeds_pins_writes_and_frees proves [70, 71, 75] needs [Transfer, Spill];
        a_recall_dropped_at_any_step_changes_nothing proves [72] needs [Transfer, Spill];
        a_call_that_fails_in_a_recall_loses_nothing proves [73] needs [Transfer, Spill];
        a_recall_waits_for_work_on_the_room_that_it_takes proves [77] needs [Transfer, Spill, Hold];
        a_view_of_the_host_outlasts_a_recall proves [76] needs [Transfer, Spill, Map];
    }
}

const MIB: u64 = 1 << 20;
/// Bytes of each heap.
const ROOM: u64 = 16 * MIB;

type Stamped<B> = Vec<(u64, Allocation<Stack<B>>)>;

/// A manager whose first choice for most requests is full, with a few stamped allocations that spilled.
struct Flood<B: Backend + 'static> {
    stack: Stack<B>,
    manager: Manager<Stack<B>>,
    near: Vec<Allocation<Stack<B>>>,
    spilled: Stamped<B>,
}

impl<B: Backend + 'static> Flood<B> {
    fn new(world: &World<B>) -> Self {
        let stack = world.limited(ROOM, u64::MAX);
        let manager = world.manager_over(&stack);
        let (near, _) = fill_up(&manager, &Request::new(MIB));
        let spilled: Stamped<B> =
            (0..5).map(|id| (id, take(&manager, &Request::new(MIB).may_spill()))).collect();
        spilled.iter().for_each(|(id, one)| write_stamp(one, *id));
        assert!(spilled.iter().all(|(_, one)| one.placed().reason == Reason::Spilled));
        stack.wait_idle().expect("alive");
        Self { stack, manager, near, spilled }
    }

    /// The same, with room in the heap that was full.
    fn ebb(world: &World<B>) -> Self {
        let mut flood = Self::new(world);
        flood.near.truncate(2);
        flood.manager.trim().expect("alive");
        flood
    }

    fn begin(&self) -> Pass<Stack<B>> {
        self.manager.begin_recall(&Budget::new()).expect("alive")
    }

    fn heaps(&self) -> Vec<HeapId> {
        let heap_of = |(_, one): &(u64, Allocation<Stack<B>>)| {
            let made_for = one.binding().block().origin().heap;
            assert_eq!(made_for, Some(one.heap()), "what it says is where it is");
            one.heap()
        };
        self.spilled.iter().map(heap_of).collect()
    }

    #[track_caller]
    fn intact(&self) {
        self.spilled.iter().for_each(|(id, one)| check_stamp(one, *id));
        self.manager.validate().expect("sound");
    }
}

fn what_spilled_is_called_back_when_there_is_room<B: Backend + 'static>(world: &World<B>) {
    let full = Flood::new(world);
    assert!(full.begin().is_empty(), "there is no room");
    full.intact();
    drop(full);
    let flood = Flood::ebb(world);
    let ids: Vec<_> = flood.spilled.iter().map(|(_, one)| one.id()).collect();
    let (far, totals) = (flood.heaps(), flood.manager.totals());
    flood.manager.defragment().expect("alive");
    assert_eq!(flood.heaps(), far, "nothing leaves its heap unless it is asked for");
    let two = flood.manager.begin_recall(&Budget::new().bytes(5 * MIB / 2)).expect("alive");
    assert_eq!(two.commit().expect("alive").moved.moves, 2, "the budget");
    assert_eq!(flood.begin().commit().expect("alive").moved.moves, 3);
    let (now, manager) = (flood.heaps(), &flood.manager);
    assert!(now.iter().zip(far).all(|(near, far)| *near != far));
    assert!(flood.spilled.iter().all(|(_, one)| one.placed().reason != Reason::Spilled));
    assert!(flood.spilled.iter().map(|(_, one)| one.id()).eq(ids), "the same names");
    let after = manager.totals();
    assert_eq!((after.live, after.live_bytes), (totals.live, totals.live_bytes), "counted once");
    flood.intact();
    assert!(flood.begin().is_empty(), "all are back");
    manager.defragment().expect("alive");
    flood.intact();
}

fn a_recall_heeds_pins_writes_and_frees<B: Backend + 'static>(world: &World<B>) {
    let mut flood = Flood::ebb(world);
    let mut pass = flood.begin();
    let planned = pass.moves().map(|one| one.allocation());
    assert!(planned.eq(flood.spilled.iter().map(|(_, one)| one.id())));
    pass.decide(0, Decision::Ignore).expect("planned");
    pass.start().expect("alive");
    write_stamp(&flood.spilled[1].1, 77);
    flood.spilled[1].0 = 77;
    drop(flood.spilled[2].1.pin());
    let (_, freed) = flood.spilled.remove(3);
    freed.free();
    let outcomes: Vec<_> =
        pass.commit().expect("alive").moves.into_iter().map(|(_, one)| one).collect();
    assert_eq!(
        outcomes,
        [
            MoveOutcome::Stayed,
            MoveOutcome::Stayed,
            MoveOutcome::Stayed,
            MoveOutcome::Freed,
            MoveOutcome::Moved
        ]
    );
    let heaps = flood.heaps();
    assert!(heaps[..3].iter().all(|heap| *heap != heaps[3]));
    flood.intact();
}

fn a_recall_dropped_at_any_step_changes_nothing<B: Backend + 'static>(world: &World<B>) {
    let flood = Flood::ebb(world);
    let places = || flood.spilled.iter().map(|(_, one)| place_of(one)).collect::<Vec<_>>();
    let (before, totals, held) = (places(), flood.manager.totals(), flood.stack.inner().live());
    for step in 0..3 {
        let mut pass = flood.begin();
        assert_eq!(pass.moves().len(), 5);
        if step > 0 {
            pass.start().expect("alive");
        }
        while step > 1 && !pass.is_ready().expect("alive") {
            std::thread::yield_now();
        }
        drop(pass);
        assert_eq!(places(), before, "step {step}");
        let now = flood.manager.totals();
        assert_eq!((now.live, now.live_bytes), (totals.live, totals.live_bytes), "step {step}");
        assert_eq!(flood.stack.inner().live(), held, "step {step}");
        flood.intact();
    }
}

fn a_call_that_fails_in_a_recall_loses_nothing<B: Backend + 'static>(world: &World<B>) {
    for nth in 0..64 {
        let flood = Flood::ebb(world);
        let far = flood.heaps();
        flood.stack.inject(Plan::Nth(nth), 0);
        let outcome = flood.manager.begin_recall(&Budget::new()).and_then(Pass::commit);
        let failed = flood.stack.injected() > 0;
        flood.stack.inject(Plan::Never, 0);
        assert!(failed || outcome.is_ok());
        if outcome.is_err() {
            assert_eq!(flood.heaps(), far, "call {nth}");
        }
        flood.intact();
        flood.begin().commit().expect("well again");
        assert!(flood.heaps().iter().zip(far).all(|(near, far)| *near != far), "call {nth}");
        flood.intact();
        if flood.stack.quarantine() != Default::default() {
            // The driver kept what it refused to take back; that is told, and not ours to return.
            world.forgive(&flood.stack);
        }
        if !failed {
            assert!(nth >= 1, "a recall calls the driver");
            return;
        }
    }
    panic!("a recall of five moves needs fewer calls");
}

fn a_recall_waits_for_work_on_the_room_that_it_takes<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager_over(&world.limited(ROOM, u64::MAX));
    let own = timelines(manager.backend()).open().expect("one more");
    let (near, _) = fill_up(&manager, &Request::new(MIB).on(own));
    let spilled = take(&manager, &Request::new(MIB).may_spill());
    write_stamp(&spilled, 5);
    let hold = world.hold(own);
    near.iter().for_each(|one| one.fill(0, MIB, 9).expect("queued"));
    // In the order of its timeline the room is free at once; the fills are still to come.
    drop(near);
    let mut pass = manager.begin_recall(&Budget::new()).expect("alive");
    assert_eq!(pass.moves().len(), 1);
    pass.start().expect("alive");
    // Copies that do not wait are done after a while; those that do are not, however long it is.
    for _ in 0..50 {
        assert_eq!(pass.is_ready(), Ok(false), "behind the fills");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(hold);
    assert_eq!(pass.commit().expect("alive").moved.moves, 1);
    check_stamp(&spilled, 5);
    drop(spilled);
    manager.backend().wait_idle().expect("alive");
    timelines(manager.backend()).close(own).expect("open");
}

fn a_view_of_the_host_outlasts_a_recall<B: Backend + 'static>(world: &World<B>) {
    let flood = Flood::ebb(world);
    let is_visible = |one: &Allocation<Stack<B>>| {
        flood.manager.caps().heap(one.heap()).is_some_and(|heap| heap.host.is_visible())
    };
    let (_, mapped) = &flood.spilled[0];
    assert!(is_visible(mapped), "host memory");
    drop(mapped.map().expect("visible"));
    flood.begin().commit().expect("alive");
    assert!(is_visible(mapped), "whoever has mapped it can map it again");
    let (mut found, mut wanted) = ([0; 256], [0; 256]);
    crate::rng::stamp(0, 0, &mut wanted);
    mapped.map().expect("visible").read(0, &mut found).expect("inside");
    assert_eq!(found, wanted);
    flood.intact();
}
