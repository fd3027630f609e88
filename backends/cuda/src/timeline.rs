//! Streams as timelines: those that the driver reserves, and those that callers hand in.
#![expect(unsafe_code, reason = "takes over streams")]
use crate::{backend::Cuda, driver::Raw, sys::CUstream};
use cudarc::driver::sys::CUstream_st;
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
    /// The driver's reserved handle.
    pub(crate) fn handle(self) -> Raw<CUstream_st> {
        Raw(core::ptr::without_provenance_mut(match self {
            Self::Legacy => 1,
            Self::PerThread => 2,
        }))
    }
}

/// Tells a caller's stream from the reserved handles.
pub(crate) fn owner_of(stream: CUstream) -> (Raw<CUstream_st>, StreamOwner) {
    match stream.addr() {
        0 => (DefaultStream::Legacy.handle(), StreamOwner::Caller),
        2 => (Raw(stream), StreamOwner::Thread(thread::current().id())),
        _ => (Raw(stream), StreamOwner::Caller),
    }
}

impl Cuda {
    /// Opens a timeline over a stream that the caller owns.
    ///
    /// # Errors
    ///
    /// `Foreign` when the stream belongs to another context; otherwise what the driver says.
    ///
    /// # Safety
    ///
    /// `stream` is a live stream, and stays so until the timeline is closed or the backend is dropped.
    pub unsafe fn adopt_stream(&self, stream: CUstream) -> Result<TimelineId> {
        let (stream, owner) = owner_of(stream);
        // SAFETY: the caller promises a live stream.
        unsafe { self.driver().owns_stream(stream.0) }?;
        self.timelines().add(stream, owner)
    }

    /// Opens a timeline over a default stream.
    ///
    /// # Errors
    ///
    /// `ExceedsLimit` when ids have run out.
    pub fn open_default(&self, which: DefaultStream) -> Result<TimelineId> {
        let (stream, owner) = owner_of(which.handle().0);
        self.timelines().add(stream, owner)
    }

    /// The stream behind a timeline, for the caller's own submissions.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`.
    pub fn stream(&self, timeline: TimelineId) -> Result<CUstream> {
        Ok(self.timelines().get(timeline)?.stream()?.0)
    }
}

impl Timelines for Cuda {
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
