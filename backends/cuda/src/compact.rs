//! Many copies in one launch.
//!
//! A driver copy costs microseconds whatever its size, so a batch of small ones is cut into pieces that one kernel copies
//! together. The table of pieces goes through pinned memory in the order of the timeline.
#![expect(unsafe_code, reason = "launches device code")]
use crate::{
    backend::{Block, Cuda},
    bounce::BOUNCE,
    driver::Driver,
    kernel::{Argument, Kernel, Launch},
    module::{Arch, BuildError, Module},
    timeline::Timeline,
};
use core::slice;
use omniheap_core::{Move, Result, TimelineId};
use std::sync::{Arc, OnceLock};

const SOURCE: &str = include_str!("../../../shaders/compact/compact.cu");
const FALLBACK: &str = include_str!("../../../shaders/compact/compact.ptx");
const KERNEL: &str = "omniheap_compact";
/// Threads of a group, and pieces that a group copies: as in the kernel.
const GROUP: u32 = 256;
const PIECES: usize = 8;

/// From this many small moves on, one launch takes less time than a driver copy for each.
pub(crate) const FEWEST: usize = 4;
/// A move of this size keeps the device busy for longer than its call takes.
pub(crate) const LARGE: u64 = 32 << 20;
/// Bytes of a piece at most: few enough that no warp works long alone, enough that the table stays short.
const PIECE: u64 = 16 << 10;
/// Pieces of one launch at most: their table fits half a bounce.
const MOST: usize = BOUNCE / 2 / size_of::<Piece>();

/// One entry of the table, as the kernel reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Piece {
    to: u64,
    from: u64,
    size: u64,
}

/// Cuts a move into pieces.
fn pieces(to: u64, from: u64, size: u64) -> impl Iterator<Item = Piece> {
    let starts = (0..size).step_by(usize::try_from(PIECE).expect("small"));
    starts.map(move |start| Piece {
        to: to + start,
        from: from + start,
        size: PIECE.min(size - start),
    })
}

/// The table's bytes.
fn bytes(table: &[Piece]) -> &[u8] {
    // SAFETY: three 64-bit numbers each, without padding.
    unsafe { slice::from_raw_parts(table.as_ptr().cast(), size_of_val(table)) }
}

/// The kernel, built when it is first needed.
pub(crate) struct Compactor {
    driver: Arc<Driver>,
    compute: (u32, u32),
    kernel: OnceLock<Result<Kernel, BuildError>>,
}

impl Compactor {
    pub(crate) fn new(driver: &Arc<Driver>, compute: (u32, u32)) -> Self {
        Self { driver: driver.clone(), compute, kernel: OnceLock::new() }
    }

    fn build(&self) -> Result<Kernel, BuildError> {
        let arch = Arch::new(self.compute.0, self.compute.1)?;
        let compiled = Module::compile(&self.driver, arch, SOURCE).or_else(|error| {
            tracing::info!(%error, "the compaction kernel uses its prepared image");
            Module::load_ptx(&self.driver, FALLBACK)
        });
        Ok(compiled?.kernel(KERNEL)?)
    }

    /// The kernel. Why it cannot be built is logged once.
    fn kernel(&self) -> Result<&Kernel, &BuildError> {
        let build = || {
            self.build().inspect_err(|error| tracing::warn!(%error, "moves are copied one by one"))
        };
        self.kernel.get_or_init(build).as_ref()
    }
}

/// Whether a move is one that the kernel carries.
pub(crate) fn is_packable(step: &Move<'_, Block>) -> bool {
    let reaches = |block: &Block| block.is_on_device() && !block.is_constant();
    (1..LARGE).contains(&step.size) && reaches(step.from.block) && reaches(step.to.block)
}

impl Cuda {
    /// Builds the kernel that carries batches of copies now, not with the first batch.
    ///
    /// Loading device code may wait for kernels that run: call it before one that waits for the host.
    ///
    /// # Errors
    ///
    /// Why it cannot be built; batches are then copied one by one.
    pub fn prepare_batches(&self) -> Result<(), BuildError> {
        self.compactor.kernel().map(|_| ()).map_err(Clone::clone)
    }

    /// Copies moves that [`is_packable`] holds for in as few launches as their table takes; says whether it did.
    ///
    /// # Errors
    ///
    /// What the driver says; part of the moves may then have been submitted.
    ///
    /// # Safety
    ///
    /// Every move lies inside live blocks of this backend.
    pub(crate) unsafe fn compact<'a>(
        &self,
        on: TimelineId,
        timeline: &Timeline,
        moves: impl Iterator<Item = &'a Move<'a, Block>>,
    ) -> Result<bool> {
        let Ok(kernel) = self.compactor.kernel() else { return Ok(false) };
        let at = |step: &Move<'_, Block>| {
            (step.to.block.at(step.to.offset), step.from.block.at(step.from.offset))
        };
        let mut table = Vec::new();
        for step in moves {
            let (to, from) = at(step);
            for piece in pieces(to, from, step.size) {
                table.push(piece);
                if table.len() == MOST {
                    // SAFETY: the caller's promise.
                    unsafe { self.submit(on, timeline, kernel, &table) }?;
                    table.clear();
                }
            }
        }
        if !table.is_empty() {
            // SAFETY: the caller's promise.
            unsafe { self.submit(on, timeline, kernel, &table) }?;
        }
        Ok(true)
    }

    /// # Safety
    ///
    /// Every piece lies inside live blocks of this backend.
    unsafe fn submit(
        &self,
        on: TimelineId,
        timeline: &Timeline,
        kernel: &Kernel,
        table: &[Piece],
    ) -> Result<()> {
        let count = u32::try_from(table.len()).expect("at most `MOST`");
        let groups = u32::try_from(table.len().div_ceil(PIECES)).expect("fewer still");
        let launch = |address| {
            let arguments = [Argument::U64(address), Argument::U32(count)];
            // SAFETY: the kernel takes the address of a table and its length, and copies what the table says; the caller
            // promises that.
            unsafe { self.launch(on, kernel, Launch::linear(groups, GROUP), &arguments) }
        };
        // SAFETY: `MOST` pieces fit.
        unsafe { self.staging().stage(timeline, bytes(table), launch) }
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
    }

    #[test]
    fn an_entry_is_three_numbers() {
        let table = [Piece { to: 1, from: 2, size: 3 }, Piece { to: 4, from: 5, size: 6 }];
        let numbers: Vec<u8> = (1..=6u64).flat_map(u64::to_ne_bytes).collect();
        assert_eq!(bytes(&table), numbers);
    }
}
