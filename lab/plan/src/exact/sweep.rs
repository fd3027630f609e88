//! Lower bounds per section from the floors of unplaced items.

use super::frame::{Frame, Run};
use super::tactic::Pick;
use alloc::vec::Vec;

/// Candidates of a section are counted in steps of one; an item under which another still fits blocks it.
/// A thousand times the items that exact search takes still fit below the blocks of as many others.
const BLOCKED: u32 = 1 << 16;

/// Scratch space of one node.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// Unplaced items with the least offset each can have, by that offset.
    order: Vec<(u64, u32)>,
    other: Vec<(u64, u32)>,
    waiting: Vec<u32>,
    least: Vec<u64>,
    /// Per section: the height that its items reach at least.
    reach: Vec<u64>,
    ahead: Vec<u64>,
    /// Per section: the least offset, and the least top, of its items.
    lowest: Vec<u64>,
    top: Vec<u64>,
    count: Vec<u32>,
}

impl Sweep {
    pub(crate) fn new(items: usize, sections: usize) -> Self {
        Self {
            order: Vec::with_capacity(items),
            other: Vec::with_capacity(items),
            waiting: Vec::new(),
            least: alloc::vec![0; items],
            reach: alloc::vec![0; sections],
            ahead: alloc::vec![0; sections],
            lowest: alloc::vec![0; sections],
            top: alloc::vec![0; sections],
            count: alloc::vec![0; sections],
        }
    }

    /// Computes the least offset of each item; false when a waiting item waits for nothing.
    pub(crate) fn load(
        &mut self,
        frame: &Frame,
        items: &[u32],
        floor: &[u64],
        waits: &[bool],
        placed: &[bool],
    ) -> bool {
        self.order.clear();
        self.waiting.clear();
        for &i in items {
            if waits[i as usize] {
                self.least[i as usize] = u64::MAX;
                self.waiting.push(i);
            } else {
                self.least[i as usize] = floor[i as usize];
            }
        }
        // Least offsets of waiting items only fall from one round to the next, so this ends.
        let mut moved = !self.waiting.is_empty();
        while moved {
            moved = false;
            for &i in &self.waiting {
                let tops = frame.near(i).iter().filter(|&&o| !placed[o as usize]);
                let lift =
                    tops.map(|&o| self.least[o as usize].saturating_add(frame.in_way(o, i))).min();
                let least = lift.unwrap_or(u64::MAX).max(floor[i as usize]);
                if least < self.least[i as usize] {
                    self.least[i as usize] = least;
                    moved = true;
                }
            }
        }
        self.order.extend(items.iter().map(|&i| (self.least[i as usize], i)));
        self.order.sort_unstable();
        self.order.last().is_none_or(|last| last.0 < u64::MAX)
    }

