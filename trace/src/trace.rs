//! A whole trace in memory, and how it is opened.

use crate::error::{Error, ErrorKind, Position};
use crate::event::{AllocationId, Event};
use crate::label::{LabelId, Labels};
use crate::limits::Limits;
use crate::{binary, csv, input, pytorch, rmm, vma};
use std::io::Read;
use std::path::Path;

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
    /// Whether the file is complete.
    pub ending: Ending,
    /// Records that the format holds and a trace does not, skipped while reading.
    pub skipped: u64,
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
    /// Reads the trace in the file at `path`, of any known format, with the default [`Limits`].
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when the file cannot be read, [`ErrorKind::UnknownFormat`] when it is no trace, and the
    /// kinds of the format's reader.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let file =
            std::fs::File::open(path).map_err(|error| Error::new(Position::Input, error.into()))?;
        Self::read(file, &Limits::default())
    }

    /// Reads a trace of any known format from `source`; detects the format from the content, never from the name.
    ///
    /// # Errors
    /// As [`Trace::open`].
    pub fn read(source: impl Read, limits: &Limits) -> Result<Self, Error> {
        let mut input = input::Input::new(source, limits)?;
        match input.head() {
            head if head.starts_with(b"op,") => csv::read_input(&mut input, limits),
            head if head.starts_with(binary::MAGIC) => binary::read_input(&mut input, limits),
            head if head.starts_with(rmm::HEADER.as_bytes()) => rmm::read_input(&mut input, limits),
            [0x80, 2..=5, ..] => pytorch::read_input(&mut input, pytorch::Device::Busiest, limits),
            head if head.trim_ascii_start().starts_with(b"{") => {
                vma::read_input(&mut input, limits)
            }
            [] => Err(Error::new(Position::Input, ErrorKind::Truncated)),
            _ => Err(Error::new(Position::Input, ErrorKind::UnknownFormat)),
        }
    }

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
}
