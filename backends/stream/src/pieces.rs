//! Many copies as one table, which one kernel ([`COMPACTION`](crate::COMPACTION)) carries.
//!
//! A copy by the driver costs microseconds whatever its size, so a batch of small ones is cut into pieces. How a vendor
//! builds the kernel and launches it is the vendor's.
#![expect(unsafe_code, reason = "writes a table into pinned memory")]
use crate::{BOUNCE, lock};
use core::ptr::NonNull;
use omniheap_seam::{ErrorKind, Result};
use std::sync::Mutex;

/// Threads of a group of the kernel.
pub const GROUP: u32 = 256;
/// Pieces that a group copies, as in the kernel.
const PIECES: u32 = 8;
/// From this many small moves on, one launch takes less time than a driver copy for each (measured on CUDA).
pub const FEWEST: usize = 3;
/// A move of this size keeps the device busy for longer than its call takes.
pub const LARGE: u64 = 8 << 20;
/// Bytes of a piece at most: few enough that no warp works long alone, enough that the table stays short.
const PIECE: u64 = 16 << 10;
/// Pieces of one launch at most: enough to fill the device, few enough that it begins while the host goes on.
const MOST: u32 = 8 << 10;
const _: () = assert!(MOST as usize * size_of::<Piece>() <= BOUNCE);
/// Moves whose memory is kept for later tables.
const KEPT: usize = 1 << 16;

/// One entry of the table, as the kernel reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Piece {
    to: u64,
    from: u64,
    size: u64,
}

/// The moves of a batch, noted while it is checked. They are cut into pieces when a launch needs them, so that the device
/// begins before the host is done.
#[derive(Debug, Default)]
pub struct Table {
    moves: Vec<Piece>,
    pieces: u64,
}

impl Table {
    /// Adds a move.
    ///
    /// # Errors
    ///
    /// `OutOfHostMemory`.
    #[inline]
    pub fn add(&mut self, to: u64, from: u64, size: u64) -> Result<()> {
        self.moves.try_reserve(1).map_err(|_| ErrorKind::OutOfHostMemory)?;
        self.moves.push(Piece { to, from, size });
        self.pieces += size.div_ceil(PIECE);
        Ok(())
    }

    /// Moves in it.
    #[must_use]
    pub const fn moves(&self) -> usize {
        self.moves.len()
    }

    /// Returns the parts that one launch carries each.
    pub fn parts(&self) -> impl Iterator<Item = Part> {
        let pieces = self.pieces;
        (0..pieces.div_ceil(MOST.into())).map(move |number| {
            let left = pieces - number * u64::from(MOST);
            let entries = u32::try_from(left).map_or(MOST, |left| left.min(MOST));
            let length = entries as usize * size_of::<Piece>();
            Part { entries, groups: entries.div_ceil(PIECES), length }
        })
    }

    /// Returns its pieces, in order.
    #[must_use]
    pub fn cut(&self) -> Cut<'_> {
        Cut { moves: &self.moves, done: 0 }
    }

    fn clear(&mut self) {
        self.moves.clear();
        self.pieces = 0;
    }
}

/// The pieces of moves.
#[derive(Debug)]
pub struct Cut<'a> {
    moves: &'a [Piece],
    /// Bytes of the first move that were shown.
    done: u64,
}

impl Iterator for Cut<'_> {
    type Item = Piece;

    #[inline]
    fn next(&mut self) -> Option<Piece> {
        let (first, rest) = self.moves.split_first()?;
        let left = first.size - self.done;
        let piece =
            Piece { to: first.to + self.done, from: first.from + self.done, size: left.min(PIECE) };
        self.done += PIECE;
        if left <= PIECE {
            (self.moves, self.done) = (rest, 0);
        }
        Some(piece)
    }
}

/// The part of a table that one launch carries.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Pieces in it.
    pub entries: u32,
    /// Groups that copy them.
    pub groups: u32,
    /// Bytes of it.
    pub length: usize,
}

