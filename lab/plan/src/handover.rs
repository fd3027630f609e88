//! Plans in order of time: items take over the bytes of those that ended, while the order of what is live stays open.

use crate::bound::unit;
use crate::exact::rough_log;
use crate::model::{Model, id};
use crate::orders::Orders;
use crate::rng::Rng;
use crate::stop::Stop;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Lists of up to this many ranges are combined in every way; longer ones by threes, and those of more than `SOME` by twos.
const FEW: usize = 8;
const SOME: usize = 24;
/// Ranges of which those with a given sum are looked for.
const HALVES: usize = 24;
/// Ranges of a list that are looked at; a set of them is a number of as many bits.
const MOST: usize = 63;
/// Sets of free bytes that are compared with a set of items, and groups that are tried before giving up.
const CLOSEST: usize = 3;
const TRIES: usize = 24;
/// Parts inside of parts, whose orders are looked at one inside the other.
const DEEPEST: usize = 128;
/// Times that drafts are continued, if that gives too few others.
const ROUNDS: usize = 16;
/// Chance in the order of groups, in turns, and what a large set counts for, by chance.
const NOISE: [f64; 5] = [0.0, 0.5, 1.0, 2.0, 4.0];
const CAUTION: [f64; 3] = [0.25, 0.5, 1.0];

/// A range of bytes: an item or free.
#[derive(Clone, Copy, Debug)]
struct Range {
    bytes: u64,
    is_free: bool,
    /// True if no item ever had it, so that it may be divided among the places beside its neighbours.
    is_fluid: bool,
}

/// History of a draft, the last step first.
struct Step {
    change: Change,
    before: Option<Rc<Self>>,
}

impl Drop for Step {
    /// Step by step: a history is as long as there are items, and must not need a deep stack.
    fn drop(&mut self) {
        let mut before = self.before.take();
        while let Some(mut step) = before.and_then(Rc::into_inner) {
            before = step.before.take();
        }
    }
}

enum Change {
    /// Ranges that are contiguous in some orders were replaced by others.
    Taken { orders: Orders, old: Vec<(u32, u64)>, new: Vec<u32> },
    /// Bytes of the first range became the second one.
    Divided(u32, u32),
}

/// Items that may take over free ranges together: bits of two lists.
struct Group {
    rank: f64,
    old: u64,
    new: u64,
    waste: u64,
}

/// Items that start and that end with each section.
pub(crate) struct Turns {
    /// Common divisor of all peaks, and of all offsets here.
    unit: u64,
    starts: Vec<Vec<u32>>,
    ends: Vec<Vec<u32>>,
}

impl Turns {
    /// Lists the items of a model; `None` if some have gaps, are fixed, or do not fill multiples of their alignment.
    pub(crate) fn new(model: &Model) -> Option<Self> {
        let unit = unit(model);
        let is_plain = |i: usize| {
            model.is_plain(i) && model.fixed[i].is_none() && unit.is_multiple_of(model.align[i])
        };
        if !(0..model.len()).all(is_plain) {
            return None;
        }
        let mut starts = alloc::vec![Vec::new(); model.sections() + 1];
        let mut ends = starts.clone();
        for (item, hull) in model.hull.iter().enumerate() {
            starts[hull.0 as usize].push(id(item));
            ends[hull.1 as usize].push(id(item));
        }
        Some(Self { unit, starts, ends })
    }
}

