//! Improvement by insertion and ejection: keeps a partial placement below the capacity and squeezes the rest in.

use crate::exact::Frame;
use crate::model::{align_up, id};
use crate::rng::Rng;
use crate::stop::Stop;
use alloc::vec::Vec;

/// Of the items that are out, the next one is taken from so many.
const CHOICE: usize = 4;
/// Once in so many times an item takes any slot that it fits, not the tightest.
const WANDER: u64 = 8;

/// How one improvement decides; several that differ find more than one that goes on for longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Large items stay in, and slots are filled tightly.
    Tight,
    /// All items count alike, and any slot will do.
    Loose,
}

impl Habit {
    /// The habit of the `round`-th improvement.
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
/// grows, so that stubborn items get their way and cycles end.
///
/// # Cost
/// A step is O(w + k log k) for the w sections of all items together and the k neighbours of the item.
pub(crate) struct Improve<'a> {
    frame: &'a Frame,
    habit: Habit,
    size: Vec<u64>,
    /// By head end, which puts every item behind those below it.
    order: Vec<u32>,
    inside: Vec<bool>,
    head: Vec<u64>,
    tail: Vec<u64>,
    /// What an item weighs at first, and how often it was in need.
    base: Vec<u64>,
    need: Vec<u64>,
    outside: Vec<u32>,
    skyline: Vec<u64>,
    /// Offsets from which on an item in the way costs more or less.
    events: Vec<(u64, i64)>,
    /// Head end, and tail with size, of each neighbour.
    ends: Vec<(u64, u64)>,
}

