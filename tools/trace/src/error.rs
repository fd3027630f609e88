//! Reason why a trace was refused: the place in the input, and what to do next.

use core::fmt;
use std::io;

/// Position in the input where a reader stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// The input as a whole.
    Input,
    /// A line of a text format, from 1; the header is line 1.
    Line(u64),
    /// An event of a snapshot's history, from 0.
    Event(u64),
    /// A byte offset of a binary format, after decompression.
    Byte(u64),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input => f.write_str("input"),
            Self::Line(line) => write!(f, "line {line}"),
            Self::Event(event) => write!(f, "event {event}"),
            Self::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

/// Returns the beginning of an error message: its position, if it has one.
fn lead(position: &Position) -> String {
    match position {
        Position::Input => String::new(),
        place => format!("{place}: "),
    }
}

/// A column of a text format or a field of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
    /// The operation.
    Op,
    /// The allocation.
    Id,
    /// Bytes.
    Size,
    /// The stream.
    Stream,
    /// The time.
    Time,
    /// The thread.
    Thread,
    /// Alignment.
    Alignment,
    /// Offset inside a block.
    Offset,
    /// The block.
    Block,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Op => "op",
            Self::Id => "id",
            Self::Size => "size",
            Self::Stream => "stream",
            Self::Time => "time",
            Self::Thread => "thread",
            Self::Alignment => "alignment",
            Self::Offset => "offset",
            Self::Block => "block",
        })
    }
}

/// A trace that was refused. Nothing of it is returned.
#[derive(Debug, thiserror::Error)]
#[error("{}{kind}", lead(.position))]
pub struct Error {
    position: Position,
    kind: ErrorKind,
}

impl Error {
    pub(crate) const fn new(position: Position, kind: ErrorKind) -> Self {
        Self { position, kind }
    }

    /// Returns the position where the reader stopped.
    pub const fn position(&self) -> Position {
        self.position
    }

    /// Returns the kind of error.
    pub const fn kind(&self) -> &ErrorKind {
        &self.kind
    }
}

/// Kinds of errors, each with advice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file could not be opened or read; check its path and permissions.
    #[error("cannot read: {0}; check the path and its permissions")]
    Io(#[from] io::Error),
    /// The content is of no known format.
    #[error(
        "not a trace: expected CSV (op,id,size,stream,time_us), an omniheap trace, a PyTorch snapshot, an RMM log or a VMA dump, plain or gzip"
    )]
    UnknownFormat,
    /// The input ends where more must follow; copy or record it again.
    #[error("input ends too early: it is empty or was cut off; copy or record it again")]
    Truncated,
    /// The compressed stream is damaged; copy it again.
    #[error("gzip data is damaged; copy the file again")]
    Gzip,
    /// The first line is not the header of the format.
    #[error("the first line must be `{0}`")]
    Header(&'static str),
    /// A line has fewer fields than the header.
    #[error("field `{0}` is missing")]
    MissingField(Field),
    /// A line has more fields than the header.
    #[error("there is text after the last field")]
    ExtraField,
    /// The first field is not a known operation.
    #[error("unknown operation; expected a (allocate), r (free requested) or f (free completed)")]
    UnknownOp,
    /// The action of a line is not one of the format's.
    #[error("unknown action; expected {0}")]
    UnknownAction(&'static str),
    /// A field does not hold a number of its kind.
    #[error("field `{0}` is not a whole decimal number")]
    NotANumber(Field),
    /// A number passes what its field can hold.
    #[error("field `{0}` is too large")]
    TooLarge(Field),
    /// An allocation of no bytes.
    #[error("size is 0; an allocation has at least 1 byte")]
    ZeroSize,
    /// A free names another size than its allocation.
    #[error("size {given} differs from the {allocated} bytes that were allocated")]
    SizeMismatch {
        /// Bytes in this record.
        given: u64,
        /// Bytes in the allocation's record.
        allocated: u64,
    },
    /// The id of a live allocation is allocated again.
    #[error("id {0} is allocated again while it is live; free it first or give it a new id")]
    DuplicateId(u64),
    /// A record names an id that was never allocated.
    #[error("id {0} was never allocated; the trace must start with its allocation")]
    UnknownId(u64),
    /// A free of what was freed before.
    #[error("id {0} is freed twice")]
    DoubleFree(u64),
    /// Time runs backwards.
    #[error("time goes back from {before} to {now}; events must be in order")]
    TimeGoesBack {
        /// Time of the record before.
        before: u64,
        /// Time of this record.
        now: u64,
    },
    /// Live bytes no longer fit 64 bits.
    #[error("live bytes exceed 64 bits; sizes are wrong")]
    LiveOverflow,
    /// A record names a block that is not held.
    #[error("block {0:#x} is not held from the driver at this point")]
    UnknownBlock(u64),
    /// The id of a held block is taken again.
    #[error("block {0:#x} is taken again while it is held")]
    DuplicateBlock(u64),
    /// An allocation reaches past the end of its block.
    #[error("the allocation ends past its block of {block_size} bytes")]
    OutsideBlock {
        /// Bytes of the block.
        block_size: u64,
    },
    /// The file was written by a newer version of the format.
    #[error("format version {0} is newer than this reader; update omniheap")]
    Version(u16),
    /// A chunk's bytes are not those that were written.
    #[error("the chunk's checksum does not match: the file is damaged; copy it again")]
    Checksum,
    /// A pickle asks for code to be found or run; plain data never does.
    #[error(
        "the pickle wants to run code, which a memory snapshot never needs; do not trust this file"
    )]
    Forbidden,
    /// A record's bytes make no sense.
    #[error("not a valid {0}")]
    Malformed(&'static str),
    /// More of something than [`Limits`](crate::Limits) permits.
    #[error("more than {limit} {what}; raise that limit if the file is to be trusted")]
    OverLimit {
        /// Name of the exceeded limit.
        what: &'static str,
        /// The limit in force.
        limit: u64,
    },
}
