//! Many copies in one launch.
//!
//! A copy by the runtime costs microseconds whatever its size, so a batch of small ones is cut into pieces that one kernel copies
//! together. The table of pieces goes through pinned memory in the order of the timeline.
#![expect(unsafe_code, reason = "launches device code")]
use crate::{
    backend::{Block, Hip},
    driver::Driver,
    kernel::{Argument, Kernel, Launch},
    module::BuildError,
};
use core::ptr::NonNull;
use omniheap_core::{Move, Result, TimelineId};
use omniheap_stream::{BOUNCE, Timeline};
use std::sync::OnceLock;

const SOURCE: &str = include_str!("../../../shaders/compact/compact.cu");
const KERNEL: &str = "omniheap_compact";
/// Threads of a group, and pieces that a group copies: as in the kernel.
const GROUP: u32 = 256;
const PIECES: u64 = 8;

/// From this many small moves on, one launch takes less time than a copy for each. As on CUDA: not measured on AMD.
pub(crate) const FEWEST: u64 = 3;
/// A move of this size keeps the device busy for longer than its call takes.
const LARGE: u64 = 8 << 20;
/// Bytes of a piece at most: few enough that no warp works long alone, enough that the table stays short.
const PIECE: u64 = 16 << 10;
/// Pieces of one launch at most: enough to fill the device, few enough that it begins while the host goes on.
const MOST: u64 = 8 << 10;
const _: () = assert!(MOST * size_of::<Piece>() as u64 <= BOUNCE as u64);

/// One entry of the table, as the kernel reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Piece {
    to: u64,
    from: u64,
    size: u64,
}

/// How many pieces a move is cut into.
pub(crate) const fn count(size: u64) -> u64 {
    size.div_ceil(PIECE)
}

/// Cuts a move into pieces.
fn pieces(to: u64, from: u64, size: u64) -> impl Iterator<Item = Piece> {
    (0..count(size)).map(move |number| {
        let start = number * PIECE;
        Piece { to: to + start, from: from + start, size: PIECE.min(size - start) }
    })
}

/// The kernel, built when it is first needed.
#[derive(Default)]
pub(crate) struct Compactor(OnceLock<Result<Kernel, BuildError>>);

/// Whether a move is one that the kernel carries.
pub(crate) fn is_packable(step: &Move<'_, Block>) -> bool {
    let is_on_device = step.from.block.is_on_device() && step.to.block.is_on_device();
    is_on_device && (1..LARGE).contains(&step.size)
}

impl Hip {
    /// Builds the kernel that carries batches of copies now, not with the first batch.
    ///
    /// Loading device code may wait for kernels that run: call it before one that waits for the host.
    ///
    /// # Errors
    ///
    /// Why it cannot be built; batches are then copied one by one.
    pub fn prepare_batches(&self) -> Result<(), BuildError> {
        self.batch_kernel().map(|_| ()).map_err(Clone::clone)
    }

    /// The kernel. Why it cannot be built is logged once.
    fn batch_kernel(&self) -> Result<&Kernel, &BuildError> {
        let build = || {
            let built = self.compile(SOURCE).and_then(|module| Ok(module.kernel(KERNEL)?));
            built.inspect_err(|error| tracing::warn!(%error, "moves are copied one by one"))
        };
        self.compactor.0.get_or_init(build).as_ref()
    }

    /// Copies the moves that [`is_packable`] holds for, `pieces` in all, in as few launches as their table takes; says
    /// whether it did.
    ///
    /// # Errors
    ///
    /// What the runtime says; part of the moves may then have been submitted.
    ///
    /// # Safety
    ///
    /// Every move lies inside live blocks of this backend.
    pub(crate) unsafe fn compact(
        &self,
        on: TimelineId,
        timeline: &Timeline<Driver>,
        moves: &[Move<'_, Block>],
        pieces: u64,
    ) -> Result<bool> {
        let Ok(kernel) = self.batch_kernel() else { return Ok(false) };
        let mut table = moves.iter().filter(|step| is_packable(step)).flat_map(|step| {
            let (to, from) =
                (step.to.block.at(step.to.offset), step.from.block.at(step.from.offset));
            self::pieces(to, from, step.size)
        });
        let mut left = pieces;
        while left > 0 {
            let now = left.min(MOST);
            // SAFETY: the caller's promise.
            unsafe { self.submit(on, timeline, kernel, table.by_ref(), now) }?;
            left -= now;
        }
        Ok(true)
    }

    /// Copies the next `count` pieces of a table, at most [`MOST`].
    ///
    /// # Safety
    ///
    /// There are as many, and every one lies inside live blocks of this backend.
    unsafe fn submit(
        &self,
        on: TimelineId,
        timeline: &Timeline<Driver>,
        kernel: &Kernel,
        table: impl Iterator<Item = Piece>,
        count: u64,
    ) -> Result<()> {
        let entries = u32::try_from(count).expect("at most `MOST`");
        let groups = u32::try_from(count.div_ceil(PIECES)).expect("fewer still");
        let length = entries as usize * size_of::<Piece>();
        let launch = |host: NonNull<u8>, device| {
            let host = host.cast::<Piece>().as_ptr();
            for (index, piece) in table.take(entries as usize).enumerate() {
                // SAFETY: the room has `entries` pieces and starts at a cache line.
                unsafe { host.wrapping_add(index).write(piece) };
            }
            let arguments = [Argument::U64(device), Argument::U32(entries)];
            // SAFETY: the kernel takes the address of a table and its length, and copies what the table says; the caller
            // promises that.
            unsafe { self.launch(on, kernel, Launch::linear(groups, GROUP), &arguments) }
        };
        // SAFETY: `MOST` pieces fit.
        unsafe { self.staging().stage(timeline, length, launch) }
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
}
