//! Advice when a problem does not fit: what to spill, the capacity needed, the largest batch that fits.

use crate::Problem;
use crate::ProblemError;
use crate::model::Model;
use crate::options::Options;
use crate::plan::Plan;
use crate::solve::{solve, solve_until};
use crate::stop::Stop;
use alloc::collections::BTreeSet;
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
    /// Certainty that the set is the cheapest.
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
/// Plans in which something that was spilled is back.
const TRIES: u32 = 64;

/// Finds a cheap set of buffers to spill so that the others fit the first region.
///
/// Buffers without a spill cost stay, and so do those that share bytes with another. Returns `None` when even spilling all others
/// is not enough.
///
/// # Algorithm
/// Branch and bound over the fullest tick: one of the spillable buffers alive there must go. The bound is the cheapest
/// fraction of them that covers the excess. Then the rest is planned; if it does not fit although its load does, the
/// search is repeated for a capacity smaller by the excess. Where no load helps, because alignment or fixed places waste the room,
/// everything spillable goes. What fits of a set that is not proven comes back, the dearest first.
///
/// # Cost
/// At most 200,000 states of O(n) each, and about 80 calls of [`solve`]. The time limit holds for all of it together; what is
/// found late comes from one greedy rule and is not cheap.
///
/// # Errors
/// Those of [`Problem::check`].
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
        cover.search();
        let Some(chosen) = cover.best.take() else { break };
        let plan = solve_until(&without(problem, &chosen), options, stop);
        if plan.fits() && round == 0 && !cover.cut {
            return Some(Spill {
                buffers: chosen,
                cost: cover.best_cost,
                plan,
                proof: Proof::Best,
            });
        }
        if plan.fits() {
            return Some(take_back(problem, chosen, plan, options, stop));
        }
        // Late plans come from one greedy rule, and waste more.
        let step = capacity / if stop.now() { 8 } else { 256 };
        aim = aim.saturating_sub(plan.peak().saturating_sub(capacity).max(step).max(1));
    }
    let open = Cover::new(problem, &model, capacity, stop).open;
    let all: Vec<usize> = (0..open.len()).filter(|&i| open[i]).collect();
    let plan = solve_until(&without(problem, &all), options, stop);
    plan.fits().then(|| take_back(problem, all, plan, options, stop))
}

/// Takes back what fits of a set that is not proven: halves of it first, then smaller parts, the dearest first.
fn take_back(
    problem: &Problem,
    mut chosen: Vec<usize>,
    mut plan: Plan,
    options: &Options<'_>,
    stop: &Stop<'_>,
) -> Spill {
    let price = |i: usize| problem.buffers[i].spill_cost.unwrap_or(0);
    chosen.sort_by_key(|&i| core::cmp::Reverse(price(i)));
    let mut tries = 0;
    let mut part = chosen.len().div_ceil(2);
    while part > 0 {
        let mut at = 0;
        while at < chosen.len() && tries < TRIES && !stop.now() {
            tries += 1;
            let behind = chosen.len().min(at + part);
            let fewer = [&chosen[..at], &chosen[behind..]].concat();
            let larger = solve_until(&without(problem, &fewer), options, stop);
            if larger.fits() {
                (chosen, plan) = (fewer, larger);
            } else {
                at = behind;
            }
        }
        part /= 2;
    }
    let cost = chosen.iter().fold(0u64, |sum, &i| sum.saturating_add(price(i)));
    Spill { buffers: chosen, cost, plan, proof: Proof::Found }
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

/// A spillable buffer of a section.
#[derive(Clone, Copy)]
struct Choice {
    index: usize,
    size: u64,
    price: u64,
}

/// A change at a section of what is alive; ends come first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sign {
    Ends,
    Starts,
}

