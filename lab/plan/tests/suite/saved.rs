//! Steps whose saved activations are kept, recomputed or moved.

use crate::hard::Rng;
use omniheap_plan::{Activation, Buffer, Copies, Interval, Problem, Recompute, Region};

/// A step of `sizes.len()` layers: layer `i` is made at tick `4 i + 1`, used until `4 i + 3`, and read again by the backward
/// pass, last made first.
pub(crate) fn step(sizes: &[u64], capacity: u64) -> (Problem, Vec<Activation>) {
    let n = sizes.len() as u64;
    let mut problem = Problem::new(Region::bounded(capacity));
    let mut activations = Vec::new();
    for (i, &size) in (0..).zip(sizes) {
        let idle = Interval::new(4 * i + 3, 8 * n + 8 - 4 * i);
        let buffer = problem.push(Buffer::new(size, 4 * i + 1, idle.end + 1));
        activations.push(Activation { buffer, idle, recompute: None, move_cost: None });
    }
    (problem, activations)
}

pub(crate) fn recompute(cost: u64, reads: &[usize]) -> Option<Recompute> {
    Some(Recompute { cost, reads: reads.to_vec(), scratch: 0 })
}

/// Blocks of a transformer: each value is made from the one before it, and blocks begin with the sum of what they were given.
pub(crate) fn blocks(count: usize, capacity: u64) -> (Problem, Vec<Activation>) {
    let sizes: Vec<u64> =
        (0..count * 6).map(|i| [64, 64, 192, 64, 256, 256][i % 6] << 10).collect();
    let (problem, mut all) = step(&sizes, capacity);
    for (i, each) in all.iter_mut().enumerate() {
        let cost = [90, 10, 120, 80, 160, 12][i % 6];
        let reads = match i % 6 {
            _ if i == 0 => Vec::new(),
            0 => vec![i - 1, i - 6],
            _ => vec![i - 1],
        };
        each.recompute = recompute(cost, &reads);
    }
    (problem, all)
}

/// Layers of random sizes and costs that are computed from nothing that is saved.
pub(crate) fn free(seed: u64, count: u64) -> (Problem, Vec<Activation>, Copies) {
    let mut rng = Rng(seed);
    let sizes: Vec<u64> = (0..count).map(|_| (1 + rng.below(64)) << 16).collect();
    let (problem, mut all) = step(&sizes, 0);
    for each in &mut all {
        each.recompute = recompute(20 + rng.below(2_000), &[]);
        each.move_cost = Some(10 + rng.below(50));
    }
    (problem, all, Copies { turn: 4 * count + 4, bytes_per_tick: 1 << 17 })
}
