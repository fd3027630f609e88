//! The calls of a driver that this crate needs: streams, events, and pinned memory with the copies through it. The modules
//! below have the rest.
#![expect(unsafe_code, reason = "declares what a driver owes")]
mod code;
mod copies;
mod memory;

pub use code::CodeDriver;
pub use copies::{CopyDriver, RowCopy};
pub use memory::{Caching, IpcDriver, MemoryDriver, MemoryInfo, of_host};

use crate::BlockKind;
use core::{ptr::NonNull, sync::atomic::AtomicBool};
use omniheap_seam::Result;
use std::sync::Arc;

/// Progress of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Everything before it has run.
    Finished,
    /// Work before it still runs or waits.
    Pending,
}

/// A driver's handle or address that is only passed on, and so usable from any thread.
#[derive(Debug)]
pub struct Raw<T>(pub *mut T);

impl<T> Clone for Raw<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Raw<T> {}

impl<T> From<*mut T> for Raw<T> {
    fn from(raw: *mut T) -> Self {
        Self(raw)
    }
}

// SAFETY: it gives no access to what it points to, and drivers may be called from any thread.
unsafe impl<T> Send for Raw<T> {}
// SAFETY: as for `Send`.
unsafe impl<T> Sync for Raw<T> {}

/// State of a stream of another owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing<G> {
    /// Its work runs. The number is one that no other stream of the process ever had; `None` where the driver has none, and
    /// destroys a stream only after its work has finished.
    Running(Option<u64>),
    /// Its work is recorded into a graph.
    Captured(Capture<G>),
}

/// A stream whose work is recorded into a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture<G> {
    /// Identifies a capture within the process.
    pub id: u64,
    /// The graph so far; `None` where the capture has failed and none will come of it.
    pub graph: Option<G>,
}

/// A driver with every call that backends over streams share.
pub trait Driver: CopyDriver + MemoryDriver + IpcDriver + CodeDriver {
    /// The kind of memory behind a block, with the data needed to free it.
    type Kind: BlockKind;
}

/// One device's driver: streams, events, pinned memory and copies. Errors are what the driver says.
///
/// # Safety
///
/// - An event is finished once everything has run that was submitted to its stream before it was recorded, and not
///   earlier.
/// - Pinned memory has the bytes that were asked for, at a cache line's start, for host and device.
#[expect(clippy::missing_errors_doc, reason = "said once above, for all")]
pub unsafe trait StreamDriver: Send + Sync + 'static {
    /// A stream's handle.
    type Stream: Copy + Send + Sync;
    /// An event's handle.
    type Event: Copy + Send + Sync;
    /// A graph's handle.
    type Graph: Copy + Send + Sync;
    /// Guard with which calls on this thread go to the device without another look.
    type Current<'a>
    where
        Self: 'a;

    /// Makes the device the thread's, or keeps it so.
    fn enter(&self) -> Result<Self::Current<'_>>;

    /// Creates a stream that does not wait for others.
    fn create_stream(&self) -> Result<Self::Stream>;

    /// Destroys a stream; what was submitted to it still runs.
    ///
    /// # Safety
    ///
    /// `stream` came from [`create_stream`](Self::create_stream) and is destroyed once.
    unsafe fn destroy_stream(&self, stream: Self::Stream) -> Result<()>;

    /// Blocks until everything on a stream has run.
    ///
    /// # Safety
    ///
    /// `stream` is live.
    unsafe fn synchronize_stream(&self, stream: Self::Stream) -> Result<()>;

    /// Blocks until everything on the device has run.
    fn synchronize(&self) -> Result<()>;

    /// Creates an event.
    fn create_event(&self) -> Result<Self::Event>;

    /// Destroys an event; a pending one still finishes.
    ///
    /// # Safety
    ///
    /// `event` came from [`create_event`](Self::create_event) and is destroyed once.
    unsafe fn destroy_event(&self, event: Self::Event) -> Result<()>;

    /// Records an event behind everything submitted to a stream so far.
    ///
    /// # Safety
    ///
    /// Both are live and of this device.
    unsafe fn record(&self, event: Self::Event, stream: Self::Stream) -> Result<()>;

    /// Records an event behind everything submitted to the device so far, to any stream, also to those that were destroyed
    /// since. `Unsupported` where the driver cannot; `Busy` while a stream is captured that this would spoil.
    ///
    /// # Safety
    ///
    /// `event` is live.
    unsafe fn record_all(&self, event: Self::Event) -> Result<()>;

    /// Returns the capture that a stream takes part in. Asking spoils none.
    ///
    /// # Safety
    ///
    /// `stream` is live.
    unsafe fn capture(&self, stream: Self::Stream) -> Result<Option<Capture<Self::Graph>>>;

    /// Returns a number that no other stream of the process ever had, where the driver has such. Spoils a capture that the stream
    /// takes part in.
    ///
    /// # Safety
    ///
    /// `stream` is live.
    unsafe fn stream_number(&self, stream: Self::Stream) -> Result<Option<u64>>;

    /// Sets `gone` once neither the graph nor anything made of it exists any more.
    ///
    /// # Safety
    ///
    /// `graph` is live, or being captured.
    unsafe fn watch(&self, graph: Self::Graph, gone: Arc<AtomicBool>) -> Result<()>;

    /// Queries the progress of an event.
    ///
    /// # Safety
    ///
    /// `event` is live.
    unsafe fn progress(&self, event: Self::Event) -> Result<Progress>;

    /// Blocks the calling thread until an event has finished.
    ///
    /// # Safety
    ///
    /// `event` is live.
    unsafe fn wait_event(&self, event: Self::Event) -> Result<()>;

    /// Makes later work on a stream wait for an event, as it is recorded now.
    ///
    /// # Safety
    ///
    /// Both are live and of this device.
    unsafe fn order(&self, stream: Self::Stream, event: Self::Event) -> Result<()>;

    /// Allocates cached pinned memory.
    fn allocate_bounce(&self, size: usize) -> Result<NonNull<u8>>;

    /// Returns the device's address of pinned memory.
    fn host_address(&self, host: NonNull<u8>) -> Result<u64>;

    /// Frees pinned memory.
    ///
    /// # Safety
    ///
    /// `host` is pinned memory that this driver allocated, is freed once, and nothing uses it.
    unsafe fn free_host(&self, host: *mut u8) -> Result<()>;

    /// Pins memory that another owner mapped.
    ///
    /// # Safety
    ///
    /// The bytes stay mapped until they are unpinned.
    unsafe fn pin(&self, start: NonNull<u8>, size: usize) -> Result<()>;

    /// Ends what [`pin`](Self::pin) began.
    ///
    /// # Safety
    ///
    /// `start` was pinned and is unpinned once; no copy uses the bytes.
    unsafe fn unpin(&self, start: NonNull<u8>) -> Result<()>;

    /// Copies from pinned memory to the device, in stream order.
    ///
    /// # Safety
    ///
    /// `to` begins `size` live bytes that the device reaches, `from` as many pinned ones that stay unchanged until the
    /// copy has run; the stream is live.
    unsafe fn write(
        &self,
        to: u64,
        from: *const u8,
        size: usize,
        stream: Self::Stream,
    ) -> Result<()>;

    /// Copies from the device to pinned memory, in stream order.
    ///
    /// # Safety
    ///
    /// `from` begins `size` live bytes that the device reaches, `to` as many pinned ones that nothing touches until the
    /// copy has run; the stream is live.
    unsafe fn read(&self, to: *mut u8, from: u64, size: usize, stream: Self::Stream) -> Result<()>;
}
