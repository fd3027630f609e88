//! Strategies: algorithms that suballocate blocks. They know sizes and offsets, and nothing of devices.
//!
//! A strategy divides a *set* of blocks, so that one search covers all of them: a pool with a thousand blocks finds a
//! hole as fast as a pool with one. Every strategy also works alone, as an offset allocator.
//!
//! Implement [`Strategy`] for an algorithm of your own, and create a pool with it: `Manager::create_pool_with`.
//!
//! [`moves`] plans which live spans to move, and [`pages`] knows which addresses of a block have memory.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
extern crate alloc;

mod blocks;
mod buddy;
mod checked;
mod keys;
mod linear;
mod max_tree;
pub mod moves;
pub mod pages;
mod ring;
mod slab;
mod tlsf;

pub use buddy::Buddy;
pub use checked::Checked;
pub use linear::{Bump, Stack};
pub use ring::Ring;
pub use slab::Slab;
pub use tlsf::{LastUse, Tlsf};

use core::fmt;
use omniheap_seam::{Class, ErrorKind, Layout, Span};

/// The id of a block: 0 for the first, then 1, 2 and so on. Ids of removed blocks are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// The key of a live span: an index, and a stamp that tells it from earlier spans at the same index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    index: u32,
    stamp: u32,
}

impl Key {
    /// Creates a key, for a strategy of your own: `index` finds the span, `stamp` tells it from earlier ones.
    #[must_use]
    pub const fn new(index: u32, stamp: u32) -> Self {
        Self { index, stamp }
    }

    /// Returns the index, which finds the span.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Returns the stamp, which tells the span from earlier ones at the same index.
    #[must_use]
    pub const fn stamp(self) -> u32 {
        self.stamp
    }
}

/// A suballocation: a span of a block, and the key that frees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The block.
    pub block: BlockId,
    /// The bytes in the block: the requested size, or more where the algorithm rounds up.
    pub span: Span,
    /// The key that frees it.
    pub key: Key,
}

/// Suballocates blocks into spans that never overlap.
///
/// A type that implements it can serve a pool: see `Manager::create_pool_with`. It must keep the contract of each method,
/// and these rules:
///
/// * Two live spans have no byte in common.
/// * Spans of different [`Class`] in one block share no granule: the last byte of one and the first byte of the other are
///   in different granules. The pool passes the granularity when it creates the strategy.
/// * A live key is not given out a second time. [`Key::new`]`(u32::MAX, u32::MAX)` is reserved.
/// * A refused call changes nothing.
/// * No method panics, and none calls the manager: the pool's lock is held.
///
/// # What a pool checks
///
/// A pool checks every grant of a strategy from outside. The block must be known, the span must lie inside it, be large
/// enough and aligned, and the key must be new. It also counts the live spans of each block. Otherwise the grant is freed, the
/// request fails with `BadStrategy`, and the log says what was wrong. A live span that [`free`](Self::free) refuses to free
/// is logged and lost until the pool ends.
///
/// A pool does not check for overlap or for neighbours of different class. Two allocations that overlap overwrite each
/// other's contents, on the host and on the device. Nothing outside the block is touched.
pub trait Strategy: fmt::Debug + Send {
    /// Adds a block of `size` bytes to divide.
    ///
    /// * All of the block is free.
    /// * Its id is the lowest that is not in use.
    ///
    /// # Errors
    ///
    /// `ZeroSize`; `ExceedsLimit` when the algorithm cannot divide this size, or not another block;
    /// `OutOfHostMemory` when the bookkeeping cannot grow.
    fn add_block(&mut self, size: u64) -> Result<BlockId, ErrorKind>;

    /// Removes a block in which nothing is live.
    ///
    /// * Nothing is granted from it any more.
    /// * The next block may get its id; keys from before stay stale.
    ///
    /// # Errors
    ///
    /// `Busy` when a span of it is live, `Stale` when there is no such block.
    fn remove_block(&mut self, block: BlockId) -> Result<(), ErrorKind>;

