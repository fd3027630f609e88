//! One record of the binary format, as the recording program names things.

use super::varint::{put, take};
use crate::event::{Alignment, HeapId, Region, Rung, StreamId};
use crate::label::LabelId;

/// What a program records. Ids are the program's own: any number that is unique among what is live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// An allocation began to live.
    Allocate {
        /// The program's id for it.
        id: u64,
        /// Bytes asked for.
        size: u64,
        /// Where it is used first.
        stream: StreamId,
        /// Alignment asked for.
        align: Alignment,
        /// Its name and tags.
        label: LabelId,
    },
    /// The program asked to free it.
    FreeRequested {
        /// The allocation.
        id: u64,
        /// The stream that asks.
        stream: StreamId,
    },
    /// Its bytes may be reused.
    FreeCompleted {
        /// The allocation.
        id: u64,
        /// The stream that had it.
        stream: StreamId,
    },
    /// It lies here.
    Bind {
        /// The allocation.
        id: u64,
        /// The program's id for the block.
        block: u64,
        /// Offset inside the block.
        offset: u64,
    },
    /// It was moved here.
    Move {
        /// The allocation.
        id: u64,
        /// The program's id for the block.
        block: u64,
        /// Offset inside the block.
        offset: u64,
    },
    /// The policy chose a region for it.
    Place {
        /// The allocation.
        id: u64,
        /// What was chosen.
        region: Region,
        /// Why.
        reason: LabelId,
    },
    /// A block was taken from the driver.
    BlockAllocate {
        /// The program's id for the block.
        block: u64,
        /// Its bytes.
        size: u64,
        /// The heap it is of.
        heap: HeapId,
    },
    /// A block was given back.
    BlockFree {
        /// The block.
        block: u64,
    },
    /// A request reached a rung of the out-of-memory ladder.
    OutOfMemory {
        /// Bytes asked for.
        size: u64,
        /// The stream that asked.
        stream: StreamId,
        /// The rung.
        rung: Rung,
    },
}

/// What a record of the file can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    /// Something that happened.
    Record(Record),
    /// The next label: ids count from 1 in the order of these.
    Label {
        /// The label above it.
        parent: LabelId,
        /// Its text.
        text: &'a str,
    },
    /// The trace's title.
    Title {
        /// Free text.
        text: &'a str,
    },
}

impl<'a> Entry<'a> {
    /// Appends kind, time step and fields.
    #[inline]
    pub(super) fn encode(&self, step_us: u64, out: &mut Vec<u8>) {
        let (kind, fields, text) = self.parts();
        out.push(kind);
        put(out, step_us);
        for &field in &fields[..usize::from(FIELDS[usize::from(kind)])] {
            put(out, field);
        }
        out.extend_from_slice(text.as_bytes());
    }

    #[inline]
    fn parts(&self) -> (u8, [u64; 5], &'a str) {
        match *self {
            Self::Record(record) => {
                let (kind, fields) = record.parts();
                (kind, fields, "")
            }
            Self::Label { parent, text } => (10, [parent.0.into(), 0, 0, 0, 0], text),
            Self::Title { text } => (11, [0; 5], text),
        }
    }

