//! The states that are known to fail, as a bounded set of fingerprints.

use alloc::vec::Vec;

/// An open-addressing set of 64-bit fingerprints that forgets when it is full.
///
/// # Cost
/// O(1) per question. It starts at 32 KiB, doubles, and stops at 64 MiB; from there on a new entry replaces an old one.
#[derive(Debug)]
pub(crate) struct Memo {
    slots: Vec<u64>,
    used: usize,
}

const FIRST: usize = 1 << 12;
const MOST: usize = 1 << 23;
const PROBES: usize = 8;

impl Memo {
    pub(crate) fn new() -> Self {
        Self { slots: alloc::vec![0; FIRST], used: 0 }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low bits are what is wanted")]
    const fn home(&self, print: u64) -> usize {
        print as usize & (self.slots.len() - 1)
    }

    pub(crate) fn contains(&self, print: u64) -> bool {
        let home = self.home(print);
        let mask = self.slots.len() - 1;
        (0..PROBES).any(|p| self.slots[(home + p) & mask] == print)
    }

    pub(crate) fn insert(&mut self, print: u64) {
        if self.used * 2 > self.slots.len() && self.slots.len() < MOST {
            self.grow();
        }
        let home = self.home(print);
        let mask = self.slots.len() - 1;
        for p in 0..PROBES {
            let slot = &mut self.slots[(home + p) & mask];
            if *slot == 0 {
                *slot = print;
                self.used += 1;
                return;
            }
        }
        self.slots[home] = print;
    }

    fn grow(&mut self) {
        let twice = alloc::vec![0; self.slots.len() * 2];
        let old = core::mem::replace(&mut self.slots, twice);
        self.used = 0;
        for print in old {
            if print != 0 {
                self.insert(print);
            }
        }
    }
}

#[cfg(test)]
mod tests;
