//! Chooses a region for every buffer when there are several.

use crate::bound::{first_overlap, lower_bound};
use crate::classes::Classes;
use crate::greedy::Portfolio;
use crate::model::{Model, peak_of};
use crate::region::Task;
use crate::{Problem, RegionSet};
use alloc::vec::Vec;

/// Greedy rules tried before buffers are moved on.
const TRIES: usize = 4;

/// A region for each buffer, on the way to one in which everything fits.
pub(crate) struct Assign<'a> {
    problem: &'a Problem,
    classes: Classes,
    /// The regions that suit each class, by first buffer.
    allowed: Vec<RegionSet>,
    /// Regions by cost.
    order: Vec<usize>,
    region: Vec<usize>,
}

impl<'a> Assign<'a> {
    /// Assigns every buffer to the cheapest region that suits it.
    pub(crate) fn new(problem: &'a Problem) -> Self {
        let classes = Classes::new(problem);
        let allowed = classes.allowed(problem);
        let mut order: Vec<usize> = (0..problem.regions.len()).collect();
        order.sort_by_key(|&r| (problem.regions[r].cost, r));
        let region = Vec::new();
        let mut assign = Self { problem, classes, allowed, order, region };
        let first = |i: usize| {
            let own =
                || assign.order.iter().copied().find(|&r| problem.buffers[i].regions.contains(r));
            // Bytes that are never needed have no class to agree with.
            let class = assign.next(i, 0).filter(|&r| problem.buffers[i].regions.contains(r));
            class.or_else(own).unwrap_or(0)
        };
        assign.region = (0..problem.buffers.len()).map(first).collect();
        assign
    }

    /// Returns the first region from the `at`-th on that suits a buffer.
    fn next(&self, buffer: usize, at: usize) -> Option<usize> {
        let allowed = self.allowed[self.classes.root(buffer)];
        self.order[at..].iter().copied().find(|&r| allowed.contains(r))
    }

    /// Returns the only region that suits a buffer.
    pub(crate) fn forced(&self, buffer: usize) -> Option<usize> {
        let region = self.next(buffer, 0)?;
        let allowed = self.allowed[self.classes.root(buffer)];
        let here = RegionSet::below(self.problem.regions.len());
        (allowed.meet(here) == RegionSet::only(region)).then_some(region)
    }

    /// Moves buffers on until each region holds what it can.
    ///
    /// # Algorithm
    /// Regions are filled in order of cost. Each first has every buffer that may live there and is in no cheaper one.
    /// Fixed buffers that overlap move on; then a few greedy rules place the rest, and those that end behind the capacity
    /// move on, until the rest fits or none can move.
    ///
    /// # Cost
    /// O(r·m·n log n) for r regions and the m times that buffers move on, which is rarely more than three.
    pub(crate) fn run(mut self, task: &Task<'_>) -> Vec<usize> {
        for (at, here) in self.order.clone().into_iter().enumerate() {
            loop {
                let model = Model::new(self.problem, here, |i| self.region[i] == here);
                let mut moved = self.move_clashing(&model, at);
                if !moved && let Some(capacity) = self.problem.regions[here].capacity {
                    let offsets = best_greedy(&model, task);
                    let high: Vec<bool> =
                        (0..model.len()).map(|i| offsets[i] + model.size[i] > capacity).collect();
                    moved = self.move_items(&model, at, |item| high[item as usize]);
                }
                if !moved {
                    break;
                }
            }
        }
        self.region
    }

    /// Moves a fixed item that overlaps another.
    fn move_clashing(&mut self, model: &Model, at: usize) -> bool {
        let Some((_, a, b)) = first_overlap(model) else { return false };
        self.move_items(model, at, |item| item == b) || self.move_items(model, at, |item| item == a)
    }

    /// Moves the buffers of the items that `moves` names and that have a region to go to; false when there are none.
    fn move_items(&mut self, model: &Model, at: usize, moves: impl Fn(u32) -> bool) -> bool {
        let mut moved = false;
        for (index, item) in model.item_of.iter().enumerate() {
            if item.is_some_and(&moves)
                && let Some(next) = self.next(index, at + 1)
            {
                self.region[index] = next;
                moved = true;
            }
        }
        moved
    }
}

fn best_greedy(model: &Model, task: &Task<'_>) -> Vec<u64> {
    let mut portfolio = Portfolio::new(task.options.seed, lower_bound(model));
    let mut best = Vec::new();
    let mut least = u64::MAX;
    while portfolio.tries() < TRIES {
        let Some(offsets) = portfolio.next(model, task.stop) else { break };
        let peak = peak_of(model, &offsets);
        if peak < least || best.is_empty() {
            least = peak;
            best = offsets;
        }
    }
    best
}
