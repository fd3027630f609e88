//! Paths that once led to a broken invariant, as they were printed.
use crate::world::Kind::{Consent, Plain};
use crate::world::Op::{Allocate, Begin, Commit, Free, Use};
use crate::world::{Setting, Step};
use omniheap_exhaustive::World;

/// Takes the steps of a path and ends the world.
fn follow(world: &Setting, path: &[Step]) {
    let mut state = world.start();
    for step in path {
        world.take(&mut state, step).expect("nothing is broken");
    }
    world.end(state).expect("nothing is broken");
}

/// The owner's copy went to bytes that an earlier owner's kernel still used.
#[test]
fn an_owner_copies_to_bytes_that_are_out_of_use() {
    follow(
        &crate::passes(),
        &[
            Step { op: Allocate { cells: 1, on: Some(1), kind: Plain }, bend: None },
            Step { op: Allocate { cells: 1, on: Some(1), kind: Consent }, bend: None },
            Step { op: Use { slot: 0, on: 1 }, bend: None },
            Step { op: Free { slot: 0 }, bend: None },
            Step { op: Begin, bend: None },
            Step { op: Commit, bend: None },
        ],
    );
}