impl Part {
    /// Writes the next pieces of a table where the kernel will read them.
    ///
    /// # Safety
    ///
    /// `at` is aligned for, and has room for, as many pieces as this part has.
    pub unsafe fn write(self, at: NonNull<u8>, table: &mut Cut<'_>) {
        let at = at.cast::<Piece>().as_ptr();
        for (index, piece) in table.take(self.entries as usize).enumerate() {
            // SAFETY: the caller promises room for every entry.
            unsafe { at.wrapping_add(index).write(piece) };
        }
    }
}

/// The memory of tables, so that a batch needs none of its own.
#[derive(Debug, Default)]
pub struct Tables(Mutex<Vec<Table>>);

impl Tables {
    /// Runs `work` with an empty table.
    pub fn with<T>(&self, work: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = lock(&self.0).pop().unwrap_or_default();
        let done = work(&mut table);
        table.clear();
        if table.moves.capacity() <= KEPT {
            lock(&self.0).push(table);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(moves: &[(u64, u64, u64)]) -> Table {
        let mut table = Table::default();
        moves.iter().for_each(|&(to, from, size)| table.add(to, from, size).expect("small"));
        table
    }

    #[test]
    fn pieces_cover_every_move_once_and_in_order() {
        let sizes = [1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 10 * PIECE + 7];
        let moves: Vec<_> = (1..).zip(sizes).map(|(at, size)| (at << 40, at << 50, size)).collect();
        let table = table(&moves);
        let mut cut = table.cut();
        for (to, from, size) in moves {
            let mut end = 0;
            while end < size {
                let piece = cut.next().expect("not all bytes were covered");
                assert_eq!((piece.to, piece.from), (to + end, from + end), "{size}");
                assert!((1..=PIECE).contains(&piece.size), "{size}");
                end += piece.size;
            }
            assert_eq!(end, size);
        }
        assert_eq!(cut.next(), None);
        assert_eq!(table.cut().count() as u64, table.pieces);
    }

    #[test]
    fn an_entry_is_three_numbers() {
        assert_eq!((size_of::<Piece>(), align_of::<Piece>()), (24, 8));
    }

    #[test]
    fn parts_carry_every_piece_with_enough_groups() {
        for count in [0, 1, PIECES, PIECES + 1, MOST, MOST + 1, 3 * MOST + 5] {
            let moves: Vec<_> = (0..u64::from(count)).map(|at| (at << 20, at << 40, 100)).collect();
            let table = table(&moves);
            let all: Vec<Part> = table.parts().collect();
            assert_eq!(all.iter().map(|part| u64::from(part.entries)).sum::<u64>(), table.pieces);
            assert_eq!((table.moves() as u64, table.pieces), (count.into(), count.into()));
            for part in all {
                assert!(part.groups * PIECES >= part.entries && part.entries > 0);
                assert!(part.length <= BOUNCE && part.length == 24 * part.entries as usize);
            }
        }
    }

    #[test]
    fn parts_are_written_as_the_kernel_reads_them() {
        let table = table(&[(1, 2, 3), (1 << 20, 1 << 30, PIECE + 1)]);
        let (mut seen, mut cut) = ([0_u64; 9], table.cut());
        let part = table.parts().next().expect("one");
        // SAFETY: there is room for the nine numbers of three pieces.
        unsafe { part.write(NonNull::from(&mut seen).cast(), &mut cut) };
        let second = [(1 << 20) + PIECE, (1 << 30) + PIECE, 1];
        assert_eq!(seen[..6], [1, 2, 3, 1 << 20, 1 << 30, PIECE]);
        assert_eq!((&seen[6..], cut.next()), (&second[..], None));
    }

    #[test]
    fn a_table_starts_empty_and_huge_ones_are_not_kept() {
        let tables = Tables::default();
        for count in [3, 2 * KEPT as u64, 1] {
            tables.with(|table| {
                assert_eq!((table.moves(), table.pieces), (0, 0));
                (0..count).for_each(|at| table.add(at, at, 1).expect("small"));
            });
            assert!(lock(&tables.0).iter().all(|table| table.moves.capacity() <= KEPT));
        }
    }
}
