//! Advice when a problem does not fit: what to spill, the capacity needed, the largest batch that fits.

use crate::check::ProblemError;
use crate::model::Model;
use crate::options::Options;
use crate::plan::Plan;
use crate::problem::Problem;
use crate::solve::{solve, solve_until};
use crate::stop::Stop;
use alloc::vec::Vec;

/// Buffers to spill or recompute so that the rest fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spill {
    /// The buffers, by index.
    pub buffers: Vec<usize>,
    /// Sum of their costs.
    pub cost: u64,
    /// A plan for the rest; spilled buffers have no bytes in it and a spot without meaning.
    pub plan: Plan,
    /// Whether the set is proven to be the cheapest.
    pub proof: Proof,
}

/// Certainty of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Nothing better exists.
    Best,
    /// Nothing better was found.
    Found,
}

/// States of the covering search, at most.
const STATES: u32 = 200_000;
/// Looks at a buffer that they may take together.
const STEPS: u64 = 200_000_000;
/// Capacities that are tried.
const ROUNDS: u32 = 16;

/// Finds a cheap set of buffers to spill so that the others fit the first region.
///
/// Buffers without a spill cost stay. Returns `None` when even spilling all others is not enough.
///
/// # Algorithm
/// Branch and bound over the fullest tick: one of the spillable buffers alive there must go. The bound is the cheapest
/// fraction of them that covers the excess. Then the rest is planned; if it does not fit although its load does, the
/// search is repeated for a capacity smaller by the excess.
///
/// # Cost
/// At most 200,000 states of O(n) each, and a few calls of [`solve`]. The time limit holds for all of it together; what is found
/// late comes from one greedy rule and is not cheap.
///
/// # Errors
/// When [`Problem::check`] does.
pub fn spill(problem: &Problem, options: &Options<'_>) -> Result<Option<Spill>, ProblemError> {
    problem.check()?;
    Ok(options.timed(|stop| spill_until(problem, options, stop)))
}

fn spill_until(problem: &Problem, options: &Options<'_>, stop: &Stop<'_>) -> Option<Spill> {
    let plan = solve_until(problem, options, stop);
    let Some(capacity) = problem.regions[0].capacity.filter(|_| !plan.fits()) else {
        return Some(Spill { buffers: Vec::new(), cost: 0, plan, proof: Proof::Best });
    };
    let model = Model::new(problem, 0, |_| true);
    let mut aim = capacity;
    for round in 0..ROUNDS {
        let mut cover = Cover::new(problem, &model, aim, stop);
        cover.branch(0);
        let chosen = cover.best.take()?;
        let plan = solve_until(&without(problem, &chosen), options, stop);
        if plan.fits() {
            let proof = if round == 0 && !cover.cut { Proof::Best } else { Proof::Found };
            return Some(Spill { buffers: chosen, cost: cover.best_cost, plan, proof });
        }
        // Late plans come from one greedy rule, and waste more.
        let step = capacity / if stop.now() { 8 } else { 256 };
        aim = aim.saturating_sub(plan.peak().saturating_sub(capacity).max(step).max(1));
    }
    None
}

/// Returns the problem in which some buffers have no bytes.
fn without(problem: &Problem, chosen: &[usize]) -> Problem {
    let mut rest = problem.clone();
    for &i in chosen {
        rest.buffers[i].size = 0;
        rest.buffers[i].fixed = None;
    }
    rest
}

/// A weighted covering search over the overfull sections.
struct Cover<'a> {
    problem: &'a Problem,
    model: &'a Model,
    capacity: u64,
    stop: &'a Stop<'a>,
    /// Bytes alive in each section less what is spilled on the way here.
    load: Vec<u64>,
    /// Buffers that may be spilled: those with a cost that share their bytes with no other.
    open: Vec<bool>,
    /// Per buffer: spilled, or ruled out on the way here.
    taken: Vec<bool>,
    barred: Vec<bool>,
    chosen: Vec<usize>,
    best: Option<Vec<usize>>,
    best_cost: u64,
    states: u32,
    /// Whether the search ended before it had seen everything.
    cut: bool,
}

impl<'a> Cover<'a> {
    fn new(problem: &'a Problem, model: &'a Model, capacity: u64, stop: &'a Stop<'a>) -> Self {
        let n = problem.buffers.len();
        let here = |i: usize| model.item_of[i].is_some() && problem.buffers[i].spill_cost.is_some();
        let mut open: Vec<bool> = (0..n).map(here).collect();
        for &(a, b) in &problem.aliases {
            (open[a], open[b]) = (false, false);
        }
        Self {
            problem,
            model,
            capacity,
            stop,
            load: model.load.clone(),
            open,
            taken: alloc::vec![false; n],
            barred: alloc::vec![false; n],
            chosen: Vec::new(),
            best: None,
            best_cost: u64::MAX,
            states: 0,
            cut: false,
        }
    }

    /// Returns whether to stop the search here: there is a set, and no time for more or enough states. The first set costs one
    /// state for each of its buffers, so it is always found.
    fn is_over(&mut self) -> bool {
        let steps = u64::from(self.states) * self.problem.buffers.len() as u64;
        let enough = self.states >= STATES || steps >= STEPS;
        self.cut |= self.best.is_some() && (enough || self.stop.now());
        self.cut
    }

