//! Contents by which allocations are told apart.
use omniheap_core::{Allocation, Backend, Manager};

/// Bytes that tell allocations apart, and places at any distance.
///
/// # Panics
///
/// Panics when the host cannot hold so many.
#[must_use]
pub fn stamp(id: u64, size: u64) -> Vec<u8> {
    let (size, start) =
        (usize::try_from(size).expect("small"), id.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut bytes = vec![0; size.next_multiple_of(8)];
    // Whole words, plainly: much of what a build without optimisation does is this.
    let mut at = 0;
    #[expect(
        clippy::explicit_counter_loop,
        reason = "an iterator that counts is several calls a word then"
    )]
    for word in bytes.as_chunks_mut().0 {
        *word = (start ^ at).to_le_bytes();
        at += 1;
    }
    bytes.truncate(size);
    bytes
}

/// Checks that a manager is sound and that live allocations hold their [`stamp`]s.
///
/// # Panics
///
/// Panics when one of it is not so.
#[track_caller]
pub fn sound<B: Backend>(manager: &Manager<B>, live: &[(u64, Allocation<B>)]) {
    manager.validate().expect("sound");
    for (id, one) in live {
        let mut found = vec![0; usize::try_from(one.size()).expect("small")];
        one.read(0, &mut found).expect("in range");
        assert!(found == stamp(*id, one.size()), "allocation {id} lost its bytes");
    }
}

/// Returns true if all bytes are this one; as one comparison, because a fuzzer would count every step of a loop.
pub(crate) fn is_full_of(byte: u8, bytes: &[u8]) -> bool {
    let Some((first, rest)) = bytes.split_first() else { return true };
    *first == byte && *rest == bytes[..rest.len()]
}

#[cfg(test)]
mod tests {
    use super::is_full_of;

    #[test]
    fn one_other_byte_is_seen_wherever_it_is() {
        assert!(is_full_of(7, &[]) && is_full_of(7, &[7; 33]) && !is_full_of(7, &[8; 33]));
        for at in 0..33 {
            let mut bytes = [7; 33];
            bytes[at] = 6;
            assert!(!is_full_of(7, &bytes), "byte {at}");
        }
    }
}
