//! Places items one by one, each in the lowest hole that is large enough.

use crate::model::{Model, align_up, id};
use crate::stop::Stop;
use crate::timetable::{Entry, Timetable};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Up to this many items, checking all of them is faster than finding those that overlap.
const FEW: usize = 10_000;

/// Places the items that have no place yet in the given order.
///
/// # Algorithm
/// An item walks up the placed items that it conflicts with; each one in its way lifts it, and the first gap that is
/// large enough is taken. A hint is taken instead when nothing is in its way.
///
/// # Cost
/// O(n²) with a cheap step for few items: 30,000 take half a second. O(k log k) for an item that meets k others when
/// there are many. The skyline is the rule for large problems; this one knows fixed offsets, hints, gaps in lifetimes,
/// pairs that stay separate, and holes under placed items.
pub fn first_fit_around(model: &Model, order: &[u32], places: &[Option<u64>]) -> Vec<u64> {
    let never = Stop::new(&|| false);
    first_fit(model, order, places, &never).expect("nobody stops it")
}

/// As [`first_fit_around`]; none when there is no time for all items.
pub fn first_fit(
    model: &Model,
    order: &[u32],
    places: &[Option<u64>],
    stop: &Stop<'_>,
) -> Option<Vec<u64>> {
    let offsets: Vec<u64> = places.iter().map(|p| p.unwrap_or(0)).collect();
    let moving = order.iter().copied().filter(|&i| places[i as usize].is_none());
    if model.len() > FEW {
        among_many(model, moving, places, offsets, stop)
    } else {
        Some(among_few(model, moving, places, offsets))
    }
}

fn among_few(
    model: &Model,
    moving: impl Iterator<Item = u32>,
    places: &[Option<u64>],
    mut offsets: Vec<u64>,
) -> Vec<u64> {
    let plain = (0..model.len()).all(|i| model.is_plain(i));
    let here = (0..).zip(places).filter(|(_, p)| p.is_some());
    let mut taken: Vec<Entry> = here.map(|(i, _)| Entry::new(model, &offsets, i)).collect();
    taken.sort_unstable_by_key(Entry::key);
    for item in moving {
        let (i, hull) = (item as usize, model.hull[item as usize]);
        let in_way = |e: &Entry| {
            if plain { e.meets(hull) } else { model.conflict(i, e.item as usize) }
        };
        offsets[i] = place(model, i, &taken, in_way);
        let entry = Entry::new(model, &offsets, item);
        let at = taken.partition_point(|e| e.key() < entry.key());
        taken.insert(at, entry);
    }
    offsets
}

fn among_many(
    model: &Model,
    moving: impl Iterator<Item = u32>,
    places: &[Option<u64>],
    mut offsets: Vec<u64>,
    stop: &Stop<'_>,
) -> Option<Vec<u64>> {
    let mut table = Timetable::new(model, |i| places[i].is_some());
    let mut met = Vec::new();
    for (step, item) in moving.enumerate() {
        if step % 256 == 255 && stop.now() {
            return None;
        }
        table.meet(&offsets, item, &mut met);
        offsets[item as usize] = place(model, item as usize, &met, |_| true);
        table.insert(&offsets, item);
    }
    Some(offsets)
}

/// Returns the place of an item among others, which come by offset.
fn place(model: &Model, item: usize, others: &[Entry], in_way: impl Fn(&Entry) -> bool) -> u64 {
    let size = model.size[item];
    let hint = model.hint[item].filter(|h| h.is_multiple_of(model.align[item]));
    // Far hints would make later sums overflow.
    let near = |h: &u64| h.checked_add(size).is_some_and(|end| end <= u64::MAX / 4);
    let free = |h: &u64| others.iter().all(|e| e.end <= *h || h + size <= e.offset || !in_way(e));
    if let Some(hint) = hint.filter(near).filter(free) {
        return hint;
    }
    let mut at = 0;
    for e in others {
        if e.offset >= at + size {
            break;
        }
        if e.end > at && in_way(e) {
            at = align_up(e.end, model.align[item]);
        }
    }
    at
}

/// Moves the items that overlap a fixed one or one that they must be separate from; rules that fill from the bottom know neither.
pub fn mended(model: &Model, mut offsets: Vec<u64>) -> Vec<u64> {
    let is_fixed = |i: u32| model.fixed[i as usize].is_some();
    let fixed: Vec<u32> = (0..id(model.len())).filter(|&i| is_fixed(i)).collect();
    for &item in &fixed {
        offsets[item as usize] = model.fixed[item as usize].unwrap_or(0);
    }
    let meet = |a: u32, b: u32| {
        let place = |i: u32| (i as usize, offsets[i as usize]);
        model.overlap(place(a), place(b))
    };
    let mut moving = BTreeSet::new();
    if !fixed.is_empty() {
        let mut table = Timetable::new(model, |i| model.fixed[i].is_none());
        let mut met = Vec::new();
        for &item in &fixed {
            table.meet(&offsets, item, &mut met);
            moving.extend(met.iter().map(|e| e.item).filter(|&other| meet(item, other)));
        }
    }
    for a in 0..id(model.len()) {
        let others = model.apart(a as usize).map(|p| p.0).filter(|&b| b < a && meet(a, b));
        moving.extend(others.map(|b| if is_fixed(a) { b } else { a }).filter(|&i| !is_fixed(i)));
    }
    if moving.is_empty() {
        return offsets;
    }
    let mut places: Vec<Option<u64>> = offsets.into_iter().map(Some).collect();
    moving.iter().for_each(|&i| places[i as usize] = None);
    let mut order: Vec<u32> = moving.into_iter().collect();
    order.sort_by_key(|&i| Reverse(model.size[i as usize]));
    first_fit_around(model, &order, &places)
}

/// Lists the items by a key, the largest first and the earlier of equals.
pub fn descending<K: Ord + Copy>(model: &Model, key: impl Fn(usize) -> K) -> Vec<u32> {
    let mut keyed: Vec<(K, u32)> = (0..model.len()).map(|i| (key(i), id(i))).collect();
    keyed.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    keyed.into_iter().map(|(_, i)| i).collect()
}

/// Ticks from the first to the last use of an item.
pub fn life(model: &Model, item: usize) -> u64 {
    let (first, end) = model.hull[item];
    let last = model.ticks.len() - 1;
    model.ticks[(end as usize).min(last)] - model.ticks[first as usize]
}
