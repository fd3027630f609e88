//! Backends whose streams PyTorch hands over.
#![expect(unsafe_code, reason = "adopts streams of the caller")]
use core::ffi::c_void;
use omniheap::cuda::Cuda;
use omniheap::hip::{Hip, hipStream_t};
use omniheap::host::Host;
use omniheap::{Backend, ErrorKind, Result, TimelineId, Timelines as _};

/// A backend that follows the caller's streams.
pub(crate) trait Streams: Backend + Sized {
    /// What out-of-memory messages call its memory.
    const NAME: &'static str;

    /// Opens a device by its number.
    fn open_device(ordinal: u32) -> Result<Self>;

    /// A timeline over a stream of the caller's.
    ///
    /// # Safety
    ///
    /// `stream` is a live stream of this device, and stays so for the life of the process.
    unsafe fn adopt(&self, stream: *mut c_void) -> Result<TimelineId>;
}

impl Streams for Cuda {
    const NAME: &'static str = "CUDA";

    fn open_device(ordinal: u32) -> Result<Self> {
        Self::open(ordinal)
    }

    unsafe fn adopt(&self, stream: *mut c_void) -> Result<TimelineId> {
        // SAFETY: the caller's promise.
        unsafe { self.adopt_stream(stream.cast()) }
    }
}

impl Streams for Hip {
    const NAME: &'static str = "HIP";

    fn open_device(ordinal: u32) -> Result<Self> {
        Self::open(ordinal)
    }

    unsafe fn adopt(&self, stream: *mut c_void) -> Result<TimelineId> {
        // SAFETY: the caller's promise.
        unsafe { self.adopt_stream(hipStream_t(stream)) }
    }
}

/// Host devices, so that programs for several can be tried anywhere.
const HOST_DEVICES: u32 = 2;

impl Streams for Host {
    const NAME: &'static str = "host";

    fn open_device(ordinal: u32) -> Result<Self> {
        match ordinal {
            ..HOST_DEVICES => Ok(Self::new()),
            _ => Err(ErrorKind::InvalidConfig.into()),
        }
    }

    /// Host memory has no streams: any number stands for one.
    unsafe fn adopt(&self, _: *mut c_void) -> Result<TimelineId> {
        self.open()
    }
}
