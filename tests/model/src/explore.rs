//! Small worlds, explored completely.
use crate::{Driver, Op, Subject};
use omniheap_core::{Align, Class, Layout};

/// A world small enough to try everything in it.
#[derive(Clone, Debug)]
pub struct World {
    /// The strategy.
    pub subject: Subject,
    /// Distance at which unlike neighbours are kept apart.
    pub granularity: Align,
    /// The blocks.
    pub blocks: Vec<u64>,
    /// Requests that may be made.
    pub requests: Vec<(Layout, Class)>,
    /// Spans that may be live at once, at most.
    pub most_live: usize,
    /// Operations of a sequence.
    pub depth: usize,
}

/// Runs every sequence of operations of a world, checks every promise after each, and counts the sequences.
///
/// Each sequence is run from the start, because a strategy cannot be turned back; all but its last operation was
/// checked as part of a shorter one.
///
/// # Panics
///
/// Panics when a promise is broken; the sequence is printed.
#[must_use]
pub fn explore(world: &World) -> u64 {
    let mut sequence = Vec::with_capacity(world.depth);
    extend(world, &mut sequence, 0)
}

fn extend(world: &World, sequence: &mut Vec<Op>, live: usize) -> u64 {
    if sequence.len() == world.depth {
        return 1;
    }
    let mut count = 0;
    let requests = if live < world.most_live { &*world.requests } else { &[] };
    let allocate = requests.iter().map(|&(layout, class)| Op::Allocate(layout, class));
    for op in allocate.chain((0..live).map(Op::Free)) {
        let live = last(world, sequence, op);
        sequence.push(op);
        count += extend(world, sequence, live);
        sequence.pop();
    }
    count
}

/// Replays a sequence, applies one operation more with all checks, and returns how many spans are live then.
fn last(world: &World, sequence: &[Op], op: Op) -> usize {
    struct Printed<'a>(&'a World, &'a [Op], Op);
    impl Drop for Printed<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("in {:?}\nafter {:?}\nthen {:?}", self.0, self.1, self.2);
            }
        }
    }
    let _printed = Printed(world, sequence, op);
    let mut driver = Driver::new(world.subject, world.granularity);
    for &size in &world.blocks {
        driver.replay(Op::AddBlock(size));
    }
    for &op in sequence {
        driver.replay(op);
    }
    driver.look();
    driver.apply(op);
    driver.shadow().live().len()
}
