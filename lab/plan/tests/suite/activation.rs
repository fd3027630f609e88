//! Keep, recompute or move: against brute force, on long chains, and bad input.

use crate::hard::Rng;
use crate::saved::{blocks, free, recompute, step};
use omniheap_plan::{
    Activation, ActivationError, Buffer, Choice, Copies, Interval, Options, Problem, Proof,
    Recompute, Tradeoff, trade, validate,
};

fn traded(problem: &Problem, all: &[Activation], copies: Option<Copies>) -> Tradeoff {
    let options = Options { effort: 10_000, ..Options::default() };
    let found = trade(problem, all, copies, &options).expect("it can be made to fit");
    assert!(found.plan.fits());
    validate(&found.problem, &found.plan.spots).expect("it is valid");
    assert!(found.lower_bound <= found.cost);
    found
}

/// The most that is live if these are away in their idle span.
fn live(problem: &Problem, all: &[Activation], away: u32) -> u64 {
    let last = problem.buffers.iter().map(|b| b.live.end).max().unwrap_or(0);
    let at = |tick: u64| {
        let here = problem
            .buffers
            .iter()
            .enumerate()
            .filter(|(_, b)| b.live.start <= tick && tick < b.live.end);
        let is_away = |buffer: usize| {
            let place = all.iter().position(|a| a.buffer == buffer);
            place.is_some_and(|p| {
                away >> p & 1 == 1 && all[p].idle.start <= tick && tick < all[p].idle.end
            })
        };
        here.filter(|&(i, _)| !is_away(i)).map(|(_, b)| b.size).sum::<u64>()
    };
    (0..last).map(at).max().unwrap_or(0)
}

#[test]
fn choices_without_reads_are_the_cheapest_of_all() {
    let mut rng = Rng(11);
    for round in 0..60 {
        let sizes: Vec<u64> = (0..9).map(|_| 1 + rng.below(50)).collect();
        let (mut problem, mut all) = step(&sizes, 0);
        all.iter_mut().for_each(|a| a.recompute = recompute(1 + rng.below(40), &[]));
        let (plain, floor) = (live(&problem, &all, 0), live(&problem, &all, (1 << 9) - 1));
        let capacity = floor + (plain - floor) * (1 + rng.below(8)) / 10;
        problem.regions[0].capacity = Some(capacity);
        let cost = |away: u32| {
            let price = |(i, a): (usize, &Activation)| {
                a.recompute.as_ref().filter(|_| away >> i & 1 == 1).map_or(0, |m| m.cost)
            };
            all.iter().enumerate().map(price).sum::<u64>()
        };
        let best =
            (0..1 << 9).filter(|&away| live(&problem, &all, away) <= capacity).map(cost).min();
        let found = traded(&problem, &all, None);
        assert!(Some(found.lower_bound) <= best, "round {round}");
        assert_eq!(Some(found.cost), best, "round {round}");
    }
}

#[test]
fn long_chains_are_cut_where_little_crosses() {
    let plain = live_of(&blocks(24, u64::MAX / 8).0);
    let all_cost: u64 =
        blocks(24, 0).1.iter().filter_map(|a| a.recompute.as_ref()).map(|m| m.cost).sum();
    for share in [3, 5, 7, 9] {
        let (problem, all) = blocks(24, plain * share / 10);
        let found = traded(&problem, &all, None);
        assert!(found.cost < all_cost, "{share}: {} of {all_cost}", found.cost);
        assert!(found.choices.contains(&Choice::Keep));
        // A recomputed activation finds its inputs.
        for (each, choice) in all.iter().zip(&found.choices) {
            let reads = each.recompute.iter().flat_map(|made| &made.reads);
            let mut lost = reads.filter(|_| *choice == Choice::Recompute).filter(|&&read| {
                let back = found.returns[read]
                    .map_or(0, |second| found.problem.buffers[second].live.start);
                found.choices[read] != Choice::Keep && back > each.idle.end
            });
            assert_eq!(lost.next(), None, "{share}");
        }
    }
}

#[test]
fn segments_are_as_long_as_there_is_room_for_them() {
    // While the loss is there nearly everything is away. Later there is room for some blocks at once, and early on for more.
    let (mut problem, all) = blocks(24, 0);
    let (plain, turn) = (live_of(&problem), 4 * all.len() as u64);
    let loss = plain / 10;
    problem.push(Buffer::new(loss, turn, turn + 8));
    problem.regions[0].capacity = Some(loss + plain * 3 / 100);
    let found = traded(&problem, &all, None);
    assert!(found.choices.contains(&Choice::Keep));
}

#[test]
fn scratch_memory_of_one_moment_takes_room_from_no_other() {
    let (mut problem, mut all) = blocks(24, 0);
    let plain = live_of(&problem);
    for each in all.iter_mut().skip(60).take(6) {
        each.recompute.as_mut().expect("all can be recomputed").scratch = plain / 3;
    }
    problem.regions[0].capacity = Some(plain * 2 / 5);
    let found = traded(&problem, &all, None);
    assert!(found.choices[60..66].contains(&Choice::Keep));
}

fn live_of(problem: &Problem) -> u64 {
    omniheap_plan::load_profile(problem).iter().map(|s| s.bytes).max().unwrap_or(0)
}

