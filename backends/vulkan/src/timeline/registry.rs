//! Every open timeline, by its number.
use super::{clock::Clocks, queue::QueueTimeline};
use crate::{driver::device::Device, transfer::staging::Plans};
use omniheap_seam::{ErrorKind, Result, TimelineId, lock};
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
    pub(crate) fn open_on(&self, device: &Arc<Device>, queues: &[usize]) -> Result<TimelineId> {
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

    /// Forgets a timeline, which the caller has drained.
    pub(crate) fn close(&self, id: TimelineId) {
        lock(&self.open).timelines.remove(&id.0);
    }
}
