//! Small problems of every kind, hundreds of them: what is made of each, to the byte.
//!
//! As in [`numbers`](crate::numbers), a rule that is broken shows here although its plans are valid. What other tests say of such problems is
//! that plans are valid and the best (`brute`); here it is which of the best.

use crate::hard::Rng;
use core::cell::{Cell, RefCell};
use core::fmt::{self, Write as _};
use omniheap_plan::{
    Activation, Buffer, Copies, Interval, Options, Problem, Progress, Recompute, Region, RegionSet,
    solve, spill, trade, validate,
};

/// A hash of everything that `Debug` shows of a value.
pub(crate) fn fingerprint(value: &impl fmt::Debug) -> u64 {
    struct Mixed(u64);
    impl fmt::Write for Mixed {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for byte in text.bytes() {
                self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
            Ok(())
        }
    }
    let mut mixed = Mixed(0xcbf2_9ce4_8422_2325);
    write!(mixed, "{value:?}").expect("it takes all");
    mixed.0
}

/// A few buffers with every feature now and then, in one region or some.
fn problem(seed: u64) -> Problem {
    let mut rng = Rng(seed);
    let region = |rng: &mut Rng| Region {
        capacity: rng.once_in(2).then(|| 6 + rng.below(30)),
        align: [1, 1, 2, 4][rng.index(4)],
        cost: rng.below(3),
    };
    let mut problem = Problem::new(region(&mut rng));
    let regions = 1 + rng.index(7) / 4 + rng.index(7) / 5;
    (1..regions).for_each(|_| problem.regions.push(region(&mut rng)));
    for _ in 0..2 + rng.below(10) {
        let (start, life) = (rng.below(14), 1 + rng.below(9));
        let mut buffer = Buffer::new(rng.below(11), start, start + life);
        match rng.below(14) {
            0..3 => buffer.align = 1 + rng.below(4),
            3..5 if life > 2 => buffer = buffer.gap(start + 1, start + life - 1),
            5 => buffer.hint = Some(rng.below(20)),
            6 => buffer.fixed = Some(4 * rng.below(6)),
            7 => buffer.regions = RegionSet::only(rng.index(regions as u64)),
            _ => {}
        }
        buffer.spill_cost = rng.once_in(2).then(|| rng.below(9));
        problem.push(buffer);
    }
    let buffers = problem.buffers.len() as u64;
    for _ in 0..rng.below(3) {
        let (a, b) = (rng.index(buffers), rng.index(buffers));
        match rng.below(3) {
            0 => problem.aliases.push((a, b)),
            _ => problem.separate.push((a, b)),
        }
    }
    problem
}

/// Plans a problem with little effort or much, or until somebody says stop, and mixes what is told and what comes of it.
fn planned(problem: &Problem, effort: u64, asks: u64) -> u64 {
    let (told, asked) = (RefCell::new(String::new()), Cell::new(0));
    let progress = |one: Progress| write!(told.borrow_mut(), "{one:?}").expect("a text takes all");
    let stop = || asked.replace(asked.get() + 1) >= asks;
    let options = Options { effort, seed: effort, ..Options::default() };
    let options = Options { stop: Some(&stop), progress: Some(&progress), ..options };
    let plan = solve(problem, &options);
    if let Ok(plan) = &plan
        && plan.fits()
    {
        validate(problem, &plan.spots).expect("a plan that fits is valid");
    }
    fingerprint(&(plan, told.borrow()))
}

/// Adds up the prints of a hundred seeds.
fn hundred(from: u64, one: impl Fn(u64) -> u64) -> u64 {
    (from..from + 100).map(one).fold(0, u64::wrapping_add)
}

#[test]
fn most_problems_make_sense_and_many_can_be_planned() {
    let options = Options { effort: 10, ..Options::default() };
    let plans: Vec<_> = (0..400).filter_map(|seed| solve(&problem(seed), &options).ok()).collect();
    let fits = plans.iter().filter(|plan| plan.fits()).count();
    let trade = |seed| {
        let (problem, all, copies) = step(seed);
        trade(&problem, &all, copies, &options).is_ok_and(|found| found.cost > 0)
    };
    let traded = (0..400).filter(|&seed| trade(seed)).count();
    assert!(plans.len() > 300 && fits > 200 && traded > 100, "{} {fits} {traded}", plans.len());
}