    /// Reads a record's body: its time step and what it says, or `None` for a kind of a later version.
    pub(super) fn decode(mut body: &'a [u8]) -> Result<(u64, Option<Self>), &'static str> {
        let (&kind, rest) = body.split_first().ok_or("record")?;
        body = rest;
        let step_us = take(&mut body).ok_or("time step")?;
        let Some(&count) = FIELDS.get(usize::from(kind)).filter(|_| kind != 0) else {
            return Ok((step_us, None));
        };
        let mut fields = [0; 5];
        for field in &mut fields[..usize::from(count)] {
            *field = take(&mut body).ok_or("field")?;
        }
        if kind < 10 && !body.is_empty() {
            return Err("record length");
        }
        Self::from_parts(kind, fields, body).map(|entry| (step_us, Some(entry)))
    }

    fn from_parts(kind: u8, fields: [u64; 5], text: &'a [u8]) -> Result<Self, &'static str> {
        let text = core::str::from_utf8(text).map_err(|_| "text")?;
        match kind {
            10 => Ok(Self::Label { parent: LabelId(narrow(fields[0], "label")?), text }),
            11 => Ok(Self::Title { text }),
            _ => Record::from_parts(kind, fields).map(Self::Record),
        }
    }
}

impl Record {
    #[inline]
    fn parts(&self) -> (u8, [u64; 5]) {
        match *self {
            Self::Allocate { id, size, stream, align, label } => {
                (1, [id, size, stream.0.into(), align.code().into(), label.0.into()])
            }
            Self::FreeRequested { id, stream } => (2, [id, stream.0.into(), 0, 0, 0]),
            Self::FreeCompleted { id, stream } => (3, [id, stream.0.into(), 0, 0, 0]),
            Self::Bind { id, block, offset } => (4, [id, block, offset, 0, 0]),
            Self::Move { id, block, offset } => (5, [id, block, offset, 0, 0]),
            Self::Place { id, region, reason } => (6, [id, region as u64, reason.0.into(), 0, 0]),
            Self::BlockAllocate { block, size, heap } => (7, [block, size, heap.0.into(), 0, 0]),
            Self::BlockFree { block } => (8, [block, 0, 0, 0, 0]),
            Self::OutOfMemory { size, stream, rung } => {
                (9, [size, stream.0.into(), rung as u64, 0, 0])
            }
        }
    }

    fn from_parts(kind: u8, [a, b, c, d, e]: [u64; 5]) -> Result<Self, &'static str> {
        Ok(match kind {
            1 => {
                let align = narrow(d, "alignment")
                    .and_then(|code| Alignment::from_code(code).ok_or("alignment"))?;
                Self::Allocate {
                    id: a,
                    size: b,
                    stream: stream(c)?,
                    align,
                    label: LabelId(narrow(e, "label")?),
                }
            }
            2 => Self::FreeRequested { id: a, stream: stream(b)? },
            3 => Self::FreeCompleted { id: a, stream: stream(b)? },
            4 => Self::Bind { id: a, block: b, offset: c },
            5 => Self::Move { id: a, block: b, offset: c },
            6 => Self::Place { id: a, region: region(b)?, reason: LabelId(narrow(c, "label")?) },
            7 => Self::BlockAllocate { block: a, size: b, heap: HeapId(narrow(c, "heap")?) },
            8 => Self::BlockFree { block: a },
            9 => Self::OutOfMemory { size: a, stream: stream(b)?, rung: rung(c)? },
            _ => return Err("record"),
        })
    }
}

/// Number fields of each kind; kind 0 does not exist.
const FIELDS: [u8; 12] = [0, 5, 2, 2, 3, 3, 3, 3, 1, 3, 1, 0];

fn narrow<T: TryFrom<u64>>(value: u64, what: &'static str) -> Result<T, &'static str> {
    T::try_from(value).map_err(|_| what)
}

fn stream(value: u64) -> Result<StreamId, &'static str> {
    narrow(value, "stream").map(StreamId)
}

fn region(value: u64) -> Result<Region, &'static str> {
    let all = [Region::Device, Region::Constant, Region::Shared, Region::Staging, Region::Unified];
    all.into_iter().find(|region| *region as u64 == value).ok_or("region")
}

fn rung(value: u64) -> Result<Rung, &'static str> {
    let all = [
        Rung::Retire,
        Rung::Trim,
        Rung::Driver,
        Rung::Pressure,
        Rung::Defragment,
        Rung::NextHeap,
        Rung::Spill,
        Rung::Failed,
    ];
    all.into_iter().find(|rung| *rung as u64 == value).ok_or("rung")
}