    /// Stacks the items of every section as low as their least offsets allow; false when one passes the capacity.
    pub(crate) fn stack(&mut self, frame: &Frame, capacity: u64, span: (usize, usize)) -> bool {
        self.reach[span.0..span.1].fill(0);
        self.lowest[span.0..span.1].fill(u64::MAX);
        self.top[span.0..span.1].fill(u64::MAX);
        for &(least, item) in &self.order {
            for run in frame.runs(item) {
                let at = run.sections();
                let lows = self.lowest[at.clone()].iter_mut().zip(&mut self.top[at.clone()]);
                let limits = frame.spare[at.clone()].iter().zip(lows);
                for (reach, (spare, (lowest, top))) in self.reach[at].iter_mut().zip(limits) {
                    *reach = (*reach).max(least) + run.stacked;
                    *lowest = (*lowest).min(least);
                    *top = (*top).min(least + run.bytes);
                    if *reach > capacity + spare || least + run.bytes > capacity {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Counts, for each section, the items that can be lowest in it; sections with a blocked one are out.
    pub(crate) fn candidates(&mut self, frame: &Frame, waits: &[bool], span: (usize, usize)) {
        self.count[span.0..span.1].fill(0);
        let lows = self.lowest[span.0..span.1].iter().filter(|&&l| l < u64::MAX);
        let highest = lows.copied().max().unwrap_or(0);
        for &(least, item) in
            self.order.iter().take_while(|e| e.0 <= highest).filter(|e| !waits[e.1 as usize])
        {
            let runs = frame.runs(item);
            let blocks = |run: &Run| self.top[run.sections()].iter().any(|&t| t <= least);
            let step = if runs.iter().any(blocks) { BLOCKED } else { 1 };
            for run in runs {
                let at = run.sections();
                for (count, lowest) in self.count[at.clone()].iter_mut().zip(&self.lowest[at]) {
                    *count += if *lowest == least { step } else { 0 };
                }
            }
        }
    }

    /// Chooses the section to work on.
    pub(crate) fn pick(
        &self,
        frame: &Frame,
        pick: Pick,
        capacity: u64,
        span: (usize, usize),
        last: Option<(u32, u32)>,
    ) -> Option<usize> {
        let open = (span.0..span.1)
            .filter(|&s| self.lowest[s] < u64::MAX && self.count[s] > 0 && self.count[s] < BLOCKED);
        open.min_by_key(|&s| {
            let slack = (capacity + frame.spare[s]) - self.reach[s];
            let count = u64::from(self.count[s]);
            match pick {
                Pick::Few => (count, slack, 0),
                Pick::Low => (self.lowest[s], slack, 0),
                Pick::LowFew => (self.lowest[s], count, slack),
                Pick::Near => (count + last.map_or(0, |l| distance(s, l)).min(3), slack, 0),
            }
        })
    }

    /// Returns the least offset in a section.
    pub(crate) fn lowest(&self, section: usize) -> u64 {
        self.lowest[section]
    }

    /// Lists the items that can be lowest in a section.
    pub(crate) fn covering(
        &self,
        frame: &Frame,
        waits: &[bool],
        section: usize,
        out: &mut Vec<u32>,
    ) {
        let height = self.lowest[section];
        let at = self.order.partition_point(|e| e.0 < height);
        let level = self.order[at..].iter().take_while(|e| e.0 == height);
        let covers =
            |item: u32| frame.runs(item).iter().any(|run| run.sections().contains(&section));
        out.extend(level.map(|e| e.1).filter(|&i| !waits[i as usize] && covers(i)));
    }

    /// Returns the waste that follows when an item gets the given top, weighed by how little each section can spare; `None`
    /// when a section would pass the capacity.
    #[expect(clippy::cast_precision_loss, reason = "the result only orders branches")]
    pub(crate) fn waste(
        &mut self,
        frame: &Frame,
        capacity: u64,
        (item, height): (u32, u64),
        span: (usize, usize),
    ) -> Option<f64> {
        let near = frame.near(item);
        self.other.clear();
        for &(least, i) in self.order.iter().filter(|e| e.1 != item) {
            let lifted = near.binary_search(&i).map_or(0, |_| height + frame.in_way(item, i));
            self.other.push((least.max(lifted), i));
        }
        self.other.sort_unstable();
        self.ahead[span.0..span.1].fill(0);
        for run in frame.runs(item) {
            self.ahead[run.sections()].fill(height + run.stacked);
        }
        for &(least, i) in &self.other {
            for run in frame.runs(i) {
                let at = run.sections();
                for (ahead, spare) in self.ahead[at.clone()].iter_mut().zip(&frame.spare[at]) {
                    *ahead = (*ahead).max(least) + run.stacked;
                    if *ahead > capacity + spare {
                        return None;
                    }
                }
            }
        }
        let wasted = |s: usize| {
            let room = (capacity + frame.spare[s]) - self.reach[s];
            let spare = room as f64 + capacity as f64 * 0.001;
            frame.share[s] * (self.ahead[s] - self.reach[s]) as f64 / spare
        };
        Some((span.0..span.1).filter(|&s| self.ahead[s] > self.reach[s]).map(wasted).sum())
    }
}

fn distance(section: usize, hull: (u32, u32)) -> u64 {
    let (from, to) = (hull.0 as usize, hull.1 as usize);
    let steps = if section < from { from - section } else { (section + 1).saturating_sub(to) };
    steps as u64
}
