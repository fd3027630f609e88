//! Bytes in, out and across: staged writes and reads, fills, and copies as one batch.
#![expect(unsafe_code, reason = "records commands into the driver's buffers")]
pub(crate) mod copier;
pub(crate) mod copy;
pub(crate) mod kernel;
pub(crate) mod ring;
pub(crate) mod staging;
pub(crate) mod tasks;

use crate::{Block, Vulkan, timeline::queue::QueueTimeline, transfer::staging::Staging};
use ash::vk;
use omniheap_seam::{BlockOffset, ErrorKind, Move, Result, TimelineId, Transfer};
use std::{collections::VecDeque, sync::MutexGuard};

/// Splits `0..len` into pieces of at most `most` bytes.
fn pieces(len: usize, most: u64) -> impl Iterator<Item = (u64, core::ops::Range<usize>)> {
    let step = usize::try_from(most).unwrap_or(usize::MAX).max(1);
    (0..len).step_by(step).map(move |start| (start as u64, start..len.min(start + step)))
}

impl Vulkan {
    /// Returns the buffer behind a place, once the range is known to lie in the block.
    pub(crate) fn target(&self, place: BlockOffset<'_, Block>, size: u64) -> Result<vk::Buffer> {
        place.block.belongs_to(&self.device)?;
        place.block.covers(place.offset, size)?;
        place.block.buffer().ok_or(ErrorKind::Unsupported.into())
    }

    pub(crate) fn record_copy(
        &self,
        commands: vk::CommandBuffer,
        from: vk::Buffer,
        to: vk::Buffer,
        regions: &[vk::BufferCopy],
    ) {
        // SAFETY: `commands` is recording (only `QueueTimeline::run` calls the closures); both buffers are alive and checked to
        // cover the regions, and callers keep blocks alive while work uses them.
        unsafe { self.device.raw.cmd_copy_buffer(commands, from, to, regions) };
    }

    /// Sends bytes through the ring of a timeline, piece after piece: `record` copies each on from there. Others submit between the pieces.
    pub(crate) fn send(
        timeline: &QueueTimeline,
        bytes: &[u8],
        record: impl Fn(vk::CommandBuffer, Staged),
    ) -> Result<()> {
        let mut ring = timeline.ring();
        let mut parts = pieces(bytes.len(), timeline.piece());
        parts.try_for_each(|(offset, range)| {
            let bytes = &bytes[range];
            let size = bytes.len() as u64;
            let staged = timeline.stage(&mut ring, size)?;
            let (start, staging) = staged.ok_or(ErrorKind::OutOfHostMemory)?;
            let put = staging.put(start, bytes);
            let piece = Staged { buffer: staging.buffer(), start, offset, size };
            let record = |commands| record(commands, piece);
            let sent = put.and_then(|()| timeline.run(&mut timeline.hold(), record));
            staging.ring.seal(start, *sent.as_ref().unwrap_or(&0));
            sent.map(drop)
        })
    }

    /// Fetches bytes through the ring of a timeline, piece after piece: `record` copies each to there.
    pub(crate) fn fetch(
        timeline: &QueueTimeline,
        bytes: &mut [u8],
        record: impl Fn(vk::CommandBuffer, Staged),
    ) -> Result<()> {
        let mut parts = pieces(bytes.len(), timeline.piece());
        let (ring, coming) = (timeline.ring(), VecDeque::new());
        let mut arrivals = Arrivals { timeline, ring, coming, bytes };
        let started = parts.try_for_each(|(_, range)| arrivals.start(range, &record));
        arrivals.finish(started)
    }

    /// Fills whole words, and at most three bytes at either edge, as one batch; ranges are offset and size.
    fn fill_parts(
        &self,
        timeline: &QueueTimeline,
        (buffer, value): (vk::Buffer, u8),
        (start, size): (u64, u64),
        edges: [(u64, u64); 2],
    ) -> Result<()> {
        let (mut regions, mut staged) = (Vec::new(), None);
        let mut ring = edges.iter().any(|(_, size)| *size > 0).then(|| timeline.ring());
        if let Some(ring) = &mut ring {
            let taken = timeline.stage(ring, 4)?;
            let (at, staging) = taken.ok_or(ErrorKind::OutOfHostMemory)?;
            let put = staging.put(at, &[value; 4]);
            if put.is_err() {
                staging.ring.seal(at, 0);
                return put;
            }
            let wanted = edges.into_iter().filter(|(_, size)| *size > 0);
            regions.extend(wanted.map(|(to, size)| region(at, to, size)));
            staged = Some((at, staging));
        }
        let from = staged.as_ref().map(|(_, staging)| staging.buffer());
        let sent = timeline.run(&mut timeline.hold(), |commands| {
            if size > 0 {
                let word = u32::from_ne_bytes([value; 4]);
                // SAFETY: recording; the caller checked the range, which consists of whole words.
                unsafe { self.device.raw.cmd_fill_buffer(commands, buffer, start, size, word) };
            }
            if let Some(from) = from {
                self.record_copy(commands, from, buffer, &regions);
            }
        });
        if let Some((at, staging)) = staged {
            staging.ring.seal(at, *sent.as_ref().unwrap_or(&0));
        }
        sent.map(drop)
    }
}

