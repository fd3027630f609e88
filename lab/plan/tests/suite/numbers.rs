//! Plans of fixed problems with a fixed effort, checked to the byte and to the search state.
//!
//! A rule that is broken still gives valid plans, only worse ones or later ones; here that shows. Whoever changes a rule compares
//! the numbers: lower peaks, higher bounds, fewer states and lower offsets are better, and what is better is written down here.

use crate::hard::{self, Rng};
use crate::small::fingerprint;
use core::cell::{Cell, RefCell};
use core::fmt::Write as _;
use core::ops::Range;
use omniheap_plan::{
    Activation, Buffer, Choice, Copies, Interval, Options, Problem, Progress, Proof, Recompute,
    Region, RegionSet, solve, spill, trade,
};

/// Sums over plans: of peaks, of lower bounds, of search states, and of all offsets. The last one is a [`fingerprint`] of every plan and of all
/// that was told on the way to it: it is neither better nor worse.
type Numbers = [u64; 5];

/// Solves a problem, and notes what is told meanwhile.
fn numbers(problem: &Problem, options: &Options<'_>) -> Numbers {
    let told = RefCell::new(String::new());
    let progress = |one: Progress| write!(told.borrow_mut(), "{one:?}").expect("a text takes all");
    let options = Options { progress: Some(&progress), ..*options };
    let plan = solve(problem, &options).expect("it makes sense");
    let heights = plan.spots.iter().map(|spot| spot.offset).sum();
    let all = fingerprint(&(&plan, &*told.borrow()));
    [plan.peak(), plan.lower_bound(), plan.nodes, heights, all]
}

fn add<const N: usize>(a: [u64; N], b: [u64; N]) -> [u64; N] {
    core::array::from_fn(|at| a[at].wrapping_add(b[at]))
}

/// Plans seeded problems.
fn planned(seeds: Range<u64>, effort: u64, make: impl Fn(u64) -> Problem) -> Numbers {
    let options = Options { effort, ..Options::default() };
    seeds.map(|seed| numbers(&make(seed), &options)).fold([0; 5], add)
}

/// A hard problem of about so many buffers.
fn sized(seed: u64, count: usize) -> Problem {
    hard::sized(seed, count).0
}

/// One without a capacity.
fn open(mut problem: Problem) -> Problem {
    problem.regions[0].capacity = None;
    problem
}

/// One in which buffers are aligned, have gaps, are fixed, hinted at, shared, or kept apart.
fn mixed(seed: u64, count: usize) -> Problem {
    let mut problem = open(sized(seed, count));
    let mut rng = Rng(seed);
    let buffers = problem.buffers.len() as u64;
    for buffer in &mut problem.buffers {
        let Interval { start, end } = buffer.live;
        buffer.size = buffer.size / 4096 + 1;
        match rng.below(12) {
            0 | 1 => buffer.align = 1 << rng.below(4),
            2 => buffer.align = 3 + 3 * rng.below(2),
            3 | 4 if end - start > 2 => *buffer = buffer.clone().gap(start + 1, end - 1),
            5 => buffer.hint = Some(rng.below(200)),
            _ => {}
        }
    }
    for at in 0..3 {
        let fixed = &mut problem.buffers[at];
        fixed.fixed = Some(fixed.align * rng.below(60));
        let (a, b) = (rng.index(buffers), rng.index(buffers));
        if a > b && b > 3 {
            problem.aliases.push((a, b));
        }
        let (a, b) = (rng.index(buffers), rng.index(buffers));
        if a > b {
            problem.separate.push((a, b));
        }
    }
    problem
}

/// One over three regions, of which the cheap ones are small.
fn regions(seed: u64, count: usize) -> Problem {
    let mut problem = sized(seed, count);
    let region = |share: u64, cost: u64, align: u64| Region {
        capacity: Some(hard::CAPACITY * share / 16),
        align,
        cost,
    };
    problem.regions = vec![region(9, 5, 1), region(4, 1, 64), region(6, 3, 1)];
    let mut rng = Rng(seed);
    for buffer in &mut problem.buffers {
        match rng.below(6) {
            0 => buffer.regions = RegionSet::only(0).and(2),
            1 => buffer.regions = RegionSet::only(rng.index(3)),
            _ => {}
        }
    }
    problem
}

#[test]
fn tight_problems() {
    assert_eq!(
        planned(0..60, 8_000, |seed| sized(seed, 60)),
        [62_632_747, 62_606_828, 10_827, 1_774_229_474, 5_450_271_906_035_670_923]
    );
}

#[test]
fn tight_problems_without_a_capacity() {
    assert_eq!(
        planned(0..60, 8_000, |seed| open(sized(seed, 60))),
        [62_720_659, 62_606_828, 24_285, 1_788_903_778, 3_913_045_626_473_009_575]
    );
}

#[test]
fn problems_with_everything() {
    assert_eq!(
        planned(0..40, 4_000, |seed| mixed(seed, 30)),
        [13_404, 11_350, 53_423, 122_075, 17_195_149_652_798_935_256]
    );
}

