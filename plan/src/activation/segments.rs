//! Segments of the forward pass: what is recomputed together.

use super::Case;
use crate::problem::Interval;
use alloc::vec::Vec;

/// When each activation would be away, for one way to cut the forward pass.
pub(super) struct Segments {
    /// Per activation: the span in which it is away if it is recomputed, and if it is moved.
    pub(super) recomputed: Vec<Option<Interval>>,
    pub(super) moved: Vec<Option<Interval>>,
}

/// Activations in a segment, at least about this many, from fine to coarse.
const GRAINS: [usize; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 40, 80, 160];

impl Segments {
    /// Returns the spans as if reading took no memory: nothing is away longer in any execution.
    pub(super) fn loose(case: &Case<'_>) -> Self {
        let all = case.activations.iter();
        Self {
            recomputed: all.clone().map(|a| a.recompute.as_ref().map(|_| a.idle)).collect(),
            moved: (0..case.activations.len()).map(|i| moved(case, i, u64::MAX)).collect(),
        }
    }

    /// Cuts the forward pass in several ways.
    pub(super) fn grains(case: &Case<'_>) -> Vec<Self> {
        let order = in_order(case);
        let crossing = crossing(case, &order);
        let mut cuts: Vec<Vec<usize>> = GRAINS
            .iter()
            .filter(|&&grain| grain <= order.len().max(1))
            .map(|&grain| cut(&crossing, grain))
            .collect();
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

/// Returns for each position in the order the bytes that a cut before it would keep: those read across it.
fn crossing(case: &Case<'_>, order: &[usize]) -> Vec<u64> {
    let mut place = alloc::vec![0; order.len()];
    order.iter().enumerate().for_each(|(position, &index)| place[index] = position);
    let mut last: Vec<usize> = place.clone();
    for (index, each) in case.activations.iter().enumerate() {
        for &read in each.recompute.iter().flat_map(|made| &made.reads) {
            last[read] = last[read].max(place[index]);
        }
    }
    let mut change = alloc::vec![(0u64, 0u64); order.len() + 2];
    for index in 0..order.len() {
        let bytes = if case.activations[index].recompute.is_some() { case.size(index) } else { 0 };
        change[place[index] + 1].0 += bytes;
        change[last[index] + 1].1 += bytes;
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
