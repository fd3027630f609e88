//! A problem made ready for search: one region, buffers that share bytes merged, time cut into sections.

use crate::problem::Problem;
use alloc::vec::Vec;

/// A piece of time in which the set of live items does not change, or an artificial one that keeps a pair apart.
pub(crate) type Section = u32;

/// The items of one region and the sections in which each is live.
///
/// An item is a buffer, or all buffers that use the same bytes. A section is a clique of the conflict graph: the items
/// of one section stack without overlap, and that is the only constraint there is. A pair that must stay separate gets
/// a section of its own behind the real ones.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) size: Vec<u64>,
    pub(crate) align: Vec<u64>,
    pub(crate) fixed: Vec<Option<u64>>,
    pub(crate) hint: Vec<Option<u64>>,
    /// From the first section of an item to behind its last.
    pub(crate) hull: Vec<(Section, Section)>,
    /// Runs of sections, those of item `i` at `runs_at[i]..runs_at[i + 1]`.
    runs: Vec<(Section, Section)>,
    runs_at: Vec<u32>,
    /// Where each real section starts, and behind them where the last one ends.
    pub(crate) ticks: Vec<u64>,
    /// Bytes alive in each section.
    pub(crate) load: Vec<u64>,
    /// Bytes that each item needs at least whenever it is live, if classes of unequal buffers make that less than its
    /// size.
    pub(crate) least: Option<Vec<u64>>,
    /// The item that holds each buffer of the problem, if it has bytes in this region.
    pub(crate) item_of: Vec<Option<u32>>,
}

/// Narrows an index; `Problem::check` bounds the number of buffers, and each gives at most a few of anything.
#[expect(clippy::cast_possible_truncation, reason = "counts are checked to fit 32 bits")]
pub(crate) const fn id(index: usize) -> u32 {
    index as u32
}

/// The least multiple of `align` that is not below `offset`.
pub(crate) const fn align_up(offset: u64, align: u64) -> u64 {
    if align <= 1 { offset } else { offset.div_ceil(align) * align }
}

impl Model {
    /// Makes the model of the buffers that `chosen` admits in region `region`.
    pub(crate) fn new(problem: &Problem, region: usize, chosen: impl Fn(usize) -> bool) -> Self {
        let ticks = ticks_of(problem, &chosen);
        let mut model = Self {
            size: Vec::new(),
            align: Vec::new(),
            fixed: Vec::new(),
            hint: Vec::new(),
            hull: Vec::new(),
            runs: Vec::new(),
            runs_at: alloc::vec![0],
            ticks,
            load: Vec::new(),
            least: None,
            item_of: alloc::vec![None; problem.buffers.len()],
        };
        if problem.aliases.is_empty() {
            // Items in order of time keep the memory accesses of everything that follows close together.
            let mut sorted: Vec<(u64, u32)> = (0..problem.buffers.len())
                .filter(|&i| chosen(i) && problem.buffers[i].size > 0)
                .map(|i| (problem.buffers[i].live.start, id(i)))
                .collect();
            sorted.sort_unstable();
            model.reserve(sorted.len());
            for (_, index) in sorted {
                model.push_item(problem, region, &[index as usize]);
            }
        } else {
            let mut least = Vec::new();
            for group in groups(problem, &chosen) {
                model.push_item(problem, region, &group);
                least.push(group.iter().map(|&i| problem.buffers[i].size).min().unwrap_or(0));
            }
            model.least = (least != model.size).then_some(least);
        }
        model.add_separate(problem);
        model.load = model.sum(&model.size);
        model
    }

    fn reserve(&mut self, items: usize) {
        self.size.reserve_exact(items);
        self.align.reserve_exact(items);
        self.fixed.reserve_exact(items);
        self.hint.reserve_exact(items);
        self.hull.reserve_exact(items);
        self.runs.reserve_exact(items);
        self.runs_at.reserve_exact(items);
    }

