//! Lowers the peak of a large plan: what ends too high is put back lower, in place of what is easier to put elsewhere.

use crate::model::{Model, align_up, id, peak_of};
use crate::rng::Rng;
use crate::stop::Stop;
use crate::timetable::{Entry, Timetable};
use alloc::vec::Vec;

/// The first goal is at most 1/N above the floor.
const FIRST: u64 = 32;
/// Goals closer than 1/N to the floor, or to the best peak, count as reached.
const CLOSE: u64 = 1_000;
/// Steps towards one goal, and more of them for each item that is out.
const STEPS: u64 = 8_000;
const STEPS_EACH: u64 = 4;
/// Number of unplaced items among which the next one is picked.
const CHOICE: usize = 8;
/// Steps between two times that everything is pushed together, and fewer of them for each item and for each section of one.
const SETTLE_STEPS: usize = 100;
const SETTLE_ITEMS: usize = 8;
const SETTLE_SECTIONS: usize = 1_000;
/// The weight of what cannot leave: more than all others together, and the sum of all of them is a `u128`.
const FOREVER: u128 = 1 << 95;

/// A large plan whose highest items are being put back.
///
/// # Algorithm
/// A large plan reaches its peak at few times, and there is room to spare at most others. All items that end above a
/// goal are taken out. Each goes into the gap that it fills best. If it fits nowhere below the goal, it goes where the
/// items that must leave weigh least, and those are out. An item's weight is its size times the square root of its
/// life, times how often it was in this situation itself; so trouble moves to small and short items and to other times,
/// and stubborn items get their way. Now and then all items are pushed down or up as far as they go, which makes one
/// gap of many. When nothing is out, the next goal is lower. When that takes too long, the goal is
/// raised halfway to the best peak: what is in stays.
///
/// # Cost
/// O(k log k) for a step of an item that meets k others. Memory for the times that are touched only.
#[derive(Debug)]
pub struct Repair<'a> {
    model: &'a Model,
    offsets: Vec<u64>,
    table: Timetable<'a>,
    base: Vec<u128>,
    penalty: Vec<u32>,
    outside: Vec<u32>,
    /// Steps between two times that everything is pushed together; never where that takes more than the steps to a goal.
    rest: u64,
    /// Entries that overlap the current item, by offset.
    met: Vec<Entry>,
    /// Possible offsets of the item on each of those.
    tops: Vec<(u64, u32)>,
}

impl<'a> Repair<'a> {
    /// Starts from a plan.
    pub fn new(model: &'a Model, offsets: &[u64]) -> Self {
        Self {
            model,
            offsets: offsets.to_vec(),
            table: Timetable::new(model, |_| true),
            base: (0..model.len()).map(|i| base(model, i)).collect(),
            penalty: alloc::vec![1; model.len()],
            outside: Vec::new(),
            rest: rest(model),
            met: Vec::new(),
            tops: Vec::new(),
        }
    }

    /// Lowers the peak towards `floor` as far as possible; calls `found` with each plan that reaches a goal.
    ///
    /// Returns the steps that it took, which are about as many as `limit` at most.
    pub fn run(
        &mut self,
        floor: u64,
        limit: u64,
        rng: &mut Rng,
        stop: &Stop<'_>,
        mut found: impl FnMut(&[u64]),
    ) -> u64 {
        let mut peak = peak_of(self.model, &self.offsets);
        let mut goal = floor + (floor / FIRST).min(peak.saturating_sub(floor) / 2);
        let mut taken = 0;
        while peak > floor && taken < limit && !stop.now() {
            self.take_out(goal);
            if self.put_back(goal, &mut taken, rng, stop) {
                peak = peak_of(self.model, &self.offsets);
                found(&self.offsets);
                let less = peak.saturating_sub(floor) / 2;
                goal = if less < floor / CLOSE { floor } else { floor + less };
            } else {
                let more = (peak - goal) / 2;
                if more <= floor / CLOSE {
                    break;
                }
                goal += more;
            }
        }
        taken
    }

    /// Takes everything out that ends above the goal. What is out is sorted, the heaviest last.
    fn take_out(&mut self, goal: u64) {
        let model = self.model;
        let first = self.outside.len();
        for item in 0..id(model.len()) {
            let i = item as usize;
            let high = self.offsets[i] + model.size[i] > goal;
            if high && model.fixed[i].is_none() && self.table.holds(item) {
                self.outside.push(item);
            }
        }
        for &item in &self.outside[first..] {
            self.table.remove(&self.offsets, item);
        }
        let mut outside = core::mem::take(&mut self.outside);
        outside.sort_by_key(|&i| (self.weight(i), i));
        self.outside = outside;
    }

    /// Reinserts all ejected items; false if that takes too many steps.
    fn put_back(&mut self, goal: u64, taken: &mut u64, rng: &mut Rng, stop: &Stop<'_>) -> bool {
        for step in 0..STEPS + STEPS_EACH * self.outside.len() as u64 {
            if self.rest < STEPS && step % self.rest == 0 && !self.outside.is_empty() {
                self.settle(goal, step / self.rest % 2 == 1);
            }
            let Some(item) = self.outside.pop() else { return true };
            let late = step % 64 == 63 && stop.now();
            if late || self.model.size[item as usize] > goal || !self.step(item, goal, rng) {
                self.outside.push(item);
                return false;
            }
            *taken += 1;
        }
        self.outside.is_empty()
    }

