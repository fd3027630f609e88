//! Fills memory from the bottom: always the lowest niche, always with the best item that fits between its walls.

use super::rest::Rest;
use super::scan::Scan;
use super::tree::Tree;
use crate::model::{Model, align_up, id};
use alloc::vec::Vec;

/// Order of the items of a niche.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// The best rank.
    Rank,
    /// The best rank among those that use the section with the most bytes still to come, if there are any.
    Fullest,
}

/// Places all items on a skyline, better ranks first where there is a choice.
///
/// `order` lists the items from best to worst. Fixed items are left out.
///
/// # Algorithm
/// The skyline is the height up to which each section is filled, kept as runs of equal height. A run lower than both
/// its neighbours is a niche between two walls. Of the items that live inside a niche the best one is put on its floor;
/// if there is none, the niche is raised to its lower wall and joins it. What happens in a niche depends on its walls
/// only, and those stay until it is filled, so the order of niches does not matter; the nearest one is taken, which
/// keeps memory accesses close. Items are never put under others, so the profile of an item with gaps is its hull.
///
/// # Cost
/// O((n + s)·(log n + q)) for n items and s sections, where q is a query of [`Tree`]; about 100 bytes per item.
pub(crate) fn skyline(model: &Model, order: &[u32], aim: Aim) -> Vec<u64> {
    let order: Vec<u32> =
        order.iter().copied().filter(|&i| model.fixed[i as usize].is_none()).collect();
    let n = order.len();
    let mut rest = match aim {
        Aim::Rank => None,
        Aim::Fullest => Some(Rest::new(&model.load)),
    };
    let mut waiting = Waiting::new(model, &order);
    let mut runs = Runs::new(id(model.sections()));
    let mut offsets = alloc::vec![0; model.len()];
    let mut left = n;
    while left > 0 {
        let (start, end, floor) = runs.niche();
        let urgent = rest.as_ref().map(|r| r.fullest(start, end));
        let best = urgent.and_then(|s| waiting.best((start, s), (s + 1, end)));
        let Some(best) = best.or_else(|| waiting.best((start, end), (start, end))) else {
            runs.raise(start);
            continue;
        };
        let item = order[n - best as usize];
        waiting.remove(item);
        if let Some(rest) = &mut rest {
            rest.take(model, item as usize);
        }
        left -= 1;
        let offset = align_up(floor, model.align[item as usize]);
        offsets[item as usize] = offset;
        let (from, to) = model.hull[item as usize];
        runs.fill(start, from, to, offset + model.size[item as usize]);
    }
    offsets
}

/// The items that have no place yet, for short niches and for long ones.
#[derive(Debug)]
struct Waiting<'a> {
    scan: Option<Scan<'a>>,
    tree: Tree,
}

impl<'a> Waiting<'a> {
    fn new(model: &'a Model, order: &[u32]) -> Self {
        let mut rank = alloc::vec![0; model.len()];
        for (at, &item) in order.iter().enumerate() {
            rank[item as usize] = id(order.len() - at);
        }
        let tree = Tree::new(&model.hull, &rank);
        Self { scan: Scan::new(&model.hull, rank, model.sections()), tree }
    }

    /// Returns the best rank among the items whose first section and end lie in the two inclusive ranges.
    fn best(&mut self, first: (u32, u32), end: (u32, u32)) -> Option<u32> {
        match self.scan.as_ref().and_then(|s| s.best(first, end)) {
            Some(best) => (best > 0).then_some(best),
            None => self.tree.best(first, end),
        }
    }

