//! The checks that every transfer passes before it is submitted, on every backend. Pure.
#![forbid(unsafe_code)]
use super::Move;
use crate::{CopyCaps, ErrorKind, InsideBlock, Result};
use alloc::vec::Vec;

impl CopyCaps {
    /// Checks that `offset..offset + size` lies inside a block of `block` bytes and is aligned.
    ///
    /// # Errors
    ///
    /// `OutOfRange`, `Misaligned`.
    pub fn check_range(&self, block: u64, offset: u64, size: u64) -> Result<()> {
        if offset.checked_add(size).is_none_or(|end| end > block) {
            return Err(ErrorKind::OutOfRange.into());
        }
        let is_aligned = self.align.divides(offset) && self.align.divides(size);
        if is_aligned { Ok(()) } else { Err(ErrorKind::Misaligned.into()) }
    }

    /// Checks a whole batch: every [`Transfer::copy`](crate::Transfer::copy) calls this before it submits anything.
    ///
    /// `size_of` returns the size of a block, or the reason why it takes no part in copies.
    ///
    /// # Errors
    ///
    /// Those of `size_of`; `OutOfRange` and `Misaligned` as for [`check_range`](Self::check_range); `Overlap` when a
    /// byte is written twice, or read and written; `Unsupported` for a copy inside one block where that is
    /// [forbidden](InsideBlock::Forbidden).
    pub fn check_batch<T>(
        &self,
        moves: &[Move<'_, T>],
        size_of: impl Fn(&T) -> Result<u64>,
    ) -> Result<()> {
        for step in moves {
            self.check_range(size_of(step.from.block)?, step.from.offset, step.size)?;
            self.check_range(size_of(step.to.block)?, step.to.offset, step.size)?;
        }
        if has_overlap(moves) {
            return Err(ErrorKind::Overlap.into());
        }
        let is_inside = |step: &Move<'_, T>| core::ptr::eq(step.from.block, step.to.block);
        match self.inside_block {
            InsideBlock::Forbidden if moves.iter().any(is_inside) => {
                Err(ErrorKind::Unsupported.into())
            }
            _ => Ok(()),
        }
    }
}

/// A range of bytes that a copy reads or writes. Blocks are identified by their host address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Touch {
    block: usize,
    start: u64,
    end: u64,
}

impl Touch {
    /// `offset + size` was checked against the block.
    fn new<T>(block: &T, offset: u64, size: u64) -> Self {
        let block = core::ptr::from_ref(block).addr();
        Self { block, start: offset, end: offset + size }
    }

    fn read<T>(step: &Move<'_, T>) -> Self {
        Self::new(step.from.block, step.from.offset, step.size)
    }

    fn write<T>(step: &Move<'_, T>) -> Self {
        Self::new(step.to.block, step.to.offset, step.size)
    }

    /// One wide number: sorting thousands of them takes half the time of sorting pairs.
    const fn order(&self) -> u128 {
        (self.block as u128) << 64 | self.start as u128
    }

    const fn meets(&self, other: &Self) -> bool {
        self.block == other.block && self.start < other.end && other.start < self.end
    }
}

