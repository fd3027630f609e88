//! Backends whose streams PyTorch and CuPy hand over.
#![expect(unsafe_code, reason = "borrows streams of the caller")]
use core::ffi::c_void;
use core::sync::atomic::AtomicBool;
use omniheap::arbiter::Arbitrated;
use omniheap::cuda::{self, Cuda, Standing};
use omniheap::hip::{self, Hip, hipStream_t};
use omniheap::host::Host;
use omniheap::limits::{SystemLimits, Vendor};
use omniheap::{
    Backend, ErrorKind, TimelineId,
    seam::{Result, Timelines as _},
};
use std::sync::Arc;

/// Life of a stream that a framework hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// As long as the process, but for those that a program made itself: PyTorch's.
    Process,
    /// Unknown: CuPy's.
    Unknown,
}

/// A backend that follows the caller's streams.
pub(crate) trait Streams: Backend + Sized + 'static {
    /// Name of its memory in out-of-memory messages.
    const NAME: &'static str;

    /// A graph of its driver.
    type Graph: Copy;

    /// Opens a device by its number.
    fn open_device(ordinal: u32) -> Result<Self>;

    /// Standing of a stream now.
    ///
    /// # Safety
    ///
    /// `stream` is a live stream of this device.
    unsafe fn standing(&self, stream: *mut c_void) -> Result<Standing<Self::Graph>>;

    /// A timeline over a stream that lives in the calls that name it.
    ///
    /// # Safety
    ///
    /// As for [`standing`](Self::standing); where `life` says more, that holds.
    unsafe fn borrow(&self, stream: *mut c_void, life: Life) -> Result<TimelineId>;

    /// Lets a timeline go on with another stream.
    ///
    /// # Safety
    ///
    /// As for [`standing`](Self::standing), and all work of the earlier stream has finished.
    unsafe fn borrow_again(&self, timeline: TimelineId, stream: *mut c_void) -> Result<()>;

    /// A flag that is set once nothing is left of a graph.
    ///
    /// # Safety
    ///
    /// `graph` is being captured.
    unsafe fn watch(&self, graph: Self::Graph) -> Result<Arc<AtomicBool>>;

    /// Calls nothing from now on that would spoil a capture.
    fn begin_capture(&self);

    /// Ends what [`begin_capture`](Self::begin_capture) began.
    fn end_capture(&self);

    /// Bytes of a block; for a reservation, addresses.
    fn extent(block: &Self::Block) -> u64;
}

impl Streams for Cuda {
    const NAME: &'static str = "CUDA";

    type Graph = cuda::Graph;

    fn open_device(ordinal: u32) -> Result<Self> {
        Self::open(ordinal)
    }

    #[inline]
    unsafe fn standing(&self, stream: *mut c_void) -> Result<Standing<Self::Graph>> {
        // SAFETY: the caller's promise.
        unsafe { (**self).standing(stream.cast()) }
    }

    /// The driver follows all streams at once, so nobody's life matters.
    unsafe fn borrow(&self, stream: *mut c_void, _: Life) -> Result<TimelineId> {
        // SAFETY: the caller's promise.
        unsafe { self.borrow_stream(stream.cast()) }
    }

    unsafe fn borrow_again(&self, timeline: TimelineId, stream: *mut c_void) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { (**self).borrow_again(timeline, stream.cast()) }
    }

    unsafe fn watch(&self, graph: Self::Graph) -> Result<Arc<AtomicBool>> {
        // SAFETY: the caller's promise.
        unsafe { self.watch_graph(graph) }
    }

    fn begin_capture(&self) {
        self.timelines().begin_capture();
    }

    fn end_capture(&self) {
        self.timelines().end_capture();
    }

    fn extent(block: &Self::Block) -> u64 {
        block.size()
    }
}

impl Streams for Hip {
    const NAME: &'static str = "HIP";

    type Graph = hip::Graph;

    fn open_device(ordinal: u32) -> Result<Self> {
        Self::open(ordinal)
    }

    unsafe fn standing(&self, stream: *mut c_void) -> Result<Standing<Self::Graph>> {
        // SAFETY: the caller's promise.
        unsafe { (**self).standing(hipStream_t(stream)) }
    }

    /// HIP can follow only streams that are sure to live.
    unsafe fn borrow(&self, stream: *mut c_void, life: Life) -> Result<TimelineId> {
        match life {
            // SAFETY: the caller's promise.
            Life::Process => unsafe { self.adopt_stream(hipStream_t(stream)) },
            // SAFETY: as above.
            Life::Unknown => unsafe { self.borrow_stream(hipStream_t(stream)) },
        }
    }

