//! Lower bounds, and the evidence for them.

use crate::classes::{Classes, gcd, lcm};
use crate::model::{Model, align_up, id};
use crate::{Problem, RegionSet};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;

/// Bytes alive from `start` until the next step begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// First tick.
    pub start: u64,
    /// Bytes alive, each alias class counted once.
    pub bytes: u64,
}

/// Computes the bytes alive over time, over all regions.
///
/// # Cost
/// O(n log n).
#[must_use]
pub fn load_profile(problem: &Problem) -> Vec<Step> {
    let model = Model::new(problem, 0, |_| true);
    let mut steps: Vec<Step> =
        model.ticks.iter().zip(&model.load).map(|(&start, &bytes)| Step { start, bytes }).collect();
    if let Some(&end) = model.ticks.last() {
        steps.push(Step { start: end, bytes: 0 });
    }
    steps.dedup_by_key(|s| s.bytes);
    steps
}

/// Proof that nothing fits, in a form that can be checked by hand or with [`verify`](Certificate::verify).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Certificate {
    /// These buffers are needed at once and are too large together.
    Load {
        /// The tick at which all of them are alive; `None` for a pair that must not share bytes.
        at: Option<u64>,
        /// The buffers, one of each alias class.
        buffers: Vec<usize>,
        /// Sum of their sizes.
        bytes: u64,
        /// Available bytes.
        capacity: u64,
    },
    /// These buffers are needed at once and are too large together because each starts at a multiple of `align`.
    Padded {
        /// The tick at which all of them are alive.
        at: u64,
        /// Alignment of their offsets, from their own alignments and those of their region and of the buffers that use
        /// the same bytes.
        align: u64,
        /// The buffers, one of each alias class.
        buffers: Vec<usize>,
        /// Sum of their sizes, each but one rounded up to `align`.
        bytes: u64,
        /// Available bytes.
        capacity: u64,
    },
    /// A buffer is fixed where the region ends.
    FixedOutside {
        /// The buffer.
        buffer: usize,
        /// End offset.
        end: u64,
        /// Available bytes.
        capacity: u64,
    },
    /// Two buffers are fixed on the same bytes at the same time, or use the same bytes but are fixed apart.
    ///
    /// A buffer is also fixed when one that uses the same bytes is.
    FixedClash {
        /// One buffer.
        a: usize,
        /// The other.
        b: usize,
    },
    /// No region suits a buffer and all that use the same bytes: they may live in different ones, or one of them is fixed
    /// at an offset that their alignments or those of the regions forbid.
    NoRegion {
        /// The buffer.
        buffer: usize,
    },
    /// The exact search tried everything.
    Exhausted {
        /// The least capacity that is not excluded.
        at_least: u64,
        /// Available bytes.
        capacity: u64,
        /// States that were looked at.
        nodes: u64,
    },
}

impl Certificate {
    /// Checks the certificate against the problem, without the planner.
    ///
    /// An exhausted search cannot be checked without repeating it, so it never verifies.
    #[must_use]
    pub fn verify(&self, problem: &Problem) -> bool {
        match self {
            Self::Load { at, buffers, bytes, capacity } => {
                let together = at.map_or_else(
                    || is_separate(problem, buffers),
                    |tick| alive_at(problem, buffers, tick),
                );
                together && too_large(problem, buffers, *bytes, *capacity, 1)
            }
            Self::Padded { at, align, buffers, bytes, capacity } => {
                alive_at(problem, buffers, *at)
                    && too_large(problem, buffers, *bytes, *capacity, *align)
            }
            Self::FixedOutside { buffer, end, capacity } => {
                let Some(b) = problem.buffers.get(*buffer) else { return false };
                let classes = Classes::new(problem);
                let offset = classes.fixed(problem)[classes.root(*buffer)];
                end > capacity
                    && b.needs_bytes()
                    && offset.and_then(|f| f.checked_add(b.size)) == Some(*end)
                    && has_only(problem, &[*buffer], *capacity)
            }
            Self::FixedClash { a, b } => fixed_clash(problem, *a, *b),
            Self::NoRegion { buffer } => {
                let classes = Classes::new(problem);
                let set = classes.allowed(problem).get(classes.root(*buffer)).copied();
                set.is_some_and(|set| !(0..problem.regions.len()).any(|r| set.contains(r)))
            }
            Self::Exhausted { .. } => false,
        }
    }
}

fn alive_at(problem: &Problem, buffers: &[usize], tick: u64) -> bool {
    let alive = |&i: &usize| {
        let buffer = problem.buffers.get(i);
        buffer.is_some_and(|b| b.intervals().any(|s| s.start <= tick && tick < s.end))
    };
    buffers.iter().all(alive)
}

