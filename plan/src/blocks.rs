//! Blocks: items that fit together without waste, to be placed as one.

use crate::classes::lcm;
use crate::model::{Model, align_up, id};
use crate::rng::Rng;
use alloc::collections::{BTreeSet, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Partners that a block is compared with, of one kind and on one side at most.
const PARTNERS: usize = 4;
/// Blocks of one side of a pinwheel that are tried.
const TURNS: usize = 8;
/// Percent of a pinwheel that may be wasted.
const WHEEL_WASTE: u128 = 10;
/// Chance in the order of merges is in parts of this.
const EVEN: u64 = 64;

/// Steps of luck, the last of which is that of half of the items, and where chance ends.
const WASTES: u32 = 5;
const MOST_CHANCE: u64 = 8;

/// Which blocks are merged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zeal {
    /// How uncertain the order of merges is, from 0 on.
    pub(crate) chance: u64,
    /// The most pairs that fit as well by chance as two that are merged with waste; 0 for no waste.
    pub(crate) luck: u64,
    /// Percent of a pinwheel that may be wasted where there is luck.
    pub(crate) wheels: u128,
}

impl Zeal {
    /// Returns the zeal of the `round`-th merge of so many items: without waste, then with more and more of it, and again.
    pub(crate) fn nth(round: u32, items: usize) -> Self {
        let waste = round % WASTES;
        let luck = if waste == 0 { 0 } else { (items as u64) << waste >> WASTES };
        let wheels = if round.is_multiple_of(2) { WHEEL_WASTE } else { 0 };
        Self { chance: u64::from(round / WASTES).min(MOST_CHANCE), luck, wheels }
    }
}

/// One item, or several that fill a rectangle of time and bytes.
#[derive(Clone, Debug)]
struct Block {
    from: u32,
    to: u32,
    size: u64,
    align: u64,
    /// The blocks that it is made of, each with its place inside.
    kids: Vec<(u32, u64)>,
}

/// The items of a model, some of them merged.
///
/// # Algorithm
/// Three shapes fill a rectangle: a block that starts when another of its size ends, two that live in the same
/// sections, and the five of a pinwheel, which no straight cut divides. Those that nearly fit are merged too if asked for,
/// where the target leaves room for what they waste. What most likely fits by chance alone is merged last: a pair ranks by
/// the number of starts, ends and sizes that are between its own. Merging is a guess, so blocks may need more bytes than
/// the items do.
///
/// # Cost
/// O(n log n) time where nothing is wasted, else O(s) for each merge and s sections; about 500 bytes for each item.
#[derive(Debug)]
pub(crate) struct Blocks {
    all: Vec<Block>,
    items: usize,
    /// The blocks that are part of no other by first section: the items of the merged model.
    tops: Vec<u32>,
}

impl Blocks {
    /// Merges the items that are live in one run, not fixed, and not separate from others.
    pub(crate) fn new(model: &Model, target: u64, zeal: Zeal, rng: &mut Rng) -> Self {
        let mut merger = Merger::new(model, target, zeal);
        merger.run(rng);
        let Merger { all, alive, .. } = merger;
        let mut tops: Vec<u32> = (0..id(all.len())).filter(|&b| alive[b as usize]).collect();
        tops.sort_by_key(|&b| all[b as usize].from);
        Self { all, items: model.len(), tops }
    }

    /// Returns the merged model.
    pub(crate) fn model(&self, model: &Model) -> Model {
        model.merged(self.tops.iter().map(|&top| {
            let block = &self.all[top as usize];
            let item = ((top as usize) < self.items).then_some(top as usize);
            (item, (block.from, block.to), block.size, block.align)
        }))
    }

    /// Returns the offsets of all items from those of the merged ones.
    pub(crate) fn expand(&self, places: &[u64]) -> Vec<u64> {
        let mut offsets = alloc::vec![0; self.all.len()];
        for (&top, &place) in self.tops.iter().zip(places) {
            offsets[top as usize] = place;
        }
        for block in (self.items..self.all.len()).rev() {
            for &(kid, place) in &self.all[block].kids {
                offsets[kid as usize] = offsets[block] + place;
            }
        }
        offsets.truncate(self.items);
        offsets
    }
}

