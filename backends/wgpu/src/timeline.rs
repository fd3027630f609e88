//! Time: one queue, so one count of epochs for all timelines.
#![expect(unsafe_code, reason = "signs the contract of Timelines")]
use crate::{Wgpu, clock::Mark};
use omniheap_seam::{Epoch, ErrorKind, Point, Result, TimelineId, Timelines};
use wgpu::PollType;

// SAFETY: wgpu calls back once everything submitted before has finished, and epochs are handed out in that order; one queue runs
// in the order of submission; `close` waits, and ids count up.
unsafe impl Timelines for Wgpu {
    fn open(&self) -> Result<TimelineId> {
        self.driver.check()?;
        self.clock.open()
    }

    fn close(&self, timeline: TimelineId) -> Result<()> {
        if timeline == TimelineId::MAIN {
            return Err(ErrorKind::Unsupported.into());
        }
        let epoch = self.mark(timeline)?;
        self.wait(Point { timeline, epoch })?;
        self.clock.close(timeline)
    }

    fn mark(&self, timeline: TimelineId) -> Result<Epoch> {
        self.driver.probe()?;
        self.clock.check(timeline)?;
        // Runs after the latest submission, whoever made it; a later one only makes it later.
        let watch = |mark: Mark| self.driver.queue.on_submitted_work_done(|| mark.reach());
        Ok(self.clock.mark(watch))
    }

    fn reached(&self, timeline: TimelineId) -> Result<Epoch> {
        self.clock.check(timeline)?;
        self.driver.poll(PollType::Poll)?;
        self.driver.probe()?;
        Ok(self.clock.reached())
    }

    fn wait(&self, point: Point) -> Result<()> {
        self.driver.check()?;
        self.clock.check_point(point)?;
        let reached = || self.clock.reached() >= point.epoch;
        if reached() { Ok(()) } else { self.driver.wait_until(|| reached().then_some(())) }
    }

    fn order(&self, timeline: TimelineId, point: Point) -> Result<()> {
        self.driver.check()?;
        self.clock.check(timeline)?;
        // One queue: what is submitted later runs later.
        self.clock.check_point(point)
    }
}