    fn push_item(&mut self, problem: &Problem, region: usize, group: &[usize]) {
        let item = id(self.size.len());
        let start = self.runs.len();
        let mut align = problem.regions[region].align;
        let (mut size, mut fixed, mut hint) = (0, None, None);
        for &index in group {
            let buffer = &problem.buffers[index];
            size = size.max(buffer.size);
            align = lcm(align, buffer.align);
            fixed = fixed.or(buffer.fixed);
            hint = hint.or(buffer.hint);
            self.item_of[index] = Some(item);
            for span in buffer.intervals() {
                // Items come in order of time, so the last one is near.
                let from = self.section(span.start, self.runs.last().map_or(0, |r| r.0));
                let to = self.section(span.end, from);
                self.runs.push((from, to));
            }
        }
        merge_runs(&mut self.runs, start);
        let first = self.runs[start].0;
        let last = self.runs[self.runs.len() - 1].1;
        self.hull.push((first, last));
        self.runs_at.push(id(self.runs.len()));
        self.size.push(size);
        self.align.push(align);
        self.fixed.push(fixed);
        self.hint.push(hint);
    }

    /// The section that starts at a tick, looked for around `near` first.
    fn section(&self, tick: u64, near: Section) -> Section {
        let mut low = near as usize;
        if self.ticks.get(low).is_none_or(|&t| t > tick) {
            return id(self.ticks.partition_point(|&t| t < tick));
        }
        let mut step = 1;
        while self.ticks.get(low + step).is_some_and(|&t| t < tick) {
            low += step;
            step *= 2;
        }
        let high = (low + step).min(self.ticks.len());
        id(low + self.ticks[low..high].partition_point(|&t| t < tick))
    }

    /// Gives every separate pair of this region a section behind the real ones.
    fn add_separate(&mut self, problem: &Problem) {
        let mut extra: Vec<(u32, Section)> = Vec::new();
        let mut next = id(self.ticks.len().saturating_sub(1));
        for &(a, b) in &problem.separate {
            if let (Some(a), Some(b)) = (self.item_of[a], self.item_of[b])
                && a != b
            {
                extra.push((a, next));
                extra.push((b, next));
                next += 1;
            }
        }
        if extra.is_empty() {
            self.load = alloc::vec![0; next as usize];
            return;
        }
        extra.sort_unstable();
        let mut runs = Vec::with_capacity(self.runs.len() + extra.len());
        let mut runs_at = alloc::vec![0];
        for item in 0..self.len() {
            runs.extend_from_slice(self.runs(item));
            let from = extra.partition_point(|e| (e.0 as usize) < item);
            for &(_, s) in extra[from..].iter().take_while(|e| e.0 as usize == item) {
                runs.push((s, s + 1));
                self.hull[item].1 = s + 1;
            }
            runs_at.push(id(runs.len()));
        }
        self.runs = runs;
        self.runs_at = runs_at;
        self.load = alloc::vec![0; next as usize];
    }

    /// Sums a size per item over each section.
    fn sum(&self, size: &[u64]) -> Vec<u64> {
        let mut delta = alloc::vec![0u64; self.load.len() + 1];
        for (item, bytes) in size.iter().enumerate() {
            for &(from, to) in self.runs(item) {
                delta[from as usize] = delta[from as usize].wrapping_add(*bytes);
                delta[to as usize] = delta[to as usize].wrapping_sub(*bytes);
            }
        }
        delta.pop();
        delta
            .iter()
            .scan(0u64, |sum, d| {
                *sum = sum.wrapping_add(*d);
                Some(*sum)
            })
            .collect()
    }