impl<'a> Improve<'a> {
    /// Starts with everything outside, the largest first in line.
    ///
    /// Sizes are rounded up to the largest alignment, which keeps every offset aligned whatever the order.
    pub(crate) fn new(frame: &'a Frame, habit: Habit) -> Self {
        let n = frame.len();
        let align = frame.align.iter().copied().max().unwrap_or(1);
        let size: Vec<u64> = frame.size.iter().map(|&s| align_up(s, align)).collect();
        let mut outside: Vec<u32> = (0..id(n)).collect();
        let width = |i: u32| frame.runs(i).iter().map(|r| u128::from(r.1 - r.0)).sum::<u128>();
        outside.sort_by_key(|&i| width(i) * u128::from(frame.size[i as usize]));
        Self {
            frame,
            habit,
            base: bases(&size, habit),
            size,
            order: Vec::with_capacity(n),
            inside: alloc::vec![false; n],
            head: alloc::vec![0; n],
            tail: alloc::vec![0; n],
            need: alloc::vec![1; n],
            outside,
            skyline: alloc::vec![0; frame.sections()],
            events: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Takes up to `steps` steps; returns the offsets once everything is in.
    ///
    /// The capacity is the same in every call: what is in stays in.
    pub(crate) fn run(
        &mut self,
        capacity: u64,
        steps: u64,
        rng: &mut Rng,
        stop: &Stop<'_>,
    ) -> Option<Vec<u64>> {
        for step in 0..steps {
            let Some(item) = self.outside.pop() else {
                return Some(self.head.clone());
            };
            if self.size[item as usize] > capacity || (step % 128 == 127 && stop.now()) {
                self.outside.push(item);
                return None;
            }
            self.step(item, capacity, rng);
        }
        self.outside.is_empty().then(|| self.head.clone())
    }

    /// Puts an item in, and out what is in its way.
    fn step(&mut self, item: u32, capacity: u64, rng: &mut Rng) {
        let room = capacity - self.size[item as usize];
        let (cost, mut place) = self.cheapest(item, room, rng);
        if cost > 0 {
            self.need[item as usize] += 1;
            self.push_out(item, place, room);
        } else if self.habit == Habit::Tight && rng.below(WANDER) > 0 {
            place = self.tightest(item, room, rng);
        }
        let end = |&i: &u32| self.head[i as usize] + self.size[i as usize];
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
    }

    /// The least weight that must leave for an item, and an offset for which it does.
    ///
    /// A neighbour is in the way of offsets that are below its head end, if what is above it then passes the capacity.
    fn cheapest(&mut self, item: u32, room: u64, rng: &mut Rng) -> (u64, u64) {
        self.events.clear();
        let mut cost = 0i64;
        for j in self.frame.near(item).iter().map(|&j| j as usize).filter(|&j| self.inside[j]) {
            let weight = (self.base[j] * self.need[j]).cast_signed();
            let end = self.head[j] + self.size[j];
            let above = self.tail[j] + self.size[j];
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
        let mut best = (i64::MAX, 0);
        let (mut from, mut seen) = (0, 0);
        for &(at, change) in self.events.iter().chain(&[(u64::MAX, 0)]) {
            let to = at.min(room + 1);
            if from < to && cost <= best.0 {
                seen = if cost < best.0 { 1 } else { seen + 1 };
                if rng.below(seen) == 0 {
                    best = (cost, from + rng.below(to - from));
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

    /// The offset of the slot that leaves an item least room to move, among those for which nothing has to leave.
    fn tightest(&mut self, item: u32, room: u64, rng: &mut Rng) -> u64 {
        self.ends.clear();
        self.ends.push((0, 0));
        for j in self.frame.near(item).iter().map(|&j| j as usize).filter(|&j| self.inside[j]) {
            self.ends.push((self.head[j] + self.size[j], self.tail[j] + self.size[j]));
        }
        self.ends.sort_unstable();
        let (mut place, mut least, mut seen) = (0, u64::MAX, 0);
        let mut above = 0;
        let mut higher = u64::MAX;
        for &(end, tail) in self.ends.iter().rev() {
            if end < higher && end + above <= room && room - end - above <= least {
                let free = room - end - above;
                seen = if free < least { 1 } else { seen + 1 };
                least = free;
                if rng.below(seen) == 0 {
                    place = end;
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
            let low = self.head[j] + self.size[j] <= place;
            if self.inside[j] && !low && place + self.tail[j] + self.size[j] > room {
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
        let Self { frame, size, order, head, tail, skyline, .. } = self;
        skyline.fill(0);
        for &i in order.iter() {
            head[i as usize] = stack(frame, skyline, i, size[i as usize]);
        }
        skyline.fill(0);
        for &i in order.iter().rev() {
            tail[i as usize] = stack(frame, skyline, i, size[i as usize]);
        }
        // Few are out of order, and not by far.
        let end = |i: u32| head[i as usize] + size[i as usize];
        for at in 1..order.len() {
            let mut to = at;
            while to > 0 && end(order[to - 1]) > end(order[to]) {
                order.swap(to - 1, to);
                to -= 1;
            }
        }
    }
}

/// Puts an item on a skyline and returns its height.
fn stack(frame: &Frame, skyline: &mut [u64], item: u32, size: u64) -> u64 {
    let mut height = 0;
    for &(from, to) in frame.runs(item) {
        let run = &skyline[from as usize..to as usize];
        height = run.iter().fold(height, |most, &s| if s > most { s } else { most });
    }
    for &(from, to) in frame.runs(item) {
        skyline[from as usize..to as usize].fill(height + size);
    }
    height
}

/// What items weigh at first: as much as each other, or as the square root of their sizes.
fn bases(size: &[u64], habit: Habit) -> Vec<u64> {
    const MEAN: u128 = 1 << 16;
    let sum = size.iter().map(|&s| u128::from(s)).sum::<u128>().max(1);
    let part = |s: u64| MEAN * size.len() as u128 * u128::from(s) / sum;
    let root = |s: u64| u64::try_from(part(s).isqrt()).unwrap_or(u64::MAX >> 32).max(1);
    size.iter().map(|&s| if habit == Habit::Tight { root(s) } else { 1 }).collect()
}

#[cfg(test)]
mod tests;