    /// Pushes everything that is in down, or up to the goal, in the order in which it lies.
    fn settle(&mut self, goal: u64, up: bool) {
        let model = self.model;
        let inside = (0..id(model.len())).filter(|&i| self.table.holds(i));
        let mut order: Vec<(u64, u32)> = inside.map(|i| (self.offsets[i as usize], i)).collect();
        order.sort_unstable();
        let mut skyline = alloc::vec![if up { goal } else { 0 }; model.sections()];
        if up {
            order.reverse();
        }
        for (_, item) in order {
            let i = item as usize;
            let free = if up { highest(model, &skyline, i) } else { lowest(model, &skyline, i) };
            self.offsets[i] = model.fixed[i].unwrap_or(free);
            for (&(from, to), &bytes) in model.runs(i).iter().zip(model.bytes(i)) {
                let edge = self.offsets[i] + if up { 0 } else { bytes };
                skyline[from as usize..to as usize].fill(edge);
            }
        }
        self.table.forget_offsets();
    }

    /// Inserts an item and ejects those in its way; false if there is no place at all.
    fn step(&mut self, item: u32, goal: u64, rng: &mut Rng) -> bool {
        self.table.meet(&self.offsets, item, &mut self.met);
        let gap = self.gap(item, goal, rng);
        let Some(place) = gap.or_else(|| self.force(item, goal, rng)) else { return false };
        self.offsets[item as usize] = place;
        self.table.insert(&self.offsets, item);
        if let Some(last) = self.outside.len().checked_sub(1) {
            self.outside.swap(last, last - rng.index(CHOICE.min(last + 1)));
        }
        true
    }

    /// Returns the place in the gap that an item fills best, at its lower or upper end.
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

    /// Returns the place where the items in the way weigh least; those are taken out. None when fixed ones leave no place.
    ///
    /// Going up, items in the way get fewer only at the end of one, so a look at the ends is enough.
    fn force(&mut self, item: u32, goal: u64, rng: &mut Rng) -> Option<u64> {
        self.penalty[item as usize] += 1;
        let (size, align) = (self.model.size[item as usize], self.model.align[item as usize]);
        self.tops.clear();
        self.tops.extend(self.met.iter().map(|e| (align_up(e.end, align), e.item)));
        self.tops.push((0, item));
        self.tops.sort_unstable();
        let (mut below, mut above) = (0, 0);
        let mut weight = 0;
        let mut best = (u128::MAX, 0, 0);
        while above < self.tops.len() && self.tops[above].0 + size <= goal {
            let place = self.tops[above].0;
            while below < self.met.len() && self.met[below].offset < place + size {
                weight += self.weight(self.met[below].item);
                below += 1;
            }
            while let Some(&(_, gone)) = self.tops.get(above).filter(|t| t.0 == place) {
                weight -= if gone == item { 0 } else { self.weight(gone) };
                above += 1;
            }
            if weight < best.0 || (weight == best.0 && rng.below(2) == 0) {
                let next = self.met.get(below).map_or(goal, |e| e.offset.min(goal));
                best = (weight, place, next - size);
            }
        }
        let (weight, low, high) = best;
        if weight >= FOREVER {
            return None;
        }
        let place = if rng.below(2) == 0 { low } else { high - high % align };
        self.push_out(place, place + size);
        Some(place)
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
        self.base[item as usize] * u128::from(self.penalty[item as usize])
    }
}

/// Returns the steps between two times that everything is pushed together, so that it takes a small share of the time. Pairs
/// that stay separate without sharing a section are not seen by the push, so there is none where there are such pairs.
fn rest(model: &Model) -> u64 {
    if (0..model.len()).any(|i| model.apart(i).next().is_some()) {
        return u64::MAX;
    }
    let sections = model.hull.iter().map(|h| (h.1 - h.0) as usize).sum::<usize>();
    (SETTLE_STEPS + model.len() / SETTLE_ITEMS + sections / SETTLE_SECTIONS) as u64
}

/// Returns the least offset of an item above a skyline.
fn lowest(model: &Model, skyline: &[u64], item: usize) -> u64 {
    let tops = model.runs(item).iter().flat_map(|r| &skyline[r.0 as usize..r.1 as usize]);
    align_up(tops.copied().max().unwrap_or(0), model.align[item])
}

/// Returns the greatest offset of an item under a skyline.
fn highest(model: &Model, skyline: &[u64], item: usize) -> u64 {
    let runs = model.runs(item).iter().zip(model.bytes(item));
    let room = runs.map(|(r, bytes)| {
        let least = skyline[r.0 as usize..r.1 as usize].iter().copied().min().unwrap_or(0);
        least - bytes
    });
    let offset = room.min().unwrap_or(0);
    offset - offset % model.align[item]
}

/// Returns the initial weight of an item.
fn base(model: &Model, item: usize) -> u128 {
    if model.fixed[item].is_some() {
        return FOREVER;
    }
    let (from, to) = model.hull[item];
    let life = u64::from(to - from) << 8;
    u128::from(model.size[item]) * u128::from(life.isqrt())
}

#[cfg(test)]
mod tests;
