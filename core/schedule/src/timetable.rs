//! Placed items over time: finds the items that overlap another, and supports adding and removing.

use crate::model::{Model, id};
use alloc::vec::Vec;

/// Entries for each item, at most; where lives are long, slices are.
const MOST_ENTRIES: usize = 4;

/// A placed item with its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) offset: u64,
    pub(crate) end: u64,
    pub(crate) item: u32,
    hull: (u32, u32),
}

impl Entry {
    pub(crate) fn new(model: &Model, offsets: &[u64], item: u32) -> Self {
        let i = item as usize;
        Self { offset: offsets[i], end: offsets[i] + model.size[i], item, hull: model.hull[i] }
    }

    /// Returns whether the lifetimes of two items overlap, gaps not counted.
    pub(crate) const fn meets(&self, hull: (u32, u32)) -> bool {
        self.hull.0 < hull.1 && hull.0 < self.hull.1
    }

    /// Returns the sort key.
    pub(crate) const fn key(&self) -> (u64, u32) {
        (self.offset, self.item)
    }
}

/// Time in slices of equal length, each with the items that live in it by offset.
///
/// A slice's entries are made when it is first asked about, so that memory is spent on the times that matter.
///
/// # Cost
/// About 12 bytes per item, and 32 for each entry of a slice that was asked about.
#[derive(Debug)]
pub(crate) struct Timetable<'a> {
    model: &'a Model,
    /// Sections in a slice.
    length: u32,
    /// Items by slice, those of slice `k` at `starts[k]..starts[k + 1]`; never changed.
    items: Vec<u32>,
    starts: Vec<u32>,
    slices: Vec<Option<Vec<Entry>>>,
    inside: Vec<bool>,
    /// Items that are live in one run; two of them conflict when their hulls meet.
    plain: Vec<bool>,
    all_plain: bool,
}

impl<'a> Timetable<'a> {
    /// Returns a table in which the items are placed that `inside` names.
    pub(crate) fn new(model: &'a Model, inside: impl Fn(usize) -> bool) -> Self {
        let hulls = &model.hull;
        let sections = model.sections();
        let count = |length: u32| {
            hulls.iter().map(|h| ((h.1 - 1) / length - h.0 / length + 1) as usize).sum::<usize>()
        };
        let longest = id(sections).next_power_of_two();
        let mut length = 64.min(longest);
        while count(length) > MOST_ENTRIES * hulls.len() && length < longest {
            length *= 2;
        }
        let slices = sections.div_ceil(length as usize);
        let mut starts = alloc::vec![0u32; slices + 1];
        for h in hulls {
            (h.0 / length..=(h.1 - 1) / length).for_each(|k| starts[k as usize + 1] += 1);
        }
        for k in 0..slices {
            starts[k + 1] += starts[k];
        }
        let mut items = alloc::vec![0; starts[slices] as usize];
        let mut next = starts.clone();
        for (item, h) in hulls.iter().enumerate() {
            for k in h.0 / length..=(h.1 - 1) / length {
                items[next[k as usize] as usize] = id(item);
                next[k as usize] += 1;
            }
        }
        let inside = (0..model.len()).map(inside).collect();
        let plain: Vec<bool> = (0..model.len()).map(|i| model.is_plain(i)).collect();
        let all_plain = plain.iter().all(|&p| p);
        let slices = alloc::vec![None; slices];
        Self { model, length, items, starts, slices, inside, plain, all_plain }
    }

    fn slices_of(&self, item: u32) -> core::ops::RangeInclusive<usize> {
        let hull = self.model.hull[item as usize];
        (hull.0 / self.length) as usize..=((hull.1 - 1) / self.length) as usize
    }

    /// Returns whether an item is placed.
    pub(crate) fn holds(&self, item: u32) -> bool {
        self.inside[item as usize]
    }

