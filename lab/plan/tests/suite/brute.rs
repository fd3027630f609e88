//! Exact answers by trying everything, and the planner against them.

use crate::hard::Rng;
use omniheap_plan::{
    Buffer, Certificate, Options, Problem, Region, RegionSet, Spot, Status, solve, validate,
};

/// Returns the least peak, by placing buffers in every order, each as low as it goes above those placed before that conflict.
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
        assert_eq!(
            plan.peak(),
            least_peak(&problem),
            "seed {seed}: {:?} {} {problem:?}",
            plan.status,
            plan.nodes
        );
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

/// Returns whether every class of buffers has a place in some region, by trying all of them.
///
/// `places[i]` is the region and offset of buffer `i`, for those below `at`.
fn has_plan(problem: &Problem, places: &mut Vec<Spot>) -> bool {
    let at = places.len();
    let Some(buffer) = problem.buffers.get(at) else { return true };
    let mut tries = Vec::new();
    for (region, info) in problem.regions.iter().enumerate() {
        if !buffer.regions.contains(region) {
            continue;
        }
        let last = info.capacity.expect("brute force needs a limit").checked_sub(buffer.size);
        let offsets = last.map_or(0..0, |last| 0..last + 1);
        tries.extend(offsets.map(|offset| Spot { region, offset }));
    }
    if !buffer.needs_bytes() {
        tries = vec![Spot { region: usize::MAX, offset: 0 }];
    }
    tries.into_iter().any(|spot| {
        places.push(spot);
        let fits = suits(problem, places) && has_plan(problem, places);
        places.pop();
        fits
    })
}

/// Returns whether the last of some places is compatible with those before it.
fn suits(problem: &Problem, places: &[Spot]) -> bool {
    let at = places.len() - 1;
    let (buffer, spot) = (&problem.buffers[at], places[at]);
    if !buffer.needs_bytes() {
        return true;
    }
    let aligned = spot.offset % buffer.align == 0
        && spot.offset % problem.regions[spot.region].align == 0
        && buffer.fixed.is_none_or(|fixed| fixed == spot.offset);
    aligned
        && (0..at).all(|i| {
            let (other, place) = (&problem.buffers[i], places[i]);
            if !other.needs_bytes() {
                return true;
            }
            if aliased(problem, i, at) {
                return place == spot;
            }
            let bytes = place.region == spot.region
                && place.offset < spot.offset + buffer.size
                && spot.offset < place.offset + other.size;
            let pair = |p: &(usize, usize)| *p == (i, at) || *p == (at, i);
            let time = buffer.intervals().any(|s| other.intervals().any(|t| s.overlaps(t)));
            !bytes || !(time || problem.separate.iter().any(pair))
        })
}

/// Returns whether a chain of pairs makes two buffers use the same bytes.
fn aliased(problem: &Problem, a: usize, b: usize) -> bool {
    let mut seen = vec![a];
    let mut at = 0;
    while at < seen.len() {
        for &(x, y) in &problem.aliases {
            for (x, y) in [(x, y), (y, x)] {
                if x == seen[at] && !seen.contains(&y) {
                    seen.push(y);
                }
            }
        }
        at += 1;
    }
    seen.contains(&b)
}

/// Returns a small problem with everything that can be said.
fn everything(seed: u64) -> Problem {
    let mut rng = Rng(seed);
    let regions = if rng.once_in(3) { 2 } else { 1 };
    let mut problem = Problem::new(Region::unbounded());
    problem.regions = (0..regions)
        .map(|_| Region {
            capacity: Some(4 + rng.below(10)),
            align: if rng.once_in(4) { 2 + rng.below(2) } else { 1 },
            cost: rng.below(3),
        })
        .collect();
    let count = 2 + rng.index(4);
    for _ in 0..count {
        let start = rng.below(7);
        let end = start + 1 + rng.below(6);
        let mut buffer = Buffer::new(rng.below(6), start, end);
        if rng.once_in(3) {
            buffer.align = 1 + rng.below(4);
        }
        if rng.once_in(3) {
            let from = start + rng.below(end - start);
            buffer = buffer.gap(from, from + 1 + rng.below(end - from));
        }
        if rng.once_in(4) {
            let offset = buffer.align * rng.below(5);
            buffer = buffer.fixed(offset);
        }
        if rng.once_in(4) {
            buffer = buffer.within(RegionSet::only(rng.index(regions)));
        }
        problem.push(buffer);
    }
    for _ in 0..rng.below(3) {
        let (a, b) = (rng.index(count as u64), rng.index(count as u64));
        if a != b && rng.once_in(2) {
            problem.aliases.push((a, b));
        } else if a != b {
            problem.separate.push((a, b));
        }
    }
    problem
}

