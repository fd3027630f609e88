//! Improvement by insertion and ejection: keeps a partial placement below the capacity and squeezes the rest in.

use crate::exact::Frame;
use crate::model::{align_up, id};
use crate::rng::Rng;
use crate::stop::Stop;
use alloc::vec::Vec;

/// A partial placement, kept as an order and not as offsets, so that free space flows to where it is needed.
///
/// # Algorithm
/// The items that are in form an order; of two that conflict the earlier one is below. Each item knows the least
/// height that what is below it needs (`head`) and what is above it needs (`tail`). An item that is out can enter
/// between any two of its neighbours if the highest head end below, its size, and the highest tail above fit the
/// capacity; then no other item has to leave. If it fits nowhere, it enters where the items that must leave have the
/// least sum of penalties, and its own penalty grows, so that stubborn items get their way and cycles end.
///
/// # Cost
/// A step is O(c) for c conflicts among the items that are in, O(k²) at worst for the k neighbours of the item.
pub(crate) struct Improve<'a> {
    frame: &'a Frame,
    size: Vec<u64>,
    order: Vec<u32>,
    place: Vec<u32>,
    inside: Vec<bool>,
    head: Vec<u64>,
    tail: Vec<u64>,
    penalty: Vec<u64>,
    outside: Vec<u32>,
    near: Vec<(u32, u32)>,
    below: Vec<u64>,
    above: Vec<u64>,
    by_head: Vec<(u64, u32)>,
    by_tail: Vec<(u64, u32)>,
    leaving: Vec<u32>,
    chosen: Vec<u32>,
}

impl<'a> Improve<'a> {
    /// Starts with everything outside, the largest first in line.
    ///
    /// Sizes are rounded up to the largest alignment, which keeps every offset aligned whatever the order.
    pub(crate) fn new(frame: &'a Frame) -> Self {
        let n = frame.len();
        let align = frame.align.iter().copied().max().unwrap_or(1);
        let size: Vec<u64> = frame.size.iter().map(|&s| align_up(s, align)).collect();
        let mut outside: Vec<u32> = (0..id(n)).collect();
        let width = |i: u32| frame.runs(i).iter().map(|r| u128::from(r.1 - r.0)).sum::<u128>();
        outside.sort_by_key(|&i| width(i) * u128::from(frame.size[i as usize]));
        Self {
            frame,
            size,
            order: Vec::with_capacity(n),
            place: alloc::vec![0; n],
            inside: alloc::vec![false; n],
            head: alloc::vec![0; n],
            tail: alloc::vec![0; n],
            penalty: alloc::vec![1; n],
            outside,
            near: Vec::new(),
            below: Vec::new(),
            above: Vec::new(),
            by_head: Vec::new(),
            by_tail: Vec::new(),
            leaving: Vec::new(),
            chosen: Vec::new(),
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
            if step % 16 == 15 && stop.now() {
                self.outside.push(item);
                return None;
            }
            if self.size[item as usize] > capacity {
                self.outside.push(item);
                return None;
            }
            self.reorder(capacity, rng);
            self.measure(item);
            let cut = self.entry(item, capacity, rng).unwrap_or_else(|| self.force(item, capacity));
            self.enter(item, cut, rng);
        }
        self.outside.is_empty().then(|| self.head.clone())
    }

    /// Sorts the order anew by a random blend of lowest and highest offsets, which keeps who is below whom.
    fn reorder(&mut self, capacity: u64, rng: &mut Rng) {
        let blend = u128::from(rng.below(1025));
        let (head, tail, size) = (&self.head, &self.tail, &self.size);
        self.order.sort_by_cached_key(|&i| {
            let i = i as usize;
            u128::from(head[i]) * blend + u128::from(capacity - tail[i] - size[i]) * (1024 - blend)
        });
        for (at, &i) in self.order.iter().enumerate() {
            self.place[i as usize] = id(at);
        }
    }

    /// Lists the item's neighbours in order, and for each cut what they need below and above.
    fn measure(&mut self, item: u32) {
        self.near.clear();
        let inside = self.frame.near(item).iter().filter(|&&o| self.inside[o as usize]);
        self.near.extend(inside.map(|&o| (self.place[o as usize], o)));
        self.near.sort_unstable();
        self.below.clear();
        self.below.push(0);
        let mut most = 0;
        for &(_, o) in &self.near {
            most = most.max(self.head[o as usize] + self.size[o as usize]);
            self.below.push(most);
        }
        self.above.clear();
        self.above.resize(self.near.len() + 1, 0);
        for at in (0..self.near.len()).rev() {
            let o = self.near[at].1 as usize;
            self.above[at] = self.above[at + 1].max(self.tail[o] + self.size[o]);
        }
    }

    /// A random cut at which the item fits.
    fn entry(&self, item: u32, capacity: u64, rng: &mut Rng) -> Option<usize> {
        let size = self.size[item as usize];
        let mut seen = 0;
        let mut chosen = None;
        for (cut, (below, above)) in self.below.iter().zip(&self.above).enumerate() {
            if below + size + above <= capacity {
                seen += 1;
                if rng.below(seen) == 0 {
                    chosen = Some(cut);
                }
            }
        }
        chosen
    }

