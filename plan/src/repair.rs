//! Lowers the peak of a large plan: what ends too high is put back lower, in place of what is easier to put elsewhere.

use crate::model::{Model, align_up, id};
use crate::rng::Rng;
use crate::stop::Stop;
use crate::timetable::{Entry, Timetable};
use alloc::vec::Vec;

/// Excess over the bound to get rid of, as parts of the bound; the last one is all of it.
const GOALS: [u64; 7] = [32, 48, 64, 100, 200, 1_000, u64::MAX];
/// Steps towards one goal.
const STEPS: u64 = 120_000;
/// Of the items that are out, the next one is taken from so many.
const CHOICE: usize = 8;
/// The weight of what cannot leave: more than all others together, and the sum of all of them is a `u128`.
const FOREVER: u128 = 1 << 95;

/// A large plan whose highest items are being put back.
///
/// # Algorithm
/// A large plan reaches its peak at few times, and there is room to spare at most others. All items that end above a
/// goal are taken out. Each goes into the gap that it fills best. If it fits nowhere below the goal, it goes where the
/// items that must leave weigh least, and those are out. An item's weight is its size times the square root of its
/// life, times how often it was in this situation itself; so trouble moves to small and short items and to other times,
/// and stubborn items get their way. When nothing is out, the next goal is lower.
///
/// # Cost
/// O(k log k) for a step of an item that meets k others. Memory for the times that are touched only.
pub(crate) struct Repair<'a> {
    model: &'a Model,
    offsets: Vec<u64>,
    table: Timetable<'a>,
    penalty: Vec<u32>,
    outside: Vec<u32>,
    /// What the item at hand meets, by offset.
    met: Vec<Entry>,
    /// Tops of those, with their weights.
    tops: Vec<(u64, u128)>,
    places: Vec<u64>,
}

impl<'a> Repair<'a> {
    /// Starts from a plan.
    pub(crate) fn new(model: &'a Model, offsets: &[u64]) -> Self {
        Self {
            model,
            offsets: offsets.to_vec(),
            table: Timetable::new(model, |_| true),
            penalty: alloc::vec![1; model.len()],
            outside: Vec::new(),
            met: Vec::new(),
            tops: Vec::new(),
            places: Vec::new(),
        }
    }

    /// Lowers the peak as far towards `bound` as it gets; `found` is told each plan that reaches a goal.
    pub(crate) fn run(
        &mut self,
        bound: u64,
        rng: &mut Rng,
        stop: &Stop<'_>,
        mut found: impl FnMut(&[u64]),
    ) {
        for parts in GOALS {
            let goal = bound + bound / parts;
            if !self.take_out(goal) {
                continue;
            }
            if !self.put_back(goal, rng, stop) {
                return;
            }
            found(&self.offsets);
        }
    }

    /// Takes everything out that ends above the goal, the heaviest last; false when nothing does.
    fn take_out(&mut self, goal: u64) -> bool {
        let model = self.model;
        let high = |&i: &u32| {
            self.offsets[i as usize] + model.size[i as usize] > goal
                && model.fixed[i as usize].is_none()
        };
        self.outside = (0..id(model.len())).filter(high).collect();
        for &item in &self.outside {
            self.table.remove(&self.offsets, item);
        }
        let mut outside = core::mem::take(&mut self.outside);
        outside.sort_by_key(|&i| (self.weight(i), i));
        self.outside = outside;
        !self.outside.is_empty()
    }

    /// Puts back what is out; false when that takes too many steps.
    fn put_back(&mut self, goal: u64, rng: &mut Rng, stop: &Stop<'_>) -> bool {
        for step in 0..STEPS {
            let Some(item) = self.outside.pop() else { return true };
            if self.model.size[item as usize] > goal || (step % 64 == 63 && stop.now()) {
                return false;
            }
            self.table.meet(&self.offsets, item, &mut self.met);
            let gap = self.gap(item, goal, rng);
            let Some(place) = gap.or_else(|| self.force(item, goal, rng)) else { return false };
            self.offsets[item as usize] = place;
            self.table.insert(&self.offsets, item);
            if let Some(last) = self.outside.len().checked_sub(1) {
                self.outside.swap(last, last - rng.index(CHOICE.min(last + 1)));
            }
        }
        self.outside.is_empty()
    }

    /// The place in the gap that an item fills best, at its lower or upper end.
    fn gap(&self, item: u32, goal: u64, rng: &mut Rng) -> Option<u64> {
        let (size, align) = (self.model.size[item as usize], self.model.align[item as usize]);
        let mut floor = 0;
        let mut best = None;
        let mut least = u64::MAX;
        for (start, end) in self.met.iter().map(|e| (e.offset, e.end)).chain([(goal, goal)]) {
            let low = align_up(floor, align);
            if start >= low + size && start - low - size < least {
                least = start - low - size;
                let high = start - size;
                best = Some(if rng.below(2) == 0 { low } else { high - high % align });
            }
            floor = floor.max(end);
        }
        best
    }

    /// The place where the items in the way weigh least; those are taken out. None when fixed ones leave no place.
    fn force(&mut self, item: u32, goal: u64, rng: &mut Rng) -> Option<u64> {
        self.penalty[item as usize] += 1;
        let (size, align) = (self.model.size[item as usize], self.model.align[item as usize]);
        let mut tops = core::mem::take(&mut self.tops);
        tops.clear();
        tops.extend(self.met.iter().map(|e| (e.end, self.weight(e.item))));
        tops.sort_unstable();
        self.list_places(size, align, goal);
        let (mut below, mut above) = (0, 0);
        let (mut entered, mut left) = (0u128, 0u128);
        let mut best = (u128::MAX, 0);
        for &place in &self.places {
            while below < self.met.len() && self.met[below].offset < place + size {
                entered += self.weight(self.met[below].item);
                below += 1;
            }
            while above < tops.len() && tops[above].0 <= place {
                left += tops[above].1;
                above += 1;
            }
            let weight = entered - left;
            if weight < best.0 || (weight == best.0 && rng.below(2) == 0) {
                best = (weight, place);
            }
        }
        self.tops = tops;
        if best.0 >= FOREVER {
            return None;
        }
        self.push_out(best.1, best.1 + size);
        Some(best.1)
    }

    /// Lists the places worth a look: on or under each item that is met, and at both ends.
    fn list_places(&mut self, size: u64, align: u64, goal: u64) {
        self.places.clear();
        self.places.push(0);
        let down = |at: u64| at - at % align;
        self.places.push(down(goal - size));
        for e in &self.met {
            let on = align_up(e.end, align);
            if on + size <= goal {
                self.places.push(on);
            }
            if e.offset >= size {
                self.places.push(down(e.offset - size));
            }
        }
        self.places.sort_unstable();
        self.places.dedup();
    }

    /// Takes out what has bytes in `[from, to)` among the items that were met.
    fn push_out(&mut self, from: u64, to: u64) {
        for e in &self.met {
            if e.offset < to && from < e.end {
                self.table.remove(&self.offsets, e.item);
                self.outside.push(e.item);
            }
        }
    }

    fn weight(&self, item: u32) -> u128 {
        if self.model.fixed[item as usize].is_some() {
            return FOREVER;
        }
        let (from, to) = self.model.hull[item as usize];
        let life = u64::from(to - from) << 8;
        u128::from(self.model.size[item as usize])
            * u128::from(life.isqrt() * u64::from(self.penalty[item as usize]))
    }
}

#[cfg(test)]
mod tests;
