use super::super::Choice;
use super::super::rows::Part;
use super::*;
use crate::rng::Rng;

/// A pick that adds bytes to rows.
fn pick(cost: u64, parts: &[(usize, usize, i64)]) -> Pick {
    let part = |&(start, end, bytes): &(usize, usize, i64)| Part { start, end, bytes };
    let choice = if parts.is_empty() { Choice::Keep } else { Choice::Move };
    Pick { choice, cost, parts: parts.iter().map(part).collect() }
}

/// Six activations over `count` rows, each with one or two ways to free bytes of some rows; the second takes bytes of others.
pub(in super::super) fn random(rng: &mut Rng, count: usize) -> Rows {
    let mut room = alloc::vec![0i64; count];
    let mut picks = Vec::new();
    for _ in 0..6 {
        let bytes = 1 + rng.below(30).cast_signed();
        let (start, length) = (rng.index(count / 2), 1 + rng.index(count / 2));
        let freed = (start, start + length, -bytes);
        let taken = (count - 1 - rng.index(2), count, bytes / 3);
        let mut ways = alloc::vec![pick(0, &[]), pick(1 + rng.below(40), &[freed])];
        if rng.below(2) == 0 {
            ways.push(pick(1 + rng.below(20), &[freed, taken]));
        }
        room[start..start + length].iter_mut().for_each(|r| *r -= bytes);
        picks.push(ways);
    }
    room.iter_mut().for_each(|r| *r = *r * 2 / 3 + rng.below(9).cast_signed());
    Rows::of(picks, room)
}

/// Lists all picks together.
fn all_picks(rows: &Rows) -> Vec<Vec<usize>> {
    let mut all = alloc::vec![Vec::new()];
    for picks in &rows.picks {
        let with = |way: &Vec<usize>, n: usize| way.iter().copied().chain([n]).collect();
        all = all.iter().flat_map(|way| (0..picks.len()).map(move |n| with(way, n))).collect();
    }
    all
}

fn cost(rows: &Rows, picked: &[usize]) -> u64 {
    rows.picks.iter().zip(picked).map(|(picks, &n)| picks[n].cost).sum()
}

/// Returns what is left of each row, pick by pick.
fn left(rows: &Rows, picked: &[usize]) -> Vec<i64> {
    let added = |row| rows.picks.iter().zip(picked).map(|(p, &n)| p[n].at(row)).sum::<i64>();
    rows.room.iter().enumerate().map(|(row, room)| room - added(row)).collect()
}

/// Returns the least cost of picks that fit.
pub(in super::super) fn cheapest(rows: &Rows) -> Option<u64> {
    let fits = |picked: &Vec<usize>| left(rows, picked).iter().all(|&left| left >= 0);
    all_picks(rows).iter().filter(|p| fits(p)).map(|p| cost(rows, p)).min()
}

#[test]
fn a_row_has_what_the_picks_leave() {
    let rows = random(&mut Rng::new(5), 12);
    for picked in all_picks(&rows) {
        assert_eq!(rows.slack(&picked), left(&rows, &picked));
    }
}

#[test]
fn prices_prove_the_least_of_all_picks_at_them() {
    let mut rng = Rng::new(1);
    for _ in 0..40 {
        let rows = random(&mut rng, 10);
        let price: Vec<f64> = (0..10).map(|_| rng.below(8) as f64 / 4.0).collect();
        let at = |picked: &Vec<usize>| {
            let lack = left(&rows, picked).into_iter().zip(&price).map(|(l, p)| l as f64 * p);
            cost(&rows, picked) as f64 - lack.sum::<f64>()
        };
        let least = all_picks(&rows).iter().map(at).fold(f64::INFINITY, f64::min);
        let (bound, picked) = evaluate(&rows, &price);
        assert!((bound - least).abs() < 1e-6, "{bound} {least}");
        assert!((at(&picked) - least).abs() < 1e-6);
        let relaxed = Relaxed { price, bound, picked };
        let values = relaxed.values(&rows);
        let sum: f64 = values.iter().map(|v| v.iter().copied().fold(f64::INFINITY, f64::min)).sum();
        assert!((sum - relaxed.worth(&rows) - bound).abs() < 1e-6);
    }
}

#[test]
fn bounds_are_below_the_cheapest_choices_and_not_far() {
    let (mut rng, never) = (Rng::new(2), Stop::new(&|| false));
    let (mut found, mut bounds, mut costs) = (0, 0, 0);
    for _ in 0..60 {
        let rows = random(&mut rng, 10);
        let Some(best) = cheapest(&rows) else { continue };
        let bound = Relaxed::new(&rows, best, &never).lower_bound();
        assert!(bound <= best);
        let (chosen, relaxed) = choose(&rows, None, &never);
        assert!(relaxed.lower_bound() <= best);
        if let Some(chosen) = chosen {
            assert!(left(&rows, &chosen.picked).iter().all(|&left| left >= 0));
            assert_eq!(chosen.cost, cost(&rows, &chosen.picked));
            assert!(chosen.cost >= best);
            assert!(choose(&rows, Some(best), &never).0.is_none(), "none is cheaper");
            (found, bounds, costs) = (
                found + 1,
                bounds + bound * 100 / best.max(1),
                costs + chosen.cost * 100 / best.max(1),
            );
        }
    }
    assert!(found >= 40, "{found}");
    assert!(bounds >= found * 60, "{bounds} of {found}");
    assert!(costs <= found * 110, "{costs} of {found}");
}