    /// Allocates a span of any block. `class` matters only where the device keeps different classes apart.
    ///
    /// * The span has at least `layout.size` bytes and starts at a multiple of `layout.align`.
    /// * The span lies inside its block.
    /// * Its key is live until it is freed.
    ///
    /// # Errors
    ///
    /// `ZeroSize`; `ExceedsLimit` when no block could ever hold it; `OutOfDeviceMemory` when too few bytes are free;
    /// `Fragmented` when enough are free but scattered. A failed call changes nothing.
    fn allocate(&mut self, layout: Layout, class: Class) -> Result<Grant, ErrorKind>;

    /// Frees a span, and returns the grant that [`allocate`](Self::allocate) gave.
    ///
    /// * The key is stale from then on.
    /// * The bytes may be granted again, at once or later.
    ///
    /// # Errors
    ///
    /// `Stale` when the key is not live. A live key is always freed; an algorithm that reuses bytes in order keeps them back
    /// until their turn.
    fn free(&mut self, key: Key) -> Result<Grant, ErrorKind>;

    /// Returns the grant of a live key, as it was given.
    ///
    /// # Errors
    ///
    /// `Stale` when the key is not live.
    fn grant(&self, key: Key) -> Result<Grant, ErrorKind>;

    /// Returns the bytes used and free, and the largest hole. May cost a search; not for hot paths.
    ///
    /// * The sums agree with [`for_each`](Self::for_each).
    fn usage(&self) -> Usage;

    /// Returns whether nothing of the block is live. An unknown block is not empty.
    fn is_empty(&self, block: BlockId) -> bool;

    /// Visits every piece of every block.
    ///
    /// * Blocks come in the order of their ids, pieces in the order of their offsets.
    /// * The pieces of a block leave no gap and do not overlap; none is empty.
    fn for_each(&self, visit: &mut dyn FnMut(Piece));

    /// Checks every internal invariant by a full walk. For tests and reports.
    ///
    /// # Errors
    ///
    /// A sentence that says what is broken.
    fn validate(&self) -> Result<(), &'static str>;

    /// Returns the interface for spans at chosen places, if the algorithm has one.
    fn as_take(&mut self) -> Option<&mut dyn TakeSpan> {
        None
    }
}

/// Allocates spans at places that the caller chooses.
pub trait TakeSpan {
    /// Allocates exactly `span` of `block`, for linear data.
    ///
    /// * The grant has this block and this span.
    ///
    /// # Errors
    ///
    /// `Stale` for an unknown block, `ZeroSize`, `OutOfRange`, `Busy` when part of the span is live;
    /// `OutOfHostMemory` when the bookkeeping cannot grow. A failed call changes nothing.
    fn take(&mut self, block: BlockId, span: Span) -> Result<Grant, ErrorKind>;
}

/// A live span, a hole, or bytes lost to rounding, as seen by [`Strategy::for_each`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The block.
    pub block: BlockId,
    /// The bytes.
    pub span: Span,
    /// The state of the bytes.
    pub state: PieceState,
}

/// The state of a [`Piece`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceState {
    /// Allocated; this key frees it.
    Live(Key),
    /// Free.
    Hole,
    /// Neither: skipped for alignment or rounding. It becomes free together with a neighbour.
    Padding,
}

/// The usage of all blocks of a strategy together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of all blocks.
    pub total: u64,
    /// Bytes allocated.
    pub used: u64,
    /// Bytes in holes; padding is neither used nor free.
    pub free: u64,
    /// The largest hole.
    pub largest_hole: u64,
    /// Live spans.
    pub live: u64,
    /// Holes.
    pub holes: u64,
}

