//! Timelines over streams: a mark is an event, and events are used again.
#![expect(unsafe_code, reason = "calls the driver")]
use crate::{
    Progress, StreamDriver,
    event::{Event, Spare},
    lock,
    staging::Filling,
};
use core::fmt;
use omniheap_core::{Epoch, ErrorKind, Result};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    thread::{self, ThreadId},
};

/// Marks of one timeline that are told apart while they wait. Beyond it, every second one joins its successor.
const PENDING: usize = 1024;

/// Whose a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOwner {
    /// Created here, destroyed here.
    Backend,
    /// Handed in; lives at least as long as the timeline.
    Caller,
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

/// The marks of one timeline. Everything up to `reached` has run; later marks are in `pending`, in order.
struct Marks<D: StreamDriver> {
    last: u64,
    reached: u64,
    pending: VecDeque<(u64, Arc<Event<D>>)>,
}

/// One stream, with its marks and the bounce that its small writes fill.
pub struct Timeline<D: StreamDriver> {
    driver: Arc<D>,
    spare: Arc<Spare<D>>,
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
        let (driver, spare) = (driver.clone(), spare.clone());
        Self {
            driver,
            spare,
            stream,
            owner,
            marks: Mutex::new(Marks { last: 0, reached: 0, pending: VecDeque::new() }),
            filling: Mutex::new(Filling::new()),
        }
    }

    /// The stream, on the threads that may use it.
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

    /// Whether other threads may submit to the stream on this thread's behalf.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        !matches!(self.owner, StreamOwner::Thread(_))
    }

    pub(crate) fn mark(&self) -> Result<Epoch> {
        let stream = self.stream()?;
        let mut marks = lock(&self.marks);
        if marks.pending.len() >= PENDING {
            self.poll(&mut marks)?;
            self.thin(&mut marks);
        }
        let event = self.spare.take(&self.driver)?;
        // SAFETY: the stream lives as long as the timeline.
        if let Err(error) = unsafe { event.record(stream) } {
            self.spare.put(event);
            return Err(error);
        }
        marks.last += 1;
        let epoch = marks.last;
        marks.pending.push_back((epoch, event));
        Ok(Epoch(epoch))
    }

    /// Joins every second mark with its successor while too many wait. Reaching an epoch may show later, never earlier.
    fn thin(&self, marks: &mut Marks<D>) {
        if marks.pending.len() < PENDING {
            return;
        }
        let last = marks.last;
        for (index, (epoch, event)) in core::mem::take(&mut marks.pending).into_iter().enumerate() {
            if index % 2 == 1 || epoch == last {
                marks.pending.push_back((epoch, event));
            } else {
                self.spare.put(event);
            }
        }
    }

    /// Moves `reached` up to the last finished mark. Marks of one stream finish in order, so bisection finds it.
    fn poll(&self, marks: &mut Marks<D>) -> Result<()> {
        let (mut low, mut high) = (0, marks.pending.len());
        // The last one first: most often everything has finished.
        let mut probe = high.saturating_sub(1);
        while low < high {
            match marks.pending[probe].1.progress()? {
                Progress::Finished => low = probe + 1,
                Progress::Pending => high = probe,
            }
            probe = low + (high - low) / 2;
        }
        self.settle(marks, low);
        Ok(())
    }

    /// Counts the first `count` pending marks as reached.
    fn settle(&self, marks: &mut Marks<D>, count: usize) {
        for (epoch, event) in marks.pending.drain(..count) {
            marks.reached = epoch;
            self.spare.put(event);
        }
    }

    pub(crate) fn reached(&self) -> Result<Epoch> {
        let mut marks = lock(&self.marks);
        self.poll(&mut marks)?;
        Ok(Epoch(marks.reached))
    }

    /// The event that stands for `epoch`, or `None` when it was reached.
    fn event_for(marks: &Marks<D>, epoch: Epoch) -> Result<Option<(u64, Arc<Event<D>>)>> {
        if epoch.0 <= marks.reached {
            return Ok(None);
        }
        // An epoch this timeline never gave out belongs to another one.
        let at = marks.pending.partition_point(|(pending, _)| *pending < epoch.0);
        let found = marks.pending.get(at).ok_or(ErrorKind::NoSuchTimeline)?;
        Ok(Some(found.clone()))
    }

    pub(crate) fn wait(&self, epoch: Epoch) -> Result<()> {
        let found = Self::event_for(&lock(&self.marks), epoch)?;
        let Some((reached, event)) = found else { return Ok(()) };
        event.wait()?;
        drop(event);
        let mut marks = lock(&self.marks);
        let count = marks.pending.partition_point(|(pending, _)| *pending <= reached);
        self.settle(&mut marks, count);
        Ok(())
    }

    /// Makes later work on another timeline run only after `epoch` of this one.
    pub(crate) fn hold_back(&self, later: &Self, epoch: Epoch) -> Result<()> {
        let marks = lock(&self.marks);
        let Some((_, event)) = Self::event_for(&marks, epoch)? else { return Ok(()) };
        // SAFETY: the event is held here and the stream lives as long as its timeline; the driver takes the event's
        // state now, so it may be recorded again later.
        unsafe { self.driver.order(later.stream()?, event.raw) }
    }

    /// Blocks until everything submitted so far has run.
    pub(crate) fn drain(&self) -> Result<()> {
        match self.owner {
            StreamOwner::Thread(_) => self.driver.synchronize(),
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
