//! Tries one greedy rule after another, and then the best of them again with chance.

use super::first_fit::first_fit_around;
use super::online::online;
use super::order::Rule;
use super::skyline::{Aim, skyline};
use crate::model::{Model, id};
use crate::rng::Rng;
use crate::timetable::Timetable;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// One way to place all items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Online,
    FirstFit(Rule),
    Skyline(Rule, Aim),
}

/// Every way: the fastest first, then the most promising.
const WAYS: [Way; 14] = [
    Way::Online,
    Way::Skyline(Rule::Life, Aim::Rank),
    Way::Skyline(Rule::Area, Aim::Rank),
    Way::Skyline(Rule::Size, Aim::Rank),
    Way::Skyline(Rule::Load, Aim::Rank),
    Way::FirstFit(Rule::Size),
    Way::Skyline(Rule::Bulk, Aim::Rank),
    Way::Skyline(Rule::Life, Aim::Fullest),
    Way::Skyline(Rule::Area, Aim::Fullest),
    Way::Skyline(Rule::Size, Aim::Fullest),
    Way::Skyline(Rule::Load, Aim::Fullest),
    Way::Skyline(Rule::Bulk, Aim::Fullest),
    Way::FirstFit(Rule::Area),
    Way::FirstFit(Rule::Life),
];

/// A sequence of greedy placements, the most promising first.
#[derive(Debug)]
pub(crate) struct Portfolio {
    rng: Rng,
    tries: usize,
    /// Of the skyline with the lowest peak so far: the peak, the aim, the order.
    best: Option<(u64, Aim, Vec<u32>)>,
}

impl Portfolio {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), tries: 0, best: None }
    }

    /// Returns the number of placements made.
    pub(crate) const fn tries(&self) -> usize {
        self.tries
    }

    /// Returns the next placement.
    pub(crate) fn next(&mut self, model: &Model) -> Vec<u64> {
        let n = self.tries;
        self.tries += 1;
        if model.len() == 0 {
            return Vec::new();
        }
        let hinted = n == 0 && model.hint.iter().any(Option::is_some);
        match WAYS.get(n) {
            _ if hinted => first_fit_around(model, &Rule::Life.order(model), &model.fixed),
            Some(Way::Online) => mended(model, online(model)),
            Some(Way::FirstFit(rule)) => first_fit_around(model, &rule.order(model), &model.fixed),
            Some(&Way::Skyline(rule, aim)) => self.skyline(model, aim, rule.order(model)),
            None => {
                let (_, aim, order) = self.best.as_ref().expect("skylines are tried before");
                let (aim, order) = (*aim, varied(order, &mut self.rng));
                self.skyline(model, aim, order)
            }
        }
    }

    fn skyline(&mut self, model: &Model, aim: Aim, order: Vec<u32>) -> Vec<u64> {
        let offsets = mended(model, skyline(model, &order, aim));
        let peak = peak_of(model, &offsets);
        if self.best.as_ref().is_none_or(|b| peak <= b.0) {
            self.best = Some((peak, aim, order));
        }
        offsets
    }
}

/// Moves the items that overlap a fixed one or one that they must be separate from; the rules know neither.
fn mended(model: &Model, mut offsets: Vec<u64>) -> Vec<u64> {
    let is_fixed = |i: u32| model.fixed[i as usize].is_some();
    let fixed: Vec<u32> = (0..id(model.len())).filter(|&i| is_fixed(i)).collect();
    for &item in &fixed {
        offsets[item as usize] = model.fixed[item as usize].unwrap_or(0);
    }
    let meet = |a: u32, b: u32| {
        let place = |i: u32| (i as usize, offsets[i as usize]);
        model.overlap(place(a), place(b))
    };
    let mut moving = BTreeSet::new();
    if !fixed.is_empty() {
        let mut table = Timetable::new(model, |i| model.fixed[i].is_none());
        let mut met = Vec::new();
        for &item in &fixed {
            table.meet(&offsets, item, &mut met);
            moving.extend(met.iter().map(|e| e.item).filter(|&other| meet(item, other)));
        }
    }
    for a in 0..id(model.len()) {
        let others = model.apart(a as usize).map(|p| p.0).filter(|&b| b < a && meet(a, b));
        moving.extend(others.map(|b| if is_fixed(a) { b } else { a }).filter(|&i| !is_fixed(i)));
    }
    if moving.is_empty() {
        return offsets;
    }
    let mut places: Vec<Option<u64>> = offsets.into_iter().map(Some).collect();
    moving.iter().for_each(|&i| places[i as usize] = None);
    let mut order: Vec<u32> = moving.into_iter().collect();
    order.sort_by_key(|&i| Reverse(model.size[i as usize]));
    first_fit_around(model, &order, &places)
}

/// Moves items a short way up or down an order: many or few, far or near.
fn varied(order: &[u32], rng: &mut Rng) -> Vec<u32> {
    let mut order = order.to_vec();
    let n = order.len();
    let reach = (n >> (3 + rng.below(6))).max(2);
    for _ in 0..(n >> (2 + rng.below(6))) + 1 {
        let from = rng.index(n);
        let to = (from + rng.index(reach)).min(n - 1);
        order.swap(from, to);
    }
    order
}

/// Returns the highest end of an item.
pub(crate) fn peak_of(model: &Model, offsets: &[u64]) -> u64 {
    offsets.iter().zip(&model.size).map(|(o, s)| o + s).max().unwrap_or(0)
}