    /// Lists the placed items that conflict with `item`, by offset.
    pub(crate) fn meet(&mut self, offsets: &[u64], item: u32, met: &mut Vec<Entry>) {
        met.clear();
        let model = self.model;
        let hull = model.hull[item as usize];
        let slices = self.slices_of(item);
        let first = *slices.start();
        for k in slices {
            let (from, to) = (self.starts[k] as usize, self.starts[k + 1] as usize);
            let (items, inside) = (&self.items[from..to], &self.inside);
            let slice = self.slices[k].get_or_insert_with(|| {
                let live = items.iter().filter(|&&i| inside[i as usize]);
                let mut slice: Vec<Entry> = live.map(|&i| Entry::new(model, offsets, i)).collect();
                slice.sort_unstable_by_key(Entry::key);
                slice
            });
            // An item of several slices counts in the first one that it shares with `item`.
            let fresh = |e: &&Entry| k == first || (e.hull.0 / self.length) as usize == k;
            met.extend(slice.iter().filter(|e| e.meets(hull)).filter(fresh));
        }
        if !self.all_plain {
            let plain = |i: u32| self.plain[i as usize];
            met.retain(|e| {
                plain(item) && plain(e.item) || model.conflict(item as usize, e.item as usize)
            });
        }
        for (other, _) in model.apart(item as usize) {
            if self.inside[other as usize] && !met.iter().any(|e| e.item == other) {
                met.push(Entry::new(model, offsets, other));
            }
        }
        // Most often there is nothing to do; what slices give is in order.
        met.sort_by_key(Entry::key);
    }

    /// Forgets where items are, which has changed for many of them.
    pub(crate) fn forget_offsets(&mut self) {
        self.slices.fill(None);
    }

    /// Places an item.
    pub(crate) fn insert(&mut self, offsets: &[u64], item: u32) {
        self.inside[item as usize] = true;
        for k in self.slices_of(item) {
            if let Some(slice) = &mut self.slices[k] {
                let entry = Entry::new(self.model, offsets, item);
                let at = slice.partition_point(|e| e.key() < entry.key());
                slice.insert(at, entry);
            }
        }
    }

    /// Takes an item out that was placed at this offset.
    pub(crate) fn remove(&mut self, offsets: &[u64], item: u32) {
        self.inside[item as usize] = false;
        for k in self.slices_of(item) {
            if let Some(slice) = &mut self.slices[k] {
                let at = slice.partition_point(|e| e.key() < (offsets[item as usize], item));
                slice.remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::{Buffer, Problem, Region};

    /// Items, some with gaps and some kept apart.
    fn problem(rng: &mut Rng) -> Problem {
        let mut problem = Problem::new(Region::unbounded());
        for at in 0..300 {
            let longest = if at % 9 == 0 { 900 } else { 40 };
            let (start, life) = (rng.below(1_500), 1 + rng.below(longest));
            let buffer = Buffer::new(1 + rng.below(50), start, start + life);
            let has_gap = at % 5 == 0 && life > 4;
            problem.push(if has_gap { buffer.gap(start + 1, start + life - 1) } else { buffer });
        }
        problem.separate.extend([(1, 200), (7, 8), (50, 250)]);
        problem
    }

    /// Lists the placed items that conflict with one, by looking at all of them.
    fn conflicting(table: &Timetable<'_>, offsets: &[u64], item: u32) -> Vec<(u64, u32)> {
        let model = table.model;
        let conflicts = |i: &u32| table.holds(*i) && model.conflict(item as usize, *i as usize);
        let all = (0..id(model.len())).filter(conflicts);
        let mut found: Vec<(u64, u32)> = all.map(|i| (offsets[i as usize], i)).collect();
        found.sort_unstable();
        found
    }

    /// Items come, go and move.
    fn check(model: &Model, rng: &mut Rng) {
        let mut offsets: Vec<u64> = (0..model.len()).map(|_| rng.below(500)).collect();
        let (mut table, mut met) = (Timetable::new(model, |i| i % 2 == 0), Vec::new());
        for _ in 0..600 {
            let item = id(rng.index(model.len()));
            if table.holds(item) {
                table.remove(&offsets, item);
                assert!(!table.holds(item));
            }
            table.meet(&offsets, item, &mut met);
            let expected = conflicting(&table, &offsets, item);
            assert_eq!(met.iter().map(Entry::key).collect::<Vec<_>>(), expected);
            assert!(met.iter().all(|e| e.end == e.offset + model.size[e.item as usize]));
            offsets[item as usize] = rng.below(500);
            if rng.below(3) > 0 {
                table.insert(&offsets, item);
            }
            if rng.below(50) == 0 {
                offsets.iter_mut().for_each(|offset| *offset = rng.below(500));
                table.forget_offsets();
            }
        }
    }

    #[test]
    fn what_is_met_is_what_conflicts() {
        let mut rng = Rng::new(5);
        let mut problem = problem(&mut rng);
        check(&Model::new(&problem, 0, |_| true), &mut rng);
        problem.separate.clear();
        problem.buffers.iter_mut().for_each(|b| b.gaps.clear());
        check(&Model::new(&problem, 0, |_| true), &mut rng);
    }
}