/// Searches for a placement below a capacity, section by section.
///
/// # Algorithm
/// A draft is what is live, and the [`Orders`] that it may have: offsets are decided only as far as something depends on them. Items that end leave free
/// ranges. Items that start take over free ranges with a sum of at least theirs, which become contiguous; the items then lie there in any
/// order, and what is left stays free. Of all such groups the one is taken that is least likely to fit by coincidence: few ranges, few
/// items, little waste, and some chance. Drafts with different orders are kept side by side, those with little waste first. At the end
/// the last draft is put in one of its orders, and then those before it, back in time.
pub(crate) fn hand_over(
    (model, turns): (&Model, &Turns),
    capacity: u64,
    width: usize,
    rng: &mut Rng,
    stop: &Stop<'_>,
) -> (Option<Vec<u64>>, u64) {
    let mut drafts = alloc::vec![Draft::new(model, capacity, turns.unit)];
    let mut taken = 0;
    for section in 0..model.sections() {
        drafts.iter_mut().for_each(|draft| draft.end(&turns.ends[section]));
        let starts = &turns.starts[section];
        if starts.is_empty() {
            continue;
        }
        let mut next: Vec<Draft> = Vec::new();
        for round in 0..ROUNDS {
            for draft in &drafts {
                taken += starts.len() as u64;
                let noise = NOISE[(round + rng.index(2)) % NOISE.len()];
                let caution = CAUTION[rng.index(CAUTION.len())];
                let draft = draft.start(starts, (noise, caution), rng, stop);
                let is_new = |d: &Draft| next.iter().all(|other| other.orders != d.orders);
                next.extend(draft.filter(|d| d.orders.depth() <= DEEPEST && is_new(d)));
            }
            // Once most ways are the same, more of them help little.
            let few = round > 0 && !next.is_empty() && next.len() * 32 < (round + 1) * drafts.len();
            if next.len() * 2 >= width || few || stop.now() {
                break;
            }
        }
        drafts = best(next, width, rng);
        if drafts.is_empty() || stop.now() {
            return (None, taken);
        }
    }
    (drafts.first().map(|draft| draft.offsets(model.len())), taken)
}

/// Keeps some drafts: half of them for little waste, the others by chance.
fn best(mut drafts: Vec<Draft>, width: usize, rng: &mut Rng) -> Vec<Draft> {
    drafts.sort_by(|a, b| a.waste.total_cmp(&b.waste));
    for at in width / 2..width.min(drafts.len()) {
        let other = at + rng.index(drafts.len() - at);
        drafts.swap(at, other);
    }
    drafts.truncate(width);
    drafts
}

/// The live items and the free bytes of one moment.
#[derive(Clone)]
struct Draft {
    /// All ranges that ever were, the items first.
    ranges: Vec<Range>,
    orders: Orders,
    steps: Option<Rc<Step>>,
    unit: u64,
    /// Sum of the logarithms of what groups left.
    waste: f64,
}

impl Draft {
    fn new(model: &Model, capacity: u64, unit: u64) -> Self {
        let item = |&bytes: &u64| Range { bytes, is_free: false, is_fluid: false };
        let mut ranges: Vec<Range> = model.size.iter().map(item).collect();
        let orders = Orders::Any(alloc::vec![Orders::One(id(ranges.len()))]);
        ranges.push(Range { bytes: capacity - capacity % unit, is_free: true, is_fluid: true });
        Self { ranges, orders, steps: None, unit, waste: 0.0 }
    }

    fn bytes(&self, range: u32) -> u64 {
        self.ranges[range as usize].bytes
    }

    fn is_free(&self, range: u32) -> bool {
        self.ranges[range as usize].is_free
    }

    fn push(&mut self, change: Change) {
        self.steps = Some(Rc::new(Step { change, before: self.steps.take() }));
    }

    /// Adds a free range.
    fn add(&mut self, bytes: u64, is_fluid: bool) -> u32 {
        self.ranges.push(Range { bytes, is_free: true, is_fluid });
        id(self.ranges.len() - 1)
    }

    /// Frees items, and makes one range of free ones that are contiguous anyway.
    fn end(&mut self, items: &[u32]) {
        items.iter().for_each(|&item| self.ranges[item as usize].is_free = true);
        while let Some(run) =
            self.orders.run(&|range| self.is_free(range)).filter(|_| !items.is_empty())
        {
            let old: Vec<_> = run.iter().map(|&range| (range, self.bytes(range))).collect();
            let whole = self.add(old.iter().map(|range| range.1).sum(), false);
            let orders = self.orders.clone();
            self.orders.replace(&|range| run.contains(&range), &[whole]);
            self.push(Change::Taken { orders, old, new: alloc::vec![whole] });
        }
    }

