//! Plans that change a program: which saved activations to keep, recompute or move so that the rest fits.

mod choose;
mod exact;
mod rows;
mod segments;

use crate::ProblemError;
use crate::model::Model;
use crate::options::Options;
use crate::plan::Plan;
use crate::solve::solve_until;
use crate::spill::Proof;
use crate::stop::Stop;
use crate::{Buffer, Interval, Problem};
use alloc::vec::Vec;
use choose::{Chosen, Relaxed};
use core::fmt;
use rows::Rows;
use segments::Segments;

/// A buffer that the forward pass makes and the backward pass reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activation {
    /// The buffer, by index.
    pub buffer: usize,
    /// From the last use in the forward pass to the first one in the backward pass.
    pub idle: Interval,
    /// Way to compute it again; `None` if that is impossible.
    pub recompute: Option<Recompute>,
    /// Cost of a move to the host and back; `None` if it must stay.
    pub move_cost: Option<u64>,
}

/// Way to compute an activation again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recompute {
    /// Cost in ticks, or in any other unit that all costs have.
    pub cost: u64,
    /// Activations that it is computed from, by index in the list of activations. Each begins before this one.
    pub reads: Vec<usize>,
    /// Bytes needed meanwhile for results that are not kept.
    pub scratch: u64,
}

/// The copy engines: one each way, beside the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// First tick of the backward pass: copies to the host end before it, copies back begin after it.
    pub turn: u64,
    /// Bytes that each engine copies in a tick; at least 1.
    pub bytes_per_tick: u64,
}

/// Treatment of an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The activation stays on the device.
    Keep,
    /// The activation is dropped, and computed again for the backward pass.
    Recompute,
    /// The activation is copied to the host and back.
    Move,
}

/// A choice for every activation, and a placement of what remains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tradeoff {
    /// The choice of each activation.
    pub choices: Vec<Choice>,
    /// Sum of their costs.
    pub cost: u64,
    /// No choices that fit cost less.
    pub lower_bound: u64,
    /// The changed program. Buffers keep their index and end early if they are dropped or moved; appended are the second
    /// lives, as `returns` lists them, and scratch memory.
    pub problem: Problem,
    /// Per activation: the buffer of its second life.
    pub returns: Vec<Option<usize>>,
    /// A plan for the changed program, which fits.
    pub plan: Plan,
    /// Certainty that the choices are the cheapest.
    pub proof: Proof,
}

/// Reason why there are no choices.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ActivationError {
    /// The problem makes no sense.
    Problem(ProblemError),
    /// An activation's numbers make no sense: name a buffer once, and a span inside its life; read what began before.
    Activation {
        /// The activation, by index.
        activation: usize,
    },
    /// The copy engines copy nothing: give them a byte per tick or more.
    Copies,
    /// These bytes are needed at one tick whatever is chosen.
    Floor {
        /// The tick.
        tick: u64,
        /// Bytes that are live then, at least.
        bytes: u64,
        /// Available bytes.
        capacity: u64,
    },
    /// No choices were found that fit, and none was excluded: allow more capacity or time.
    NotFound,
}

impl fmt::Display for ActivationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Problem(error) => error.fmt(f),
            Self::Activation { activation } => write!(
                f,
                "activation {activation} makes no sense: name its buffer once, an idle span inside of the buffer's life, and activations that began before it"
            ),
            Self::Copies => write!(f, "the copies move nothing: give them 1 byte per tick or more"),
            Self::Floor { tick, bytes, capacity } => write!(
                f,
                "at tick {tick} at least {bytes} bytes are live whatever is recomputed or moved, and {capacity} are there: make the step smaller, or allow more"
            ),
            Self::NotFound => {
                write!(f, "no choices were found that fit: allow more capacity or time")
            }
        }
    }
}

impl core::error::Error for ActivationError {}

impl From<ProblemError> for ActivationError {
    fn from(error: ProblemError) -> Self {
        Self::Problem(error)
    }
}

/// Capacities that are tried until the placed peak fits.
const ROUNDS: u32 = 16;

