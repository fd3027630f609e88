//! Bytes still to be placed in each section, and the section of a range that has most of them.

use crate::model::{Model, id};
use alloc::vec::Vec;

/// A segment tree with range subtraction and "where is the most".
///
/// # Cost
/// O(log s) for each run of an item and for each question; 24 bytes per section.
#[derive(Debug)]
pub(crate) struct Rest {
    /// The most in the subtree, less what ancestors still owe, and a section where it is.
    most: Vec<(u64, u32)>,
    /// Bytes taken from the whole subtree.
    owed: Vec<u64>,
    width: usize,
}

impl Rest {
    pub(crate) fn new(load: &[u64]) -> Self {
        let width = load.len().next_power_of_two();
        let mut most = alloc::vec![(0, 0); 2 * width];
        for (s, &bytes) in load.iter().enumerate() {
            most[width + s] = (bytes, id(s));
        }
        for node in (1..width).rev() {
            most[node] = most[2 * node].max(most[2 * node + 1]);
        }
        Self { most, owed: alloc::vec![0; 2 * width], width }
    }

    /// Takes the bytes of a placed item away.
    pub(crate) fn take(&mut self, model: &Model, item: usize) {
        for (&(from, to), &bytes) in model.runs(item).iter().zip(model.bytes(item)) {
            self.take_run(from as usize + self.width, to as usize + self.width, bytes);
        }
    }

    fn take_run(&mut self, from: usize, to: usize, bytes: u64) {
        let (mut l, mut r) = (from, to);
        while l < r {
            if l & 1 == 1 {
                self.owe(l, bytes);
                l += 1;
            }
            if r & 1 == 1 {
                r -= 1;
                self.owe(r, bytes);
            }
            l /= 2;
            r /= 2;
        }
        self.repair(from);
        self.repair(to - 1);
    }

    fn owe(&mut self, node: usize, bytes: u64) {
        self.owed[node] += bytes;
        self.most[node].0 -= bytes;
    }

    fn repair(&mut self, leaf: usize) {
        let mut node = leaf / 2;
        while node > 0 {
            let (bytes, at) = self.most[2 * node].max(self.most[2 * node + 1]);
            self.most[node] = (bytes.saturating_sub(self.owed[node]), at);
            node /= 2;
        }
    }

    /// Returns the section of `[from, to)` in which most bytes are still to come.
    pub(crate) fn fullest(&self, from: u32, to: u32) -> u32 {
        self.search(1, 0, self.width, from as usize, to as usize).1
    }

    fn search(&self, node: usize, left: usize, right: usize, from: usize, to: usize) -> (u64, u32) {
        if from <= left && right <= to {
            return self.most[node];
        }
        let mid = usize::midpoint(left, right);
        let a = if from < mid { self.search(2 * node, left, mid, from, to) } else { (0, 0) };
        let b = if to > mid { self.search(2 * node + 1, mid, right, from, to) } else { (0, 0) };
        let best = if a.0 >= b.0 && from < mid { a } else { b };
        (best.0.saturating_sub(self.owed[node]), best.1)
    }
}

#[cfg(test)]
mod tests {
    use super::Rest;
    use crate::rng::Rng;

    #[test]
    fn the_fullest_section_has_no_less_than_any_other_of_its_range() {
        let mut rng = Rng::new(3);
        for sections in [1, 2, 5, 16, 33] {
            let mut load: alloc::vec::Vec<u64> =
                (0..sections).map(|_| rng.index(40) as u64).collect();
            let mut rest = Rest::new(&load);
            for _ in 0..60 {
                let (a, b) = (rng.index(sections), rng.index(sections));
                let span = a.min(b)..a.max(b) + 1;
                let narrow = |at: usize| u32::try_from(at).expect("few");
                let found = rest.fullest(narrow(span.start), narrow(span.end)) as usize;
                assert!(span.contains(&found), "{found} is not in {span:?}");
                assert_eq!(Some(&load[found]), load[span.clone()].iter().max(), "{span:?}");
                let least = load[span.clone()].iter().min().copied().unwrap_or(0);
                let bytes = rng.index(usize::try_from(least).expect("small") + 1) as u64;
                load[span.clone()].iter_mut().for_each(|left| *left -= bytes);
                rest.take_run(span.start + rest.width, span.end + rest.width, bytes);
            }
        }
    }
}
