//! The constant bank: never worse than any set, never more than fits.
use super::random;
use crate::{Candidate, choose_constants};
use omniheap_seam::Align;

/// Returns the best benefit, by trying every set.
fn brute(candidates: &[Candidate], room: u64, granule: Align) -> u64 {
    let sets = 0u32..1 << candidates.len();
    let worth = |set: u32| {
        let chosen = candidates.iter().enumerate().filter(|(index, _)| set >> index & 1 == 1);
        let (size, benefit) = chosen.fold((0, 0), |(size, benefit), (_, candidate)| {
            (size + granule.up(candidate.size).expect("small"), benefit + candidate.benefit)
        });
        if size <= room { benefit } else { 0 }
    };
    sets.map(worth).max().unwrap_or(0)
}

#[test]
fn small_sets_are_solved_exactly() {
    let mut next = random(3);
    for _ in 0..300 {
        let (room, granule) = (256 * (1 + next(40)), Align::of(256));
        let mut candidate = |_| Candidate { size: 1 + next(4000), benefit: next(1000) };
        let candidates: Vec<_> = (0..10).map(&mut candidate).collect();
        let choice = choose_constants(&candidates, room, granule);
        assert_eq!(choice.benefit, brute(&candidates, room, granule));
        assert_eq!(choice.bound, choice.benefit);
        let taken = choice.chosen.iter().map(|index| candidates[*index]);
        let size: u64 = taken.map(|one| granule.up(one.size).expect("small")).sum();
        assert!(size <= room);
        let mut turned = candidates.clone();
        turned.reverse();
        assert_eq!(choose_constants(&turned, room, granule).benefit, choice.benefit);
    }
}

#[test]
fn large_banks_get_at_least_half_and_an_honest_bound() {
    let mut next = random(5);
    for _ in 0..100 {
        let mut candidate = |_| Candidate { size: 1 + next(1 << 30), benefit: 1 + next(1000) };
        let candidates: Vec<_> = (0..12).map(&mut candidate).collect();
        let room = 1 << 31;
        let choice = choose_constants(&candidates, room, Align::ONE);
        let best = brute(&candidates, room, Align::ONE);
        assert!(2 * choice.benefit >= best, "{} of {best}", choice.benefit);
        assert!(choice.bound >= best && choice.benefit <= best);
    }
}

#[test]
fn a_dense_crumb_does_not_keep_the_best_one_out() {
    let room = 1 << 31;
    let wanted = [(1, 2), (room, 1_000_000)].map(|(size, benefit)| Candidate { size, benefit });
    let choice = choose_constants(&wanted, room, Align::ONE);
    assert_eq!((choice.chosen, choice.benefit), (vec![1], 1_000_000));
}

#[test]
fn a_large_bank_is_filled_to_its_last_byte() {
    let (room, half) = (1 << 31, 1 << 30);
    let wanted = [(half, 9), (half, 8), (half, 1)];
    let wanted = wanted.map(|(size, benefit)| Candidate { size, benefit });
    let choice = choose_constants(&wanted, room, Align::ONE);
    assert_eq!((choice.chosen, choice.benefit), (vec![0, 1], 17));
}

#[test]
fn what_is_worth_nothing_or_never_fits_stays_out() {
    let wanted = [(100, 0), (10_000, 9), (100, 1), (u64::MAX, 5)];
    let wanted = wanted.map(|(size, benefit)| Candidate { size, benefit });
    let choice = choose_constants(&wanted, 4096, Align::of(256));
    assert_eq!((choice.chosen, choice.benefit), (vec![2], 1));
    assert_eq!(choose_constants(&[], 0, Align::ONE).benefit, 0);
}
