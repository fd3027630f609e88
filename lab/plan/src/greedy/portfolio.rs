//! Tries one greedy rule after another, and then the one that leaves least uncovered with chance.

use super::cover::{Taste, cover};
use super::order::Rule;
use super::skyline::{Aim, skyline};
use crate::first_fit::{first_fit, first_fit_around, mended};
use crate::model::Model;
use crate::online::{Fit, online};
use crate::rng::Rng;
use crate::stop::Stop;
use alloc::vec::Vec;

/// One way to place all items.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Online(Fit),
    FirstFit(Rule),
    Skyline(Rule, Aim),
    /// Covers, with the worth of life and size.
    Cover(f64, f64),
}

/// Every way: the fastest first, then the most promising.
const WAYS: [Way; 16] = [
    Way::Online(Fit::Best),
    Way::Skyline(Rule::Life, Aim::Rank),
    Way::Online(Fit::First),
    Way::FirstFit(Rule::Size),
    Way::FirstFit(Rule::Area),
    Way::Cover(0.1, 0.1),
    Way::Cover(0.5, 0.5),
    Way::Skyline(Rule::Area, Aim::Rank),
    Way::Skyline(Rule::Load, Aim::Rank),
    Way::Cover(0.1, 2.0),
    Way::Cover(2.0, 2.0),
    Way::Cover(0.5, 0.0),
    Way::Cover(0.0, 0.5),
    Way::Skyline(Rule::Life, Aim::Fullest),
    Way::Skyline(Rule::Area, Aim::Fullest),
    Way::Skyline(Rule::Load, Aim::Fullest),
];

/// A sequence of greedy placements, the most promising first.
#[derive(Debug)]
pub(crate) struct Portfolio {
    rng: Rng,
    tries: usize,
    /// Peak that covers aim at.
    target: u64,
}

impl Portfolio {
    /// Placements without chance.
    pub(crate) const WAYS: usize = WAYS.len();
    /// Placements after which every textbook rule was tried: in order of time, by size, by size and life.
    pub(crate) const TEXTBOOK: usize = 5;

    pub(crate) const fn new(seed: u64, target: u64) -> Self {
        Self { rng: Rng::new(seed), tries: 0, target }
    }

    /// Returns the number of placements made.
    pub(crate) const fn tries(&self) -> usize {
        self.tries
    }

    /// Leaves out the ways before the `first`.
    pub(crate) const fn skip(&mut self, first: usize) {
        self.tries = first;
    }

    /// Returns the next placement; none if it was stopped, which the first never is.
    pub(crate) fn next(&mut self, model: &Model, stop: &Stop<'_>) -> Option<Vec<u64>> {
        let n = self.tries;
        self.tries += 1;
        if model.len() == 0 {
            return Some(Vec::new());
        }
        if n == 0 && model.hint.iter().any(Option::is_some) {
            return Some(first_fit_around(model, &Rule::Life.order(model), &model.fixed));
        }
        let offsets = match WAYS.get(n) {
            Some(&Way::Online(fit)) => online(model, fit),
            Some(Way::FirstFit(rule)) => {
                return first_fit(model, &rule.order(model), &model.fixed, stop);
            }
            Some(&Way::Skyline(rule, aim)) => skyline(model, &rule.order(model), aim),
            Some(&Way::Cover(life, size)) => self.cover(model, life, size, 0.0),
            None => {
                let (life, size) = (2.0 * self.rng.unit(), 2.0 * self.rng.unit());
                self.cover(model, life * life, size * size, 0.3)
            }
        };
        Some(mended(model, offsets))
    }

    fn cover(&mut self, model: &Model, life: f64, size: f64, chance: f64) -> Vec<u64> {
        cover(model, self.target, Taste { life, size, chance }, &mut self.rng)
    }
}

#[cfg(test)]
mod tests;
