//! Places items in order of time, as an allocator does that does not know the future.

use crate::model::{Model, align_up, id};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Holes of a kind that a search looks at.
const TRIES: usize = 32;

/// The hole that an item takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The smallest that it fits, the lowest of equals.
    Best,
    /// The lowest that it fits.
    First,
}

/// Places every item when it starts in a hole that it fits.
///
/// # Cost
/// O(n log n), whatever the alignments, and the fastest of all rules. Where lifetimes are short compared with all time it is also among the best.
pub fn online(model: &Model, fit: Fit) -> Vec<u64> {
    let mut offsets = alloc::vec![0; model.len()];
    let mut ending = by_end(model).into_iter().peekable();
    let mut blocks = Blocks::new(fit);
    let mut block_of = alloc::vec![0; model.len()];
    // Items are in order of their first sections.
    for item in 0..model.len() {
        let now = model.hull[item].0;
        while let Some(gone) = ending.next_if(|&i| model.hull[i as usize].1 <= now) {
            blocks.free(block_of[gone as usize]);
        }
        block_of[item] = blocks.take(model.size[item], model.align[item]);
        offsets[item] = blocks.all[block_of[item] as usize].start;
    }
    offsets
}

/// Lists the items by the section before which they end.
fn by_end(model: &Model) -> Vec<u32> {
    let mut next = alloc::vec![0u32; model.sections() + 2];
    model.hull.iter().for_each(|h| next[h.1 as usize + 1] += 1);
    for s in 1..next.len() {
        next[s] += next[s - 1];
    }
    let mut items = alloc::vec![0; model.len()];
    for (item, hull) in model.hull.iter().enumerate() {
        items[next[hull.1 as usize] as usize] = id(item);
        next[hull.1 as usize] += 1;
    }
    items
}

/// A span of bytes between two others, by index.
#[derive(Clone, Copy, Debug)]
struct Block {
    start: u64,
    end: u64,
    below: u32,
    above: u32,
    free: bool,
}

/// All bytes below the top as a ring of blocks, in use or free. Free ones never touch each other or the top.
#[derive(Debug)]
struct Blocks {
    /// The first has no bytes: it is below the lowest and above the highest.
    all: Vec<Block>,
    /// Indices that are not in the ring.
    unused: Vec<u32>,
    /// Class, start and index of the free ones.
    holes: BTreeSet<(u64, u64, u32)>,
    fit: Fit,
}

impl Blocks {
    fn new(fit: Fit) -> Self {
        let ends = Block { start: 0, end: 0, below: 0, above: 0, free: false };
        Self { all: alloc::vec![ends], unused: Vec::new(), holes: BTreeSet::new(), fit }
    }

    /// Returns a new block in use.
    fn take(&mut self, size: u64, align: u64) -> u32 {
        let Some(block) = self.find(size, align) else {
            let highest = self.all[0].below;
            let top = self.all[highest as usize].end;
            let offset = align_up(top, align);
            self.add_hole(highest, top, offset);
            return self.link(self.all[0].below, offset, offset + size);
        };
        self.holes.remove(&self.key(block));
        let Block { start, end, below, .. } = self.all[block as usize];
        let offset = align_up(start, align);
        self.add_hole(below, start, offset);
        self.add_hole(block, offset + size, end);
        let taken = &mut self.all[block as usize];
        (taken.start, taken.end, taken.free) = (offset, offset + size, false);
        block
    }

    /// Returns the hole for so many bytes.
    ///
    /// Holes that are long enough but start in the wrong place are passed over, [`TRIES`] of a kind at most; one that is longer by the
    /// alignment fits wherever it starts.
    fn find(&self, size: u64, align: u64) -> Option<u32> {
        let fits = |&&(_, start, block): &&(u64, u64, u32)| {
            align_up(start, align) + size <= self.all[block as usize].end
        };
        let least = self.class(size);
        if self.fit == Fit::Best {
            let near = self.holes.range((least, 0, 0)..).take(TRIES).find(fits);
            let roomy = || self.holes.range((size.saturating_add(align - 1), 0, 0)..).next();
            return near.or_else(roomy).map(|h| h.2);
        }
        let of = |class: u64| self.holes.range((class, 0, 0)..(class + 1, 0, 0));
        let first = |class: u64| of(class).take(TRIES).find(fits);
        let holes = (least..u64::from(u64::BITS)).filter_map(first);
        holes.min_by_key(|h| h.1).map(|h| h.2)
    }

    /// Returns the class of a hole: its size, or the power of two below it where places matter more.
    const fn class(&self, size: u64) -> u64 {
        match self.fit {
            Fit::Best => size,
            Fit::First => size.ilog2() as u64,
        }
    }

    fn key(&self, block: u32) -> (u64, u64, u32) {
        let Block { start, end, .. } = self.all[block as usize];
        (self.class(end - start), start, block)
    }

