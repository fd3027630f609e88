//! Writes a trace while a program runs: bounded memory, a chunk at a time, closed on drop.

use super::record::{Entry, Record};
use super::varint::ROOM;
use super::{CHUNK_HEAD, END, FILE_HEAD, MAGIC, VERSION, checksum};
use crate::label::{LabelId, Labels};
use std::io::{self, Write};

/// Payload bytes after which a chunk is written.
const CHUNK: usize = 64 << 10;
/// Longest text of a label or title; longer ones are cut.
const MAX_TEXT: usize = 1 << 12;
/// Most labels that a writer keeps, and most bytes of their text; later ones are [`LabelId::NONE`].
const MAX_LABELS: usize = 1 << 18;
const MAX_LABEL_TEXT: usize = 16 << 20;
/// Labels that are found without a hash table.
const RECENT: usize = 256;

/// Records events into `W`. Recording never disturbs the program: after a write fails, events are counted as lost and
/// the error waits for [`Writer::finish`].
///
/// Dropping it, also while a panic unwinds, writes what is pending and the closing mark. What a killed process leaves
/// is read up to its last whole chunk; [`Writer::flush`] bounds how much that loses.
///
/// # Cost
/// Amortised below 50 ns per event; 64 KiB and the labels are held in memory. It is `&mut`: share it behind a lock,
/// or give each thread its own file.
///
/// # Examples
/// ```
/// use omniheap_trace::binary::{Record, Writer};
/// use omniheap_trace::{Alignment, LabelId, Limits, StreamId, Trace};
/// let mut recorder = Writer::new(Vec::new());
/// let label = recorder.label(LabelId::NONE, "weights");
/// let stream = StreamId(0);
/// recorder.record(10, &Record::Allocate { id: 7, size: 4096, stream, align: Alignment::UNKNOWN, label });
/// let file = recorder.finish()?;
/// let trace = Trace::read(&file[..], &Limits::default())?;
/// assert_eq!(trace.summary().peak_live_bytes, 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Writer<W: Write> {
    /// `None` once closed.
    sink: Option<W>,
    /// The chunk being filled, its head included; what lies behind `filled` is room.
    chunk: Box<[u8]>,
    filled: usize,
    records: u32,
    now_us: u64,
    labels: Labels,
    /// Labels that were asked for lately, by a digest of their text: a program has few names and uses them often.
    recent: Box<[LabelId; RECENT]>,
    lost: u64,
    failure: Option<io::Error>,
}

impl<W: Write> Writer<W> {
    /// Starts a trace in `sink`, which needs no buffering of its own. Nothing is written before the first chunk is.
    pub fn new(sink: W) -> Self {
        let mut chunk = vec![0; CHUNK_HEAD + CHUNK + MAX_TEXT + ROOM].into_boxed_slice();
        chunk[..MAGIC.len()].copy_from_slice(MAGIC);
        chunk[MAGIC.len()..MAGIC.len() + 2].copy_from_slice(&VERSION.to_le_bytes());
        let mut recorder = Self {
            sink: Some(sink),
            chunk,
            filled: FILE_HEAD,
            records: 0,
            now_us: 0,
            labels: Labels::default(),
            recent: Box::new([LabelId::NONE; RECENT]),
            lost: 0,
            failure: None,
        };
        recorder.put_out();
        recorder
    }

    /// Records what happened at `time_us`. A time before the last one counts as the last one.
    #[inline]
    pub fn record(&mut self, time_us: u64, record: &Record) {
        self.put(time_us, &Entry::Record(*record));
    }

    #[inline]
    pub(super) fn put(&mut self, time_us: u64, entry: &Entry<'_>) {
        if self.failure.is_some() {
            self.lost += 1;
            return;
        }
        let step_us = time_us.saturating_sub(self.now_us);
        self.now_us += step_us;
        let room = self.chunk[self.filled..].first_chunk_mut();
        self.filled += entry.encode(step_us, room.expect("room for text and a frame is kept"));
        let text = entry.text().as_bytes();
        if !text.is_empty() {
            self.chunk[self.filled..self.filled + text.len()].copy_from_slice(text);
            self.filled += text.len();
        }
        self.records += 1;
        if self.filled >= CHUNK_HEAD + CHUNK {
            self.flush();
        }
    }

    /// Returns the label `parent / text`, recording it when it is new. Text past 4 KiB is cut; past 2¹⁸ labels
    /// or 16 MiB of text the answer is [`LabelId::NONE`].
    pub fn label(&mut self, parent: LabelId, text: &str) -> LabelId {
        let text = cut(text);
        let place = digest(parent, text);
        let recent = self.recent[place];
        if recent != LabelId::NONE && self.labels.is(recent, parent, text) {
            return recent;
        }
        let known = self.labels.len();
        let full = known >= MAX_LABELS || self.labels.text_bytes() >= MAX_LABEL_TEXT;
        if full || parent.0 as usize > known {
            return LabelId::NONE;
        }
        let label = self.labels.intern(parent, text);
        if self.labels.len() > known {
            self.put(self.now_us, &Entry::Label { parent, text });
        }
        self.recent[place] = label;
        label
    }

