//! A small seeded generator, so that one seed gives one plan.

/// The `SplitMix64` sequence.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Returns a number below `limit`; 0 when `limit` is 0.
    pub const fn below(&mut self, limit: u64) -> u64 {
        ((self.next() as u128 * limit as u128) >> 64) as u64
    }

    /// Returns a number below `limit`, as an index.
    #[expect(clippy::cast_possible_truncation, reason = "the result is below a usize")]
    pub const fn index(&mut self, limit: usize) -> usize {
        self.below(limit as u64) as usize
    }

    /// Returns a number in `[0, 1)`.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double")]
    pub const fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Spreads every input bit over the whole word.
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
