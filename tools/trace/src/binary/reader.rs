//! Reads the binary format back, a chunk at a time, and writes whole traces into it.

use super::record::{Entry, Record};
use super::writer::{Writer, copy_labels};
use super::{CHUNK_HEAD, END, FILE_HEAD, MAGIC, MAX_CHUNK, VERSION, checksum};
use crate::builder::{Builder, Locate};
use crate::error::{Error, ErrorKind, Position};
use crate::event::Op;
use crate::input::Input;
use crate::limits::Limits;
use crate::trace::{Ending, Source, Trace};
use std::io::{self, Read, Write};

/// Reads a trace from `source`, plain or gzip, within `limits`.
///
/// # Errors
/// The first thing that is wrong, with its byte. A file that just ends is no error: see [`Ending`].
pub fn read(source: impl Read, limits: &Limits) -> Result<Trace, Error> {
    read_input(&mut Input::new(source, limits)?, limits)
}

pub(crate) fn read_input(input: &mut Input<'_>, limits: &Limits) -> Result<Trace, Error> {
    let mut reader = Reader {
        builder: Builder::new(Source::Binary, limits),
        payload: Vec::new(),
        at: 0,
        now_us: 0,
    };
    let ending = reader.run(input).map_err(|kind| Error::new(Position::Byte(reader.at), kind))?;
    reader.builder.meta().ending = ending;
    Ok(reader.builder.finish())
}

struct Reader {
    builder: Builder,
    payload: Vec<u8>,
    /// Bytes of input that are fully taken in.
    at: u64,
    now_us: u64,
}

impl Reader {
    fn run(&mut self, input: &mut Input<'_>) -> Result<Ending, ErrorKind> {
        self.file_head(input)?;
        loop {
            let mut head = [0; CHUNK_HEAD];
            if fill(input, &mut head)? < CHUNK_HEAD {
                return Ok(Ending::CutOff);
            }
            let [length, records, sum] = words(&head);
            if length as usize > MAX_CHUNK {
                return Err(ErrorKind::OverLimit {
                    what: "bytes in one chunk",
                    limit: MAX_CHUNK as u64,
                });
            }
            self.payload.resize(length as usize, 0);
            if fill(input, &mut self.payload)? < self.payload.len() {
                return Ok(Ending::CutOff);
            }
            if checksum(&head[..8], &self.payload) != sum {
                return Err(ErrorKind::Checksum);
            }
            if records == END {
                return self.end(input);
            }
            self.chunk(records)?;
        }
    }

    fn file_head(&mut self, input: &mut Input<'_>) -> Result<(), ErrorKind> {
        let mut head = [0; FILE_HEAD];
        if fill(input, &mut head)? < FILE_HEAD {
            return Err(ErrorKind::Truncated);
        }
        if !head.starts_with(MAGIC) {
            return Err(ErrorKind::UnknownFormat);
        }
        let version = u16::from_le_bytes([head[8], head[9]]);
        if version > VERSION {
            return Err(ErrorKind::Version(version));
        }
        if version == 0 || head[10..] != [0; 6] {
            return Err(ErrorKind::Malformed("file head"));
        }
        self.at = FILE_HEAD as u64;
        Ok(())
    }

    /// Nothing may follow the closing mark.
    fn end(&mut self, input: &mut Input<'_>) -> Result<Ending, ErrorKind> {
        self.at += CHUNK_HEAD as u64;
        if !self.payload.is_empty() || fill(input, &mut [0])? > 0 {
            return Err(ErrorKind::Malformed("closing mark"));
        }
        Ok(Ending::Complete)
    }

    fn chunk(&mut self, records: u32) -> Result<(), ErrorKind> {
        let payload = core::mem::take(&mut self.payload);
        let mut rest = &payload[..];
        self.at += CHUNK_HEAD as u64;
        let mut count = 0;
        while let [low, high, body @ ..] = rest {
            let length = usize::from(u16::from_le_bytes([*low, *high]));
            let (body, after) =
                body.split_at_checked(length).ok_or(ErrorKind::Malformed("record length"))?;
            self.record(body)?;
            self.at += 2 + length as u64;
            rest = after;
            count += 1;
        }
        let whole = rest.is_empty() && count == records;
        self.payload = payload;
        if whole { Ok(()) } else { Err(ErrorKind::Malformed("chunk")) }
    }

    fn record(&mut self, body: &[u8]) -> Result<(), ErrorKind> {
        let (step_us, entry) = Entry::decode(body).map_err(ErrorKind::Malformed)?;
        self.now_us =
            self.now_us.checked_add(step_us).ok_or(ErrorKind::TooLarge(crate::Field::Time))?;
        let builder = &mut self.builder;
        builder.at(self.now_us)?;
        match entry {
            None => {
                builder.meta().skipped += 1;
                Ok(())
            }
            Some(Entry::Label { parent, text }) => builder.label(parent, text).map(|_| ()),
            Some(Entry::Title { text }) => {
                builder.meta().title = text.to_owned();
                Ok(())
            }
            Some(Entry::Record(record)) => apply(record, builder),
        }
    }
}

