//! Moves of allocations high in a block into its lower holes, so that one long hole is left.
use super::{MoveDown, Piece, longest_hole};
use crate::max_tree::MaxTree;
use alloc::vec::Vec;
use omniheap_seam::{Align, ErrorKind, Span};

/// Bytes that may be copied for each byte that the largest hole gains.
const MOST_PER_BYTE: u64 = 4;
/// Holes that are large enough but badly aligned which are tried for one allocation.
const TRIES: usize = 8;

/// Moves out of one stretch of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stretch<T> {
    moves: Vec<MoveDown<T>>,
    /// Bytes that the stretch has when all moves are made: all of them free.
    bytes: u64,
}

/// The moves that make the longest hole of a block, highest first; none where they cost more than they gain.
///
/// # Algorithm
///
/// From the top down, each allocation goes to the lowest hole that it fits into. A stretch ends at an allocation that
/// cannot move or fits no hole below, and at a hole that something went into. The longest stretch wins.
///
/// Every move goes down, so passes that make only some of them end all the same.
///
/// # Cost
///
/// *O*(n log n) for n pieces.
#[must_use]
pub fn move_down<T: Copy>(pieces: &[Piece<T>], granularity: Align) -> Vec<MoveDown<T>> {
    let Ok(mut holes) = Holes::new(pieces, granularity) else { return Vec::new() };
    let largest = longest_hole(pieces);
    let mut best = Stretch { moves: Vec::new(), bytes: largest };
    let (mut end, mut above) = (pieces.len(), holes.whole.len());
    while end > 0 {
        let (stretch, first) = clear(&pieces[..end], &mut above, &mut holes);
        let moved: u64 = stretch.moves.iter().map(|one| one.from.size).sum();
        if stretch.bytes > best.bytes && moved <= (stretch.bytes - largest) * MOST_PER_BYTE {
            best = stretch;
        }
        holes.restore();
        end = first;
    }
    best.moves
}

/// Clears the stretch at the end of some pieces; returns it, and where the pieces below its bound end.
///
/// `above` is the number of holes among the pieces.
fn clear<T: Copy>(
    pieces: &[Piece<T>],
    above: &mut usize,
    holes: &mut Holes,
) -> (Stretch<T>, usize) {
    let mut stretch = Stretch { moves: Vec::new(), bytes: 0 };
    for (at, piece) in pieces.iter().enumerate().rev() {
        match piece {
            Piece::Fixed => return (stretch, at),
            Piece::Hole(whole) => {
                *above -= 1;
                let left = holes.left.get(*above);
                stretch.bytes += left;
                if left < whole.size {
                    return (stretch, at);
                }
            }
            Piece::Movable(span, align, what) => {
                let Some(to) = holes.take(*above, span.size, *align) else {
                    return (stretch, at);
                };
                stretch.bytes += span.size;
                stretch.moves.push(MoveDown { what: *what, from: *span, to });
            }
        }
    }
    (stretch, 0)
}

/// The holes of a block, and the bytes left in each.
struct Holes {
    whole: Vec<Span>,
    left: MaxTree,
    taken: Vec<usize>,
    granularity: Align,
}

impl Holes {
    fn new<T>(pieces: &[Piece<T>], granularity: Align) -> Result<Self, ErrorKind> {
        let hole = |piece: &Piece<T>| match piece {
            Piece::Hole(span) => Some(*span),
            _ => None,
        };
        let whole: Vec<Span> = pieces.iter().filter_map(hole).collect();
        let mut left = MaxTree::new();
        left.grow(whole.len())?;
        whole.iter().enumerate().for_each(|(at, hole)| left.set(at, hole.size));
        Ok(Self { whole, left, taken: Vec::new(), granularity })
    }

    /// Takes the start of the lowest of the first `count` holes that has room; returns the offset.
    fn take(&mut self, count: usize, size: u64, align: Align) -> Option<u64> {
        let mut first = 0;
        for _ in 0..TRIES {
            let hole = self.left.first(first, size).filter(|hole| *hole < count)?;
            let end = self.whole[hole].end();
            let free_from = end - self.left.get(hole);
            let start = align.max(self.granularity).up(free_from)?;
            // The neighbour behind the hole may be of another class, so the end keeps out of its granule.
            if start.checked_add(size)? <= self.granularity.down(end) {
                // Carving behind a gap loses the key of the rest.
                let left = if start == free_from { end - start - size } else { 0 };
                self.left.set(hole, left);
                self.taken.push(hole);
                return Some(start);
            }
            first = hole + 1;
        }
        None
    }

    /// Makes every hole whole again.
    fn restore(&mut self) {
        for hole in core::mem::take(&mut self.taken) {
            self.left.set(hole, self.whole[hole].size);
        }
    }
}
