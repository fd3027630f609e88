//! Timelines over queues: opening, ordering, and sharing a queue with the engine.
#![expect(unsafe_code, reason = "signs the contract of Timelines")]
pub(crate) mod clock;
pub(crate) mod commands;
pub(crate) mod family;
pub(crate) mod queue;
pub(crate) mod route;

use self::{clock::Clocks, queue::QueueTimeline};
use crate::{
    Vulkan,
    driver::device::{Device, lock},
    transfer::staging::Plans,
};
use ash::vk;
use omniheap_seam::{Epoch, ErrorKind, Point, Result, TimelineId, Timelines};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// Every open timeline.
#[derive(Debug)]
pub(crate) struct Registry {
    open: Mutex<Open>,
    clocks: Clocks,
    plans: Plans,
}

#[derive(Debug)]
struct Open {
    timelines: BTreeMap<u32, Arc<QueueTimeline>>,
    next: u32,
}

impl Registry {
    /// Opens the main timeline on the first queue.
    pub(crate) fn new(device: &Arc<Device>, clocks: Clocks, plans: Plans) -> Result<Self> {
        let main = Arc::new(QueueTimeline::open(device, 0, clocks, plans)?);
        let timelines = BTreeMap::from([(TimelineId::MAIN.0, main)]);
        Ok(Self { open: Mutex::new(Open { timelines, next: 1 }), clocks, plans })
    }

    /// Returns the registry of a device without queues: no timeline is ever open.
    pub(crate) fn closed(clocks: Clocks, plans: Plans) -> Self {
        let open = Open { timelines: BTreeMap::new(), next: 1 };
        Self { open: Mutex::new(open), clocks, plans }
    }

    pub(crate) fn get(&self, id: TimelineId) -> Result<Arc<QueueTimeline>> {
        lock(&self.open).timelines.get(&id.0).cloned().ok_or(ErrorKind::NoSuchTimeline.into())
    }

    /// Opens a timeline on one of `queues`, the one with the fewest timelines.
    fn open_on(&self, device: &Arc<Device>, queues: &[usize]) -> Result<TimelineId> {
        let mut open = lock(&self.open);
        let id = open.next;
        let next = id.checked_add(1).ok_or(ErrorKind::ExceedsLimit)?;
        let used = |queue: usize| {
            open.timelines.values().filter(|timeline| timeline.home == queue).count()
        };
        let queue = match self.clocks {
            Clocks::Fences => 0,
            Clocks::Semaphores => queues
                .iter()
                .copied()
                .min_by_key(|queue| used(*queue))
                .ok_or(ErrorKind::Unsupported)?,
        };
        let timeline = Arc::new(QueueTimeline::open(device, queue, self.clocks, self.plans)?);
        open.timelines.insert(id, timeline);
        open.next = next;
        Ok(TimelineId(id))
    }
}

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
    /// It lives until the timeline is closed and the backend dropped. Never signal it.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`.
    pub fn semaphore(&self, timeline: TimelineId) -> Result<Option<vk::Semaphore>> {
        Ok(self.timelines.get(timeline)?.semaphore().map(|semaphore| semaphore.raw))
    }

    fn queues_of(&self, family: u32) -> Vec<usize> {
        (0..self.device.queues.len())
            .filter(|queue| self.device.queues[*queue].family == family)
            .collect()
    }
}

// SAFETY: epochs are values of a semaphore, or of fences in order, that the queue signals behind everything submitted before;
// `close` waits before it forgets a timeline, and ids count up.
unsafe impl Timelines for Vulkan {
    fn open(&self) -> Result<TimelineId> {
        self.open_timeline_on(self.device.queues[0].family)
    }

    fn close(&self, timeline: TimelineId) -> Result<()> {
        if timeline == TimelineId::MAIN {
            return Err(ErrorKind::Unsupported.into());
        }
        let closing = self.timelines.get(timeline)?;
        closing.wait(closing.mark()?)?;
        lock(&self.timelines.open).timelines.remove(&timeline.0);
        Ok(())
    }

    fn mark(&self, timeline: TimelineId) -> Result<Epoch> {
        Ok(Epoch(self.timelines.get(timeline)?.mark()?))
    }

    fn reached(&self, timeline: TimelineId) -> Result<Epoch> {
        Ok(Epoch(self.timelines.get(timeline)?.reached()?))
    }

    fn wait(&self, point: Point) -> Result<()> {
        self.timelines.get(point.timeline)?.wait(point.epoch.0)
    }

    fn order(&self, timeline: TimelineId, point: Point) -> Result<()> {
        let timeline = self.timelines.get(timeline)?;
        let other = self.timelines.get(point.timeline)?;
        timeline.order(&other, point.epoch.0)
    }
}