/// Blocks by two properties.
type Index = BTreeSet<(u64, u64, u32)>;

/// The indices of blocks: by start and end, end and start, start and size, end and size, size and start, size and end.
const INDICES: usize = 6;
const SPANS: usize = 0;
const HEADS: usize = 2;
const TAILS: usize = 3;
const SIZES: usize = 4;

/// Merges blocks until none fit together.
struct Merger<'a> {
    all: Vec<Block>,
    /// Start of each section.
    ticks: &'a [u64],
    alive: Vec<bool>,
    zeal: Zeal,
    /// The living blocks that may be merged.
    indices: [Index; INDICES],
    /// Merges by rank.
    heap: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// Bytes that may be wasted in each section.
    room: Vec<u64>,
    /// Number of items that start, and that end, before each section; all sizes in order.
    starts: Vec<u64>,
    ends: Vec<u64>,
    sizes: Vec<u64>,
}

impl<'a> Merger<'a> {
    fn new(model: &'a Model, target: u64, zeal: Zeal) -> Self {
        let block = |i: usize| {
            let (from, to) = model.hull[i];
            Block { from, to, size: model.size[i], align: model.align[i], kids: Vec::new() }
        };
        let mut sizes = model.size.clone();
        sizes.sort_unstable();
        let mut merger = Self {
            all: (0..model.len()).map(block).collect(),
            ticks: &model.ticks,
            alive: alloc::vec![true; model.len()],
            zeal,
            indices: Default::default(),
            heap: BinaryHeap::new(),
            room: model.load.iter().map(|&load| target.saturating_sub(load)).collect(),
            starts: before(model.sections(), model.hull.iter().map(|h| h.0)),
            ends: before(model.sections(), model.hull.iter().map(|h| h.1)),
            sizes,
        };
        for item in 0..model.len() {
            if model.is_plain(item) && model.fixed[item].is_none() {
                merger.list(id(item));
            }
        }
        merger
    }

    /// Merges by rank; where pinwheels may be wasteful, only what fits exactly comes before them.
    fn run(&mut self, rng: &mut Rng) {
        if self.zeal.wheels > 0 && self.zeal.luck > 0 {
            let luck = core::mem::take(&mut self.zeal.luck);
            self.merge(0, rng);
            while self.turn(self.zeal.wheels, rng) {}
            self.zeal.luck = luck;
            self.merge(self.zeal.wheels, rng);
        } else {
            self.merge(0, rng);
        }
    }

    /// Merges pairs, and then pinwheels that waste at most some percent, until there is nothing left to merge.
    fn merge(&mut self, percent: u128, rng: &mut Rng) {
        for block in self.living() {
            self.propose(block, rng);
        }
        loop {
            while let Some(Reverse((_, a, b))) = self.heap.pop() {
                if self.alive[a as usize]
                    && self.alive[b as usize]
                    && let Some(block) = self.pair(a, b)
                    && self.take_room(&block)
                {
                    self.add(block, rng);
                }
            }
            if !self.turn(percent, rng) {
                return;
            }
        }
    }

    /// Merges pinwheels; false when there are none.
    fn turn(&mut self, percent: u128, rng: &mut Rng) -> bool {
        let mut found = false;
        for hub in self.living() {
            if self.alive[hub as usize]
                && let Some(block) = self.pinwheel(hub, percent)
                && self.take_room(&block)
            {
                self.add(block, rng);
                found = true;
            }
        }
        found
    }

    /// Lists the blocks that may be merged.
    fn living(&self) -> Vec<u32> {
        self.indices[SPANS].iter().map(|b| b.2).collect()
    }

    /// Puts a block in place of its kids.
    fn add(&mut self, block: Block, rng: &mut Rng) {
        for &(kid, _) in &block.kids {
            self.alive[kid as usize] = false;
            let keys = self.keys(kid);
            self.indices.iter_mut().zip(keys).for_each(|(index, key)| _ = index.remove(&key));
        }
        let new = id(self.all.len());
        self.all.push(block);
        self.alive.push(true);
        self.list(new);
        self.propose(new, rng);
    }

