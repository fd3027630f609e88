//! The memo knows exactly what was put in.
use super::{MOST, Memo};
use crate::rng::Rng;
use alloc::vec::Vec;

/// Odd numbers, as the search makes them; never 0.
fn prints(seed: u64, count: usize) -> Vec<u64> {
    let mut rng = Rng::new(seed);
    (0..count).map(|_| rng.next() | 1).collect()
}

#[test]
fn nothing_is_known_at_first() {
    let memo = Memo::new();
    assert!(prints(1, 1_000).iter().all(|&print| !memo.contains(print)));
}

#[test]
fn states_stay_known_while_the_set_grows_and_others_stay_unknown() {
    let mut memo = Memo::new();
    let known = prints(1, 200_000);
    for &print in &known {
        memo.insert(print);
        assert!(memo.contains(print), "just put in");
    }
    let kept = known.iter().filter(|&&print| memo.contains(print)).count();
    assert!(kept * 100 >= known.len() * 99, "only {kept} of {} are still known", known.len());
    assert!(prints(2, 200_000).iter().all(|&print| !memo.contains(print)), "never put in");
}

#[test]
fn states_that_differ_in_one_bit_are_told_apart() {
    let print = 0x1234_5678_9ABC_DEF1;
    for bit in 1..64 {
        for (known, unknown) in [(print, print ^ (1 << bit)), (print ^ (1 << bit), print)] {
            let mut memo = Memo::new();
            memo.insert(known);
            assert!(memo.contains(known) && !memo.contains(unknown), "bit {bit}");
        }
    }
}

#[test]
fn a_full_home_forgets_the_old_and_knows_the_new() {
    let mut memo = Memo::new();
    // Alike in every bit that chooses a home, however large the set.
    let alike = |n: u64| 1 | (n * 2 * MOST as u64);
    for n in 0..100 {
        memo.insert(alike(n));
        assert!(memo.contains(alike(n)), "print {n}");
    }
    assert!((0..100).any(|n| !memo.contains(alike(n))), "a home has few slots");
}
