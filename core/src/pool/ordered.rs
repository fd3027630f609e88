//! Reuse across timelines without a wait: whoever takes bytes that another timeline may still use runs after it.
#![forbid(unsafe_code)]
use super::lane::{Ask, Lane};
use super::quiet::is_unknown;
use super::slots::SlotId;
use crate::{Backend, Point, Result, TimelineId, Waiting};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering::Relaxed;

/// Bytes that a pool may hold beyond what it ever needed, before it waits for the device rather than growing.
const WASTE: u64 = 64 << 20;
/// The same as a part of what it needed, where that is more: one in so many.
const WASTE_SHARE: u64 = 100;

/// The most to hold where so many bytes are needed.
const fn most_for(needed: u64) -> u64 {
    let share = needed / WASTE_SHARE;
    needed.saturating_add(if share > WASTE { share } else { WASTE })
}

impl<B: Backend> Lane<B> {
    /// Whether the pool waits for the device rather than hold so many bytes more: it asks for thrift, and would hold much
    /// more than was ever live at a time. What was freed and waits for a timeline is not live. `lanes` are all of the pool.
    pub(crate) fn would_waste(&self, bytes: u64, lanes: &[Arc<Self>]) -> bool {
        let after = self.shared.reserved().saturating_add(bytes);
        let shared = &self.shared;
        let is_thrifty = shared.config.waiting == Waiting::Thrift
            && shared.page().is_some()
            && !shared.device.hurried.load(Relaxed);
        if !is_thrifty || after <= most_for(shared.need(0)) {
            return false;
        }
        let (mut live, mut peak) = (0, 0);
        for lane in lanes {
            let state = lane.state.lock();
            live += state.counts.live_bytes.saturating_sub(state.deferred.bytes());
            peak = state.counts.peak_live_bytes.max(peak);
        }
        after > most_for(shared.need(peak.max(live.saturating_add(bytes))))
    }

    /// Whether this lane may take one span more from others in a row: see [`lends_gladly`](Self::lends_gladly).
    pub(crate) fn may_borrow(&self) -> bool {
        self.borrowing.fetch_add(1, Relaxed) < Self::BORROWS
    }

    /// Takes back everything that was freed and waits for other timelines, by letting this lane's own run after them;
    /// says how many allocations that were.
    pub(crate) fn retire_in_order(&self) -> Result<u64> {
        let (Some(timeline), Some(timelines)) = (self.timeline, self.timelines()) else {
            return Ok(0);
        };
        let mut passed = Vec::new();
        for point in self.state.lock().deferred.latest() {
            if point.timeline != timeline {
                let ordered = timelines.order(timeline, point);
                match self.shared.device.unless_closed(point.timeline, ordered) {
                    Err(error) if is_unknown(error) => continue, // It may never come.
                    ordered => ordered?,
                };
            }
            passed.push((point.timeline, point.epoch));
        }
        // A block of its own would go back to the driver, which must wait for the device itself.
        Ok(self.take_back(&passed, |state, id| !state.is_alone(id)))
    }

    /// A span that this lane's timeline may still use, for a request of another timeline, which runs after it from now on.
    pub(crate) fn lend_in_order(&self, ask: Ask, to: TimelineId) -> Result<Option<SlotId>> {
        let (Some(timeline), Some(timelines)) = (self.timeline, self.timelines()) else {
            return Ok(None);
        };
        // Taken before the mark: what used it until now was submitted before.
        let Ok(slot) = self.state.lock().allocate_anyhow(ask) else { return Ok(None) };
        let marked = self.shared.device.unless_closed(timeline, timelines.mark(timeline));
        let ordered = marked.and_then(|epoch| match epoch {
            Some(epoch) => timelines.order(to, Point { timeline, epoch }),
            None => Ok(()),
        });
        if let Err(error) = ordered {
            self.state.lock().free(slot)?;
            return Err(error);
        }
        Ok(Some(slot))
    }
}