fn apply(record: Record, builder: &mut Builder) -> Result<(), ErrorKind> {
    match record {
        Record::Allocate { id, size, stream, align, label } => {
            let id = builder.allocate(id, size, stream, align)?;
            builder.set_label(id, label)
        }
        Record::AllocateAt { id, size, stream, align, label, block, offset } => {
            let allocated = builder.allocate(id, size, stream, align)?;
            builder.set_label(allocated, label)?;
            builder.locate(id, block, offset, Locate::Bind)
        }
        Record::FreeRequested { id, stream } => builder.free_requested(id, None, stream),
        Record::FreeCompleted { id, stream } => builder.free_completed(id, None, stream),
        Record::Bind { id, block, offset } => builder.locate(id, block, offset, Locate::Bind),
        Record::Move { id, block, offset } => builder.locate(id, block, offset, Locate::Move),
        Record::BlockOffset { id, region, reason } => builder.place(id, region, reason),
        Record::BlockAllocate { block, size, heap, backing } => {
            builder.block_allocate(block, size, heap, backing)
        }
        Record::BlockFree { block } => builder.block_free(block),
        Record::OutOfMemory { size, stream, rung } => builder.out_of_memory(size, stream, rung),
        Record::PagesTake { bytes, heap } => builder.pages_take(bytes, heap),
        Record::PagesReturn { bytes, heap } => builder.pages_return(bytes, heap),
        Record::HostPagesTake { bytes, heap } => builder.host_pages_take(bytes, heap),
        Record::HostPagesReturn { bytes, heap } => builder.host_pages_return(bytes, heap),
        Record::Use { id, stream } => builder.use_on(id, stream),
        Record::Reside { block, residence } => builder.reside(block, residence),
        Record::Name { id, label } => builder.name(id, label),
        Record::Step => {
            builder.begin_step();
            Ok(())
        }
    }
}

fn fill(input: &mut Input<'_>, buffer: &mut [u8]) -> Result<usize, ErrorKind> {
    input.fill(buffer)
}

fn words(head: &[u8; CHUNK_HEAD]) -> [u32; 3] {
    core::array::from_fn(|word| {
        let bytes = &head[4 * word..4 * word + 4];
        u32::from_le_bytes(bytes.try_into().expect("four bytes are four bytes"))
    })
}

/// Writes `trace` to `sink` in the binary format and returns the sink.
///
/// # Errors
/// Those of `sink`.
pub fn write<W: Write>(trace: &Trace, sink: W) -> io::Result<W> {
    let mut recorder = Writer::new(sink);
    if !trace.meta().title.is_empty() {
        recorder.title(&trace.meta().title);
    }
    copy_labels(trace.labels(), &mut recorder);
    for (number, event) in trace.events().iter().enumerate() {
        if trace.is_step(number) {
            recorder.record(event.time_us, &Record::Step);
        }
        recorder.record(event.time_us, &raw(trace, &event.op));
    }
    if trace.is_step(trace.events().len()) {
        recorder.record(0, &Record::Step);
    }
    recorder.finish()
}

/// Returns the record that says what `op` says, with the trace's own ids.
fn raw(trace: &Trace, op: &Op) -> Record {
    match *op {
        Op::Allocate { id, size, stream, align } => {
            Record::Allocate { id: id.0.into(), size, stream, align, label: trace.label_of(id) }
        }
        Op::FreeRequested { id, stream, .. } => Record::FreeRequested { id: id.0.into(), stream },
        Op::FreeCompleted { id, stream, .. } => Record::FreeCompleted { id: id.0.into(), stream },
        Op::Bind { id, block, offset } => {
            Record::Bind { id: id.0.into(), block: block.0.into(), offset }
        }
        Op::Move { id, block, offset } => {
            Record::Move { id: id.0.into(), block: block.0.into(), offset }
        }
        Op::BlockOffset { id, region, reason } => {
            Record::BlockOffset { id: id.0.into(), region, reason }
        }
        Op::BlockAllocate { block, size, heap, backing } => {
            Record::BlockAllocate { block: block.0.into(), size, heap, backing }
        }
        Op::BlockFree { block, .. } => Record::BlockFree { block: block.0.into() },
        Op::OutOfMemory { size, stream, rung } => Record::OutOfMemory { size, stream, rung },
        Op::PagesTake { bytes, heap } => Record::PagesTake { bytes, heap },
        Op::PagesReturn { bytes, heap } => Record::PagesReturn { bytes, heap },
        Op::HostPagesTake { bytes, heap } => Record::HostPagesTake { bytes, heap },
        Op::HostPagesReturn { bytes, heap } => Record::HostPagesReturn { bytes, heap },
        Op::Use { id, stream } => Record::Use { id: id.0.into(), stream },
        Op::Reside { block, residence } => Record::Reside { block: block.0.into(), residence },
    }
}

/// Returns the record of a request (allocate, free, failure); `None` for what an allocator did about it.
pub(crate) fn request_of(trace: &Trace, op: &Op) -> Option<Record> {
    match op {
        Op::Allocate { .. }
        | Op::FreeRequested { .. }
        | Op::FreeCompleted { .. }
        | Op::Use { .. }
        | Op::OutOfMemory { .. } => Some(raw(trace, op)),
        Op::Bind { .. }
        | Op::Move { .. }
        | Op::BlockOffset { .. }
        | Op::BlockAllocate { .. }
        | Op::BlockFree { .. }
        | Op::PagesTake { .. }
        | Op::PagesReturn { .. }
        | Op::HostPagesTake { .. }
        | Op::HostPagesReturn { .. }
        | Op::Reside { .. } => None,
    }
}