#[test]
fn plans() {
    let prints = [0, 100, 200].map(|from| {
        hundred(from, |seed| {
            let problem = problem(seed);
            let efforts = [(0, u64::MAX), (1, u64::MAX), (300, u64::MAX), (300, seed % 9)];
            let prints = efforts.map(|(effort, asks)| planned(&problem, effort, asks));
            prints.into_iter().fold(0, u64::wrapping_add)
        })
    });
    assert_eq!(
        prints,
        [6_387_233_903_969_781_717, 14_405_894_443_045_809_982, 15_406_863_441_165_016_701]
    );
}

/// A capacity that is just enough, and one byte less.
#[test]
fn plans_at_the_edge() {
    let fingerprint = hundred(300, |seed| {
        let mut problem = problem(seed);
        problem.regions.truncate(1);
        problem.regions[0].capacity = None;
        problem.buffers.iter_mut().for_each(|buffer| buffer.regions = RegionSet::only(0));
        let Ok(plan) = solve(&problem, &Options { effort: 50, ..Options::default() }) else {
            return 1;
        };
        let edges = [plan.peak(), plan.peak().saturating_sub(1), plan.lower_bound()];
        let prints = edges.map(|capacity| {
            problem.regions[0].capacity = Some(capacity);
            planned(&problem, 200, u64::MAX)
        });
        prints.into_iter().fold(0, u64::wrapping_add)
    });
    assert_eq!(fingerprint, 14_907_851_736_896_338_296);
}

#[test]
fn spills() {
    let prints = [0, 100, 200].map(|from| {
        hundred(from, |seed| {
            let options = Options { effort: 200, ..Options::default() };
            fingerprint(&spill(&problem(seed), &options))
        })
    });
    assert_eq!(
        prints,
        [4_898_665_594_004_986_541, 15_088_013_564_045_200_533, 6_065_304_288_032_777_853]
    );
}

/// A step of a few layers that read each other, some of which can be recomputed, moved, both or neither.
fn step(seed: u64) -> (Problem, Vec<Activation>, Option<Copies>) {
    let mut rng = Rng(seed);
    let layers = 2 + rng.below(7);
    let mut problem = Problem::new(Region::unbounded());
    let mut all = Vec::new();
    for at in 0..layers {
        let idle = Interval::new(3 * at + 2 + rng.below(2), 6 * layers + 5 - 3 * at - rng.below(2));
        let size = 1 + rng.below(30);
        let align = [1, 1, 4, 16][rng.index(4)];
        let last = idle.end + 1 + rng.below(2);
        let buffer = problem.push(Buffer::new(size, 3 * at + 1, last).align(align));
        let before = usize::try_from(at).expect("few");
        let reads = (0..before).filter(|_| rng.once_in(2)).collect();
        let made = Recompute { cost: rng.below(20), reads, scratch: rng.below(3) * size / 2 };
        let recompute = (!rng.once_in(5)).then_some(made);
        let move_cost = rng.once_in(2).then(|| rng.below(20));
        all.push(Activation { buffer, idle, recompute, move_cost });
    }
    for _ in 0..rng.below(3) {
        let start = rng.below(6 * layers);
        problem.push(Buffer::new(1 + rng.below(20), start, start + 1 + rng.below(8)));
    }
    // Now and then sizes of which a little is many bytes.
    if rng.once_in(4) {
        for buffer in &mut problem.buffers {
            buffer.size *= 700;
        }
    }
    let most = omniheap_plan::load_profile(&problem).iter().map(|step| step.bytes).max();
    problem.regions[0].capacity = most.map(|most| most * (35 + rng.below(66)) / 100);
    let copies = Copies { turn: 3 * layers + rng.below(5), bytes_per_tick: 1 + rng.below(30) };
    (problem, all, (!rng.once_in(3)).then_some(copies))
}

#[test]
fn trades() {
    let prints = [0, 100, 200, 300].map(|from| {
        hundred(from, |seed| {
            let (problem, all, copies) = step(seed);
            let asked = Cell::new(0);
            let stop = || asked.replace(asked.get() + 1) >= seed % 40;
            let options = Options { effort: 100, ..Options::default() };
            let hurried = Options { stop: Some(&stop), ..options };
            let trades = [options, hurried].map(|it| trade(&problem, &all, copies, &it));
            fingerprint(&trades)
        })
    });
    assert_eq!(
        prints,
        [
            10_312_020_686_785_465_245,
            11_323_519_548_411_030_160,
            12_342_194_477_912_350_961,
            6_881_542_844_401_370_524
        ]
    );
}
