//! Plans the busiest time first, exactly, and the rest around it: for problems too large for exact search as a whole.

use crate::classes::lcm;
use crate::exact::{Frame, Search, Tactic, Verdict, maximal};
use crate::first_fit::first_fit_around;
use crate::greedy::Rule;
use crate::model::{Model, align_up, id, peak_of};
use crate::rng::Rng;
use crate::stop::Stop;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Bundles that exact search gets at most.
const BUNDLES: usize = 800;
/// Shares of the heaviest load, in thousandths, from which on a section is hot.
const HOT: [u64; 8] = [700, 800, 900, 950, 970, 985, 993, 998];

/// Searches for a placement with a peak of at most `target`; returns the best one found.
///
/// # Algorithm
/// Only the items are kept that meet a hot section, one with a load close to the heaviest. Those that are live in the
/// same kept sections form a bundle that is stacked in one piece; a fixed item is a bundle of its own. Exact search
/// places the bundles below the target. The other items live where there is room to spare; first fit puts them around.
/// As many sections count as hot as exact search can take.
///
/// # Cost
/// A bounded exact search of at most 800 bundles, and first fit twice.
pub(crate) fn hot_first(model: &Model, target: u64, stop: &Stop<'_>) -> Option<Vec<u64>> {
    let bundles = HOT.iter().map(|&share| bundle(model, share)).find(|b| b.len() <= BUNDLES)?;
    let places = place_bundles(model, &bundles, target, stop)?;
    let mut best: Option<(u64, Vec<u64>)> = None;
    for rule in [Rule::Size, Rule::Area] {
        let offsets = first_fit_around(model, &rule.order(model), &places);
        let peak = peak_of(model, &offsets);
        if best.as_ref().is_none_or(|b| peak < b.0) {
            best = Some((peak, offsets));
        }
        if peak <= target || stop.now() {
            break;
        }
    }
    best.map(|b| b.1)
}

/// Items by the span of kept sections that they are live in; fixed ones also by their own number.
type Bundles = BTreeMap<(u32, u32, Option<u32>), Vec<u32>>;

/// Bundles the items that meet a section with more than `share` thousandths of the heaviest load.
fn bundle(model: &Model, share: u64) -> Bundles {
    let most = model.load.iter().copied().max().unwrap_or(0);
    let floor = u64::try_from(u128::from(most) * u128::from(share) / 1000).unwrap_or(most);
    let hot: Vec<u32> = (0..model.sections()).filter(|&s| model.load[s] > floor).map(id).collect();
    let index = |list: &[u32], s: u32| id(list.partition_point(|&h| h < s));
    let meets = |h: &(u32, u32)| index(&hot, h.0) < index(&hot, h.1);
    let core: Vec<u32> = (0..id(model.len())).filter(|&i| meets(&model.hull[i as usize])).collect();
    let kept = maximal(model.sections(), core.iter().map(|&i| model.hull[i as usize]));
    let mut bundles = Bundles::new();
    for item in core {
        let (from, to) = model.hull[item as usize];
        let alone = model.fixed[item as usize].map(|_| item);
        bundles.entry((index(&kept, from), index(&kept, to), alone)).or_default().push(item);
    }
    bundles
}

/// Places bundles by exact search and their items inside them, the longest-lived lowest.
fn place_bundles(
    model: &Model,
    bundles: &Bundles,
    target: u64,
    stop: &Stop<'_>,
) -> Option<Vec<Option<u64>>> {
    // Sizes rounded up to a multiple of all alignments keep every offset aligned whatever the order.
    let align = model.align.iter().copied().try_fold(1, lcm)?;
    let padded = |item: u32| {
        let free = model.fixed[item as usize].is_none();
        align_up(model.size[item as usize], if free { align } else { 1 })
    };
    let spans: Vec<(u32, u32)> = bundles.keys().map(|k| (k.0, k.1)).collect();
    let fixed = bundles.keys().map(|k| k.2.and_then(|i| model.fixed[i as usize])).collect();
    let sizes = bundles.values().map(|items| items.iter().map(|&i| padded(i)).sum()).collect();
    let frame = Frame::of_spans(&spans, sizes, align, fixed);
    let mut search = Search::new(&frame, target, stop);
    let mut rng = Rng::new(1);
    let limit = 300 + 3 * spans.len() as u64;
    let found = (0..4).any(|run| search.run(Tactic::nth(run), limit, &mut rng) == Verdict::Found);
    if !found {
        return None;
    }
    let mut places = model.fixed.clone();
    for (items, &offset) in bundles.values().zip(&search.offset) {
        let mut items = items.clone();
        items.sort_by_key(|&i| {
            (u32::MAX - (model.hull[i as usize].1 - model.hull[i as usize].0), i)
        });
        let mut at = offset;
        for item in items {
            let apart = model.apart(item as usize).all(|(other, _)| {
                let other = other as usize;
                places[other].is_none_or(|o| !model.overlap((item as usize, at), (other, o)))
            });
            if apart {
                places[item as usize] = Some(at);
            }
            at += padded(item);
        }
    }
    Some(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::lower_bound;
    use crate::{Buffer, Problem, Region};

    /// Buffers over a long time, with some short and busy ones.
    fn busy(seed: u64) -> Problem {
        let mut rng = Rng::new(seed);
        let mut problem = Problem::new(Region::unbounded());
        for at in 0..240 {
            let is_busy = at % 4 == 0;
            let start = if is_busy { 100 * seed + rng.below(12) } else { rng.below(900) };
            let life = 1 + rng.below(if is_busy { 9 } else { 60 });
            let size = 8 * (1 + rng.below(40));
            problem.push(Buffer::new(size, start, start + life).align(1 << rng.below(3)));
        }
        if seed.is_multiple_of(2) {
            problem.buffers[4].fixed = Some(64);
            problem.separate.extend([(0, 8), (12, 16)]);
        }
        problem
    }

    /// Checks plans that are found a little above the bound: the plans, their peaks, and sums of offsets. A rule that
    /// is broken still gives valid plans, only worse ones; here that shows.
    #[test]
    fn busy_times_have_their_numbers() {
        let (never, mut sums) = (Stop::new(&|| false), [0; 3]);
        for seed in 1..=8 {
            let model = Model::new(&busy(seed), 0, |_| true);
            let target = lower_bound(&model) * (100 + seed) / 100;
            if let Some(offsets) = hot_first(&model, target, &never) {
                sums[0] += 1;
                sums[1] += peak_of(&model, &offsets);
                sums[2] += offsets.iter().sum::<u64>();
            }
        }
        assert_eq!(sums, [8, 44_752, 2_385_224]);
    }
}
