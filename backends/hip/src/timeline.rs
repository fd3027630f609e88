//! Streams as timelines: those that the runtime reserves, and those that callers hand in.
#![expect(unsafe_code, reason = "takes over streams")]
use crate::{
    backend::Hip,
    sys::{hipStream_t, hipStreamPerThread},
};
use omniheap_core::{Epoch, Point, Result, TimelineId, Timelines};
use omniheap_stream::StreamOwner;
use std::thread;

/// One of the streams that exist without being created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultStream {
    /// The stream that waits for, and holds back, all blocking streams.
    Legacy,
    /// The calling thread's own. The timeline works on that thread only; elsewhere it is `NoSuchTimeline`.
    PerThread,
}

impl DefaultStream {
    /// The runtime's reserved handle.
    pub(crate) const fn handle(self) -> hipStream_t {
        match self {
            Self::Legacy => hipStream_t::NULL,
            Self::PerThread => hipStreamPerThread,
        }
    }
}

/// Tells a caller's stream from the reserved handles.
pub(crate) fn owner_of(stream: hipStream_t) -> (hipStream_t, StreamOwner) {
    if stream == hipStreamPerThread {
        return (stream, StreamOwner::Thread(thread::current().id()));
    }
    (stream, StreamOwner::Caller)
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
        let (stream, owner) = owner_of(stream);
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
        let (stream, owner) = owner_of(which.handle());
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
        self.timelines().open()
    }

    fn close(&self, timeline: TimelineId) -> Result<()> {
        self.timelines().close(timeline)
    }

    fn mark(&self, timeline: TimelineId) -> Result<Epoch> {
        self.timelines().mark(timeline)
    }

    fn reached(&self, timeline: TimelineId) -> Result<Epoch> {
        self.timelines().reached(timeline)
    }

    fn wait(&self, point: Point) -> Result<()> {
        self.timelines().wait(point)
    }

    fn order(&self, timeline: TimelineId, point: Point) -> Result<()> {
        self.programs.touch();
        self.timelines().order(timeline, point)
    }
}
