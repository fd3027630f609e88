//! Hashes of 128 bits: among a hundred million states, two of equal hash are as likely as one in 10^22.
use core::hash::{BuildHasher, Hash, Hasher};

/// Collects what tells a state from others.
///
/// ```
/// use omniheap_exhaustive::Key;
///
/// let key = |parts: &[u32]| Key::new().with(parts).get();
/// assert_eq!(key(&[1, 2]), key(&[1, 2]));
/// assert_ne!(key(&[1, 2]), key(&[2, 1]));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Key([u64; 2]);

impl Default for Key {
    fn default() -> Self {
        Self::new()
    }
}

impl Key {
    /// A hash of nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self([0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7344])
    }

    /// Adds a part. The order of parts counts.
    #[must_use]
    pub fn with(mut self, part: impl Hash) -> Self {
        part.hash(&mut self);
        self
    }

    /// Returns the hash.
    #[must_use]
    pub fn get(&self) -> u128 {
        let [low, high] = self.0;
        u128::from(mix(low ^ high.rotate_left(32))) << 64 | u128::from(mix(high.wrapping_add(low)))
    }
}

/// The finalizer of `SplitMix64`.
const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

impl Hasher for Key {
    fn finish(&self) -> u64 {
        self.0[0]
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word) ^ (chunk.len() as u64) << 56);
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }
    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }
    fn write_u64(&mut self, value: u64) {
        self.0[0] = mix(self.0[0] ^ value).wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.0[1] =
            (self.0[1].rotate_left(23) ^ value).wrapping_mul(0xD6E8_FEB8_6659_FD93) ^ self.0[0];
    }
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

/// Hashes that are hashes already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ready(u64);

impl Hasher for Ready {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are single numbers of 128 bits");
    }
    fn write_u128(&mut self, value: u128) {
        #[expect(clippy::cast_possible_truncation, reason = "half of the bits are enough here")]
        let low = value as u64;
        self.0 = low;
    }
}

impl BuildHasher for Ready {
    type Hasher = Self;
    fn build_hasher(&self) -> Self {
        *self
    }
}