    /// The cut at which the items that must leave weigh least; they are put in `chosen`.
    fn force(&mut self, item: u32, capacity: u64) -> usize {
        self.penalty[item as usize] += 1;
        let room = capacity - self.size[item as usize];
        self.by_head.clear();
        self.by_tail.clear();
        for (at, &(_, o)) in self.near.iter().enumerate() {
            let o = o as usize;
            self.by_head.push((self.head[o] + self.size[o], id(at)));
            self.by_tail.push((self.tail[o] + self.size[o], id(at)));
        }
        self.by_head.sort_unstable_by(|a, b| b.cmp(a));
        self.by_tail.sort_unstable_by(|a, b| b.cmp(a));
        let mut least = u64::MAX;
        let mut best = 0;
        for cut in 0..=self.near.len() {
            if let Some(weight) = self.weigh(cut, room, least) {
                least = weight;
                best = cut;
                core::mem::swap(&mut self.leaving, &mut self.chosen);
            }
        }
        best
    }

    /// The least weight that must leave for a cut, if it is below `least`; the items are put in `leaving`.
    ///
    /// Those below leave from the highest head end down; for each, those above that still do not fit leave too.
    fn weigh(&mut self, cut: usize, room: u64, mut least: u64) -> Option<u64> {
        let mut found = None;
        let mut gone = 0;
        let mut weight = 0;
        loop {
            while gone < self.by_head.len() && self.by_head[gone].1 as usize >= cut {
                gone += 1;
            }
            let need = self.by_head.get(gone).map_or(0, |h| h.0);
            if need <= room
                && let Some(rest) = self.weigh_above(cut, room - need, least - weight)
            {
                least = weight + rest;
                found = Some((least, need, room - need));
            }
            let Some(&(_, at)) = self.by_head.get(gone) else { break };
            weight += self.penalty[self.near[at as usize].1 as usize];
            if weight >= least {
                break;
            }
            gone += 1;
        }
        let (weight, head, tail) = found?;
        self.leaving.clear();
        for (at, &(_, o)) in self.near.iter().enumerate() {
            let i = o as usize;
            let out = if at < cut {
                self.head[i] + self.size[i] > head
            } else {
                self.tail[i] + self.size[i] > tail
            };
            if out {
                self.leaving.push(o);
            }
        }
        Some(weight)
    }

    /// The weight of those at or behind the cut whose tails pass `room`, if it is below `least`.
    fn weigh_above(&self, cut: usize, room: u64, least: u64) -> Option<u64> {
        let mut weight = 0;
        for &(tail, at) in &self.by_tail {
            if tail <= room {
                break;
            }
            if at as usize >= cut {
                weight += self.penalty[self.near[at as usize].1 as usize];
                if weight >= least {
                    return None;
                }
            }
        }
        (weight < least).then_some(weight)
    }

    /// Puts the item in at the cut and takes `chosen` out.
    fn enter(&mut self, item: u32, cut: usize, rng: &mut Rng) {
        let at = match cut {
            0 => self.near.first().map_or(self.order.len(), |n| n.0 as usize),
            cut => self.near[cut - 1].0 as usize + 1,
        };
        let (mut from, mut to) = (at, at);
        self.order.insert(at, item);
        self.inside[item as usize] = true;
        if !self.chosen.is_empty() {
            for &o in &self.chosen {
                self.inside[o as usize] = false;
                from = from.min(self.place[o as usize] as usize);
                to = to.max(self.place[o as usize] as usize + 1);
            }
            self.order.retain(|&i| self.inside[i as usize]);
            self.outside.append(&mut self.chosen);
        }
        if let Some(last) = self.outside.len().checked_sub(1) {
            let next = if self.penalty[item as usize] > 1 { rng.index(last + 1) } else { last };
            self.outside.swap(next, last);
        }
        self.settle(from, to.min(self.order.len() - 1));
    }

    /// Computes heads from one place on and tails down from another.
    fn settle(&mut self, from: usize, to: usize) {
        for at in from..self.order.len() {
            self.place[self.order[at] as usize] = id(at);
        }
        for at in from..self.order.len() {
            let i = self.order[at];
            let lower = self.frame.near(i).iter().map(|&o| o as usize);
            let lower = lower.filter(|&o| self.inside[o] && (self.place[o] as usize) < at);
            self.head[i as usize] = lower.map(|o| self.head[o] + self.size[o]).max().unwrap_or(0);
        }
        for at in (0..=to).rev() {
            let i = self.order[at];
            let upper = self.frame.near(i).iter().map(|&o| o as usize);
            let upper = upper.filter(|&o| self.inside[o] && self.place[o] as usize > at);
            self.tail[i as usize] = upper.map(|o| self.tail[o] + self.size[o]).max().unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests;
