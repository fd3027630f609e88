//! Timelines over streams.
#![expect(unsafe_code, reason = "calls the driver")]
use crate::{StreamDriver, event::Spare, lock, marks::Marks, staging::Filling};
use core::fmt;
use omniheap_seam::{Epoch, ErrorKind, Result};
use std::{
    sync::{Arc, Mutex},
    thread::{self, ThreadId},
};

/// Owner of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOwner {
    /// Created here, destroyed here.
    Backend,
    /// Handed in; lives at least as long as the timeline.
    Caller,
    /// Handed in for the calls that name the timeline; may be destroyed between them.
    Borrowed,
    /// The named thread's default stream.
    Thread(ThreadId),
}

/// One of the streams that exist without being created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultStream {
    /// The stream that waits for, and holds back, all blocking streams.
    Legacy,
    /// The calling thread's own. The timeline works on that thread only; elsewhere it is `NoSuchTimeline`.
    PerThread,
}

/// One stream, with its marks and the bounce that its small writes fill.
pub struct Timeline<D: StreamDriver> {
    driver: Arc<D>,
    stream: D::Stream,
    owner: StreamOwner,
    marks: Mutex<Marks<D>>,
    pub(crate) filling: Mutex<Filling<D>>,
}

impl<D: StreamDriver> fmt::Debug for Timeline<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timeline").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl<D: StreamDriver> Timeline<D> {
    pub(crate) fn new(
        driver: &Arc<D>,
        spare: &Arc<Spare<D>>,
        stream: D::Stream,
        owner: StreamOwner,
    ) -> Self {
        Self {
            driver: driver.clone(),
            stream,
            owner,
            marks: Mutex::new(Marks::new(spare.clone())),
            filling: Mutex::new(Filling::new()),
        }
    }

    /// Returns the stream, on the threads that may use it.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline` on a thread that may not.
    pub fn stream(&self) -> Result<D::Stream> {
        match self.owner {
            StreamOwner::Thread(thread) if thread != thread::current().id() => {
                Err(ErrorKind::NoSuchTimeline.into())
            }
            _ => Ok(self.stream),
        }
    }

    /// Returns whether other threads may submit to the stream on this thread's behalf.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        !matches!(self.owner, StreamOwner::Thread(_))
    }

    /// Returns whether the stream may be destroyed between calls.
    pub(crate) fn is_borrowed(&self) -> bool {
        self.owner == StreamOwner::Borrowed
    }

    /// Returns the stream, where it is sure to live and any thread may use it.
    pub(crate) fn lasting_stream(&self) -> Option<D::Stream> {
        matches!(self.owner, StreamOwner::Backend | StreamOwner::Caller).then_some(self.stream)
    }

    pub(crate) fn mark(&self) -> Result<Epoch> {
        let stream = self.stream()?;
        lock(&self.marks).make(&self.driver, |event| {
            // SAFETY: the stream lives as long as the timeline: `Registry::own` keeps borrowed ones away.
            unsafe { event.record(stream) }
        })
    }

    pub(crate) fn reached(&self) -> Result<Epoch> {
        let mut marks = lock(&self.marks);
        marks.poll()?;
        Ok(Epoch(marks.reached()))
    }

    pub(crate) fn wait(&self, epoch: Epoch) -> Result<()> {
        let found = lock(&self.marks).event_for(epoch)?;
        let Some((reached, event)) = found else { return Ok(()) };
        event.wait()?;
        drop(event);
        lock(&self.marks).pass_to(reached);
        Ok(())
    }

    /// Makes later work on another timeline run only after `epoch` of this one.
    pub(crate) fn hold_back(&self, later: &Self, epoch: Epoch) -> Result<()> {
        let marks = lock(&self.marks);
        let Some((_, event)) = marks.event_for(epoch)? else { return Ok(()) };
        // SAFETY: the event is held here and the stream lives as long as its timeline; the driver takes the event's
        // state now, so it may be recorded again later.
        unsafe { self.driver.order(later.stream()?, event.raw) }
    }

    /// Blocks until everything submitted so far has run.
    pub(crate) fn drain(&self) -> Result<()> {
        match self.owner {
            StreamOwner::Thread(_) | StreamOwner::Borrowed => self.driver.synchronize(),
            // SAFETY: the stream lives as long as the timeline.
            _ => unsafe { self.driver.synchronize_stream(self.stream) },
        }
    }
}

impl<D: StreamDriver> Drop for Timeline<D> {
    fn drop(&mut self) {
        // The filling's memory is given back next, and copies out of it may still run.
        if lock(&self.filling).is_used() {
            let _ = self.drain();
        }
        if self.owner == StreamOwner::Backend {
            // SAFETY: created by `Registry::open`, destroyed once here.
            let _ = unsafe { self.driver.destroy_stream(self.stream) };
        }
    }
}