    /// Makes a hole of a block in use and of those that it touches.
    fn free(&mut self, block: u32) {
        let Block { below, above, .. } = self.all[block as usize];
        for hole in [below, above] {
            if !self.all[hole as usize].free {
                continue;
            }
            self.holes.remove(&self.key(hole));
            let (gone, kept) = (self.all[hole as usize], &mut self.all[block as usize]);
            (kept.start, kept.end) = (kept.start.min(gone.start), kept.end.max(gone.end));
            self.unlink(hole);
        }
        if self.all[block as usize].above == 0 {
            self.unlink(block);
        } else {
            self.set_free(block);
        }
    }

    /// Puts a hole above a block, if it has bytes.
    fn add_hole(&mut self, below: u32, start: u64, end: u64) {
        if start < end {
            let hole = self.link(below, start, end);
            self.set_free(hole);
        }
    }

    fn set_free(&mut self, block: u32) {
        self.all[block as usize].free = true;
        self.holes.insert(self.key(block));
    }

    /// Puts a block in use above another.
    fn link(&mut self, below: u32, start: u64, end: u64) -> u32 {
        let above = self.all[below as usize].above;
        let block = Block { start, end, below, above, free: false };
        let new = self.unused.pop().unwrap_or_else(|| {
            self.all.push(block);
            id(self.all.len() - 1)
        });
        self.all[new as usize] = block;
        self.all[below as usize].above = new;
        self.all[above as usize].below = new;
        new
    }

    fn unlink(&mut self, block: u32) {
        let Block { below, above, .. } = self.all[block as usize];
        self.all[below as usize].above = above;
        self.all[above as usize].below = below;
        self.unused.push(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Problem, Region};

    fn placed(fit: Fit, buffers: &[Buffer]) -> Vec<u64> {
        let mut problem = Problem::new(Region::unbounded());
        problem.buffers = buffers.to_vec();
        online(&Model::new(&problem, 0, |_| true), fit)
    }

    #[test]
    fn an_item_takes_the_smallest_or_the_lowest_hole_that_it_fits() {
        let holes = [(8, 1), (1, 9), (4, 1), (1, 9)].map(|(size, end)| Buffer::new(size, 0, end));
        let all = [&holes[..], &[Buffer::new(3, 2, 9), Buffer::new(5, 3, 9)]].concat();
        assert_eq!(placed(Fit::Best, &all)[4..], [9, 0]);
        assert_eq!(placed(Fit::First, &all)[4..], [0, 3]);
    }

    #[test]
    fn freed_bytes_join_those_they_touch_and_the_top_comes_down() {
        let ends = [(4, 1), (4, 3), (4, 2), (1, 9), (4, 2)];
        let old = ends.map(|(size, end)| Buffer::new(size, 0, end));
        // The buffer that ends at tick 3 lies between two holes, and the one that ends at tick 2 between a hole and the
        // top.
        let new = [Buffer::new(8, 2, 9), Buffer::new(12, 4, 9)];
        assert_eq!(placed(Fit::Best, &[&old[..], &new[..]].concat())[5..], [13, 0]);
    }

    #[test]
    fn bytes_below_an_aligned_item_stay_a_hole() {
        let all = [Buffer::new(3, 0, 9), Buffer::new(8, 0, 9).align(8), Buffer::new(5, 1, 9)];
        assert_eq!(placed(Fit::First, &all), [0, 8, 3]);
    }

    /// Holes of four bytes that start at odd places, and one behind them, all free at tick 2.
    fn misaligned(count: u64, last: u64) -> Vec<Buffer> {
        let mut all = alloc::vec![Buffer::new(1, 0, 9)];
        for _ in 0..count {
            all.extend([Buffer::new(4, 0, 1), Buffer::new(4, 0, 9)]);
        }
        all.extend([Buffer::new(last, 0, 1), Buffer::new(1, 0, 9)]);
        all.push(Buffer::new(4, 2, 9).align(4));
        all
    }

    #[test]
    fn holes_that_an_alignment_forbids_are_passed_over_a_bounded_number_of_times() {
        for fit in [Fit::Best, Fit::First] {
            let few = placed(fit, &misaligned(10, 7));
            assert_eq!(few[23], 84, "{fit:?}: the long hole at 81");
            // One that is longer by the alignment is found behind any number of others.
            let tries = u64::try_from(TRIES).expect("few");
            let many = placed(fit, &misaligned(2 * tries, 8));
            assert_eq!(many.last().copied(), Some(16 * tries + 4), "{fit:?}");
            let unlucky = [&misaligned(tries, 1)[..], &[Buffer::new(4, 2, 9).align(4)]].concat();
            let all = placed(fit, &unlucky);
            let top = (8 * tries + 3).next_multiple_of(4);
            assert_eq!(all[all.len() - 2..], [top, top + 4], "{fit:?}");
        }
    }
}
