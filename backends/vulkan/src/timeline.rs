//! Timelines over queues: opening, ordering, and sharing a queue with the engine.
#![expect(unsafe_code, reason = "signs the contract of Timelines")]
pub(crate) mod clock;
pub(crate) mod commands;
pub(crate) mod family;
pub(crate) mod queue;
pub(crate) mod registry;
pub(crate) mod retired;
pub(crate) mod route;
pub(crate) mod whole;

use crate::Vulkan;
use ash::vk;
use omniheap_seam::{Epoch, ErrorKind, Point, Result, TimelineId, Timelines};
use retired::{Object, Retired};
use whole::When;

impl Vulkan {
    /// Opens a timeline on a queue of `family`, so that its transfers run there.
    ///
    /// Blocks are shared by all families in use; for exclusive resources of the engine there is
    /// [`change_family`](Self::change_family).
    ///
    /// # Errors
    ///
    /// `Unsupported` when no queue of that family is open; the driver's error.
    pub fn open_timeline_on(&self, family: u32) -> Result<TimelineId> {
        let queues = self.queues_of(family);
        match queues.is_empty() {
            true => Err(ErrorKind::Unsupported.into()),
            false => self.timelines.open_on(&self.device, &queues),
        }
    }

    /// Returns the queue families in use, without repeats; timelines open on that of the main timeline unless told.
    #[must_use]
    pub fn families(&self) -> &[u32] {
        &self.device.families
    }

    /// Runs `f` with the timeline's queue and its family, while nothing else uses that queue.
    ///
    /// This is how an engine submits work of its own: what it submits runs after the points that were given to
    /// [`order`](Timelines::order), and the next [`mark`](Timelines::mark) covers it. Its command buffers begin and end
    /// with the barriers they need against transfers on the same timeline. From then on no other timeline follows its
    /// work to this queue. `f` does not call this backend: the queue and the timeline are locked.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`; the driver's error.
    pub fn with_queue<R>(
        &self,
        timeline: TimelineId,
        f: impl FnOnce(vk::Queue, u32) -> R,
    ) -> Result<R> {
        let timeline = self.timelines.get(timeline)?;
        let family = self.device.queues[timeline.home].family;
        timeline.outside(|queue| f(queue, family))
    }

    /// Returns the semaphore that counts a timeline's epochs, for an engine to wait on; `None` where the device has only fences.
    ///
    /// The semaphore lives until the timeline is closed and the backend dropped. Never signal it.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`.
    pub fn semaphore(&self, timeline: TimelineId) -> Result<Option<vk::Semaphore>> {
        Ok(self.timelines.get(timeline)?.semaphore().map(|semaphore| semaphore.raw))
    }

    /// Destroys a handle of the engine once all work submitted so far has ended, without waiting for it.
    ///
    /// All work on queues of this backend counts: the engine's work in [`with_queue`](Self::with_queue), and the backend's own. For
    /// other queues, [`Options::frames_in_flight`](crate::Options::frames_in_flight) says how long their work may take.
    ///
    /// The returned point is reached when the handle is destroyed: give it to `Allocation::free_after` for the memory behind the
    /// object. Handles are destroyed in the order of these calls, so retire a view before its image or buffer.
    ///
    /// # Safety
    ///
    /// `handle` belongs to this device, nobody else destroys it, and no work submitted from now on uses it.
    pub unsafe fn retire<H: Object>(&self, handle: H) -> Point {
        // SAFETY: the caller's promise; `Whole` destroys it when the work so far has ended.
        let epoch = match self.whole.retire(unsafe { Retired::new(handle) }) {
            When::Now => Epoch::START,
            When::At(epoch) => Epoch(epoch),
        };
        Point { timeline: TimelineId::ALL, epoch }
    }

    /// Counts a frame of an engine that set [`Options::frames_in_flight`](crate::Options::frames_in_flight). Call it once a frame,
    /// after the last submission. Without that option it only destroys retired handles, as other calls do too.
    ///
    /// # Errors
    ///
    /// `DeviceLost`.
    pub fn end_frame(&self) -> Result<()> {
        self.whole.end_frame()
    }

    /// Returns true if a timeline stands for all work of the device: [`TimelineId::ALL`], and without queues also the main one. Only
    /// the engine's frames are known then.
    fn is_whole(&self, timeline: TimelineId) -> bool {
        timeline == TimelineId::ALL || timeline == TimelineId::MAIN && !self.device.has_queues()
    }

    fn queues_of(&self, family: u32) -> Vec<usize> {
        (0..self.device.queues.len())
            .filter(|queue| self.device.queues[*queue].family == family)
            .collect()
    }
}

// SAFETY: epochs are values of a semaphore, or of fences in order, that the queue signals behind everything submitted before; those
// of all work count once that is so on every queue, and once the engine's frames have ended that it counts; `close` waits before it forgets a timeline, and ids count up.
unsafe impl Timelines for Vulkan {
    fn open(&self) -> Result<TimelineId> {
        let main = self.device.queues.first().ok_or(ErrorKind::Unsupported)?;
        self.open_timeline_on(main.family)
    }

    fn close(&self, timeline: TimelineId) -> Result<()> {
        if timeline == TimelineId::MAIN {
            return Err(ErrorKind::Unsupported.into());
        }
        let closing = self.timelines.get(timeline)?;
        closing.wait(closing.mark()?)?;
        self.timelines.close(timeline);
        Ok(())
    }

    fn mark(&self, timeline: TimelineId) -> Result<Epoch> {
        if self.is_whole(timeline) {
            return Ok(Epoch(self.whole.mark()?));
        }
        Ok(Epoch(self.timelines.get(timeline)?.mark()?))
    }

    fn reached(&self, timeline: TimelineId) -> Result<Epoch> {
        if self.is_whole(timeline) {
            return Ok(Epoch(self.whole.reached()?));
        }
        Ok(Epoch(self.timelines.get(timeline)?.reached()?))
    }

    fn wait(&self, point: Point) -> Result<()> {
        if self.is_whole(point.timeline) {
            return self.whole.wait(point.epoch.0);
        }
        self.timelines.get(point.timeline)?.wait(point.epoch.0)
    }

    fn order(&self, timeline: TimelineId, point: Point) -> Result<()> {
        if self.is_whole(point.timeline) {
            let before = self.whole.behind(point.epoch.0)?;
            // Without queues nothing is submitted here, and the point was reached.
            if !self.is_whole(timeline) || self.device.has_queues() {
                self.timelines.get(timeline)?.order_behind(before);
            }
            return Ok(());
        }
        let timeline = self.timelines.get(timeline)?;
        let other = self.timelines.get(point.timeline)?;
        timeline.order(&other, point.epoch.0)
    }
}