#[test]
fn a_price_is_the_least_at_which_room_suffices() {
    // Ten bytes cost two each, ten more cost five each.
    let ways = || {
        alloc::vec![
            alloc::vec![pick(0, &[]), pick(20, &[(0, 2, -10)])],
            alloc::vec![pick(0, &[]), pick(50, &[(0, 2, -10)])]
        ]
    };
    let price = |room: i64, of_other: f64| {
        best_price(&Rows::of(ways(), alloc::vec![room, 0]), &[0.0, of_other], 0)
    };
    let is =
        |price: f64, expected: f64| assert!((price - expected).abs() < 1e-6, "{price} {expected}");
    is(price(0, 0.0), 0.0);
    is(price(-1, 0.0), 2.0);
    is(price(-10, 0.0), 2.0);
    is(price(-11, 0.0), 5.0);
    is(price(-20, 0.0), 5.0);
    is(price(-21, 0.0), 0.0);
    // Bytes that the other row pays for need not be paid here.
    is(price(-10, 1.5), 0.5);
    is(price(-20, 1.5), 3.5);
}

#[test]
fn what_one_row_lacks_is_priced_to_the_byte() {
    let ways = [20, 50, 90].map(|cost| alloc::vec![pick(0, &[]), pick(cost, &[(0, 1, -10)])]);
    let rows = |room| Rows::of(ways.to_vec(), alloc::vec![room]);
    let never = Stop::new(&|| false);
    // Fifteen bytes: all of the first, and half of the second.
    for (room, bound) in [(0, 0), (-5, 10), (-10, 20), (-15, 45), (-20, 70), (-21, 79)] {
        assert_eq!(Relaxed::new(&rows(room), 160, &never).lower_bound(), bound, "{room}");
    }
    assert_eq!(choose(&rows(-15), None, &never).0.map(|c| c.cost), Some(70));
    assert!(choose(&rows(-31), None, &never).0.is_none());
}

#[test]
fn choices_are_as_cheap_as_they_can_be_one_by_one() {
    let mut rng = Rng::new(3);
    for _ in 0..60 {
        let mut rows = random(&mut rng, 10);
        rows.picks.iter_mut().for_each(|picks| picks.truncate(2));
        let start = (0..6).map(|_| rng.index(2)).collect();
        let Some(found) = repair(&rows, start) else {
            assert_eq!(cheapest(&rows), None);
            continue;
        };
        assert!(left(&rows, &found.picked).iter().all(|&left| left >= 0));
        for index in (0..6).filter(|&i| found.picked[i] > 0) {
            let mut kept = found.picked.clone();
            kept[index] = 0;
            assert!(left(&rows, &kept).iter().any(|&left| left < 0), "{index} need not change");
        }
    }
}

#[test]
fn slack_is_what_rows_have_one_by_one() {
    let mut rng = Rng::new(4);
    for count in [1, 63, 64, 65, 200] {
        let mut plain: Vec<i64> = (0..count).map(|_| rng.below(50).cast_signed() - 5).collect();
        let mut slack = Slack::new(plain.clone());
        for _ in 0..300 {
            let start = rng.index(count);
            let end = start + rng.index(count - start + 1);
            let bytes = rng.below(21).cast_signed() - 10;
            slack.add(start, end, bytes);
            plain[start..end].iter_mut().for_each(|row| *row += bytes);
            assert_eq!(slack.rows, plain);
            let least = plain.iter().copied().min().filter(|&least| least < 0);
            assert_eq!(slack.most_lacking().map(|row| plain[row]), least);
            let (more, enough) = (rng.below(40).cast_signed(), |row: &i64, more| *row >= more);
            let has = plain[start..end].iter().all(|row| enough(row, more));
            assert_eq!(slack.has(start, end, more), has, "{start}..{end} of {count}");
        }
    }
}

#[test]
fn changes_are_ranked_by_what_a_lacking_byte_costs() {
    let ways = alloc::vec![
        pick(10, &[]),
        pick(4, &[(0, 1, -2)]),  // three less for each byte
        pick(9, &[(0, 1, -1)]),  // one less
        pick(20, &[(0, 1, -8)]), // ten more for four bytes that are lacking
        pick(30, &[(0, 1, -4)]), // twenty more for four
        pick(0, &[(0, 1, 1)]),   // frees none
    ];
    let rows = Rows::of(alloc::vec![ways], alloc::vec![-4]);
    let draft = Draft { rows: &rows, picked: alloc::vec![0], slack: Slack::new(alloc::vec![-4]) };
    let ranks: Vec<Option<i64>> = (0..6).map(|n| draft.rank(0, 0, n)).collect();
    assert_eq!((ranks[0], ranks[5]), (None, None));
    assert!(ranks[1..5].is_sorted() && ranks[1] < ranks[2] && ranks[2] < ranks[3]);
    assert_eq!(ranks[3], Some(2.5f64.to_bits().cast_signed()));
    assert!(ranks[2] < Some(0));
}
