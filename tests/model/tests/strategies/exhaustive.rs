//! Every sequence of operations in worlds of sixteen bytes.
use omniheap_core::{Align, Class, Layout};
use omniheap_model::{Subject, World, explore};

/// Deep enough to fill, empty, refill and wrap; less deep where checks are slow.
const DEPTH: usize = if cfg!(debug_assertions) { 5 } else { 7 };

fn plain(subject: Subject) -> World {
    let mut requests: Vec<_> = [1, 3, 4, 7, 16].map(Layout::new).to_vec();
    requests.push(Layout::new(2).align(Align::of(8)));
    World {
        subject,
        granularity: Align::ONE,
        blocks: vec![16],
        requests: requests.into_iter().map(|layout| (layout, Class::Linear)).collect(),
        most_live: 4,
        depth: DEPTH,
    }
}

/// Two classes, granules of four bytes, and a second block of odd size where the subject takes one.
fn mixed(subject: Subject) -> World {
    let requests = vec![
        (Layout::new(1), Class::Linear),
        (Layout::new(1), Class::Tiled),
        (Layout::new(3), Class::Linear),
        (Layout::new(5), Class::Tiled),
        (Layout::new(2).align(Align::of(2)), Class::Tiled),
    ];
    let blocks = if subject.most_blocks() == 1 { vec![16] } else { vec![10, 7] };
    World { granularity: Align::of(4), requests, blocks, ..plain(subject) }
}

fn everything_holds(subject: Subject) {
    for world in [plain(subject), mixed(subject)] {
        let count = explore(&world);
        println!("{subject:?}, {:?}: {count} sequences", world.granularity);
        assert!(count > 1000, "the world is too small to show anything");
    }
}

#[test]
fn tlsf_in_a_small_world() {
    everything_holds(Subject::Tlsf);
}

#[test]
fn buddy_in_a_small_world() {
    everything_holds(Subject::Buddy { unit: Align::ONE });
}

#[test]
fn slab_in_a_small_world() {
    everything_holds(Subject::Slab { slot: Layout::new(3) });
}

#[test]
fn slab_of_whole_granules_in_a_small_world() {
    everything_holds(Subject::Slab { slot: Layout::new(3).align(Align::of(4)) });
}

#[test]
fn stack_in_a_small_world() {
    everything_holds(Subject::Stack);
}

#[test]
fn ring_in_a_small_world() {
    everything_holds(Subject::Ring);
}

#[test]
fn bump_in_a_small_world() {
    everything_holds(Subject::Bump);
}

#[test]
fn exact_in_a_small_world() {
    everything_holds(Subject::Exact);
}

#[test]
fn first_fit_in_a_small_world() {
    everything_holds(Subject::FirstFit);
}
