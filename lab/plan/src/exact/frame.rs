//! The model as the exact search sees it: only the sections that matter, and the conflicts of items.

use crate::classes::gcd;
use crate::model::{Model, align_up, id};
use alloc::vec::Vec;

/// Sections that a frame keeps.
///
/// A section whose items are all live in the next one says nothing that the next one does not, so it is enough to keep
/// the sections with a maximal set of items. The others still make good branching points, because fewer items compete
/// in them; which is better differs from problem to problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Sections with a maximal set of items: less than one section per item.
    Maximal,
    /// All.
    All,
}

/// A run of sections in which an item needs the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) bytes: u64,
    /// The bytes, rounded up to what all offsets are multiples of.
    pub(crate) stacked: u64,
}

impl Run {
    pub(crate) const fn sections(&self) -> core::ops::Range<usize> {
        self.from as usize..self.to as usize
    }
}

/// Items, their runs of kept sections, and their neighbours.
#[derive(Debug)]
pub(crate) struct Frame {
    /// The most bytes that an item ever needs.
    pub(crate) size: Vec<u64>,
    pub(crate) align: Vec<u64>,
    pub(crate) fixed: Vec<Option<u64>>,
    pub(crate) hull: Vec<(u32, u32)>,
    runs: Vec<Run>,
    runs_at: Vec<u32>,
    near: Vec<u32>,
    near_at: Vec<u32>,
    /// The share of all time that each kept section stands for.
    pub(crate) share: Vec<f64>,
    pub(crate) load: Vec<u64>,
    /// Bytes by which stacked runs may pass the capacity in each section: the last one is not followed by another.
    pub(crate) spare: Vec<u64>,
}

impl Frame {
    /// Reduces a model. Each pair that must stay separate gets a section of its own behind the real ones.
    ///
    /// # Cost
    /// O(n² + s) time and O(n + c) memory for c conflicts.
    pub(crate) fn new(model: &Model, detail: Detail) -> Self {
        let kept = kept_sections(model, detail);
        let grain = model.align.iter().copied().fold(0, gcd);
        let (mut runs, mut runs_at) = (Vec::new(), alloc::vec![0]);
        let index = |s: u32| id(kept.partition_point(|&k| k < s));
        let pairs = Pairs::new(model, kept.len());
        for item in 0..model.len() {
            let spans = model.runs(item).iter().zip(model.bytes(item));
            let real = spans.map(|(&(from, to), &bytes)| (index(from), index(to), bytes));
            for (from, to, bytes) in real.chain(pairs.runs(item)) {
                runs.push(Run { from, to, bytes, stacked: align_up(bytes, grain) });
            }
            runs_at.push(id(runs.len()));
        }
        let (near, near_at) = neighbours(model.len(), |a, b| model.conflict(a, b));
        let mut frame = Self {
            size: model.size.clone(),
            align: model.align.clone(),
            fixed: model.fixed.clone(),
            hull: Vec::new(),
            runs,
            runs_at,
            near,
            near_at,
            share: shares(model, &kept),
            load: Vec::new(),
            spare: Vec::new(),
        };
        frame.sum_up(kept.len() + pairs.len());
        frame
    }

    /// Makes a frame of items with one run each, all sections alike. Sizes are multiples of the alignment.
    pub(crate) fn of_spans(
        spans: &[(u32, u32)],
        size: Vec<u64>,
        align: u64,
        fixed: Vec<Option<u64>>,
    ) -> Self {
        let sections = spans.iter().map(|s| s.1).max().unwrap_or(0) as usize;
        let meet = |a: usize, b: usize| spans[a].0 < spans[b].1 && spans[b].0 < spans[a].1;
        let (near, near_at) = neighbours(spans.len(), meet);
        let run =
            |(&(from, to), &bytes): (&(u32, u32), &u64)| Run { from, to, bytes, stacked: bytes };
        let mut frame = Self {
            align: alloc::vec![align; size.len()],
            fixed,
            hull: Vec::new(),
            runs: spans.iter().zip(&size).map(run).collect(),
            size,
            runs_at: (0..=id(spans.len())).collect(),
            near,
            near_at,
            share: alloc::vec![1.0; sections],
            load: Vec::new(),
            spare: Vec::new(),
        };
        frame.sum_up(sections);
        frame
    }

    /// Computes what follows from the runs. Items come in the order of their first sections.
    fn sum_up(&mut self, sections: usize) {
        let hull = |w: &[u32]| (self.runs[w[0] as usize].from, self.runs[w[1] as usize - 1].to);
        self.hull = self.runs_at.windows(2).map(hull).collect();
        debug_assert!(self.hull.is_sorted_by_key(|hull| hull.0));
        self.load = alloc::vec![0; sections];
        self.spare = alloc::vec![0; sections];
        self.share.resize(sections, 0.0);
        for run in &self.runs {
            for s in run.sections() {
                self.load[s] += run.bytes;
                self.spare[s] = self.spare[s].max(run.stacked - run.bytes);
            }
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.size.len()
    }

    pub(crate) const fn sections(&self) -> usize {
        self.load.len()
    }

    pub(crate) fn runs(&self, item: u32) -> &[Run] {
        &self.runs[self.runs_at[item as usize] as usize..self.runs_at[item as usize + 1] as usize]
    }

    pub(crate) fn near(&self, item: u32) -> &[u32] {
        &self.near[self.near_at[item as usize] as usize..self.near_at[item as usize + 1] as usize]
    }

    /// Returns the bytes of one item that a neighbour has to keep off.
    pub(crate) fn in_way(&self, item: u32, of: u32) -> u64 {
        let runs = self.runs(item);
        if let [run] = runs {
            return run.bytes;
        }
        let meet = |r: &&Run| self.runs(of).iter().any(|s| r.from < s.to && s.from < r.to);
        runs.iter().filter(meet).map(|r| r.bytes).max().unwrap_or(0)
    }

    /// Returns whether two items can trade places.
    pub(crate) fn twins(&self, a: u32, b: u32) -> bool {
        let (x, y) = (a as usize, b as usize);
        self.align[x] == self.align[y]
            && self.fixed[x] == self.fixed[y]
            && self.runs(a) == self.runs(b)
    }
}

/// The sections of pairs that must stay separate: item, section, bytes.
struct Pairs(Vec<(u32, u32, u64)>);

impl Pairs {
    fn new(model: &Model, first: usize) -> Self {
        let mut all = Vec::new();
        let mut section = id(first);
        for a in 0..model.len() {
            for (b, bytes) in model.apart(a).filter(|p| a < p.0 as usize) {
                let back = model.apart(b as usize).filter(|p| p.0 as usize == a).map(|p| p.1).max();
                all.push((id(a), section, bytes));
                all.push((b, section, back.unwrap_or(bytes)));
                section += 1;
            }
        }
        all.sort_unstable();
        Self(all)
    }

    const fn len(&self) -> usize {
        self.0.len() / 2
    }

    fn runs(&self, item: usize) -> impl Iterator<Item = (u32, u32, u64)> + '_ {
        let at = self.0.partition_point(|p| (p.0 as usize) < item);
        let own = self.0[at..].iter().take_while(move |p| p.0 as usize == item);
        own.map(|&(_, s, bytes)| (s, s + 1, bytes))
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
    for s in 0..model.sections() {
        let at = kept.partition_point(|&k| (k as usize) < s).min(kept.len().saturating_sub(1));
        ticks[at] += model.length(s);
    }
    let total = ticks.iter().map(|&t| t as f64).sum::<f64>().max(1.0);
    ticks.iter().map(|&t| t as f64 / total).collect()
}
