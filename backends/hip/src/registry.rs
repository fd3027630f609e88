//! Every open timeline of a device, and the capability over them.
#![expect(unsafe_code, reason = "takes over streams")]
use crate::{
    backend::Hip,
    driver::Driver,
    event::Spare,
    sys::hipStream_t,
    timeline::{DefaultStream, StreamOwner, Timeline},
};
use core::sync::atomic::{AtomicU32, Ordering};
use omniheap_core::{Epoch, ErrorKind, Point, Result, TimelineId, Timelines};
use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

/// Every open timeline of a device.
pub(crate) struct Registry {
    driver: Arc<Driver>,
    spare: Arc<Spare>,
    open: RwLock<HashMap<TimelineId, Arc<Timeline>>>,
    next: AtomicU32,
}

impl Registry {
    /// A registry whose main timeline is `main`, or a stream of its own.
    pub(crate) fn new(driver: &Arc<Driver>, main: Option<hipStream_t>) -> Result<Self> {
        let registry = Self {
            driver: driver.clone(),
            spare: Arc::default(),
            open: RwLock::default(),
            next: AtomicU32::new(TimelineId::MAIN.0),
        };
        let (stream, owner) = match main {
            Some(stream) => StreamOwner::of(stream),
            None => (driver.create_stream()?, StreamOwner::Backend),
        };
        registry.add(stream, owner)?;
        Ok(registry)
    }

    fn add(&self, stream: hipStream_t, owner: StreamOwner) -> Result<TimelineId> {
        let timeline = Arc::new(Timeline::new(&self.driver, &self.spare, stream, owner));
        let taken = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| next.checked_add(1));
        // Ids are not used again, so they can run out.
        let id = TimelineId(taken.map_err(|_| ErrorKind::ExceedsLimit)?);
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(id, timeline);
        Ok(id)
    }

    /// The timeline with this id.
    pub(crate) fn get(&self, id: TimelineId) -> Result<Arc<Timeline>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&id).cloned().ok_or_else(|| ErrorKind::NoSuchTimeline.into())
    }

    /// Events that are kept for later marks.
    pub(crate) fn spare_events(&self) -> usize {
        self.spare.len()
    }

    /// Blocks until everything submitted to `timeline` so far has run. On failure the device is lost.
    pub(crate) fn settle(&self, timeline: &Timeline) -> Result<()> {
        let Ok(event) = self.spare.take(&self.driver) else { return timeline.drain() };
        // SAFETY: the stream lives as long as the timeline.
        match unsafe { event.record(timeline.stream()?) } {
            Ok(()) => event.wait()?,
            Err(_) => timeline.drain()?,
        }
        self.spare.put(event);
        Ok(())
    }
}

impl Hip {
    /// Opens a timeline over a stream that the caller owns.
    ///
    /// # Errors
    ///
    /// `Foreign` when the stream belongs to another device; otherwise what the runtime says.
    ///
    /// # Safety
    ///
    /// `stream` is a live stream, and stays so until the timeline is closed or the backend is dropped.
    pub unsafe fn adopt_stream(&self, stream: hipStream_t) -> Result<TimelineId> {
        let (stream, owner) = StreamOwner::of(stream);
        // SAFETY: the caller promises a live stream.
        unsafe { self.driver().owns_stream(stream) }?;
        self.timelines().add(stream, owner)
    }

    /// Opens a timeline over a default stream.
    ///
    /// # Errors
    ///
    /// `ExceedsLimit` when ids have run out.
    pub fn open_default(&self, which: DefaultStream) -> Result<TimelineId> {
        let (stream, owner) = StreamOwner::of(which.handle());
        self.timelines().add(stream, owner)
    }

    /// The stream behind a timeline, for the caller's own submissions.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`.
    pub fn stream(&self, timeline: TimelineId) -> Result<hipStream_t> {
        self.timelines().get(timeline)?.stream()
    }
}

// AMD's runtime spreads streams over a few hardware queues (`GPU_MAX_HW_QUEUES`, four by default). Beyond that, a timeline
// may have to wait for work of another one that shares its queue: order is kept, only overlap is lost.
impl Timelines for Hip {
    fn open(&self) -> Result<TimelineId> {
        let stream = self.driver().create_stream()?;
        self.timelines().add(stream, StreamOwner::Backend)
    }

    fn close(&self, timeline: TimelineId) -> Result<()> {
        if timeline == TimelineId::MAIN {
            return Err(ErrorKind::Unsupported.into());
        }
        let mut open = self.timelines().open.write().unwrap_or_else(PoisonError::into_inner);
        let closed = open.remove(&timeline).ok_or(ErrorKind::NoSuchTimeline)?;
        drop(open);
        closed.drain()
    }

    fn mark(&self, timeline: TimelineId) -> Result<Epoch> {
        self.timelines().get(timeline)?.mark()
    }

    fn reached(&self, timeline: TimelineId) -> Result<Epoch> {
        self.timelines().get(timeline)?.reached()
    }

    fn wait(&self, point: Point) -> Result<()> {
        self.timelines().get(point.timeline)?.wait(point.epoch)
    }

    fn order(&self, timeline: TimelineId, point: Point) -> Result<()> {
        let later = self.timelines().get(timeline)?;
        let earlier = self.timelines().get(point.timeline)?;
        self.programs.touch();
        earlier.hold_back(&later, point.epoch)
    }
}
