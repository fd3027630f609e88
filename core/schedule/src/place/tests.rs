//! Places that may be used, in one region and in several, and peaks that stay low.
use super::place;
use crate::rng::Rng;
use crate::{Buffer, Flaw, Problem, ProblemError, Region, RegionSet, Spot, validate};
use alloc::vec::Vec;
use core::cell::Cell;

/// Buffers of an iteration: few live long, and some say more than size and lifetime.
fn iteration(seed: u64, buffers: u64) -> Problem {
    let mut rng = Rng::new(seed);
    let mut problem = Problem::new(Region::unbounded());
    for at in 0..buffers {
        let longest = if at % 9 == 0 { 4 * buffers } else { 40 };
        let (start, life) = (rng.below(4 * buffers), 3 + rng.below(longest));
        let largest = 64 << rng.below(8);
        let size = 1 + rng.below(largest);
        let buffer = Buffer::new(size, start, start + life).align(1 << rng.below(6));
        problem.push(match at % 16 {
            3 => buffer.gap(start + 1, start + 2),
            5 => buffer.hint(64 * rng.below(99)),
            _ => buffer,
        });
    }
    problem.aliases.push((1, 2));
    problem.separate.extend([(3, 40), (7, 8)]);
    problem
}

fn peak(problem: &Problem, spots: &[Spot], region: usize) -> u64 {
    let here = problem.buffers.iter().zip(spots).filter(|(_, spot)| spot.region == region);
    here.map(|(buffer, spot)| spot.offset + buffer.size).max().unwrap_or(0)
}

fn placed(problem: &Problem, steps: u64) -> Vec<Spot> {
    place(problem, steps, &|| false).expect("it makes sense")
}

#[test]
fn places_may_be_used_and_more_steps_lower_the_peak() {
    let mut gained = 0;
    for seed in 1..=12 {
        let problem = iteration(seed, 200);
        let peaks = [0, 20_000].map(|steps| {
            let spots = placed(&problem, steps);
            validate(&problem, &spots).unwrap_or_else(|flaw| panic!("seed {seed}: {flaw}"));
            assert_eq!(placed(&problem, steps), spots, "equal problems get equal places");
            peak(&problem, &spots, 0)
        });
        assert!(peaks[1] <= peaks[0], "seed {seed}: {peaks:?}");
        gained += u64::from(peaks[1] < peaks[0]);
    }
    assert!(gained >= 4, "repair lowered the peak of {gained} problems of 12");
}

#[test]
fn what_is_behind_a_capacity_moves_on_to_the_next_region_that_suits() {
    let mut problem = iteration(5, 120);
    let most = peak(&problem, &placed(&problem, 1_000), 0);
    let expensive = Region { cost: 9, ..Region::unbounded() };
    problem.regions = alloc::vec![expensive, Region::bounded(most / 2), Region::bounded(most / 4)];
    problem.regions[2].cost = 1;
    for buffer in problem.buffers.iter_mut().skip(3).step_by(7) {
        buffer.regions = RegionSet::only(0).and(1);
    }
    let spots = placed(&problem, 1_000);
    validate(&problem, &spots).expect("there is room for all");
    let used = [0, 1, 2].map(|region| peak(&problem, &spots, region));
    assert!(used.iter().all(|&used| used > 0), "{used:?}");
}

#[test]
fn what_is_fixed_stays_and_what_fits_nowhere_is_said_by_the_check() {
    let mut problem = Problem::new(Region::bounded(100));
    let fixed = problem.push(Buffer::new(10, 0, 9).fixed(20));
    problem.push(Buffer::new(60, 0, 9));
    let none = problem.push(Buffer::new(0, 0, 9));
    let spots = placed(&problem, 100);
    assert_eq!((spots[fixed].offset, spots[none].offset), (20, 0));
    assert_eq!(validate(&problem, &spots), Ok(()));
    let large = problem.push(Buffer::new(41, 5, 12));
    assert_eq!(validate(&problem, &placed(&problem, 100)), Err(Flaw::Capacity { buffer: large }));
    problem.buffers[large].align = 0;
    let wrong = place(&problem, 100, &|| false);
    assert_eq!(wrong, Err(ProblemError::Align { buffer: large }));
}

#[test]
fn the_first_places_are_found_however_soon_it_stops() {
    let problem = iteration(3, 400);
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        true
    };
    let spots = place(&problem, u64::MAX, &stop).expect("it makes sense");
    validate(&problem, &spots).expect("they may be used");
    assert_eq!(asked.get(), 1, "a yes is final");
}
