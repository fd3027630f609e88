//! Byte movement and time: work is checked here and done by the timelines.
#![expect(unsafe_code, reason = "signs the contract of Transfer")]
use crate::block::{Block, Claim};
use crate::device::Host;
use crate::timeline::{Line, Task};
use crate::work;
use core::sync::atomic::Ordering;
use omniheap_seam::{
    BlockOffset, Epoch, ErrorKind, Move, Point, Result, TimelineId, Timelines, Transfer,
};
use std::sync::{Arc, PoisonError};

impl Host {
    fn claim(&self, place: BlockOffset<'_, Block>, size: u64) -> Result<Claim> {
        let body = self.own(place.block)?;
        self.caps.copy.check_range(body.size, place.offset, size)?;
        body.claim(place.offset, size)
    }

    /// Returns the timeline of a point that was marked.
    fn line_of(&self, point: Point) -> Result<Arc<Line>> {
        self.check_alive()?;
        let line = self.watch_line(point.timeline, Arc::clone)?;
        if point.epoch > line.mark() { Err(ErrorKind::OutOfRange.into()) } else { Ok(line) }
    }
}

// SAFETY: every byte touched is covered by a claim, which checked its span.
unsafe impl Transfer for Host {
    type Block = Block;

    fn write(&self, on: TimelineId, to: BlockOffset<'_, Block>, bytes: &[u8]) -> Result<()> {
        self.check_alive()?;
        if bytes.is_empty() {
            return Ok(());
        }
        let claim = self.claim(to, bytes.len() as u64)?;
        self.submit(on, Task::Write(claim, bytes.into()))
    }

    fn read(&self, on: TimelineId, from: BlockOffset<'_, Block>, bytes: &mut [u8]) -> Result<()> {
        self.check_alive()?;
        if bytes.is_empty() {
            return Ok(());
        }
        let claim = self.claim(from, bytes.len() as u64)?;
        let line = self.with_line(on, Arc::clone)?;
        line.wait(line.mark());
        self.check_alive()?;
        work::read(&claim, bytes);
        Ok(())
    }

    fn fill(&self, on: TimelineId, to: BlockOffset<'_, Block>, size: u64, value: u8) -> Result<()> {
        self.check_alive()?;
        if size == 0 {
            return Ok(());
        }
        let claim = self.claim(to, size)?;
        self.submit(on, Task::Fill(claim, value))
    }

    fn copy(&self, on: TimelineId, moves: &[Move<'_, Block>]) -> Result<()> {
        self.check_alive()?;
        self.caps.copy.check_batch(moves, |block| Ok(self.own(block)?.size))?;
        let moves = moves.iter().filter(|step| step.size > 0);
        let pair = |step: &Move<'_, Block>| {
            Ok((self.claim(step.from, step.size)?, self.claim(step.to, step.size)?))
        };
        let pairs = moves.map(pair).collect::<Result<Vec<_>>>()?;
        if pairs.is_empty() { Ok(()) } else { self.submit(on, Task::Copy(pairs)) }
    }
}

/// Epochs that were never marked are `OutOfRange`: waiting for them could last for ever.
// SAFETY: a timeline's epoch counts its finished jobs, which run in the order of submission; `After` jobs wait for their
// point; ids count up, and `close` joins the thread that runs the jobs.
unsafe impl Timelines for Host {
    fn open(&self) -> Result<TimelineId> {
        self.check_alive()?;
        let take = |id: u32| id.checked_add(1);
        let id = self.next_line.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        let id = TimelineId(id.map_err(|_| ErrorKind::ExceedsLimit)?);
        self.lines.write().unwrap_or_else(PoisonError::into_inner).insert(id, Line::new());
        Ok(id)
    }

    fn close(&self, timeline: TimelineId) -> Result<()> {
        if timeline == TimelineId::MAIN {
            return Err(ErrorKind::Unsupported.into());
        }
        self.check_process()?;
        // The timeline exists until its work has finished: whoever is told that it does not may use its memory, and
        // whoever marks all timelines meanwhile waits for it too.
        if !self.with_line(timeline, Arc::clone)?.close() {
            return Err(ErrorKind::NoSuchTimeline.into()); // Another thread was faster.
        }
        self.lines.write().unwrap_or_else(PoisonError::into_inner).remove(&timeline);
        self.check_alive()
    }

    fn mark(&self, timeline: TimelineId) -> Result<Epoch> {
        self.check_alive()?;
        match timeline {
            TimelineId::ALL => self.mark_all(),
            _ => self.with_line(timeline, |line| line.mark()),
        }
    }

    fn reached(&self, timeline: TimelineId) -> Result<Epoch> {
        self.check_alive()?;
        self.watch_line(timeline, |line| line.reached())
    }

    fn wait(&self, point: Point) -> Result<()> {
        self.line_of(point)?.wait(point.epoch);
        self.check_alive()
    }

    fn order(&self, timeline: TimelineId, point: Point) -> Result<()> {
        let line = self.line_of(point)?;
        if timeline == point.timeline || line.reached() >= point.epoch {
            return self.with_line(timeline, |_| ());
        }
        self.submit(timeline, Task::After(line, point.epoch))
    }
}
