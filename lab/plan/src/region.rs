//! Plans the items of one region.

use crate::bound::{lower_bound, unit};
use crate::clusters::{Clusters, MergeRule};
use crate::exact::{Detail, Frame, Search, Tactic, Verdict};
use crate::greedy::Portfolio;
use crate::handover::{Turns, hand_over};
use crate::hot::hot_first;
use crate::improve::{Habit, Improve};
use crate::model::{Model, peak_of};
use crate::options::{Options, Progress};
use crate::plan::Usage;
use crate::repair::Repair;
use crate::rng::Rng;
use crate::stop::Stop;
use alloc::vec::Vec;
use core::ops::Range;

/// More items than this are left to the greedy rules.
const EXACT_ITEMS: usize = 2_000;
/// Items that greedy placements with chance may place in all.
const VARIED_ITEMS: usize = 400_000;
/// Greedy placements after which the busiest time is planned first.
const HOT_AFTER: usize = 7;
/// Greedy placements of more items than `HOT_ITEMS` before repair, which does more for a huge plan than others of them do.
const HUGE_TRIES: usize = 2;
/// Nodes for each item that the first repair of so many items gets, before the other greedy rules have their turn.
const HUGE_NODES: u64 = 2;
/// Fewer items than this are as well searched as a whole, and repaired only now and then.
const HOT_FROM: usize = 500;
/// More items than this are too many for the quadratic rule that plans around the busiest time.
const HOT_ITEMS: usize = 60_000;
/// Runs at the lower bound after a plan fits the given capacity.
const POLISH_RUNS: usize = 2;
/// Runs before the node limit of a run doubles, and before an easier target is taken.
const ROUND_RUNS: usize = 20;
/// Runs of exact search before improvement takes turns with it: what exact search can do, it does early.
const IMPROVE_FROM: usize = 6;

/// Search nodes for each item when clusters are planned, and the rounds until that doubles.
const CLUSTER_NODES: u64 = 5;
const CLUSTER_ROUNDS: u32 = 16;
/// Runs between two plans of clusters, for models of many items.
const MERGE_RUNS: usize = 5;
/// Runs after which improvement starts anew with another habit.
const RENEW_RUNS: usize = 10;
/// Steps of improvement for each node that exact search may look at, and how many of them count as a node.
const STEPS: u64 = 2;
const NODE_STEPS: u64 = 8;
/// Runs until twice as many drafts are kept side by side where bytes are handed over, and how often that is.
const DRAFT_RUNS: usize = 4;
const DRAFTS_DOUBLED: usize = 9;
/// Runs of exact search before that: easy problems end with them.
const FIRST_RUNS: usize = 4;
/// Items of all drafts together: each has a list of its own.
const DRAFTED_ITEMS: usize = 1 << 20;
/// More items than this take too long to hand over.
const HANDED_ITEMS: usize = 10_000;
/// Nodes that one repair step counts as.
const STEP_NODES: u64 = 2;
/// Nodes of a repair between runs of exact search.
const REPAIR_NODES: u64 = 200_000;

/// Shared input of the work on all regions.
pub(crate) struct Task<'a> {
    pub(crate) options: &'a Options<'a>,
    pub(crate) stop: &'a Stop<'a>,
    /// True if items may be merged into clusters, which are not merged again.
    pub(crate) merges: bool,
}

/// Result for a region.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) offsets: Vec<u64>,
    pub(crate) peak: u64,
    pub(crate) bound: u64,
    pub(crate) nodes: u64,
}

impl Outcome {
    /// Returns the region's usage. There is no bound if fixed items overlap.
    pub(crate) fn usage(&self) -> Usage {
        Usage { peak: self.peak, lower_bound: self.bound.min(self.peak) }
    }
}