    fn remove(&mut self, item: u32) {
        self.tree.remove(item);
        if let Some(scan) = &mut self.scan {
            scan.remove(item);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Run {
    end: u32,
    /// Start of the run before; the run's own start if it is the first.
    before: u32,
    floor: u64,
}

/// Runs of equal height, stored at the section where each starts, and the place where work goes on.
#[derive(Debug)]
pub(super) struct Runs {
    at: Vec<Run>,
    sections: u32,
    here: u32,
}

impl Runs {
    pub(super) fn new(sections: u32) -> Self {
        let mut at = alloc::vec![Run { end: 0, before: 0, floor: 0 }; sections as usize];
        at[0] = Run { end: sections, before: 0, floor: 0 };
        Self { at, sections, here: 0 }
    }

    /// Returns a niche near the last one: start, end, height.
    pub(super) fn niche(&mut self) -> (u32, u32, u64) {
        loop {
            let run = self.at[self.here as usize];
            if self.here > 0 && self.at[run.before as usize].floor < run.floor {
                self.here = run.before;
            } else if run.end < self.sections && self.at[run.end as usize].floor < run.floor {
                self.here = run.end;
            } else {
                return (self.here, run.end, run.floor);
            }
        }
    }

    /// Lifts the run to its lower neighbour and joins them.
    pub(super) fn raise(&mut self, start: u32) {
        let run = self.at[start as usize];
        let before = (start > 0).then(|| self.at[run.before as usize].floor);
        let after = (run.end < self.sections).then(|| self.at[run.end as usize].floor);
        let floor = match (before, after) {
            (Some(b), Some(a)) => b.min(a),
            (Some(f), None) | (None, Some(f)) => f,
            // A run over all sections holds every item, so it is never raised.
            (None, None) => run.floor,
        };
        self.at[start as usize].floor = floor;
        self.join(start);
    }

    /// Splits the run at `start` around `[from, to)`, which rises to `top`.
    pub(super) fn fill(&mut self, start: u32, from: u32, to: u32, top: u64) {
        let run = self.at[start as usize];
        if to < run.end {
            self.set(to, Run { end: run.end, before: from, ..run });
            self.relink(run.end, to);
        }
        let before = if from > start { start } else { run.before };
        self.set(from, Run { end: to, before, floor: top });
        if to == run.end {
            self.relink(run.end, from);
        }
        if from > start {
            self.at[start as usize].end = from;
        }
        self.join(from);
    }

    /// Joins the run with neighbours of its height and goes on there.
    fn join(&mut self, mut start: u32) {
        let run = self.at[start as usize];
        if run.end < self.sections && self.at[run.end as usize].floor == run.floor {
            let next = self.at[run.end as usize];
            self.at[start as usize].end = next.end;
            self.relink(next.end, start);
        }
        if start > 0 && self.at[run.before as usize].floor == run.floor {
            let end = self.at[start as usize].end;
            start = run.before;
            self.at[start as usize].end = end;
            self.relink(end, start);
        }
        self.here = start;
    }

    fn set(&mut self, start: u32, run: Run) {
        self.at[start as usize] = run;
    }

    fn relink(&mut self, start: u32, before: u32) {
        if start < self.sections {
            self.at[start as usize].before = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Checks that runs are those of equal heights, that each knows the one before, and that a niche is below its walls; returns it, and the lower wall.
    fn check(runs: &mut Runs, heights: &[u64]) -> (u32, u32, Option<u64>) {
        let (mut start, mut before) = (0, 0);
        while start < runs.sections {
            let run = runs.at[start as usize];
            assert_eq!(run.before, before, "before {start} of {heights:?}");
            let here = &heights[start as usize..run.end as usize];
            assert!(here.iter().all(|&height| height == run.floor), "{start} of {heights:?}");
            assert!(start == 0 || runs.at[before as usize].floor != run.floor, "{heights:?}");
            (start, before) = (run.end, start);
        }
        let (start, end, floor) = runs.niche();
        let walls = [start.checked_sub(1), (end < runs.sections).then_some(end)];
        let lower = walls.into_iter().flatten().map(|wall| heights[wall as usize]).min();
        assert!(lower.is_none_or(|lower| lower > floor), "{start} of {heights:?}");
        (start, end, lower)
    }

    #[test]
    fn runs_are_the_heights_of_the_sections() {
        let mut rng = Rng::new(11);
        let mut below = |most: u32| u32::try_from(rng.below(u64::from(most))).expect("it is below");
        for sections in 1..=24 {
            let (mut runs, mut heights) = (Runs::new(sections), alloc::vec![0; sections as usize]);
            for _ in 0..200 {
                let (start, end, lower) = check(&mut runs, &heights);
                if let Some(lower) = lower.filter(|_| below(4) == 0) {
                    runs.raise(start);
                    heights[start as usize..end as usize].fill(lower);
                    continue;
                }
                let from = start + below(end - start);
                let to = from + 1 + below(end - from);
                let top = heights[start as usize] + 1 + u64::from(below(3));
                runs.fill(start, from, to, top);
                heights[from as usize..to as usize].fill(top);
            }
        }
    }
}
