//! Tests that count the steps of single calls, for ten and for a million live spans.
use super::{Buddy, Key, Slab, Strategy, Tlsf};
use crate::{Align, Class, Layout};
use alloc::vec::Vec;
use core::cell::Cell;

std::thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Counts one access to a node, a list or a word of bits.
pub(super) fn count() {
    STEPS.set(STEPS.get() + 1);
}

/// Numbers of live spans.
const LIVE: [usize; 3] = [10, 1000, if cfg!(debug_assertions) { 50_000 } else { 1_000_000 }];
/// Measured calls at each number.
const CALLS: usize = 20_000;

/// Random numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)) % end
    }

    fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).expect("below a usize")
    }

    /// Returns a size up to 64 KiB. Every power of two is equally likely.
    fn size(&mut self) -> u64 {
        let power = 1 + self.below(16);
        1 + self.below(1 << power)
    }

    fn class(&mut self) -> Class {
        if self.below(2) == 0 { Class::Linear } else { Class::Tiled }
    }
}

/// Returns the most steps of one allocation and of one free, among `live` live spans with holes between them.
fn most(
    strategy: &mut dyn Strategy,
    live: usize,
    mut layout: impl FnMut(&mut Numbers) -> Layout,
) -> (u64, u64) {
    let (mut numbers, mut keys) = (Numbers(live as u64), Vec::new());
    let mut take = |strategy: &mut dyn Strategy, keys: &mut Vec<Key>, numbers: &mut Numbers| {
        let (layout, class) = (layout(numbers), numbers.class());
        STEPS.set(0);
        let grant = strategy.allocate(layout, class);
        let steps = STEPS.get();
        keys.push(grant.expect("there is room for all").key);
        steps
    };
    let give = |strategy: &mut dyn Strategy, keys: &mut Vec<Key>, numbers: &mut Numbers| {
        let key = keys.swap_remove(numbers.index(keys.len()));
        STEPS.set(0);
        let freed = strategy.free(key);
        let steps = STEPS.get();
        freed.expect("it is live");
        steps
    };
    while keys.len() < live + live / 2 {
        take(strategy, &mut keys, &mut numbers);
    }
    while keys.len() > live {
        give(strategy, &mut keys, &mut numbers);
    }
    let (mut allocating, mut freeing) = (0, 0);
    for _ in 0..CALLS {
        freeing = give(strategy, &mut keys, &mut numbers).max(freeing);
        allocating = take(strategy, &mut keys, &mut numbers).max(allocating);
    }
    (allocating, freeing)
}

#[test]
fn the_general_strategy_looks_as_far_in_a_million_spans_as_in_ten() {
    for (granularity, live) in [1, 1024].into_iter().flat_map(|unit| LIVE.map(|live| (unit, live)))
    {
        let mut tlsf = Tlsf::new(Align::of(granularity));
        tlsf.add_block(1 << 40).expect("a block of any size");
        let (allocating, freeing) = most(&mut tlsf, live, |numbers| {
            let align = Align::of(1 << numbers.below(9));
            Layout::new(numbers.size()).align(align)
        });
        std::println!("{live} live, {granularity} apart: {allocating} and {freeing} steps");
        // Ten holes at most, each with both neighbours, and what it takes to cut one.
        assert!(allocating <= 80 && freeing <= 16, "{live} live: {allocating}, {freeing}");
    }
}

#[test]
fn buddies_look_a_few_times_at_each_power_of_two() {
    for live in LIVE {
        let (block, unit) = (1u64 << 36, 256);
        let mut buddy = Buddy::new(Align::of(unit), Align::ONE);
        buddy.add_block(block).expect("a power of two");
        let (allocating, freeing) = most(&mut buddy, live, |numbers| Layout::new(numbers.size()));
        let powers = u64::from((block / unit).ilog2());
        std::println!("{live} live: {allocating} and {freeing} steps over {powers} powers of two");
        assert!(allocating.max(freeing) <= 6 * powers, "{live} live: {allocating}, {freeing}");
    }
}

#[test]
fn slabs_look_at_one_word_a_level() {
    for live in LIVE {
        let mut slab = Slab::new(Layout::new(64), Align::ONE).expect("a slot of some bytes");
        for _ in 0..8 {
            slab.add_block(1 << 25).expect("a block of half a million slots");
        }
        let (allocating, freeing) = most(&mut slab, live, |_| Layout::new(64));
        std::println!("{live} live: {allocating} and {freeing} steps");
        assert!(allocating.max(freeing) <= 6 * 6, "{live} live: {allocating}, {freeing}");
    }
}
