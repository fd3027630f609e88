//! Golden places: what the manager answers to fixed programs, as hashes.
//!
//! A program is a list of allocations and frees, made by a [`shapes`] generator or read from a trace. [`play`] runs it on a
//! fresh manager and hashes everything the observer sees: which allocation lies in which block at which offset, what moved
//! where, and what was taken from the driver. A refactoring must leave every hash as it is. A change that is meant to move
//! allocations renews the file: `cargo xtask golden`.
mod play;
pub mod shapes;

pub use play::{Figures, Run, play};

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Allocates `size` bytes and keeps them under `id`, in the order of `stream` where the run uses streams.
    Allocate {
        /// The number under which the allocation is kept. Never used twice.
        id: u32,
        /// Bytes.
        size: u64,
        /// The base-two logarithm of the alignment.
        align_log2: u8,
        /// The stream.
        stream: u16,
    },
    /// Frees what is kept under `id`.
    Free {
        /// The number of an allocation that lives.
        id: u32,
    },
    /// Defragments everything.
    Defragment,
    /// Gives empty memory back.
    Trim,
}

/// The largest sum of bytes that live at the same time, each size rounded up to `unit`.
#[must_use]
pub fn peak_live(steps: &[Step], unit: u64) -> u64 {
    let mut sizes = std::collections::HashMap::new();
    let (mut live, mut peak) = (0_u64, 0);
    for step in steps {
        match *step {
            Step::Allocate { id, size, .. } => {
                let size = size.next_multiple_of(unit);
                live += size;
                peak = live.max(peak);
                sizes.insert(id, size);
            }
            Step::Free { id } => live -= sizes.remove(&id).unwrap_or(0),
            Step::Defragment | Step::Trim => {}
        }
    }
    peak
}
