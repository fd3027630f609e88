//! Lays guards, looks at those whose bytes nothing uses, and keeps what was found.
#![forbid(unsafe_code)]
use super::log::Log;
use super::{FREED, FRESH, GuardReport, MOST, Overwrite};
use crate::device::{Block, Device};
use crate::pool::Patience;
use crate::sync::Mutex;
use crate::{
    Align, AllocationId, Backend, Contents, ErrorKind, Event, HeapId, Place, Point, Result, Span,
    TimelineId, Timelines, Transfer,
};
use alloc::{boxed::Box, sync::Arc, vec, vec::Vec};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::OnceLock;

/// Findings that are kept; later ones are told and counted only.
const KEPT: usize = 1024;

/// What is known of an allocation with a guard.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) id: AllocationId,
    pub(crate) name: Option<Box<str>>,
    pub(crate) size: u64,
    pub(crate) heap: HeapId,
    /// Bytes of the guard that are looked at.
    pub(crate) guard: u64,
}

impl Facts {
    /// The first damaged byte of a guard, among bytes that the device copies: they start at the word of the guard's first.
    pub(super) fn judge(self, bytes: &[u8], align: Align) -> Option<Overwrite> {
        let skipped = usize::try_from(self.size - align.down(self.size)).unwrap_or(usize::MAX);
        let guard = bytes.iter().skip(skipped);
        let (distance, found) = (0..).zip(guard).find(|(_, byte)| **byte != FRESH)?;
        let Self { id, name, size, heap, .. } = self;
        Some(Overwrite { id, name, size, heap, distance, expected: FRESH, found: *found })
    }
}

/// An allocation whose guard is to be looked at.
pub(crate) struct Suspect<B: Backend> {
    pub(crate) block: Arc<Block<B>>,
    /// Everything that it occupies.
    pub(crate) granted: Span,
    pub(crate) facts: Facts,
}

impl<B: Backend> Suspect<B> {
    /// The guard in whole words of the device.
    pub(super) fn window(&self, align: Align) -> Span {
        let start = align.down(self.facts.size);
        let size = self.facts.size + self.facts.guard - start;
        Span { offset: self.granted.offset + start, size }
    }

    pub(super) fn place(&self, offset: u64) -> Place<'_, B::Block> {
        Place { block: self.block.raw(), offset }
    }
}

/// Looks at guards, and remembers what it found.
pub(crate) struct Sentry<B: Backend> {
    pub(super) device: Arc<Device<B>>,
    /// Where copies of guards are left.
    pub(super) heap: HeapId,
    /// A timeline on which nothing else runs, so that no program keeps it waiting.
    line: OnceLock<TimelineId>,
    pub(super) log: Mutex<Log<B>>,
    found: Mutex<Vec<Overwrite>>,
    pub(super) checked: AtomicU64,
    overwritten: AtomicU64,
    missed: AtomicU64,
    unguarded: AtomicU64,
}

impl<B: Backend> Sentry<B> {
    pub(crate) fn new(device: Arc<Device<B>>, heap: HeapId) -> Self {
        let [checked, overwritten, missed, unguarded] = [const { AtomicU64::new(0) }; 4];
        Self {
            device,
            heap,
            line: OnceLock::new(),
            log: Mutex::new(Log::new()),
            found: Mutex::new(Vec::new()),
            checked,
            overwritten,
            missed,
            unguarded,
        }
    }

    pub(super) fn timelines(&self) -> Option<&dyn Timelines> {
        self.device.backend().as_timelines()
    }

    pub(super) fn transfer(&self) -> Result<&dyn Transfer<Block = B::Block>> {
        self.device.backend().as_transfer().ok_or(ErrorKind::Unsupported.into())
    }

    pub(super) fn align(&self) -> Align {
        self.device.backend().caps().copy.align
    }

    /// The timeline of guards that no other timeline orders; the main one where the device gives no further.
    ///
    /// # Errors
    ///
    /// `DeviceLost`.
    pub(crate) fn line(&self) -> Result<TimelineId> {
        if let Some(line) = self.line.get() {
            return Ok(*line);
        }
        let Some(timelines) = self.timelines() else { return Ok(TimelineId::MAIN) };
        let opened = match timelines.open() {
            Err(error) if error.kind() == ErrorKind::DeviceLost => return Err(error),
            other => other.unwrap_or(TimelineId::MAIN),
        };
        if self.line.set(opened).is_err() && opened != TimelineId::MAIN {
            // Another thread was faster; nothing runs on this one.
            let _ = timelines.close(opened);
        }
        Ok(*self.line.get().expect("set just above, by this thread or by another"))
    }

    /// Waits until everything on a timeline is done.
    pub(crate) fn settle(&self, timeline: TimelineId) -> Result<()> {
        let Some(timelines) = self.timelines() else { return self.device.backend().wait_idle() };
        let epoch = timelines.mark(timeline)?;
        timelines.wait(Point { timeline, epoch })
    }

