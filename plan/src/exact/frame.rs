//! The model as the exact search sees it: only the sections that matter, and who conflicts with whom.

use crate::model::{Model, id};
use alloc::vec::Vec;

/// Which sections a frame keeps.
///
/// A section whose items are all live in the next one says nothing that the next one does not, so it is enough to keep
/// the sections with a maximal set of items. The others still make good branching points, because fewer items compete
/// in them; which is better differs from problem to problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Those with a maximal set of items: less than one section per item.
    Maximal,
    /// All.
    All,
}

/// Items, their runs of kept sections, and their neighbours.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) size: Vec<u64>,
    pub(crate) align: Vec<u64>,
    pub(crate) hull: Vec<(u32, u32)>,
    runs: Vec<(u32, u32)>,
    runs_at: Vec<u32>,
    near: Vec<u32>,
    near_at: Vec<u32>,
    /// The share of all time that each kept section stands for.
    pub(crate) share: Vec<f64>,
    pub(crate) load: Vec<u64>,
}

impl Frame {
    /// Reduces a model.
    ///
    /// # Cost
    /// O(n² + s) time and O(n + c) memory for c conflicts.
    pub(crate) fn new(model: &Model, detail: Detail) -> Self {
        let kept = kept_sections(model, detail);
        let (runs, runs_at) = kept_runs(model, &kept);
        let hull: Vec<_> = runs_at
            .windows(2)
            .map(|w| (runs[w[0] as usize].0, runs[w[1] as usize - 1].1))
            .collect();
        let (near, near_at) = neighbours(model.len(), |a, b| model.conflict(a, b));
        let share = shares(model, &kept);
        let load = kept.iter().map(|&s| model.load[s as usize]).collect();
        Self {
            size: model.size.clone(),
            align: model.align.clone(),
            hull,
            runs,
            runs_at,
            near,
            near_at,
            share,
            load,
        }
    }

    /// Makes a frame of items with one run each, unaligned, all sections alike.
    pub(crate) fn of_spans(spans: &[(u32, u32)], size: Vec<u64>) -> Self {
        let sections = spans.iter().map(|s| s.1).max().unwrap_or(0) as usize;
        let mut load = alloc::vec![0; sections];
        for (&(from, to), bytes) in spans.iter().zip(&size) {
            load[from as usize..to as usize].iter_mut().for_each(|l| *l += bytes);
        }
        let meet = |a: usize, b: usize| spans[a].0 < spans[b].1 && spans[b].0 < spans[a].1;
        let (near, near_at) = neighbours(spans.len(), meet);
        Self {
            align: alloc::vec![1; size.len()],
            size,
            hull: spans.to_vec(),
            runs: spans.to_vec(),
            runs_at: (0..=id(spans.len())).collect(),
            near,
            near_at,
            share: alloc::vec![1.0; sections],
            load,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.size.len()
    }

    pub(crate) const fn sections(&self) -> usize {
        self.load.len()
    }

    pub(crate) fn runs(&self, item: u32) -> &[(u32, u32)] {
        &self.runs[self.runs_at[item as usize] as usize..self.runs_at[item as usize + 1] as usize]
    }

    pub(crate) fn near(&self, item: u32) -> &[u32] {
        &self.near[self.near_at[item as usize] as usize..self.near_at[item as usize + 1] as usize]
    }

    /// Calls `f` for each section of an item.
    pub(crate) fn each_section(&self, item: u32, mut f: impl FnMut(usize)) {
        for &(from, to) in self.runs(item) {
            (from as usize..to as usize).for_each(&mut f);
        }
    }

    /// Says whether two items can trade places.
    pub(crate) fn twins(&self, a: u32, b: u32) -> bool {
        let (x, y) = (a as usize, b as usize);
        self.size[x] == self.size[y]
            && self.align[x] == self.align[y]
            && self.runs(a) == self.runs(b)
    }
}

/// Lists the sections that are kept.
fn kept_sections(model: &Model, detail: Detail) -> Vec<u32> {
    match detail {
        Detail::All => (0..id(model.sections())).collect(),
        Detail::Maximal => {
            maximal(model.sections(), (0..model.len()).flat_map(|i| model.runs(i).iter().copied()))
        }
    }
}

/// Lists the sections whose set of runs is not part of another section's.
pub(crate) fn maximal(sections: usize, runs: impl Iterator<Item = (u32, u32)>) -> Vec<u32> {
    let mut starts = alloc::vec![false; sections + 1];
    let mut ends = alloc::vec![false; sections + 1];
    for (from, to) in runs {
        starts[from as usize] = true;
        ends[to as usize] = true;
    }
    let mut kept = Vec::new();
    let mut fresh = false;
    for s in 0..sections {
        fresh |= starts[s];
        if fresh && ends[s + 1] {
            kept.push(id(s));
            fresh = false;
        }
    }
    kept
}

fn kept_runs(model: &Model, kept: &[u32]) -> (Vec<(u32, u32)>, Vec<u32>) {
    let mut runs = Vec::new();
    let mut runs_at = alloc::vec![0];
    let index = |s: u32| id(kept.partition_point(|&k| k < s));
    for item in 0..model.len() {
        runs.extend(model.runs(item).iter().map(|&(from, to)| (index(from), index(to))));
        runs_at.push(id(runs.len()));
    }
    (runs, runs_at)
}

fn neighbours(items: usize, conflict: impl Fn(usize, usize) -> bool) -> (Vec<u32>, Vec<u32>) {
    let mut near = Vec::new();
    let mut near_at = alloc::vec![0];
    for a in 0..items {
        near.extend((0..items).filter(|&b| a != b && conflict(a, b)).map(id));
        near_at.push(id(near.len()));
    }
    (near, near_at)
}

#[expect(clippy::cast_precision_loss, reason = "shares only order branches")]
fn shares(model: &Model, kept: &[u32]) -> Vec<f64> {
    let mut ticks = alloc::vec![0u64; kept.len()];
    for s in 0..model.ticks.len().saturating_sub(1) {
        let at = kept.partition_point(|&k| (k as usize) < s).min(kept.len().saturating_sub(1));
        ticks[at] += model.length(s);
    }
    let total = ticks.iter().map(|&t| t as f64).sum::<f64>().max(1.0);
    ticks.iter().map(|&t| t as f64 / total).collect()
}
