//! Guards of bytes that a timeline may still use: the device copies them in its order, and the copy is looked at later.
use super::log::{self, Cell, Sent};
use super::{Seen, Watch};
use crate::{Backend, Error, ErrorKind, Move, Point, Result, TimelineId};
use alloc::vec;
use core::sync::atomic::Ordering::Relaxed;

impl<B: Backend> Watch<B> {
    /// Copies the guard in the order of a timeline, to be checked when the copy has arrived, and poisons the bytes.
    pub(super) fn send(&self, seen: &Seen<B>, on: TimelineId) -> Result<()> {
        let Some(timelines) = self.timelines() else { return self.look_now(seen) };
        let Some(cell) = self.cell() else {
            self.miss(ErrorKind::OutOfDeviceMemory.into());
            return Ok(());
        };
        let guard = seen.about.window(self.align());
        let copy = Move { from: seen.at(guard.offset), to: cell.at(), size: guard.size };
        let copied = self.transfer().and_then(|transfer| transfer.copy(on, &[copy]));
        match self.unless_closed(on, copied) {
            Ok(Some(())) => {}
            Ok(None) => {
                self.log.lock().put(cell);
                return self.look_now(seen);
            }
            Err(error) => {
                self.log.lock().put(cell);
                self.miss(error);
                return Ok(());
            }
        }
        // Bytes that keep what they held are no harm.
        let _ = self.poison(on, seen);
        match timelines.mark(on) {
            Ok(epoch) => {
                let (point, about) = (Point { timeline: on, epoch }, seen.about.clone());
                self.log.lock().send(Sent { cell, point, about });
            }
            Err(error) => self.abandon(cell, error),
        }
        Ok(())
    }

    /// Takes room for a copy: of one that was looked at meanwhile, or more memory.
    fn cell(&self) -> Option<Cell<B>> {
        let taken = self.log.lock().take();
        if taken.is_some() {
            return taken;
        }
        self.poll(false);
        let taken = self.log.lock().take();
        if taken.is_some() {
            return taken;
        }
        let block = log::block(&self.device, self.heap)?;
        self.log.lock().grow(block)
    }

    /// Checks the copies that have arrived; with `wait`, all copies.
    pub(crate) fn poll(&self, wait: bool) {
        let sent = self.log.lock().take_sent();
        for one in sent {
            match self.is_there(one.point, wait) {
                Ok(true) => self.look_at(one),
                Ok(false) => self.log.lock().send(one),
                Err(error) => self.abandon(one.cell, error),
            }
        }
    }

    fn look_at(&self, sent: Sent<B>) {
        let Sent { cell, point, about } = sent;
        let align = self.align();
        let mut bytes = vec![0; usize::try_from(about.window(align).size).unwrap_or(0)];
        let read = self.line().and_then(|line| {
            if let Some(timelines) = self.timelines() {
                self.unless_closed(point.timeline, timelines.order(line, point))?;
            }
            self.transfer()?.read(line, cell.at(), &mut bytes)
        });
        if let Err(error) = read {
            return self.abandon(cell, error);
        }
        self.checked.fetch_add(1, Relaxed);
        self.find(about.judge(&bytes, align));
        self.log.lock().put(cell);
    }

    /// Counts a guard whose copy could not be followed. Something may still touch its cell, so it is not used again.
    fn abandon(&self, cell: Cell<B>, error: Error) {
        self.miss(error);
        self.log.lock().lose(cell);
    }

    fn is_there(&self, point: Point, wait: bool) -> Result<bool> {
        let Some(timelines) = self.timelines() else { return Ok(true) };
        if wait {
            self.unless_closed(point.timeline, timelines.wait(point))?;
            return Ok(true);
        }
        let reached = timelines.reached(point.timeline);
        let reached = self.unless_closed(point.timeline, reached)?;
        Ok(reached.is_none_or(|reached| reached >= point.epoch))
    }
}
