//! Clusters: buffers that together fill a rectangle of time and bytes, placed as one.

use crate::classes::lcm;
use crate::model::{Model, align_up, id};
use crate::rng::Rng;
use alloc::collections::{BTreeSet, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Candidates of each index, on each side, that a cluster is compared with.
const PARTNERS: usize = 4;
/// Candidates tried for each side of a pinwheel.
const TURNS: usize = 8;
/// Percent of a pinwheel's area that may be wasted.
const WHEEL_WASTE: u128 = 10;
/// Clusters that start or end at one tick and are tried as a part of a stack.
const STACKS: usize = 64;
/// Unit of the random factor on ranks.
const NOISE_UNIT: u64 = 64;

/// Number of merge rules that take turns, from no waste to the most.
const RULES: u32 = 5;
/// Upper limit of [`MergeRule::noise`].
const MOST_NOISE: u64 = 8;

/// Rule for the clusters that are merged, and for their order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MergeRule {
    /// Randomness of the merge order; 0 merges strictly by rank.
    pub(crate) noise: u64,
    /// Pairs that do not fit exactly are merged below this rank; 0 merges exact pairs only.
    pub(crate) rank_limit: u64,
    /// Percent of a pinwheel's area that may be wasted when `rank_limit` is not 0.
    pub(crate) wheel_waste: u128,
    /// True if two that are together as large as a third beside them are merged early.
    pub(crate) stacks: bool,
}

impl MergeRule {
    /// Returns the rule of the `round`-th merge of `items` items: without waste, then with more and more, and again.
    pub(crate) fn nth(round: u32, items: usize) -> Self {
        let waste = round % RULES;
        let rank_limit = if waste == 0 { 0 } else { (items as u64) << waste >> RULES };
        let wheel_waste = if round.is_multiple_of(2) { WHEEL_WASTE } else { 0 };
        // Among coarse sizes, many sums agree by coincidence.
        let stacks = (round / RULES).is_multiple_of(2);
        Self { noise: u64::from(round / RULES).min(MOST_NOISE), rank_limit, wheel_waste, stacks }
    }
}

/// One item, or several that fill a rectangle of time and bytes.
#[derive(Clone, Debug)]
struct Cluster {
    from: u32,
    to: u32,
    size: u64,
    align: u64,
    /// The clusters that it is made of, each with its place inside.
    parts: Vec<(u32, u64)>,
}

/// The items of a model, some of them merged.
///
/// # Algorithm
/// Three shapes fill a rectangle: two clusters of one size of which one starts when the other ends, two that live in the
/// same sections, and the five of a pinwheel, which no straight cut divides. Pairs that nearly fit are merged too if the rule
/// allows it and the target leaves room for the waste. A pair's rank is the number of pairs that would fit as well by
/// coincidence: starts, ends and sizes between its own. Low ranks are merged first; so are two that are together as large as a
/// third beside them, because then the three are a rectangle. Merging is a guess: the merged model may
/// need more bytes than the items do.
///
/// # Cost
/// O(n log n) to rank, and O(s) for each merge of s sections; about 500 bytes for each item.
#[derive(Debug)]
pub(crate) struct Clusters {
    all: Vec<Cluster>,
    items: usize,
    /// The clusters that are part of no other by first section: the items of the merged model.
    tops: Vec<u32>,
}

impl Clusters {
    /// Merges the items that are live in one run, not fixed, and not separate from others.
    pub(crate) fn new(model: &Model, target: u64, rule: MergeRule, rng: &mut Rng) -> Self {
        let mut merger = Merger::new(model, target, rule);
        merger.run(rng);
        let Merger { all, alive, .. } = merger;
        let mut tops: Vec<u32> = (0..id(all.len())).filter(|&b| alive[b as usize]).collect();
        tops.sort_by_key(|&b| all[b as usize].from);
        Self { all, items: model.len(), tops }
    }

    /// Returns the merged model.
    pub(crate) fn model(&self, model: &Model) -> Model {
        model.merged(self.tops.iter().map(|&top| {
            let cluster = &self.all[top as usize];
            let item = ((top as usize) < self.items).then_some(top as usize);
            (item, (cluster.from, cluster.to), cluster.size, cluster.align)
        }))
    }

    /// Returns the offsets of all items from those of the merged ones.
    pub(crate) fn expand(&self, places: &[u64]) -> Vec<u64> {
        let mut offsets = alloc::vec![0; self.all.len()];
        for (&top, &place) in self.tops.iter().zip(places) {
            offsets[top as usize] = place;
        }
        for cluster in (self.items..self.all.len()).rev() {
            for &(part, place) in &self.all[cluster].parts {
                offsets[part as usize] = offsets[cluster] + place;
            }
        }
        offsets.truncate(self.items);
        offsets
    }
}

