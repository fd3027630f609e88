//! Which regions to empty, and in which order. Pure.
//!
//! A region is what the driver takes back as a whole: a block, or a page of a paged pool, or several made as one.
#![forbid(unsafe_code)]
use crate::pool::SlotId;
use crate::strategy::BlockId;
use crate::{Align, Class, Span};
use alloc::vec::Vec;

/// Bytes that may be copied for each byte of a page that becomes free.
///
/// An allocation of many pages shares only its first and last with others: moving it for these is not worth it.
const MOST_PER_PAGE: u64 = 8;

/// Holes of a block are closed when this part of its free bytes is outside the largest, or more.
///
/// What closing brings is then well above that, so work at the edge does not start it again and again.
const SCATTERED: u64 = 4;

/// An allocation that may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resident {
    pub(super) slot: SlotId,
    pub(super) block: BlockId,
    pub(super) span: Span,
    pub(super) align: Align,
    pub(super) class: Class,
}

/// What the driver takes back as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Region {
    /// The block's number, or the position of its first page.
    pub(super) number: u64,
    /// Bytes of it.
    pub(super) size: u64,
    /// Bytes of everything that touches it.
    pub(super) live: u64,
    /// Whether something in it cannot move.
    pub(super) stays: bool,
    /// How many could move.
    pub(super) movable: u64,
    /// What would have to move; of blocks this is found out when it is their turn.
    pub(super) residents: Vec<Resident>,
    /// Bytes in holes, of a block.
    pub(super) free: u64,
    /// Bytes of the largest hole, of a block.
    pub(super) largest_hole: u64,
    /// Bytes of all that begins in it and may move, of pages.
    pub(super) begins: u64,
    /// Bytes of all that ends in it and may move, of pages.
    pub(super) ends: u64,
}

impl Region {
    /// Copies for each byte gained, in thousandths.
    fn price(&self) -> u64 {
        let price = u128::from(self.live) * 1024 / u128::from(self.size.max(1));
        u64::try_from(price).unwrap_or(u64::MAX)
    }

    fn may_be_emptied(&self) -> bool {
        let dear = self.live > self.size.saturating_mul(MOST_PER_PAGE);
        !self.stays && self.movable > 0 && !dear
    }

    /// Free bytes outside the largest hole.
    const fn scattered(&self) -> u64 {
        self.free - self.largest_hole
    }

    fn is_worth_closing(&self) -> bool {
        let scattered = self.scattered();
        scattered > 0 && scattered >= self.free / SCATTERED && self.movable > 0
    }
}

/// The regions that can be emptied, the cheapest first.
///
/// That makes every pass go on where the one before it stopped, so passes end.
pub(super) fn sources(regions: &[Region]) -> Vec<usize> {
    let mut order: Vec<usize> =
        (0..regions.len()).filter(|at| regions[*at].may_be_emptied()).collect();
    order.sort_by_key(|at| (regions[*at].price(), regions[*at].number));
    order
}

/// The blocks whose holes can be closed, the most scattered first.
pub(super) fn scattered(regions: &[Region]) -> Vec<usize> {
    let mut order: Vec<usize> =
        (0..regions.len()).filter(|at| regions[*at].is_worth_closing()).collect();
    order.sort_by_key(|at| (u64::MAX - regions[*at].scattered(), regions[*at].number));
    order
}

/// Sorts what moves out of a region: the largest is the hardest to place. When it has a place, the others will find
/// one, and when it has none, nothing was moved in vain.
pub(super) fn largest_first(residents: &mut [Resident]) {
    // Many are often of one size: then there is nothing to sort.
    residents.sort_by_key(|one| u64::MAX - one.span.size);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(number: u64, size: u64, sizes: &[u64], stays: bool) -> Region {
        let resident = |(index, size): (u32, &u64)| Resident {
            slot: SlotId { index, generation: 0 },
            block: BlockId(0),
            span: Span { offset: u64::from(index) * 100, size: *size },
            align: Align::ONE,
            class: Class::Linear,
        };
        let residents = (0u32..).zip(sizes).map(resident).collect();
        let movable = sizes.len() as u64;
        Region {
            number,
            size,
            live: sizes.iter().sum(),
            stays,
            movable,
            residents,
            ..Region::default()
        }
    }

    #[test]
    fn the_least_used_is_emptied_first_and_its_largest_moves_first() {
        let mut regions = [
            region(0, 100, &[50], false),
            region(1, 100, &[1, 9, 4], false),
            region(2, 10, &[9], false),
        ];
        assert_eq!(sources(&regions), [1, 0, 2]);
        largest_first(&mut regions[1].residents);
        let sizes: Vec<_> = regions[1].residents.iter().map(|one| one.span.size).collect();
        assert_eq!(sizes, [9, 4, 1]);
    }

    #[test]
    fn holes_are_closed_where_they_are_scattered_and_something_can_move() {
        let holes = |number, free, largest_hole, sizes: &[u64]| Region {
            free,
            largest_hole,
            ..region(number, 1000, sizes, true)
        };
        let regions = [
            holes(0, 400, 400, &[9]),
            holes(1, 400, 301, &[9]),
            holes(2, 400, 300, &[9]),
            holes(3, 400, 100, &[]),
            holes(4, 400, 100, &[9]),
        ];
        assert_eq!(scattered(&regions), [4, 2]);
    }

    #[test]
    fn what_cannot_or_need_not_be_emptied_is_left_alone() {
        let regions = [
            region(0, 100, &[50], true),
            region(1, 100, &[], false),
            region(2, 100, &[801], false),
            region(3, 100, &[800], false),
        ];
        assert_eq!(sources(&regions), [3]);
    }
}
