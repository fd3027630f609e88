//! A problem made ready for search: one region, buffers that share bytes merged, time cut into sections.

use crate::classes::{Classes, lcm};
use crate::problem::{Buffer, Interval, Problem};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A piece of time in which the set of live items does not change.
pub type Section = u32;

/// The items of one region and the sections in which each is live.
///
/// An item is a buffer, or all buffers that use the same bytes. A section is a clique of the conflict graph: the items
/// of one section stack without overlap. Pairs that must stay separate conflict without sharing a section.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The most bytes that an item ever needs.
    pub size: Vec<u64>,
    pub align: Vec<u64>,
    pub fixed: Vec<Option<u64>>,
    pub hint: Vec<Option<u64>>,
    /// From the first section of an item to behind its last.
    pub hull: Vec<(Section, Section)>,
    /// Runs of sections, those of item `i` at `runs_at[i]..runs_at[i + 1]`, and the bytes needed in each run.
    runs: Vec<(Section, Section)>,
    bytes: Vec<u64>,
    runs_at: Vec<u32>,
    /// Start of each section, then the end of the last one.
    pub ticks: Vec<u64>,
    /// Bytes alive in each section.
    pub load: Vec<u64>,
    /// Items that must stay separate, both ways and sorted, with the bytes of the first that the second keeps off.
    apart: Vec<(u32, u32, u64)>,
    /// The item that holds each buffer of the problem, if it has bytes in this region.
    pub item_of: Vec<Option<u32>>,
}

/// Buffers that are read at once.
const BATCH: usize = 64;

/// Narrows an index; `Problem::check` bounds the number of buffers, and each gives at most a few of anything.
#[expect(clippy::cast_possible_truncation, reason = "counts are checked to fit 32 bits")]
pub const fn id(index: usize) -> u32 {
    index as u32
}

/// Returns the least multiple of `align` that is not below `offset`.
pub const fn align_up(offset: u64, align: u64) -> u64 {
    if align <= 1 { offset } else { offset.div_ceil(align) * align }
}

/// Returns the highest end of an item.
pub fn peak_of(model: &Model, offsets: &[u64]) -> u64 {
    offsets.iter().zip(&model.size).map(|(o, s)| o + s).max().unwrap_or(0)
}

impl Model {
    /// Makes the model of the buffers that `chosen` admits in region `region`.
    pub fn new(problem: &Problem, region: usize, chosen: impl Fn(usize) -> bool) -> Self {
        let here = |i: usize| chosen(i) && problem.buffers[i].needs_bytes();
        let clock = Clock::new(ticks_of(problem, &here));
        let mut model = Self {
            runs_at: alloc::vec![0],
            item_of: alloc::vec![None; problem.buffers.len()],
            ..Self::default()
        };
        // Items in order of time keep the memory accesses of everything that follows close together.
        let first = |i: usize| problem.buffers[i].intervals().next().map_or(0, |s| s.start);
        if problem.aliases.is_empty() {
            let all = (0..problem.buffers.len()).filter(|&i| here(i));
            let mut sorted: Vec<(u64, u32)> = all.map(|i| (first(i), id(i))).collect();
            sorted.sort_unstable();
            model.reserve(sorted.len());
            // Waiting for several buffers at once is faster than for one after the other.
            let mut near: Vec<Buffer> = Vec::with_capacity(BATCH);
            for batch in sorted.chunks(BATCH) {
                near.clear();
                near.extend(batch.iter().map(|s| problem.buffers[s.1 as usize].clone()));
                for (&(_, index), buffer) in batch.iter().zip(&near) {
                    let spans = buffer.intervals().map(|span| (span, buffer.size));
                    model.push_item(&[index], spans, &clock);
                }
            }
        } else {
            let mut groups = groups(problem, &here);
            groups.sort_by_key(|g| g.iter().map(|&i| first(i as usize)).min());
            for group in groups {
                let buffers = group.iter().map(|&i| &problem.buffers[i as usize]);
                model.push_item(&group, outline(buffers).into_iter(), &clock);
            }
        }
        model.add_wishes(problem, region);
        model.add_apart(problem);
        model.ticks = clock.ticks;
        model.load = model.loads();
        model
    }

    /// Returns the model of items that stand for one or several of these: the one it is, or the hull and bytes of them all. Those that are one come in
    /// the order that they have here.
    pub fn merged(
        &self,
        items: impl Iterator<Item = (Option<usize>, (Section, Section), u64, u64)>,
    ) -> Self {
        let mut merged =
            Self { ticks: self.ticks.clone(), runs_at: alloc::vec![0], ..Self::default() };
        let mut new_of = alloc::vec![u32::MAX; self.len()];
        for (one, hull, size, align) in items {
            if let Some(i) = one {
                new_of[i] = id(merged.len());
            }
            merged.runs.extend_from_slice(one.map_or(&[hull], |i| self.runs(i)));
            merged.bytes.extend_from_slice(one.map_or(&[size], |i| self.bytes(i)));
            merged.runs_at.push(id(merged.runs.len()));
            merged.fixed.push(one.and_then(|i| self.fixed[i]));
            merged.hint.push(one.and_then(|i| self.hint[i]));
            merged.hull.push(hull);
            merged.size.push(size);
            merged.align.push(align);
        }
        let new = |i: u32| new_of[i as usize];
        merged.apart = self.apart.iter().map(|&(a, b, bytes)| (new(a), new(b), bytes)).collect();
        debug_assert!(merged.apart.is_sorted());
        merged.load = merged.loads();
        merged
    }

