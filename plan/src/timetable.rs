//! Which placed items live when: answers who meets an item, and lets items come and go.

use crate::model::id;
use alloc::vec::Vec;

/// Entries for each item, at most; where lives are long, slices are.
const MOST_ENTRIES: usize = 4;

/// A placed item with its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) offset: u64,
    pub(crate) end: u64,
    pub(crate) item: u32,
    hull: (u32, u32),
}

/// Time in slices of equal length, each with the items that live in it.
///
/// A slice's entries are made when it is first asked about, so that memory is spent on the times that matter.
///
/// # Cost
/// About 12 bytes per item, and 32 for each entry of a slice that was asked about.
#[derive(Debug)]
pub(crate) struct Timetable {
    /// Sections in a slice.
    length: u32,
    /// Items by slice, those of slice `k` at `starts[k]..starts[k + 1]`; never changed.
    items: Vec<u32>,
    starts: Vec<u32>,
    slices: Vec<Option<Vec<Entry>>>,
    inside: Vec<bool>,
}

impl Timetable {
    /// A table in which every item is placed.
    pub(crate) fn new(hulls: &[(u32, u32)], sections: usize) -> Self {
        let count = |length: u32| {
            hulls.iter().map(|h| ((h.1 - 1) / length - h.0 / length + 1) as usize).sum::<usize>()
        };
        let longest = id(sections).next_power_of_two();
        let mut length = 64.min(longest);
        while count(length) > MOST_ENTRIES * hulls.len() && length < longest {
            length *= 2;
        }
        let slices = sections.div_ceil(length as usize);
        let mut starts = alloc::vec![0u32; slices + 1];
        for h in hulls {
            (h.0 / length..=(h.1 - 1) / length).for_each(|k| starts[k as usize + 1] += 1);
        }
        for k in 0..slices {
            starts[k + 1] += starts[k];
        }
        let mut items = alloc::vec![0; starts[slices] as usize];
        let mut next = starts.clone();
        for (item, h) in hulls.iter().enumerate() {
            for k in h.0 / length..=(h.1 - 1) / length {
                items[next[k as usize] as usize] = id(item);
                next[k as usize] += 1;
            }
        }
        let inside = alloc::vec![true; hulls.len()];
        Self { length, items, starts, slices: alloc::vec![None; slices], inside }
    }

    fn slices_of(&self, hull: (u32, u32)) -> core::ops::RangeInclusive<usize> {
        (hull.0 / self.length) as usize..=((hull.1 - 1) / self.length) as usize
    }

    /// Lists the placed items that live at some time with `item`, by offset.
    pub(crate) fn meet(
        &mut self,
        hulls: &[(u32, u32)],
        offsets: &[u64],
        sizes: &[u64],
        item: u32,
        met: &mut Vec<Entry>,
    ) {
        met.clear();
        let hull = hulls[item as usize];
        let slices = self.slices_of(hull);
        let first = *slices.start();
        for k in slices {
            let (from, to) = (self.starts[k] as usize, self.starts[k + 1] as usize);
            let (items, inside) = (&self.items[from..to], &self.inside);
            let slice = self.slices[k].get_or_insert_with(|| {
                let live = items.iter().filter(|&&i| inside[i as usize]);
                live.map(|&i| entry(hulls, offsets, sizes, i)).collect()
            });
            // An item of several slices counts in the first one that it shares with `item`.
            let fresh = |e: &&Entry| k == first || (e.hull.0 / self.length) as usize == k;
            let meets = |e: &&Entry| e.hull.0 < hull.1 && hull.0 < e.hull.1;
            met.extend(slice.iter().filter(meets).filter(fresh));
        }
        met.sort_unstable_by_key(|e| (e.offset, e.item));
    }

    /// Places an item that was taken out.
    pub(crate) fn insert(
        &mut self,
        hulls: &[(u32, u32)],
        offsets: &[u64],
        sizes: &[u64],
        item: u32,
    ) {
        self.inside[item as usize] = true;
        for k in self.slices_of(hulls[item as usize]) {
            if let Some(slice) = &mut self.slices[k] {
                slice.push(entry(hulls, offsets, sizes, item));
            }
        }
    }

    /// Takes a placed item out.
    pub(crate) fn remove(&mut self, hulls: &[(u32, u32)], item: u32) {
        self.inside[item as usize] = false;
        for k in self.slices_of(hulls[item as usize]) {
            if let Some(slice) = &mut self.slices[k]
                && let Some(at) = slice.iter().position(|e| e.item == item)
            {
                slice.swap_remove(at);
            }
        }
    }
}

fn entry(hulls: &[(u32, u32)], offsets: &[u64], sizes: &[u64], item: u32) -> Entry {
    let i = item as usize;
    Entry { offset: offsets[i], end: offsets[i] + sizes[i], item, hull: hulls[i] }
}
