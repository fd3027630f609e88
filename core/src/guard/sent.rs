//! Guards of bytes that a timeline may still use: the device copies them in its order, and the copy is looked at later.
#![forbid(unsafe_code)]
use super::log::{Cell, Sent, grow};
use super::sentry::{Sentry, Suspect};
use crate::pool::Patience;
use crate::{Backend, Error, ErrorKind, Move, Point, Result, TimelineId};
use alloc::{vec, vec::Vec};
use core::sync::atomic::Ordering::Relaxed;

impl<B: Backend> Sentry<B> {
    /// Has the guard copied in the order of a timeline, to be looked at when the copy is there; nothing of the bytes is left.
    pub(crate) fn send(&self, suspect: Suspect<B>, on: TimelineId) -> Result<()> {
        let Some(timelines) = self.timelines() else { return self.look_now(suspect) };
        let (Some(cell), Ok(transfer)) = (self.cell(), self.transfer()) else {
            self.miss(ErrorKind::OutOfDeviceMemory.into());
            return Ok(());
        };
        let window = suspect.window(self.align());
        let from = suspect.place(window.offset);
        let copied = transfer.copy(on, &[Move { from, to: cell.place(), size: window.size }]);
        match self.device.unless_closed(on, copied) {
            Ok(Some(())) => {}
            Ok(None) => {
                self.log.lock().put(cell);
                return self.look_now(suspect);
            }
            Err(error) => {
                self.log.lock().put(cell);
                self.miss(error);
                return Ok(());
            }
        }
        // Bytes that keep what they held are no harm.
        let _ = self.poison(on, &suspect);
        match timelines.mark(on) {
            Ok(epoch) => {
                let point = Point { timeline: on, epoch };
                self.log.lock().sent.push(Sent { cell, point, facts: suspect.facts });
            }
            Err(error) => self.forsake(cell, error),
        }
        Ok(())
    }

    /// Room for a copy: what was looked at meanwhile, or more memory.
    fn cell(&self) -> Option<Cell<B>> {
        if let Some(cell) = self.log.lock().take() {
            return Some(cell);
        }
        self.look(Patience::Look);
        if let Some(cell) = self.log.lock().take() {
            return Some(cell);
        }
        let block = grow(&self.device, self.heap)?;
        let mut log = self.log.lock();
        log.add(block);
        log.take()
    }

    /// Looks at the copies that are there; with patience, at all.
    pub(crate) fn look(&self, patience: Patience) {
        let sent = core::mem::take(&mut self.log.lock().sent);
        let mut waiting = Vec::new();
        for one in sent {
            match self.is_there(one.point, patience) {
                Ok(true) => self.look_at(one),
                Ok(false) => waiting.push(one),
                Err(error) => self.forsake(one.cell, error),
            }
        }
        self.log.lock().sent.append(&mut waiting);
    }

    fn is_there(&self, point: Point, patience: Patience) -> Result<bool> {
        let Some(timelines) = self.timelines() else { return Ok(true) };
        if patience == Patience::Wait {
            self.device.unless_closed(point.timeline, timelines.wait(point))?;
            return Ok(true);
        }
        let reached = timelines.reached(point.timeline);
        let reached = self.device.unless_closed(point.timeline, reached)?;
        Ok(reached.is_none_or(|reached| reached >= point.epoch))
    }

    fn look_at(&self, sent: Sent<B>) {
        let Sent { cell, point, facts } = sent;
        let size = facts.size + facts.guard - self.align().down(facts.size);
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        let read = self.line().and_then(|line| {
            if let Some(timelines) = self.timelines() {
                self.device.unless_closed(point.timeline, timelines.order(line, point))?;
            }
            self.transfer()?.read(line, cell.place(), &mut bytes)
        });
        if let Err(error) = read {
            return self.forsake(cell, error);
        }
        self.checked.fetch_add(1, Relaxed);
        self.find(facts.judge(&bytes, self.align()));
        self.log.lock().put(cell);
    }

    /// Counts a guard whose copy could not be followed. Something may still touch its cell, so it is not used again.
    fn forsake(&self, cell: Cell<B>, error: Error) {
        self.miss(error);
        self.log.lock().lost.push(cell);
    }
}