#[test]
fn problems_that_do_not_fit() {
    let less = |seed| {
        let mut problem = mixed(seed, 20);
        let options = Options { effort: 100, ..Options::default() };
        let peak = solve(&problem, &options).expect("it makes sense").peak();
        problem.regions[0].capacity = Some(peak - 1);
        problem
    };
    assert_eq!(
        planned(0..30, 1_000, less),
        [10_937, 9_435, 1_922, 58_629, 5_640_452_346_708_924_114]
    );
}

#[test]
fn several_regions() {
    assert_eq!(
        planned(0..60, 2_000, |seed| regions(seed, 90)),
        [114_400_008, 114_325_822, 52, 1_521_918_491, 5_671_435_368_611_748_239]
    );
}

#[test]
fn many() {
    assert_eq!(
        planned(0..4, 2_000, |seed| open(sized(seed, 520))),
        [4_240_629, 4_194_304, 10_887, 1_424_468_563, 9_017_494_339_382_209_085]
    );
}

#[test]
fn many_with_everything() {
    assert_eq!(
        planned(31..33, 2_000, |seed| mixed(seed, 520)),
        [639, 570, 22_133, 163_760, 13_736_944_323_368_012_078]
    );
}

#[test]
fn too_many_for_exact_search() {
    assert_eq!(
        planned(51..52, 3_000, |seed| sized(seed, 2_010)),
        [1_198_413, 1_037_289, 20_730, 907_994_977, 2_441_838_039_266_863_495]
    );
}

#[test]
fn thousands_in_a_hurry() {
    let asked = Cell::new(0);
    // Enough for the quick rules and for first fit.
    let stop = || asked.replace(asked.get() + 1) >= 60;
    let options = Options { stop: Some(&stop), ..Options::default() };
    assert_eq!(
        numbers(&hard::large(61, 10_500), &options),
        [216_270_136, 207_167_621, 0, 498_396_166_103, 1_926_886_970_962_607_248]
    );
}

#[test]
fn what_is_spilled() {
    let spilled = |seed| {
        let mut problem = sized(seed, 40);
        problem.regions[0].capacity = Some(hard::CAPACITY * 3 / 4);
        let mut rng = Rng(seed);
        problem.buffers.iter_mut().for_each(|b| b.spill_cost = Some(1 + rng.below(9)));
        let options = Options { effort: 500, ..Options::default() };
        let found = spill(&problem, &options).expect("it makes sense").expect("all may go");
        let best = u64::from(found.proof == Proof::Best);
        [found.cost, found.buffers.len() as u64, best, found.plan.peak(), fingerprint(&found)]
    };
    assert_eq!(
        (0..20).map(spilled).fold([0; 5], add),
        [514, 126, 20, 14_834_798, 2_655_513_542_338_381_993]
    );
}

/// A training step of so many layers: each is made, used, and read again by the backward pass, last made first.
fn step(seed: u64, layers: u64) -> (Problem, Vec<Activation>) {
    let mut rng = Rng(seed);
    let mut problem = Problem::new(Region::unbounded());
    let mut all = Vec::new();
    for at in 0..layers {
        let idle = Interval::new(4 * at + 3, 8 * layers + 8 - 4 * at);
        let size = (1 + rng.below(40)) << 8;
        let buffer = problem.push(Buffer::new(size, 4 * at + 1, idle.end + 1));
        let before = usize::try_from(at).expect("few");
        let reads = (1..=rng.index(3).min(before)).map(|back| before - back).collect();
        let made = Recompute { cost: 1 + rng.below(90), reads, scratch: rng.below(2) * size / 2 };
        let recompute = (!rng.once_in(8)).then_some(made);
        let move_cost = rng.once_in(2).then(|| 1 + rng.below(60));
        all.push(Activation { buffer, idle, recompute, move_cost });
    }
    let most = omniheap_plan::load_profile(&problem).iter().map(|s| s.bytes).max();
    problem.regions[0].capacity = most.map(|most| most * (55 + rng.below(35)) / 100);
    (problem, all)
}

/// Sums over steps: of what trades cost, of bounds, of what is recomputed, of what is moved, of steps that cannot be made to fit, and of
/// [`fingerprint`]s.
fn traded(seeds: Range<u64>, layers: u64) -> [u64; 6] {
    let options = Options { effort: 2_000, ..Options::default() };
    let one = |seed: u64| {
        let (problem, all) = step(seed, layers);
        let copies = Copies { turn: 4 * layers + 4, bytes_per_tick: 2_000 };
        let copies = seed.is_multiple_of(2).then_some(copies);
        let found = match trade(&problem, &all, copies, &options) {
            Ok(found) => found,
            Err(error) => return [0, 0, 0, 0, 1, fingerprint(&error)],
        };
        let count = |choice| found.choices.iter().filter(|&&each| each == choice).count() as u64;
        let [recomputed, moved] = [Choice::Recompute, Choice::Move].map(count);
        [found.cost, found.lower_bound, recomputed, moved, 0, fingerprint(&found)]
    };
    seeds.map(one).fold([0; 6], add)
}

#[test]
fn what_is_recomputed_or_moved() {
    assert_eq!(traded(0..60, 14), [5_026, 3_870, 156, 59, 0, 9_387_662_600_756_581_169]);
}

#[test]
fn what_is_recomputed_or_moved_of_many() {
    assert_eq!(traded(100..110, 120), [2_701, 2_673, 154, 56, 0, 11_652_405_386_657_800_989]);
}
