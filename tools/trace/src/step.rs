//! Effects of events on memory, from traces and from packed events alike.

use crate::event::{Backing, Op, Rung};
use crate::trace::Trace;

/// One change of what a rank holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// An allocation.
    Allocate {
        /// Its bytes.
        size: u64,
        /// Its label; 0 is none.
        label: u32,
    },
    /// The end of an allocation.
    Free {
        /// Its bytes.
        size: u64,
        /// Its label; 0 is none.
        label: u32,
    },
    /// Memory taken from the driver.
    Take {
        /// Its bytes.
        bytes: u64,
    },
    /// Memory returned to the driver.
    Return {
        /// Its bytes.
        bytes: u64,
    },
    /// A request that failed.
    Fail {
        /// Its bytes.
        size: u64,
    },
}

/// Returns the steps of a trace with their times.
pub(crate) fn of_trace(trace: &Trace) -> impl Iterator<Item = (u64, Step)> {
    let step = |op: &Op| match *op {
        Op::Allocate { id, size, .. } => {
            Step::Allocate { size, label: trace.label_of(id).0 }.into()
        }
        Op::FreeCompleted { id, size, .. } => {
            Step::Free { size, label: trace.label_of(id).0 }.into()
        }
        Op::BlockAllocate { size: bytes, backing: Backing::Memory, .. }
        | Op::PagesTake { bytes, .. } => Step::Take { bytes }.into(),
        Op::BlockFree { size: bytes, backing: Backing::Memory, .. }
        | Op::PagesReturn { bytes, .. } => Step::Return { bytes }.into(),
        Op::OutOfMemory { size, rung: Rung::Failed, .. } => Step::Fail { size }.into(),
        _ => None,
    };
    trace.events().iter().filter_map(move |event| Some((event.time_us, step(&event.op)?)))
}