    /// Lays a guard behind `size` bytes, fresh ones where `contents` are nobody's; says how many bytes of it are looked at.
    pub(crate) fn lay(
        &self,
        on: TimelineId,
        block: &Block<B>,
        granted: Span,
        size: u64,
        contents: Contents,
    ) -> Result<u64> {
        let (align, transfer) = (self.align(), self.transfer()?);
        let end = align.down(granted.size);
        let guard = align.down((size + MOST).min(end)).saturating_sub(size);
        if guard == 0 || !align.divides(granted.offset) {
            self.unguarded.fetch_add(1, Relaxed);
            return Ok(0);
        }
        let place = |at: u64| Place { block: block.raw(), offset: granted.offset + at };
        if contents != Contents::Zero {
            transfer.fill(on, place(0), end, FRESH)?;
            return Ok(guard);
        }
        // Zeros are there already; the word in which they end is half theirs.
        let (start, whole) = (align.down(size), align.up(size).unwrap_or(end));
        if start < whole {
            let zeros = usize::try_from(size - start).unwrap_or(usize::MAX);
            let mut word = vec![FRESH; usize::try_from(whole - start).unwrap_or(0)];
            word.iter_mut().take(zeros).for_each(|byte| *byte = 0);
            transfer.write(on, place(start), &word)?;
        }
        transfer.fill(on, place(whole), end - whole, FRESH)?;
        Ok(guard)
    }

    /// Looks at the guard of bytes that nothing uses any more, and leaves nothing of them.
    ///
    /// On failure something may still touch the bytes.
    pub(crate) fn look_now(&self, suspect: Suspect<B>) -> Result<()> {
        let line = self.line();
        let ended = match line.and_then(|line| self.read(line, &suspect)) {
            Ok(bytes) => {
                let poisoned = line.and_then(|line| self.poison(line, &suspect));
                self.checked.fetch_add(1, Relaxed);
                self.find(suspect.facts.judge(&bytes, self.align()));
                poisoned.and_then(|()| self.settle(line?))
            }
            Err(error) => {
                self.miss(error);
                Err(error)
            }
        };
        if ended.is_ok() {
            return Ok(());
        }
        match self.device.backend().wait_idle() {
            Err(error) if error.kind() != ErrorKind::DeviceLost => Err(error),
            _ => Ok(()),
        }
    }

    /// Fills the bytes of an allocation that has ended, so that whoever reads them notices.
    pub(super) fn poison(&self, on: TimelineId, suspect: &Suspect<B>) -> Result<()> {
        let size = self.align().down(suspect.granted.size);
        self.transfer()?.fill(on, suspect.place(suspect.granted.offset), size, FREED)
    }

    /// The guard's bytes, after everything on a timeline.
    fn read(&self, on: TimelineId, suspect: &Suspect<B>) -> Result<Vec<u8>> {
        let window = suspect.window(self.align());
        let mut bytes = vec![0; usize::try_from(window.size).unwrap_or(0)];
        self.transfer()?.read(on, suspect.place(window.offset), &mut bytes)?;
        Ok(bytes)
    }

    /// The guard's bytes of an allocation that lives on, after what its timeline has to do now.
    pub(crate) fn read_live(
        &self,
        home: Option<TimelineId>,
        suspect: &Suspect<B>,
    ) -> Result<Vec<u8>> {
        match home.map(|home| self.read(home, suspect)) {
            // A timeline that was closed is gone, and with it its work.
            Some(Err(error)) if error.kind() == ErrorKind::NoSuchTimeline => {}
            Some(read) => return read,
            None => {}
        }
        self.read(self.line()?, suspect)
    }

    /// What a look at an allocation that lives on has found.
    pub(crate) fn judge(&self, facts: Facts, bytes: &[u8]) -> Option<Overwrite> {
        facts.judge(bytes, self.align())
    }

    /// Counts a guard that could not be looked at.
    pub(super) fn miss(&self, error: crate::Error) {
        tracing::debug!(target: "omniheap", ?error, "a guard could not be looked at");
        self.missed.fetch_add(1, Relaxed);
    }

    /// Counts an allocation that lost its guard.
    pub(crate) fn lose(&self) {
        self.unguarded.fetch_add(1, Relaxed);
    }

    /// Tells and keeps a finding, if there is one.
    pub(crate) fn find(&self, found: Option<Overwrite>) {
        let Some(found) = found else { return };
        self.overwritten.fetch_add(1, Relaxed);
        self.device.tell(&Event::Overwrite(&found));
        let mut all = self.found.lock();
        if all.len() < KEPT {
            all.push(found);
        }
    }

    /// Everything found so far.
    pub(crate) fn found(&self) -> Vec<Overwrite> {
        self.found.lock().clone()
    }

    pub(crate) fn report(&self) -> GuardReport {
        GuardReport {
            checked: self.checked.load(Relaxed),
            overwritten: self.overwritten.load(Relaxed),
            missed: self.missed.load(Relaxed),
            unguarded: self.unguarded.load(Relaxed),
        }
    }

    /// Gives the memory of copies back, where none is on its way.
    pub(crate) fn trim(&self) {
        let cells = self.log.lock().empty();
        drop(cells);
    }
}

impl<B: Backend> Drop for Sentry<B> {
    fn drop(&mut self) {
        self.look(Patience::Wait);
        self.log.lock().dismantle(&self.device);
        if let (Some(line), Some(timelines)) = (self.line.get(), self.timelines())
            && *line != TimelineId::MAIN
        {
            let _ = timelines.close(*line);
        }
    }
}
