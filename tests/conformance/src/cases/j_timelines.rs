//! J: reuse in the order of timelines.
use super::{place_of, take};
use crate::case::{Case, Need};
use crate::world::{Stack, World, check_stamp, in_heap, timelines, write_stamp};
use omniheap_core::{
    Allocation, Backend, CopyRegion, Limits, Manager, Move, Point, Request, TimelineId, Usage,
    Uses, Waiting,
};

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    list! {
        the_same_timeline_reuses_at_once proves [80] needs [Transfer, Unguarded];
        another_timeline_waits_for_queued_work proves [81] needs [Transfer, Timelines, Hold];
        a_used_timeline_keeps_the_bytes_until_it_has_passed proves [82] needs [Transfer, Timelines, Hold];
        only_the_full_join_makes_reuse_legal proves [83] needs [Timelines, Hold];
        a_free_after_a_point_waits_for_it proves [83] needs [Timelines, Hold];
        a_shortage_collects_what_waits proves [84] needs [Transfer, Timelines];
        a_timeline_may_close_before_its_frees_are_collected proves [85] needs [Transfer, Timelines, Unguarded];
        a_stuck_timeline_delays_nobody_else proves [86] needs [Timelines, Hold];
        staging_is_not_reused_while_a_copy_reads_it proves [87] needs [Transfer, Timelines, Hold];
        a_mark_of_all_work_waits_for_every_timeline proves [83] needs [Timelines, Hold, MarkAll];
        bytes_that_leave_a_timeline_wait_for_uses_that_nobody_declared proves [82] needs [Transfer, Timelines, Hold, Unguarded];
        every_call_works_from_every_thread proves [89] needs [Transfer];
    }
}

const MIB: u64 = 1 << 20;
const MAIN: TimelineId = TimelineId::MAIN;

fn overlap<B: Backend + 'static>(
    place: (u64, omniheap_core::Span),
    allocation: &Allocation<Stack<B>>,
) -> bool {
    let (block, span) = place_of(allocation);
    block == place.0 && span.overlaps(place.1)
}

fn copy_all<'a, B: Backend + 'static>(
    from: &'a Allocation<Stack<B>>,
    to: &'a Allocation<Stack<B>>,
) -> CopyRegion<'a, Stack<B>> {
    CopyRegion { from, from_offset: 0, to, to_offset: 0, size: from.size().min(to.size()) }
}

/// As an engine copies that tells the manager nothing.
fn copy_unannounced<B: Backend + 'static>(
    manager: &Manager<Stack<B>>,
    on: TimelineId,
    from: &Allocation<Stack<B>>,
    to: &Allocation<Stack<B>>,
) {
    let size = from.size();
    let (from, to) = (from.binding(), to.binding());
    let (from, to) = (from.place(0, size).expect("inside"), to.place(0, size).expect("inside"));
    let step = Move { from, to, size };
    manager.backend().as_transfer().expect("needed").copy(on, &[step]).expect("queued");
}

/// Lets everything finish and be collected, then closes timelines.
fn close<B: Backend + 'static>(
    world: &World<B>,
    manager: &Manager<Stack<B>>,
    lines: &[TimelineId],
) {
    world.backend().wait_idle().expect("alive");
    manager.trim().expect("alive");
    world.backend().wait_idle().expect("alive");
    manager.trim().expect("alive");
    for line in lines {
        timelines(manager.backend()).close(*line).expect("idle");
    }
}

fn the_same_timeline_reuses_at_once<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let request = Request::new(MIB).on(MAIN);
    let first = take(&manager, &request);
    let (place, calls) = (place_of(&first), stack.inner().driver_calls());
    first.fill(0, MIB, 1).expect("queued");
    first.free();
    for round in 0..20 {
        let again = take(&manager, &request);
        assert_eq!(place_of(&again), place, "in its order the bytes are free at once");
        write_stamp(&again, round);
        check_stamp(&again, round);
    }
    assert_eq!(stack.inner().driver_calls(), calls);
}

fn another_timeline_waits_for_queued_work<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    // Else the other timeline may get the bytes and run after the work.
    manager.set_waiting(Waiting::LastResort);
    let heap = world.device_heap();
    let line = timelines(&stack).open().expect("one more");
    let one = take(&manager, &in_heap(heap, 8 * MIB).on(line));
    let held = world.hold(line);
    one.fill(0, 8 * MIB, 7).expect("queued");
    let place = place_of(&one);
    one.free();
    let other = take(&manager, &in_heap(heap, 8 * MIB).on(MAIN));
    assert!(!overlap(place, &other), "the fill is still to come");
    write_stamp(&other, 3);
    drop(held);
    world.backend().wait_idle().expect("alive");
    check_stamp(&other, 3);
    let full = manager.heap_use(heap).expect("exists").reserved;
    manager.set_budget(heap, Limits::hard(full)).expect("exists");
    let reused = take(&manager, &in_heap(heap, 8 * MIB).on(MAIN));
    assert_eq!(manager.heap_use(heap).expect("exists").reserved, full, "afterwards yes");
    write_stamp(&reused, 4);
    check_stamp(&other, 3);
    check_stamp(&reused, 4);
    drop((other, reused));
    manager.set_budget(heap, Limits::hard(u64::MAX)).expect("exists");
    close(world, &manager, &[line]);
}

