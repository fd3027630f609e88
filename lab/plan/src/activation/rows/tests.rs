use super::super::{Activation, Copies, Recompute};
use super::*;
use crate::rng::Rng;
use crate::{Buffer, Problem, Region};

/// Activations that live from 0 to 40, idle in some spans.
fn made(idle: &[(u64, u64, u64)]) -> (Problem, Vec<Activation>) {
    let mut problem = Problem::new(Region::unbounded());
    let each = |&(size, start, end): &(u64, u64, u64)| {
        let buffer = problem.push(Buffer::new(size, 0, 40));
        let recompute = Some(Recompute { cost: size, reads: Vec::new(), scratch: 0 });
        Activation { buffer, idle: Interval::new(start, end), recompute, move_cost: Some(1) }
    };
    let all = idle.iter().map(each).collect();
    (problem, all)
}

fn rows(
    problem: &Problem,
    activations: &[Activation],
    copies: Option<Copies>,
    capacity: u64,
) -> Rows {
    let case = Case { problem, activations, copies };
    Rows::new(&case, &Model::new(problem, 0, |_| true), &Segments::loose(&case), capacity)
}

#[test]
fn picks_free_the_rows_of_their_spans() {
    let (problem, all) = made(&[(6, 4, 30), (8, 10, 20)]);
    let rows = rows(&problem, &all, None, 10);
    assert_eq!(rows.ticks, [0, 4, 10, 20, 30]);
    assert_eq!(rows.room, [-4; 5]);
    let added = |index: usize| (0..5).map(|row| rows.picks[index][1].at(row)).collect::<Vec<_>>();
    assert_eq!(added(0), [0, -6, -6, -6, 0]);
    assert_eq!(added(1), [0, 0, -8, 0, 0]);
    assert_eq!(rows.choices(&[0, 1]), [Choice::Keep, Choice::Recompute]);
    assert_eq!(rows.slack(&[1, 1]), [-4, 2, 10, 2, -4]);
}

#[test]
fn engines_count_what_leaves_and_what_returns() {
    // Copies of 6 and of 8 bytes take 3 and 4 ticks: from 4 and 10 on, and until 30 and 26.
    let (problem, all) = made(&[(6, 4, 30), (8, 10, 26)]);
    let copies = Copies { turn: 16, bytes_per_tick: 2 };
    let mut rows = rows(&problem, &all, Some(copies), 100);
    let base = rows.ticks.len();
    // Until the turn, from each start on; and from the turn until each end.
    assert_eq!(rows.room[base..], [24, 12, 20, 28]);
    let added =
        |index: usize| (base..base + 4).map(|row| rows.picks[index][2].at(row)).collect::<Vec<_>>();
    assert_eq!(added(0), [6, 0, 0, 6]);
    assert_eq!(added(1), [8, 8, 8, 8]);
    assert_eq!((0..base).map(|row| rows.picks[0][2].at(row)).min(), Some(-6));
    rows.free_moves();
    let costs = |index: usize| rows.picks[index].iter().map(|pick| pick.cost).collect::<Vec<_>>();
    assert_eq!((costs(0), costs(1)), (alloc::vec![0, 6, 0], alloc::vec![0, 8, 0]));
}

#[test]
fn many_copies_share_moments() {
    let idle: Vec<(u64, u64, u64)> = (0..30).map(|i| (1, 1 + i % 15, 39 - i % 15)).collect();
    let (problem, all) = made(&idle);
    let copies = Some(Copies { turn: 20, bytes_per_tick: 1 });
    let few = rows(&problem, &all, copies, 100);
    assert_eq!(few.room.len(), few.ticks.len() + 30, "each start and each end has a row");
    let mut problem = Problem::new(Region::unbounded());
    let all: Vec<Activation> = (0..50)
        .map(|i| {
            let buffer = problem.push(Buffer::new(1, i, 200 - i));
            let idle = Interval::new(i + 1, 199 - i);
            Activation { buffer, idle, recompute: None, move_cost: Some(1) }
        })
        .collect();
    let many = rows(&problem, &all, Some(Copies { turn: 100, bytes_per_tick: 1 }), 100);
    assert_eq!(many.room.len(), many.ticks.len() + 2 * 17, "every third of fifty");
}

#[test]
fn the_floor_is_what_is_live_when_everything_is_away() {
    let (mut rng, mut floors) = (Rng::new(6), 0);
    for _ in 0..60 {
        let span = |rng: &mut Rng| (1 + rng.below(9), 1 + rng.below(15), 20 + rng.below(15));
        let idle: Vec<(u64, u64, u64)> = (0..5).map(|_| span(&mut rng)).collect();
        let (mut problem, all) = made(&idle);
        problem.push(Buffer::new(1 + rng.below(20), 18, 22));
        let capacity = 20 + rng.below(15);
        let live = |tick: u64| {
            let kept = idle.iter().filter(|i| tick < i.1 || i.2 <= tick).map(|i| i.0);
            kept.sum::<u64>() + if (18..22).contains(&tick) { problem.buffers[5].size } else { 0 }
        };
        let most = (0..40).map(live).max().unwrap_or(0);
        let floor = rows(&problem, &all, None, capacity).floor();
        assert_eq!(floor.map(|f| f.1), most.checked_sub(capacity).filter(|&lack| lack > 0));
        assert!(floor.is_none_or(|(tick, _)| live(tick) == most), "{floor:?}");
        floors += u32::from(floor.is_some());
    }
    assert!((10..50).contains(&floors), "{floors}");
}
