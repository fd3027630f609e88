//! Planning with several seeds side by side, such that the clock has no say in the result.
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use omniheap_cli::interrupt;
use omniheap_plan::{Options, Plan, Problem, Progress, Status, solve};
use std::thread;
use std::time::Instant;

/// Search states of the first round; every round has eight times those of the one before.
const FIRST_ROUND: u64 = 4_000;

/// Seeds `1..=threads`, each on a thread.
///
/// # Algorithm
///
/// Threads go round by round, and each round allows every seed the same number of search states. The first round in
/// which a seed has an answer is the last, and the lowest seed with one wins. A thread is stopped early only when a lower
/// seed has an answer. So the same problem and number of threads give the same plan, unless the time limit or Ctrl-C ends
/// a round.
pub(super) struct Portfolio<'a> {
    /// The problem, validated.
    pub(super) problem: &'a Problem,
    /// Number of them.
    pub(super) threads: u64,
    /// Time after which all threads stop.
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
        let mut kept = None;
        loop {
            // A round that ends early may not have come to the plan of the one before.
            let plans = self.round(start, effort).into_iter().chain(kept).collect();
            let (plan, first) = self.best(plans);
            let late = self.time_limit.is_some_and(|limit| start.elapsed() >= limit);
            if effort == most || late || interrupt::is_wanted() || self.is_answer(&plan) {
                return (plan, first);
            }
            kept = Some((plan, first));
            effort = effort.saturating_mul(8).min(most);
        }
    }

    /// Proven, or good enough for the capacities that were given.
    pub(super) fn is_answer(&self, plan: &Plan) -> bool {
        match plan.status {
            Status::Optimal | Status::Infeasible { .. } => true,
            // A region without a capacity is filled as low as the search can; several regions are never proven.
            Status::Feasible { gap } => {
                gap == 0 || self.problem.regions.iter().all(|region| region.capacity.is_some())
            }
            Status::Undecided { .. } => false,
        }
    }

    /// Runs every seed for `effort` states.
    fn round(&self, start: Instant, effort: u64) -> Vec<(Plan, Duration)> {
        let answered = AtomicU64::new(u64::MAX);
        thread::scope(|scope| {
            let run = |seed| {
                let answered = &answered;
                scope.spawn(move || self.one(start, effort, seed, answered))
            };
            let threads: Vec<_> = (1..=self.threads).map(run).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        })
    }

    /// Plans with one seed, until a lower one has an answer.
    fn one(
        &self,
        start: Instant,
        effort: u64,
        seed: u64,
        answered: &AtomicU64,
    ) -> (Plan, Duration) {
        let first = Cell::new(None);
        let progress = |now: Progress| {
            first.set(first.get().or_else(|| Some(start.elapsed())));
            (self.show)(now);
        };
        let stop = || answered.load(Relaxed) < seed || interrupt::is_wanted();
        let time_limit = self.time_limit.map(|limit| limit.saturating_sub(start.elapsed()));
        let options =
            Options { seed, effort, stop: Some(&stop), progress: Some(&progress), time_limit };
        let plan = solve(self.problem, &options).expect("the problem was checked when it was read");
        if self.is_answer(&plan) {
            answered.fetch_min(seed, Relaxed);
        }
        (plan, first.get().unwrap_or_else(|| start.elapsed()))
    }

    /// Returns the plan of the lowest seed with an answer, else the best one; and when the first plan was found.
    fn best(&self, plans: Vec<(Plan, Duration)>) -> (Plan, Duration) {
        let first = plans.iter().map(|(_, first)| *first).min().unwrap_or_default();
        let key = |plan: &Plan| match self.is_answer(plan) {
            true => (0, 0),
            false => (1 + u64::from(!plan.fits()), plan.peak()),
        };
        let best = plans.into_iter().min_by_key(|(plan, _)| key(plan));
        (best.expect("there is at least one thread").0, first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use omniheap_plan::{Buffer, Region, Usage};

    fn plan(peak: u64, status: Status) -> (Plan, Duration) {
        let usage = vec![Usage { peak, lower_bound: 8 }];
        (Plan { spots: Vec::new(), usage, status, nodes: 0 }, Duration::ZERO)
    }

    fn best(regions: &[Region], plans: Vec<(Plan, Duration)>) -> u64 {
        let problem = &Problem { regions: regions.to_vec(), ..Problem::new(regions[0]) };
        let portfolio = Portfolio { problem, threads: 3, time_limit: None, show: &|_| {} };
        portfolio.best(plans).0.peak()
    }

    #[test]
    fn the_lowest_seed_that_fits_the_capacity_wins_and_without_one_the_least_peak() {
        let plans = || {
            let late = plan(12, Status::Undecided { excess: 1 });
            let [fits, less] = [10, 9].map(|peak| plan(peak, Status::Feasible { gap: peak - 8 }));
            vec![late, fits, less]
        };
        assert_eq!(best(&[Region::bounded(11)], plans()), 10);
        assert_eq!(best(&[Region::unbounded()], plans()), 9);
        assert_eq!(best(&[Region::bounded(11), Region::unbounded()], plans()), 9);
    }

    /// A rectangle of ticks and bytes that is cut at random: the pieces, a little smaller, fit together in few ways.
    fn cut(pieces: usize) -> Problem {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut sides = vec![[1 << 40, 0, 1 << 40]];
        while sides.len() < pieces {
            let piece = random(sides.len() as u64);
            let [size, start, end] =
                sides.swap_remove(usize::try_from(piece).expect("it is small"));
            let middle = |of: u64, chance: u64| of / 4 + chance % (of / 2);
            let bytes = middle(size, random(u64::MAX));
            let tick = start + middle(end - start, random(u64::MAX));
            match random(2) {
                0 => sides.extend([[bytes, start, end], [size - bytes, start, end]]),
                _ => sides.extend([[size, start, tick], [size, tick, end]]),
            }
        }
        let mut problem = Problem::new(Region::unbounded());
        for [size, start, end] in sides {
            problem.push(Buffer::new(size - random(size / 16), start, end));
        }
        problem
    }

    #[test]
    fn a_plan_that_was_shown_is_not_lost_when_time_runs_out() {
        let problem = cut(200);
        // A round starts anew. Whatever the machine's speed, one of these limits ends the second before it has what the first had.
        for limit in (3..11).map(|power| Duration::from_millis(1 << power)) {
            let least = AtomicU64::new(u64::MAX);
            let show = |now: Progress| _ = least.fetch_min(now.peak, Relaxed);
            let portfolio =
                Portfolio { problem: &problem, threads: 2, time_limit: Some(limit), show: &show };
            assert_eq!(portfolio.run().0.peak(), least.load(Relaxed), "{limit:?}");
        }
    }
}