/// Chooses what to keep, to recompute and to move so that the placed program fits the first region at the least cost.
///
/// An activation that is recomputed needs what it reads: those are there again, by their own choices, from its own first
/// use on. Copies are hidden behind kernels: all that leave must have left, and all that return have returned, in time.
///
/// # Algorithm
/// The forward pass is cut into segments at several grains, and into the longest ones that have room in the backward pass. Within a segment everything is recomputed when the first of it is
/// needed; what a later segment reads is kept or moved. The choices are then independent but for the bytes of each
/// moment: Lagrange multipliers give a bound and prices, repairs give choices, and up to 200 activations are searched
/// exhaustively. The cheapest grain is placed by [`solve`](crate::solve); if the placement does not fit, the search is
/// repeated with less room at the moments that were passed, or for a capacity smaller by what the placement wastes.
///
/// # Errors
/// Bad input, or a capacity that cannot be reached. [`ActivationError::Floor`] is a proof.
pub fn trade(
    problem: &Problem,
    activations: &[Activation],
    copies: Option<Copies>,
    options: &Options<'_>,
) -> Result<Tradeoff, ActivationError> {
    problem.check()?;
    check(problem, activations, copies)?;
    options.timed(|stop| trade_until(&Case { problem, activations, copies }, options, stop))
}

fn check(
    problem: &Problem,
    activations: &[Activation],
    copies: Option<Copies>,
) -> Result<(), ActivationError> {
    if copies.is_some_and(|copies| copies.bytes_per_tick == 0) {
        return Err(ActivationError::Copies);
    }
    let mut is_named = alloc::vec![false; problem.buffers.len()];
    let aliased = problem.aliases.iter().flat_map(|&(a, b)| [a, b]);
    aliased.for_each(|buffer| is_named[buffer] = true);
    for (index, each) in activations.iter().enumerate() {
        let wrong = ActivationError::Activation { activation: index };
        let Some(buffer) = problem.buffers.get(each.buffer) else { return Err(wrong) };
        let Interval { start, end } = each.idle;
        let is_inside = buffer.live.start < start && start < end && end < buffer.live.end;
        let is_plain = buffer.gaps.is_empty() && buffer.fixed.is_none();
        let began = |&read: &usize| {
            let earlier = activations.get(read).and_then(|read| problem.buffers.get(read.buffer));
            earlier.is_some_and(|earlier| earlier.live.start < buffer.live.start)
        };
        let reads = each.recompute.as_ref().is_none_or(|made| made.reads.iter().all(began));
        if core::mem::replace(&mut is_named[each.buffer], true) || !is_inside || !is_plain || !reads
        {
            return Err(wrong);
        }
    }
    Ok(())
}

/// Input of the search.
pub(crate) struct Case<'a> {
    problem: &'a Problem,
    activations: &'a [Activation],
    copies: Option<Copies>,
}

impl Case<'_> {
    fn size(&self, activation: usize) -> u64 {
        self.problem.buffers[self.activations[activation].buffer].size
    }

    /// Returns the ticks that a copy takes.
    fn copy_ticks(&self, activation: usize) -> u64 {
        let speed = self.copies.map_or(1, |copies| copies.bytes_per_tick);
        self.size(activation).div_ceil(speed)
    }
}

fn trade_until(
    case: &Case<'_>,
    options: &Options<'_>,
    stop: &Stop<'_>,
) -> Result<Tradeoff, ActivationError> {
    let keep = alloc::vec![Choice::Keep; case.activations.len()];
    let Some(capacity) = case.problem.regions[0].capacity else {
        return place(case, keep, Bounds { lower: 0, is_exact: true }, options, stop)
            .ok_or(ActivationError::NotFound);
    };
    let model = Model::new(case.problem, 0, |_| true);
    let loose = Rows::new(case, &model, &Segments::loose(case), capacity);
    if let Some((tick, excess)) = loose.floor() {
        return Err(ActivationError::Floor { tick, bytes: capacity + excess, capacity });
    }
    let mut search = Search { case, model, loose, capacity, lower: None };
    // A recomputed activation needs scratch memory, which only the placement counts: where no such plan fits, more is
    // moved.
    let found = search.fitting(Moves::Priced, options, stop);
    found.or_else(|| search.fitting(Moves::Free, options, stop)).ok_or(ActivationError::NotFound)
}

