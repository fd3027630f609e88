//! Buffers that use the same bytes: which belong together, and what that fixes for all of them.

use crate::problem::{Problem, RegionSet};
use alloc::vec::Vec;

/// The alias classes of a problem. A buffer without aliases is a class of its own.
#[derive(Debug)]
pub struct Classes {
    /// The first buffer of each buffer's class; empty when there are no aliases.
    root: Vec<usize>,
}

impl Classes {
    pub fn new(problem: &Problem) -> Self {
        let mut root = Vec::new();
        if !problem.aliases.is_empty() {
            root.extend(0..problem.buffers.len());
        }
        for &(a, b) in &problem.aliases {
            let (a, b) = (find(&mut root, a), find(&mut root, b));
            root[a.max(b)] = a.min(b);
        }
        for i in 0..root.len() {
            root[i] = find(&mut root, i);
        }
        Self { root }
    }

    /// Returns the first buffer of a buffer's class.
    pub fn root(&self, buffer: usize) -> usize {
        self.root.get(buffer).copied().unwrap_or(buffer)
    }

    /// Returns the offset that each class must have because one of its buffers is fixed; by first buffer.
    pub fn fixed(&self, problem: &Problem) -> Vec<Option<u64>> {
        let mut fixed = alloc::vec![None; problem.buffers.len()];
        for (index, buffer) in problem.buffers.iter().enumerate() {
            let class = self.root(index);
            if buffer.needs_bytes() {
                fixed[class] = fixed[class].or(buffer.fixed);
            }
        }
        fixed
    }

    /// Returns the regions that suit every buffer of each class: all may live there, and a fixed offset is aligned; by first
    /// buffer.
    pub fn allowed(&self, problem: &Problem) -> Vec<RegionSet> {
        let fixed = self.fixed(problem);
        let mut allowed = alloc::vec![RegionSet::ALL; problem.buffers.len()];
        for (index, buffer) in problem.buffers.iter().enumerate() {
            let class = self.root(index);
            if !buffer.needs_bytes() {
                continue;
            }
            allowed[class] = allowed[class].meet(buffer.regions);
            if let Some(offset) = fixed[class] {
                let aligned = |r: &usize| {
                    offset.is_multiple_of(problem.regions[*r].align)
                        && offset.is_multiple_of(buffer.align)
                };
                let set = (0..problem.regions.len()).filter(aligned);
                allowed[class] = allowed[class].meet(set.fold(RegionSet::NONE, RegionSet::and));
            }
        }
        allowed
    }
}

fn find(root: &mut [usize], mut i: usize) -> usize {
    while root[i] != i {
        root[i] = root[root[i]];
        i = root[i];
    }
    i
}

/// Returns the least common multiple, if it is a `u64`.
pub const fn lcm(a: u64, b: u64) -> Option<u64> {
    (a / gcd(a, b)).checked_mul(b)
}

pub const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