fn is_separate(problem: &Problem, buffers: &[usize]) -> bool {
    let [a, b] = *buffers else { return false };
    let alive = |i: usize| problem.buffers.get(i).is_some_and(crate::Buffer::needs_bytes);
    alive(a) && alive(b) && problem.separate.iter().any(|&p| p == (a, b) || p == (b, a))
}

/// Checks that buffers of different classes sum to so many bytes, each but one rounded up to `align`, and that they all
/// have to be in a region that is smaller.
fn too_large(problem: &Problem, buffers: &[usize], bytes: u64, capacity: u64, align: u64) -> bool {
    let classes = Classes::new(problem);
    let distinct: BTreeSet<usize> = buffers.iter().map(|&i| classes.root(i)).collect();
    let size = |i: usize| problem.buffers.get(i).map(|b| b.size);
    let sum = buffers.iter().try_fold(0u64, |sum, &i| sum.checked_add(align_up(size(i)?, align)));
    let spare = buffers.iter().filter_map(|&i| size(i)).map(|s| align_up(s, align) - s).max();
    let aligned = |region: usize| {
        let offset = |root: usize| {
            let all = problem.buffers.iter().enumerate();
            let members = all.filter(|(i, b)| classes.root(*i) == root && b.needs_bytes());
            let start = problem.regions[region].align;
            members.map(|(_, b)| b.align).try_fold(start, lcm)
        };
        distinct.iter().all(|&root| offset(root).is_some_and(|a| a.is_multiple_of(align)))
    };
    bytes > capacity
        && distinct.len() == buffers.len()
        && sum.zip(spare).is_some_and(|(sum, spare)| sum - spare == bytes)
        && home(problem, buffers)
            .is_some_and(|r| problem.regions[r].capacity == Some(capacity) && aligned(r))
}

/// Returns the only region that suits all of the buffers.
fn home(problem: &Problem, buffers: &[usize]) -> Option<usize> {
    let classes = Classes::new(problem);
    let allowed = classes.allowed(problem);
    let region =
        (0..problem.regions.len()).find(|&r| allowed[classes.root(buffers[0])].contains(r))?;
    let only = RegionSet::only(region);
    let here = RegionSet::below(problem.regions.len());
    buffers.iter().all(|&i| allowed[classes.root(i)].meet(here) == only).then_some(region)
}

fn has_only(problem: &Problem, buffers: &[usize], capacity: u64) -> bool {
    home(problem, buffers).is_some_and(|r| problem.regions[r].capacity == Some(capacity))
}

fn fixed_clash(problem: &Problem, a: usize, b: usize) -> bool {
    let (Some(x), Some(y)) = (problem.buffers.get(a), problem.buffers.get(b)) else { return false };
    let classes = Classes::new(problem);
    if !x.needs_bytes() || !y.needs_bytes() {
        return false;
    }
    if classes.root(a) == classes.root(b) {
        return x.fixed.is_some() && y.fixed.is_some() && x.fixed != y.fixed;
    }
    let fixed = classes.fixed(problem);
    let (Some(f), Some(g)) = (fixed[classes.root(a)], fixed[classes.root(b)]) else { return false };
    let together = x.intervals().any(|s| y.intervals().any(|t| s.overlaps(t)));
    let apart = problem.separate.iter().any(|&p| p == (a, b) || p == (b, a));
    (together || apart) && f < g + y.size && g < f + x.size && home(problem, &[a, b]).is_some()
}

impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load { at: Some(tick), buffers, bytes, capacity } => write!(
                f,
                "at tick {tick} {} buffers need {bytes} bytes together, {} more than the capacity of {capacity}",
                buffers.len(),
                bytes - capacity
            ),
            Self::Load { at: None, buffers, bytes, capacity } => write!(
                f,
                "buffers {buffers:?} must not share bytes and need {bytes} together, {} more than the capacity of {capacity}",
                bytes - capacity
            ),
            Self::Padded { at, align, buffers, bytes, capacity } => write!(
                f,
                "at tick {at} {} buffers aligned to {align} need {bytes} bytes together, {} more than the capacity of {capacity}",
                buffers.len(),
                bytes - capacity
            ),
            Self::FixedOutside { buffer, end, capacity } => {
                write!(
                    f,
                    "buffer {buffer} is fixed so that it ends at {end}, behind the capacity of {capacity}"
                )
            }
            Self::FixedClash { a, b } => {
                write!(f, "buffers {a} and {b} are fixed at offsets that exclude each other")
            }
            Self::NoRegion { buffer } => {
                write!(f, "no region suits buffer {buffer} and the buffers that use the same bytes")
            }
            Self::Exhausted { at_least, capacity, nodes } => write!(
                f,
                "no placement fits {capacity} bytes: the search tried everything ({nodes} states); at least {at_least} are needed"
            ),
        }
    }
}

