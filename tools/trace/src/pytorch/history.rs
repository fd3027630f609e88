//! Trace of a device's history: what was there at first, then event by event.

use super::frames::Frames;
use super::ranges::{Cut, Ranges};
use super::{Parts, key};
use crate::builder::{Builder, Locate};
use crate::error::{Error, ErrorKind, Position};
use crate::event::{Alignment, Backing, HeapId, Rung, StreamId};
use crate::ids::Life;
use crate::limits::Limits;
use crate::trace::{Source, Trace};
use omniheap_pickle::{Cell, Data};
use std::collections::{BTreeMap, HashMap};

/// One event of the history, numbers checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Alloc,
    FreeRequested,
    FreeCompleted,
    /// A segment, or a piece of an expandable one, was mapped.
    Map,
    /// Likewise, given back.
    Unmap,
    OutOfMemory,
    /// Event that concerns no memory.
    Aside,
}

struct Entry {
    action: Action,
    address: u64,
    size: u64,
    stream: i64,
    time_us: u64,
}

fn entry(data: &Data<'_>, cell: Cell) -> Result<Entry, ErrorKind> {
    let broken = || ErrorKind::Malformed("PyTorch snapshot: event");
    let name = data.get(cell, key::ACTION).and_then(|name| data.text(name)).ok_or_else(broken)?;
    let action = match name {
        "alloc" => Action::Alloc,
        "free_requested" => Action::FreeRequested,
        "free_completed" | "free" => Action::FreeCompleted,
        "segment_alloc" | "segment_map" => Action::Map,
        "segment_free" | "segment_unmap" => Action::Unmap,
        "oom" => Action::OutOfMemory,
        _ => Action::Aside,
    };
    let number =
        |key| data.int(cell, key).map_or(Ok(0), |value| u64::try_from(value).map_err(|_| broken()));
    let (address, size, time_us) = (number(key::ADDR)?, number(key::SIZE)?, number(key::TIME)?);
    let stream = data.int(cell, key::STREAM).unwrap_or(0);
    Ok(Entry { action, address, size, stream, time_us })
}

/// Blocks and allocations at the start of the history.
struct Start {
    segments: Ranges,
    /// Address to size, stream, and the entry that may carry frames.
    live: BTreeMap<u64, (u64, i64, Option<Cell>)>,
}

impl Start {
    /// Begins with the end of the history and takes every event back.
    fn of(data: &Data<'_>, parts: &Parts<'_>) -> Result<Self, ErrorKind> {
        let mut start = Self::at_end(data, parts)?;
        for &cell in parts.events.iter().rev() {
            let entry = entry(data, cell)?;
            match entry.action {
                Action::Map => start.segments.cut(
                    entry.address,
                    entry.address.saturating_add(entry.size),
                    &mut |_| {},
                ),
                Action::Unmap => {
                    start.segments.add(entry.address, entry.size);
                }
                Action::Alloc => {
                    start.live.remove(&entry.address);
                }
                Action::FreeCompleted => {
                    start.live.insert(entry.address, (entry.size, entry.stream, None));
                }
                Action::FreeRequested | Action::OutOfMemory | Action::Aside => {}
            }
        }
        Ok(start)
    }

    fn at_end(data: &Data<'_>, parts: &Parts<'_>) -> Result<Self, ErrorKind> {
        let broken = || ErrorKind::Malformed("PyTorch snapshot: segment");
        let mut start = Self { segments: Ranges::default(), live: BTreeMap::new() };
        for &segment in parts.segments.iter().filter(|&&segment| parts.has(data, segment)) {
            let number =
                |cell, key| data.int(cell, key).and_then(|value| u64::try_from(value).ok());
            let address = number(segment, key::ADDRESS).ok_or_else(broken)?;
            let size = number(segment, key::TOTAL_SIZE).ok_or_else(broken)?;
            start.segments.add(address, size).ok_or_else(broken)?;
            let stream = data.int(segment, key::STREAM).unwrap_or(0);
            let blocks = data
                .get(segment, key::BLOCKS)
                .and_then(|blocks| data.list(blocks))
                .ok_or_else(broken)?;
            let mut at = address;
            for &block in blocks {
                let size = number(block, key::SIZE).ok_or_else(broken)?;
                let asked =
                    number(block, key::REQUESTED_SIZE).filter(|&asked| asked > 0).unwrap_or(size);
                let state = data
                    .get(block, key::STATE)
                    .and_then(|state| data.text(state))
                    .ok_or_else(broken)?;
                if state != "inactive" {
                    start.live.insert(at, (asked, stream, Some(block)));
                }
                at = at.checked_add(size).ok_or_else(broken)?;
            }
        }
        Ok(start)
    }
}

/// Builds the trace of one device.
pub(super) fn convert(data: &Data<'_>, parts: &Parts<'_>, limits: &Limits) -> Result<Trace, Error> {
    let at_input = |kind| Error::new(Position::Input, kind);
    refuse_repeats(parts).map_err(at_input)?;
    let start = Start::of(data, parts).map_err(at_input)?;
    let mut walk = Walk {
        data,
        builder: Builder::new(Source::PyTorch, limits),
        frames: Frames::new(limits.depth),
        segments: Ranges::default(),
        streams: HashMap::new(),
        began_us: None,
        now_us: 0,
    };
    walk.begin(start).map_err(at_input)?;
    for (number, &cell) in parts.events.iter().enumerate() {
        walk.event(cell).map_err(|kind| Error::new(Position::Event(number as u64), kind))?;
    }
    walk.builder.meta().skipped += parts.left_out;
    walk.builder.meta().title = format!("PyTorch device {}", parts.device);
    Ok(walk.builder.finish())
}