/// Clusters by two properties.
type Index = BTreeSet<(u64, u64, u32)>;

/// The indices of clusters: by start and end, end and start, start and size, end and size, size and start, size and end.
const INDICES: usize = 6;
const SPANS: usize = 0;
const HEADS: usize = 2;
const TAILS: usize = 3;
const SIZES: usize = 4;

/// Merges clusters until none fit together.
struct Merger<'a> {
    all: Vec<Cluster>,
    /// Start of each section.
    ticks: &'a [u64],
    alive: Vec<bool>,
    rule: MergeRule,
    /// The living clusters that may be merged.
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
    fn new(model: &'a Model, target: u64, rule: MergeRule) -> Self {
        let cluster = |i: usize| {
            let (from, to) = model.hull[i];
            Cluster { from, to, size: model.size[i], align: model.align[i], parts: Vec::new() }
        };
        let mut sizes = model.size.clone();
        sizes.sort_unstable();
        let mut merger = Self {
            all: (0..model.len()).map(cluster).collect(),
            ticks: &model.ticks,
            alive: alloc::vec![true; model.len()],
            rule,
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
        if self.rule.wheel_waste > 0 && self.rule.rank_limit > 0 {
            let rank_limit = core::mem::take(&mut self.rule.rank_limit);
            self.merge(0, rng);
            while self.turn(self.rule.wheel_waste, rng) {}
            self.rule.rank_limit = rank_limit;
            self.merge(self.rule.wheel_waste, rng);
        } else {
            self.merge(0, rng);
        }
    }

    /// Merges pairs, and then pinwheels that waste at most some percent, until there is nothing left to merge.
    fn merge(&mut self, percent: u128, rng: &mut Rng) {
        for cluster in self.living() {
            self.propose(cluster, rng);
        }
        loop {
            while let Some(Reverse((_, a, b))) = self.heap.pop() {
                if self.alive[a as usize]
                    && self.alive[b as usize]
                    && let Some(cluster) = self.pair(a, b)
                    && self.take_room(&cluster)
                {
                    self.add(cluster, rng);
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
                && let Some(cluster) = self.pinwheel(hub, percent)
                && self.take_room(&cluster)
            {
                self.add(cluster, rng);
                found = true;
            }
        }
        found
    }

    /// Lists the clusters that may be merged.
    fn living(&self) -> Vec<u32> {
        self.indices[SPANS].iter().map(|b| b.2).collect()
    }

    /// Puts a cluster in place of its parts.
    fn add(&mut self, cluster: Cluster, rng: &mut Rng) {
        for &(part, _) in &cluster.parts {
            self.alive[part as usize] = false;
            let keys = self.keys(part);
            self.indices.iter_mut().zip(keys).for_each(|(index, key)| _ = index.remove(&key));
        }
        let new = id(self.all.len());
        self.all.push(cluster);
        self.alive.push(true);
        self.list(new);
        self.propose(new, rng);
    }

    fn list(&mut self, cluster: u32) {
        let keys = self.keys(cluster);
        self.indices.iter_mut().zip(keys).for_each(|(index, key)| _ = index.insert(key));
    }

    fn keys(&self, cluster: u32) -> [(u64, u64, u32); INDICES] {
        let Cluster { from, to, size, .. } = self.all[cluster as usize];
        let (from, to) = (from.into(), to.into());
        [(from, to), (to, from), (from, size), (to, size), (size, from), (size, to)]
            .map(|(a, b)| (a, b, cluster))
    }

    /// Ranks the merges of a cluster with those that fit it best.
    fn propose(&mut self, cluster: u32, rng: &mut Rng) {
        let [span, back, head, tail, by_start, by_end] = self.keys(cluster);
        // In the same sections; behind it, and before it; of its size.
        let places = [span, back, (tail.0, tail.1, 0), (head.0, head.1, 0), by_end, by_start];
        for (index, place) in self.indices.iter().zip(places) {
            let above = index.range((place.0, place.1, 0)..=(place.0, u64::MAX, u32::MAX));
            let below = index.range((place.0, 0, 0)..(place.0, place.1, 0)).rev();
            for &(_, _, other) in above.take(PARTNERS).chain(below.take(PARTNERS)) {
                let (rank, exact) = self.rank(cluster, other);
                if other != cluster && (exact || rank < self.rule.rank_limit) {
                    let rank = rank * (NOISE_UNIT + rng.below(NOISE_UNIT * self.rule.noise + 1));
                    self.heap.push(Reverse((rank, cluster, other)));
                }
            }
        }
        if self.rule.stacks {
            self.propose_stacks(cluster, rng);
        }
    }

    /// Ranks the pairs in the same sections that end where a cluster starts, or start where it ends, and are as large as it is:
    /// three sizes rarely agree by coincidence.
    fn propose_stacks(&mut self, cluster: u32, rng: &mut Rng) {
        let Cluster { from, to, size, .. } = self.all[cluster as usize];
        for (index, tick) in [(TAILS, u64::from(from)), (HEADS, u64::from(to))] {
            let halves = self.indices[index].range((tick, 0, 0)..=(tick, size / 2, u32::MAX));
            let parts: Vec<u32> = halves.map(|b| b.2).take(STACKS).collect();
            for &part in &parts {
                let one = &self.all[part as usize];
                let fits = |&b: &u32| {
                    let other = &self.all[b as usize];
                    b != part && (one.from, one.to) == (other.from, other.to)
                };
                let Some(other) = self.with(index, tick, size - one.size).find(fits) else {
                    continue;
                };
                let chance = NOISE_UNIT + rng.below(NOISE_UNIT * self.rule.noise + 1);
                self.heap.push(Reverse((parts.len() as u64 * chance, part, other)));
            }
        }
    }

    /// Returns how many pairs may fit as well by noise, and whether these fit exactly.
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

    /// Returns the cluster of two, one on the other if they meet.
    fn pair(&self, a: u32, b: u32) -> Option<Cluster> {
        let (x, y) = (&self.all[a as usize], &self.all[b as usize]);
        let meet = x.from < y.to && y.from < x.to;
        let above = if meet { align_up(x.size, y.align) } else { 0 };
        let span = (x.from.min(y.from), x.to.max(y.to));
        self.cluster(span, x.size.max(above + y.size), alloc::vec![(a, 0), (b, above)])
    }

    /// Takes what a cluster wastes from the room of its sections; false if there is too little.
    fn take_room(&mut self, cluster: &Cluster) -> bool {
        let span = cluster.from as usize..cluster.to as usize;
        let mut waste = alloc::vec![cluster.size; span.len()];
        for part in cluster.parts.iter().map(|k| &self.all[k.0 as usize]) {
            let at = part.from as usize - span.start..part.to as usize - span.start;
            waste[at].iter_mut().for_each(|w| *w = w.saturating_sub(part.size));
        }
        let fits = self.room[span.clone()].iter().zip(&waste).all(|(room, w)| w <= room);
        if fits {
            self.room[span].iter_mut().zip(&waste).for_each(|(room, w)| *room -= w);
        }
        fits
    }

    fn cluster(
        &self,
        (from, to): (u32, u32),
        size: u64,
        parts: Vec<(u32, u64)>,
    ) -> Option<Cluster> {
        let mut align = 1;
        for &(part, place) in &parts {
            let own = self.all[part as usize].align;
            align = lcm(align, own).filter(|_| place.is_multiple_of(own))?;
        }
        Some(Cluster { from, to, size, align, parts })
    }

    /// Finds four clusters that lie about one: their ticks agree, or their starts and sizes.
    fn pinwheel(&self, hub: u32, percent: u128) -> Option<Cluster> {
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

    /// Returns the cluster of a hub, a lower, left, upper and right cluster about it; none if it is not valid or wastes too much.
    fn wheel(&self, parts: [u32; 5], percent: u128) -> Option<Cluster> {
        let [hub, low, left, high, right] = parts.map(|b| &self.all[b as usize]);
        if left.to > hub.from.min(high.from) || right.from < hub.to.max(low.to) {
            return None;
        }
        let (floor, side) = (align_up(low.size, hub.align), align_up(low.size, left.align));
        let top = align_up((floor + hub.size).max(right.size), high.align);
        let size = side.checked_add(left.size)?.max(top.checked_add(high.size)?);
        let span = (low.from.min(left.from), high.to.max(right.to));
        let ticks =
            |from: u32, to: u32| u128::from(self.ticks[to as usize] - self.ticks[from as usize]);
        let area = ticks(span.0, span.1) * u128::from(size);
        let used = [hub, low, left, high, right].map(|b| ticks(b.from, b.to) * u128::from(b.size));
        let used = used.into_iter().try_fold(0_u128, u128::checked_add)?;
        if area.checked_sub(used)?.saturating_mul(100) > area.saturating_mul(percent) {
            return None;
        }
        let places = [floor, 0, side, top, 0];
        self.cluster(span, size, parts.into_iter().zip(places).collect())
    }

    /// Lists the clusters of an index with one property.
    fn all_with(&self, index: usize, first: u64) -> impl Iterator<Item = u32> + '_ {
        self.indices[index].range((first, 0, 0)..=(first, u64::MAX, u32::MAX)).map(|b| b.2)
    }

    /// Lists some clusters of an index with two properties.
    fn with(&self, index: usize, first: u64, second: u64) -> impl Iterator<Item = u32> + '_ {
        let clusters = self.indices[index].range((first, second, 0)..=(first, second, u32::MAX));
        clusters.map(|b| b.2).take(PARTNERS)
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
