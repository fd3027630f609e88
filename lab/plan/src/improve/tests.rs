//! Improvement returns valid placements, and finds tight ones.
use super::{Habit, Improve};
use crate::exact::{Detail, Frame};
use crate::model::Model;
use crate::rng::Rng;
use crate::stop::Stop;
use crate::{Buffer, Problem, Region};
use alloc::vec::Vec;

const CAPACITY: u64 = 1 << 10;

/// Returns a rectangle of ticks and bytes, cut into `count` buffers that fill it.
fn cut(seed: u64, count: usize) -> Problem {
    let mut rng = Rng::new(seed);
    let mut cuts = alloc::vec![(0, 256, 0, CAPACITY)];
    while cuts.len() < count {
        let at = rng.index(cuts.len());
        let (t0, t1, b0, b1) = cuts.swap_remove(at);
        if rng.below(2) == 0 && t1 - t0 > 1 {
            let t = t0 + 1 + rng.below(t1 - t0 - 1);
            cuts.extend([(t0, t, b0, b1), (t, t1, b0, b1)]);
        } else if b1 - b0 > 1 {
            let b = b0 + 1 + rng.below(b1 - b0 - 1);
            cuts.extend([(t0, t1, b0, b), (t0, t1, b, b1)]);
        } else {
            cuts.push((t0, t1, b0, b1));
        }
    }
    let mut problem = Problem::new(Region::bounded(CAPACITY));
    for (t0, t1, b0, b1) in cuts {
        problem.push(Buffer::new(b1 - b0, t0, t1));
    }
    problem
}

fn check(model: &Model, offsets: &[u64], capacity: u64) {
    for a in 0..model.len() {
        let end = offsets[a] + model.size[a];
        assert!(end <= capacity && offsets[a].is_multiple_of(model.align[a]), "item {a}");
        for b in (0..a).filter(|&b| model.conflict(a, b)) {
            let apart = end <= offsets[b] || offsets[b] + model.size[b] <= offsets[a];
            assert!(apart, "items {b} and {a} share bytes");
        }
    }
}

fn improve(model: &Model, capacity: u64, seed: u64, steps: u64) -> Option<Vec<u64>> {
    let ask = || false;
    let stop = Stop::new(&ask);
    let frame = Frame::new(model, Detail::Maximal);
    let habit = Habit::nth(usize::from(seed.is_multiple_of(2)));
    Improve::new(&frame, capacity, habit).run(steps, &mut Rng::new(seed), &stop)
}

#[test]
fn tight_rectangles_are_filled() {
    let mut found = 0;
    for seed in 1..=12 {
        let model = Model::new(&cut(seed, 24), 0, |_| true);
        if let Some(offsets) = improve(&model, CAPACITY, seed, 3_000) {
            check(&model, &offsets, CAPACITY);
            found += 1;
        }
        assert_eq!(improve(&model, CAPACITY - 1, seed, 300), None, "less than is live at once");
    }
    assert!(found >= 11, "only {found} of 12");
}

#[test]
fn with_room_to_spare_everything_goes_in_at_once() {
    for (seed, align) in [(1, 1), (2, 1), (3, 8), (4, 24)] {
        let mut problem = cut(seed, 60);
        problem.buffers.iter_mut().for_each(|b| b.align = align);
        let model = Model::new(&problem, 0, |_| true);
        let items = model.len() as u64;
        let offsets = improve(&model, 8 * CAPACITY, seed, items).expect("one step for each item");
        check(&model, &offsets, 8 * CAPACITY);
    }
}

#[test]
fn what_is_larger_than_the_capacity_never_goes_in() {
    let mut problem = Problem::new(Region::unbounded());
    problem.push(Buffer::new(9, 0, 4));
    let model = Model::new(&problem, 0, |_| true);
    assert_eq!(improve(&model, 8, 1, 100), None);
    assert_eq!(improve(&model, 9, 1, 100), Some(alloc::vec![0]));
}

/// Checks the outcome of some steps on tight problems: items that are out, sums of offsets of those in, and the number
/// of times that items did not fit. A rule that is broken still gives valid placements, only later; here that shows.
/// Fewer is better.
#[test]
fn steps_have_their_numbers() {
    let (never, mut sums) = (Stop::new(&|| false), [0; 3]);
    for seed in 1..=16 {
        let mut problem = cut(seed, 40);
        if seed % 4 == 0 {
            problem.buffers[7].fixed = Some(256);
            problem.buffers.iter_mut().step_by(5).for_each(|b| b.align = 8);
        }
        let model = Model::new(&problem, 0, |_| true);
        let frame = Frame::new(&model, Detail::Maximal);
        let habit = Habit::nth(usize::from(seed.is_multiple_of(2)));
        let mut improve = Improve::new(&frame, CAPACITY + 16, habit);
        improve.run(160, &mut Rng::new(seed), &never);
        let inside = improve.head.iter().zip(&improve.inside).filter(|(_, inside)| **inside);
        sums[0] += improve.outside.len() as u64;
        sums[1] += inside.map(|(head, _)| head).sum::<u64>();
        sums[2] += improve.need.iter().sum::<u64>();
    }
    assert_eq!(sums, [17, 225_918, 963]);
}
