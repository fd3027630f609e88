//! Improvement by insertion and ejection: keeps a partial placement below the capacity and squeezes the rest in.

use crate::exact::Frame;
use crate::model::{align_up, id};
use crate::rng::Rng;
use crate::stop::Stop;
use alloc::vec::Vec;

/// Number of unplaced items among which the next one is picked.
const CHOICE: usize = 4;
/// One in this many times, an item takes any slot that fits, not the tightest.
const WANDER: u64 = 8;

/// Rule of one improvement run. Several different runs find more than one long run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Large items stay in, and slots are filled tightly.
    Tight,
    /// All items count alike, and any slot will do.
    Loose,
}

impl Habit {
    /// Returns the habit of the `round`-th improvement.
    pub(crate) const fn nth(round: usize) -> Self {
        if round.is_multiple_of(2) { Self::Tight } else { Self::Loose }
    }
}

/// A partial placement, kept as an order and not as offsets, so that free space flows to where it is needed.
///
/// # Algorithm
/// The items that are in form an order; of two that conflict the earlier one is below. Each item knows the least
/// height that what is below it needs (`head`) and what is above it needs (`tail`), so it can lie anywhere from its
/// head to the capacity less its tail and size, and whatever it does, it covers some heights. An item that is out can
/// have any offset at which it meets no item that must cover one of its bytes; then no other item has to leave. If
/// there is none, it gets the offset where the items that must leave have the least sum of weights, and its own weight
/// grows, so that stubborn items get their way and cycles end. Fixed items are in from the start and never leave: their
/// heads and tails leave them one offset.
///
/// # Cost
/// A step is O(w + k log k) for the w sections of all items together and the k neighbours of the item.
pub(crate) struct Improve<'a> {
    frame: &'a Frame,
    capacity: u64,
    habit: Habit,
    /// Items by head end, which puts every item behind those below it.
    order: Vec<u32>,
    inside: Vec<bool>,
    head: Vec<u64>,
    tail: Vec<u64>,
    /// Initial weight of each item, and how often it did not fit.
    base: Vec<u64>,
    need: Vec<u64>,
    outside: Vec<u32>,
    skyline: Vec<u64>,
    /// Offsets from which on an item in the way costs more or less.
    events: Vec<(u64, i64)>,
    /// Head end, and tail with size, of each neighbour.
    ends: Vec<(u64, u64)>,
}

/// The weight of what cannot leave; the sum for all items of a problem stays below the range of `i64`.
const FOREVER: u64 = 1 << 48;

impl<'a> Improve<'a> {
    /// Starts with everything outside that is not fixed, the largest first in line.
    pub(crate) fn new(frame: &'a Frame, capacity: u64, habit: Habit) -> Self {
        let n = frame.len();
        let fixed = |i: u32| frame.fixed[i as usize];
        let width = |i: u32| frame.runs(i).iter().map(|r| u128::from(r.to - r.from)).sum::<u128>();
        let mut outside: Vec<u32> = (0..id(n)).filter(|&i| fixed(i).is_none()).collect();
        outside.sort_by_key(|&i| width(i) * u128::from(frame.size[i as usize]));
        let mut order: Vec<u32> = (0..id(n)).filter(|&i| fixed(i).is_some()).collect();
        order.sort_by_key(|&i| fixed(i).map(|offset| offset + frame.size[i as usize]));
        let mut improve = Self {
            frame,
            capacity,
            habit,
            base: bases(&frame.size, habit),
            order,
            inside: frame.fixed.iter().map(Option::is_some).collect(),
            head: alloc::vec![0; n],
            tail: alloc::vec![0; n],
            need: alloc::vec![1; n],
            outside,
            skyline: alloc::vec![0; frame.sections()],
            events: Vec::new(),
            ends: Vec::new(),
        };
        improve.settle();
        improve
    }

    /// Takes up to `steps` steps; returns the offsets once everything is in.
    pub(crate) fn run(&mut self, steps: u64, rng: &mut Rng, stop: &Stop<'_>) -> Option<Vec<u64>> {
        for step in 0..steps {
            let Some(item) = self.outside.pop() else {
                return Some(self.head.clone());
            };
            if (step % 128 == 127 && stop.now()) || !self.step(item, rng) {
                self.outside.push(item);
                return None;
            }
        }
        self.outside.is_empty().then(|| self.head.clone())
    }

    /// Inserts an item and ejects those in its way; false if there is no place at all.
    fn step(&mut self, item: u32, rng: &mut Rng) -> bool {
        let Some(room) = self.capacity.checked_sub(self.frame.size[item as usize]) else {
            return false;
        };
        let (cost, mut place) = self.cheapest(item, room, rng);
        if cost >= FOREVER {
            return false;
        }
        if cost > 0 {
            self.need[item as usize] += 1;
            self.push_out(item, place, room);
        } else if self.habit == Habit::Tight && rng.below(WANDER) > 0 {
            place = self.tightest(item, room, rng).unwrap_or(place);
        }
        let end = |&i: &u32| self.end(i as usize);
        let at = self.order.partition_point(|i| end(i) <= place);
        self.order.insert(at, item);
        self.inside[item as usize] = true;
        self.settle();
        if let Some(last) = self.outside.len().checked_sub(1)
            && cost > 0
            && self.habit == Habit::Tight
        {
            self.outside.swap(last, last - rng.index(CHOICE.min(last + 1)));
        }
        true
    }

    /// Returns the lowest possible end of an item.
    fn end(&self, item: usize) -> u64 {
        self.head[item] + self.frame.size[item]
    }

    /// Returns the bytes that an item and those above it need.
    fn above(&self, item: usize) -> u64 {
        self.tail[item] + self.frame.size[item]
    }

