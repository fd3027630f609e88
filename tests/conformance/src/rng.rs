//! Numbers that look random, the same ones for the same seed on every machine.

/// A generator with a seed that is printed when a run fails. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Starts from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`; zero when `end` is.
    pub const fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.next() % end }
    }

    /// A number in `low..=high`.
    pub const fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// An index of something that has `len` elements, which is not zero.
    ///
    /// # Panics
    ///
    /// Never: the number is below a `usize`.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below a usize")
    }

    /// A size up to `most`: every power of two is as likely as any other.
    pub fn size(&mut self, most: u64) -> u64 {
        let top = most.ilog2();
        let scale = self.below(u64::from(top) + 1);
        (1 + self.below(2 << scale)).min(most)
    }
}

/// Spreads the bits of a number (the finaliser of `SplitMix64`).
#[must_use]
pub const fn mix(number: u64) -> u64 {
    let mut z = number;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Bytes that only the holder of `id` would write at `offset`: what content checks compare with.
pub fn stamp(id: u64, offset: u64, bytes: &mut [u8]) {
    let word = |at: u64| mix(id.rotate_left(32) ^ at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut at = offset / 8;
    // Whole words, plainly: most of what a build without optimisation does is this.
    let (words, rest) = bytes.as_chunks_mut();
    for whole in words {
        *whole = word(at).to_le_bytes();
        at += 1;
    }
    rest.copy_from_slice(&word(at).to_le_bytes()[..rest.len()]);
}

/// The first byte that is not as it should be.
#[must_use]
pub(crate) fn difference(found: &[u8], wanted: &[u8]) -> Option<usize> {
    // At once for all that are equal: one by one takes a hundred times as long in a build without optimisation.
    if found == wanted {
        return None;
    }
    found.iter().zip(wanted).position(|(a, b)| a != b)
}

/// Returns whether every byte is `value`.
#[must_use]
pub(crate) fn is_all(bytes: &[u8], value: u8) -> bool {
    // Each is as the one before it: at once, for the same reason.
    bytes.split_first().is_none_or(|(first, rest)| *first == value && *rest == bytes[..rest.len()])
}

#[cfg(test)]
mod tests {
    use super::{difference, is_all, mix, stamp};

    #[test]
    fn one_other_byte_anywhere_is_found() {
        assert!(is_all(&[], 7) && is_all(&[7], 7) && is_all(&[7; 100], 7));
        for at in 0..100 {
            let mut bytes = [7; 100];
            bytes[at] = 8;
            assert!(!is_all(&bytes, 7), "at {at}");
        }
        assert!(!is_all(&[8; 100], 7));
    }

    #[test]
    fn a_stamp_is_a_word_of_its_own_for_every_eight_bytes() {
        let word = |at: u64| mix(7u64.rotate_left(32) ^ at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let all: Vec<u8> = (2..5).flat_map(|at| word(at).to_le_bytes()).collect();
        for length in 0..=all.len() {
            let mut bytes = vec![0; length];
            stamp(7, 16, &mut bytes);
            assert_eq!(bytes, all[..length]);
        }
    }

    #[test]
    fn the_first_difference_is_found_wherever_it_is() {
        let wanted = [3; 40];
        assert_eq!(difference(&wanted, &wanted), None);
        for at in 0..wanted.len() {
            let mut found = wanted;
            found[at..].fill(4);
            assert_eq!(difference(&found, &wanted), Some(at));
        }
    }
}
