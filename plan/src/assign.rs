//! Chooses a region for every buffer when there are several.

use crate::greedy::{Portfolio, peak_of};
use crate::model::{Model, roots};
use crate::problem::{Problem, RegionSet};
use crate::region::Task;
use alloc::vec::Vec;

/// The region of each buffer.
#[derive(Debug)]
pub(crate) struct Assigned {
    pub(crate) region: Vec<usize>,
}

impl Assigned {
    /// Says whether every buffer of a region has no other region to go to, so that what is proven for the region is
    /// proven for the problem.
    pub(crate) fn forced(&self, problem: &Problem, region: usize) -> bool {
        let others = |i: usize| {
            (0..problem.regions.len())
                .any(|r| r != region && problem.buffers[i].regions.contains(r))
        };
        (0..problem.buffers.len()).filter(|&i| self.region[i] == region).all(|i| !others(i))
    }
}

/// Greedy rules tried before buffers are moved on.
const TRIES: usize = 4;

/// Assigns buffers to regions.
///
/// # Algorithm
/// Regions are filled in order of cost. Each first gets every buffer that may live there and is not placed yet; a few
/// greedy rules place them; those that end behind the capacity and may live in a later region move on, until the rest
/// fits or nobody can move.
///
/// # Cost
/// O(r·m·n log n) for r regions and the m times that buffers move on, which is rarely more than three.
pub(crate) fn assign(problem: &Problem, task: &Task<'_>) -> Assigned {
    let root = roots(problem);
    let mut allowed: Vec<RegionSet> = alloc::vec![RegionSet::ALL; problem.buffers.len()];
    for (index, buffer) in problem.buffers.iter().enumerate() {
        allowed[root[index]] = allowed[root[index]].meet(buffer.regions);
    }
    let mut order: Vec<usize> = (0..problem.regions.len()).collect();
    order.sort_by_key(|&r| (problem.regions[r].cost, r));
    let first_from =
        |class: usize, at: usize| order[at..].iter().copied().find(|&r| allowed[class].contains(r));
    let mut region: Vec<usize> = (0..problem.buffers.len())
        // A class whose sets do not meet goes where its first buffer may go; the plan then says that it does not fit.
        .map(|i| {
            first_from(root[i], 0)
                .or_else(|| order.iter().copied().find(|&r| problem.buffers[i].regions.contains(r)))
        })
        .map(|r| r.unwrap_or(0))
        .collect();
    for (at, &here) in order.iter().enumerate() {
        let Some(capacity) = problem.regions[here].capacity else { continue };
        loop {
            let model = Model::new(problem, here, |i| region[i] == here);
            let offsets = best_greedy(&model, task);
            let moving = |i: &usize| {
                let over = model.item_of[*i].map(|item| item as usize);
                over.is_some_and(|o| offsets[o] + model.size[o] > capacity)
                    && first_from(root[*i], at + 1).is_some()
            };
            let moved: Vec<usize> = (0..problem.buffers.len()).filter(moving).collect();
            for &i in &moved {
                region[i] = first_from(root[i], at + 1).unwrap_or(here);
            }
            if moved.is_empty() {
                break;
            }
        }
    }
    Assigned { region }
}

fn best_greedy(model: &Model, task: &Task<'_>) -> Vec<u64> {
    let mut portfolio = Portfolio::new(task.options.seed);
    let mut best = Vec::new();
    let mut least = u64::MAX;
    while portfolio.tries() < TRIES
        && let Some(offsets) = portfolio.next(model)
    {
        let peak = peak_of(model, &offsets);
        if peak < least || best.is_empty() {
            least = peak;
            best = offsets;
        }
    }
    best
}
