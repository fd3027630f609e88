//! Places items one by one, each in the lowest hole that is large enough.

use crate::model::{Model, align_up};
use crate::stop::Stop;
use crate::timetable::{Entry, Timetable};
use alloc::vec::Vec;

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
pub(crate) fn first_fit_around(model: &Model, order: &[u32], places: &[Option<u64>]) -> Vec<u64> {
    let never = Stop::new(&|| false);
    first_fit(model, order, places, &never).expect("nobody stops it")
}

/// As [`first_fit_around`]; none when there is no time for all items.
pub(crate) fn first_fit(
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
