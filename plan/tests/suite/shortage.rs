//! Advice when a problem does not fit.

use crate::hard::Rng;
use omniheap_plan::{
    Buffer, Options, Problem, Proof, Region, largest_batch, spill, sufficient_capacity, validate,
};

fn tight(seed: u64) -> Problem {
    let mut rng = Rng(seed);
    let mut problem = Problem::new(Region::bounded(12));
    for _ in 0..7 {
        let start = rng.below(6);
        let buffer = Buffer::new(1 + rng.below(6), start, start + 1 + rng.below(5));
        problem.push(buffer.spillable(1 + rng.below(9)));
    }
    problem
}

/// Returns the least cost of a set whose removal brings the load below the capacity.
fn least_cost(problem: &Problem) -> u64 {
    let n = problem.buffers.len();
    let fits = |set: u32| {
        (0..12).all(|tick| {
            let alive = |i: &usize| {
                problem.buffers[*i].live.start <= tick && tick < problem.buffers[*i].live.end
            };
            (0..n)
                .filter(|i| set >> i & 1 == 0)
                .filter(alive)
                .map(|i| problem.buffers[i].size)
                .sum::<u64>()
                <= 12
        })
    };
    let cost = |set: u32| {
        (0..n).filter(|i| set >> i & 1 == 1).filter_map(|i| problem.buffers[i].spill_cost).sum()
    };
    (0..1u32 << n).filter(|&s| fits(s)).map(cost).min().expect("spilling everything fits")
}

#[test]
fn the_cheapest_set_is_spilled() {
    let mut proven = 0;
    for seed in 0..60 {
        let problem = tight(seed);
        let spill = spill(&problem, &Options::default())
            .expect("it makes sense")
            .expect("all may be spilled");
        assert!(spill.cost >= least_cost(&problem), "seed {seed}");
        if spill.proof == Proof::Best {
            assert_eq!(spill.cost, least_cost(&problem), "seed {seed}");
            proven += 1;
        }
        let mut rest = problem.clone();
        for &i in &spill.buffers {
            rest.buffers[i].size = 0;
        }
        validate(&rest, &spill.plan.spots).expect("what stays fits");
    }
    assert!(proven > 40, "only {proven} were proven");
}

#[test]
fn what_must_stay_is_not_spilled() {
    let mut problem = Problem::new(Region::bounded(4));
    problem.push(Buffer::new(5, 0, 2));
    assert_eq!(spill(&problem, &Options::default()), Ok(None));
    assert_eq!(sufficient_capacity(&problem, &Options::default()), Ok(5));
}

#[test]
fn the_largest_batch_is_found() {
    let scaled = |factor: u64| {
        let mut problem = Problem::new(Region::bounded(1000));
        problem.push(Buffer::new(3 * factor, 0, 4));
        problem.push(Buffer::new(4 * factor, 2, 6));
        problem.push(Buffer::new(3 * factor, 5, 9));
        problem
    };
    for (most, expected) in [(1 << 60, 142), (100, 100), (142, 142), (1, 1)] {
        let found = largest_batch(most, &Options::default(), scaled)
            .expect("it makes sense")
            .expect("one fits");
        assert_eq!(found.0, expected, "most {most}");
    }
    let none = largest_batch(9, &Options::default(), |f| scaled(f * 1000)).expect("it makes sense");
    assert_eq!(none, None);
}

#[test]
fn spilling_without_time_still_fits() {
    let (mut problem, _) = crate::hard::sized(3, 900);
    problem.regions[0].capacity = Some(crate::hard::CAPACITY / 2);
    problem.buffers.iter_mut().for_each(|b| b.spill_cost = Some(b.size));
    let asked = core::cell::Cell::new(0u32);
    let late = || {
        asked.set(asked.get() + 1);
        true
    };
    let options = Options { stop: Some(&late), ..Options::default() };
    let found = spill(&problem, &options).expect("it makes sense").expect("all may be spilled");
    assert!(found.plan.fits());
    assert_eq!(found.proof, Proof::Found);
    let mut rest = problem;
    found.buffers.iter().for_each(|&i| rest.buffers[i].size = 0);
    validate(&rest, &found.plan.spots).expect("it is valid");
    assert_eq!(asked.get(), 1, "one limit holds for everything, and a yes is final");
}
