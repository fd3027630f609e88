//! Guards of allocations: laid at hand-out and after a resize, looked at on request.
use super::{Allocation, Manager};
use crate::guards::{GuardReport, Overwrite};
use crate::lane::WaitMode;
use crate::{Backend, Contents, ErrorKind, Result};
use alloc::vec::Vec;

impl<B: Backend> Allocation<B> {
    /// Lays a guard behind the bytes, where the manager has guards.
    pub(super) fn begin_sanitized(&self, contents: Contents) -> Result<()> {
        let lane = self.lane();
        let Some(watch) = &lane.shared.watch else { return Ok(()) };
        let binding = self.binding();
        let seen = lane.seen(self.slot()).ok_or(ErrorKind::Stale)?;
        // The host may use the bytes as soon as the call returns, unless only work of a timeline does.
        let order = self.timeline().filter(|_| !self.has_host_access());
        let on = order.map_or_else(|| watch.line(), Ok)?;
        let note = watch.begin(&seen, on, contents)?;
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

    /// Restores what a copy of whole words went over.
    pub(super) fn restore_sanitized(&self) -> Result<()> {
        let lane = self.lane();
        let align = lane.shared.device.backend().caps().copy.align;
        let Some(watch) = lane.shared.watch.as_ref().filter(|_| !align.divides(self.size())) else {
            return Ok(());
        };
        let _stays = self.binding();
        let Some(seen) = lane.sanitized(self.slot()) else { return Ok(()) };
        self.in_order(|_, on| watch.restore(&seen, on))?;
        self.order_own_work()
    }
}

impl<B: Backend> Manager<B> {
    /// Returns the writes found behind the end of allocations: of those that were freed, and of those that live. Waits for what
    /// uses them.
    ///
    /// Each allocation is named once. What a pass is moving is looked at when it is asked for again, or ends.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` when the manager's settings are not [`guarded`](crate::ManagerConfig::guarded); what the device says.
    pub fn overwrites(&self) -> Result<Vec<Overwrite>> {
        let watch = self.inner.watch.as_ref().ok_or(ErrorKind::InvalidConfig.because(
            "the manager has no guards; make it with `ManagerConfig::default().guarded()`",
        ))?;
        for lane in self.all_pools().into_iter().flat_map(|pool| pool.lanes()) {
            lane.retire(WaitMode::Poll)?;
            lane.look_at_live(watch)?;
        }
        watch.poll(true);
        Ok(watch.found())
    }

    /// Counts how guards fared; all zero when the manager's settings are not [`guarded`](crate::ManagerConfig::guarded).
    #[must_use]
    pub fn guard_report(&self) -> GuardReport {
        self.inner.watch.as_ref().map(|watch| watch.report()).unwrap_or_default()
    }
}
