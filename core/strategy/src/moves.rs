//! Plans of moves: which live spans go where, so that a hole, a block or a page becomes free.
//!
//! The planners are pure. They see the pieces of one block, or extents with their sums, and return moves; the caller,
//! which holds the blocks, reserves the places, copies and commits.
mod down;
mod extents;
mod window;

#[cfg(test)]
mod tests;

pub use down::move_down;
pub use extents::{pack, scattered, sources};
pub use window::{cheapest, last, widest};

use alloc::vec::Vec;
use omniheap_seam::{Align, ErrorKind, Span};

/// A piece of a block. The pieces of a block are adjacent and in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<T> {
    /// Free bytes.
    Hole(Span),
    /// May move to a multiple of its alignment.
    Movable(Span, Align, T),
    /// An allocation that may not move.
    Fixed,
}

/// One move towards the start of its block: into a lower hole, or over the hole before it (a slide).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveDown<T> {
    /// Data that moves.
    pub what: T,
    /// Its present span.
    pub from: Span,
    /// The offset to which it goes.
    pub to: u64,
}

/// Slides in one stretch of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window<T> {
    /// Lowest first: each moves into bytes that are free by then.
    pub slides: Vec<MoveDown<T>>,
    /// Holes that must stay free until the slides are done.
    pub holes: Vec<Span>,
    /// Bytes that move.
    pub bytes: u64,
}

/// A window, `None` where no window meets the goal, or `OutOfHostMemory`.
pub type Planned<T> = Result<Option<Window<T>>, ErrorKind>;

/// Memory that a driver takes back as a whole: a block, a page, or a page group. `R` are allocations that may move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent<R> {
    /// The block's number, or the position of its first page.
    pub number: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Bytes of all allocations that touch it.
    pub live: u64,
    /// True if an allocation in it cannot move.
    pub stays: bool,
    /// The number of allocations that may move.
    pub movable: u64,
    /// The allocations that may move, where the owner of the extent lists them.
    pub residents: Vec<R>,
    /// Bytes in holes; only for blocks.
    pub free: u64,
    /// Bytes of the largest hole; only for blocks.
    pub largest_hole: u64,
    /// Bytes of movable allocations that begin in it, side by side with others as aligned; only for pages.
    pub begins: u64,
    /// As `begins`, of those that end in it; only for pages.
    pub ends: u64,
}

impl<R> Extent<R> {
    /// An extent in which nothing lives.
    #[must_use]
    pub const fn new(number: u64, size: u64) -> Self {
        let residents = Vec::new();
        let [live, movable, free, largest_hole, begins, ends] = [0; 6];
        let stays = false;
        Self { number, size, live, stays, movable, residents, free, largest_hole, begins, ends }
    }
}

/// The longest stretch of holes; holes of several users can touch.
fn longest_hole<T>(pieces: &[Piece<T>]) -> u64 {
    let (mut longest, mut sum) = (0, 0);
    for piece in pieces {
        sum = if let Piece::Hole(hole) = piece { sum + hole.size } else { 0 };
        longest = sum.max(longest);
    }
    longest
}

/// An empty list with room. Allocation failures are reported, because slides are made when memory is short.
///
/// # Errors
///
/// `OutOfHostMemory`.
pub fn room_for<T>(count: usize) -> Result<Vec<T>, ErrorKind> {
    let mut list = Vec::new();
    list.try_reserve_exact(count).map_err(|_| ErrorKind::OutOfHostMemory)?;
    Ok(list)
}
