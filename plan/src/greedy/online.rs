//! Places items in order of time, as an allocator does that does not know the future.

use crate::model::{Model, align_up, id};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Places every item when it starts in the smallest hole that it fits, the lowest of equals.
///
/// # Cost
/// O(n log n), and the fastest of all rules. Where lifetimes are short compared with all time it is also among the best.
pub(crate) fn online(model: &Model) -> Vec<u64> {
    let mut offsets = alloc::vec![0; model.len()];
    let mut ending: Vec<u32> = (0..id(model.len())).collect();
    ending.sort_unstable_by_key(|&i| model.hull[i as usize].1);
    let mut ending = ending.into_iter().peekable();
    let mut holes = Holes::default();
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

/// Free bytes below the top, by place and by size. Holes never touch each other or the top.
#[derive(Debug, Default)]
struct Holes {
    /// From start to end.
    by_place: BTreeMap<u64, u64>,
    /// Size and start.
    by_size: BTreeSet<(u64, u64)>,
    /// End of the used range.
    top: u64,
}

impl Holes {
    fn take(&mut self, size: u64, align: u64) -> u64 {
        let fits = |&&(hole, start): &&(u64, u64)| align_up(start, align) + size <= start + hole;
        let Some(&(hole, start)) = self.by_size.range((size, 0)..).find(fits) else {
            let offset = align_up(self.top, align);
            let padding = (self.top, offset);
            self.top = offset + size;
            self.add(padding.0, padding.1);
            return offset;
        };
        self.remove(start, start + hole);
        let offset = align_up(start, align);
        self.add(start, offset);
        self.add(offset + size, start + hole);
        offset
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
            self.by_size.insert((to - from, from));
        }
    }

    fn remove(&mut self, from: u64, to: u64) {
        self.by_place.remove(&from);
        self.by_size.remove(&(to - from, from));
    }
}