/// Each event is its own dictionary; one that is listed twice would cost more than it brings.
fn refuse_repeats(parts: &Parts<'_>) -> Result<(), ErrorKind> {
    let mut seen: Vec<Cell> = Vec::with_capacity(parts.events.len() + parts.segments.len());
    seen.extend(parts.events.iter().chain(parts.segments));
    seen.sort_unstable_by_key(|cell| cell.order());
    if seen.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(ErrorKind::Malformed("PyTorch snapshot: one event is listed twice"));
    }
    Ok(())
}

struct Walk<'d, 'i> {
    data: &'d Data<'i>,
    builder: Builder,
    frames: Frames,
    segments: Ranges,
    streams: HashMap<i64, StreamId>,
    began_us: Option<u64>,
    now_us: u64,
}

impl Walk<'_, '_> {
    fn begin(&mut self, start: Start) -> Result<(), ErrorKind> {
        for (address, size) in start.segments.iter() {
            self.map(address, size)?;
        }
        for (address, (size, stream, block)) in start.live {
            self.allocate(address, size, stream, block)?;
        }
        Ok(())
    }

    fn event(&mut self, cell: Cell) -> Result<(), ErrorKind> {
        let entry = entry(self.data, cell)?;
        let began_us = *self.began_us.get_or_insert(entry.time_us);
        // The recorder's clock is put together from two and may step back a little.
        self.now_us = self.now_us.max(entry.time_us.saturating_sub(began_us));
        self.builder.at(self.now_us)?;
        match entry.action {
            Action::Alloc => self.allocate(entry.address, entry.size, entry.stream, Some(cell)),
            Action::FreeRequested | Action::FreeCompleted => self.free(&entry),
            Action::Map => self.map(entry.address, entry.size),
            Action::Unmap => self.unmap(entry.address, entry.size),
            Action::OutOfMemory => {
                let stream = self.stream(entry.stream)?;
                self.builder.out_of_memory(entry.size, stream, Rung::Failed)
            }
            Action::Aside => self.skip(),
        }
    }

    fn skip(&mut self) -> Result<(), ErrorKind> {
        self.builder.meta().skipped += 1;
        Ok(())
    }

    /// Applies one event. A history has gaps where recording was off: events that do not fit are skipped and counted.
    fn free(&mut self, entry: &Entry) -> Result<(), ErrorKind> {
        let stream = self.stream(entry.stream)?;
        match (entry.action, self.builder.life(entry.address)) {
            (Action::FreeRequested, Some(Life::Live)) => {
                self.builder.free_requested(entry.address, None, stream)
            }
            (Action::FreeCompleted, Some(Life::Live | Life::Requested)) => {
                self.builder.free_completed(entry.address, None, stream)
            }
            _ => self.skip(),
        }
    }

    fn allocate(
        &mut self,
        address: u64,
        size: u64,
        stream: i64,
        frames: Option<Cell>,
    ) -> Result<(), ErrorKind> {
        let stream = self.stream(stream)?;
        if size == 0 {
            return self.skip();
        }
        if matches!(self.builder.life(address), Some(Life::Live | Life::Requested)) {
            // Its free fell into a hole of the history.
            self.builder.free_completed(address, None, stream)?;
            self.builder.meta().skipped += 1;
        }
        let id = self.builder.allocate(address, size, stream, Alignment::UNKNOWN)?;
        if let Some(cell) = frames {
            let label = self.frames.label(self.data, cell, &mut self.builder)?;
            self.builder.set_label(id, label)?;
        }
        match self.segments.holder(address, size) {
            Some(block) => self.builder.locate(address, block, address - block, Locate::Bind),
            // The allocation spans pieces of an expandable segment that were mapped one by one.
            None => Ok(()),
        }
    }

    fn map(&mut self, address: u64, size: u64) -> Result<(), ErrorKind> {
        let end = address.checked_add(size).ok_or(ErrorKind::LiveOverflow)?;
        self.cut(address, end)?;
        self.segments.add(address, size).ok_or(ErrorKind::ZeroSize)?;
        self.builder.block_allocate(address, size, HeapId(0), Backing::Memory)
    }

    fn unmap(&mut self, address: u64, size: u64) -> Result<(), ErrorKind> {
        self.cut(address, address.checked_add(size).ok_or(ErrorKind::LiveOverflow)?)
    }

    /// Frees `start..end`: whole blocks, or the part of a block inside it.
    fn cut(&mut self, start: u64, end: u64) -> Result<(), ErrorKind> {
        let builder = &mut self.builder;
        let mut outcome = Ok(());
        self.segments.cut(start, end, &mut |cut| {
            if outcome.is_ok() {
                outcome = match cut {
                    Cut::Gone(block) => builder.block_free(block),
                    Cut::Left(block, size) => {
                        builder.block_allocate(block, size, HeapId(0), Backing::Memory)
                    }
                };
            }
        });
        outcome
    }

    fn stream(&mut self, raw: i64) -> Result<StreamId, ErrorKind> {
        if let Some(&stream) = self.streams.get(&raw) {
            return Ok(stream);
        }
        let next = u16::try_from(self.streams.len())
            .map_err(|_| ErrorKind::TooLarge(crate::Field::Stream))?;
        self.streams.insert(raw, StreamId(next));
        Ok(StreamId(next))
    }
}
