//! A set of small numbers that finds its lowest member by looking at one word per level.
use crate::ErrorKind;
use alloc::vec::Vec;

/// Members below a fixed bound, one bit each; every higher level has one bit per word of the level below.
#[derive(Clone, Debug)]
pub(super) struct Bits {
    levels: Vec<Vec<u64>>,
    bound: usize,
}

impl Bits {
    /// The set of all numbers below `bound`.
    pub(super) fn full(bound: usize) -> Result<Self, ErrorKind> {
        let mut bits = Self::empty(bound)?;
        let mut count = bound;
        for level in &mut bits.levels {
            level.fill(u64::MAX);
            if !count.is_multiple_of(64) {
                level[count / 64] = (1 << (count % 64)) - 1;
            }
            count = count.div_ceil(64);
        }
        Ok(bits)
    }

    /// No members; any below `bound` can be inserted.
    pub(super) fn empty(bound: usize) -> Result<Self, ErrorKind> {
        let mut levels = Vec::new();
        let mut count = bound;
        while count > 0 {
            count = count.div_ceil(64);
            let mut level = Vec::new();
            level.try_reserve_exact(count).map_err(|_| ErrorKind::OutOfHostMemory)?;
            level.resize(count, 0);
            levels.try_reserve(1).map_err(|_| ErrorKind::OutOfHostMemory)?;
            levels.push(level);
            if count == 1 {
                break;
            }
        }
        Ok(Self { levels, bound })
    }

    /// The same members under a bound of at least `bound`; doubles, so that growing one by one stays cheap.
    pub(super) fn grown(&self, bound: usize) -> Result<Self, ErrorKind> {
        let mut grown = Self::empty(bound.max(self.bound.saturating_mul(2)))?;
        for number in (0..self.bound).filter(|&number| self.contains(number)) {
            grown.insert(number);
        }
        Ok(grown)
    }

    pub(super) const fn bound(&self) -> usize {
        self.bound
    }

    pub(super) fn contains(&self, number: usize) -> bool {
        number < self.bound && self.levels[0][number / 64] >> (number % 64) & 1 == 1
    }

    pub(super) fn insert(&mut self, number: usize) {
        let mut at = number;
        for level in &mut self.levels {
            #[cfg(test)]
            crate::strategy::steps::count();
            level[at / 64] |= 1 << (at % 64);
            at /= 64;
        }
    }

    pub(super) fn remove(&mut self, number: usize) {
        let mut at = number;
        for level in &mut self.levels {
            #[cfg(test)]
            crate::strategy::steps::count();
            level[at / 64] &= !(1 << (at % 64));
            if level[at / 64] != 0 {
                break;
            }
            at /= 64;
        }
    }

    /// The lowest member.
    pub(super) fn first(&self) -> Option<usize> {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            #[cfg(test)]
            crate::strategy::steps::count();
            let word = level[at];
            if word == 0 {
                return None;
            }
            at = at * 64 + word.trailing_zeros() as usize;
        }
        (!self.levels.is_empty()).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_member_is_found_at_every_bound() {
        for bound in [1, 63, 64, 65, 4095, 4096, 4097, 300_000] {
            let mut bits = Bits::full(bound).expect("host memory suffices");
            for number in 0..bound {
                assert_eq!(bits.first(), Some(number), "bound {bound}");
                bits.remove(number);
            }
            assert_eq!(bits.first(), None);
            bits.insert(bound - 1);
            assert_eq!(bits.first(), Some(bound - 1));
            let grown = bits.grown(bound + 1).expect("host memory suffices");
            assert_eq!(grown.first(), Some(bound - 1));
        }
        assert_eq!(Bits::empty(0).expect("nothing is needed").first(), None);
    }
}