    fn reserve(&mut self, items: usize) {
        self.size.reserve_exact(items);
        self.hull.reserve_exact(items);
        self.runs.reserve_exact(items);
        self.bytes.reserve_exact(items);
        self.runs_at.reserve_exact(items);
    }

    /// Adds the runs of an item, and the bytes that it needs in each.
    fn push_item(
        &mut self,
        group: &[u32],
        spans: impl Iterator<Item = (Interval, u64)>,
        clock: &Clock,
    ) {
        let item = id(self.size.len());
        let start = self.runs.len();
        group.iter().for_each(|&i| self.item_of[i as usize] = Some(item));
        for (span, bytes) in spans {
            self.runs.push((clock.section(span.start), clock.section(span.end)));
            self.bytes.push(bytes);
        }
        self.hull.push((self.runs[start].0, self.runs[self.runs.len() - 1].1));
        self.runs_at.push(id(self.runs.len()));
        self.size.push(self.bytes[start..].iter().copied().max().unwrap_or(0));
    }

    /// Sets what most buffers leave to the region, buffer by buffer in the order in which they lie in memory.
    fn add_wishes(&mut self, problem: &Problem, region: usize) {
        self.align = alloc::vec![problem.regions[region].align; self.len()];
        self.fixed = alloc::vec![None; self.len()];
        self.hint = alloc::vec![None; self.len()];
        for (buffer, item) in problem.buffers.iter().zip(&self.item_of) {
            let Some(item) = item.map(|i| i as usize) else { continue };
            if buffer.align > 1 {
                self.align[item] = lcm(self.align[item], buffer.align).unwrap_or(self.align[item]);
            }
            if buffer.fixed.is_some() || buffer.hint.is_some() {
                self.fixed[item] = self.fixed[item].or(buffer.fixed);
                self.hint[item] = self.hint[item].or(buffer.hint);
            }
        }
    }

    fn add_apart(&mut self, problem: &Problem) {
        for &(a, b) in &problem.separate {
            if let (Some(x), Some(y)) = (self.item_of[a], self.item_of[b])
                && x != y
            {
                self.apart
                    .extend([(x, y, problem.buffers[a].size), (y, x, problem.buffers[b].size)]);
            }
        }
        self.apart.sort_unstable();
    }

    fn loads(&self) -> Vec<u64> {
        let sections = self.ticks.len().saturating_sub(1);
        let mut delta = alloc::vec![0u64; sections + 1];
        for (&(from, to), bytes) in self.runs.iter().zip(&self.bytes) {
            delta[from as usize] = delta[from as usize].wrapping_add(*bytes);
            delta[to as usize] = delta[to as usize].wrapping_sub(*bytes);
        }
        let mut sum = 0u64;
        for d in &mut delta {
            sum = sum.wrapping_add(*d);
            *d = sum;
        }
        delta.truncate(sections);
        delta
    }

    /// Returns the number of items.
    #[expect(clippy::len_without_is_empty, reason = "nothing asks whether there are none")]
    pub const fn len(&self) -> usize {
        self.size.len()
    }

    /// Returns the number of sections.
    pub const fn sections(&self) -> usize {
        self.load.len()
    }

    fn run_span(&self, item: usize) -> core::ops::Range<usize> {
        self.runs_at[item] as usize..self.runs_at[item + 1] as usize
    }

    /// Returns the runs of sections in which an item is live, in order.
    pub fn runs(&self, item: usize) -> &[(Section, Section)] {
        &self.runs[self.run_span(item)]
    }

    /// Returns the bytes that an item needs in each of its runs.
    pub fn bytes(&self, item: usize) -> &[u64] {
        &self.bytes[self.run_span(item)]
    }

    /// Returns the items that must stay separate from one, each with the bytes of the one that it keeps off.
    pub fn apart(&self, item: usize) -> impl Iterator<Item = (u32, u64)> + '_ {
        let at = self.apart.partition_point(|p| (p.0 as usize) < item);
        self.apart[at..].iter().take_while(move |p| p.0 as usize == item).map(|p| (p.1, p.2))
    }

    /// Ticks that a section lasts.
    pub fn length(&self, section: usize) -> u64 {
        self.ticks[section + 1] - self.ticks[section]
    }

    /// Returns the bytes of one item that another has to keep off: as many as it needs while both are live.
    pub fn in_way(&self, item: usize, of: usize) -> u64 {
        let (x, y) = (self.hull[item], self.hull[of]);
        let mut most = 0;
        if x.0 < y.1 && y.0 < x.1 {
            let meet = |r: (u32, u32)| self.runs(of).iter().any(|s| r.0 < s.1 && s.0 < r.1);
            let runs = self.runs(item).iter().zip(self.bytes(item));
            most = runs.filter(|(r, _)| meet(**r)).map(|(_, &b)| b).max().unwrap_or(0);
        }
        let apart = self.apart(item).filter(|a| a.0 as usize == of).map(|a| a.1);
        apart.fold(most, u64::max)
    }

    /// Returns whether two items must not overlap.
    pub fn conflict(&self, a: usize, b: usize) -> bool {
        self.in_way(a, b) > 0
    }

    /// Returns whether two items at these offsets share bytes that both need.
    pub fn overlap(&self, (a, x): (usize, u64), (b, y): (usize, u64)) -> bool {
        x < y + self.in_way(b, a) && y < x + self.in_way(a, b)
    }

    /// Returns whether an item is live in one run of sections and has no item to stay separate from.
    pub fn is_plain(&self, item: usize) -> bool {
        self.run_span(item).len() == 1 && self.apart(item).next().is_none()
    }
}

