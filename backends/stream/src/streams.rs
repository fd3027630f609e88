//! Streams that callers name as the vendor's interface does: handed in, lent, or there by default.
#![expect(unsafe_code, reason = "takes over streams")]
use crate::{DefaultStream, Device, Driver, Standing, StreamOwner};
use core::sync::atomic::AtomicBool;
use omniheap_seam::{Result, TimelineId};
use std::sync::Arc;

/// Streams as the vendor's interface names them.
pub trait NativeStreams: Driver {
    /// A stream in the vendor's interface.
    type Native: Copy + Into<Self::Stream>;

    /// Returns the stream that a caller means, with its owner: reserved names stand for streams that the driver has.
    fn of_caller(stream: Self::Native) -> (Self::Stream, StreamOwner);

    /// Returns the reserved name of a default stream.
    fn default_stream(which: DefaultStream) -> Self::Native;

    /// Returns the name of a stream.
    fn native(stream: Self::Stream) -> Self::Native;

    /// Refuses a stream of another device or context.
    ///
    /// # Errors
    ///
    /// `Foreign`, or the driver's error.
    ///
    /// # Safety
    ///
    /// `stream` is a live stream.
    unsafe fn owns_stream(&self, stream: Self::Stream) -> Result<()>;
}

impl<D: NativeStreams> Device<D> {
    /// Opens a timeline over a stream that the caller owns.
    ///
    /// # Errors
    ///
    /// `Foreign` when the stream belongs to another device or context; otherwise the driver's error.
    ///
    /// # Safety
    ///
    /// `stream` is a live stream, and stays so until the timeline is closed or the backend is dropped.
    pub unsafe fn adopt_stream(&self, stream: D::Native) -> Result<TimelineId> {
        let (stream, owner) = D::of_caller(stream);
        // SAFETY: the caller promises a live stream.
        unsafe { self.driver().owns_stream(stream) }?;
        self.timelines().add(stream, owner)
    }

    /// Opens a timeline over a stream that the caller may destroy at any time, but for the calls that name the timeline.
    ///
    /// Its marks are those of the whole device ([`TimelineId::ALL`]). Where a driver cannot follow all streams at once, as HIP,
    /// those are reached only by waiting for them while there is such a stream.
    ///
    /// # Errors
    ///
    /// As for [`adopt_stream`](Self::adopt_stream).
    ///
    /// # Safety
    ///
    /// `stream` is a live stream now, and whenever a call names the timeline.
    pub unsafe fn borrow_stream(&self, stream: D::Native) -> Result<TimelineId> {
        let (stream, _) = D::of_caller(stream);
        // SAFETY: the caller promises a live stream.
        unsafe { self.driver().owns_stream(stream) }?;
        self.timelines().add(stream, StreamOwner::Borrowed)
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
    pub unsafe fn borrow_again(&self, timeline: TimelineId, stream: D::Native) -> Result<()> {
        let (stream, _) = D::of_caller(stream);
        // SAFETY: the caller promises a live stream.
        unsafe { self.driver().owns_stream(stream) }?;
        self.timelines().lend_again(timeline, stream)
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
    pub unsafe fn standing(&self, stream: D::Native) -> Result<Standing<D::Graph>> {
        // SAFETY: the caller's promise.
        unsafe { self.timelines().standing(stream.into()) }
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
    pub unsafe fn watch_graph(&self, graph: D::Graph) -> Result<Arc<AtomicBool>> {
        // SAFETY: the caller's promise.
        unsafe { self.timelines().watch(graph) }
    }

    /// Opens a timeline over a default stream.
    ///
    /// # Errors
    ///
    /// `ExceedsLimit` when ids have run out.
    pub fn open_default(&self, which: DefaultStream) -> Result<TimelineId> {
        let (stream, owner) = D::of_caller(D::default_stream(which));
        self.timelines().add(stream, owner)
    }

    /// Returns the stream behind a timeline, for the caller's own submissions.
    ///
    /// # Errors
    ///
    /// `NoSuchTimeline`.
    pub fn stream(&self, timeline: TimelineId) -> Result<D::Native> {
        Ok(D::native(self.timelines().get(timeline)?.stream()?))
    }
}
