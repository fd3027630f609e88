//! Streams as timelines: those that the driver reserves, and those that callers hand in.
#![expect(unsafe_code, reason = "takes over streams")]
use crate::{
    Graph,
    backend::Cuda,
    driver::{handle, owner_of},
    sys::CUstream,
};
use core::sync::atomic::AtomicBool;
use omniheap_seam::{Result, TimelineId};
use omniheap_stream::{DefaultStream, Raw, Standing, StreamOwner};
use std::sync::Arc;

impl Cuda {
    /// Opens a timeline over a stream that the caller owns.
    ///
    /// # Errors
    ///
    /// `Foreign` when the stream belongs to another context; otherwise the driver's error.
    ///
    /// # Safety
    ///
    /// `stream` is a live stream, and stays so until the timeline is closed or the backend is dropped.
    pub unsafe fn adopt_stream(&self, stream: CUstream) -> Result<TimelineId> {
        let (stream, owner) = owner_of(stream);
        // SAFETY: the caller promises a live stream.
        unsafe { self.driver().owns_stream(stream.0) }?;
        self.device.timelines().add(stream, owner)
    }

    /// Opens a timeline over a stream that the caller may destroy at any time, but for the calls that name the timeline.
    ///
    /// Its marks are those of the whole device ([`TimelineId::ALL`]).
    ///
    /// # Errors
    ///
    /// As for [`adopt_stream`](Self::adopt_stream).
    ///
    /// # Safety
    ///
    /// `stream` is a live stream now, and whenever a call names the timeline.
    pub unsafe fn borrow_stream(&self, stream: CUstream) -> Result<TimelineId> {
        let (stream, _) = owner_of(stream);
        // SAFETY: the caller promises a live stream.
        unsafe { self.driver().owns_stream(stream.0) }?;
        self.device.timelines().add(stream, StreamOwner::Borrowed)
    }

    /// Continues a timeline of [`borrow_stream`](Self::borrow_stream) on another stream.
    ///
    /// # Errors
    ///
    /// As for [`borrow_stream`](Self::borrow_stream); `NoSuchTimeline`.
    ///
    /// # Safety
    ///
    /// As there, and all work of the earlier stream has finished.
    pub unsafe fn borrow_again(&self, timeline: TimelineId, stream: CUstream) -> Result<()> {
        let (stream, _) = owner_of(stream);
        // SAFETY: the caller promises a live stream.
        unsafe { self.driver().owns_stream(stream.0) }?;
        self.device.timelines().lend_again(timeline, stream)
    }

    /// Returns the state of a stream: its unique number, or the capture it takes part in.
    ///
    /// # Errors
    ///
    /// The driver's error.
    ///
    /// # Safety
    ///
    /// `stream` is a live stream of this device.
    #[inline]
    pub unsafe fn standing(&self, stream: CUstream) -> Result<Standing<Graph>> {
        // SAFETY: the caller's promise.
        unsafe { self.device.timelines().standing(Raw(stream)) }
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
    pub unsafe fn watch_graph(&self, graph: Graph) -> Result<Arc<AtomicBool>> {
        // SAFETY: the caller's promise.
        unsafe { self.device.timelines().watch(graph) }
    }

    /// Opens a timeline over a default stream.
    ///
    /// # Errors
    ///
    /// `ExceedsLimit` when ids have run out.
    pub fn open_default(&self, which: DefaultStream) -> Result<TimelineId> {
        let (stream, owner) = owner_of(handle(which).0);
        self.device.timelines().add(stream, owner)
    }

    /// Returns the stream behind a timeline, for the caller's own submissions.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`.
    pub fn stream(&self, timeline: TimelineId) -> Result<CUstream> {
        Ok(self.device.timelines().get(timeline)?.stream()?.0)
    }
}