fn a_used_timeline_keeps_the_bytes_until_it_has_passed<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let line = timelines(&stack).open().expect("one more");
    let source = take(&manager, &Request::new(MIB).dedicated());
    write_stamp(&source, 1);
    let target = take(&manager, &Request::new(MIB).on(MAIN));
    target.use_on(line).expect("open");
    world.backend().wait_idle().expect("alive");
    let held = world.hold(line);
    manager.copy(line, &[copy_all(&source, &target)]).expect("queued");
    let place = place_of(&target);
    target.free();
    assert_eq!(manager.retire(), Ok(0), "not yet");
    assert_eq!(manager.totals().deferred_bytes, MIB);
    let meanwhile = take(&manager, &Request::new(MIB).on(MAIN));
    assert!(!overlap(place, &meanwhile), "not yet");
    write_stamp(&meanwhile, 2);
    drop(held);
    world.backend().wait_idle().expect("alive");
    assert_eq!(manager.retire(), Ok(1), "afterwards yes");
    let mut later: Vec<_> = (0..8).map(|_| take(&manager, &Request::new(MIB).on(MAIN))).collect();
    assert!(later.iter().any(|one| overlap(place, one)), "and it is reused");
    check_stamp(&meanwhile, 2);
    later.clear();
    drop((source, meanwhile));
    close(world, &manager, &[line]);
}

fn only_the_full_join_makes_reuse_legal<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let lines = [(); 4].map(|()| timelines(&stack).open().expect("four more"));
    let one = take(&manager, &Request::new(MIB));
    lines.iter().for_each(|line| one.use_on(*line).expect("open"));
    let mut held: Vec<_> = lines.iter().map(|line| world.hold(*line)).collect();
    one.free();
    while held.len() > 1 {
        held.pop();
        let line = lines[held.len()];
        let epoch = timelines(&stack).mark(line).expect("open");
        timelines(&stack).wait(Point { timeline: line, epoch }).expect("let go");
        assert_eq!(manager.retire(), Ok(0), "{} still to come", held.len());
    }
    held.clear();
    world.backend().wait_idle().expect("alive");
    assert_eq!(manager.retire(), Ok(1));
    close(world, &manager, &lines);
}

fn a_free_after_a_point_waits_for_it<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let line = timelines(&stack).open().expect("one more");
    let one = take(&manager, &Request::new(MIB));
    let held = world.hold(line);
    let epoch = timelines(&stack).mark(line).expect("open");
    let place = place_of(&one);
    one.free_after(Point { timeline: line, epoch });
    assert_eq!((manager.retire(), manager.totals().deferred_bytes), (Ok(0), MIB));
    let other = take(&manager, &Request::new(MIB));
    assert!(!overlap(place, &other));
    drop(held);
    world.backend().wait_idle().expect("alive");
    assert_eq!((manager.retire(), manager.totals().deferred_bytes), (Ok(1), 0));
    drop(other);
    close(world, &manager, &[line]);
}

fn a_shortage_collects_what_waits<B: Backend + 'static>(world: &World<B>) {
    let stack = world.limited(48 * MIB, u64::MAX);
    let manager = world.manager_over(&stack);
    let heap = world.device_heap();
    let lines = [(); 2].map(|()| timelines(&stack).open().expect("two more"));
    for round in 0..100u8 {
        let one = take(&manager, &in_heap(heap, 16 * MIB).on(lines[usize::from(round % 2)]));
        one.fill(0, 16 * MIB, round).expect("queued");
        one.use_on(lines[usize::from((round + 1) % 2)]).expect("open");
        one.free();
    }
    close(world, &manager, &lines);
}

fn a_timeline_may_close_before_its_frees_are_collected<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let [own, used] = [(); 2].map(|()| timelines(&stack).open().expect("two more"));
    let one = take(&manager, &Request::new(8 * MIB).on(own));
    let two = take(&manager, &Request::new(8 * MIB).on(MAIN));
    one.fill(0, 8 * MIB, 1).expect("queued");
    two.use_on(used).expect("open");
    drop((one, two));
    timelines(&stack).close(own).expect("finishes its work");
    timelines(&stack).close(used).expect("finishes its work");
    manager.retire().expect("a closed timeline has passed");
    assert_eq!(manager.totals().deferred_bytes, 0, "and with it what waited");
    drop(take(&manager, &Request::new(32 * MIB)));
    world.backend().wait_idle().expect("alive");
    manager.trim().expect("its memory is given back");
}

