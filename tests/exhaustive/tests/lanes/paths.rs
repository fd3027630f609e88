//! Paths that once led to a broken invariant.
use crate::device::Call::{Copy, Mark, Unmap, WaitIdle};
use crate::device::Lasting::{Deaf, ForTheStep};
use crate::device::{Twist, When};
use crate::world::Bend::{Meanwhile, Refuse};
use crate::world::Kind::{Consent, Dedicated, Plain, Secret};
use crate::world::Op::{
    Allocate, Begin, Commit, Defragment, Destroy, Free, Run, Sleep, Trim, Use, Wake,
};
use crate::world::Why::Driver;
use crate::world::{Bend, Op, Other, Setting, State, Step};
use omniheap_core::ErrorKind;
use omniheap_exhaustive::World;

/// Takes the steps of a path.
fn reach(world: &Setting, path: &[Step]) -> State {
    let mut state = world.start();
    for step in path {
        world.take(&mut state, step).expect("nothing is broken");
    }
    state
}

/// Takes the steps of a path and ends the world.
fn follow(world: &Setting, path: &[Step]) {
    world.end(reach(world, path)).expect("nothing is broken");
}

/// A device that cannot be waited for.
fn never_idle() -> Twist {
    Twist::Refuse(WaitIdle, 0, ErrorKind::Driver, ForTheStep)
}

const fn step(op: Op) -> Step {
    Step { op, bend: None }
}

const fn bent(op: Op, bend: Bend) -> Step {
    Step { op, bend: Some(bend) }
}

/// The owner's copy went to bytes that an earlier owner's kernel still used.
#[test]
fn an_owner_copies_to_bytes_that_are_out_of_use() {
    let path = [
        step(Allocate { cells: 1, on: Some(1), kind: Plain }),
        step(Allocate { cells: 1, on: Some(1), kind: Consent }),
        step(Use { slot: 0, on: 1 }),
        step(Free { slot: 0 }),
        step(Begin),
        step(Commit),
    ];
    follow(&crate::passes(), &path);
}

/// The request was refused, though the wait had returned half of the heap.
#[test]
fn a_request_gets_what_a_block_of_its_own_left() {
    let path = [
        step(Allocate { cells: 3, on: Some(1), kind: Plain }),
        step(Allocate { cells: 3, on: Some(1), kind: Dedicated }),
        step(Free { slot: 1 }),
        step(Allocate { cells: 3, on: Some(1), kind: Plain }),
    ];
    follow(&crate::refused(), &path);
}

/// The addresses were freed with pages mapped, which the seam forbids.
#[test]
fn addresses_whose_pages_stay_mapped_are_not_freed() {
    let path = [
        step(Allocate { cells: 3, on: Some(0), kind: Plain }),
        step(Free { slot: 0 }),
        bent(Destroy, Refuse { call: Unmap, nth: 0, why: Driver, lasting: ForTheStep }),
    ];
    follow(&crate::paged_refused(), &path);
}

/// The secret had come back when the wake failed, and its pages went to the driver with it.
#[test]
fn a_wake_that_fails_leaves_no_secret_behind() {
    for lasting in [crate::device::Lasting::Once, ForTheStep] {
        let path = [
            step(Allocate { cells: 3, on: Some(1), kind: Secret }),
            step(Sleep),
            bent(Wake, Refuse { call: Mark, nth: 0, why: Driver, lasting }),
        ];
        follow(&crate::sleeps_refused(), &path);
    }
}

/// The bytes that copies may still write were kept from all, and no report said so.
#[test]
fn what_a_pass_leaves_to_its_copies_is_counted() {
    let path = [
        step(Allocate { cells: 1, on: Some(1), kind: Plain }),
        step(Allocate { cells: 1, on: Some(1), kind: Plain }),
        step(Free { slot: 0 }),
        bent(Defragment, Refuse { call: Copy, nth: 0, why: Driver, lasting: Deaf }),
    ];
    follow(&crate::slides_refused(), &path);
}

/// A copy that could not be followed still read bytes that were handed out.
#[test]
fn what_a_lost_copy_reads_is_not_handed_out() {
    let path = [
        step(Allocate { cells: 1, on: Some(1), kind: Plain }),
        step(Allocate { cells: 1, on: Some(1), kind: Plain }),
        step(Free { slot: 0 }),
        bent(Defragment, Refuse { call: Mark, nth: 1, why: Driver, lasting: Deaf }),
        step(Free { slot: 1 }),
        step(Allocate { cells: 1, on: Some(1), kind: Plain }),
    ];
    follow(&crate::slides_refused(), &path);
}

/// The secret was freed and its zeros had not run: the pool took it for pinned, and stayed awake.
#[test]
fn a_pool_falls_asleep_while_a_secret_is_zeroed() {
    let path =
        [step(Allocate { cells: 3, on: None, kind: Secret }), step(Free { slot: 0 }), step(Sleep)];
    follow(&crate::sleeps(), &path);
}

/// The copies of a wake that failed run on a timeline that no allocation names: the end of the pool took their pages away.
#[test]
fn the_end_of_a_pool_follows_the_copies_of_a_wake_that_failed() {
    for kind in [Plain, Secret] {
        let path = [
            step(Allocate { cells: 3, on: Some(1), kind }),
            step(Sleep),
            bent(Wake, Refuse { call: Mark, nth: 0, why: Driver, lasting: Deaf }),
        ];
        let state = reach(&crate::sleeps_refused(), &path);
        state.end_at_once(Some(never_idle())).expect("nothing is broken");
    }
}

/// A trim returned the block that the minimum stood for, because a block of one allocation's own was counted.
#[test]
fn a_block_of_its_own_is_no_minimum() {
    let path = [
        step(Allocate { cells: 3, on: Some(1), kind: Dedicated }),
        step(Trim),
        step(Run { on: 1 }),
        step(Free { slot: 0 }),
        step(Trim),
    ];
    follow(&crate::minimum(), &path);
}

/// The request failed because its pool's addresses had been given up between two locks.
#[test]
fn a_request_outlives_the_addresses_that_it_found() {
    let other = Other::GiveUp;
    let path = (0..40).map(|call| {
        bent(
            Allocate { cells: 3, on: Some(0), kind: Plain },
            Meanwhile { when: When::Before, call, other },
        )
    });
    path.for_each(|step| follow(&crate::paged_threads(), &[step]));
}

/// A strategy of blocks chose the block that was in use, though a new one had just been taken for the request.
#[test]
fn a_new_block_serves_the_request_that_it_was_taken_for() {
    let ask = |on| step(Allocate { cells: 1, on: Some(on), kind: Plain });
    let path = [ask(0), step(Free { slot: 0 }), ask(1)];
    follow(&crate::stacked(), &path);
    follow(&crate::buddies(), &path);
}
