use super::super::{Activation, Copies, Recompute};
use super::*;
use crate::rng::Rng;
use crate::{Buffer, Problem, Region};

/// Layers of some sizes: each is used until the next one is made, and again in reverse order; `reads` are its recomputation's.
fn chain(layers: &[(u64, Option<&[usize]>)]) -> (Problem, Vec<Activation>) {
    let n = layers.len() as u64;
    let mut problem = Problem::new(Region::unbounded());
    let layer = |(i, &(size, reads)): (u64, &(u64, Option<&[usize]>))| {
        let idle = Interval::new(2 * i + 2, 4 * n + 4 - 2 * i);
        let buffer = problem.push(Buffer::new(size, 2 * i, idle.end + 2));
        let made = |reads: &[usize]| Recompute { cost: 1, reads: reads.to_vec(), scratch: 0 };
        Activation { buffer, idle, recompute: reads.map(made), move_cost: Some(1) }
    };
    let all = (0..n).zip(layers).map(layer).collect();
    (problem, all)
}

/// A chain in which most layers may be computed again, from one before them or from none.
fn random(rng: &mut Rng, count: usize) -> (Problem, Vec<Activation>) {
    let (mut problem, mut all) = chain(&alloc::vec![(0, Some(&[][..])); count]);
    for (index, each) in all.iter_mut().enumerate() {
        problem.buffers[index].size = 1 + rng.below(20);
        let made = each.recompute.as_mut().expect("all have one");
        made.reads.extend((index > 0 && rng.below(4) > 0).then(|| rng.index(index)));
        if rng.below(5) == 0 {
            each.recompute = None;
        }
    }
    (problem, all)
}

fn case<'a>(problem: &'a Problem, activations: &'a [Activation]) -> Case<'a> {
    Case { problem, activations, copies: None }
}

#[test]
fn a_cut_keeps_what_is_read_across_it() {
    let mut rng = Rng::new(1);
    for _ in 0..50 {
        let (problem, all) = random(&mut rng, 12);
        let case = case(&problem, &all);
        let order = in_order(&case);
        assert_eq!(order, (0..12).collect::<Vec<_>>());
        let reads = |index: usize, of: usize| {
            all[index].recompute.as_ref().is_some_and(|made| made.reads.contains(&of))
        };
        let last: Vec<usize> =
            (0..12).map(|of| (0..12).rev().find(|&i| reads(i, of)).unwrap_or(of)).collect();
        assert_eq!(last_reads(&case, &order), last);
        let kept = |cut: usize| {
            let crosses = (0..cut).filter(|&i| all[i].recompute.is_some() && last[i] >= cut);
            crosses.map(|i| problem.buffers[i].size).sum::<u64>()
        };
        assert_eq!(crossing(&case, &order, &last), (0..=12).map(kept).collect::<Vec<_>>());
    }
}

#[test]
fn cuts_are_where_the_fewest_bytes_cross() {
    assert_eq!(cut(&[0, 9, 9, 9, 9, 9, 9], 2), [0, 2, 4, 6]);
    assert_eq!(cut(&[0, 9, 9, 1, 9, 9, 9], 2), [0, 3, 5, 6]);
    assert_eq!(cut(&[0, 1, 9, 2, 9, 9, 9], 2), [0, 1, 3, 5, 6]);
    assert_eq!(cut(&[0, 9, 9, 9, 9, 9, 9], 6), [0, 6]);
    assert_eq!(cut(&[0, 9, 9, 9, 9, 9, 0], 5), [0, 6]);
    assert_eq!(cut(&[0, 5, 4, 3, 4, 5, 9, 9, 9], 4), [0, 3, 5, 8]);
    assert_eq!(cut(&[0], 1), [0, 0]);
}

#[test]
fn places_are_the_least_of_each_run() {
    assert_eq!(places(&[0]), [0]);
    assert_eq!(places(&[0, 7, 3, 9]), [0, 1, 2, 3]);
    let crossing: Vec<u64> = (0..=600).map(|at| u64::from(at % 5 != 2)).collect();
    let all = places(&crossing);
    // Runs of three: those that have one take the position at which nothing crosses.
    assert_eq!(all[..5], [0, 2, 4, 7, 12]);
    assert_eq!((all.len(), all.last()), (202, Some(&600)));
}

#[test]
fn room_is_what_the_fullest_moment_leaves() {
    let mut problem = Problem::new(Region::unbounded());
    for (size, start, end) in [(10, 0, 8), (5, 3, 4), (7, 6, 12), (2, 11, 20)] {
        problem.push(Buffer::new(size, start, end));
    }
    let model = Model::new(&problem, 0, |_| true);
    let (bytes, fullest) = room(&model, &[0, 2, 5, 8, 13], 16);
    assert_eq!(bytes, [6, 1, -1, 7, 14]);
    assert_eq!(fullest, [0, 3, 6, 11, 13]);
}

#[test]
fn room_without_what_can_be_recomputed() {
    let mut rng = Rng::new(3);
    for _ in 0..30 {
        let (problem, all) = random(&mut rng, 7);
        let (case, model) = (case(&problem, &all), Model::new(&problem, 0, |_| true));
        let room = Room::new(&case, &model, 40);
        for (at, &tick) in room.ticks.iter().enumerate() {
            let end = room.ticks.get(at + 1).copied().unwrap_or(tick + 1);
            let live = |tick: u64| {
                let is_away = |i: usize| {
                    all[i].recompute.is_some()
                        && all[i].idle.start <= tick
                        && tick < all[i].idle.end
                };
                let here = (0..7).filter(|&i| {
                    problem.buffers[i].live.start <= tick
                        && tick < problem.buffers[i].live.end
                        && !is_away(i)
                });
                here.map(|i| signed(problem.buffers[i].size)).sum::<i64>()
            };
            let most = (tick..end).map(live).max().unwrap_or(0);
            assert_eq!(room.bytes[at], 40 - most, "at {tick}");
        }
    }
}

