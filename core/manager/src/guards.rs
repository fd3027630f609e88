//! Guards: bytes behind an allocation that must stay unchanged, and the overwrites they find.
//!
//! A guard is laid by the device itself, in the order in which the allocation is used, so it works in memory that the host
//! never sees. It is looked at when the allocation's bytes go back to their lane: everything that used them is over by then,
//! or comes before in the lane's own order.
#![forbid(unsafe_code)]
mod log;
mod sent;

use self::log::Log;
use crate::device::{Block, Device};
use crate::event::AllocationId;
use crate::sync::Mutex;
use crate::{
    Align, Backend, BlockOffset, Contents, Error, ErrorKind, HeapId, Point, Result, Span,
    TimelineId, Timelines, Transfer,
};
use alloc::{boxed::Box, sync::Arc, vec, vec::Vec};
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::OnceLock;

/// Value of fresh bytes and of guards.
const FRESH: u8 = 0xFB;
/// Value of freed bytes until they are reused.
const FREED: u8 = 0xDD;
/// Bytes of a guard at least, where the pool can give them.
pub(crate) const LEAST: u64 = 16;
/// Bytes of a guard that are looked at.
const MOST: u64 = 256;
/// Number of findings kept; later ones are only reported and counted.
const KEPT: usize = 1024;

type Told = Arc<dyn Fn(&Overwrite) + Send + Sync>;

/// Guards behind all allocations, as a setting: see [`ManagerConfig::guarded`](crate::ManagerConfig::guarded).
#[derive(Clone)]
pub struct Guards {
    pub(crate) told: Option<Told>,
}

impl fmt::Debug for Guards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guards").finish_non_exhaustive()
    }
}

/// A write behind the end of an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Overwrite {
    /// The allocation behind whose end it happened.
    pub id: AllocationId,
    /// The name that its owner gave it.
    pub name: Option<Box<str>>,
    /// Bytes that it asked for.
    pub size: u64,
    /// The heap that it lies in.
    pub heap: HeapId,
    /// Bytes between its end and the first byte that was overwritten: zero for the byte right behind it.
    pub distance: u64,
    /// Expected value of that byte.
    pub expected: u8,
    /// Value found.
    pub found: u8,
}

impl Overwrite {
    /// Emits the stable `tracing` event (`docs/tracing.md`).
    fn say(&self) {
        let Self { id, name, size, heap, distance, expected, found } = self;
        let (heap, name) = (heap.0, name.as_deref().unwrap_or("unnamed"));
        tracing::error!(
            name: "omniheap.overwrite", target: "omniheap",
            ?id, name, size, heap, distance, expected, found,
            "somebody wrote behind the end of an allocation"
        );
    }
}

/// Counts of checked and unchecked guards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardReport {
    /// Guards that were looked at when their allocation ended.
    pub checked: u64,
    /// Allocations with a write behind their end.
    pub overwritten: u64,
    /// Guards that could not be looked at, because the device refused.
    pub missed: u64,
    /// Allocations without a guard, because nothing is left between them and the next.
    pub unguarded: u64,
}

/// An allocation, as its guard needs it.
#[derive(Clone, Debug)]
pub(crate) struct Guarded {
    pub(crate) id: AllocationId,
    pub(crate) name: Option<Box<str>>,
    /// Bytes that were asked for.
    pub(crate) size: u64,
    /// Everything that it occupies of its block, padding included.
    pub(crate) span: Span,
    pub(crate) heap: HeapId,
    /// Bytes of its guard that are looked at; zero before it is laid.
    pub(crate) guard: u64,
}

impl Guarded {
    /// Returns the guard in whole words of the device, from the start of the span.
    const fn window(&self, align: Align) -> Span {
        let offset = align.down(self.size);
        Span { offset, size: self.size + self.guard - offset }
    }

    /// Finds the first damaged byte of the guard, among the bytes of its window.
    fn judge(&self, bytes: &[u8], align: Align) -> Option<Overwrite> {
        let skipped = usize::try_from(self.size - align.down(self.size)).unwrap_or(usize::MAX);
        let guard = bytes.iter().skip(skipped);
        let (distance, found) = (0..).zip(guard).find(|(_, byte)| **byte != FRESH)?;
        let Self { id, name, size, heap, .. } = self.clone();
        Some(Overwrite { id, name, size, heap, distance, expected: FRESH, found: *found })
    }
}