    fn list(&mut self, block: u32) {
        let keys = self.keys(block);
        self.indices.iter_mut().zip(keys).for_each(|(index, key)| _ = index.insert(key));
    }

    fn keys(&self, block: u32) -> [(u64, u64, u32); INDICES] {
        let Block { from, to, size, .. } = self.all[block as usize];
        let (from, to) = (from.into(), to.into());
        [(from, to), (to, from), (from, size), (to, size), (size, from), (size, to)]
            .map(|(a, b)| (a, b, block))
    }

    /// Ranks the merges of a block with those that fit it best.
    fn propose(&mut self, block: u32, rng: &mut Rng) {
        let [span, back, head, tail, by_start, by_end] = self.keys(block);
        // In the same sections; behind it, and before it; of its size.
        let places = [span, back, (tail.0, tail.1, 0), (head.0, head.1, 0), by_end, by_start];
        for (index, place) in self.indices.iter().zip(places) {
            let above = index.range((place.0, place.1, 0)..=(place.0, u64::MAX, u32::MAX));
            let below = index.range((place.0, 0, 0)..(place.0, place.1, 0)).rev();
            for &(_, _, other) in above.take(PARTNERS).chain(below.take(PARTNERS)) {
                let (rank, exact) = self.rank(block, other);
                if other != block && (exact || rank < self.zeal.luck) {
                    let rank = rank * (EVEN + rng.below(EVEN * self.zeal.chance + 1));
                    self.heap.push(Reverse((rank, block, other)));
                }
            }
        }
    }

    /// Returns how many pairs may fit as well by chance, and whether these fit exactly.
    fn rank(&self, a: u32, b: u32) -> (u64, bool) {
        let (x, y) = (&self.all[a as usize], &self.all[b as usize]);
        let among = |counts: &[u64], s: u32, t: u32| {
            (counts[s.max(t) as usize + 1] - counts[s.min(t) as usize]).max(1)
        };
        if x.from < y.to && y.from < x.to {
            let rank = among(&self.starts, x.from, y.from) * among(&self.ends, x.to, y.to);
            return (rank, x.from == y.from && x.to == y.to);
        }
        let (end, start) = if x.to <= y.from { (x.to, y.from) } else { (y.to, x.from) };
        let ticks = among(&self.starts, end, start).max(among(&self.ends, end, start));
        let (least, most) = (x.size.min(y.size), x.size.max(y.size));
        let sizes =
            self.sizes.partition_point(|&s| s <= most) - self.sizes.partition_point(|&s| s < least);
        (ticks * sizes.max(1) as u64, start == end && least == most)
    }

    /// Returns the block of two, one on the other if they meet.
    fn pair(&self, a: u32, b: u32) -> Option<Block> {
        let (x, y) = (&self.all[a as usize], &self.all[b as usize]);
        let meet = x.from < y.to && y.from < x.to;
        let above = if meet { align_up(x.size, y.align) } else { 0 };
        let span = (x.from.min(y.from), x.to.max(y.to));
        self.block(span, x.size.max(above + y.size), alloc::vec![(a, 0), (b, above)])
    }

    /// Takes what a block wastes from the room of its sections; false if there is too little.
    fn take_room(&mut self, block: &Block) -> bool {
        let span = block.from as usize..block.to as usize;
        let mut waste = alloc::vec![block.size; span.len()];
        for kid in block.kids.iter().map(|k| &self.all[k.0 as usize]) {
            let at = kid.from as usize - span.start..kid.to as usize - span.start;
            waste[at].iter_mut().for_each(|w| *w -= kid.size);
        }
        let fits = self.room[span.clone()].iter().zip(&waste).all(|(room, w)| w <= room);
        if fits {
            self.room[span].iter_mut().zip(&waste).for_each(|(room, w)| *room -= w);
        }
        fits
    }