    /// Returns the draft with more items; `None` if they find no place.
    fn start(
        &self,
        items: &[u32],
        habit: (f64, f64),
        rng: &mut Rng,
        stop: &Stop<'_>,
    ) -> Option<Self> {
        let mut draft = self.clone();
        let mut items = items.to_vec();
        items.sort_by_key(|&item| Reverse(self.bytes(item)));
        while !items.is_empty() && !stop.now() {
            let mut pool = draft.orders.list();
            pool.retain(|&range| draft.is_free(range));
            pool.truncate(MOST);
            let head = &items[..items.len().min(MOST)];
            let groups = draft.groups(&pool, head, habit, rng);
            let taken = groups.into_iter().find_map(|group| {
                let (old, new) = (members(&pool, group.old), members(head, group.new));
                draft.take(&old, &new, group.waste).then_some(new)
            })?;
            items.retain(|item| !taken.contains(item));
        }
        items.is_empty().then_some(draft)
    }

    /// Lists the groups that are worth trying, the best first.
    fn groups(
        &self,
        pool: &[u32],
        items: &[u32],
        (noise, caution): (f64, f64),
        rng: &mut Rng,
    ) -> Vec<Group> {
        let mut sets = self.sums(pool);
        sets.sort_unstable();
        let ways = [pool, items].map(|list| caution * rough_log(list.len() as f64 + 1.0));
        let mut groups = Vec::new();
        let mut add = |(bytes, old): (u64, u64), (sum, new): (u64, u64), ways: f64| {
            let Some(waste) = bytes.checked_sub(sum) else { return };
            let rank = ways + self.chance(waste) + noise * rng.unit();
            groups.push(Group { rank, old, new, waste });
        };
        let mut is_exact = false;
        for (sum, new) in self.sums(items) {
            let at = sets.partition_point(|set| set.0 < sum);
            for &set in sets[at..].iter().take(CLOSEST) {
                is_exact |= set.0 == sum;
                let (many, more) = (set.1.count_ones(), new.count_ones());
                add(set, (sum, new), ways[0] * f64::from(many) + ways[1] * f64::from(more));
            }
        }
        let all = |list: &[u32]| {
            (list.iter().map(|&r| self.bytes(r)).sum::<u64>(), (1u64 << list.len()) - 1)
        };
        if !is_exact && pool.len() > FEW {
            let whole = all(items);
            self.exact(pool, whole.0)
                .into_iter()
                .for_each(|old| add((whole.0, old), whole, 6.0 * caution));
        }
        add(all(pool), all(items), 14.0 * caution);
        let by_rank = |a: &Group, b: &Group| a.rank.total_cmp(&b.rank);
        if groups.len() > TRIES {
            groups.select_nth_unstable_by(TRIES, by_rank);
            groups.truncate(TRIES);
        }
        groups.sort_by(by_rank);
        groups
    }

    /// Returns the logarithm of how many wastes are no larger.
    fn chance(&self, waste: u64) -> f64 {
        rough_log((waste / self.unit) as f64 + 1.0)
    }

    /// Returns sums of ranges, each with the set of them.
    fn sums(&self, list: &[u32]) -> Vec<(u64, u64)> {
        let most = match list.len() {
            few if few <= FEW => few,
            some if some <= SOME => 3,
            _ => 2,
        };
        let mut sums = self.all_sums(list, most);
        sums.swap_remove(0);
        sums
    }

    /// Returns the sums of up to `most` ranges, that of none first.
    fn all_sums(&self, list: &[u32], most: usize) -> Vec<(u64, u64)> {
        let mut sums = alloc::vec![(0, 0)];
        for (bit, &range) in list.iter().enumerate() {
            for at in 0..sums.len() {
                let (sum, set): (u64, u64) = sums[at];
                if (set.count_ones() as usize) < most {
                    sums.push((sum + self.bytes(range), set | 1 << bit));
                }
            }
        }
        sums
    }