impl Task<'_> {
    /// Plans the items of a model by greedy rules.
    pub(crate) fn greedy(&self, model: &Model, region: usize) -> Outcome {
        let bound = lower_bound(model);
        let mut outcome = Outcome { offsets: Vec::new(), peak: u64::MAX, bound, nodes: 0 };
        let tries = match model.len() {
            items if items <= EXACT_ITEMS => Portfolio::WAYS,
            huge if huge > HOT_ITEMS => HUGE_TRIES,
            items => Portfolio::WAYS + VARIED_ITEMS / items,
        };
        self.try_greedy(model, region, 0..tries, &mut outcome);
        outcome
    }

    /// Tries some of the greedy rules, until a plan is as low as can be.
    fn try_greedy(&self, model: &Model, region: usize, rules: Range<usize>, outcome: &mut Outcome) {
        let mut portfolio = Portfolio::new(self.options.seed, outcome.bound);
        portfolio.skip(rules.start);
        while outcome.peak > outcome.bound && portfolio.tries() < rules.end {
            if let Some(offsets) = portfolio.next(model, self.stop) {
                self.keep(model, region, outcome, offsets);
            }
            if self.stop.now() {
                break;
            }
            if portfolio.tries() == HOT_AFTER
                && (HOT_FROM..=HOT_ITEMS).contains(&model.len())
                && let Some(offsets) = hot_first(model, outcome.bound, self.stop)
            {
                self.keep(model, region, outcome, offsets);
            }
        }
    }

    /// Lowers the peak of a plan, to a capacity or as far as possible.
    pub(crate) fn refine(
        &self,
        model: &Model,
        region: usize,
        capacity: Option<u64>,
        outcome: &mut Outcome,
    ) {
        if outcome.peak <= outcome.bound || self.stop.now() {
            return;
        }
        if model.len() > EXACT_ITEMS {
            self.repair(model, region, capacity, outcome);
        } else {
            Duel::new(self, model, region, capacity).run(outcome);
        }
    }

    /// Plans clusters in place of items; false when that gives no plan below the target.
    fn merge(
        &self,
        (model, region, target): (&Model, usize, u64),
        outcome: &mut Outcome,
        round: u32,
        rng: &mut Rng,
    ) -> bool {
        if !self.merges || model.len() > HOT_ITEMS {
            return false;
        }
        let clusters = Clusters::new(model, target, MergeRule::nth(round, model.len()), rng);
        let merged = clusters.model(model);
        if merged.len() > model.len() - model.len() / 8 {
            return false;
        }
        let left = self.options.effort.saturating_sub(outcome.nodes);
        let effort = (CLUSTER_NODES * model.len() as u64) << (round / CLUSTER_ROUNDS).min(20);
        let options =
            Options { progress: None, effort: effort.min(left), seed: rng.next(), ..*self.options };
        let task = Task { options: &options, stop: self.stop, merges: false };
        let mut inner = task.greedy(&merged, region);
        if inner.peak > target {
            task.refine(&merged, region, Some(target), &mut inner);
        }
        outcome.nodes += inner.nodes;
        self.keep(model, region, outcome, clusters.expand(&inner.offsets));
        outcome.peak <= target
    }

    /// Plans in order of time, with more drafts side by side in later rounds; false when that does not reach the target.
    fn hand_over(
        &self,
        (model, region, target): (&Model, usize, u64),
        turns: &Turns,
        outcome: &mut Outcome,
        round: usize,
        rng: &mut Rng,
    ) -> bool {
        let width = (1 << round.min(DRAFTS_DOUBLED)).min(DRAFTED_ITEMS / model.len().max(1)).max(1);
        let (found, taken) = hand_over((model, turns), target, width, rng, self.stop);
        outcome.nodes += taken;
        let is_found = found.is_some();
        if let Some(offsets) = found {
            self.keep(model, region, outcome, offsets);
        }
        is_found
    }

    /// Repairs a plan, again and again, until it is as low as can be, or low enough and no easy way is left, or there is no
    /// time. A huge plan is also compared with those of the textbook rules.
    fn repair(&self, model: &Model, region: usize, capacity: Option<u64>, outcome: &mut Outcome) {
        let mut rng = Rng::new(self.options.seed);
        let place = (model, region, capacity);
        let fits = |outcome: &Outcome| capacity.is_some_and(|c| outcome.peak <= c);
        if model.len() > HOT_ITEMS && !fits(outcome) {
            self.repair_once(place, outcome, HUGE_NODES * model.len() as u64, &mut rng);
            if !fits(outcome) && !self.stop.now() {
                self.try_greedy(model, region, HUGE_TRIES..Portfolio::TEXTBOOK, outcome);
            }
        }
        let turns = Some(model).filter(|m| m.len() <= HANDED_ITEMS).and_then(Turns::new);
        for round in 0.. {
            if outcome.peak <= outcome.bound {
                return;
            }
            let fit = fits(outcome);
            let target = capacity.filter(|_| !fit).unwrap_or(outcome.bound);
            if let Some(turns) = &turns
                && self.hand_over((model, region, target), turns, outcome, round, &mut rng)
            {
                continue;
            }
            let round = u32::try_from(round).unwrap_or(u32::MAX);
            self.merge((model, region, target), outcome, round, &mut rng);
            if !self.repair_once(place, outcome, u64::MAX, &mut rng) || fit {
                return;
            }
        }
    }

    /// Repairs a plan with at most this many nodes; false if the effort is spent or more is no use.
    fn repair_once(
        &self,
        (model, region, capacity): (&Model, usize, Option<u64>),
        outcome: &mut Outcome,
        most: u64,
        rng: &mut Rng,
    ) -> bool {
        let over = capacity.filter(|&c| outcome.peak > c).unwrap_or(0);
        let floor = over.max(outcome.bound);
        let limit = self.options.effort.saturating_sub(outcome.nodes).min(most) / STEP_NODES;
        let mut repair = Repair::new(model, &outcome.offsets);
        let taken = repair.run(floor, limit, rng, self.stop, |offsets| {
            self.keep(model, region, outcome, offsets.to_vec());
        });
        outcome.nodes += taken * STEP_NODES;
        taken > 0 && taken < limit && !self.stop.now()
    }

    fn keep(&self, model: &Model, region: usize, outcome: &mut Outcome, offsets: Vec<u64>) {
        let peak = peak_of(model, &offsets);
        if peak < outcome.peak {
            outcome.peak = peak;
            outcome.offsets = offsets;
            self.tell(region, outcome);
        }
    }

    fn tell(&self, region: usize, outcome: &Outcome) {
        if let Some(progress) = self.options.progress {
            let Outcome { peak, bound, nodes, .. } = *outcome;
            progress(Progress { region, peak, lower_bound: bound, nodes });
        }
    }
}

