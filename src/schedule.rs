//! Schedules from recorded iterations.
use omniheap_core::Align;
use omniheap_plan::install::{NoSchedule, Schedule};
use omniheap_plan::{Buffer, Options, Problem, Region, solve};
use omniheap_trace::{Op, Trace};

/// Returns the problem of a recorded iteration: each allocation is a buffer from its event to the event of its completed
/// free, or to the end, at a multiple of `align` or of what it asked for, whichever is more.
#[must_use]
pub fn problem_from_trace(trace: &Trace, align: Align) -> Problem {
    let mut problem = Problem::new(Region::unbounded());
    let end = trace.events().len() as u64;
    for (tick, event) in (0..).zip(trace.events()) {
        match event.op {
            // Ids are dense and in order, so an id is the buffer's index.
            Op::Allocate { size, align: asked, .. } => {
                let align = asked.bytes().unwrap_or(1).max(align.get());
                problem.buffers.push(Buffer::new(size, tick, end).align(align));
            }
            Op::FreeCompleted { id, .. } => {
                problem.buffers[id.0 as usize].live.end = tick;
            }
            _ => {}
        }
    }
    problem
}

/// Plans a recorded iteration, so that the next one can run by the plan.
///
/// # Errors
///
/// As for [`Schedule::from_plan`]; [`NoSchedule::Problem`] when the planner refuses the problem.
pub fn plan_from_trace(
    trace: &Trace,
    align: Align,
    options: &Options<'_>,
) -> Result<Schedule, NoSchedule> {
    let problem = problem_from_trace(trace, align);
    let plan = solve(&problem, options).map_err(NoSchedule::Problem)?;
    Schedule::from_plan(&problem, &plan, &[])
}
