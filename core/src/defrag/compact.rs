//! Compacting blocks that stay: allocations high in a block move into its lower holes, so that one long hole is left.
//!
//! No allocation moves over its own bytes or over those of another, so every old place stays valid until all copies are
//! made, as a pass promises. An allocation that fits no hole below it stays, and bounds the long hole.
#![forbid(unsafe_code)]
use super::budget::BudgetMeter;
use super::moves::{MoveList, Started, TOGETHER};
use super::planner::LanePlanner;
use crate::lane::{Inside, MoveDown, Piece, Region, Resident};
use crate::{Align, Backend, Class, Span};
use alloc::vec::Vec;
use omniheap_strategy::Key;

/// A block is compacted when at least one part in this many of its free bytes is outside the largest hole.
///
/// Compacting then gains well above that, so a workload at the edge does not start it again and again.
const SCATTERED: u64 = 4;

impl<B: Backend> LanePlanner<B> {
    /// Plans moves inside blocks, the most scattered first.
    pub(super) fn compact_blocks(&mut self, meter: &mut BudgetMeter, moves: &mut MoveList<B>) {
        while !meter.is_empty()
            && !meter.is_late()
            && let Some(at) = self.order.pop()
        {
            let Inside { mut residents, holes, .. } = self.look_into(at, true);
            residents.retain(|resident| resident.class == Class::Linear);
            residents.sort_unstable_by_key(|resident| resident.span.offset);
            let granularity = self.lane.shared.device.backend().caps().neighbour_granularity;
            let down = move_down(&pieces(&residents, &holes), granularity);
            for few in down.chunks(TOGETHER) {
                let goes_on = self.plan_moves_down(few, &residents, &holes, meter, moves);
                if !goes_on || meter.is_late() {
                    return;
                }
            }
        }
    }

    /// Plans a few moves under the lock; returns whether the budget allows more. Allocations that changed since the
    /// snapshot stay where they are.
    fn plan_moves_down(
        &self,
        few: &[MoveDown<usize>],
        residents: &[Resident],
        holes: &[(Key, Span)],
        meter: &mut BudgetMeter,
        moves: &mut MoveList<B>,
    ) -> bool {
        let Some(mut guard) = self.lock(&self.lane) else { return false };
        few.iter().all(|one| {
            // Holes are in order, and the last one that begins at or before the target contains it.
            let hole = holes.partition_point(|(_, hole)| hole.offset <= one.to) - 1;
            let to = Span { offset: one.to, size: one.from.size };
            let started = moves.try_start(&mut guard, &residents[one.what], meter, |guard| {
                guard.reserve_in(holes[hole].0, to)
            });
            started != Started::OverBudget
        })
    }
}

/// The pieces of a block. Everything that is neither a hole nor a movable allocation is fixed.
fn pieces(residents: &[Resident], holes: &[(Key, Span)]) -> Vec<Piece<usize>> {
    let mut pieces = Vec::with_capacity(residents.len() + holes.len());
    let (mut end, mut next_hole) = (0, 0);
    let mut add = |piece: Piece<usize>, span: Span| {
        if span.offset > end {
            pieces.push(Piece::Fixed);
        }
        pieces.push(piece);
        end = span.end();
    };
    for (at, resident) in residents.iter().enumerate() {
        while let Some((_, hole)) =
            holes.get(next_hole).filter(|(_, hole)| hole.offset < resident.span.offset)
        {
            add(Piece::Hole(*hole), *hole);
            next_hole += 1;
        }
        add(Piece::Movable(resident.span, resident.align, at), resident.span);
    }
    holes[next_hole..].iter().for_each(|(_, hole)| add(Piece::Hole(*hole), *hole));
    pieces
}