/// The search for choices whose placement fits.
struct Search<'a> {
    case: &'a Case<'a>,
    model: Model,
    /// Rows as if reading took no memory.
    loose: Rows,
    capacity: u64,
    /// The least cost for the whole capacity, once it is known.
    lower: Option<u64>,
}

impl Search<'_> {
    /// Makes choices for less and less memory until what they need fits.
    fn fitting(
        &mut self,
        moves: Moves,
        options: &Options<'_>,
        stop: &Stop<'_>,
    ) -> Option<Tradeoff> {
        let (case, capacity) = (self.case, self.capacity);
        let mut aim = Aim { model: self.model.clone(), bytes: capacity };
        for round in 0..ROUNDS {
            let cheapest = cheapest(case, &aim.model, aim.bytes, moves, stop)?;
            let lower = *self.lower.get_or_insert_with(|| match cheapest.bound {
                Some(bound) => bound,
                None => Relaxed::new(&self.loose, cheapest.cost, stop).lower_bound(),
            });
            let is_exact = round == 0 && moves == Moves::Priced && cheapest.is_best;
            let bounds = Bounds { lower, is_exact };
            let found = place(case, cheapest.choices, bounds, options, stop)?;
            if found.plan.fits() {
                return Some(found);
            }
            aim.tighten(&found, capacity, stop);
        }
        None
    }
}

/// The memory that choices are made for, so that their placement fits the capacity.
struct Aim {
    /// Bytes live at each moment when everything is kept, and more where choices were seen to need it.
    model: Model,
    bytes: u64,
}

impl Aim {
    /// Choices did not fit: aims lower at the moments at which they passed the capacity, and everywhere by what their placement wastes.
    fn tighten(&mut self, found: &Tradeoff, capacity: u64, stop: &Stop<'_>) {
        let live = learn(&mut self.model, &found.problem, capacity);
        let step = match (stop.now(), live > capacity) {
            (true, _) => capacity / 16,
            (false, true) => 0,
            (false, false) => (capacity / 512).max(1),
        };
        let waste = found.plan.peak().saturating_sub(live.max(capacity));
        self.bytes = self.bytes.saturating_sub(waste.max(step));
    }
}

/// Has the model count what choices do not: scratch memory, and lives that others prolong, at the moments at which the changed program
/// passes the capacity. Returns its live bytes at most.
fn learn(model: &mut Model, changed: &Problem, capacity: u64) -> u64 {
    let after = Model::new(changed, 0, |_| true);
    for (window, &load) in after.ticks.windows(2).zip(&after.load) {
        let excess = load.saturating_sub(capacity);
        if excess > 0 {
            let first = model.ticks.partition_point(|&tick| tick <= window[0]).saturating_sub(1);
            let last = model.ticks.partition_point(|&tick| tick < window[1]).min(model.load.len());
            model.load[first..last].iter_mut().for_each(|load| *load = load.saturating_add(excess));
        }
    }
    after.load.iter().copied().max().unwrap_or(0)
}

/// Price of a move while choices are made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moves {
    Priced,
    Free,
}

/// The cheapest choices that were found for the bytes that are live.
struct Cheapest {
    choices: Vec<Choice>,
    cost: u64,
    /// No choices cost less, where that is known.
    bound: Option<u64>,
    is_best: bool,
}

/// Tries the grains of segments.
fn cheapest(
    case: &Case<'_>,
    model: &Model,
    aim: u64,
    moves: Moves,
    stop: &Stop<'_>,
) -> Option<Cheapest> {
    let reads = |a: &Activation| a.recompute.as_ref().is_some_and(|made| !made.reads.is_empty());
    let is_free = !case.activations.iter().any(reads);
    let grains = if is_free {
        alloc::vec![Segments::loose(case)]
    } else {
        Segments::grains(case, model, aim)
    };
    let mut best: Option<(Chosen, Relaxed, Rows)> = None;
    for segments in grains {
        if best.is_some() && stop.now() {
            break;
        }
        let mut rows = Rows::new(case, model, &segments, aim);
        if moves == Moves::Free {
            rows.free_moves();
        }
        let (found, relaxed) = choose::choose(&rows, best.as_ref().map(|b| b.0.cost), stop);
        if let Some(found) = found {
            best = Some((found, relaxed, rows));
        }
    }
    let (found, relaxed, rows) = best?;
    let (found, is_complete) = exact::improve(&rows, &relaxed, found, stop);
    Some(Cheapest {
        choices: rows.choices(&found.picked),
        cost: found.cost,
        bound: is_free.then(|| relaxed.lower_bound()),
        is_best: is_complete && is_free,
    })
}

