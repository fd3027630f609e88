//! Every open timeline of a device.
#![expect(unsafe_code, reason = "calls the driver about streams")]
use crate::{Standing, StreamDriver, StreamOwner, Timeline, event::Spare, whole::Whole};
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use omniheap_seam::{Epoch, ErrorKind, Point, Result, TimelineId};
use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

/// Every open timeline of a device.
pub struct Registry<D: StreamDriver> {
    driver: Arc<D>,
    spare: Arc<Spare<D>>,
    open: RwLock<HashMap<TimelineId, Arc<Timeline<D>>>>,
    whole: Whole<D>,
    next: AtomicU32,
}

impl<D: StreamDriver> fmt::Debug for Registry<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("spare_events", &self.spare_events())
            .finish_non_exhaustive()
    }
}

impl<D: StreamDriver> Registry<D> {
    /// Creates a registry whose main timeline is `main`, or a stream of its own.
    ///
    /// # Errors
    ///
    /// The driver's error.
    pub fn new(driver: &Arc<D>, main: Option<(D::Stream, StreamOwner)>) -> Result<Self> {
        let spare = Arc::new(Spare::new());
        let registry = Self {
            driver: driver.clone(),
            whole: Whole::new(driver, &spare),
            spare,
            open: RwLock::default(),
            next: AtomicU32::new(TimelineId::MAIN.0),
        };
        let (stream, owner) = match main {
            Some(main) => main,
            None => (driver.create_stream()?, StreamOwner::Backend),
        };
        registry.add(stream, owner)?;
        Ok(registry)
    }

