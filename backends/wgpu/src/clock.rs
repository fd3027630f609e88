//! The epochs of the queue, and the timelines that are open over it.
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_seam::{Epoch, ErrorKind, Point, Result, TimelineId, lock};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard},
};

/// The epochs of the queue and the timelines that are open over it.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    state: Mutex<State>,
    reached: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct State {
    /// The last epoch handed out.
    marked: u64,
    /// The last timeline handed out.
    opened: u32,
    /// Open timelines besides the main one.
    open: BTreeSet<TimelineId>,
}

impl Clock {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Refuses a timeline that is not open.
    pub(crate) fn check(&self, timeline: TimelineId) -> Result<()> {
        if timeline == TimelineId::MAIN || self.state().open.contains(&timeline) {
            Ok(())
        } else {
            Err(ErrorKind::NoSuchTimeline.into())
        }
    }

    /// Refuses a point of a timeline that is not open, or one that no mark returned: nothing would ever reach it.
    pub(crate) fn check_point(&self, point: Point) -> Result<()> {
        self.check(point.timeline)?;
        if point.epoch.0 > self.state().marked {
            return Err(ErrorKind::NoSuchTimeline.into());
        }
        Ok(())
    }

    pub(crate) fn open(&self) -> Result<TimelineId> {
        let mut state = self.state();
        state.opened = state.opened.checked_add(1).ok_or(ErrorKind::ExceedsLimit)?;
        let timeline = TimelineId(state.opened);
        state.open.insert(timeline);
        Ok(timeline)
    }

    pub(crate) fn close(&self, timeline: TimelineId) -> Result<()> {
        let was_open = self.state().open.remove(&timeline);
        if was_open { Ok(()) } else { Err(ErrorKind::NoSuchTimeline.into()) }
    }

    /// Hands out the next epoch. `watch` sees to it that [`Mark::reach`] is called once everything submitted so far has finished.
    pub(crate) fn mark(&self, watch: impl FnOnce(Mark)) -> Epoch {
        // Held over the call, so that callbacks are registered in the order of their epochs.
        let mut state = self.state();
        let epoch = state.marked + 1;
        watch(Mark { epoch, reached: Arc::clone(&self.reached) });
        state.marked = epoch;
        Epoch(epoch)
    }

    /// Returns the latest epoch that was reached.
    pub(crate) fn reached(&self) -> Epoch {
        Epoch(self.reached.load(Ordering::Acquire))
    }
}

/// An epoch that is not reached yet.
pub(crate) struct Mark {
    epoch: u64,
    reached: Arc<AtomicU64>,
}

impl Mark {
    pub(crate) fn reach(self) {
        self.reached.fetch_max(self.epoch, Ordering::AcqRel);
    }
}