/// Exact search, improvement and repair in turns, at two targets: the lower bound, and one that is easier to reach.
struct Duel<'a> {
    task: &'a Task<'a>,
    model: &'a Model,
    region: usize,
    capacity: Option<u64>,
    rng: Rng,
    /// Common divisor of all peaks.
    unit: u64,
    /// Runs at the lower bound since a plan fits the capacity.
    polished: usize,
    /// Times that clusters were planned.
    merged: u32,
    /// The items in order of time, where bytes can be handed over.
    turns: Option<Turns>,
}

impl<'a> Duel<'a> {
    fn new(task: &'a Task<'a>, model: &'a Model, region: usize, capacity: Option<u64>) -> Self {
        let rng = Rng::new(task.options.seed);
        // A capacity between two peaks is as good as the lower one.
        let unit = unit(model);
        let capacity = capacity.map(|c| c - c % unit);
        let turns = Turns::new(model);
        Self { task, model, region, capacity, rng, unit, polished: 0, merged: 0, turns }
    }

    fn run(&mut self, outcome: &mut Outcome) {
        let frames = [Detail::All, Detail::Maximal].map(|detail| Frame::new(self.model, detail));
        // The bound itself is the first target where exact search has a chance, so that no capacity is as good as a tight one.
        let mut first = u32::from(self.model.len() >= HOT_FROM);
        let mut rung = first;
        while outcome.peak > outcome.bound && !self.spent(outcome) {
            let target = self.target(outcome, rung);
            match self.attempt(&frames, outcome, target) {
                Ended::Better => rung = first,
                Ended::Nothing => {
                    first = 1;
                    rung += 1;
                }
                Ended::Enough => return,
            }
        }
    }

    /// Returns the easier target: the capacity, else the bound, then halfway to the best peak, closer to it after each failure.
    fn target(&self, outcome: &Outcome, rung: u32) -> u64 {
        match self.capacity {
            Some(capacity) if outcome.peak > capacity => capacity,
            _ => {
                let less = (outcome.peak - outcome.bound) >> rung.min(63);
                outcome.peak - less.next_multiple_of(self.unit).max(self.unit)
            }
        }
    }

    /// Works until one of the targets is reached or excluded; once the plan fits, for a bounded number of runs.
    fn attempt(&mut self, frames: &[Frame; 2], outcome: &mut Outcome, target: u64) -> Ended {
        let stop = self.task.stop;
        let fits = self.capacity.is_none_or(|c| outcome.peak <= c);
        let polishing = fits && self.capacity.is_some();
        let searches = |capacity| frames.each_ref().map(|frame| Search::new(frame, capacity, stop));
        let mut low = searches(outcome.bound);
        let mut high = (target > outcome.bound).then(|| searches(target));
        let mut improve = Improve::new(&frames[1], target, Habit::nth(0));
        for run in 0.. {
            if self.spent(outcome) || (polishing && self.polished >= POLISH_RUNS) {
                return Ended::Enough;
            }
            if self.rework(run, outcome, if fits { u64::MAX } else { target }, target) {
                return Ended::Better;
            }
            if fits && run >= ROUND_RUNS {
                return Ended::Nothing;
            }
            self.polished += usize::from(fits);
            let limit = self.limit(run, polishing);
            if let Some(high) = high.as_mut().filter(|_| !polishing)
                && let Some(ended) = self.search(&mut high[Tactic::frame(run)], outcome, run, limit)
            {
                return ended;
            }
            // The easier target gets most of the time.
            let due = high.is_none() || polishing || run % 4 == 3;
            if due
                && let Some(ended) = self.search(&mut low[Tactic::frame(run)], outcome, run, limit)
            {
                return ended;
            }
            if run > 0 && run % RENEW_RUNS == 0 {
                improve = Improve::new(&frames[1], target, Habit::nth(run / RENEW_RUNS));
            }
            if run >= IMPROVE_FROM && self.improve(&mut improve, outcome, limit) {
                return Ended::Better;
            }
        }
        Ended::Nothing
    }

