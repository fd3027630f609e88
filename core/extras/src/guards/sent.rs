//! Guards of bytes that a timeline may still use: the device copies them in its order, and the copy is looked at later.
use super::checker::{Checker, judge, unless_closed, window};
use super::log::{self, Sent};
use core::sync::atomic::Ordering::Relaxed;
use omniheap_core::{
    Error, ErrorKind, Point, Result, SanitizerBytes, SanitizerDevice, ScratchPlace, TimelineId,
};

impl Checker {
    /// Copies the guard in the order of a timeline, to be checked when the copy has arrived, and poisons the bytes.
    pub(super) fn send(&self, bytes: &dyn SanitizerBytes, on: TimelineId) -> Result<()> {
        let device = bytes.device();
        let Some(timelines) = device.timelines() else { return self.look_now(bytes) };
        let Some(cell) = self.cell(device) else {
            self.miss(ErrorKind::OutOfDeviceMemory.into());
            return Ok(());
        };
        let guard = window(bytes);
        let copied = bytes.save(on, guard.offset, guard.size, cell);
        match unless_closed(device, on, copied) {
            Ok(Some(())) => {}
            Ok(None) => {
                self.log().put(cell);
                return self.look_now(bytes);
            }
            Err(error) => {
                self.log().put(cell);
                self.miss(error);
                return Ok(());
            }
        }
        // Bytes that keep what they held are no harm.
        let _ = self.poison(on, bytes);
        match timelines.mark(on) {
            Ok(epoch) => {
                let (point, about) = (Point { timeline: on, epoch }, bytes.about().clone());
                self.log().send(Sent { cell, point, about });
            }
            Err(error) => self.abandon(cell, error),
        }
        Ok(())
    }

    /// Room for a copy: what was looked at meanwhile, or more memory.
    fn cell(&self, device: &dyn SanitizerDevice) -> Option<ScratchPlace> {
        if let Some(cell) = self.log().take() {
            return Some(cell);
        }
        self.look_at_sent(device, false);
        if let Some(cell) = self.log().take() {
            return Some(cell);
        }
        let block = log::block(device)?;
        self.log().grow(block)
    }

    /// Checks the copies that have arrived; with `wait`, all copies.
    pub(super) fn look_at_sent(&self, device: &dyn SanitizerDevice, wait: bool) {
        let sent = self.log().take_sent();
        for one in sent {
            match is_there(device, one.point, wait) {
                Ok(true) => self.look_at(device, one),
                Ok(false) => self.log().send(one),
                Err(error) => self.abandon(one.cell, error),
            }
        }
    }

    fn look_at(&self, device: &dyn SanitizerDevice, sent: Sent) {
        let Sent { cell, point, about } = sent;
        let align = device.caps().copy.align;
        let size = about.size + about.note - align.down(about.size);
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        let read = self.line(device).and_then(|line| {
            if let Some(timelines) = device.timelines() {
                unless_closed(device, point.timeline, timelines.order(line, point))?;
            }
            device.read_scratch(line, cell, &mut bytes)
        });
        if let Err(error) = read {
            return self.abandon(cell, error);
        }
        self.checked.fetch_add(1, Relaxed);
        self.find(judge(&about, &bytes, align));
        self.log().put(cell);
    }

    /// Counts a guard whose copy could not be followed. Something may still touch its cell, so it is not used again.
    fn abandon(&self, cell: ScratchPlace, error: Error) {
        self.miss(error);
        self.log().lose(cell);
    }
}

fn is_there(device: &dyn SanitizerDevice, point: Point, wait: bool) -> Result<bool> {
    let Some(timelines) = device.timelines() else { return Ok(true) };
    if wait {
        unless_closed(device, point.timeline, timelines.wait(point))?;
        return Ok(true);
    }
    let reached = timelines.reached(point.timeline);
    let reached = unless_closed(device, point.timeline, reached)?;
    Ok(reached.is_none_or(|reached| reached >= point.epoch))
}