#[test]
fn a_segment_has_room_while_it_comes_back() {
    let mut rng = Rng::new(4);
    for round in 0..200 {
        let (problem, all) = random(&mut rng, 6);
        let (case, kept) = (case(&problem, &all), rng.below(4).cast_signed());
        let ticks: Vec<u64> = (0..32).collect();
        let bytes: Vec<i64> = ticks.iter().map(|_| rng.below(90).cast_signed()).collect();
        let room = Room { ticks, bytes };
        let from = rng.index(6);
        let segment: Vec<usize> = (from..6.min(from + 1 + rng.index(3))).collect();
        let back = || segment.iter().filter(|&&i| all[i].recompute.is_some());
        let first = back().map(|&i| all[i].idle.end).min();
        let last = back().map(|&i| all[i].idle.end).max();
        // From the first need to the last one, all that is not yet in use again is there for the segment's sake.
        let fits = first.zip(last).is_none_or(|(first, last)| {
            (first..=last).all(|tick| {
                let waits = back().filter(|&&i| all[i].idle.end > tick);
                let bytes: i64 = waits.map(|&i| signed(problem.buffers[i].size)).sum();
                room.bytes[usize::try_from(tick).expect("small")] >= kept + bytes
            })
        });
        assert_eq!(room.has(&case, &segment, kept), fits, "{round}");
    }
}

#[test]
fn spans_end_when_the_first_of_a_segment_is_needed() {
    // Idle: 2..20, 4..18, 6..16, 8..14. The third reads the second, which reads the first.
    let layers: [(u64, Option<&[usize]>); 4] =
        [(1, Some(&[])), (1, Some(&[0])), (1, Some(&[1])), (1, None)];
    let (problem, all) = chain(&layers);
    let case = case(&problem, &all);
    let order = in_order(&case);
    let spans = |cuts: &[usize]| Segments::new(&case, &order, cuts).recomputed;
    let span = |start, end| Some(Interval::new(start, end));
    assert_eq!(spans(&[0, 4]), [span(2, 16), span(4, 16), span(6, 16), None]);
    // The second is read across the cut, so it is kept; the first is needed with it.
    assert_eq!(spans(&[0, 2, 4]), [span(2, 18), None, span(6, 16), None]);
    assert_eq!(spans(&[0, 1, 4]), [None, span(4, 16), span(6, 16), None]);
    let loose = Segments::loose(&case).recomputed;
    assert_eq!(loose, [span(2, 20), span(4, 18), span(6, 16), None]);
}

#[test]
fn a_move_is_away_between_its_copies() {
    let (problem, all) = chain(&[(6, None), (6, None)]);
    let span = |bytes_per_tick, turn, needed| {
        let copies = Some(Copies { turn, bytes_per_tick });
        moved(&Case { problem: &problem, activations: &all, copies }, 0, needed)
    };
    // Idle from 2 to 12.
    assert_eq!(span(3, 6, u64::MAX), Some(Interval::new(4, 10)));
    assert_eq!(span(4, 6, u64::MAX), Some(Interval::new(4, 10)), "copies take whole ticks");
    assert_eq!(span(6, 6, 9), Some(Interval::new(3, 8)));
    assert_eq!(span(6, 3, 9), Some(Interval::new(3, 8)));
    assert_eq!(span(6, 8, 9), Some(Interval::new(3, 8)));
    assert_eq!(span(6, 2, 9), None, "it leaves too late");
    assert_eq!(span(6, 9, 9), None, "it must be back too early");
    assert_eq!(span(2, 5, 8), None, "there is no time between");
    assert_eq!(moved(&case(&problem, &all), 0, 9), None, "there are no engines");
}

#[test]
fn segments_with_room_keep_the_fewest_bytes() {
    // Three pairs: within a pair much is read, across pairs little. A pair needs twenty bytes when it comes back.
    let pairs: [(u64, Option<&[usize]>); 6] = [
        (19, Some(&[])),
        (1, Some(&[0])),
        (19, Some(&[1])),
        (1, Some(&[2])),
        (19, Some(&[3])),
        (1, Some(&[4])),
    ];
    let (problem, all) = chain(&pairs);
    let case = case(&problem, &all);
    let order = in_order(&case);
    let last = last_reads(&case, &order);
    let crossing = crossing(&case, &order, &last);
    assert_eq!(crossing, [0, 19, 1, 19, 1, 19, 0]);
    let cut = |bytes: i64, longest: usize| {
        let room = Room { ticks: (0..40).collect(), bytes: alloc::vec![bytes; 40] };
        room.cut(&case, &order, &last, &crossing, longest)
    };
    assert_eq!(cut(1_000, 6), [0, 6]);
    assert_eq!(cut(1_000, 4), [0, 2, 6]);
    assert_eq!(cut(1_000, 2), [0, 2, 4, 6]);
    // At the return of the last four, three of them and a byte before the cut are there; of the first four, only three
    // of them.
    assert_eq!(cut(40, 6), [0, 2, 6]);
    assert_eq!(cut(39, 6), [0, 4, 6]);
    assert_eq!(cut(38, 6), [0, 2, 4, 6]);
}