/// The most alignments that are looked at; problems with more are rare, and gain little.
const ALIGNMENTS: usize = 8;

/// Lower bound of a model.
#[derive(Clone, Copy, Debug)]
struct Heaviest {
    bytes: u64,
    section: usize,
    /// Common alignment of offsets.
    align: u64,
}

/// Returns the section that needs most, with the alignment that makes it need most.
fn heaviest(model: &Model) -> Heaviest {
    let mut best = Heaviest { bytes: 0, section: 0, align: 1 };
    let mut keep = |loads: &[u64], align: u64| {
        let most = loads.iter().enumerate().max_by_key(|&(s, &load)| (load, usize::MAX - s));
        if let Some((section, &bytes)) = most.filter(|m| *m.1 > best.bytes) {
            best = Heaviest { bytes, section, align };
        }
    };
    keep(&model.load, 1);
    let aligns: BTreeSet<u64> = model.align.iter().copied().filter(|&a| a > 1).collect();
    for align in aligns.into_iter().take(ALIGNMENTS) {
        keep(&padded_loads(model, align), align);
    }
    best
}

/// Returns the bytes that the items with offsets at multiples of `align` need in each section: all but one are followed by
/// another, and end where that can start.
fn padded_loads(model: &Model, align: u64) -> Vec<u64> {
    let items = (0..model.len()).filter(|&i| model.align[i].is_multiple_of(align));
    let mut delta = alloc::vec![0u64; model.sections() + 1];
    let mut pads: Vec<(u64, u32, u32)> = Vec::new();
    for item in items {
        for (&(from, to), &bytes) in model.runs(item).iter().zip(model.bytes(item)) {
            let padded = align_up(bytes, align);
            delta[from as usize] = delta[from as usize].wrapping_add(padded);
            delta[to as usize] = delta[to as usize].wrapping_sub(padded);
            pads.push((padded - bytes, from, to));
        }
    }
    let mut sum = 0u64;
    for d in &mut delta {
        sum = sum.wrapping_add(*d);
        *d = sum;
    }
    delta.pop();
    take_most(&mut delta, pads);
    delta
}

/// Takes from each section the most of the amounts that lie over it.
fn take_most(loads: &mut [u64], mut pads: Vec<(u64, u32, u32)>) {
    pads.sort_unstable();
    // Sections that were seen point to the next one that was not.
    let mut next: Vec<usize> = (0..=loads.len()).collect();
    for (pad, from, to) in pads.into_iter().rev() {
        let mut s = jump(&mut next, from as usize);
        while s < to as usize {
            loads[s] -= pad;
            next[s] = s + 1;
            s = jump(&mut next, s);
        }
    }
}

fn jump(next: &mut [usize], mut s: usize) -> usize {
    while next[s] != s {
        next[s] = next[next[s]];
        s = next[s];
    }
    s
}

/// Returns the number of which every peak worth looking at is a multiple.
///
/// A placement that is pushed down has only offsets that are sums of sizes, fixed offsets, and multiples of alignments.
pub(crate) fn unit(model: &Model) -> u64 {
    let bytes = |i: usize| model.bytes(i).iter().copied().chain(model.apart(i).map(|p| p.1));
    let sizes = (0..model.len()).flat_map(bytes).fold(0, gcd);
    let mut unit = model.fixed.iter().flatten().fold(sizes, |g, &offset| gcd(g, offset)).max(1);
    let aligns: BTreeSet<u64> = model.align.iter().copied().collect();
    let odd = |unit: u64| {
        let breaks = |a: &&u64| !unit.is_multiple_of(**a) && !a.is_multiple_of(unit);
        aligns.iter().find(breaks).copied()
    };
    while let Some(align) = odd(unit) {
        unit = gcd(unit, align);
    }
    unit
}

/// Returns the lower bound of a model: the largest load, a pair that is separate, or the highest end of a fixed item.
pub(crate) fn lower_bound(model: &Model) -> u64 {
    let end = |i: usize| model.fixed[i].map_or(0, |f| f + model.size[i]);
    let pair = |i: usize| {
        let sums = model.apart(i).map(move |(j, bytes)| bytes + model.in_way(j as usize, i));
        sums.max().unwrap_or(0)
    };
    let most = (0..model.len()).map(|i| end(i).max(pair(i))).max().unwrap_or(0);
    heaviest(model).bytes.max(most).next_multiple_of(unit(model))
}

