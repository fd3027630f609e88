//! One record of the binary format, as the recording program names things.

use super::varint::{Frame, ROOM, take};
use crate::event::{Alignment, Backing, HeapId, Region, Residence, Rung, StreamId};
use crate::label::LabelId;

/// A record of a program. Ids are the program's own and unique among live allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// An allocation began to live.
    Allocate {
        /// The program's id for it.
        id: u64,
        /// Bytes asked for.
        size: u64,
        /// Stream of its first use.
        stream: StreamId,
        /// Alignment asked for.
        align: Alignment,
        /// Its name and tags.
        label: LabelId,
    },
    /// An allocation began to live, and lies here: [`Allocate`](Self::Allocate) and [`Bind`](Self::Bind) in one.
    AllocateAt {
        /// The program's id for it.
        id: u64,
        /// Bytes asked for.
        size: u64,
        /// Stream of its first use.
        stream: StreamId,
        /// Alignment asked for.
        align: Alignment,
        /// Its name and tags.
        label: LabelId,
        /// The program's id for the block.
        block: u64,
        /// Offset inside the block.
        offset: u64,
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
    /// The allocation lies here.
    Bind {
        /// The allocation.
        id: u64,
        /// The program's id for the block.
        block: u64,
        /// Offset inside the block.
        offset: u64,
    },
    /// The allocation was moved here.
    Move {
        /// The allocation.
        id: u64,
        /// The program's id for the block.
        block: u64,
        /// Offset inside the block.
        offset: u64,
    },
    /// The policy chose a region for it.
    BlockOffset {
        /// The allocation.
        id: u64,
        /// Chosen region.
        region: Region,
        /// The reason.
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
        /// Backing of the block: memory, or only addresses.
        backing: Backing,
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
    /// Pages were taken from the driver.
    PagesTake {
        /// Their bytes.
        bytes: u64,
        /// The heap they are of.
        heap: HeapId,
    },
    /// Pages were given back.
    PagesReturn {
        /// Their bytes.
        bytes: u64,
        /// The heap they were of.
        heap: HeapId,
    },
    /// Pages of host memory were taken, where there was no device memory.
    HostPagesTake {
        /// Their bytes.
        bytes: u64,
        /// The heap at whose addresses they are.
        heap: HeapId,
    },
    /// Pages of host memory were given back.
    HostPagesReturn {
        /// Their bytes.
        bytes: u64,
        /// The heap.
        heap: HeapId,
    },
    /// A step of the program begins.
    Step,
    /// Another stream uses it.
    Use {
        /// The allocation.
        id: u64,
        /// The stream.
        stream: StreamId,
    },
    /// The bytes of a block left the device, or came back.
    Reside {
        /// The program's id for the block.
        block: u64,
        /// Place of the bytes from now on.
        residence: Residence,
    },
    /// The allocation is called this now.
    Name {
        /// The allocation.
        id: u64,
        /// Its name and tags.
        label: LabelId,
    },
}

/// An entry of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    /// Event of a program.
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
    /// Writes its length, kind, time step and fields; returns the number of bytes. Its text follows.
    #[inline]
    pub(super) fn encode(&self, step_us: u64, out: &mut [u8; ROOM]) -> usize {
        let mut frame = Frame::new(out);
        match *self {
            Self::Record(record) => {
                frame.byte(record.kind());
                frame.number(step_us);
                record.for_each_field(|field| frame.number(field));
                if let Some(word) = record.word() {
                    frame.word(word);
                }
            }
            Self::Label { parent, .. } => {
                frame.byte(LABEL);
                frame.number(step_us);
                frame.number(parent.0.into());
            }
            Self::Title { .. } => {
                frame.byte(TITLE);
                frame.number(step_us);
            }
        }
        frame.end(self.text().len())
    }

    /// Returns the text behind its fields.
    #[inline]
    pub(super) const fn text(&self) -> &'a str {
        match self {
            Self::Record(_) => "",
            Self::Label { text, .. } | Self::Title { text } => text,
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
        let mut fields = [0; MOST];
        for field in &mut fields[..usize::from(count)] {
            *field = take(&mut body).ok_or("field")?;
        }
        if matches!(kind, 13..=15 | 17 | 19 | 20) {
            let (word, rest) = body.split_first_chunk().ok_or("field")?;
            (fields[MOST - 1], body) = (u64::from_le_bytes(*word), rest);
        }
        if !matches!(kind, LABEL | TITLE) && !body.is_empty() {
            return Err("record length");
        }
        Self::from_parts(kind, fields, body).map(|entry| (step_us, Some(entry)))
    }

    fn from_parts(kind: u8, fields: [u64; MOST], text: &'a [u8]) -> Result<Self, &'static str> {
        let text = core::str::from_utf8(text).map_err(|_| "text")?;
        match kind {
            LABEL => Ok(Self::Label { parent: LabelId(narrow(fields[0], "label")?), text }),
            TITLE => Ok(Self::Title { text }),
            _ => Record::from_parts(kind, fields).map(Self::Record),
        }
    }
}

impl Record {
    #[inline]
    const fn kind(&self) -> u8 {
        match self {
            Self::Allocate { .. } => 1,
            Self::FreeRequested { .. } => 2,
            Self::FreeCompleted { .. } => 3,
            Self::Bind { .. } => 4,
            Self::Move { .. } => 5,
            Self::BlockOffset { .. } => 6,
            Self::BlockAllocate { backing: Backing::Memory, .. } => 7,
            Self::BlockFree { .. } => 8,
            Self::OutOfMemory { .. } => 9,
            Self::BlockAllocate { backing: Backing::Pages, .. } => 12,
            Self::PagesTake { .. } => 13,
            Self::PagesReturn { .. } => 14,
            Self::Use { .. } => 15,
            Self::Name { .. } => 16,
            Self::AllocateAt { .. } => 17,
            Self::Reside { .. } => 18,
            Self::HostPagesTake { .. } => 19,
            Self::HostPagesReturn { .. } => 20,
            Self::Step => 21,
        }
    }

    /// Calls `put` with its fields, in order.
    #[inline]
    fn for_each_field(&self, put: impl FnMut(u64)) {
        match *self {
            Self::Allocate { id, size, stream, align, label } => {
                [id, size, stream.0.into(), align.code().into(), label.0.into()]
                    .into_iter()
                    .for_each(put);
            }
            Self::AllocateAt { id, stream, align, label, block, offset, .. } => {
                let (stream, align, label) = (stream.0.into(), align.code().into(), label.0.into());
                [id, stream, align, label, block, offset].into_iter().for_each(put);
            }
            Self::FreeRequested { id, stream } | Self::FreeCompleted { id, stream } => {
                [id, stream.0.into()].into_iter().for_each(put);
            }
            Self::Use { stream, .. } => [stream.0.into()].into_iter().for_each(put),
            Self::Bind { id, block, offset } | Self::Move { id, block, offset } => {
                [id, block, offset].into_iter().for_each(put);
            }
            Self::BlockOffset { id, region, reason } => {
                [id, region as u64, reason.0.into()].into_iter().for_each(put);
            }
            Self::BlockAllocate { block, size, heap, .. } => {
                [block, size, heap.0.into()].into_iter().for_each(put);
            }
            Self::Reside { block, residence } => {
                [block, residence as u64].into_iter().for_each(put);
            }
            Self::BlockFree { block } => [block].into_iter().for_each(put),
            Self::OutOfMemory { size, stream, rung } => {
                [size, stream.0.into(), rung as u64].into_iter().for_each(put);
            }
            Self::PagesTake { heap, .. }
            | Self::PagesReturn { heap, .. }
            | Self::HostPagesTake { heap, .. }
            | Self::HostPagesReturn { heap, .. } => {
                [heap.0.into()].into_iter().for_each(put);
            }
            Self::Name { id, label } => [id, label.0.into()].into_iter().for_each(put),
            Self::Step => {}
        }
    }

    /// Returns the number that ends it in eight bytes, so that what a reader keeps is at most four times as long.
    #[inline]
    const fn word(&self) -> Option<u64> {
        match *self {
            Self::AllocateAt { size, .. } => Some(size),
            Self::PagesTake { bytes, .. }
            | Self::PagesReturn { bytes, .. }
            | Self::HostPagesTake { bytes, .. }
            | Self::HostPagesReturn { bytes, .. } => Some(bytes),
            Self::Use { id, .. } => Some(id),
            _ => None,
        }
    }

    fn from_parts(kind: u8, [a, b, c, d, e, f, word]: [u64; MOST]) -> Result<Self, &'static str> {
        Ok(match kind {
            1 => {
                let (stream, align, label) = (stream(c)?, alignment(d)?, label(e)?);
                Self::Allocate { id: a, size: b, stream, align, label }
            }
            17 => {
                let (stream, align, label) = (stream(b)?, alignment(c)?, label(d)?);
                Self::AllocateAt { id: a, size: word, stream, align, label, block: e, offset: f }
            }
            2 => Self::FreeRequested { id: a, stream: stream(b)? },
            3 => Self::FreeCompleted { id: a, stream: stream(b)? },
            4 => Self::Bind { id: a, block: b, offset: c },
            5 => Self::Move { id: a, block: b, offset: c },
            6 => Self::BlockOffset { id: a, region: region(b)?, reason: label(c)? },
            7 | 12 => {
                let backing = if kind == 7 { Backing::Memory } else { Backing::Pages };
                Self::BlockAllocate { block: a, size: b, heap: heap(c)?, backing }
            }
            8 => Self::BlockFree { block: a },
            9 => Self::OutOfMemory { size: a, stream: stream(b)?, rung: rung(c)? },
            13 => Self::PagesTake { bytes: word, heap: heap(a)? },
            14 => Self::PagesReturn { bytes: word, heap: heap(a)? },
            15 => Self::Use { id: word, stream: stream(a)? },
            16 => Self::Name { id: a, label: label(b)? },
            18 => Self::Reside { block: a, residence: residence(b)? },
            19 => Self::HostPagesTake { bytes: word, heap: heap(a)? },
            20 => Self::HostPagesReturn { bytes: word, heap: heap(a)? },
            21 => Self::Step,
            _ => return Err("record"),
        })
    }
}

