//! Lays guards, looks at those whose bytes nothing uses, and keeps what was found.
use super::log::Log;
use super::{FREED, FRESH, GuardReport, LEAST, MOST, Overwrite, Told};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use omniheap_core::{
    Align, Contents, Error, ErrorKind, Point, Result, Sanitized, Sanitizer, SanitizerBytes,
    SanitizerDevice, Span, TimelineId,
};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Number of findings kept; later ones are only reported and counted.
const KEPT: usize = 1024;

/// Finds the first damaged byte of a guard, among bytes that the device copies: they start at the word of the guard's first.
pub(super) fn judge(about: &Sanitized, bytes: &[u8], align: Align) -> Option<Overwrite> {
    let skipped = usize::try_from(about.size - align.down(about.size)).unwrap_or(usize::MAX);
    let guard = bytes.iter().skip(skipped);
    let (distance, found) = (0..).zip(guard).find(|(_, byte)| **byte != FRESH)?;
    let Sanitized { id, name, size, heap, .. } = about.clone();
    Some(Overwrite { id, name, size, heap, distance, expected: FRESH, found: *found })
}

/// Returns the guard in whole words of the device.
pub(super) fn window(bytes: &dyn SanitizerBytes) -> Span {
    let about = bytes.about();
    let offset = align(bytes.device()).down(about.size);
    Span { offset, size: about.size + about.note - offset }
}

fn align(device: &dyn SanitizerDevice) -> Align {
    device.caps().copy.align
}

/// Returns what a timeline answered, or `None` where it was closed.
pub(super) fn unless_closed<T>(
    device: &dyn SanitizerDevice,
    timeline: TimelineId,
    answer: Result<T>,
) -> Result<Option<T>> {
    match answer {
        Err(error) if error.kind() == ErrorKind::NoSuchTimeline => {
            if device.is_closed(timeline)? {
                Ok(None)
            } else {
                Err(error)
            }
        }
        other => other.map(Some),
    }
}

/// Waits until everything on a timeline is done.
fn wait_for(device: &dyn SanitizerDevice, timeline: TimelineId) -> Result<()> {
    let Some(timelines) = device.timelines() else { return device.wait_idle() };
    let epoch = timelines.mark(timeline)?;
    timelines.wait(Point { timeline, epoch })
}

/// Checks the guards of one manager, and keeps the findings.
#[derive(Default)]
pub(super) struct Checker {
    told: Option<Told>,
    /// A timeline on which nothing else runs, so that no program keeps it waiting.
    line: OnceLock<TimelineId>,
    log: Mutex<Log>,
    found: Mutex<Vec<Overwrite>>,
    pub(super) checked: AtomicU64,
    overwritten: AtomicU64,
    missed: AtomicU64,
    unguarded: AtomicU64,
}

impl Checker {
    pub(super) fn new(told: Option<Told>) -> Self {
        Self { told, ..Self::default() }
    }

    pub(super) fn log(&self) -> MutexGuard<'_, Log> {
        // Nothing panics while it holds the lock, so what lies behind a poisoned one is whole.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the timeline of guards that no other timeline orders; the main one where the device gives no further.
    ///
    /// # Errors
    ///
    /// `DeviceLost`.
    pub(super) fn line(&self, device: &dyn SanitizerDevice) -> Result<TimelineId> {
        if let Some(line) = self.line.get() {
            return Ok(*line);
        }
        let Some(timelines) = device.timelines() else { return Ok(TimelineId::MAIN) };
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
    pub(super) fn look_now(&self, bytes: &dyn SanitizerBytes) -> Result<()> {
        let device = bytes.device();
        let line = self.line(device);
        let ended = match line.and_then(|line| read(line, bytes)) {
            Ok(seen) => {
                let poisoned = line.and_then(|line| self.poison(line, bytes));
                self.checked.fetch_add(1, Relaxed);
                self.find(judge(bytes.about(), &seen, align(device)));
                poisoned.and_then(|()| wait_for(device, line?))
            }
            Err(error) => {
                self.miss(error);
                Err(error)
            }
        };
        if ended.is_ok() {
            return Ok(());
        }
        match device.wait_idle() {
            Err(error) if error.kind() != ErrorKind::DeviceLost => Err(error),
            _ => Ok(()),
        }
    }

    /// Fills the bytes of a freed allocation, so that reads of them show.
    pub(super) fn poison(&self, on: TimelineId, bytes: &dyn SanitizerBytes) -> Result<()> {
        let size = align(bytes.device()).down(bytes.about().span.size);
        bytes.fill(on, 0, size, FREED)
    }

    /// Reads the guard of an allocation that lives on, after what its timeline has to do now.
    fn read_live(&self, home: Option<TimelineId>, bytes: &dyn SanitizerBytes) -> Result<Vec<u8>> {
        match home.map(|home| read(home, bytes)) {
            // A timeline that was closed is gone, and with it its work.
            Some(Err(error)) if error.kind() == ErrorKind::NoSuchTimeline => {}
            Some(read) => return read,
            None => {}
        }
        read(self.line(bytes.device())?, bytes)
    }

    /// Counts a guard that could not be looked at.
    pub(super) fn miss(&self, error: Error) {
        tracing::debug!(target: "omniheap", ?error, "a guard could not be checked");
        self.missed.fetch_add(1, Relaxed);
    }

    /// Reports and keeps a finding, if there is one.
    pub(super) fn find(&self, found: Option<Overwrite>) {
        let Some(found) = found else { return };
        self.overwritten.fetch_add(1, Relaxed);
        found.say();
        if let Some(told) = &self.told {
            told(&found);
        }
        let mut all = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < KEPT {
            all.push(found);
        }
    }

    /// Returns everything found so far.
    pub(super) fn found(&self) -> Vec<Overwrite> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn report(&self) -> GuardReport {
        GuardReport {
            checked: self.checked.load(Relaxed),
            overwritten: self.overwritten.load(Relaxed),
            missed: self.missed.load(Relaxed),
            unguarded: self.unguarded.load(Relaxed),
        }
    }
}

/// Reads the guard's bytes, after everything on a timeline.
fn read(on: TimelineId, bytes: &dyn SanitizerBytes) -> Result<Vec<u8>> {
    let guard = window(bytes);
    let mut seen = vec![0; usize::try_from(guard.size).unwrap_or(0)];
    bytes.read(on, guard.offset, &mut seen)?;
    Ok(seen)
}

impl Sanitizer for Checker {
    fn room(&self) -> u64 {
        LEAST
    }