/// The ticks at which sections start, and where to look for one of them.
struct Clock {
    ticks: Vec<u64>,
    /// Number of ticks before each of as many equal spans of time as there are ticks, or half of that.
    before: Vec<u32>,
    /// Logarithm of the length of such a span.
    shift: u32,
}

impl Clock {
    fn new(ticks: Vec<u64>) -> Self {
        let zero = ticks.first().copied().unwrap_or(0);
        let length = ticks.last().map_or(0, |last| last - zero) / (ticks.len() as u64).max(1);
        let shift = length.checked_ilog2().map_or(0, |log| log + 1);
        let mut before = Vec::with_capacity(ticks.len() + 2);
        for (count, tick) in ticks.iter().enumerate() {
            let span = usize::try_from((tick - zero) >> shift).unwrap_or(usize::MAX);
            before.resize(before.len().max(span + 1), id(count));
        }
        before.push(id(ticks.len()));
        Self { ticks, before, shift }
    }

    /// Returns the section that starts at a tick.
    fn section(&self, tick: u64) -> Section {
        let span = usize::try_from((tick - self.ticks[0]) >> self.shift).unwrap_or(usize::MAX);
        let (from, to) = (self.before[span], self.before[span + 1]);
        let near = &self.ticks[from as usize..to as usize];
        from + id(near.partition_point(|&t| t < tick))
    }
}

fn ticks_of(problem: &Problem, here: &impl Fn(usize) -> bool) -> Vec<u64> {
    let mut ticks = Vec::with_capacity(2 * problem.buffers.len());
    for (_, buffer) in problem.buffers.iter().enumerate().filter(|(i, _)| here(*i)) {
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

/// Returns the bytes that buffers with one offset need together: as many as the largest that is live.
fn outline<'a>(buffers: impl Iterator<Item = &'a Buffer>) -> Vec<(Interval, u64)> {
    let mut events: Vec<(u64, bool, u64)> = Vec::new();
    for buffer in buffers {
        for span in buffer.intervals() {
            events.push((span.start, true, buffer.size));
            events.push((span.end, false, buffer.size));
        }
    }
    events.sort_unstable();
    let mut live: BTreeMap<u64, usize> = BTreeMap::new();
    let mut spans: Vec<(Interval, u64)> = Vec::new();
    let mut since = 0;
    for (tick, starts, size) in events {
        if let Some((&most, _)) = live.last_key_value().filter(|_| since < tick) {
            match spans.last_mut() {
                Some((last, bytes)) if last.end == since && *bytes == most => last.end = tick,
                _ => spans.push((Interval::new(since, tick), most)),
            }
        }
        since = tick;
        let count = live.entry(size).or_insert(0);
        if starts {
            *count += 1;
        } else if *count == 1 {
            live.remove(&size);
        } else {
            *count -= 1;
        }
    }
    spans
}

/// Collects the buffers that are here into classes that share an offset.
fn groups(problem: &Problem, here: &impl Fn(usize) -> bool) -> Vec<Vec<u32>> {
    let classes = Classes::new(problem);
    let mut slot: Vec<Option<usize>> = alloc::vec![None; problem.buffers.len()];
    let mut groups: Vec<Vec<u32>> = Vec::new();
    for index in (0..problem.buffers.len()).filter(|&i| here(i)) {
        let class = classes.root(index);
        if let Some(at) = slot[class] {
            groups[at].push(id(index));
        } else {
            slot[class] = Some(groups.len());
            groups.push(alloc::vec![id(index)]);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_finds_every_tick_however_they_lie() {
        let even: Vec<u64> = (0..100).map(|t| 7 + 3 * t).collect();
        let crowded: Vec<u64> = (0..100).chain([1 << 20, u64::MAX]).collect();
        for ticks in [alloc::vec![5], alloc::vec![5, 6], even, crowded] {
            let clock = Clock::new(ticks.clone());
            assert!(clock.before.len() <= ticks.len() + 1, "{ticks:?}");
            for (section, &tick) in ticks.iter().enumerate() {
                assert_eq!(clock.section(tick), id(section), "tick {tick} of {ticks:?}");
            }
        }
    }
}