#[test]
fn ten_thousand_activations_are_within_one_percent_of_the_bound() {
    let (mut problem, all, copies) = free(5, 10_000);
    for share in [4, 7] {
        problem.regions[0].capacity = Some(live_of(&problem) * share / 10);
        let found = traded(&problem, &all, Some(copies));
        assert!(
            found.choices.contains(&Choice::Move) && found.choices.contains(&Choice::Recompute)
        );
        let over = found.cost - found.lower_bound;
        assert!(over * 100 <= found.lower_bound, "{} is {over} above its bound", found.cost);
    }
}

#[test]
fn copies_take_turns() {
    // Free moves of two thirds, and engines that have time for one of them.
    let (problem, mut all) = step(&[100, 100, 100], 220);
    for each in &mut all {
        (each.recompute, each.move_cost) = (recompute(50, &[]), Some(1));
    }
    let slow = Copies { turn: 16, bytes_per_tick: 8 };
    let fast = Copies { turn: 16, bytes_per_tick: 1000 };
    assert_eq!(traded(&problem, &all, Some(fast)).cost, 1);
    assert_eq!(traded(&problem, &all, Some(slow)).cost, 50);
    assert_eq!(traded(&problem, &all, None).cost, 50);
}

#[test]
fn an_engine_has_time_for_some_of_what_could_move_alone() {
    let (problem, mut all) = step(&[100; 6], 320);
    for each in &mut all {
        (each.recompute, each.move_cost) = (recompute(50, &[]), Some(1));
    }
    // Three must go. In the 25 ticks from the first to the turn, the slower engine copies two and a half.
    let speed = |bytes_per_tick| Some(Copies { turn: 28, bytes_per_tick });
    assert_eq!(traded(&problem, &all, speed(15)).cost, 3);
    assert_eq!(traded(&problem, &all, speed(10)).cost, 52);
}

#[test]
fn a_capacity_below_the_floor_is_refuted_with_the_tick() {
    let (mut problem, mut all) = step(&[10, 10, 10, 10], 30);
    all.iter_mut().for_each(|a| a.recompute = recompute(1, &[]));
    problem.push(Buffer::new(40, 18, 19));
    let error = trade(&problem, &all, None, &Options::default()).expect_err("40 do not fit 30");
    assert_eq!(error, ActivationError::Floor { tick: 18, bytes: 40, capacity: 30 });
    problem.regions[0].capacity = Some(40);
    assert!(traded(&problem, &all, None).cost > 0);
}

#[test]
fn what_fits_is_kept() {
    let (problem, mut all) = step(&[10, 10], 20);
    all.iter_mut().for_each(|a| a.recompute = recompute(1, &[]));
    let found = traded(&problem, &all, None);
    assert_eq!((found.cost, found.proof), (0, Proof::Best));
    assert_eq!(found.choices, [Choice::Keep; 2]);
    assert_eq!(found.problem, problem);
}

#[test]
fn what_is_cheap_and_needs_too_much_scratch_moves() {
    let (problem, mut all) = step(&[10; 3], 20);
    for each in &mut all {
        each.recompute = Some(Recompute { cost: 1, reads: Vec::new(), scratch: 25 });
        each.move_cost = Some(100);
    }
    let found = traded(&problem, &all, Some(Copies { turn: 16, bytes_per_tick: 1000 }));
    assert_eq!(found.choices.iter().filter(|&&choice| choice == Choice::Move).count(), 1);
    assert_eq!(found.cost, 100, "what is moved has its price all the same");
}

#[test]
fn scratch_memory_counts() {
    let (problem, mut all) = step(&[10, 10], 10);
    for each in &mut all {
        each.recompute = Some(Recompute { cost: 1, reads: Vec::new(), scratch: 0 });
    }
    all.pop();
    let mut short = problem.clone();
    short.buffers[1].live = Interval::new(5, 23);
    assert_eq!(traded(&short, &all, None).cost, 1);
    all[0].recompute = Some(Recompute { cost: 1, reads: Vec::new(), scratch: 5 });
    let error = trade(&short, &all, None, &Options::default());
    assert_eq!(error, Err(ActivationError::NotFound));
}

#[test]
fn activations_that_make_no_sense_are_refused() {
    let (problem, all) = step(&[10, 10], 10);
    let refused = |change: &dyn Fn(&mut Vec<Activation>)| {
        let mut changed = all.clone();
        change(&mut changed);
        let error = trade(&problem, &changed, None, &Options::default()).expect_err("refused");
        assert!(matches!(error, ActivationError::Activation { .. }), "{error}");
        assert!(error.to_string().contains("makes no sense"));
    };
    refused(&|all| all[1].buffer = 0);
    refused(&|all| all[1].buffer = 2);
    refused(&|all| all[0].idle = Interval::new(5, 5));
    refused(&|all| all[0].idle = Interval::new(5, 500));
    let live = problem.buffers[0].live;
    refused(&|all| all[0].idle.start = live.start);
    refused(&|all| all[0].idle.end = live.end);
    refused(&|all| all[0].recompute = recompute(1, &[0]));
    refused(&|all| all[0].recompute = recompute(1, &[1]));
    refused(&|all| all[1].recompute = recompute(1, &[7]));
    let still = Copies { turn: 3, bytes_per_tick: 0 };
    let error = trade(&problem, &all, Some(still), &Options::default());
    assert_eq!(error, Err(ActivationError::Copies));
}