    fn timeline(&self, device: &dyn SanitizerDevice) -> Result<TimelineId> {
        self.line(device)
    }

    /// Writes a guard, and fills the bytes before it where `contents` are fresh; returns how many guard bytes are checked.
    fn begin(&self, bytes: &dyn SanitizerBytes, on: TimelineId, contents: Contents) -> Result<u64> {
        let (align, about) = (align(bytes.device()), bytes.about());
        let (size, end) = (about.size, align.down(about.span.size));
        let guard = align.down((size + MOST).min(end)).saturating_sub(size);
        if guard == 0 || !align.divides(about.span.offset) {
            self.skip();
            return Ok(0);
        }
        if contents != Contents::Zero {
            bytes.fill(on, 0, end, FRESH)?;
            return Ok(guard);
        }
        // Zeros are there already; the word in which they end is half theirs.
        let (start, whole) = (align.down(size), align.up(size).unwrap_or(end));
        if start < whole {
            let zeros = usize::try_from(size - start).unwrap_or(usize::MAX);
            let mut word = vec![FRESH; usize::try_from(whole - start).unwrap_or(0)];
            word.iter_mut().take(zeros).for_each(|byte| *byte = 0);
            bytes.write(on, start, &word)?;
        }
        bytes.fill(on, whole, end - whole, FRESH)?;
        Ok(guard)
    }

    /// Lays the first bytes of the guard once more.
    fn restore(&self, bytes: &dyn SanitizerBytes, on: TimelineId) -> Result<()> {
        let (align, size) = (align(bytes.device()), bytes.about().size);
        let start = align.down(size);
        let mut word = vec![FRESH; usize::try_from(align.get()).unwrap_or(0)];
        bytes.read(on, start, &mut word)?;
        let behind = word.iter_mut().zip(start..).filter(|(_, at)| *at >= size);
        behind.for_each(|(byte, _)| *byte = FRESH);
        bytes.write(on, start, &word)
    }

    fn end(&self, bytes: &dyn SanitizerBytes, after: Option<TimelineId>) -> Result<()> {
        after.map_or_else(|| self.look_now(bytes), |timeline| self.send(bytes, timeline))
    }

    fn look<'a>(
        &'a self,
        bytes: &dyn SanitizerBytes,
        home: Option<TimelineId>,
    ) -> Result<Option<Box<dyn FnOnce() + 'a>>> {
        let seen = self.read_live(home, bytes)?;
        let found = judge(bytes.about(), &seen, align(bytes.device()));
        Ok(found.map(|found| Box::new(|| self.find(Some(found))) as _))
    }

    fn skip(&self) {
        self.unguarded.fetch_add(1, Relaxed);
    }

    fn poll(&self, device: &dyn SanitizerDevice, wait: bool) {
        self.look_at_sent(device, wait);
    }

    fn trim(&self, device: &dyn SanitizerDevice) {
        let blocks = self.log().empty();
        blocks.into_iter().for_each(|block| device.free_scratch(block));
    }

    fn close(&self, device: &dyn SanitizerDevice) {
        self.look_at_sent(device, true);
        self.log().dismantle(device);
        if let (Some(line), Some(timelines)) = (self.line.get(), device.timelines())
            && *line != TimelineId::MAIN
        {
            let _ = timelines.close(*line);
        }
    }
}
