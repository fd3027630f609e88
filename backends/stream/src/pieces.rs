//! Many copies as one table, which one kernel (`shaders/compact`) carries.
//!
//! A copy by the driver costs microseconds whatever its size, so a batch of small ones is cut into pieces. How a vendor
//! builds the kernel and launches it is the vendor's.
#![expect(unsafe_code, reason = "writes a table into pinned memory")]
use crate::{BOUNCE, lock};
use core::ptr::NonNull;
use omniheap_core::{ErrorKind, Result};
use std::sync::Mutex;

/// Threads of a group of the kernel.
pub const GROUP: u32 = 256;
/// Pieces that a group copies, as in the kernel.
const PIECES: u32 = 8;
/// From this many small moves on, one launch takes less time than a driver copy for each (measured on CUDA).
pub const FEWEST: u64 = 3;
/// A move of this size keeps the device busy for longer than its call takes.
pub const LARGE: u64 = 8 << 20;
/// Bytes of a piece at most: few enough that no warp works long alone, enough that the table stays short.
const PIECE: u64 = 16 << 10;
/// Pieces of one launch at most: enough to fill the device, few enough that it begins while the host goes on.
const MOST: u32 = 8 << 10;
const _: () = assert!(MOST as usize * size_of::<Piece>() <= BOUNCE);
/// Pieces whose memory is kept for later tables.
const KEPT: usize = 1 << 16;

/// One entry of the table, as the kernel reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Piece {
    to: u64,
    from: u64,
    size: u64,
}

/// A table that is made while a batch is checked, and the memory of earlier ones.
#[derive(Debug, Default)]
pub struct Table {
    pieces: Vec<Piece>,
    moves: u64,
}

impl Table {
    /// Adds a move, in pieces.
    ///
    /// # Errors
    ///
    /// `OutOfHostMemory`.
    #[inline]
    pub fn add(&mut self, to: u64, from: u64, size: u64) -> Result<()> {
        let count =
            usize::try_from(size.div_ceil(PIECE)).map_err(|_| ErrorKind::OutOfHostMemory)?;
        self.pieces.try_reserve(count).map_err(|_| ErrorKind::OutOfHostMemory)?;
        let (mut start, mut left) = (0, size);
        while left > 0 {
            let size = left.min(PIECE);
            self.pieces.push(Piece { to: to + start, from: from + start, size });
            (start, left) = (start + size, left - size);
        }
        self.moves += 1;
        Ok(())
    }

    /// Moves in it.
    #[must_use]
    pub const fn moves(&self) -> u64 {
        self.moves
    }

    /// The parts that one launch carries each.
    pub fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        self.pieces.chunks(MOST as usize).map(|pieces| {
            // A chunk has at most as many.
            let entries = u32::try_from(pieces.len()).unwrap_or(MOST);
            Part { pieces, entries, groups: entries.div_ceil(PIECES) }
        })
    }

    fn clear(&mut self) {
        self.pieces.clear();
        self.moves = 0;
    }
}

/// The part of a table that one launch carries.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    pieces: &'a [Piece],
    /// Pieces in it.
    pub entries: u32,
    /// Groups that copy them.
    pub groups: u32,
}

impl Part<'_> {
    /// Bytes of it.
    #[must_use]
    pub const fn length(&self) -> usize {
        size_of_val(self.pieces)
    }

    /// Writes it where the kernel will read it.
    ///
    /// # Safety
    ///
    /// `at` is aligned for, and has room for, as many pieces, which nothing else looks at.
    pub unsafe fn write(&self, at: NonNull<u8>) {
        let from = NonNull::from(self.pieces).cast::<Piece>();
        // SAFETY: the caller promises the room, and a slice never overlaps pinned memory.
        unsafe { at.cast::<Piece>().copy_from_nonoverlapping(from, self.pieces.len()) };
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
        if table.pieces.capacity() <= KEPT {
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
    fn pieces_cover_a_move_once_and_in_order() {
        for size in [1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 10 * PIECE + 7] {
            let (table, mut end) = (table(&[(1 << 40, 7, size)]), 0);
            for piece in &table.pieces {
                assert_eq!((piece.to, piece.from), ((1 << 40) + end, 7 + end), "{size}");
                assert!((1..=PIECE).contains(&piece.size), "{size}");
                end += piece.size;
            }
            assert_eq!((end, table.moves()), (size, 1));
        }
        assert_eq!(table(&[(0, 0, 0)]).pieces.len(), 0);
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
            let carried: Vec<Piece> = table.parts().flat_map(|part| part.pieces.to_vec()).collect();
            assert_eq!(carried, table.pieces);
            assert_eq!(table.moves(), count.into());
            for part in table.parts() {
                assert_eq!(part.entries as usize, part.pieces.len());
                assert!(part.groups * PIECES >= part.entries && part.entries > 0);
                assert!(part.length() <= BOUNCE);
            }
        }
    }

    #[test]
    fn a_part_is_written_as_the_kernel_reads_it() {
        let table = table(&[(1, 2, 3), (4, 5, 6)]);
        let mut seen = [0_u64; 6];
        let part = table.parts().next().expect("one");
        // SAFETY: there is room for the six numbers of two pieces.
        unsafe { part.write(NonNull::from(&mut seen).cast()) };
        assert_eq!((seen, part.length()), ([1, 2, 3, 4, 5, 6], 48));
    }

    #[test]
    fn a_table_starts_empty_and_huge_ones_are_not_kept() {
        let tables = Tables::default();
        for count in [3, 2 * KEPT as u64, 1] {
            tables.with(|table| {
                assert_eq!((table.moves(), table.pieces.len()), (0, 0));
                (0..count).for_each(|at| table.add(at, at, 1).expect("small"));
            });
            assert!(lock(&tables.0).iter().all(|table| table.pieces.capacity() <= KEPT));
        }
    }
}