/// An allocation and its bytes.
pub(crate) struct Seen<B: Backend> {
    pub(crate) block: Arc<Block<B>>,
    pub(crate) about: Guarded,
}

impl<B: Backend> Seen<B> {
    fn at(&self, offset: u64) -> BlockOffset<'_, B::Block> {
        self.block.at(self.about.span.offset + offset)
    }
}

/// The guards of one manager: lays them, looks at those whose bytes nothing uses, and keeps what was found.
///
/// With guards no request takes the fast path; without them nothing is paid for. Only [`skip`](Self::skip) is called under a
/// lock; the others may wait for the device.
pub(crate) struct Watch<B: Backend> {
    device: Arc<Device<B>>,
    /// The heap of scratch memory.
    heap: HeapId,
    told: Option<Told>,
    /// A timeline on which nothing else runs, so that no program keeps it waiting.
    line: OnceLock<TimelineId>,
    log: Mutex<Log<B>>,
    found: Mutex<Vec<Overwrite>>,
    checked: AtomicU64,
    overwritten: AtomicU64,
    missed: AtomicU64,
    unguarded: AtomicU64,
}

impl<B: Backend> Watch<B> {
    pub(crate) fn new(guards: &Guards, device: Arc<Device<B>>, heap: HeapId) -> Self {
        let [checked, overwritten, missed, unguarded] = [const { AtomicU64::new(0) }; 4];
        let (log, found) = (Mutex::new(Log::new()), Mutex::new(Vec::new()));
        let (told, line) = (guards.told.clone(), OnceLock::new());
        Self { device, heap, told, line, log, found, checked, overwritten, missed, unguarded }
    }

    /// Writes a guard in the order of `on`, and fills the bytes before it where `contents` are fresh. Returns how many guard bytes
    /// are looked at; zero for an allocation without a guard.
    ///
    /// # Errors
    ///
    /// Those of the device: the request fails with them.
    pub(crate) fn begin(&self, seen: &Seen<B>, on: TimelineId, contents: Contents) -> Result<u64> {
        let (align, about) = (self.align(), &seen.about);
        let (size, end) = (about.size, align.down(about.span.size));
        let guard = align.down((size + MOST).min(end)).saturating_sub(size);
        if guard == 0 || !align.divides(about.span.offset) {
            self.skip();
            return Ok(0);
        }
        let transfer = self.transfer()?;
        if contents != Contents::Zero {
            transfer.fill(on, seen.at(0), end, FRESH)?;
            return Ok(guard);
        }
        // Zeros are there already; the word in which they end is half theirs.
        let (start, whole) = (align.down(size), align.up(size).unwrap_or(end));
        if start < whole {
            let zeros = usize::try_from(size - start).unwrap_or(usize::MAX);
            let mut word = vec![FRESH; usize::try_from(whole - start).unwrap_or(0)];
            word.iter_mut().take(zeros).for_each(|byte| *byte = 0);
            transfer.write(on, seen.at(start), &word)?;
        }
        transfer.fill(on, seen.at(whole), end - whole, FRESH)?;
        Ok(guard)
    }

    /// Lays the first bytes of a guard once more, over which a copy of whole words went.
    ///
    /// # Errors
    ///
    /// Those of the device: the resize fails with them.
    pub(crate) fn restore(&self, seen: &Seen<B>, on: TimelineId) -> Result<()> {
        let (align, size, transfer) = (self.align(), seen.about.size, self.transfer()?);
        let start = align.down(size);
        let mut word = vec![FRESH; usize::try_from(align.get()).unwrap_or(0)];
        transfer.read(on, seen.at(start), &mut word)?;
        let behind = word.iter_mut().zip(start..).filter(|(_, at)| *at >= size);
        behind.for_each(|(byte, _)| *byte = FRESH);
        transfer.write(on, seen.at(start), &word)
    }

    /// Looks at a guard whose bytes are about to be used again: in the order of `after`, or, without it, by anyone.
    ///
    /// # Errors
    ///
    /// Those of the device when something may still touch the bytes: they are never used again.
    pub(crate) fn end(&self, seen: &Seen<B>, after: Option<TimelineId>) -> Result<()> {
        after.map_or_else(|| self.look_now(seen), |timeline| self.send(seen, timeline))
    }

