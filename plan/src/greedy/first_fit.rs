//! Places items one by one, each in the lowest hole that is large enough.

use crate::model::{Model, align_up, id};
use alloc::vec::Vec;

/// Places the items in the given order; fixed ones are there from the start.
pub(crate) fn first_fit(model: &Model, order: &[u32]) -> Vec<u64> {
    first_fit_around(model, order, model.fixed.clone())
}

/// Places the items that have no place yet in the given order.
///
/// # Algorithm
/// The placed items are kept by offset. An item walks up that list; each one in its way lifts it, and the first gap
/// that is large enough is taken. A hint is taken instead when nothing is in its way.
///
/// # Cost
/// O(n²), but with a cheap step: 30,000 items take half a second. The skyline is the rule for large problems; this one
/// knows fixed offsets, hints, gaps in lifetimes, and holes under placed items.
pub(crate) fn first_fit_around(
    model: &Model,
    order: &[u32],
    mut places: Vec<Option<u64>>,
) -> Vec<u64> {
    let mut taken: Vec<Taken> = Vec::with_capacity(model.len());
    for (item, place) in places.iter().enumerate() {
        if let Some(offset) = *place {
            taken.push(Taken::new(model, item, offset));
        }
    }
    taken.sort_unstable_by_key(|t| (t.offset, t.item));
    let plain = model.is_plain();
    for item in order.iter().map(|&i| i as usize) {
        if places[item].is_some() {
            continue;
        }
        let hull = model.hull[item];
        let in_way = |t: &Taken| {
            t.hull.0 < hull.1
                && hull.0 < t.hull.1
                && (plain || model.conflict(item, t.item as usize))
        };
        let offset = hinted(model, item, taken.iter().filter(|t| in_way(t)));
        let offset = offset.unwrap_or_else(|| lowest(model, item, &taken, in_way));
        places[item] = Some(offset);
        let at = taken.partition_point(|t| t.offset < offset);
        taken.insert(at, Taken::new(model, item, offset));
    }
    places.into_iter().map(|p| p.unwrap_or(0)).collect()
}

/// An item with its bytes.
#[derive(Clone, Copy, Debug)]
struct Taken {
    offset: u64,
    end: u64,
    hull: (u32, u32),
    item: u32,
}

impl Taken {
    fn new(model: &Model, item: usize, offset: u64) -> Self {
        Self { offset, end: offset + model.size[item], hull: model.hull[item], item: id(item) }
    }
}

fn hinted<'a>(
    model: &Model,
    item: usize,
    mut in_way: impl Iterator<Item = &'a Taken>,
) -> Option<u64> {
    let hint = model.hint[item].filter(|h| h.is_multiple_of(model.align[item]))?;
    // Far hints would make later sums overflow.
    let end = hint.checked_add(model.size[item]).filter(|&e| e <= u64::MAX / 4)?;
    in_way.all(|t| t.end <= hint || end <= t.offset).then_some(hint)
}

fn lowest(model: &Model, item: usize, taken: &[Taken], in_way: impl Fn(&Taken) -> bool) -> u64 {
    let mut at = 0;
    for t in taken {
        if t.offset >= at + model.size[item] {
            break;
        }
        if t.end > at && in_way(t) {
            at = align_up(t.end, model.align[item]);
        }
    }
    at
}