    /// Bytes that each section needs whatever the plan: the load, or less where classes of unequal buffers are live.
    pub(crate) fn sure_load(&self) -> alloc::borrow::Cow<'_, [u64]> {
        self.least
            .as_ref()
            .map_or_else(|| self.load.as_slice().into(), |least| self.sum(least).into())
    }

    /// The number of items.
    pub(crate) const fn len(&self) -> usize {
        self.size.len()
    }

    /// The number of sections, artificial ones included.
    pub(crate) const fn sections(&self) -> usize {
        self.load.len()
    }

    /// The runs of sections in which an item is live, in order.
    pub(crate) fn runs(&self, item: usize) -> &[(Section, Section)] {
        &self.runs[self.runs_at[item] as usize..self.runs_at[item + 1] as usize]
    }

    /// Ticks that a section lasts; none for an artificial one.
    pub(crate) fn length(&self, section: usize) -> u64 {
        self.ticks.get(section + 1).map_or(0, |end| end - self.ticks[section])
    }

    /// Says whether two items are ever live together.
    pub(crate) fn conflict(&self, a: usize, b: usize) -> bool {
        let (x, y) = (self.hull[a], self.hull[b]);
        if x.0 >= y.1 || y.0 >= x.1 {
            return false;
        }
        self.runs(a).iter().any(|r| self.runs(b).iter().any(|s| r.0 < s.1 && s.0 < r.1))
    }

    /// Says whether every item is live in one run of sections.
    pub(crate) const fn is_plain(&self) -> bool {
        self.runs.len() == self.size.len()
    }

    /// Says whether some item cannot move.
    pub(crate) fn has_fixed(&self) -> bool {
        self.fixed.iter().any(Option::is_some)
    }
}

fn ticks_of(problem: &Problem, chosen: &impl Fn(usize) -> bool) -> Vec<u64> {
    let mut ticks = Vec::with_capacity(2 * problem.buffers.len());
    for (_, buffer) in problem.buffers.iter().enumerate().filter(|(i, b)| b.size > 0 && chosen(*i))
    {
        for span in buffer.intervals() {
            ticks.push(span.start);
            ticks.push(span.end);
        }
    }
    ticks.sort_unstable();
    ticks.dedup();
    ticks.shrink_to_fit();
    ticks
}

/// Sorts the runs from `start` on and joins those that touch.
fn merge_runs(runs: &mut Vec<(Section, Section)>, start: usize) {
    if runs.len() - start < 2 {
        return;
    }
    runs[start..].sort_unstable();
    let mut kept = start;
    for i in start + 1..runs.len() {
        if runs[i].0 <= runs[kept].1 {
            runs[kept].1 = runs[kept].1.max(runs[i].1);
        } else {
            kept += 1;
            runs[kept] = runs[i];
        }
    }
    runs.truncate(kept + 1);
}

/// Collects the chosen buffers that have bytes into classes that share an offset.
fn groups(problem: &Problem, chosen: &impl Fn(usize) -> bool) -> Vec<Vec<usize>> {
    let parent = roots(problem);
    let mut slot: Vec<Option<usize>> = alloc::vec![None; problem.buffers.len()];
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for index in (0..problem.buffers.len()).filter(|&i| chosen(i) && problem.buffers[i].size > 0) {
        if let Some(at) = slot[parent[index]] {
            groups[at].push(index);
        } else {
            slot[parent[index]] = Some(groups.len());
            groups.push(alloc::vec![index]);
        }
    }
    groups
}

/// The representative of each buffer's alias class.
pub(crate) fn roots(problem: &Problem) -> Vec<usize> {
    let mut parent: Vec<usize> = (0..problem.buffers.len()).collect();
    for &(a, b) in &problem.aliases {
        let (a, b) = (root(&mut parent, a), root(&mut parent, b));
        parent[a.max(b)] = a.min(b);
    }
    for i in 0..parent.len() {
        let r = root(&mut parent, i);
        parent[i] = r;
    }
    parent
}

fn root(parent: &mut [usize], mut i: usize) -> usize {
    while parent[i] != i {
        parent[i] = parent[parent[i]];
        i = parent[i];
    }
    i
}

fn lcm(a: u64, b: u64) -> u64 {
    a / gcd(a, b) * b
}

pub(crate) const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
