//! A trace planned ahead: what it needs when every lifetime is known before anything runs.
use super::program::{Program, Step};
use core::time::Duration;
use omniheap::plan::{Buffer, Options, Problem, ProblemError, Region, solve};

/// Where the planner stops on traces whose plan it cannot prove best.
const LONGEST: Duration = Duration::from_secs(10);

/// The planned peak in bytes, with every span aligned as the manager aligns them.
pub(crate) fn planned(program: &Program, align: u64) -> Result<u64, ProblemError> {
    let options = Options { time_limit: Some(LONGEST), ..Options::default() };
    solve(&problem(program, align), &options).map(|plan| plan.peak())
}

/// Each allocation is a buffer that lives from its step to the step of its free, or to the end.
fn problem(program: &Program, align: u64) -> Problem {
    let mut problem = Problem::new(Region::unbounded());
    let mut buffer_of = vec![0; program.numbers as usize];
    let end = program.steps.len() as u64;
    for (tick, step) in (0..).zip(&program.steps) {
        match *step {
            Step::Allocate { number, size, align_log2, .. } => {
                buffer_of[number as usize] = problem.buffers.len();
                let align = align.max(1 << align_log2);
                problem.buffers.push(Buffer::new(size, tick, end).align(align));
            }
            Step::Free { number } => problem.buffers[buffer_of[number as usize]].live.end = tick,
        }
    }
    problem
}
