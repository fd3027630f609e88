//! Places items in order of time, as an allocator does that does not know the future.

use crate::model::{Model, align_up, id};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// The hole that an item takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// The smallest that it fits, the lowest of equals.
    Best,
    /// The lowest that it fits.
    First,
}

/// Places every item when it starts in a hole that it fits.
///
/// # Cost
/// O(n log n), and the fastest of all rules. Where lifetimes are short compared with all time it is also among the best.
pub(crate) fn online(model: &Model, fit: Fit) -> Vec<u64> {
    let mut offsets = alloc::vec![0; model.len()];
    let mut ending: Vec<u32> = (0..id(model.len())).collect();
    ending.sort_unstable_by_key(|&i| model.hull[i as usize].1);
    let mut ending = ending.into_iter().peekable();
    let mut holes = Holes { by_place: BTreeMap::new(), by_class: BTreeSet::new(), fit, top: 0 };
    // Items are in order of their first sections.
    for item in 0..model.len() {
        let now = model.hull[item].0;
        while let Some(gone) = ending.next_if(|&i| model.hull[i as usize].1 <= now) {
            let gone = gone as usize;
            holes.free(offsets[gone], offsets[gone] + model.size[gone]);
        }
        offsets[item] = holes.take(model.size[item], model.align[item]);
    }
    offsets
}

/// Free bytes below the top, by place and by class. Holes never touch each other or the top.
#[derive(Debug)]
struct Holes {
    /// From start to end.
    by_place: BTreeMap<u64, u64>,
    /// Class and start.
    by_class: BTreeSet<(u64, u64)>,
    fit: Fit,
    /// End of the used range.
    top: u64,
}

impl Holes {
    fn take(&mut self, size: u64, align: u64) -> u64 {
        let Some((start, end)) = self.find(size, align) else {
            let offset = align_up(self.top, align);
            let padding = (self.top, offset);
            self.top = offset + size;
            self.add(padding.0, padding.1);
            return offset;
        };
        self.remove(start, end);
        let offset = align_up(start, align);
        self.add(start, offset);
        self.add(offset + size, end);
        offset
    }

    /// Returns the hole for so many bytes.
    fn find(&self, size: u64, align: u64) -> Option<(u64, u64)> {
        let fits =
            |start: u64, end: u64| (align_up(start, align) + size <= end).then_some((start, end));
        let least = self.class(size);
        if self.fit == Fit::Best {
            let holes = self.by_class.range((least, 0)..);
            return holes.map(|&(size, start)| (start, start + size)).find_map(|h| fits(h.0, h.1));
        }
        let first = |class: u64| {
            let mut starts = self.by_class.range((class, 0)..(class + 1, 0)).map(|h| h.1);
            starts.find_map(|start| fits(start, *self.by_place.get(&start)?))
        };
        (least..u64::from(u64::BITS)).filter_map(first).min()
    }

    /// Returns the class of a hole: its size, or the power of two below it where places matter more.
    const fn class(&self, size: u64) -> u64 {
        match self.fit {
            Fit::Best => size,
            Fit::First => size.ilog2() as u64,
        }
    }

    fn free(&mut self, mut from: u64, mut to: u64) {
        if let Some((&start, &end)) =
            self.by_place.range(..from).next_back().filter(|h| *h.1 == from)
        {
            self.remove(start, end);
            from = start;
        }
        if let Some(&end) = self.by_place.get(&to) {
            self.remove(to, end);
            to = end;
        }
        if to == self.top {
            self.top = from;
        } else {
            self.add(from, to);
        }
    }

    fn add(&mut self, from: u64, to: u64) {
        if from < to {
            self.by_place.insert(from, to);
            self.by_class.insert((self.class(to - from), from));
        }
    }

    fn remove(&mut self, from: u64, to: u64) {
        self.by_place.remove(&from);
        self.by_class.remove(&(self.class(to - from), from));
    }
}
