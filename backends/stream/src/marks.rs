//! The marks of one timeline: an event each, used again once it is reached.
use crate::{
    Progress, StreamDriver,
    event::{Event, Spare},
};
use omniheap_seam::{Epoch, ErrorKind, Result};
use std::{collections::VecDeque, sync::Arc};

/// Maximum number of pending marks per timeline. Beyond it, every second one is merged into its successor.
const PENDING: usize = 1024;

/// The marks of one timeline. Everything up to `reached` has run; later marks are in `pending`, in order.
pub(crate) struct Marks<D: StreamDriver> {
    spare: Arc<Spare<D>>,
    last: u64,
    reached: u64,
    pending: VecDeque<(u64, Arc<Event<D>>)>,
}

impl<D: StreamDriver> Marks<D> {
    pub(crate) const fn new(spare: Arc<Spare<D>>) -> Self {
        Self { spare, last: 0, reached: 0, pending: VecDeque::new() }
    }

    /// Returns the epoch of the last mark.
    pub(crate) const fn last(&self) -> u64 {
        self.last
    }

    /// Returns the last epoch that is known to have been reached.
    pub(crate) const fn reached(&self) -> u64 {
        self.reached
    }

    /// Makes a mark: `record` puts an event behind the work that it stands for.
    pub(crate) fn make(
        &mut self,
        driver: &Arc<D>,
        record: impl FnOnce(&Event<D>) -> Result<()>,
    ) -> Result<Epoch> {
        if self.pending.len() >= PENDING {
            self.poll()?;
            self.thin();
        }
        let event = self.spare.take(driver)?;
        if let Err(error) = record(&event) {
            self.spare.put(event);
            return Err(error);
        }
        self.last += 1;
        self.pending.push_back((self.last, event));
        Ok(Epoch(self.last))
    }

    /// Joins every second mark with its successor while too many wait. Reaching an epoch may show later, never earlier.
    fn thin(&mut self) {
        if self.pending.len() < PENDING {
            return;
        }
        let last = self.last;
        for (index, (epoch, event)) in core::mem::take(&mut self.pending).into_iter().enumerate() {
            if index % 2 == 1 || epoch == last {
                self.pending.push_back((epoch, event));
            } else {
                self.spare.put(event);
            }
        }
    }

    /// Moves `reached` up to the last finished mark. Marks of one timeline finish in order, so bisection finds it.
    pub(crate) fn poll(&mut self) -> Result<()> {
        let (mut low, mut high) = (0, self.pending.len());
        // The last one first: most often everything has finished.
        let mut probe = high.saturating_sub(1);
        while low < high {
            match self.pending[probe].1.progress()? {
                Progress::Finished => low = probe + 1,
                Progress::Pending => high = probe,
            }
            probe = low + (high - low) / 2;
        }
        self.pass(low);
        Ok(())
    }

    /// Counts the first `count` pending marks as reached.
    fn pass(&mut self, count: usize) {
        for (epoch, event) in self.pending.drain(..count) {
            self.reached = epoch;
            self.spare.put(event);
        }
    }

    /// Counts every mark up to `epoch` as reached.
    pub(crate) fn pass_to(&mut self, epoch: u64) {
        let count = self.pending.partition_point(|(pending, _)| *pending <= epoch);
        self.pass(count);
    }

    /// Makes a mark that is reached already, and with it all before it: the device is idle.
    pub(crate) fn make_reached(&mut self) {
        self.last += 1;
        self.pass(self.pending.len());
        self.reached = self.last;
    }

    /// Returns the event that stands for `epoch`, or `None` when it was reached.
    pub(crate) fn event_for(&self, epoch: Epoch) -> Result<Option<(u64, Arc<Event<D>>)>> {
        if epoch.0 <= self.reached {
            return Ok(None);
        }
        // An epoch this timeline never gave out belongs to another one.
        let at = self.pending.partition_point(|(pending, _)| *pending < epoch.0);
        let found = self.pending.get(at).ok_or(ErrorKind::NoSuchTimeline)?;
        Ok(Some(found.clone()))
    }
}