fn a_stuck_timeline_delays_nobody_else<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let [stuck, free] = [(); 2].map(|()| timelines(&stack).open().expect("two more"));
    let one = take(&manager, &Request::new(MIB));
    let two = take(&manager, &Request::new(MIB));
    let held = world.hold(stuck);
    one.use_on(stuck).expect("open");
    two.use_on(free).expect("open");
    drop((one, two));
    let epoch = timelines(&stack).mark(free).expect("open");
    timelines(&stack).wait(Point { timeline: free, epoch }).expect("runs on");
    assert_eq!(manager.retire(), Ok(1));
    assert_eq!(manager.totals().deferred_bytes, MIB, "only the stuck one waits");
    drop(held);
    close(world, &manager, &[stuck, free]);
}

fn staging_is_not_reused_while_a_copy_reads_it<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let line = timelines(&stack).open().expect("one more");
    let target = take(&manager, &Request::new(MIB).dedicated());
    let staging = take(&manager, &Request::new(MIB).usage(Usage::Upload).on(MAIN));
    write_stamp(&staging, 1);
    staging.use_on(line).expect("open");
    world.backend().wait_idle().expect("alive");
    let held = world.hold(line);
    manager.copy(line, &[copy_all(&staging, &target)]).expect("queued");
    staging.free();
    let next: Vec<_> =
        (0..4).map(|_| take(&manager, &Request::new(MIB).usage(Usage::Upload).on(MAIN))).collect();
    (0..).zip(&next).for_each(|(id, one)| write_stamp(one, 100 + id));
    drop(held);
    world.backend().wait_idle().expect("alive");
    check_stamp(&target, 1);
    drop((target, next));
    close(world, &manager, &[line]);
}

fn a_mark_of_all_work_waits_for_every_timeline<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let all = timelines(&stack);
    let line = all.open().expect("one more");
    for held_on in [MAIN, line] {
        world.backend().wait_idle().expect("alive");
        let held = world.hold(held_on);
        let epoch = all.mark(TimelineId::ALL).expect("the case needs it");
        let point = Point { timeline: TimelineId::ALL, epoch };
        assert!(all.reached(TimelineId::ALL).expect("alive") < epoch, "{held_on:?} still works");
        drop(held);
        all.wait(point).expect("alive");
        assert!(all.reached(TimelineId::ALL).expect("alive") >= epoch);
        all.order(line, point).expect("reached");
    }
    assert!(all.close(TimelineId::ALL).is_err(), "nobody opened it");
    all.close(line).expect("idle");
}

fn bytes_that_leave_a_timeline_wait_for_uses_that_nobody_declared<B: Backend + 'static>(
    world: &World<B>,
) {
    let stack = world.stack();
    let mut config = world.config();
    config.pool.uses = Uses::Undeclared;
    let manager = world.manager_with(&stack, config);
    let heap = world.device_heap();
    let [owner, reader] = [(); 2].map(|()| timelines(&stack).open().expect("one more"));
    let copied = take(&manager, &in_heap(heap, 8 * MIB).dedicated());
    let one = take(&manager, &in_heap(heap, 8 * MIB).on(owner));
    write_stamp(&one, 5);
    world.backend().wait_idle().expect("alive");
    let held = world.hold(reader);
    copy_unannounced(&manager, reader, &one, &copied);
    let place = place_of(&one);
    one.free();
    let other = take(&manager, &in_heap(heap, 8 * MIB).on(MAIN));
    assert!(!overlap(place, &other), "the copy is still to come");
    write_stamp(&other, 6);
    drop(held);
    world.backend().wait_idle().expect("alive");
    check_stamp(&copied, 5);
    check_stamp(&other, 6);
    drop((copied, other));
    close(world, &manager, &[owner, reader]);
}

fn every_call_works_from_every_thread<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let (manager, whole) = (&manager, world.whole(5000));
    let allocate = || take(manager, &Request::new(whole));
    let run = |id: u64, one: &Allocation<Stack<B>>| write_stamp(one, id);
    for id in 0..4 {
        let one = std::thread::scope(|scope| scope.spawn(allocate).join().expect("no panic"));
        std::thread::scope(|scope| scope.spawn(|| run(id, &one)).join().expect("no panic"));
        std::thread::scope(|scope| scope.spawn(|| check_stamp(&one, id)).join().expect("no panic"));
        std::thread::scope(|scope| scope.spawn(move || drop(one)).join().expect("no panic"));
        std::thread::scope(|scope| {
            scope.spawn(|| manager.trim().expect("alive")).join().expect("no panic")
        });
    }
}