pub(crate) fn region(from: u64, to: u64, size: u64) -> vk::BufferCopy {
    vk::BufferCopy { src_offset: from, dst_offset: to, size }
}

/// A piece in a timeline's ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Staged {
    /// The ring.
    pub(crate) buffer: vk::Buffer,
    /// Bytes from the ring's start.
    pub(crate) start: u64,
    /// Bytes from the start of what is sent or fetched.
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

/// A piece on its way out: its place in the ring, when it is there, and where the caller wants it.
struct Coming {
    start: u64,
    epoch: u64,
    range: core::ops::Range<usize>,
}

/// A read under way.
struct Arrivals<'a> {
    timeline: &'a QueueTimeline,
    ring: MutexGuard<'a, Option<Staging>>,
    coming: VecDeque<Coming>,
    bytes: &'a mut [u8],
}

impl Arrivals<'_> {
    /// Starts one piece's way out.
    fn start(
        &mut self,
        range: core::ops::Range<usize>,
        record: impl Fn(vk::CommandBuffer, Staged),
    ) -> Result<()> {
        let size = range.len() as u64;
        let (start, buffer) = loop {
            match self.timeline.stage(&mut self.ring, size)? {
                Some((start, staging)) => break (start, staging.buffer()),
                // The ring is full of our own pieces: hand one over first.
                None => self.next()?,
            }
        };
        let piece = Staged { buffer, start, offset: range.start as u64, size };
        let sent = self.timeline.run(&mut self.timeline.hold(), |commands| record(commands, piece));
        match sent {
            Ok(epoch) => self.coming.push_back(Coming { start, epoch, range }),
            Err(why) => {
                self.seal(start, 0);
                return Err(why);
            }
        }
        Ok(())
    }

    /// Waits for the oldest piece and hands its bytes over.
    fn next(&mut self) -> Result<()> {
        // With no piece of ours in it, a ring that is full would stay so.
        let piece = self.coming.pop_front().ok_or(ErrorKind::OutOfHostMemory)?;
        let got = self.timeline.wait(piece.epoch).and_then(|()| {
            let staging = self.ring.as_ref().expect("the piece lies in it");
            staging.get(piece.start, &mut self.bytes[piece.range])
        });
        self.seal(piece.start, piece.epoch);
        got
    }

    fn seal(&mut self, start: u64, epoch: u64) {
        let staging = self.ring.as_mut().expect("the piece lies in it");
        staging.ring.seal(start, epoch);
    }

    /// Waits for all remaining pieces, so that the ring is free again even after an error.
    fn finish(mut self, mut outcome: Result<()>) -> Result<()> {
        while !self.coming.is_empty() {
            outcome = outcome.and(self.next());
        }
        outcome
    }
}

// SAFETY: `target` refuses every range that leaves its block, and commands name exactly the checked ranges.
unsafe impl Transfer for Vulkan {
    type Block = Block;

    fn write(&self, on: TimelineId, to: BlockOffset<'_, Block>, bytes: &[u8]) -> Result<()> {
        let timeline = self.timelines.get(on)?;
        let buffer = self.target(to, bytes.len() as u64)?;
        timeline.carry(bytes.len() as u64, |carrier| {
            Self::send(carrier, bytes, |commands, piece| {
                let region = region(piece.start, to.offset + piece.offset, piece.size);
                self.record_copy(commands, piece.buffer, buffer, &[region]);
            })
        })
    }

    fn read(&self, on: TimelineId, from: BlockOffset<'_, Block>, bytes: &mut [u8]) -> Result<()> {
        let timeline = self.timelines.get(on)?;
        let buffer = self.target(from, bytes.len() as u64)?;
        timeline.carry(bytes.len() as u64, |carrier| {
            Self::fetch(carrier, bytes, |commands, piece| {
                let region = region(from.offset + piece.offset, piece.start, piece.size);
                self.record_copy(commands, buffer, piece.buffer, &[region]);
            })
        })
    }

    fn fill(&self, on: TimelineId, to: BlockOffset<'_, Block>, size: u64, value: u8) -> Result<()> {
        let timeline = self.timelines.get(on)?;
        let buffer = self.target(to, size)?;
        if size == 0 {
            return Ok(());
        }
        // The driver fills whole words; the bytes before and after them are copied.
        let head = size.min(to.offset.wrapping_neg() % 4);
        let tail = (size - head) % 4;
        let words = (to.offset + head, size - head - tail);
        let edges = [(to.offset, head), (words.0 + words.1, tail)];
        self.fill_parts(&timeline, (buffer, value), words, edges)
    }

    fn copy(&self, on: TimelineId, moves: &[Move<'_, Block>]) -> Result<()> {
        let timeline = self.timelines.get(on)?;
        match self.batch(moves)? {
            Some(batch) => self.run_batch(&timeline, &batch),
            None => Ok(()),
        }
    }
}
