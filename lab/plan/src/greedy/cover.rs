//! Fills memory from the bottom, a whole floor at a time: with the items that together leave least of it uncovered.

use super::skyline::Runs;
use crate::first_fit::life;
use crate::model::{Model, align_up, id};
use crate::rng::Rng;
use alloc::vec::Vec;

/// The least room that a section counts as having, as a share of the target.
const LEAST_ROOM: f64 = 0.002;
/// No item ends at a section.
const NONE: u32 = u32::MAX;

/// Weights that make an item worth more than the time that it covers: shares for its life, its size, and chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Taste {
    pub(crate) life: f64,
    pub(crate) size: f64,
    pub(crate) chance: f64,
}

/// Places all items on a skyline, floor by floor. Fixed items are left out.
///
/// # Algorithm
/// The skyline and its niches are those of [`skyline`](super::skyline::skyline). A niche gets all items of its floor at
/// once: those that cover most of it, where a section counts more the less room it has below the target. They are a
/// heaviest path through the sections of the niche. A niche in which no item lives is raised to its lower wall.
///
/// # Cost
/// O(w + k) for a floor of w sections in which k items without a place start; 30 bytes for each item and each section.
pub(crate) fn cover(model: &Model, target: u64, taste: Taste, rng: &mut Rng) -> Vec<u64> {
    let mut waiting = Waiting::new(model, target, taste, rng);
    let mut runs = Runs::new(id(model.sections()));
    let mut offsets = alloc::vec![0; model.len()];
    let mut floor_items = Vec::new();
    while waiting.left > 0 {
        let (start, end, floor) = runs.niche();
        waiting.heaviest(start, end, &mut floor_items);
        if floor_items.is_empty() {
            runs.raise(start);
        }
        let mut run = start;
        for &item in floor_items.iter().rev() {
            waiting.remove(item);
            let offset = align_up(floor, model.align[item as usize]);
            offsets[item as usize] = offset;
            let (from, to) = model.hull[item as usize];
            runs.fill(run, from, to, offset + model.size[item as usize]);
            run = to;
        }
    }
    offsets
}

/// The items that have no place yet.
struct Waiting<'a> {
    model: &'a Model,
    left: usize,
    /// Number of items that start before each section.
    starts: Vec<u32>,
    /// Each item points to itself or, once it is placed, to one behind it.
    next: Vec<u32>,
    /// Worth of each item for each unit that it covers.
    worth: Vec<f64>,
    /// Units before each section.
    units: Vec<f64>,
    /// Heaviest path of each section: weight, and the item that ends there.
    best: Vec<(f64, u32)>,
}

impl<'a> Waiting<'a> {
    fn new(model: &'a Model, target: u64, taste: Taste, rng: &mut Rng) -> Self {
        let (n, sections) = (model.len(), model.sections());
        let mut starts = alloc::vec![0u32; sections + 1];
        model.hull.iter().for_each(|h| starts[h.0 as usize + 1] += 1);
        for s in 0..sections {
            starts[s + 1] += starts[s];
        }
        let mut waiting = Self {
            model,
            left: n,
            starts,
            next: (0..=id(n)).collect(),
            worth: worths(model, taste, rng),
            units: units(&model.load, target),
            best: alloc::vec![(0.0, NONE); sections + 1],
        };
        let fixed = (0..n).filter(|&i| model.fixed[i].is_some());
        fixed.for_each(|i| waiting.remove(id(i)));
        waiting
    }

    fn remove(&mut self, item: u32) {
        self.left -= 1;
        self.next[item as usize] = item + 1;
    }

    /// Lists the items of the heaviest path through a niche, the last first.
    fn heaviest(&mut self, start: u32, end: u32, items: &mut Vec<u32>) {
        let (from, to) = (start as usize, end as usize);
        self.best[from..=to].fill((0.0, NONE));
        let mut item = self.find(self.starts[from] as usize);
        for s in from..to {
            if s > from {
                self.pass_on(s);
            }
            while item < self.model.len() && self.model.hull[item].0 as usize == s {
                self.extend(item, end);
                item = self.find(item + 1);
            }
        }
        self.pass_on(to);
        items.clear();
        let mut at = end;
        while at > start {
            let item = self.best[at as usize].1;
            if item == NONE {
                at -= 1;
            } else {
                items.push(item);
                at = self.model.hull[item as usize].0;
            }
        }
    }

