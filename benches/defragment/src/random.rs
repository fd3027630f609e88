//! Numbers that look random and are the same in every run.

/// `SplitMix64`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) const fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns a position in a list of `len`.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// Returns a size whose logarithm is even between 4 KiB and `most`.
    pub(crate) fn size(&mut self, most: u64) -> u64 {
        let powers = u64::from(most.ilog2() - 12);
        let base = 4096 << self.below(powers);
        base + self.below(base)
    }
}