/// Kinds that end in text.
const LABEL: u8 = 10;
const TITLE: u8 = 11;

/// Number fields of each kind; kind 0 does not exist.
const FIELDS: [u8; 22] = [0, 5, 2, 2, 3, 3, 3, 3, 1, 3, 1, 0, 3, 1, 1, 1, 2, 6, 2, 1, 1, 0];
/// Fields of a record at most.
const MOST: usize = 7;

fn narrow<T: TryFrom<u64>>(value: u64, what: &'static str) -> Result<T, &'static str> {
    T::try_from(value).map_err(|_| what)
}

fn stream(value: u64) -> Result<StreamId, &'static str> {
    narrow(value, "stream").map(StreamId)
}

fn label(value: u64) -> Result<LabelId, &'static str> {
    narrow(value, "label").map(LabelId)
}

fn alignment(value: u64) -> Result<Alignment, &'static str> {
    narrow(value, "alignment").and_then(|code| Alignment::from_code(code).ok_or("alignment"))
}

fn heap(value: u64) -> Result<HeapId, &'static str> {
    narrow(value, "heap").map(HeapId)
}

fn region(value: u64) -> Result<Region, &'static str> {
    let all = [Region::Device, Region::Constant, Region::Shared, Region::Staging, Region::Unified];
    all.into_iter().find(|region| *region as u64 == value).ok_or("region")
}

fn residence(value: u64) -> Result<Residence, &'static str> {
    let all = [Residence::Device, Residence::Host, Residence::File, Residence::Nothing];
    all.into_iter().find(|residence| *residence as u64 == value).ok_or("residence")
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
        Rung::Lend,
        Rung::Wait,
        Rung::Order,
    ];
    all.into_iter().find(|rung| *rung as u64 == value).ok_or("rung")
}
