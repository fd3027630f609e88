//! Contents by which allocations are told apart.
use omniheap_core::{Allocation, Backend, Manager};

/// Bytes that tell allocations apart, and places at any distance.
///
/// # Panics
///
/// When the host cannot hold so many.
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
/// When one of it is not so.
#[track_caller]
pub fn sound<B: Backend>(manager: &Manager<B>, live: &[(u64, Allocation<B>)]) {
    manager.validate().expect("sound");
    for (id, one) in live {
        let mut found = vec![0; usize::try_from(one.size()).expect("small")];
        one.read(0, &mut found).expect("in range");
        assert!(found == stamp(*id, one.size()), "allocation {id} lost its bytes");
    }
}
