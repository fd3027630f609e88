//! A checksum that notices damage, at the speed of memory. Not for secrets: it is easy to forge.
#![forbid(unsafe_code)]

/// Odd numbers without a pattern, one for each lane.
const FACTORS: [u64; 4] =
    [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 0xd6e8_feb8_6659_fd93];

/// Sums up bytes; the same bytes give the same sum, on every machine.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    let mut lanes = FACTORS;
    let (words, rest) = bytes.as_chunks::<32>();
    for word in words {
        let (parts, _) = word.as_chunks::<8>();
        for ((lane, part), factor) in lanes.iter_mut().zip(parts).zip(FACTORS) {
            *lane = (*lane ^ u64::from_le_bytes(*part)).wrapping_mul(factor).rotate_left(29);
        }
    }
    let tail = rest.iter().fold(bytes.len() as u64, |sum, byte| mix(sum ^ u64::from(*byte)));
    lanes.into_iter().fold(tail, |sum, lane| mix(sum ^ lane))
}

const fn mix(sum: u64) -> u64 {
    let sum = (sum ^ (sum >> 32)).wrapping_mul(FACTORS[1]);
    (sum ^ (sum >> 29)).wrapping_mul(FACTORS[2])
}

#[cfg(test)]
mod tests {
    use super::checksum;

    #[test]
    fn each_bit_counts_and_so_does_the_length() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let sum = checksum(&bytes);
        for at in [0, 1, 31, 32, 500, 991, 992, 999] {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                assert_ne!(checksum(&other), sum, "byte {at}, bit {bit}");
            }
        }
        assert_ne!(checksum(&[0; 64]), checksum(&[0; 63]));
        assert_ne!(checksum(&[0; 64]), checksum(&[0; 96]));
    }
}