/// Bounds on the cost.
struct Bounds {
    lower: u64,
    is_exact: bool,
}

/// Places the program that the choices make.
fn place(
    case: &Case<'_>,
    choices: Vec<Choice>,
    bounds: Bounds,
    options: &Options<'_>,
    stop: &Stop<'_>,
) -> Option<Tradeoff> {
    let (problem, returns) = changed(case, &choices);
    problem.check().ok()?;
    let plan = solve_until(&problem, options, stop);
    let price = |(each, choice): (&Activation, &Choice)| match choice {
        Choice::Keep => 0,
        Choice::Recompute => each.recompute.as_ref().map_or(0, |made| made.cost),
        Choice::Move => each.move_cost.unwrap_or(0),
    };
    let costs = case.activations.iter().zip(&choices).map(price);
    let cost = costs.fold(0u64, u64::saturating_add);
    let lower_bound = if bounds.is_exact { cost } else { bounds.lower.min(cost) };
    let proof = if cost == lower_bound { Proof::Best } else { Proof::Found };
    Some(Tradeoff { choices, cost, lower_bound, problem, returns, plan, proof })
}

/// Returns the changed program, and the second life of each activation.
fn changed(case: &Case<'_>, choices: &[Choice]) -> (Problem, Vec<Option<usize>>) {
    let mut problem = case.problem.clone();
    let demand = demands(case, choices);
    let mut returns = alloc::vec![None; choices.len()];
    for (index, each) in case.activations.iter().enumerate() {
        let copy = if choices[index] == Choice::Move { case.copy_ticks(index) } else { 0 };
        let (gone, back) = (each.idle.start + copy, demand[index].needed.saturating_sub(copy));
        let buffer = &mut problem.buffers[each.buffer];
        // An activation that others are computed from late stays until then.
        buffer.live.end = buffer.live.end.max(demand[index].last + 1);
        if choices[index] == Choice::Keep || gone >= back {
            continue;
        }
        let second = Buffer { live: Interval::new(back, buffer.live.end), ..buffer.clone() };
        buffer.live.end = gone;
        returns[index] = Some(problem.push(second));
    }
    let mut scratch: Vec<(u64, u64)> = case
        .activations
        .iter()
        .zip(choices)
        .zip(&demand)
        .filter(|((_, choice), _)| **choice == Choice::Recompute)
        .filter_map(|((each, _), at)| each.recompute.as_ref().map(|m| (at.needed, m.scratch)))
        .filter(|&(_, bytes)| bytes > 0)
        .collect();
    // One after the other: at each moment the largest counts.
    scratch.sort_unstable_by(|a, b| b.cmp(a));
    scratch.dedup_by_key(|s| s.0);
    for (tick, bytes) in scratch {
        problem.push(Buffer::new(bytes, tick, tick + 1));
    }
    (problem, returns)
}

/// Times at which an activation is needed again.
#[derive(Clone, Copy)]
struct Demand {
    /// First by the backward pass or by what is recomputed from it.
    needed: u64,
    /// Last by what is recomputed from it; 0 if nothing is.
    last: u64,
}

fn demands(case: &Case<'_>, choices: &[Choice]) -> Vec<Demand> {
    let own = case.activations.iter().map(|each| Demand { needed: each.idle.end, last: 0 });
    let mut demands: Vec<Demand> = own.collect();
    // Readers begin later than what they read.
    let mut order: Vec<usize> = (0..choices.len()).collect();
    let begin = |&index: &usize| case.problem.buffers[case.activations[index].buffer].live.start;
    order.sort_by_key(|index| core::cmp::Reverse(begin(index)));
    for index in order {
        let made = case.activations[index].recompute.as_ref();
        let Some(made) = made.filter(|_| choices[index] == Choice::Recompute) else { continue };
        let at = demands[index].needed;
        for &read in &made.reads {
            let demand = &mut demands[read];
            demand.needed = demand.needed.min(at);
            demand.last = demand.last.max(at);
        }
    }
    demands
}