    /// Returns the least weight that must leave for an item, and an offset for which it does.
    ///
    /// A neighbour is in the way of offsets that are below its head end, if what is above it then passes the capacity.
    fn cheapest(&mut self, item: u32, room: u64, rng: &mut Rng) -> (u64, u64) {
        self.events.clear();
        let mut cost = 0i64;
        for j in self.frame.near(item).iter().map(|&j| j as usize).filter(|&j| self.inside[j]) {
            let fixed = self.frame.fixed[j].is_some();
            let weight = if fixed { FOREVER } else { self.base[j] * self.need[j] }.cast_signed();
            let end = self.end(j);
            let above = self.above(j);
            let from = if above > room { 0 } else { room - above + 1 };
            let weight = if from < end { weight } else { 0 };
            if from == 0 {
                cost += weight;
            } else if weight > 0 {
                self.events.push((from, weight));
            }
            self.events.push((end, -weight));
        }
        self.events.sort_unstable_by_key(|e| e.0);
        let align = self.frame.align[item as usize];
        let mut best = (i64::MAX, 0);
        let (mut from, mut seen) = (0, 0);
        for &(at, change) in self.events.iter().chain(&[(u64::MAX, 0)]) {
            let to = at.min(room + 1);
            let first = align_up(from, align);
            if first < to && cost <= best.0 {
                seen = if cost < best.0 { 1 } else { seen + 1 };
                if rng.below(seen) == 0 {
                    let chance = first + rng.below(to - first);
                    best = (cost, chance - chance % align);
                }
            }
            if at > room {
                break;
            }
            from = at;
            cost += change;
        }
        (best.0.cast_unsigned(), best.1)
    }

    /// Returns the offset of the slot that leaves an item least room to move, among those for which nothing has to leave.
    fn tightest(&mut self, item: u32, room: u64, rng: &mut Rng) -> Option<u64> {
        let align = self.frame.align[item as usize];
        self.ends.clear();
        self.ends.push((0, 0));
        for j in self.frame.near(item).iter().map(|&j| j as usize).filter(|&j| self.inside[j]) {
            self.ends.push((align_up(self.end(j), align), self.above(j)));
        }
        self.ends.sort_unstable();
        let (mut place, mut least, mut seen) = (None, u64::MAX, 0);
        let mut above = 0;
        let mut higher = u64::MAX;
        for &(end, tail) in self.ends.iter().rev() {
            if end < higher && end + above <= room && room - end - above <= least {
                let free = room - end - above;
                seen = if free < least { 1 } else { seen + 1 };
                least = free;
                if rng.below(seen) == 0 {
                    place = Some(end);
                }
            }
            above = above.max(tail);
            higher = end;
        }
        place
    }

    /// Takes out the neighbours that can be neither below nor above an item at `place`; the heaviest are next in line.
    fn push_out(&mut self, item: u32, place: u64, room: u64) {
        let first = self.outside.len();
        for &o in self.frame.near(item) {
            let j = o as usize;
            if self.inside[j] && self.end(j) > place && place + self.above(j) > room {
                self.inside[j] = false;
                self.outside.push(o);
            }
        }
        let base = &self.base;
        self.outside[first..].sort_by_key(|&i| base[i as usize]);
        let inside = &self.inside;
        self.order.retain(|&i| inside[i as usize]);
    }

    /// Computes heads and tails, and puts the order in order.
    fn settle(&mut self) {
        let Self { frame, capacity, order, head, tail, skyline, .. } = self;
        skyline.fill(0);
        for &i in order.iter() {
            let (align, fixed) = (frame.align[i as usize], frame.fixed[i as usize]);
            let at = highest(frame, skyline, i);
            head[i as usize] = align_up(at, align).max(fixed.unwrap_or(0));
            for run in frame.runs(i) {
                skyline[run.sections()].fill(head[i as usize] + run.bytes);
            }
        }
        skyline.fill(0);
        for &i in order.iter().rev() {
            let (align, fixed) = (frame.align[i as usize], frame.fixed[i as usize]);
            let room = *capacity - frame.size[i as usize];
            // An item at a multiple of its alignment may leave some room above it.
            let latest = room.saturating_sub(highest(frame, skyline, i));
            tail[i as usize] = room - fixed.map_or(latest - latest % align, |f| latest.min(f));
            for run in frame.runs(i) {
                skyline[run.sections()].fill(tail[i as usize] + frame.size[i as usize]);
            }
        }
        // Few are out of order, and not by far.
        let end = |i: u32| head[i as usize] + frame.size[i as usize];
        for at in 1..order.len() {
            let mut to = at;
            while to > 0 && end(order[to - 1]) > end(order[to]) {
                order.swap(to - 1, to);
                to -= 1;
            }
        }
    }
}

/// Returns the height of a skyline under an item.
fn highest(frame: &Frame, skyline: &[u64], item: u32) -> u64 {
    frame.runs(item).iter().fold(0, |height, run| {
        skyline[run.sections()].iter().fold(height, |most, &s| if s > most { s } else { most })
    })
}

/// Returns the initial weights: all equal, or the square root of the sizes.
fn bases(size: &[u64], habit: Habit) -> Vec<u64> {
    const MEAN: u128 = 1 << 16;
    let sum = size.iter().map(|&s| u128::from(s)).sum::<u128>().max(1);
    let part = |s: u64| MEAN * size.len() as u128 * u128::from(s) / sum;
    let root = |s: u64| u64::try_from(part(s).isqrt()).unwrap_or(u64::MAX >> 32).max(1);
    size.iter().map(|&s| if habit == Habit::Tight { root(s) } else { 1 }).collect()
}

#[cfg(test)]
mod tests;
