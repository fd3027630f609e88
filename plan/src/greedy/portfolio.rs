//! Tries one greedy rule after another, and then all of them again with chance.

use super::first_fit::first_fit;
use super::order::Rule;
use super::skyline::{Aim, skyline};
use crate::model::Model;
use crate::rng::Rng;
use alloc::vec::Vec;

/// Every rule with every aim.
const FIXED_TRIES: usize = Rule::ALL.len() * AIMS.len();
const AIMS: [Aim; 2] = [Aim::Rank, Aim::Fullest];

/// A sequence of greedy placements, the most promising first.
#[derive(Debug)]
pub(crate) struct Portfolio {
    rng: Rng,
    tries: usize,
    /// Of the try with the lowest peak so far: the peak, the aim, the order.
    best: Option<(u64, Aim, Vec<u32>)>,
}

impl Portfolio {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), tries: 0, best: None }
    }

    /// How many placements were made.
    pub(crate) const fn tries(&self) -> usize {
        self.tries
    }

    /// The next placement; none when there is nothing left to try.
    pub(crate) fn next(&mut self, model: &Model) -> Option<Vec<u64>> {
        let n = self.tries;
        self.tries += 1;
        if model.len() == 0 {
            return (n == 0).then(Vec::new);
        }
        let hinted = model.hint.iter().any(Option::is_some);
        if model.has_fixed() || hinted || !model.is_plain() {
            let rule = Rule::ALL.get(n)?;
            return Some(first_fit(model, &rule.order(model)));
        }
        let (aim, order) = match &self.best {
            Some((_, aim, order)) if n >= FIXED_TRIES => (*aim, varied(order, &mut self.rng)),
            _ => (AIMS[n / Rule::ALL.len() % 2], Rule::ALL[n % Rule::ALL.len()].order(model)),
        };
        let offsets = skyline(model, &order, aim);
        let peak = peak_of(model, &offsets);
        if self.best.as_ref().is_none_or(|b| peak <= b.0) {
            self.best = Some((peak, aim, order));
        }
        Some(offsets)
    }
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

/// The highest end of an item.
pub(crate) fn peak_of(model: &Model, offsets: &[u64]) -> u64 {
    offsets.iter().zip(&model.size).map(|(o, s)| o + s).max().unwrap_or(0)
}
