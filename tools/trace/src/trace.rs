//! A whole trace in memory.

use crate::event::{AllocationId, BlockId, Event, Op};
use crate::label::{LabelId, Labels};

/// The format that a trace was read from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// Built in memory.
    #[default]
    Memory,
    /// CSV, `op,id,size,stream,time_us`.
    Csv,
    /// This crate's binary format.
    Binary,
    /// A PyTorch memory snapshot (pickle).
    PyTorch,
    /// An RMM log (CSV).
    Rmm,
    /// A VMA statistics dump (JSON).
    Vma,
    /// An ONNX model.
    Onnx,
}

/// End of the recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The recorder closed the file, or the format has no mark for it.
    #[default]
    Complete,
    /// The file stops in the middle; the trace is what came before.
    CutOff,
}

/// Metadata of a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// The format it came from.
    pub source: Source,
    /// Free text by the recorder, such as the program's name; empty when unknown.
    pub title: String,
    /// Completeness of the file.
    pub ending: Ending,
    /// Records that the format holds and a trace does not, skipped while reading.
    pub skipped: u64,
    /// Number of the event with which the last step of the program begins; `None` when the recorder marked no steps.
    pub last_step: Option<u32>,
}

/// Requests to an allocator over time.
///
/// Invariants, established by every reader: time never goes back; an allocation's [`AllocationId`] is allocated once,
/// in ascending order from 0; it is freed at most once, after its allocation; sizes are never zero and live bytes
/// fit 64 bits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    pub(crate) events: Vec<Event>,
    pub(crate) allocations: u32,
    pub(crate) labels: Labels,
    /// By allocation; shorter than `allocations` when the last ones have no label.
    pub(crate) allocation_labels: Vec<LabelId>,
    pub(crate) meta: Meta,
}

impl Trace {
    /// Returns the events, in order of time.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns the number of allocations in the trace; ids are `0..allocations`.
    pub fn allocations(&self) -> u32 {
        self.allocations
    }

    /// Returns the names and tags of the trace.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Returns the label of `id`, [`LabelId::NONE`] when the recording gave none.
    pub fn label_of(&self, id: AllocationId) -> LabelId {
        self.allocation_labels.get(id.0 as usize).copied().unwrap_or(LabelId::NONE)
    }

    /// Returns the metadata.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Returns the place that an allocation is bound to right after the event before `next`, past placements only.
    pub(crate) fn bound_next(&self, next: usize, id: AllocationId) -> Option<(BlockId, u64)> {
        for event in &self.events[next..] {
            match event.op {
                Op::Bind { id: bound, block, offset } if bound == id => {
                    return Some((block, offset));
                }
                Op::BlockOffset { id: placed, .. } if placed == id => {}
                _ => return None,
            }
        }
        None
    }

    /// Returns whether the last step begins with this event.
    pub(crate) fn is_step(&self, event: usize) -> bool {
        self.meta.last_step.is_some_and(|first| first as usize == event)
    }
}