    fn branch(&mut self, cost: u64) {
        self.states += 1;
        let fullest = self
            .load
            .iter()
            .enumerate()
            .max_by_key(|&(_, &l)| l)
            .filter(|&(_, &l)| l > self.capacity);
        let Some((section, &load)) = fullest else {
            if cost < self.best_cost {
                self.best_cost = cost;
                self.best = Some(self.chosen.clone());
            }
            return;
        };
        let excess = load - self.capacity;
        let mut options = self.options(section);
        // Cheapest per byte that counts first; it makes the bound tight and the first answer good.
        let useful = |o: &(usize, u64, u64)| o.1.min(excess);
        options.sort_by(|a, b| {
            let (x, y) =
                (u128::from(a.2) * u128::from(useful(b)), u128::from(b.2) * u128::from(useful(a)));
            x.cmp(&y).then(b.1.cmp(&a.1)).then(a.0.cmp(&b.0))
        });
        if cost.saturating_add(least_cost(&options, excess)) >= self.best_cost {
            return;
        }
        for &(index, size, price) in &options {
            if self.is_over() {
                break;
            }
            self.apply(index, size, Sign::Take);
            self.branch(cost.saturating_add(price));
            self.apply(index, size, Sign::Give);
            self.barred[index] = true;
        }
        for &(index, ..) in &options {
            self.barred[index] = false;
        }
    }

    /// Returns the buffers that may be spilled in a section: index, bytes, cost.
    fn options(&self, section: usize) -> Vec<(usize, u64, u64)> {
        let mut found = Vec::new();
        for (index, buffer) in self.problem.buffers.iter().enumerate() {
            let free = self.open[index] && !self.taken[index] && !self.barred[index];
            let (Some(item), Some(price)) = (self.model.item_of[index], buffer.spill_cost) else {
                continue;
            };
            let live = |r: &(u32, u32)| (r.0 as usize) <= section && section < r.1 as usize;
            if free && self.model.runs(item as usize).iter().any(live) {
                found.push((index, buffer.size, price));
            }
        }
        found
    }

    fn apply(&mut self, index: usize, size: u64, sign: Sign) {
        let Some(item) = self.model.item_of[index] else { return };
        for &(from, to) in self.model.runs(item as usize) {
            for load in &mut self.load[from as usize..to as usize] {
                match sign {
                    Sign::Take => *load -= size,
                    Sign::Give => *load += size,
                }
            }
        }
        self.taken[index] = sign == Sign::Take;
        match sign {
            Sign::Take => self.chosen.push(index),
            Sign::Give => {
                self.chosen.pop();
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    Take,
    Give,
}

/// Returns a lower bound for what it costs to free `excess` bytes, with fractions of buffers; no cost at all if there are not
/// enough bytes, because then the branches find out.
fn least_cost(options: &[(usize, u64, u64)], excess: u64) -> u64 {
    let mut left = excess;
    let mut cost = 0u64;
    for &(_, size, price) in options {
        let useful = size.min(excess);
        if useful >= left {
            let part = u128::from(price) * u128::from(left) / u128::from(useful.max(1));
            return cost.saturating_add(u64::try_from(part).unwrap_or(u64::MAX));
        }
        left -= useful;
        cost = cost.saturating_add(price);
    }
    0
}

/// Finds a capacity of the first region that suffices, by planning without a limit.
///
/// # Errors
/// When [`Problem::check`] does.
pub fn sufficient_capacity(problem: &Problem, options: &Options<'_>) -> Result<u64, ProblemError> {
    let mut open = problem.clone();
    open.regions[0].capacity = None;
    Ok(solve(&open, options)?.usage[0].peak)
}

/// Finds the largest factor up to `most` for which a problem whose sizes grow with the factor fits.
///
/// `scaled` makes the problem of a factor, sizes growing with it. Returns `None` when factor 1 does not fit.
///
/// # Algorithm
/// Doubles until it does not fit, and then halves the interval.
///
/// # Cost
/// O(log most) calls of [`solve`].
///
/// # Errors
/// When [`Problem::check`] does for a factor that is tried; a sum of sizes that overflows counts as "does not fit".
pub fn largest_batch(
    most: u64,
    options: &Options<'_>,
    scaled: impl Fn(u64) -> Problem,
) -> Result<Option<(u64, Plan)>, ProblemError> {
    let fits = |factor: u64| match solve(&scaled(factor), options) {
        Ok(plan) => Ok(plan.fits().then_some(plan)),
        Err(ProblemError::Overflow { .. }) => Ok(None),
        Err(error) => Err(error),
    };
    let Some(mut best) = fits(1)?.filter(|_| most > 0).map(|plan| (1, plan)) else {
        return Ok(None);
    };
    let mut limit = most.saturating_add(1);
    let mut step = 2;
    while best.0 + 1 < limit {
        let factor = if step < limit { step } else { u64::midpoint(best.0, limit) };
        match fits(factor)? {
            Some(plan) => best = (factor, plan),
            None => limit = factor,
        }
        step = step.saturating_mul(2);
    }
    Ok(Some(best))
}