    /// Looks at the guard of an allocation that lives on, after what its timeline has to do now. Returns what [`find`](Self::find)
    /// reports, unless the allocation ended meanwhile.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub(crate) fn look(
        &self,
        seen: &Seen<B>,
        home: Option<TimelineId>,
    ) -> Result<Option<Overwrite>> {
        let bytes = match home.map(|home| self.read(home, seen)) {
            Some(Ok(bytes)) => bytes,
            // A timeline that was closed is gone, and with it its work.
            Some(Err(error)) if error.kind() != ErrorKind::NoSuchTimeline => return Err(error),
            _ => self.read(self.line()?, seen)?,
        };
        Ok(seen.about.judge(&bytes, self.align()))
    }

    /// Counts an allocation that has no guard: its block has no room, or its owner moved the bytes.
    pub(crate) fn skip(&self) {
        self.unguarded.fetch_add(1, Relaxed);
    }

    /// Reports and keeps a finding, if there is one.
    pub(crate) fn find(&self, found: Option<Overwrite>) {
        let Some(found) = found else { return };
        self.overwritten.fetch_add(1, Relaxed);
        found.say();
        if let Some(told) = &self.told {
            told(&found);
        }
        let mut all = self.found.lock();
        if all.len() < KEPT {
            all.push(found);
        }
    }

    /// Gives back scratch memory that is not in use.
    pub(crate) fn trim(&self) {
        // Dropped without the lock: the driver takes its time.
        let blocks = self.log.lock().empty();
        drop(blocks);
    }

    /// Returns everything found so far.
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

    /// Returns the timeline of guards that no other timeline orders; the main one where the device gives no further.
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

    /// Checks the guard of bytes that nothing uses any more, and poisons the bytes.
    ///
    /// On failure something may still touch the bytes.
    fn look_now(&self, seen: &Seen<B>) -> Result<()> {
        let line = self.line();
        let ended = match line.and_then(|line| self.read(line, seen)) {
            Ok(bytes) => {
                let poisoned = line.and_then(|line| self.poison(line, seen));
                self.checked.fetch_add(1, Relaxed);
                self.find(seen.about.judge(&bytes, self.align()));
                poisoned.and_then(|()| self.wait_for(line?))
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

    /// Fills the bytes of a freed allocation, so that reads of them show.
    fn poison(&self, on: TimelineId, seen: &Seen<B>) -> Result<()> {
        let size = self.align().down(seen.about.span.size);
        self.transfer()?.fill(on, seen.at(0), size, FREED)
    }

    /// Reads the guard's bytes, after everything on a timeline.
    fn read(&self, on: TimelineId, seen: &Seen<B>) -> Result<Vec<u8>> {
        let guard = seen.about.window(self.align());
        let mut bytes = vec![0; usize::try_from(guard.size).unwrap_or(0)];
        self.transfer()?.read(on, seen.at(guard.offset), &mut bytes)?;
        Ok(bytes)
    }

    /// Counts a guard that could not be looked at.
    fn miss(&self, error: Error) {
        tracing::debug!(target: "omniheap", ?error, "a guard could not be checked");
        self.missed.fetch_add(1, Relaxed);
    }

    /// Waits until everything on a timeline is done.
    fn wait_for(&self, timeline: TimelineId) -> Result<()> {
        let Some(timelines) = self.timelines() else { return self.device.backend().wait_idle() };
        let epoch = timelines.mark(timeline)?;
        timelines.wait(Point { timeline, epoch })
    }

    /// Returns what a timeline answered, or `None` where it was closed.
    fn unless_closed<T>(&self, timeline: TimelineId, answer: Result<T>) -> Result<Option<T>> {
        match answer {
            Err(error) if error.kind() == ErrorKind::NoSuchTimeline => {
                if self.device.is_closed(timeline)? { Ok(None) } else { Err(error) }
            }
            other => other.map(Some),
        }
    }

    fn align(&self) -> Align {
        self.device.backend().caps().copy.align
    }

    fn timelines(&self) -> Option<&dyn Timelines> {
        self.device.backend().as_timelines()
    }

    fn transfer(&self) -> Result<&dyn Transfer<Block = B::Block>> {
        self.device.backend().as_transfer().ok_or(ErrorKind::Unsupported.into())
    }
}

impl<B: Backend> Drop for Watch<B> {
    fn drop(&mut self) {
        self.poll(true);
        core::mem::replace(&mut *self.log.lock(), Log::new()).dismantle(&self.device);
        if let (Some(line), Some(timelines)) = (self.line.get(), self.timelines())
            && *line != TimelineId::MAIN
        {
            let _ = timelines.close(*line);
        }
    }
}