    /// Returns sets of ranges with exactly this sum, small ones first.
    fn exact(&self, pool: &[u32], sum: u64) -> Vec<u64> {
        let (low, high) = pool[..pool.len().min(HALVES)].split_at(pool.len().min(HALVES) / 2);
        let mut sets = self.all_sums(high, high.len());
        sets.sort_unstable();
        let mut found = Vec::new();
        for (part, set) in self.all_sums(low, low.len()) {
            let Some(rest) = sum.checked_sub(part) else { continue };
            let at = sets.partition_point(|other| other.0 < rest);
            let others = sets[at..].iter().take_while(|other| other.0 == rest);
            found.extend(others.map(|other| set | other.1 << low.len()));
        }
        found.sort_by_key(|set| set.count_ones());
        found.truncate(TRIES / CLOSEST);
        found
    }

    /// Puts items in place of free ranges; false if those cannot be contiguous.
    fn take(&mut self, old: &[u32], new: &[u32], waste: u64) -> bool {
        let mut orders = self.orders.clone();
        let rest = id(self.ranges.len());
        let is_fluid =
            |range: &u32| self.ranges[*range as usize].is_fluid && self.bytes(*range) > waste;
        let mut fluid = old.iter().copied().filter(is_fluid).filter(|_| waste > 0);
        let divided = fluid.find(|&range| orders.add_beside(range, &[rest]));
        let marked = |range: u32| old.contains(&range);
        if old.len() > 1 {
            let Some(gathered) = orders.gather(&marked) else { return false };
            orders = gathered;
        }
        let mut made = new.to_vec();
        if waste > 0 {
            self.add(waste, true);
            match divided {
                Some(range) => {
                    self.ranges[range as usize].bytes -= waste;
                    self.push(Change::Divided(range, rest));
                }
                None => made.push(rest),
            }
        }
        let whole = if old.len() > 1 { orders.clone() } else { Orders::One(old[0]) };
        if let &[range] = old
            && self.ranges[range as usize].is_fluid
            && orders.add_beside(range, &made[1..])
        {
            orders.replace(&marked, &made[..1]);
        } else {
            orders.replace(&marked, &made);
        }
        let old = old.iter().map(|&range| (range, self.bytes(range))).collect();
        self.push(Change::Taken { orders: whole, old, new: made });
        self.orders = orders;
        self.waste += self.chance(waste);
        true
    }

    /// Returns the offsets of the items: the last ranges lie in one of their orders, and those before where these allow it.
    fn offsets(&self, items: usize) -> Vec<u64> {
        let mut place = alloc::vec![0; self.ranges.len()];
        let mut at = 0;
        for range in self.orders.list() {
            place[range as usize] = at;
            at += self.bytes(range);
        }
        let mut next = self.steps.as_ref();
        while let Some(step) = next {
            next = step.before.as_ref();
            match &step.change {
                &Change::Divided(first, second) => {
                    place[first as usize] = place[first as usize].min(place[second as usize]);
                }
                Change::Taken { orders, old, new } => {
                    let start = new.iter().map(|&range| place[range as usize]).min().unwrap_or(0);
                    place_old(orders.clone(), old, start, &mut place);
                }
            }
        }
        place.truncate(items);
        place
    }
}

/// Places ranges that were contiguous, from an offset on, in an order that the others allow.
fn place_old(mut orders: Orders, old: &[(u32, u64)], mut start: u64, place: &mut [u64]) {
    let among = |range: u32| old.iter().find(|o| o.0 == range);
    orders.arrange(&|range| if among(range).is_some() { start } else { place[range as usize] });
    for &(range, bytes) in orders.list().into_iter().filter_map(among) {
        place[range as usize] = start;
        start += bytes;
    }
}

fn members(list: &[u32], set: u64) -> Vec<u32> {
    let has = |(bit, &range): (usize, &u32)| (set >> bit & 1 == 1).then_some(range);
    list.iter().enumerate().filter_map(has).collect()
}

#[cfg(test)]
mod tests;