/// The blocks whose holes are worth closing, the most scattered first.
pub(super) fn scattered(regions: &[Region]) -> Vec<usize> {
    let outside = |region: &Region| region.free - region.largest_hole;
    let is_worth_closing = |region: &Region| {
        let bytes = outside(region);
        bytes > 0 && bytes >= region.free / SCATTERED && region.movable > 0
    };
    let mut order: Vec<usize> =
        (0..regions.len()).filter(|at| is_worth_closing(&regions[*at])).collect();
    order.sort_by_key(|at| (u64::MAX - outside(&regions[*at]), regions[*at].number));
    order
}

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
pub(super) fn move_down<T: Copy>(pieces: &[Piece<T>], granularity: Align) -> Vec<MoveDown<T>> {
    let mut holes = HoleTree::new(pieces, granularity);
    let largest = holes.whole.iter().map(|hole| hole.size).max().unwrap_or(0);
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
    holes: &mut HoleTree,
) -> (Stretch<T>, usize) {
    let mut stretch = Stretch { moves: Vec::new(), bytes: 0 };
    for (at, piece) in pieces.iter().enumerate().rev() {
        match piece {
            Piece::Fixed => return (stretch, at),
            Piece::Hole(whole) => {
                *above -= 1;
                let left = holes.left(*above);
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
struct HoleTree {
    whole: Vec<Span>,
    /// A max tree over the bytes left; the holes are its leaves.
    left: Vec<u64>,
    leaves: usize,
    taken: Vec<usize>,
    granularity: Align,
}

impl HoleTree {
    fn new<T>(pieces: &[Piece<T>], granularity: Align) -> Self {
        let hole = |piece: &Piece<T>| match piece {
            Piece::Hole(span) => Some(*span),
            _ => None,
        };
        let whole: Vec<Span> = pieces.iter().filter_map(hole).collect();
        let leaves = whole.len().next_power_of_two();
        let left = alloc::vec![0; leaves * 2];
        let mut holes = Self { whole, left, leaves, taken: Vec::new(), granularity };
        for at in 0..holes.whole.len() {
            holes.left[leaves + at] = holes.whole[at].size;
        }
        for node in (1..leaves).rev() {
            holes.left[node] = holes.left[node * 2].max(holes.left[node * 2 + 1]);
        }
        holes
    }

    fn left(&self, hole: usize) -> u64 {
        self.left[self.leaves + hole]
    }

    fn set_left(&mut self, hole: usize, bytes: u64) {
        let mut node = self.leaves + hole;
        self.left[node] = bytes;
        while node > 1 {
            node /= 2;
            self.left[node] = self.left[node * 2].max(self.left[node * 2 + 1]);
        }
    }

    /// The lowest hole from `first` on with at least `bytes` left.
    fn find(&self, first: usize, bytes: u64) -> Option<usize> {
        let mut node = self.leaves + first;
        while self.left[node] < bytes {
            // To the next subtree on the right, or out at the top.
            while node & 1 == 1 {
                node /= 2;
            }
            if node == 0 {
                return None;
            }
            node += 1;
        }
        while node < self.leaves {
            node *= 2;
            node += usize::from(self.left[node] < bytes);
        }
        Some(node - self.leaves)
    }

    /// Takes the start of the lowest of the first `count` holes that has room; returns the offset.
    fn take(&mut self, count: usize, size: u64, align: Align) -> Option<u64> {
        let mut first = 0;
        for _ in 0..TRIES {
            let hole = self.find(first, size).filter(|hole| *hole < count)?;
            let end = self.whole[hole].end();
            let free_from = end - self.left(hole);
            let start = align.max(self.granularity).up(free_from)?;
            // The neighbour behind the hole may be of another class, so the end keeps out of its granule.
            if start.checked_add(size)? <= self.granularity.down(end) {
                // Carving behind a gap loses the key of the rest.
                let left = if start == free_from { end - start - size } else { 0 };
                self.set_left(hole, left);
                self.taken.push(hole);
                return Some(start);
            }
            first = hole + 1;
            if first >= self.leaves {
                return None;
            }
        }
        None
    }

    /// Makes every hole whole again.
    fn restore(&mut self) {
        for hole in core::mem::take(&mut self.taken) {
            self.set_left(hole, self.whole[hole].size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_finds_the_lowest_hole_with_room() {
        let mut state = 3u64;
        let mut below = |end: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % end
        };
        for count in [1, 2, 3, 5, 8, 13] {
            let piece = |n: u64| Piece::<u32>::Hole(Span { offset: n * 100, size: 50 });
            let pieces: Vec<_> = (0..count).map(piece).collect();
            let mut holes = HoleTree::new(&pieces, Align::ONE);
            let mut left: Vec<_> = (0..count).map(|_| 50).collect();
            for _ in 0..300 {
                let [at, first] = [(); 2].map(|()| usize::try_from(below(count)).unwrap());
                left[at] = below(51);
                holes.set_left(at, left[at]);
                let wanted = 1 + below(60);
                let expected = (first..left.len()).find(|at| left[*at] >= wanted);
                assert_eq!(
                    holes.find(first, wanted),
                    expected,
                    "{wanted} from {first} in {left:?}"
                );
            }
        }
    }

    #[test]
    fn holes_are_closed_where_they_are_scattered_and_something_can_move() {
        let holes = |number, free, largest_hole, movable| Region {
            number,
            size: 1000,
            stays: true,
            free,
            largest_hole,
            movable,
            ..Region::default()
        };
        let regions = [
            holes(0, 400, 400, 1),
            holes(1, 400, 301, 1),
            holes(2, 400, 300, 1),
            holes(3, 400, 100, 0),
            holes(4, 400, 100, 1),
        ];
        assert_eq!(scattered(&regions), [4, 2]);
    }
}