/// Returns true if a byte is written twice, or read and written.
fn has_overlap<T>(moves: &[Move<'_, T>]) -> bool {
    if let [one] = moves {
        return Touch::read(one).meets(&Touch::write(one));
    }
    let some = || moves.iter().filter(|step| step.size > 0);
    let mut writes: Vec<_> = some().map(Touch::write).collect();
    sort(&mut writes);
    writes.windows(2).any(|pair| pair[0].meets(&pair[1]))
        || meets_any(some().map(Touch::read), &writes)
}

/// Returns true if a read meets one of the writes, which are sorted and disjoint.
fn meets_any(reads: impl Iterator<Item = Touch>, writes: &[Touch]) -> bool {
    // The writes to the block that is read: most reads in a row share it, and often nobody writes there.
    let (mut block, mut there): (_, &[Touch]) = (0, &[]);
    for read in reads {
        if read.block != block {
            let first = writes.partition_point(|write| write.block < read.block);
            let count = writes[first..].partition_point(|write| write.block == read.block);
            (block, there) = (read.block, &writes[first..first + count]);
        }
        // Disjoint writes have their ends in order too.
        let next = there.partition_point(|write| write.end <= read.start);
        if there.get(next).is_some_and(|write| write.start < read.end) {
            return true;
        }
    }
    false
}

/// Sorts by place. A pass fills holes from low to high, block by block, so its sorted rows are moved whole.
fn sort(writes: &mut Vec<Touch>) {
    let rows = writes.chunk_by(|a, b| a.block == b.block && a.start <= b.start);
    let mut rows: Vec<&[Touch]> = rows.collect();
    if rows.len() > 1 && rows.len() < writes.len() / 8 {
        rows.sort_unstable_by_key(|row| row[0].order());
        *writes = rows.concat();
    }
    // Rows that reach into each other, or too short to gain anything.
    if !writes.is_sorted_by_key(Touch::order) {
        writes.sort_unstable_by_key(Touch::order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Align, BlockOffset, Error};

    const BLOCKS: [u64; 2] = [64, 48];
    const ROUNDS: usize = if cfg!(miri) { 100 } else { 4000 };

    fn caps(align: u64, inside_block: InsideBlock) -> CopyCaps {
        CopyCaps { align: Align::of(align), inside_block }
    }

    /// Returns a move of `size` bytes from `from` to `to`, each an index of `BLOCKS` and an offset.
    fn step(from: (usize, u64), to: (usize, u64), size: u64) -> Move<'static, u64> {
        let place = |(block, offset): (usize, u64)| BlockOffset { block: &BLOCKS[block], offset };
        Move { from: place(from), to: place(to), size }
    }

    fn verdict(caps: CopyCaps, moves: &[Move<'_, u64>]) -> Result<(), ErrorKind> {
        caps.check_batch(moves, |block| Ok(*block)).map_err(|error: Error| error.kind())
    }

    #[test]
    fn a_range_is_inside_and_aligned() {
        let check = |offset, size| {
            caps(4, InsideBlock::Allowed).check_range(64, offset, size).map_err(|e| e.kind())
        };
        assert_eq!(check(0, 64), Ok(()));
        assert_eq!(check(64, 0), Ok(()));
        assert_eq!(check(60, 8), Err(ErrorKind::OutOfRange));
        assert_eq!(check(4, u64::MAX - 3), Err(ErrorKind::OutOfRange), "no overflow");
        assert_eq!(check(2, 4), Err(ErrorKind::Misaligned));
        assert_eq!(check(4, 2), Err(ErrorKind::Misaligned));
    }

    #[test]
    fn both_ends_of_every_move_are_checked() {
        let caps = caps(4, InsideBlock::Allowed);
        assert_eq!(verdict(caps, &[step((0, 0), (1, 44), 8)]), Err(ErrorKind::OutOfRange));
        assert_eq!(verdict(caps, &[step((1, 44), (0, 0), 8)]), Err(ErrorKind::OutOfRange));
        assert_eq!(verdict(caps, &[step((0, 2), (1, 0), 8)]), Err(ErrorKind::Misaligned));
        assert_eq!(verdict(caps, &[step((0, 0), (1, 2), 8)]), Err(ErrorKind::Misaligned));
        let foreign = caps.check_batch(&[step((0, 0), (1, 0), 8)], |block| match block {
            48 => Err(ErrorKind::Foreign.into()),
            size => Ok(*size),
        });
        assert_eq!(foreign.map_err(|e| e.kind()), Err(ErrorKind::Foreign));
    }

    #[test]
    fn a_copy_inside_a_block_is_refused_where_it_is_forbidden() {
        let moves = [step((0, 0), (0, 32), 8)];
        assert_eq!(verdict(caps(1, InsideBlock::Allowed), &moves), Ok(()));
        assert_eq!(verdict(caps(1, InsideBlock::Forbidden), &moves), Err(ErrorKind::Unsupported));
    }

    #[test]
    fn the_verdict_is_that_of_every_pair() {
        let mut state = 7u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % bound
        };
        let mut seen = [0; 2];
        for _ in 0..ROUNDS {
            let count = 1 + below(3);
            let mut place = || (usize::from(below(2) == 1), below(40));
            let places: Vec<_> = (0..count).map(|_| (place(), place())).collect();
            let moves: Vec<_> =
                places.iter().map(|(from, to)| step(*from, *to, below(9))).collect();
            let some = || moves.iter().filter(|step| step.size > 0);
            let writes: Vec<_> = some().map(Touch::write).collect();
            let clash = (0..writes.len()).any(|a| (0..a).any(|b| writes[a].meets(&writes[b])))
                || some().map(Touch::read).any(|read| writes.iter().any(|one| one.meets(&read)));
            let expected = if clash { Err(ErrorKind::Overlap) } else { Ok(()) };
            assert_eq!(verdict(caps(1, InsideBlock::Allowed), &moves), expected, "{moves:?}");
            seen[usize::from(clash)] += 1;
        }
        assert!(seen.iter().all(|count| *count > ROUNDS / 10), "both verdicts are seen: {seen:?}");
    }

    #[test]
    fn rows_are_sorted_like_anything_else() {
        let row = |block, first: u64| {
            (first..first + 100).map(move |n| Touch { block, start: n * 10, end: n * 10 + 4 })
        };
        // Apart, in the wrong order, and two that reach into each other.
        for rows in [[(2, 0), (1, 500), (1, 0)], [(1, 50), (2, 0), (1, 0)]] {
            let mut sorted: Vec<_> =
                rows.iter().flat_map(|(block, first)| row(*block, *first)).collect();
            let mut expected = sorted.clone();
            expected.sort_by_key(Touch::order);
            sort(&mut sorted);
            assert_eq!(sorted, expected);
        }
    }
}
