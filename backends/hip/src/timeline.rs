//! Streams as timelines: those that the runtime reserves, and those that callers hand in.
//!
//! AMD's runtime spreads streams over a few hardware queues (`GPU_MAX_HW_QUEUES`, four by default). Beyond that, a timeline
//! may have to wait for work of another one that shares its queue: order is kept, only overlap is lost.
#![expect(unsafe_code, reason = "takes over streams")]
use crate::{
    Graph,
    backend::Hip,
    driver::{handle, owner_of},
    sys::hipStream_t,
};
use core::sync::atomic::AtomicBool;
use omniheap_seam::{Result, TimelineId};
use omniheap_stream::{DefaultStream, Standing, StreamOwner};
use std::sync::Arc;

impl Hip {
    /// Opens a timeline over a stream that the caller owns.
    ///
    /// # Errors
    ///
    /// `Foreign` when the stream belongs to another device; otherwise the runtime's error.
    ///
    /// # Safety
    ///
    /// `stream` is a live stream, and stays so until the timeline is closed or the backend is dropped.
    pub unsafe fn adopt_stream(&self, stream: hipStream_t) -> Result<TimelineId> {
        let (stream, owner) = owner_of(stream);
        // SAFETY: the caller promises a live stream.
        unsafe { self.driver().owns_stream(stream) }?;
        self.device.timelines().add(stream, owner)
    }

    /// Opens a timeline over a stream that the caller may destroy at any time, but for the calls that name the timeline.
    ///
    /// HIP cannot follow such a stream: while there is one, marks of [`TimelineId::ALL`] are reached only by waiting for them.
    ///
    /// # Errors
    ///
    /// As for [`adopt_stream`](Self::adopt_stream).
    ///
    /// # Safety
    ///
    /// `stream` is a live stream now, and whenever a call names the timeline.
    pub unsafe fn borrow_stream(&self, stream: hipStream_t) -> Result<TimelineId> {
        // SAFETY: the caller promises a live stream.
        unsafe { self.driver().owns_stream(stream) }?;
        self.device.timelines().add(stream, StreamOwner::Borrowed)
    }

    /// Returns the state of a stream: its unique number, or the capture it takes part in.
    ///
    /// # Errors
    ///
    /// The runtime's error.
    ///
    /// # Safety
    ///
    /// `stream` is a live stream of this device.
    pub unsafe fn standing(&self, stream: hipStream_t) -> Result<Standing<Graph>> {
        // SAFETY: the caller's promise.
        unsafe { self.device.timelines().standing(stream) }
    }

    /// Returns a flag that is set once neither a graph nor anything made of it exists any more.
    ///
    /// # Errors
    ///
    /// The runtime's error; `Unsupported` where it does not tell.
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
        let (stream, owner) = owner_of(handle(which));
        self.device.timelines().add(stream, owner)
    }

    /// Returns the stream behind a timeline, for the caller's own submissions.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`.
    pub fn stream(&self, timeline: TimelineId) -> Result<hipStream_t> {
        self.device.timelines().get(timeline)?.stream()
    }
}