/// Returns a certificate that a model needs more than `capacity`, if its load or its fixed items show it.
pub(crate) fn refute(
    problem: &Problem,
    model: &Model,
    capacity: Option<u64>,
) -> Option<Certificate> {
    if let Some((a, b)) = fixed_apart(problem, model).or_else(|| overlap(problem, model)) {
        return Some(Certificate::FixedClash { a, b });
    }
    let capacity = capacity?;
    let end = |i: usize| {
        let offset = model.item_of[i].and_then(|item| model.fixed[item as usize]);
        offset.map_or(0, |f| f + problem.buffers[i].size)
    };
    if let Some(buffer) = (0..problem.buffers.len()).find(|&i| end(i) > capacity) {
        return Some(Certificate::FixedOutside { buffer, end: end(buffer), capacity });
    }
    let Heaviest { bytes, section, align } = heaviest(model);
    if bytes <= capacity {
        let (a, b) = *problem.separate.iter().find(|&&(a, b)| {
            let here = |i: usize| model.item_of[i].map(|item| (item, problem.buffers[i].size));
            let pair = here(a).zip(here(b)).filter(|(x, y)| x.0 != y.0);
            pair.is_some_and(|(x, y)| x.1 + y.1 > capacity)
        })?;
        let bytes = problem.buffers[a].size + problem.buffers[b].size;
        return Some(Certificate::Load { at: None, buffers: alloc::vec![a, b], bytes, capacity });
    }
    let at = model.ticks[section];
    let mut buffers = alive(problem, model, at);
    if align == 1 {
        return Some(Certificate::Load { at: Some(at), buffers, bytes, capacity });
    }
    buffers.retain(|&i| {
        model.item_of[i].is_some_and(|item| model.align[item as usize].is_multiple_of(align))
    });
    Some(Certificate::Padded { at, align, buffers, bytes, capacity })
}

/// One buffer for each item that is live at a tick: the largest of its class that is.
fn alive(problem: &Problem, model: &Model, tick: u64) -> Vec<usize> {
    let mut best: Vec<Option<usize>> = alloc::vec![None; model.len()];
    for (index, item) in model.item_of.iter().enumerate() {
        let Some(item) = item.map(|i| i as usize) else { continue };
        let buffer = &problem.buffers[index];
        let live = buffer.intervals().any(|s| s.start <= tick && tick < s.end);
        if live && best[item].is_none_or(|b| problem.buffers[b].size < buffer.size) {
            best[item] = Some(index);
        }
    }
    best.into_iter().flatten().collect()
}

/// Two buffers that use the same bytes but are fixed apart.
fn fixed_apart(problem: &Problem, model: &Model) -> Option<(usize, usize)> {
    let mut first: Vec<Option<usize>> = alloc::vec![None; model.len()];
    for (index, item) in model.item_of.iter().enumerate() {
        let fixed = problem.buffers[index].fixed;
        let Some(item) = item.filter(|_| fixed.is_some()) else { continue };
        match first[item as usize] {
            None => first[item as usize] = Some(index),
            Some(other) if problem.buffers[other].fixed != fixed => return Some((other, index)),
            Some(_) => {}
        }
    }
    None
}

/// Two buffers that are fixed on the same bytes at the same time, or although they must stay separate.
fn overlap(problem: &Problem, model: &Model) -> Option<(usize, usize)> {
    let fixed = |i: usize| model.item_of[i].and_then(|item| model.fixed[item as usize]);
    let clash = |&&(a, b): &&(usize, usize)| {
        let (Some(f), Some(g)) = (fixed(a), fixed(b)) else { return false };
        let meet = f < g + problem.buffers[b].size && g < f + problem.buffers[a].size;
        meet && model.item_of[a] != model.item_of[b]
    };
    if let Some(&pair) = problem.separate.iter().find(clash) {
        return Some(pair);
    }
    let (section, a, b) = first_overlap(model)?;
    let mut buffers = alive(problem, model, model.ticks[section as usize]);
    buffers.retain(|&i| model.item_of[i] == Some(a) || model.item_of[i] == Some(b));
    let [a, b] = buffers[..] else { return None };
    Some((a.min(b), a.max(b)))
}

/// Returns the first section in which two fixed items overlap, and the items.
pub(crate) fn first_overlap(model: &Model) -> Option<(u32, u32, u32)> {
    // Ends sort before starts, so bytes may be handed over within a tick.
    let mut events: Vec<(u32, bool, u64, u64, u32)> = Vec::new();
    for item in 0..model.len() {
        let Some(offset) = model.fixed[item] else { continue };
        for (&(from, to), &bytes) in model.runs(item).iter().zip(model.bytes(item)) {
            events.push((from, true, offset, offset + bytes, id(item)));
            events.push((to, false, offset, offset + bytes, id(item)));
        }
    }
    events.sort_unstable();
    let mut used: BTreeMap<u64, (u64, u32)> = BTreeMap::new();
    for (section, starts, offset, end, item) in events {
        if !starts {
            used.remove(&offset);
            continue;
        }
        if let Some((_, &(_, other))) = used.range(..end).next_back().filter(|(_, u)| u.0 > offset)
        {
            return Some((section, other, item));
        }
        used.insert(offset, (end, item));
    }
    None
}