    /// Nodes of a run.
    const fn limit(&self, run: usize, polishing: bool) -> u64 {
        let items = self.model.len() as u64;
        let doubled = run / ROUND_RUNS;
        let doubled = if doubled < 20 { doubled } else { 20 };
        if polishing { items + items / 2 } else { (500 + 2 * items) << doubled }
    }

    /// Repairs the plan and plans clusters where that is due; true when a repair ends below the first of two peaks, or clusters
    /// below the second.
    fn rework(&mut self, run: usize, outcome: &mut Outcome, enough: u64, target: u64) -> bool {
        (self.repair_is_due(run) && self.repair(outcome) && outcome.peak <= enough)
            || (self.merge_is_due(run)
                && (self.hand_over(run, outcome, target) || self.merge(outcome, target)))
    }

    /// Returns whether a run begins with a repair: the more items there are, the less exact search does for them.
    const fn repair_is_due(&self, run: usize) -> bool {
        let every = if self.model.len() < HOT_FROM { ROUND_RUNS } else { 1 };
        run.is_multiple_of(every) && run + 1 >= every
    }

    /// Returns whether a run begins with clusters: where there are many items, repair does more with the time.
    const fn merge_is_due(&self, run: usize) -> bool {
        self.model.len() < HOT_FROM || run.is_multiple_of(MERGE_RUNS)
    }

    /// Plans in order of time; false when that does not reach the target. Without a capacity, the bound is a target too.
    fn hand_over(&mut self, run: usize, outcome: &mut Outcome, target: u64) -> bool {
        let Some(turns) = self.turns.as_ref().filter(|_| run >= FIRST_RUNS) else { return false };
        let is_bound = self.capacity.is_none() && run.is_multiple_of(2);
        let target = if is_bound { outcome.bound } else { target };
        let place = (self.model, self.region, target);
        self.task.hand_over(place, turns, outcome, (run - FIRST_RUNS) / DRAFT_RUNS, &mut self.rng)
    }

    /// Plans clusters; false when that does not reach the target.
    fn merge(&mut self, outcome: &mut Outcome, target: u64) -> bool {
        let place = (self.model, self.region, target);
        self.merged += 1;
        self.task.merge(place, outcome, self.merged - 1, &mut self.rng)
    }

    /// Repairs the plan; false when that does not lower it.
    fn repair(&mut self, outcome: &mut Outcome) -> bool {
        let before = outcome.peak;
        let place = (self.model, self.region, self.capacity);
        self.task.repair_once(place, outcome, REPAIR_NODES, &mut self.rng);
        outcome.peak < before
    }

    fn improve(&mut self, improve: &mut Improve<'_>, outcome: &mut Outcome, limit: u64) -> bool {
        outcome.nodes += limit * STEPS / NODE_STEPS;
        let Some(offsets) = improve.run(limit * STEPS, &mut self.rng, self.task.stop) else {
            return false;
        };
        self.task.keep(self.model, self.region, outcome, offsets);
        true
    }

    fn search(
        &mut self,
        search: &mut Search<'_>,
        outcome: &mut Outcome,
        run: usize,
        limit: u64,
    ) -> Option<Ended> {
        let verdict = search.run(Tactic::nth(run), limit, &mut self.rng);
        outcome.nodes += search.nodes();
        match verdict {
            Verdict::Found => {
                self.task.keep(self.model, self.region, outcome, search.offset.clone());
                Some(Ended::Better)
            }
            Verdict::Fail => {
                let more = (search.capacity + 1).next_multiple_of(self.unit);
                outcome.bound = outcome.bound.max(more);
                self.task.tell(self.region, outcome);
                Some(Ended::Better)
            }
            Verdict::Limit => None,
        }
    }

    fn spent(&self, outcome: &Outcome) -> bool {
        let hopeless = self.capacity.is_some_and(|c| outcome.bound > c);
        hopeless || outcome.nodes >= self.task.options.effort || self.task.stop.now()
    }
}

/// End of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The attempt found a better plan or a better bound.
    Better,
    /// The attempt found neither.
    Nothing,
    /// There is no time, or no need, for another.
    Enough,
}