    fn block(&self, (from, to): (u32, u32), size: u64, kids: Vec<(u32, u64)>) -> Option<Block> {
        let mut align = 1;
        for &(kid, place) in &kids {
            let own = self.all[kid as usize].align;
            align = lcm(align, own).filter(|_| place.is_multiple_of(own))?;
        }
        Some(Block { from, to, size, align, kids })
    }

    /// Finds four blocks that lie about one: their ticks agree, or their starts and sizes.
    fn pinwheel(&self, hub: u32, percent: u128) -> Option<Block> {
        let of = |b: u32| &self.all[b as usize];
        let (from, to, size) = (of(hub).from, of(hub).to, of(hub).size);
        let mut highs = self.all_with(HEADS, from.into()).filter(|&b| of(b).to > to).take(TURNS);
        highs.find_map(|high| {
            let mut lows = self.all_with(TAILS, to.into()).filter(|&b| of(b).from < from);
            let by_ticks = lows.by_ref().take(TURNS).find_map(|low| {
                let left = self.with(SPANS, of(low).from.into(), from.into()).next()?;
                let mut rights = self.with(SPANS, to.into(), of(high).to.into());
                rights.find_map(|right| self.wheel([hub, low, left, high, right], percent))
            });
            if percent == 0 || by_ticks.is_some() {
                return by_ticks;
            }
            let before = self.indices[SIZES].range(..(size + of(high).size, from.into(), 0)).rev();
            let lefts = before.map(|b| b.2).take(PARTNERS);
            lefts.filter(|&b| of(b).size == size + of(high).size).find_map(|left| {
                let lows = self.all_with(SPANS, of(left).from.into()).filter(|&b| of(b).to > from);
                lows.take(TURNS).find_map(|low| {
                    let after = (size + of(low).size, to.max(of(low).to).into(), 0);
                    let &(_, _, right) = self.indices[SIZES].range(after..).next()?;
                    self.wheel([hub, low, left, high, right], percent)
                })
            })
        })
    }

    /// Returns the block of a hub, a lower, left, upper and right block about it; none if it is not valid or wastes too much.
    fn wheel(&self, kids: [u32; 5], percent: u128) -> Option<Block> {
        let [hub, low, left, high, right] = kids.map(|b| &self.all[b as usize]);
        if left.to > hub.from.min(high.from) || right.from < hub.to.max(low.to) {
            return None;
        }
        let (floor, side) = (align_up(low.size, hub.align), align_up(low.size, left.align));
        let top = align_up((floor + hub.size).max(right.size), high.align);
        let size = (side + left.size).max(top + high.size);
        let span = (low.from.min(left.from), high.to.max(right.to));
        let ticks =
            |from: u32, to: u32| u128::from(self.ticks[to as usize] - self.ticks[from as usize]);
        let area = ticks(span.0, span.1) * u128::from(size);
        let used = [hub, low, left, high, right].map(|b| ticks(b.from, b.to) * u128::from(b.size));
        if (area - used.iter().sum::<u128>()) * 100 > area * percent {
            return None;
        }
        let places = [floor, 0, side, top, 0];
        self.block(span, size, kids.into_iter().zip(places).collect())
    }

    /// Lists the blocks of an index with one property.
    fn all_with(&self, index: usize, first: u64) -> impl Iterator<Item = u32> + '_ {
        self.indices[index].range((first, 0, 0)..=(first, u64::MAX, u32::MAX)).map(|b| b.2)
    }

    /// Lists some blocks of an index with two properties.
    fn with(&self, index: usize, first: u64, second: u64) -> impl Iterator<Item = u32> + '_ {
        let blocks = self.indices[index].range((first, second, 0)..=(first, second, u32::MAX));
        blocks.map(|b| b.2).take(PARTNERS)
    }
}

/// Counts the ticks before each section.
fn before(sections: usize, ticks: impl Iterator<Item = u32>) -> Vec<u64> {
    let mut counts = alloc::vec![0; sections + 2];
    ticks.for_each(|s| counts[s as usize + 1] += 1);
    for s in 1..counts.len() {
        counts[s] += counts[s - 1];
    }
    counts
}

#[cfg(test)]
mod tests;
