//! The entry point: from a problem to a plan.

use crate::ProblemError;
use crate::Spot;
use crate::assign::Assign;
use crate::bound::{Certificate, refute};
use crate::classes::Classes;
use crate::model::Model;
use crate::options::Options;
use crate::plan::{Plan, Status};
use crate::region::{Outcome, Task};
use crate::stop::Stop;
use crate::validate;
use crate::{Problem, RegionSet};
use alloc::vec::Vec;

/// Plans a problem.
///
/// # Algorithm
/// Buffers are assigned to regions, cheap ones first. In each region a portfolio of greedy rules gives a plan at once.
/// If it is above the lower bound and there are at most 2,000 buffers, exact search, improvement by ejection, and the same
/// for clusters of buffers that fit together take turns, at the lower bound and at a target that is easier to reach: the
/// capacity, else halfway to the best plan. Larger regions repeat the greedy rules with chance, and then plan clusters and
/// repair the plan where it is too high. It ends when a plan
/// is proven best, when a plan fits the given capacity and some runs at the bound found no better one, or when `options`
/// say so. A plan that fits has passed [`validate`].
///
/// # Cost
/// The first plan is O(n log n) for buffers without fixed offsets or hints. What follows is bounded by `options`.
///
/// # Errors
/// Those of [`Problem::check`].
pub fn solve(problem: &Problem, options: &Options<'_>) -> Result<Plan, ProblemError> {
    problem.check()?;
    options.timed(|stop| Ok(solve_until(problem, options, stop)))
}

/// Plans a problem that was checked, until `stop` says so.
pub(crate) fn solve_until(problem: &Problem, options: &Options<'_>, stop: &Stop<'_>) -> Plan {
    let task = Task { options, stop, merges: true };
    let mut plan =
        if problem.regions.len() == 1 { single(problem, &task) } else { several(problem, &task) };
    // Whatever the planner believes, a plan that fits is one that passes the check.
    let checked = if plan.fits() { validate(problem, &plan.spots) } else { Ok(()) };
    if let Err(flaw) = checked {
        debug_assert!(problem.regions.len() > 1, "{flaw} in {problem:?}");
        plan.status = Status::Undecided { excess: 0 };
    }
    plan
}

/// Plans the only region.
fn single(problem: &Problem, task: &Task<'_>) -> Plan {
    let capacity = problem.regions[0].capacity;
    let model = Model::new(problem, 0, |_| true);
    let refuted = no_region(problem).or_else(|| refute(problem, &model, capacity));
    let mut outcome = task.greedy(&model, 0);
    if refuted.is_none() {
        task.refine(&model, 0, capacity, &mut outcome);
    }
    let spots = model
        .item_of
        .iter()
        .zip(&problem.buffers)
        .map(|(item, b)| {
            let offset = item.map_or(b.fixed.unwrap_or(0), |i| outcome.offsets[i as usize]);
            Spot { region: 0, offset }
        })
        .collect();
    let status = match refuted {
        Some(certificate) => Status::Infeasible { certificate },
        None => status(&outcome, capacity),
    };
    Plan { spots, usage: alloc::vec![outcome.usage()], status, nodes: outcome.nodes }
}

/// Returns a buffer that no region suits.
fn no_region(problem: &Problem) -> Option<Certificate> {
    // A buffer alone has a region, unless its offset does not suit one.
    if problem.aliases.is_empty() && problem.buffers.iter().all(|b| b.fixed.is_none()) {
        return None;
    }
    let classes = Classes::new(problem);
    let allowed = classes.allowed(problem);
    let here = RegionSet::below(problem.regions.len());
    let stuck = |&i: &usize| allowed[classes.root(i)].meet(here) == RegionSet::NONE;
    let buffer = (0..problem.buffers.len()).find(stuck)?;
    Some(Certificate::NoRegion { buffer })
}

fn status(outcome: &Outcome, capacity: Option<u64>) -> Status {
    match capacity {
        Some(capacity) if outcome.bound > capacity => Status::Infeasible {
            certificate: Certificate::Exhausted {
                at_least: outcome.bound,
                capacity,
                nodes: outcome.nodes,
            },
        },
        Some(capacity) if outcome.peak > capacity => {
            Status::Undecided { excess: outcome.peak - capacity }
        }
        _ if outcome.peak <= outcome.bound => Status::Optimal,
        _ => Status::Feasible { gap: outcome.peak - outcome.bound },
    }
}

/// Plans each region for the buffers assigned to it.
///
/// The bound of a region holds for its buffers only, so several regions are never proven optimal together.
fn several(problem: &Problem, task: &Task<'_>) -> Plan {
    let assign = Assign::new(problem);
    let certificate = no_region(problem).or_else(|| refute_forced(problem, &assign));
    let assigned = assign.run(task);
    let mut spots: Vec<Spot> = alloc::vec![Spot::default(); problem.buffers.len()];
    let mut usage = Vec::new();
    let (mut excess, mut gap, mut nodes) = (0, 0, 0);
    for (region, info) in problem.regions.iter().enumerate() {
        let model = Model::new(problem, region, |i| assigned[i] == region);
        let mut outcome = task.greedy(&model, region);
        if refute(problem, &model, info.capacity).is_none() {
            task.refine(&model, region, info.capacity, &mut outcome);
        }
        for index in (0..problem.buffers.len()).filter(|&i| assigned[i] == region) {
            let fixed = problem.buffers[index].fixed.unwrap_or(0);
            let offset = model.item_of[index].map_or(fixed, |i| outcome.offsets[i as usize]);
            spots[index] = Spot { region, offset };
        }
        let used = outcome.usage();
        excess += info.capacity.map_or(0, |c| used.peak.saturating_sub(c));
        gap += used.peak - used.lower_bound;
        nodes += outcome.nodes;
        usage.push(used);
    }
    let status = match certificate {
        Some(certificate) => Status::Infeasible { certificate },
        None if excess > 0 => Status::Undecided { excess },
        None => Status::Feasible { gap },
    };
    Plan { spots, usage, status, nodes }
}

/// Returns a certificate that the buffers which can only live in one region do not fit there.
fn refute_forced(problem: &Problem, assign: &Assign<'_>) -> Option<Certificate> {
    problem.regions.iter().enumerate().find_map(|(region, info)| {
        let model = Model::new(problem, region, |i| assign.forced(i) == Some(region));
        refute(problem, &model, info.capacity)
    })
}