    /// Without numbers no stream is ever seen to be another one.
    unsafe fn borrow_again(&self, _: TimelineId, _: *mut c_void) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    unsafe fn watch(&self, graph: Self::Graph) -> Result<Arc<AtomicBool>> {
        // SAFETY: the caller's promise.
        unsafe { self.watch_graph(graph) }
    }

    fn begin_capture(&self) {
        self.timelines().begin_capture();
    }

    fn end_capture(&self) {
        self.timelines().end_capture();
    }

    fn extent(block: &Self::Block) -> u64 {
        block.size()
    }
}

/// A device under the arbiter that the environment names, if it names one.
impl<B: Streams> Streams for Arbitrated<B> {
    const NAME: &'static str = B::NAME;

    type Graph = B::Graph;

    fn open_device(ordinal: u32) -> Result<Self> {
        omniheap::arbitrated(B::open_device(ordinal)?, ordinal)
    }

    #[inline]
    unsafe fn standing(&self, stream: *mut c_void) -> Result<Standing<Self::Graph>> {
        // SAFETY: the caller's promise.
        unsafe { self.inner().standing(stream) }
    }

    unsafe fn borrow(&self, stream: *mut c_void, life: Life) -> Result<TimelineId> {
        // SAFETY: the caller's promise.
        unsafe { self.inner().borrow(stream, life) }
    }

    unsafe fn borrow_again(&self, timeline: TimelineId, stream: *mut c_void) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner().borrow_again(timeline, stream) }
    }

    unsafe fn watch(&self, graph: Self::Graph) -> Result<Arc<AtomicBool>> {
        // SAFETY: the caller's promise.
        unsafe { self.inner().watch(graph) }
    }

    fn begin_capture(&self) {
        self.inner().begin_capture();
    }

    fn end_capture(&self) {
        self.inner().end_capture();
    }

    fn extent(block: &Self::Block) -> u64 {
        B::extent(block.inner())
    }
}

/// Host devices, so that programs for several can be tried anywhere.
const HOST_DEVICES: u32 = 2;

/// Host memory has no streams of others: any number stands for one, and lives for ever.
impl Streams for Host {
    const NAME: &'static str = "host";

    type Graph = ();

    fn open_device(ordinal: u32) -> Result<Self> {
        match ordinal {
            ..HOST_DEVICES => Ok(Self::new().limited_by(SystemLimits::new(Vendor::Any, ordinal))),
            _ => Err(ErrorKind::InvalidConfig.into()),
        }
    }

    unsafe fn standing(&self, _: *mut c_void) -> Result<Standing<()>> {
        Ok(Standing::Running(None))
    }

    unsafe fn borrow(&self, _: *mut c_void, _: Life) -> Result<TimelineId> {
        self.open()
    }

    unsafe fn borrow_again(&self, _: TimelineId, _: *mut c_void) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    unsafe fn watch(&self, (): ()) -> Result<Arc<AtomicBool>> {
        Err(ErrorKind::Unsupported.into())
    }

    fn begin_capture(&self) {}

    fn end_capture(&self) {}

    fn extent(block: &Self::Block) -> u64 {
        block.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;

    /// Checks the answers of a backend over host memory about the caller's streams.
    fn follows_no_stream<B: Streams>() {
        let device = B::open_device(0).expect("host memory");
        // SAFETY: to host memory a stream is a number.
        let borrow = || unsafe { device.borrow(ptr::null_mut(), Life::Process) };
        let [first, second] = [borrow(), borrow()].map(|timeline| timeline.expect("a timeline"));
        assert_ne!(first, second);
        // SAFETY: as above.
        let again = unsafe { device.borrow_again(first, ptr::null_mut()) };
        assert_eq!(again.map_err(|error| error.kind()), Err(ErrorKind::Unsupported));
        // SAFETY: as above.
        let standing = unsafe { device.standing(ptr::null_mut()) };
        assert!(matches!(standing, Ok(Standing::Running(None))));
        let (heap, about) = device.caps().heap_ids().next().expect("a heap");
        let size = about.granule.up(1 << 20).expect("small");
        let block = device.allocate(heap, size).expect("host memory");
        assert_eq!(B::extent(&block), size);
        // SAFETY: allocated above, and nobody uses it.
        unsafe { device.free(block) }.expect("it is its own");
    }

    #[test]
    fn host_memory_follows_no_stream_of_others() {
        follows_no_stream::<Host>();
        follows_no_stream::<Arbitrated<Host>>();
        assert!(Host::open_device(HOST_DEVICES - 1).is_ok());
        let none = Host::open_device(HOST_DEVICES).map_err(|error| error.kind());
        assert_eq!(none.err(), Some(ErrorKind::InvalidConfig));
    }
}
