//! Segments of the forward pass: what is recomputed together.

use super::Case;
use crate::Interval;
use crate::model::Model;
use alloc::vec::Vec;

/// Spans in which each activation would be away, for one way to cut the forward pass.
pub(super) struct Segments {
    /// Per activation: the span in which it is away if it is recomputed, and if it is moved.
    pub(super) recomputed: Vec<Option<Interval>>,
    pub(super) moved: Vec<Option<Interval>>,
}

/// Activations in a segment, at least about this many, from fine to coarse.
const GRAINS: [usize; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 40, 80, 160];

/// Activations in a segment that is cut by its room, at most: longer ones keep less, and more is recomputed.
const LONGEST: [usize; 4] = [12, 24, 80, 1024];

impl Segments {
    /// Returns the spans as if reading took no memory: nothing is away longer in any execution.
    pub(super) fn loose(case: &Case<'_>) -> Self {
        let all = case.activations.iter();
        Self {
            recomputed: all.clone().map(|a| a.recompute.as_ref().map(|_| a.idle)).collect(),
            moved: (0..case.activations.len()).map(|i| moved(case, i, u64::MAX)).collect(),
        }
    }

    /// Cuts the forward pass in several ways: evenly, and where each segment has room when it comes back.
    pub(super) fn grains(case: &Case<'_>, model: &Model, capacity: u64) -> Vec<Self> {
        let order = in_order(case);
        let last = last_reads(case, &order);
        let crossing = crossing(case, &order, &last);
        let mut cuts: Vec<Vec<usize>> = GRAINS
            .iter()
            .filter(|&&grain| grain <= order.len().max(1))
            .map(|&grain| cut(&crossing, grain))
            .collect();
        let room = Room::new(case, model, capacity);
        let fitted = |longest: usize| room.cut(case, &order, &last, &crossing, longest);
        cuts.extend(LONGEST.into_iter().map(fitted));
        cuts.dedup();
        cuts.iter().map(|cuts| Self::new(case, &order, cuts)).collect()
    }

    /// Computes the spans for segments that end at `cuts`, positions in `order`.
    fn new(case: &Case<'_>, order: &[usize], cuts: &[usize]) -> Self {
        let n = order.len();
        let mut segment = alloc::vec![0; n];
        for (number, window) in cuts.windows(2).enumerate() {
            order[window[0]..window[1]].iter().for_each(|&index| segment[index] = number);
        }
        // The first moment at which something of a segment is needed again.
        let mut first = alloc::vec![u64::MAX; cuts.len()];
        for (index, each) in case.activations.iter().enumerate() {
            if each.recompute.is_some() {
                let first = &mut first[segment[index]];
                *first = (*first).min(each.idle.end);
            }
        }
        let mut is_boundary = alloc::vec![false; n];
        let mut needed: Vec<u64> = case.activations.iter().map(|a| a.idle.end).collect();
        for (index, each) in case.activations.iter().enumerate() {
            let Some(made) = &each.recompute else { continue };
            needed[index] = needed[index].min(first[segment[index]]);
            for &read in &made.reads {
                is_boundary[read] |= segment[read] != segment[index];
                needed[read] = needed[read].min(first[segment[index]]);
            }
        }
        let recomputed = |index: usize| {
            let each = &case.activations[index];
            let span = Interval::new(each.idle.start, needed[index]);
            (each.recompute.is_some() && !is_boundary[index] && span.start < span.end)
                .then_some(span)
        };
        Self {
            recomputed: (0..n).map(recomputed).collect(),
            moved: (0..n).map(|index| moved(case, index, needed[index])).collect(),
        }
    }
}