/// Returns the seeds of so many problems, and of as many others as `OMNIHEAP_PLAN_PROBLEMS` says.
fn seeds(usual: u64) -> core::ops::Range<u64> {
    let more = std::env::var("OMNIHEAP_PLAN_PROBLEMS").ok().and_then(|n| n.parse::<u64>().ok());
    0..usual + more.unwrap_or(0)
}

#[test]
fn nothing_that_is_said_about_a_problem_with_everything_is_false() {
    let (mut fits, mut proven) = (0, 0);
    for seed in seeds(4_000) {
        let problem = everything(seed);
        let plan = solve(&problem, &Options::default()).expect("it makes sense");
        let possible = has_plan(&problem, &mut Vec::new());
        assert!(plan.lower_bound() <= plan.peak(), "seed {seed}");
        match &plan.status {
            Status::Infeasible { certificate } => {
                let exhausted = matches!(certificate, Certificate::Exhausted { .. });
                assert!(exhausted || certificate.verify(&problem), "seed {seed}: {certificate:?}");
                assert!(!possible, "seed {seed}: {certificate:?} {problem:?}");
                proven += 1;
            }
            Status::Undecided { .. } => {
                assert!(problem.regions.len() > 1, "seed {seed}: {problem:?}");
            }
            Status::Optimal | Status::Feasible { .. } => {
                assert_eq!(validate(&problem, &plan.spots), Ok(()), "seed {seed}: {problem:?}");
                fits += 1;
            }
        }
    }
    assert!(fits > 1_000 && proven > 1_000, "{fits} fit and {proven} do not");
}

/// Returns whether a plan may be used, by looking at every pair.
fn may_be_used(problem: &Problem, spots: &[Spot]) -> bool {
    let inside = |(buffer, spot): (&Buffer, &Spot)| {
        let region = problem.regions.get(spot.region);
        let region = region.filter(|_| buffer.regions.contains(spot.region));
        let capacity = region.map(|region| region.capacity.expect("all have one"));
        capacity.is_some_and(|all| !buffer.needs_bytes() || spot.offset + buffer.size <= all)
    };
    problem.buffers.iter().zip(spots).all(inside)
        && (1..=spots.len()).all(|count| suits(problem, &spots[..count]))
}

/// Plans that are right, those that one step from there makes wrong or leaves right, and any.
#[test]
fn the_validator_accepts_exactly_the_plans_that_may_be_used() {
    let mut seen = [0, 0];
    for seed in 0..4_000 {
        let problem = everything(seed);
        let plan = solve(&problem, &Options::default()).expect("it makes sense");
        let mut rng = Rng(seed);
        for _ in 0..40 {
            let mut spots = plan.spots.clone();
            if !plan.fits() || rng.once_in(4) {
                spots.fill_with(|| Spot { region: rng.index(3), offset: rng.below(14) });
            }
            let one = rng.index(spots.len() as u64);
            match rng.below(4) {
                0 => spots[one].offset += 1,
                1 => spots[one].offset = spots[one].offset.saturating_sub(1),
                2 => spots[one].region = rng.index(3),
                _ => {}
            }
            let expected = may_be_used(&problem, &spots);
            let answer = validate(&problem, &spots);
            assert_eq!(answer.is_ok(), expected, "seed {seed}: {answer:?} {spots:?} {problem:?}");
            seen[usize::from(expected)] += 1;
        }
    }
    assert!(seen.iter().all(|count| *count > 10_000), "{seen:?}");
}

#[test]
fn the_least_peak_of_a_problem_with_everything_is_found() {
    let mut found = 0;
    for seed in seeds(1_500) {
        let mut problem = everything(seed);
        problem.regions.truncate(1);
        problem.regions[0].capacity = None;
        problem.buffers.iter_mut().for_each(|b| b.regions = RegionSet::ALL);
        let plan = solve(&problem, &Options::default()).expect("it makes sense");
        let within = |capacity: u64| {
            let mut bounded = problem.clone();
            bounded.regions[0].capacity = Some(capacity);
            has_plan(&bounded, &mut Vec::new())
        };
        if let Status::Infeasible { certificate } = &plan.status {
            assert!(!within(60), "seed {seed}: {certificate:?} {problem:?}");
            continue;
        }
        assert_eq!(plan.status, Status::Optimal, "seed {seed}: {problem:?}");
        let peak = plan.peak();
        assert!(peak == 0 || !within(peak - 1), "seed {seed}: {peak} is too high for {problem:?}");
        found += 1;
    }
    assert!(found > 500, "only {found} have a plan");
}
