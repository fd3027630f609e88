//! Planning with several seeds side by side, such that the clock has no say in the result.
use crate::command::interrupt;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use omniheap::plan::{Options, Plan, Problem, Progress, Status, solve};
use std::thread;
use std::time::Instant;

/// Search states of the first round; every round has eight times those of the one before.
const FIRST_ROUND: u64 = 4_000;

/// Seeds `1..=threads`, each on a thread.
///
/// # Algorithm
///
/// Threads go round by round, and each round allows every seed the same number of search states. The first round in
/// which a seed has its answer is the last, and the lowest seed with the best answer wins. A thread is stopped early
/// only when a lower seed has an answer that nothing can better. So the same problem and number of threads give
/// the same plan, unless the time limit or Ctrl-C ends a round.
pub(super) struct Portfolio<'a> {
    /// The problem, validated.
    pub(super) problem: &'a Problem,
    /// Number of them.
    pub(super) threads: u64,
    /// When to stop.
    pub(super) time_limit: Option<Duration>,
    /// Told of progress, from any thread.
    pub(super) show: &'a (dyn Fn(Progress) + Sync),
}

impl Portfolio<'_> {
    /// Returns the best plan, and how long the first one took. Ctrl-C ends it early.
    pub(super) fn run(&self) -> (Plan, Duration) {
        let start = Instant::now();
        let most = if self.time_limit.is_some() { u64::MAX } else { Options::default().effort };
        let mut effort = if self.threads == 1 { most } else { FIRST_ROUND.min(most) };
        let mut first = None;
        loop {
            let plans = self.round(start, effort);
            let (plan, found) = best(plans);
            let first = *first.get_or_insert(found);
            let late = self.time_limit.is_some_and(|limit| start.elapsed() >= limit);
            if effort == most || late || interrupt::is_wanted() || self.is_answer(&plan) {
                return (plan, first);
            }
            effort = effort.saturating_mul(8).min(most);
        }
    }

    /// Proven, or good enough for the capacity that was given.
    pub(super) fn is_answer(&self, plan: &Plan) -> bool {
        match plan.status {
            Status::Optimal | Status::Infeasible { .. } => true,
            Status::Feasible { .. } => self.problem.regions[0].capacity.is_some(),
            Status::Undecided { .. } => false,
        }
    }

    /// Runs every seed for `effort` states.
    fn round(&self, start: Instant, effort: u64) -> Vec<(Plan, Duration)> {
        let proven = AtomicU64::new(u64::MAX);
        thread::scope(|scope| {
            let run = |seed| {
                let proven = &proven;
                scope.spawn(move || self.one(start, effort, seed, proven))
            };
            let threads: Vec<_> = (1..=self.threads).map(run).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        })
    }

    /// Plans with one seed, until a lower one has an answer that nothing can better.
    fn one(&self, start: Instant, effort: u64, seed: u64, proven: &AtomicU64) -> (Plan, Duration) {
        let first = Cell::new(None);
        let progress = |now: Progress| {
            first.set(first.get().or_else(|| Some(start.elapsed())));
            (self.show)(now);
        };
        let stop = || proven.load(Relaxed) < seed || interrupt::is_wanted();
        let time_limit = self.time_limit.map(|limit| limit.saturating_sub(start.elapsed()));
        let options =
            Options { seed, effort, stop: Some(&stop), progress: Some(&progress), time_limit };
        let plan = solve(self.problem, &options).expect("the problem was checked when it was read");
        if rank(&plan.status) == 0 {
            proven.fetch_min(seed, Relaxed);
        }
        (plan, first.get().unwrap_or_else(|| start.elapsed()))
    }
}

/// Returns the best plan, of equals that of the lowest seed; and when the first one was found.
fn best(plans: Vec<(Plan, Duration)>) -> (Plan, Duration) {
    let first = plans.iter().map(|(_, first)| *first).min().unwrap_or_default();
    // What is proven may come from any thread that was not stopped, so the lowest seed has it whatever the peak.
    let key = |plan: &Plan| match rank(&plan.status) {
        0 => (0, 0),
        rank => (rank, plan.peak()),
    };
    let best = plans.into_iter().min_by_key(|(plan, _)| key(plan));
    (best.expect("there is at least one thread").0, first)
}

/// Returns the rank of a status: proven before unproven, fitting before not fitting.
const fn rank(status: &Status) -> u8 {
    match status {
        Status::Optimal | Status::Infeasible { .. } => 0,
        Status::Feasible { .. } => 1,
        Status::Undecided { .. } => 2,
    }
}
