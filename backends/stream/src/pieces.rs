//! Many copies as one table, which one kernel (`shaders/compact`) carries.
//!
//! A copy by the driver costs microseconds whatever its size, so a batch of small ones is cut into pieces. How a vendor
//! builds the kernel and launches it is the vendor's.
#![expect(unsafe_code, reason = "writes a table into pinned memory")]
use crate::BOUNCE;
use core::ptr::NonNull;

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

/// One entry of the table, as the kernel reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Piece {
    to: u64,
    from: u64,
    size: u64,
}

/// How many pieces a move is cut into.
#[must_use]
pub const fn count(size: u64) -> u64 {
    size.div_ceil(PIECE)
}

/// Cuts a move into pieces.
pub fn pieces(to: u64, from: u64, size: u64) -> impl Iterator<Item = Piece> {
    (0..count(size)).map(move |number| {
        let start = number * PIECE;
        Piece { to: to + start, from: from + start, size: PIECE.min(size - start) }
    })
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

/// Divides a table of `pieces` into parts.
pub fn parts(pieces: u64) -> impl Iterator<Item = Part> {
    (0..pieces.div_ceil(MOST.into())).map(move |number| {
        let left = pieces - number * u64::from(MOST);
        let entries = u32::try_from(left).map_or(MOST, |left| left.min(MOST));
        let length = entries as usize * size_of::<Piece>();
        Part { entries, groups: entries.div_ceil(PIECES), length }
    })
}

impl Part {
    /// Writes the next pieces of a table where the kernel will read them.
    ///
    /// # Safety
    ///
    /// `at` is aligned for, and has room for, as many pieces as this part has.
    pub unsafe fn write(self, at: NonNull<u8>, table: &mut impl Iterator<Item = Piece>) {
        let at = at.cast::<Piece>().as_ptr();
        for (index, piece) in table.take(self.entries as usize).enumerate() {
            // SAFETY: the caller promises room for every entry.
            unsafe { at.wrapping_add(index).write(piece) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_move_once_and_in_order() {
        for size in [1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 10 * PIECE + 7] {
            let mut end = 0;
            for piece in pieces(1 << 40, 7, size) {
                assert_eq!((piece.to, piece.from), ((1 << 40) + end, 7 + end), "{size}");
                assert!((1..=PIECE).contains(&piece.size), "{size}");
                end += piece.size;
            }
            assert_eq!(end, size);
        }
        assert_eq!(pieces(0, 0, 0).count(), 0);
        assert_eq!(pieces(0, 0, 3 * PIECE + 1).count() as u64, count(3 * PIECE + 1));
    }

    #[test]
    fn an_entry_is_three_numbers() {
        assert_eq!((size_of::<Piece>(), align_of::<Piece>()), (24, 8));
    }

    #[test]
    fn parts_carry_every_piece_with_enough_groups() {
        for pieces in [0, 1, PIECES, PIECES + 1, MOST, MOST + 1, 3 * MOST + 5] {
            let all: Vec<Part> = parts(pieces.into()).collect();
            assert_eq!(all.iter().map(|part| u64::from(part.entries)).sum::<u64>(), pieces.into());
            for part in all {
                assert!(part.groups * PIECES >= part.entries);
                assert!(part.entries > 0 && part.length <= BOUNCE);
            }
        }
    }
}