    /// Opens a timeline over a stream, which lives at least as long.
    ///
    /// # Errors
    ///
    /// `ExceedsLimit` when ids have run out.
    pub fn add(&self, stream: D::Stream, owner: StreamOwner) -> Result<TimelineId> {
        let timeline = Arc::new(Timeline::new(&self.driver, &self.spare, stream, owner));
        let taken = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| next.checked_add(1));
        // Ids are not used again, so they can run out.
        let id = TimelineId(taken.map_err(|_| ErrorKind::ExceedsLimit)?);
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(id, timeline);
        Ok(id)
    }

    /// Continues a timeline over a borrowed stream on another one. All work of the earlier stream has finished.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`.
    pub fn lend_again(&self, timeline: TimelineId, stream: D::Stream) -> Result<()> {
        let next = Timeline::new(&self.driver, &self.spare, stream, StreamOwner::Borrowed);
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let known = open.get_mut(&timeline).ok_or(ErrorKind::NoSuchTimeline)?;
        *known = Arc::new(next);
        Ok(())
    }

    /// Calls nothing any more that would spoil a capture, until [`end_capture`](Self::end_capture) was called as often:
    /// [`TimelineId::ALL`] stands still, and the device cannot be waited for. Call it before a capture begins.
    pub fn begin_capture(&self) {
        self.whole.hold();
    }

    /// Ends what [`begin_capture`](Self::begin_capture) began.
    pub fn end_capture(&self) {
        self.whole.release(&|| self.all());
    }

    /// Blocks until the device has nothing to do.
    ///
    /// # Errors
    ///
    /// `DeviceLost`; `Busy` between [`begin_capture`](Self::begin_capture) and [`end_capture`](Self::end_capture).
    pub fn wait_idle(&self) -> Result<()> {
        self.whole.wait_idle()
    }

    /// Returns the state of a stream of another owner.
    ///
    /// # Errors
    ///
    /// The driver's error.
    ///
    /// # Safety
    ///
    /// `stream` is a live stream of this device.
    #[inline]
    pub unsafe fn standing(&self, stream: D::Stream) -> Result<Standing<D::Graph>> {
        // SAFETY: the caller's promise.
        if let Some(capture) = unsafe { self.driver.capture(stream) }? {
            return Ok(Standing::Captured(capture));
        }
        // SAFETY: as above.
        Ok(Standing::Running(unsafe { self.driver.stream_number(stream) }?))
    }

    /// Returns a flag that is set once neither a graph nor anything made of it exists any more.
    ///
    /// # Errors
    ///
    /// The driver's error; `Unsupported` where it does not tell.
    ///
    /// # Safety
    ///
    /// `graph` is live, or being captured.
    pub unsafe fn watch(&self, graph: D::Graph) -> Result<Arc<AtomicBool>> {
        let gone = Arc::new(AtomicBool::new(false));
        // SAFETY: the caller's promise.
        unsafe { self.driver.watch(graph, gone.clone()) }?;
        Ok(gone)
    }

    /// Returns all timelines; `None` where the stream of one may have ended.
    fn all(&self) -> Option<Vec<Arc<Timeline<D>>>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.values().map(|it| it.lasting_stream().map(|_| it.clone())).collect()
    }

    /// Marks all timelines as [`mark`](Self::mark) does, and waits for no other thread. `None` where that cannot be: another thread waits
    /// for the device, or the driver cannot follow all streams at once.
    #[must_use]
    pub fn mark_all_at_once(&self) -> Option<Epoch> {
        self.whole.mark_at_once()
    }

    /// Returns the latest epoch that all timelines have reached, and waits for no other thread; `None` where that cannot be.
    #[must_use]
    pub fn all_reached_at_once(&self) -> Option<Epoch> {
        self.whole.reached_at_once()
    }

    /// Returns the timeline with this id.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`.
    pub fn get(&self, id: TimelineId) -> Result<Arc<Timeline<D>>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&id).cloned().ok_or_else(|| ErrorKind::NoSuchTimeline.into())
    }

    /// Events that are kept for later marks.
    #[must_use]
    pub fn spare_events(&self) -> usize {
        self.spare.len()
    }

    /// Blocks until everything submitted to `timeline` so far has run.
    ///
    /// # Errors
    ///
    /// The device is lost.
    pub fn wait_for_transfer(&self, timeline: &Timeline<D>) -> Result<()> {
        let Ok(event) = self.spare.take(&self.driver) else { return timeline.drain() };
        // SAFETY: the stream lives as long as the timeline.
        match unsafe { event.record(timeline.stream()?) } {
            Ok(()) => event.wait()?,
            Err(_) => timeline.drain()?,
        }
        self.spare.put(event);
        Ok(())
    }

    /// Opens a timeline over a stream of its own.
    ///
    /// # Errors
    ///
    /// The driver's error; `ExceedsLimit` when ids have run out.
    pub fn open(&self) -> Result<TimelineId> {
        let stream = self.driver.create_stream()?;
        self.add(stream, StreamOwner::Backend)
    }

    /// Closes a timeline after its work has finished.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`; `Unsupported` for the main one; otherwise what the driver says of the wait for its work, such as
    /// `Busy` while a graph is captured elsewhere. The timeline stays open then: close it again later. Only `DeviceLost`
    /// closes it, because a lost device has no work.
    pub fn close(&self, timeline: TimelineId) -> Result<()> {
        if timeline == TimelineId::MAIN {
            return Err(ErrorKind::Unsupported.into());
        }
        // Its work ends before it goes, so that whoever marks all timelines meanwhile waits for it too.
        let closing = self.get(timeline)?;
        let drained = match closing.lasting_stream() {
            Some(_) => closing.drain(),
            // The whole device is waited for, which would spoil a capture.
            None => self.whole.wait_idle(),
        };
        if let Err(error) = &drained
            && error.kind() != ErrorKind::DeviceLost
        {
            return drained;
        }
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.remove(&timeline).ok_or(ErrorKind::NoSuchTimeline)?;
        drained
    }

    /// Returns an epoch that is reached once everything submitted so far has finished.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`, `DeviceLost`.
    pub fn mark(&self, timeline: TimelineId) -> Result<Epoch> {
        match self.own(timeline)? {
            Some(own) => own.mark(),
            None => self.whole.mark(&|| self.all()),
        }
    }

    /// Returns the timeline, where it has marks of its own. For all timelines at once, and for a stream that may be gone, the whole
    /// device stands: its epochs are theirs.
    fn own(&self, timeline: TimelineId) -> Result<Option<Arc<Timeline<D>>>> {
        if timeline == TimelineId::ALL {
            return Ok(None);
        }
        let found = self.get(timeline)?;
        Ok((!found.is_borrowed()).then_some(found))
    }

    /// Returns the latest epoch that was reached.
    ///
    /// # Errors
    ///
    /// As for [`mark`](Self::mark).
    pub fn reached(&self, timeline: TimelineId) -> Result<Epoch> {
        match self.own(timeline)? {
            Some(own) => own.reached(),
            None => self.whole.reached(&|| self.all()),
        }
    }

    /// Blocks the calling thread until a point is reached.
    ///
    /// # Errors
    ///
    /// As for [`mark`](Self::mark).
    pub fn wait(&self, point: Point) -> Result<()> {
        match self.own(point.timeline)? {
            Some(own) => own.wait(point.epoch),
            None => self.whole.wait(point.epoch, &|| self.all()),
        }
    }

    /// Makes later work on `timeline` run only after `point`.
    ///
    /// # Errors
    ///
    /// As for [`mark`](Self::mark).
    pub fn order(&self, timeline: TimelineId, point: Point) -> Result<()> {
        let later = self.get(timeline)?;
        match self.own(point.timeline)? {
            Some(own) => own.hold_back(&later, point.epoch),
            None => self.whole.hold_back(&later, point.epoch, &|| self.all()),
        }
    }
}
