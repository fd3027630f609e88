//! Time: one queue, so one count of epochs for all timelines.
#![expect(unsafe_code, reason = "signs the contract of Timelines")]
use crate::Wgpu;
use core::sync::atomic::{AtomicU64, Ordering};
use omniheap_seam::{Epoch, ErrorKind, Point, Result, TimelineId, Timelines};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use wgpu::PollType;

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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn check_point(&self, point: Point) -> Result<()> {
        self.check(point.timeline)?;
        if point.epoch.0 > self.state().marked {
            return Err(ErrorKind::NoSuchTimeline.into());
        }
        Ok(())
    }
}

// SAFETY: wgpu calls back once everything submitted before has finished, and epochs are handed out in that order; one queue runs
// in the order of submission; `close` waits, and ids count up.
unsafe impl Timelines for Wgpu {
    fn open(&self) -> Result<TimelineId> {
        self.driver.check()?;
        let mut state = self.clock.state();
        state.opened = state.opened.checked_add(1).ok_or(ErrorKind::ExceedsLimit)?;
        let timeline = TimelineId(state.opened);
        state.open.insert(timeline);
        Ok(timeline)
    }

    fn close(&self, timeline: TimelineId) -> Result<()> {
        if timeline == TimelineId::MAIN {
            return Err(ErrorKind::Unsupported.into());
        }
        let epoch = self.mark(timeline)?;
        self.wait(Point { timeline, epoch })?;
        if self.clock.state().open.remove(&timeline) {
            Ok(())
        } else {
            Err(ErrorKind::NoSuchTimeline.into())
        }
    }

    fn mark(&self, timeline: TimelineId) -> Result<Epoch> {
        self.driver.probe()?;
        self.clock.check(timeline)?;
        let reached = Arc::clone(&self.clock.reached);
        // Held over the call, so that callbacks are registered in the order of their epochs.
        let mut state = self.clock.state();
        let epoch = state.marked + 1;
        // Runs after the latest submission, whoever made it; a later one only makes it later.
        self.driver.queue.on_submitted_work_done(move || {
            reached.fetch_max(epoch, Ordering::AcqRel);
        });
        state.marked = epoch;
        Ok(Epoch(epoch))
    }

    fn reached(&self, timeline: TimelineId) -> Result<Epoch> {
        self.clock.check(timeline)?;
        self.driver.poll(PollType::Poll)?;
        self.driver.probe()?;
        Ok(Epoch(self.clock.reached.load(Ordering::Acquire)))
    }

    fn wait(&self, point: Point) -> Result<()> {
        self.driver.check()?;
        self.clock.check_point(point)?;
        let reached = || self.clock.reached.load(Ordering::Acquire) >= point.epoch.0;
        if reached() { Ok(()) } else { self.driver.wait_until(|| reached().then_some(())) }
    }

    fn order(&self, timeline: TimelineId, point: Point) -> Result<()> {
        self.driver.check()?;
        self.clock.check(timeline)?;
        // One queue: what is submitted later runs later.
        self.clock.check_point(point)
    }
}
