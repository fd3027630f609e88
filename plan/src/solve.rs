//! The entry point: from a problem to a plan.

use crate::assign::assign;
use crate::bound::{Certificate, refute};
use crate::model::Model;
use crate::options::Options;
use crate::plan::{Plan, Spot, Status, Usage};
use crate::problem::Problem;
use crate::problem_error::ProblemError;
use crate::region::{Outcome, Task};
use crate::stop::Stop;
use alloc::vec::Vec;

/// Plans a problem.
///
/// # Algorithm
/// Buffers are assigned to regions, cheap ones first. In each region a portfolio of greedy rules gives a plan at once.
/// If it is above the lower bound and there are at most 2,000 buffers, none of them fixed, exact search and
/// improvement by ejection take turns, first at the lower bound, then at the capacity or halfway to the best plan.
/// Larger regions repeat the greedy rules with chance, and then repair the plan where it is too high. It ends when a plan is proven best, when a plan fits the given
/// capacity and some runs at the bound found no better one, or when `options` say so.
///
/// # Cost
/// The first plan is O(n log n) for buffers without fixed offsets or hints. What follows is bounded by `options`.
///
/// # Errors
/// When [`Problem::check`] does.
pub fn solve(problem: &Problem, options: &Options<'_>) -> Result<Plan, ProblemError> {
    problem.check()?;
    #[cfg(feature = "std")]
    let deadline = options.time_limit.map(|limit| std::time::Instant::now() + limit);
    let ask = || {
        #[cfg(feature = "std")]
        if deadline.is_some_and(|d| std::time::Instant::now() >= d) {
            return true;
        }
        options.stop.is_some_and(|stop| stop())
    };
    let stop = Stop::new(&ask);
    let task = Task { options, stop: &stop };
    if problem.regions.len() == 1 {
        let model = Model::new(problem, 0, |_| true);
        let refuted = refute(problem, &model, problem.regions[0].capacity);
        let outcome = task.solve(&model, 0, problem.regions[0].capacity);
        return Ok(single(problem, &model, outcome, refuted));
    }
    Ok(several(problem, &task))
}

fn single(
    problem: &Problem,
    model: &Model,
    outcome: Outcome,
    refuted: Option<Certificate>,
) -> Plan {
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
        None => status(&outcome, problem.regions[0].capacity),
    };
    let usage = alloc::vec![Usage { peak: outcome.peak, lower_bound: outcome.bound }];
    Plan { spots, usage, status, nodes: outcome.nodes }
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
    let assigned = assign(problem, task);
    let mut spots: Vec<Spot> = alloc::vec![Spot::default(); problem.buffers.len()];
    let mut usage = Vec::new();
    let (mut excess, mut gap, mut nodes) = (0, 0, 0);
    let mut certificate = None;
    for (region, info) in problem.regions.iter().enumerate() {
        let model = Model::new(problem, region, |i| assigned.region[i] == region);
        let outcome = task.solve(&model, region, info.capacity);
        for index in (0..problem.buffers.len()).filter(|&i| assigned.region[i] == region) {
            let fixed = problem.buffers[index].fixed.unwrap_or(0);
            let offset = model.item_of[index].map_or(fixed, |i| outcome.offsets[i as usize]);
            spots[index] = Spot { region, offset };
        }
        excess += info.capacity.map_or(0, |c| outcome.peak.saturating_sub(c));
        gap += outcome.peak - outcome.bound;
        nodes += outcome.nodes;
        usage.push(Usage { peak: outcome.peak, lower_bound: outcome.bound });
        if assigned.forced(problem, region) {
            certificate = certificate.or_else(|| refute(problem, &model, info.capacity));
        }
    }
    let status = match certificate {
        Some(certificate) => Status::Infeasible { certificate },
        None if excess > 0 => Status::Undecided { excess },
        None => Status::Feasible { gap },
    };
    Plan { spots, usage, status, nodes }
}
