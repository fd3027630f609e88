//! Advice when a problem does not fit.

use crate::hard::Rng;
use omniheap_plan::{
    Buffer, Options, Problem, Proof, Region, largest_batch, solve, spill, sufficient_capacity,
    validate,
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

/// Returns what is spilled of one region of 64 bytes.
fn spilled(capacity: u64, buffers: &[Buffer]) -> Option<(Vec<usize>, u64, Proof)> {
    let mut problem = Problem::new(Region::bounded(capacity));
    problem.buffers = buffers.to_vec();
    let found = spill(&problem, &Options::default()).expect("it makes sense")?;
    let mut rest = problem;
    found.buffers.iter().for_each(|&i| (rest.buffers[i].size, rest.buffers[i].fixed) = (0, None));
    validate(&rest, &found.plan.spots).expect("what stays fits");
    Some((found.buffers, found.cost, found.proof))
}

#[test]
fn many_buffers_are_spilled_on_a_small_stack() {
    let spilled = || spilled(64, &alloc_many(4_000)).map(|it| it.1);
    let small = std::thread::Builder::new().stack_size(256 << 10).spawn(spilled);
    assert_eq!(small.expect("a thread").join().expect("no overflow"), Some(3_999));
}

/// Returns buffers of 64 bytes that live at the same time.
fn alloc_many(count: usize) -> Vec<Buffer> {
    vec![Buffer::new(64, 0, 2).spillable(1); count]
}

#[test]
fn a_buffer_that_is_fixed_behind_the_capacity_is_spilled() {
    let buffers = [Buffer::new(1, 0, 2).fixed(12).spillable(3), Buffer::new(4, 0, 2).spillable(1)];
    assert_eq!(spilled(6, &buffers), Some((vec![0], 3, Proof::Best)));
}

#[test]
fn what_alignment_wastes_is_spilled_though_the_load_fits() {
    let buffers = [Buffer::new(4, 0, 2).fixed(0), Buffer::new(1, 0, 2).align(3).spillable(7)];
    assert_eq!(spilled(5, &buffers), Some((vec![1], 7, Proof::Found)));
}

#[test]
fn a_separate_pair_is_spilled_though_the_load_fits() {
    let mut problem = Problem::new(Region::bounded(6));
    let first = problem.push(Buffer::new(4, 0, 2).spillable(2));
    let second = problem.push(Buffer::new(4, 3, 5).spillable(9));
    problem.separate.push((first, second));
    let found = spill(&problem, &Options::default()).expect("it makes sense").expect("one may go");
    assert_eq!((found.buffers, found.cost, found.proof), (vec![first], 2, Proof::Found));
}

/// A few buffers with alignments, fixed places and separate pairs in one region that is often too small.
fn awkward(seed: u64) -> Problem {
    let mut rng = Rng(seed);
    let mut problem = Problem::new(Region::bounded(4 + rng.below(6)));
    for _ in 0..2 + rng.below(3) {
        let start = rng.below(3);
        let mut buffer = Buffer::new(1 + rng.below(5), start, start + 1 + rng.below(3));
        buffer.align = [1, 1, 2, 3][rng.index(4)];
        buffer.fixed = rng.once_in(5).then(|| buffer.align * rng.below(5));
        buffer.spill_cost = (!rng.once_in(3)).then(|| 1 + rng.below(9));
        problem.push(buffer);
    }
    if rng.once_in(3) {
        problem.separate.push((0, 1));
    }
    problem
}

/// Returns what the cheapest set costs whose absence lets the planner place the others.
fn cheapest_set(problem: &Problem) -> Option<u64> {
    let n = problem.buffers.len();
    let cost = |set: u32| {
        let mut rest = problem.clone();
        let mut cost = 0;
        for i in (0..n).filter(|i| set >> i & 1 == 1) {
            cost += rest.buffers[i].spill_cost?;
            (rest.buffers[i].size, rest.buffers[i].fixed) = (0, None);
        }
        solve(&rest, &Options::default()).is_ok_and(|plan| plan.fits()).then_some(cost)
    };
    (0..1 << n).filter_map(cost).min()
}

#[test]
fn a_set_is_found_wherever_there_is_one() {
    let (mut none, mut found) = (0, 0);
    for seed in 0..1_500 {
        let problem = awkward(seed);
        let Ok(answer) = spill(&problem, &Options::default()) else { continue };
        let least = cheapest_set(&problem);
        assert_eq!(answer.is_some(), least.is_some(), "seed {seed}");
        let (Some(answer), Some(least)) = (answer, least) else {
            none += 1;
            continue;
        };
        found += 1;
        assert!(answer.plan.fits() && answer.cost >= least, "seed {seed}");
        assert!(answer.proof == Proof::Found || answer.cost == least, "seed {seed}");
    }
    assert!(none > 100 && found > 300, "{none} {found}");
}

#[cfg(feature = "std")]
#[test]
fn a_time_limit_without_an_end_is_none() {
    let options = Options { time_limit: Some(core::time::Duration::MAX), ..Options::default() };
    let problem = tight(1);
    assert_eq!(spill(&problem, &options), spill(&problem, &Options::default()));
}
