//! Exact answers by trying everything, and the planner against them.

use crate::hard::Rng;
use omniheap_plan::{Buffer, Options, Problem, Region, Status, solve, validate};

/// The least peak, by placing buffers in every order, each as low as it goes above those placed before that conflict.
///
/// Every placement pushed down is of this kind for the order of its offsets.
fn least_peak(problem: &Problem) -> u64 {
    fn conflict(problem: &Problem, a: usize, b: usize) -> bool {
        let (x, y) = (&problem.buffers[a], &problem.buffers[b]);
        let apart = problem.separate.iter().any(|&p| p == (a, b) || p == (b, a));
        apart || x.intervals().any(|s| y.intervals().any(|t| s.start < t.end && t.start < s.end))
    }
    fn go(problem: &Problem, tops: &mut Vec<(usize, u64)>, peak: u64, best: &mut u64) {
        if peak >= *best {
            return;
        }
        if tops.len() == problem.buffers.len() {
            *best = peak;
            return;
        }
        for i in 0..problem.buffers.len() {
            if tops.iter().any(|t| t.0 == i) {
                continue;
            }
            let floor =
                tops.iter().filter(|t| conflict(problem, t.0, i)).map(|t| t.1).max().unwrap_or(0);
            let top = floor.next_multiple_of(problem.buffers[i].align) + problem.buffers[i].size;
            tops.push((i, top));
            go(problem, tops, peak.max(top), best);
            tops.pop();
        }
    }
    let mut best = u64::MAX;
    go(problem, &mut Vec::new(), 0, &mut best);
    best
}

fn random(seed: u64, with_extras: bool) -> Problem {
    let mut rng = Rng(seed);
    let mut problem = Problem::new(Region::unbounded());
    let count = 2 + rng.below(6);
    for _ in 0..count {
        let start = rng.below(8);
        let end = start + 1 + rng.below(6);
        let mut buffer = Buffer::new(1 + rng.below(9), start, end);
        if with_extras {
            buffer.align = 1 + rng.below(4);
            if end - start >= 3 && rng.once_in(2) {
                buffer = buffer.gap(start + 1, end - 1);
            }
        }
        problem.push(buffer);
    }
    if with_extras && rng.once_in(2) {
        problem.separate.push((0, 1));
    }
    problem
}

#[test]
fn the_planner_finds_the_optimum_of_small_problems_and_proves_it() {
    for seed in 0..300 {
        let problem = random(seed, false);
        let plan = solve(&problem, &Options::default()).expect("it makes sense");
        validate(&problem, &plan.spots).expect("it is valid");
        assert_eq!(plan.peak(), least_peak(&problem), "seed {seed}: {problem:?}");
        assert_eq!(plan.status, Status::Optimal, "seed {seed}");
    }
}

#[test]
fn alignment_gaps_and_separate_pairs_are_searched_exactly_too() {
    for seed in 0..300 {
        let problem = random(seed, true);
        let plan = solve(&problem, &Options::default()).expect("it makes sense");
        validate(&problem, &plan.spots).expect("it is valid");
        assert_eq!(plan.peak(), least_peak(&problem), "seed {seed}: {problem:?}");
        assert_eq!(plan.status, Status::Optimal, "seed {seed}");
    }
}

#[test]
fn capacity_one_below_the_optimum_is_proven_infeasible() {
    for seed in 0..150 {
        let mut problem = random(seed, true);
        let least = least_peak(&problem);
        problem.regions[0].capacity = Some(least - 1);
        let plan = solve(&problem, &Options::default()).expect("it makes sense");
        assert!(matches!(plan.status, Status::Infeasible { .. }), "seed {seed}: {:?}", plan.status);
        problem.regions[0].capacity = Some(least);
        let plan = solve(&problem, &Options::default()).expect("it makes sense");
        assert!(plan.fits(), "seed {seed}: {:?}", plan.status);
    }
}
