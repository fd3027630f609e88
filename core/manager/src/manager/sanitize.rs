//! When a sanitizer sees an allocation: at hand-out, at its end, and on request.
use super::{Allocation, Manager};
use crate::lane::WaitMode;
use crate::sanitizer::Sanitizer;
use crate::{Backend, Contents, Error, ErrorKind, Result};

impl<B: Backend> Allocation<B> {
    /// Has the sanitizer, if there is one, prepare the bytes.
    pub(super) fn begin_sanitized(&self, contents: Contents) -> Result<()> {
        let lane = self.lane();
        let Some(watch) = &lane.shared.watch else { return Ok(()) };
        let binding = self.binding();
        let seen = lane.seen(self.slot()).ok_or(ErrorKind::Stale)?;
        // The host may use the bytes as soon as the call returns, unless only work of a timeline does.
        let order = self.timeline().filter(|_| !self.has_host_access());
        let on = order.map_or_else(|| watch.sanitizer.timeline(watch.as_ref()), Ok)?;
        let note = watch.sanitizer.begin(&watch.bytes(&seen), on, contents)?;
        if order.is_some() {
            self.touch();
        } else {
            lane.shared.device.finish(on).inspect_err(|_| self.outlast(on))?;
        }
        drop(binding);
        if note > 0 {
            lane.set_sanitized(self.slot(), note)?;
        }
        Ok(())
    }

    /// Has the sanitizer restore what a copy of whole words went over.
    pub(super) fn restore_sanitized(&self) -> Result<()> {
        let lane = self.lane();
        let align = lane.shared.device.backend().caps().copy.align;
        let Some(watch) = lane.shared.watch.as_ref().filter(|_| !align.divides(self.size())) else {
            return Ok(());
        };
        let _stays = self.binding();
        let Some(seen) = lane.sanitized(self.slot()) else { return Ok(()) };
        self.in_order(|_, on| watch.sanitizer.restore(&watch.bytes(&seen), on))?;
        self.order_own_work()
    }
}

const NO_SANITIZER: Error = ErrorKind::InvalidConfig
    .because("the manager has no `sanitizer`; set one in its `ManagerConfig`, as `guarded` does");

impl<B: Backend> Manager<B> {
    /// The sanitizer, if the manager has one.
    #[must_use]
    pub fn sanitizer(&self) -> Option<&dyn Sanitizer> {
        self.inner.watch.as_ref().map(|watch| watch.sanitizer.as_ref())
    }

    /// Has the sanitizer look at everything that lives and at what has ended. Waits for what uses the bytes.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` without a [sanitizer](crate::ManagerConfig::sanitizer); what the device says.
    pub fn look_at_live(&self) -> Result<()> {
        let watch = self.inner.watch.as_ref().ok_or(NO_SANITIZER)?;
        for lane in self.all_pools().into_iter().flat_map(|pool| pool.lanes()) {
            lane.retire(WaitMode::Poll)?;
            lane.look_at_live(watch)?;
        }
        watch.poll(true);
        Ok(())
    }
}