impl Usage {
    /// Counts a piece: for strategies that walk over what they hold.
    pub fn add(&mut self, Piece { span, state, .. }: Piece) {
        self.total += span.size;
        match state {
            PieceState::Live(_) => (self.used, self.live) = (self.used + span.size, self.live + 1),
            PieceState::Hole => {
                (self.free, self.holes) = (self.free + span.size, self.holes + 1);
                self.largest_hole = self.largest_hole.max(span.size);
            }
            PieceState::Padding => {}
        }
    }
}

/// Says why no hole can hold `need` bytes, rounded as the strategy rounds them.
const fn refusal(need: u64, largest_block: u64, free: u64) -> ErrorKind {
    if need > largest_block {
        ErrorKind::ExceedsLimit
    } else if need > free {
        ErrorKind::OutOfDeviceMemory
    } else {
        ErrorKind::Fragmented
    }
}

/// Checks what every strategy promises: pieces tile the blocks, and `usage` and `is_empty` agree with them.
fn validate_pieces(strategy: &dyn Strategy) -> Result<(), &'static str> {
    let (mut sums, mut tiled, mut counted) = (Usage::default(), true, true);
    // The last piece, and whether its block has a live span so far.
    let (mut last, mut live) = (None::<Piece>, false);
    let agrees = |last: Option<Piece>, live: bool| {
        last.is_none_or(|last| strategy.is_empty(last.block) != live)
    };
    strategy.for_each(&mut |piece| {
        let before = last.filter(|last| last.block == piece.block);
        if before.is_none() {
            counted &= agrees(last, live);
            live = false;
        }
        tiled &= piece.span.offset == before.map_or(0, |before| before.span.end());
        tiled &= piece.span.size > 0 && last.is_none_or(|last| last.block <= piece.block);
        live |= matches!(piece.state, PieceState::Live(_));
        sums.add(piece);
        last = Some(piece);
    });
    if !tiled {
        Err("the pieces do not tile the blocks")
    } else if !counted || !agrees(last, live) {
        Err("a block's count of live spans is wrong")
    } else if sums != strategy.usage() {
        Err("the usage disagrees with the pieces")
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod steps {
    //! Tests that count the steps of single calls, for ten and for a million live spans.
    use super::moves::{Piece, cheapest};
    use super::{Buddy, Key, LastUse, Slab, Strategy, Tlsf};
    use alloc::vec::Vec;
    use core::cell::Cell;
    use omniheap_seam::{Align, Class, Layout, Span};

    std::thread_local! {
        static STEPS: Cell<u64> = const { Cell::new(0) };
    }

    /// Counts one access to a node, a list or a word of bits.
    pub(super) fn count() {
        STEPS.set(STEPS.get() + 1);
    }

    /// Numbers of live spans. Miri looks at each access, and is thousands of times slower.
    const LIVE: [usize; 3] = match () {
        () if cfg!(miri) => [10, 50, 250],
        () if cfg!(debug_assertions) => [10, 1000, 50_000],
        () => [10, 1000, 1_000_000],
    };
    /// Measured calls at each number.
    const CALLS: usize = if cfg!(miri) { 200 } else { 20_000 };

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
        for (granularity, live) in
            [1, 1024].into_iter().flat_map(|unit| LIVE.map(|live| (unit, live)))
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

    /// Returns the steps of one call.
    fn steps<R>(call: impl FnOnce() -> R) -> (R, u64) {
        STEPS.set(0);
        let result = call();
        (result, STEPS.get())
    }

    #[test]
    fn holes_of_two_users_that_touch_are_each_looked_at_once() {
        let (granule, size) = (1024, 256);
        for count in [50, 500, 5000] {
            let mut tlsf = Tlsf::new(Align::of(granule));
            tlsf.add_block(count * size).expect("a block of any size");
            let keys: Vec<Key> = (0..count)
                .map(|_| tlsf.allocate(Layout::new(size), Class::Linear).expect("room").key)
                .collect();
            for (number, key) in (0u16..).zip(keys) {
                let last_use = LastUse::new(1 + number % 2, 1);
                tlsf.free_used(key, last_use).expect("it is live");
            }
            assert_eq!(tlsf.usage().holes, count, "two users still use them");
            // The holes that share a granule with an end of the hole, and a step from hole to hole.
            let each = 2 * (granule / size + 1) + 2;
            for (size, most) in [(size + 1, 2), (2 * size, 2), (size, each)] {
                let layout = Layout::new(size);
                let may = |_| size > 256;
                let (refused, few) = steps(|| tlsf.allocate_where(layout, Class::Tiled, may));
                assert!(refused.is_err() && few <= 10 * each, "{count} holes: {few} steps");
                let (refused, all) = steps(|| tlsf.search_where(layout, Class::Tiled, may));
                std::println!("{count} holes, {size} bytes: {few} and {all} steps");
                assert!(
                    refused.is_err() && all <= few + most * count + 10,
                    "{count} holes: {all} steps"
                );
            }
        }
    }

    /// Returns `count` movable pieces of 64 KiB, each behind a hole that is no multiple of their alignment, and the
    /// free bytes.
    fn scattered(count: u64, align: Align) -> (Vec<Piece<()>>, u64) {
        let (mut pieces, mut at, mut free) = (Vec::new(), 0, 0);
        for number in 0..count {
            let hole = (1 << 16) + 16 * (number * 7919 % 4096);
            let movable = align.up(at + hole).expect("a small block");
            pieces.push(Piece::Hole(Span { offset: at, size: movable - 16 - at }));
            pieces.push(Piece::Movable(Span { offset: movable - 16, size: 16 }, Align::of(16), ()));
            pieces.push(Piece::Movable(Span { offset: movable, size: 1 << 16 }, align, ()));
            free += movable - 16 - at;
            at = movable + (1 << 16);
        }
        pieces.push(Piece::Hole(Span { offset: at, size: 16 }));
        (pieces, free)
    }

    #[test]
    fn the_cheapest_window_takes_the_same_steps_for_each_piece_of_a_large_block() {
        let counts: &[u64] = if cfg!(miri) { &[600] } else { &[600, 4000, 32_000] };
        for (&count, align) in counts.iter().flat_map(|count| [(count, 256), (count, 1 << 16)]) {
            let (pieces, free) = scattered(count, Align::of(align));
            for size in [1 << 20, free / 2, free * 3 / 4, free] {
                let (window, steps) = steps(|| cheapest(&pieces, size));
                let is_found = window.expect("host memory").is_some();
                std::println!("{count} holes, align {align}, {size} bytes: {is_found}, {steps}");
                assert!(steps <= 300 * count, "{count} holes: {steps} steps");
            }
        }
    }

    #[test]
    fn buddies_look_a_few_times_at_each_power_of_two() {
        for live in LIVE {
            let (block, unit) = (1u64 << 36, 256);
            let mut buddy = Buddy::new(Align::of(unit), Align::ONE);
            buddy.add_block(block).expect("a power of two");
            let (allocating, freeing) =
                most(&mut buddy, live, |numbers| Layout::new(numbers.size()));
            let powers = u64::from((block / unit).ilog2());
            std::println!(
                "{live} live: {allocating} and {freeing} steps over {powers} powers of two"
            );
            assert!(allocating.max(freeing) <= 6 * powers, "{live} live: {allocating}, {freeing}");
        }
    }

    #[test]
    fn slabs_look_at_one_word_a_level() {
        for live in LIVE {
            let mut slab = Slab::new(Layout::new(64), Align::ONE).expect("a slot of some bytes");
            let block = if cfg!(miri) { 1 << 13 } else { 1 << 25 };
            for _ in 0..8 {
                slab.add_block(block).expect("a block of half a million slots");
            }
            let (allocating, freeing) = most(&mut slab, live, |_| Layout::new(64));
            std::println!("{live} live: {allocating} and {freeing} steps");
            assert!(allocating.max(freeing) <= 6 * 6, "{live} live: {allocating}, {freeing}");
        }
    }
}