/// Returns the span in which an activation is away if it is moved and needed again at a tick.
fn moved(case: &Case<'_>, index: usize, needed: u64) -> Option<Interval> {
    let each = &case.activations[index];
    let turn = case.copies.filter(|_| each.move_cost.is_some())?.turn;
    let copy = case.copy_ticks(index);
    let span = Interval::new(each.idle.start.checked_add(copy)?, needed.min(each.idle.end));
    let span = Interval::new(span.start, span.end.checked_sub(copy)?);
    (span.start <= turn && turn <= span.end && span.start < span.end).then_some(span)
}

/// Returns the activations in the order in which they begin.
fn in_order(case: &Case<'_>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..case.activations.len()).collect();
    order.sort_by_key(|&i| case.problem.buffers[case.activations[i].buffer].live.start);
    order
}

/// Returns for each position in the order the last one that is computed from it.
fn last_reads(case: &Case<'_>, order: &[usize]) -> Vec<usize> {
    let mut place = alloc::vec![0; order.len()];
    order.iter().enumerate().for_each(|(position, &index)| place[index] = position);
    let mut last: Vec<usize> = (0..order.len()).collect();
    for (position, &index) in order.iter().enumerate() {
        for &read in case.activations[index].recompute.iter().flat_map(|made| &made.reads) {
            last[place[read]] = last[place[read]].max(position);
        }
    }
    last
}

/// Returns the bytes of an activation that can be recomputed.
fn droppable(case: &Case<'_>, index: usize) -> u64 {
    if case.activations[index].recompute.is_some() { case.size(index) } else { 0 }
}

/// Returns for each position in the order the bytes that a cut before it would keep: those read across it.
fn crossing(case: &Case<'_>, order: &[usize], last: &[usize]) -> Vec<u64> {
    let mut change = alloc::vec![(0u64, 0u64); order.len() + 2];
    for (position, &index) in order.iter().enumerate() {
        let bytes = droppable(case, index);
        change[position + 1].0 += bytes;
        change[last[position] + 1].1 += bytes;
    }
    let mut now = 0;
    let sum = change.iter().map(|&(more, less)| {
        now = now + more - less;
        now
    });
    sum.take(order.len() + 1).collect()
}

/// Cuts into segments of about `grain` activations where the fewest bytes cross; returns where segments begin, and the end.
fn cut(crossing: &[u64], grain: usize) -> Vec<usize> {
    let n = crossing.len() - 1;
    let mut cuts = alloc::vec![0];
    let mut at = 0;
    while at + grain < n {
        let (low, high) = (at + grain.div_ceil(2), (at + grain + grain / 2).min(n));
        let far = |position: usize| position.abs_diff(at + grain);
        at = (low..=high).min_by_key(|&p| (crossing[p], far(p))).unwrap_or(n);
        if at < n {
            cuts.push(at);
        }
    }
    cuts.push(n);
    cuts
}

/// The room of each section of time while everything that can be recomputed is away.
struct Room {
    ticks: Vec<u64>,
    bytes: Vec<i64>,
}

impl Room {
    fn new(case: &Case<'_>, model: &Model, capacity: u64) -> Self {
        let idle = |index: usize| (case.activations[index].idle, droppable(case, index));
        let all: Vec<(Interval, u64)> = (0..case.activations.len()).map(idle).collect();
        let mut ticks: Vec<u64> = all.iter().flat_map(|(span, _)| [span.start, span.end]).collect();
        ticks.push(0);
        ticks.sort_unstable();
        ticks.dedup();
        let (mut bytes, _) = room(model, &ticks, capacity);
        let mut change = alloc::vec![0i64; ticks.len()];
        for (span, size) in all {
            let at = |tick: u64| ticks.partition_point(|&t| t < tick);
            change[at(span.start)] += signed(size);
            change[at(span.end)] -= signed(size);
        }
        let mut away = 0;
        for (room, change) in bytes.iter_mut().zip(change) {
            away += change;
            *room = room.saturating_add(away);
        }
        Self { ticks, bytes }
    }

