//! A PyTorch memory snapshot, for PyTorch's memory viewer and everything else that reads them.
//!
//! Blocks become segments of device 0, labels become stack frames. Of blocks whose pages come and go, segments are where
//! something lives or lived, until as many pages are given back. A move becomes a free and an allocation. The
//! viewer needs places: give a trace without them to [`bind_by_model`](crate::report::bind_by_model) first; what has
//! none here gets an address outside every segment.

use super::history::{Entry, History, State};
use super::pickle::Pickler;
use crate::label::{LabelId, Labels};
use crate::trace::Trace;
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};

/// Writes `trace` as a snapshot.
///
/// # Errors
/// Those of `sink`.
pub fn write(trace: &Trace, mut sink: impl Write) -> io::Result<()> {
    write_to(trace, &mut sink)
}

/// Writes without generics, so that it is compiled once, and here.
fn write_to(trace: &Trace, sink: &mut dyn Write) -> io::Result<()> {
    let mut pickler = Pickler::new(BufWriter::new(sink))?;
    let mut history = History::new(trace);
    let mut frames =
        Frames { labels: trace.labels(), lists: HashMap::new(), frames: HashMap::new() };
    pickler.dict(|pickler| {
        pickler.word("device_traces")?;
        pickler.list([()], |pickler, ()| {
            pickler.list(history.by_ref(), |pickler, entry| frames.entry(pickler, &entry))
        })?;
        // The segments are what the history leaves, so they come after it.
        pickler.word("segments")?;
        pickler.list(history.segments(), |pickler, (address, size)| {
            frames.segment(pickler, &history, address, size)
        })
    })?;
    pickler.finish().map(|_| ())
}

/// Frames of a stack at most, the innermost: readers keep as many, and the file must not grow with labels times their depth.
const MAX_FRAMES: usize = 64;

/// Writes labels as lists of stack frames, each list and each frame once.
struct Frames<'t> {
    labels: &'t Labels,
    lists: HashMap<LabelId, u32>,
    frames: HashMap<LabelId, u32>,
}

impl Frames<'_> {
    fn entry<W: Write>(&mut self, pickler: &mut Pickler<W>, entry: &Entry) -> io::Result<()> {
        pickler.dict(|pickler| {
            pickler.word_field("action", entry.action)?;
            pickler.int_field(
                if entry.action == "oom" { "device_free" } else { "addr" },
                entry.address,
            )?;
            pickler.int_field("size", entry.size)?;
            pickler.int_field("stream", entry.stream.into())?;
            pickler.int_field("time_us", entry.time_us)?;
            pickler.word("frames")?;
            self.frames(pickler, entry.label)
        })
    }

    fn segment<W: Write>(
        &mut self,
        pickler: &mut Pickler<W>,
        history: &History<'_>,
        address: u64,
        size: u64,
    ) -> io::Result<()> {
        let live: u64 = history.live(address, size).map(|(_, live)| live.size).sum();
        pickler.dict(|pickler| {
            pickler.int_field("device", 0)?;
            pickler.int_field("address", address)?;
            pickler.int_field("total_size", size)?;
            for key in ["allocated_size", "active_size", "requested_size"] {
                pickler.int_field(key, live)?;
            }
            pickler.int_field("stream", 0)?;
            pickler.word_field("segment_type", "large")?;
            pickler.word("frames")?;
            self.frames(pickler, LabelId::NONE)?;
            pickler.word("blocks")?;
            self.blocks(pickler, history, address, size)
        })
    }

    /// Writes the pieces of a segment, free and live, without a gap.
    fn blocks<W: Write>(
        &mut self,
        pickler: &mut Pickler<W>,
        history: &History<'_>,
        address: u64,
        size: u64,
    ) -> io::Result<()> {
        let mut pieces = Vec::new();
        // Made-up addresses stop at the last one there is; nothing real is that large.
        let (mut end, last) = (address, address.saturating_add(size));
        for (at, live) in history.live(address, size) {
            if at > end {
                pieces.push((end, at - end, "inactive", LabelId::NONE));
            }
            let state = match live.state {
                State::Live => "active_allocated",
                State::Pending => "active_pending_free",
            };
            pieces.push((at, live.size, state, live.label));
            end = at.saturating_add(live.size);
        }
        if end < last {
            pieces.push((end, last - end, "inactive", LabelId::NONE));
        }
        pickler.list(pieces, |pickler, (at, size, state, label)| {
            pickler.dict(|pickler| {
                pickler.int_field("address", at)?;
                pickler.int_field("size", size)?;
                pickler.int_field("requested_size", if state == "inactive" { 0 } else { size })?;
                pickler.word_field("state", state)?;
                pickler.word("frames")?;
                self.frames(pickler, label)
            })
        })
    }

    fn frames<W: Write>(&mut self, pickler: &mut Pickler<W>, label: LabelId) -> io::Result<()> {
        if let Some(&memo) = self.lists.get(&label) {
            return pickler.recall(memo);
        }
        let labels = self.labels;
        let known = |label: LabelId| Some(label).filter(|label| *label != LabelId::NONE);
        // The innermost frame comes first, as the last part of a label's path.
        let path = core::iter::successors(known(label), |at| known(labels.parent(*at)));
        pickler.list(path.take(MAX_FRAMES), |pickler, part| self.frame(pickler, part))?;
        self.lists.insert(label, pickler.memoize()?);
        Ok(())
    }

    fn frame<W: Write>(&mut self, pickler: &mut Pickler<W>, part: LabelId) -> io::Result<()> {
        if let Some(&memo) = self.frames.get(&part) {
            return pickler.recall(memo);
        }
        pickler.dict(|pickler| {
            pickler.word_field("filename", "")?;
            pickler.int_field("line", 0)?;
            pickler.word("name")?;
            pickler.text(self.labels.text(part))
        })?;
        self.frames.insert(part, pickler.memoize()?);
        Ok(())
    }
}
