//! Nothing left behind: memory that holds zeros at first, and secrets that are gone at the end.
use super::Allocation;
use crate::pool::{Ending, Lane, SlotId};
use crate::{Backend, Error, ErrorKind, Place, Point, Privacy, Result, TimelineId};

impl<B: Backend> Lane<B> {
    /// Zeroes everything that an allocation occupies, padding included, in a timeline's order.
    ///
    /// The allocation does not move meanwhile: it is pinned, or its owner is on the way out.
    fn wipe(&self, id: SlotId, on: TimelineId) -> Result<()> {
        let state = self.state.lock();
        let ((block, _), span) = (state.locate(id)?, state.granted(id)?);
        drop(state);
        let transfer = self.shared.device.backend().as_transfer().ok_or(ErrorKind::Unsupported)?;
        transfer.fill(on, Place { block: block.raw(), offset: span.offset }, span.size, 0)
    }

    /// The timeline in whose order an allocation's bytes are used; the main one for those that the host orders.
    fn home(&self, id: SlotId) -> TimelineId {
        self.state.lock().home_of(id).unwrap_or(TimelineId::MAIN)
    }

    /// Zeroes a secret after everything that uses it; says when the zeros are there, where somebody must wait for it.
    ///
    /// On failure the caller never uses the bytes again.
    pub(super) fn forget_secret(&self, id: SlotId, uses: &[Point]) -> Result<Option<Point>> {
        let home = self.home(id);
        let home = if self.shared.device.is_closed(home)? { TimelineId::MAIN } else { home };
        let Some(timelines) = self.shared.device.backend().as_timelines() else {
            self.shared.device.backend().wait_idle()?;
            self.look_at_secret(id, home)?;
            self.wipe(id, home)?;
            return self.shared.device.backend().wait_idle().map(|()| None);
        };
        for point in uses.iter().filter(|point| point.timeline != home) {
            let ordered = timelines.order(home, *point);
            self.shared.device.unless_closed(point.timeline, ordered)?;
        }
        self.look_at_secret(id, home)?;
        self.wipe(id, home)?;
        let state = self.state.lock();
        if state.home_of(id) == Some(home) && !state.has_host_access(id) {
            return Ok(None); // Whoever gets the bytes next comes after the zeros in the same order.
        }
        drop(state);
        Ok(Some(Point { timeline: home, epoch: timelines.mark(home)? }))
    }

    /// Whether an allocation's bytes must not outlive it.
    pub(super) fn is_secret(&self, id: SlotId) -> bool {
        let state = self.state.lock();
        state.notes.get(id.index).is_some_and(|note| note.privacy == Privacy::Secret)
    }

    /// Says that bytes could not be freed safely, and so are never used again.
    pub(crate) fn condemn(&self, id: SlotId, error: Error, why: &'static str) -> Ending {
        let bytes = self.state.lock().granted(id).map_or(0, |span| span.size);
        tracing::error!(?error, why, "an allocation could not be freed");
        self.shared.device.quarantine(bytes, why);
        Ending::Never
    }
}

impl<B: Backend> Allocation<B> {
    /// Zeroes all of it, padding included, before anyone else has it.
    pub(super) fn wipe(&self) -> Result<()> {
        let _stays = self.binding();
        self.in_order(|_, on| self.lane().wipe(self.slot(), on))?;
        self.settle_own_work()
    }
}