    /// Leaves the section before `s` uncovered where that is better than any item that ends at `s`.
    fn pass_on(&mut self, s: usize) {
        if self.best[s - 1].0 > self.best[s].0 {
            self.best[s] = (self.best[s - 1].0, NONE);
        }
    }

    /// Extends the path to an item's first section by the item, if it ends inside the niche.
    fn extend(&mut self, item: usize, end: u32) {
        let (first, last) = self.model.hull[item];
        if last > end {
            return;
        }
        let (first, last) = (first as usize, last as usize);
        let weight = (self.units[last] - self.units[first]) * self.worth[item];
        if self.best[first].0 + weight > self.best[last].0 {
            self.best[last] = (self.best[first].0 + weight, id(item));
        }
    }

    /// Returns the first item from `item` on that waits.
    fn find(&mut self, mut item: usize) -> usize {
        while self.next[item] as usize != item {
            let skip = self.next[self.next[item] as usize];
            self.next[item] = skip;
            item = skip as usize;
        }
        item
    }
}

#[expect(clippy::cast_precision_loss, reason = "worths only order choices")]
fn worths(model: &Model, taste: Taste, rng: &mut Rng) -> Vec<f64> {
    let longest = (0..model.len()).map(|i| life(model, i)).max().unwrap_or(1).max(1) as f64;
    let largest = model.size.iter().copied().max().unwrap_or(1).max(1) as f64;
    let worth = |i: usize| {
        let (life, size) = (life(model, i) as f64 / longest, model.size[i] as f64 / largest);
        1.0 + taste.life * life + taste.size * size
    };
    let chance =
        |worth: f64| if taste.chance > 0.0 { worth + taste.chance * rng.unit() } else { worth };
    (0..model.len()).map(worth).map(chance).collect()
}

/// Returns the units before each section: a section counts the more, the less room its load leaves.
#[expect(clippy::cast_precision_loss, reason = "units only order choices")]
fn units(load: &[u64], target: u64) -> Vec<f64> {
    let mut sum = 0.0;
    let unit = |&bytes: &u64| {
        let room = target.saturating_sub(bytes) as f64 / target.max(1) as f64;
        let before = sum;
        sum += 1.0 / (room + LEAST_ROOM);
        before
    };
    let mut units: Vec<f64> = load.iter().map(unit).collect();
    units.push(sum);
    units
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Problem, Region};

    const PLAIN: Taste = Taste { life: 0.0, size: 0.0, chance: 0.0 };

    fn placed(buffers: &[Buffer], target: u64) -> Vec<u64> {
        let mut problem = Problem::new(Region::unbounded());
        problem.buffers = buffers.to_vec();
        let model = Model::new(&problem, 0, |_| true);
        let offsets = cover(&model, target, PLAIN, &mut Rng::new(1));
        model.item_of.iter().map(|i| offsets[i.expect("all have bytes") as usize]).collect()
    }

    #[test]
    fn a_floor_gets_the_items_that_leave_no_hole() {
        let long = Buffer::new(4, 0, 50);
        let (left, right) = (Buffer::new(4, 0, 30), Buffer::new(4, 30, 60));
        assert_eq!(placed(&[long, left, right.clone()], 8), [4, 0, 0]);
        // Of two that end together, the one that covers more.
        assert_eq!(placed(&[right, Buffer::new(4, 0, 60)], 8), [4, 0]);
    }

    #[test]
    fn sections_without_room_are_covered_first() {
        // Three of four live at ticks 4 to 6, where there is no room to spare.
        let buffers = [
            Buffer::new(4, 0, 6),
            Buffer::new(2, 0, 5),
            Buffer::new(4, 5, 6),
            Buffer::new(4, 4, 6),
            Buffer::new(4, 4, 6),
        ];
        let offsets = placed(&buffers, 16);
        let low = buffers.iter().zip(&offsets).filter(|(b, o)| b.live.end == 6 && **o == 0);
        assert_eq!(low.count(), 1, "{offsets:?}");
    }

    #[test]
    fn fixed_items_are_left_out_and_offsets_are_aligned() {
        let fixed = Buffer::new(4, 0, 9).fixed(40);
        let buffers = [fixed, Buffer::new(3, 0, 9), Buffer::new(5, 0, 9).align(8)];
        let mut offsets = placed(&buffers, 16);
        assert_eq!(offsets.remove(0), 0);
        assert!(offsets == [0, 8] || offsets == [5, 0], "{offsets:?}");
    }
}
