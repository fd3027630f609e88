//! Schedules from recorded iterations.
use omniheap_core::Align;
use omniheap_schedule::{Buffer, NoSchedule, Problem, Region, Schedule, place};
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

/// Places the allocations of a recorded iteration, so that the next one can run by them. `steps` and `stop` limit the work as for
/// [`place()`].
///
/// # Errors
///
/// As for [`Schedule::from_spots`].
pub fn schedule_from_trace(
    trace: &Trace,
    align: Align,
    steps: u64,
    stop: &dyn Fn() -> bool,
) -> Result<Schedule, NoSchedule> {
    let problem = problem_from_trace(trace, align);
    let spots = place(&problem, steps, stop).map_err(NoSchedule::Problem)?;
    Schedule::from_spots(&problem, &spots, &[])
}
