//! Bytes that stay as they are from some point on: constants that kernels rely on.
use super::Allocation;
use crate::{Backend, ErrorKind, Result, TimelineId};

impl<B: Backend> Allocation<B> {
    /// Makes the bytes final: waits for the writes on the allocation's timeline, so that kernels of every timeline see them,
    /// and refuses all later ones.
    ///
    /// What another timeline writes is the caller's to wait for.
    ///
    /// # Errors
    ///
    /// What the device says; nothing is published then.
    pub fn publish(&self) -> Result<()> {
        let lane = self.lane();
        lane.shared.device.drain(self.timeline().unwrap_or(TimelineId::MAIN))?;
        let mut state = lane.state.lock();
        state.slots.set_noted(self.slot())?;
        state.notes.of(self.slot().index).published = true;
        Ok(())
    }

    /// Whether the bytes are final.
    #[must_use]
    pub fn is_published(&self) -> bool {
        let state = self.lane().state.lock();
        state.notes.get(self.slot().index).is_some_and(|note| note.published)
    }

    /// Refuses to write what is final.
    pub(super) fn check_writable(&self) -> Result<()> {
        if self.is_published() { Err(ErrorKind::Published.into()) } else { Ok(()) }
    }
}