    /// Cuts into segments that have room in the backward pass beside what the cuts before them keep, so that cuts keep the fewest bytes.
    fn cut(
        &self,
        case: &Case<'_>,
        order: &[usize],
        last: &[usize],
        crossing: &[u64],
        longest: usize,
    ) -> Vec<usize> {
        let places = places(crossing);
        // Per place: segments without room, bytes that are kept, and the place before; all the least.
        let mut best = alloc::vec![(usize::MAX, i64::MAX, 0); places.len()];
        best[0] = (0, 0, 0);
        for from in 0..places.len() {
            let (lacks, kept, _) = best[from];
            for to in from + 1..places.len() {
                let segment = places[from]..places[to];
                let has_room = self.has(case, &order[segment.clone()], kept);
                if (!has_room || segment.len() > longest) && to > from + 1 {
                    break;
                }
                let crosses = segment.filter(|&position| last[position] >= places[to]);
                let more: i64 = crosses.map(|p| signed(droppable(case, order[p]))).sum();
                let next = (lacks + usize::from(!has_room), kept.saturating_add(more), from);
                best[to] = best[to].min(next);
            }
        }
        let mut at = places.len() - 1;
        let mut cuts = alloc::vec![places[at]];
        while at > 0 {
            at = best[at].2;
            cuts.push(places[at]);
        }
        cuts.reverse();
        cuts
    }

    /// Returns whether a segment has room from its first need to its last, beside bytes that are kept.
    fn has(&self, case: &Case<'_>, segment: &[usize], kept: i64) -> bool {
        let bytes = |index: usize| (case.activations[index].idle.end, droppable(case, index));
        let mut needed: Vec<(u64, u64)> = segment.iter().map(|&index| bytes(index)).collect();
        needed.retain(|&(_, size)| size > 0);
        needed.sort_unstable();
        let mut back: i64 = needed.iter().map(|&(_, size)| signed(size)).sum();
        let mut used = 0;
        let (Some(&(first, _)), Some(&(end, _))) = (needed.first(), needed.last()) else {
            return true;
        };
        let begin = self.ticks.partition_point(|&tick| tick < first);
        let sections = self.ticks.iter().zip(&self.bytes).skip(begin);
        sections.take_while(|&(&tick, _)| tick <= end).all(|(&tick, &room)| {
            while let Some(&(_, size)) = needed.get(used).filter(|need| need.0 <= tick) {
                back -= signed(size);
                used += 1;
            }
            room >= kept.saturating_add(back)
        })
    }
}

/// Places at which segments with room may begin, at most.
const PLACES: usize = 256;

/// Returns where cuts are considered: the position of each run at which the fewest bytes cross, the beginning and the end.
fn places(crossing: &[u64]) -> Vec<usize> {
    let n = crossing.len() - 1;
    let run = n.div_ceil(PLACES).max(1);
    let least = |first: usize| (first..(first + run).min(n)).min_by_key(|&at| crossing[at]);
    let inner = (1..n).step_by(run).filter_map(least);
    core::iter::once(0).chain(inner).chain((n > 0).then_some(n)).collect()
}

/// Returns the room at the fullest moment of each section that begins at one of the ticks, and that moment.
pub(super) fn room(model: &Model, ticks: &[u64], capacity: u64) -> (Vec<i64>, Vec<u64>) {
    let mut most: Vec<(u64, u64)> = ticks.iter().map(|&tick| (0, tick)).collect();
    for (window, &load) in model.ticks.windows(2).zip(&model.load) {
        // A section of the model may span several of these.
        let first = ticks.partition_point(|&t| t <= window[0]).saturating_sub(1);
        let last = ticks.partition_point(|&t| t < window[1]);
        for (most, &tick) in most[first..last].iter_mut().zip(&ticks[first..last]) {
            if load > most.0 {
                *most = (load, tick.max(window[0]));
            }
        }
    }
    let room = |&(load, _): &(u64, u64)| signed(capacity).saturating_sub(signed(load));
    (most.iter().map(room).collect(), most.iter().map(|m| m.1).collect())
}

pub(super) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
