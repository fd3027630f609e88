//! From plans and traces to schedules that a manager can install.
use core::fmt;
use omniheap_core::{HeapId, Schedule, ScheduleError, ScheduledRegion, ScheduledSpan, Span};
use omniheap_plan::{Plan, Problem, ProblemError};

/// Why there is no schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoSchedule {
    /// The plan is above a capacity of the problem: spill something, or give it more.
    DoesNotFit,
    /// The problem makes no sense to the planner.
    Problem(ProblemError),
    /// The spans cannot be handed out one by one, as with buffers that share bytes; numbers are those of buffers.
    Spans(ScheduleError),
}

impl fmt::Display for NoSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DoesNotFit => f.write_str(
                "the plan is above its capacity; spill buffers or plan for a larger capacity",
            ),
            Self::Problem(error) => error.fmt(f),
            Self::Spans(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for NoSchedule {}

/// Makes a plan something that [`Manager::install`](crate::Manager::install) takes.
///
/// Region `i` of the plan is of heap `heaps[i]`, or of the heap for plain requests where there is none. Buffers are
/// allocated in the order of their start, those that start together in the order of the problem; buffers of zero
/// bytes are left out.
///
/// # Examples
///
/// Record or know the lifetimes, plan them, and run by the plan:
///
/// ```
/// use omniheap::plan::{Buffer, Options, Problem, Region, solve};
/// use omniheap::{Manager, Request, host::Host};
///
/// let mut problem = Problem::new(Region::unbounded());
/// problem.push(Buffer::new(4096, 0, 2).align(256));
/// problem.push(Buffer::new(4096, 1, 3).align(256));
/// problem.push(Buffer::new(4096, 2, 4).align(256)); // the first is free again: its bytes are used twice
/// let plan = solve(&problem, &Options::default())?;
///
/// let manager = Manager::new(Host::new());
/// let installed = manager.install(omniheap::schedule(&problem, &plan, &[])?, None)?;
/// let first = installed.allocate(&Request::new(4096))?;
/// let second = installed.allocate(&Request::new(4096))?;
/// drop(first);
/// let third = installed.allocate(&Request::new(4096))?;
/// assert_eq!((plan.peak(), installed.report().served), (8192, 3));
/// # drop((second, third));
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`NoSchedule::DoesNotFit`], and [`NoSchedule::Spans`] for buffers that share bytes while both live.
pub fn schedule(problem: &Problem, plan: &Plan, heaps: &[HeapId]) -> Result<Schedule, NoSchedule> {
    if !plan.fits() {
        return Err(NoSchedule::DoesNotFit);
    }
    let regions = plan
        .usage
        .iter()
        .enumerate()
        .map(|(at, usage)| ScheduledRegion { heap: heaps.get(at).copied(), size: usage.peak });
    let buffers: Vec<usize> =
        (0..problem.buffers.len()).filter(|&at| problem.buffers[at].size > 0).collect();
    let spans = buffers.iter().map(|&at| {
        let (buffer, spot) = (&problem.buffers[at], plan.spots[at]);
        ScheduledSpan {
            region: spot.region,
            span: Span { offset: spot.offset, size: buffer.size },
            start: buffer.live.start,
            end: buffer.live.end,
        }
    });
    Schedule::new(regions.collect(), spans.collect()).map_err(|error| {
        NoSchedule::Spans(match error {
            ScheduleError::Nothing { at } => ScheduleError::Nothing { at: buffers[at] },
            ScheduleError::OutOfRegion { at } => ScheduleError::OutOfRegion { at: buffers[at] },
            ScheduleError::Overlap { first, second } => {
                ScheduleError::Overlap { first: buffers[first], second: buffers[second] }
            }
            other => other,
        })
    })
}

#[cfg(feature = "trace")]
mod recorded {
    use super::{NoSchedule, schedule};
    use omniheap_core::{Align, Schedule};
    use omniheap_plan::{Buffer, Options, Problem, Region, solve};
    use omniheap_trace::{Op, Trace};

    /// The problem of a recorded iteration: each allocation is a buffer from its event to the event of its completed
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
    /// As for [`schedule`]; [`NoSchedule::Problem`] when the planner refuses the problem.
    pub fn plan_from_trace(
        trace: &Trace,
        align: Align,
        options: &Options<'_>,
    ) -> Result<Schedule, NoSchedule> {
        let problem = problem_from_trace(trace, align);
        let plan = solve(&problem, options).map_err(NoSchedule::Problem)?;
        schedule(&problem, &plan, &[])
    }
}

#[cfg(feature = "trace")]
pub use recorded::{plan_from_trace, problem_from_trace};