    /// Sets the trace's title.
    pub fn title(&mut self, text: &str) {
        self.put(self.now_us, &Entry::Title { text: cut(text) });
    }

    /// Writes what is pending, so that it survives the process.
    pub fn flush(&mut self) {
        if self.records > 0 {
            self.close_chunk(self.records);
        }
    }

    /// Events that were not written because an earlier write failed.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Writes what is pending and the closing mark, and returns the sink.
    ///
    /// # Errors
    /// The first write that failed.
    ///
    /// # Panics
    /// Never: the sink is there until this takes it.
    pub fn finish(mut self) -> io::Result<W> {
        self.close();
        let sink =
            self.sink.take().expect("only `finish` takes the sink, and it consumes the recorder");
        match self.failure.take() {
            Some(error) => Err(error),
            None => Ok(sink),
        }
    }

    fn close(&mut self) {
        self.flush();
        self.close_chunk(END);
        if let (Some(sink), None) = (&mut self.sink, &self.failure)
            && let Err(error) = sink.flush()
        {
            self.failure = Some(error);
        }
    }

    /// Completes the head of the chunk, writes it and starts the next.
    fn close_chunk(&mut self, records: u32) {
        let payload =
            u32::try_from(self.filled - CHUNK_HEAD).expect("a chunk is written at 64 KiB");
        let mut head = [0; 8];
        head[..4].copy_from_slice(&payload.to_le_bytes());
        head[4..].copy_from_slice(&records.to_le_bytes());
        let sum = checksum(&head, &self.chunk[CHUNK_HEAD..self.filled]);
        self.chunk[..8].copy_from_slice(&head);
        self.chunk[8..CHUNK_HEAD].copy_from_slice(&sum.to_le_bytes());
        self.put_out();
    }

    /// Writes the bytes gathered and leaves room for the next chunk's head.
    fn put_out(&mut self) {
        if let (Some(sink), None) = (&mut self.sink, &self.failure)
            && let Err(error) = sink.write_all(&self.chunk[..self.filled])
        {
            self.failure = Some(error);
            self.lost += u64::from(self.records);
        }
        self.records = 0;
        self.filled = CHUNK_HEAD;
    }
}

impl<W: Write> Drop for Writer<W> {
    fn drop(&mut self) {
        if self.sink.is_some() {
            self.close();
        }
    }
}

/// Replays the labels of a trace into a recorder that has none, so that ids agree.
pub(crate) fn copy_labels<W: Write>(labels: &Labels, recorder: &mut Writer<W>) {
    for id in 1..=labels.len() {
        let id = LabelId(u32::try_from(id).expect("label ids have 32 bits"));
        let entry = Entry::Label { parent: labels.parent(id), text: cut(labels.text(id)) };
        recorder.put(0, &entry);
    }
}

/// At most [`MAX_TEXT`] bytes of `text`, whole characters.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}

/// Hashes a label from its length and its last bytes, in which names differ most.
fn digest(parent: LabelId, text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut last = [0; 8];
    let tail = &bytes[bytes.len().saturating_sub(8)..];
    last[..tail.len()].copy_from_slice(tail);
    let mixed = (u64::from_le_bytes(last) ^ bytes.len() as u64 ^ (u64::from(parent.0) << 20))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as usize % RECENT
}

#[cfg(test)]
mod tests {
    use super::{RECENT, Writer};
    use crate::label::LabelId;
    use crate::{Limits, Trace};

    #[test]
    fn a_name_has_one_label_however_many_names_there_are() {
        let mut writer = Writer::new(Vec::new());
        let parents = [LabelId::NONE, writer.label(LabelId::NONE, "tag 1")];
        // Names with one ending and one length share a place among the recent ones.
        let names: Vec<String> =
            (0..4 * RECENT).map(|n| format!("{n:06} of the same ending")).collect();
        let mut ask = || {
            let of = |parent| names.iter().map(move |name| (parent, name));
            let asked = parents.into_iter().flat_map(of);
            asked.map(|(parent, name)| writer.label(parent, name)).collect::<Vec<_>>()
        };
        let first = ask();
        assert_eq!(first, ask());
        let distinct: std::collections::BTreeSet<_> = first.iter().collect();
        assert_eq!(distinct.len(), 2 * names.len());
        let file = writer.finish().expect("memory takes all");
        let trace = Trace::read(&file[..], &Limits::default()).expect("just written");
        for (label, name) in first.iter().skip(names.len()).zip(&names) {
            assert_eq!(trace.labels().path(*label), format!("tag 1/{name}"));
        }
    }
}