/// A step on the way to a state of the search.
#[derive(Clone, Copy)]
enum Decision {
    /// The buffer is spilled; what all before it cost.
    Spilled(Choice, u64),
    /// The buffer stays.
    Barred(usize),
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
    cost: u64,
    best: Option<Vec<usize>>,
    best_cost: u64,
    states: u32,
    /// True if the search ended before it had seen everything.
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
            cost: 0,
            best: None,
            best_cost: u64::MAX,
            states: 0,
            cut: false,
        }
    }

    /// Finds the cheapest set whose absence leaves no section overfull, or the best one until time or states run out.
    fn search(&mut self) {
        self.spill_misplaced();
        self.spill_greedily();
        if self.best.is_none() {
            return;
        }
        // A list of decisions and not recursion: a path is as long as the set.
        let mut path: Vec<Decision> = Vec::new();
        loop {
            let next = if self.is_over() { None } else { self.next_choice() };
            if let Some(choice) = next {
                path.push(Decision::Spilled(choice, self.cost));
                self.spill(choice);
                continue;
            }
            loop {
                match path.pop() {
                    None => return,
                    Some(Decision::Barred(index)) => self.barred[index] = false,
                    Some(Decision::Spilled(choice, before)) => {
                        self.take_back(choice, before);
                        self.barred[choice.index] = true;
                        path.push(Decision::Barred(choice.index));
                        break;
                    }
                }
            }
        }
    }

    /// Spills the buffers whose fixed place ends behind the capacity: no set without them helps.
    fn spill_misplaced(&mut self) {
        let problem = self.problem;
        let capacity = problem.regions[0].capacity.unwrap_or(u64::MAX);
        for (index, buffer) in problem.buffers.iter().enumerate() {
            let behind = buffer.fixed.is_some_and(|at| at.saturating_add(buffer.size) > capacity);
            if let Some(price) = buffer.spill_cost.filter(|_| self.open[index] && behind) {
                self.spill(Choice { index, size: buffer.size, price });
            }
        }
    }

    /// Finds a first set in one walk over time: where a section is overfull, the buffers alive there go that are cheapest for each byte.
    /// None is found where even all of them are not enough.
    fn spill_greedily(&mut self) {
        let mut events: Vec<(u32, Sign, usize)> = Vec::new();
        for index in (0..self.open.len()).filter(|&i| self.open[i] && !self.taken[i]) {
            let Some(item) = self.model.item_of[index] else { continue };
            let runs = self.model.runs(item as usize).iter();
            events.extend(
                runs.flat_map(|&(from, to)| [(from, Sign::Starts, index), (to, Sign::Ends, index)]),
            );
        }
        events.sort_unstable();
        let mut events = events.into_iter().peekable();
        let mut first: BTreeSet<(u128, usize)> = BTreeSet::new();
        let (mut goes, mut gone) = (alloc::vec![false; self.open.len()], 0);
        let (mut chosen, mut cost) = (self.chosen.clone(), self.cost);
        for (section, &load) in (0u32..).zip(&self.load) {
            while let Some((_, sign, index)) = events.next_if(|event| event.0 <= section) {
                let size = self.problem.buffers[index].size;
                match (sign, goes[index]) {
                    (Sign::Starts, true) => gone += size,
                    (Sign::Ends, true) => gone -= size,
                    (Sign::Starts, false) => drop(first.insert(self.by_price(index))),
                    (Sign::Ends, false) => drop(first.remove(&self.by_price(index))),
                }
            }
            while load - gone > self.capacity {
                let Some((_, index)) = first.pop_first() else { return };
                (goes[index], gone) = (true, gone + self.problem.buffers[index].size);
                cost = cost.saturating_add(self.problem.buffers[index].spill_cost.unwrap_or(0));
                chosen.push(index);
            }
        }
        (self.best, self.best_cost) = (Some(chosen), cost);
    }

    /// Returns what sorts a buffer by its price for each byte.
    fn by_price(&self, index: usize) -> (u128, usize) {
        let buffer = &self.problem.buffers[index];
        let price = u128::from(buffer.spill_cost.unwrap_or(0)) << 64;
        (price / u128::from(buffer.size.max(1)), index)
    }

    /// Returns whether there is no time for more, or enough states were seen.
    fn is_over(&mut self) -> bool {
        let steps = u64::from(self.states) * self.problem.buffers.len() as u64;
        self.cut |= self.states >= STATES || steps >= STEPS || self.stop.now();
        self.cut
    }

    /// Returns the fullest section and its excess, or `None` if all sections fit.
    fn fullest(&self) -> Option<(usize, u64)> {
        let (section, &load) = self.load.iter().enumerate().max_by_key(|&(_, &load)| load)?;
        (load > self.capacity).then(|| (section, load - self.capacity))
    }

    /// Returns the buffer to decide on next; `None` where the state is a set, which is noted, or cannot become a cheaper one.
    fn next_choice(&mut self) -> Option<Choice> {
        self.states += 1;
        let Some((section, excess)) = self.fullest() else {
            if self.cost < self.best_cost {
                (self.best, self.best_cost) = (Some(self.chosen.clone()), self.cost);
            }
            return None;
        };
        let choices = self.choices(section);
        let bound = least_cost(&choices, excess)?;
        let first = choices.first().copied();
        first.filter(|_| self.cost.saturating_add(bound) < self.best_cost)
    }

    /// Lists the buffers that may be spilled in an overfull section, the cheapest for each byte that counts first: this makes the bound
    /// tight and the first answer good.
    fn choices(&self, section: usize) -> Vec<Choice> {
        let mut found = Vec::new();
        for (index, buffer) in self.problem.buffers.iter().enumerate() {
            let free = self.open[index] && !self.taken[index] && !self.barred[index];
            let (Some(item), Some(price)) = (self.model.item_of[index], buffer.spill_cost) else {
                continue;
            };
            let live = |r: &(u32, u32)| (r.0 as usize) <= section && section < r.1 as usize;
            if free && self.model.runs(item as usize).iter().any(live) {
                found.push(Choice { index, size: buffer.size, price });
            }
        }
        let excess = self.load[section].saturating_sub(self.capacity);
        let useful = |choice: &Choice| u128::from(choice.size.min(excess));
        found.sort_by(|a, b| {
            let (x, y) = (u128::from(a.price) * useful(b), u128::from(b.price) * useful(a));
            x.cmp(&y).then(b.size.cmp(&a.size)).then(a.index.cmp(&b.index))
        });
        found
    }

    fn spill(&mut self, choice: Choice) {
        self.change(choice, |load, size| load - size);
        self.taken[choice.index] = true;
        self.chosen.push(choice.index);
        self.cost = self.cost.saturating_add(choice.price);
    }

    /// Undoes the last [`spill`](Self::spill), before which all cost `before`.
    fn take_back(&mut self, choice: Choice, before: u64) {
        self.change(choice, |load, size| load + size);
        self.taken[choice.index] = false;
        self.chosen.pop();
        self.cost = before;
    }

    fn change(&mut self, choice: Choice, by: impl Fn(u64, u64) -> u64) {
        let Some(item) = self.model.item_of[choice.index] else { return };
        for &(from, to) in self.model.runs(item as usize) {
            for load in &mut self.load[from as usize..to as usize] {
                *load = by(*load, choice.size);
            }
        }
    }
}

/// Returns a lower bound for what it costs to free `excess` bytes, with fractions of buffers, or `None` if there are not enough
/// bytes.
fn least_cost(choices: &[Choice], excess: u64) -> Option<u64> {
    let mut left = excess;
    let mut cost = 0u64;
    for choice in choices {
        let useful = choice.size.min(excess);
        if useful >= left {
            let part = u128::from(choice.price) * u128::from(left) / u128::from(useful.max(1));
            return Some(cost.saturating_add(u64::try_from(part).unwrap_or(u64::MAX)));
        }
        left -= useful;
        cost = cost.saturating_add(choice.price);
    }
    None
}

/// Finds a capacity of the first region that suffices, by planning without a limit.
///
/// # Errors
/// Those of [`Problem::check`].
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
/// Those of [`Problem::check`] for a factor that is tried; a sum of sizes that overflows counts as "does not fit".
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
