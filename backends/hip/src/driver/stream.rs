//! Streams, events, and the pinned memory that copies go through.
//!
//! AMD's runtime spreads streams over a few hardware queues (`GPU_MAX_HW_QUEUES`, four by default). Beyond that, a timeline
//! may have to wait for work of another one that shares its queue: order is kept, only overlap is lost.

#![expect(unsafe_code, reason = "calls the runtime")]

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;

use omniheap_seam::{Error, ErrorKind, Result};
use omniheap_stream::{
    Caching, Capture, DefaultStream, NativeStreams, Progress, StreamDriver, StreamOwner,
};

use super::{Coherence, Current, Driver, address, check, pointer};
use crate::sys::{
    hipError_t, hipEvent_t, hipEventDisableTiming, hipGraph_t, hipMemcpyKind, hipStream_t,
    hipStreamCaptureStatus, hipStreamNonBlocking, hipStreamPerThread, hipUserObject_t,
};

/// The runtime calls a destructor without promising that anything waits for it.
const NO_DESTRUCTOR_SYNC: u32 = 1;
const REGISTER_PORTABLE: u32 = 0x1;
/// A graph takes over the caller's reference.
const MOVE: u32 = 1;

/// Sets a flag, and lets it go. The runtime's threads call this, where nothing of the runtime may be called.
///
/// # Safety
///
/// `flag` came from `Arc::into_raw`, and is used once.
unsafe extern "C" fn tell(flag: *mut c_void) {
    // SAFETY: the caller's promise.
    let gone = unsafe { Arc::from_raw(flag.cast_const().cast::<AtomicBool>()) };
    gone.store(true, Ordering::Release);
}

impl NativeStreams for Driver {
    type Native = hipStream_t;

    fn of_caller(stream: hipStream_t) -> (hipStream_t, StreamOwner) {
        if stream == hipStreamPerThread {
            return (stream, StreamOwner::Thread(thread::current().id()));
        }
        (stream, StreamOwner::Caller)
    }

    fn default_stream(which: DefaultStream) -> hipStream_t {
        match which {
            DefaultStream::Legacy => hipStream_t::NULL,
            DefaultStream::PerThread => hipStreamPerThread,
        }
    }

    fn native(stream: hipStream_t) -> hipStream_t {
        stream
    }

    /// A runtime that cannot tell refuses none.
    unsafe fn owns_stream(&self, stream: hipStream_t) -> Result<()> {
        let Some(table) = self.api.stream_device else { return Ok(()) };
        let _current = self.enter()?;
        let mut device = -1;
        // SAFETY: `device` is a valid out-pointer; the caller promises the stream.
        check(unsafe { (table.hipStreamGetDevice)(stream, &raw mut device) })?;
        if device == self.device { Ok(()) } else { Err(ErrorKind::Foreign.into()) }
    }
}

// SAFETY: each function is one call of the runtime, which keeps the promise of the same name; pinned memory is page-aligned.
unsafe impl StreamDriver for Driver {
    type Stream = hipStream_t;
    type Event = hipEvent_t;
    type Graph = hipGraph_t;
    type Current<'a> = Current;

    fn enter(&self) -> Result<Current> {
        self.enter_code().map_err(|code| {
            let kind = check(code).err().map_or(ErrorKind::Driver, |error| error.kind());
            Error::new(kind).with_native(i64::from(code.0))
        })
    }

    fn synchronize(&self) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the device is the thread's.
        check(unsafe { (self.api.device.hipDeviceSynchronize)() })
    }

    fn create_stream(&self) -> Result<Self::Stream> {
        let _current = self.enter()?;
        let mut stream = hipStream_t::NULL;
        // SAFETY: `stream` is a valid out-pointer; the device is the thread's.
        check(unsafe {
            (self.api.core.hipStreamCreateWithFlags)(&raw mut stream, hipStreamNonBlocking)
        })?;
        Ok(stream)
    }

    unsafe fn destroy_stream(&self, stream: Self::Stream) -> Result<()> {
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|core| unsafe { (core.hipStreamDestroy)(stream) })
    }

    unsafe fn synchronize_stream(&self, stream: Self::Stream) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.api.core.hipStreamSynchronize)(stream) })
    }

    fn create_event(&self) -> Result<Self::Event> {
        let _current = self.enter()?;
        let mut event = hipEvent_t::NULL;
        // SAFETY: `event` is a valid out-pointer; the device is the thread's.
        check(unsafe {
            (self.api.core.hipEventCreateWithFlags)(&raw mut event, hipEventDisableTiming)
        })?;
        Ok(event)
    }

    unsafe fn destroy_event(&self, event: Self::Event) -> Result<()> {
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|core| unsafe { (core.hipEventDestroy)(event) })
    }

    unsafe fn record(&self, event: Self::Event, stream: Self::Stream) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.api.core.hipEventRecord)(event, stream) })
    }

    unsafe fn record_all(&self, _: Self::Event) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    unsafe fn capture(&self, stream: Self::Stream) -> Result<Option<Capture<Self::Graph>>> {
        // The legacy stream cannot be captured, and no stream can where the runtime knows no captures.
        let Some(captures) = self.api.captures.filter(|_| stream != hipStream_t::NULL) else {
            return Ok(None);
        };
        let mut status = hipStreamCaptureStatus::hipStreamCaptureStatusNone;
        let (mut id, mut graph) = (0, hipGraph_t::NULL);
        // SAFETY: the caller promises the stream; those that are not null are valid out-pointers.
        check(unsafe {
            (captures.hipStreamGetCaptureInfo_v2)(
                stream,
                &raw mut status,
                &raw mut id,
                &raw mut graph,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        })?;
        let is_active = status == hipStreamCaptureStatus::hipStreamCaptureStatusActive;
        let is_captured = status != hipStreamCaptureStatus::hipStreamCaptureStatusNone;
        Ok(is_captured.then(|| Capture { id, graph: is_active.then_some(graph) }))
    }

    /// Only the newest runtimes have numbers; all of them finish a stream's work before they destroy it.
    unsafe fn stream_number(&self, _: Self::Stream) -> Result<Option<u64>> {
        Ok(None)
    }

    unsafe fn watch(&self, graph: Self::Graph, gone: Arc<AtomicBool>) -> Result<()> {
        let captures = self.api.captures.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        let mut object = hipUserObject_t::NULL;
        let flag = Arc::into_raw(gone).cast_mut().cast::<c_void>();
        // SAFETY: `object` is a valid out-pointer; `tell` takes the flag over and calls nothing of the runtime.
        let made = check(unsafe {
            let create = captures.hipUserObjectCreate;
            create(&raw mut object, flag, Some(tell), 1, NO_DESTRUCTOR_SYNC)
        });
        if made.is_err() {
            // SAFETY: without an object nobody else has the flag.
            unsafe { tell(flag) };
            return made;
        }
        // SAFETY: the caller promises the graph; our one reference becomes its.
        check(unsafe { (captures.hipGraphRetainUserObject)(graph, object, 1, MOVE) }).inspect_err(
            |_| {
                // SAFETY: the reference is still ours.
                let _ = unsafe { (captures.hipUserObjectRelease)(object, 1) };
            },
        )
    }

    unsafe fn progress(&self, event: Self::Event) -> Result<Progress> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        match unsafe { (self.api.core.hipEventQuery)(event) } {
            hipError_t::hipErrorNotReady => Ok(Progress::Pending),
            code => check(code).map(|()| Progress::Finished),
        }
    }

    unsafe fn wait_event(&self, event: Self::Event) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.api.core.hipEventSynchronize)(event) })
    }

    unsafe fn order(&self, stream: Self::Stream, event: Self::Event) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.api.core.hipStreamWaitEvent)(stream, event, 0) })
    }

    fn allocate_bounce(&self, size: usize) -> Result<NonNull<u8>> {
        self.allocate_host(size, Caching::Cached, Coherence::Fine)
    }

    fn host_address(&self, host: NonNull<u8>) -> Result<u64> {
        let _current = self.enter()?;
        let mut seen = ptr::null_mut();
        // SAFETY: `seen` is a valid out-pointer; the runtime checks that `host` is pinned.
        check(unsafe {
            (self.api.core.hipHostGetDevicePointer)(&raw mut seen, host.as_ptr().cast(), 0)
        })?;
        Ok(address(seen))
    }

    unsafe fn free_host(&self, host: *mut u8) -> Result<()> {
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|core| unsafe { (core.hipHostFree)(host.cast()) })
    }

    unsafe fn pin(&self, start: NonNull<u8>, size: usize) -> Result<()> {
        let table = self.api.managed.as_ref().ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (table.hipHostRegister)(start.as_ptr().cast(), size, REGISTER_PORTABLE) })
    }

    unsafe fn unpin(&self, start: NonNull<u8>) -> Result<()> {
        let table = self.api.managed.as_ref().ok_or(ErrorKind::Unsupported)?;
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|_| unsafe { (table.hipHostUnregister)(start.as_ptr().cast()) })
    }

    unsafe fn write(
        &self,
        to: u64,
        from: *const u8,
        size: usize,
        stream: Self::Stream,
    ) -> Result<()> {
        let kind = hipMemcpyKind::hipMemcpyHostToDevice;
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe {
            (self.api.core.hipMemcpyAsync)(pointer(to), from.cast(), size, kind, stream)
        })
    }

    unsafe fn read(&self, to: *mut u8, from: u64, size: usize, stream: Self::Stream) -> Result<()> {
        let kind = hipMemcpyKind::hipMemcpyDeviceToHost;
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe {
            (self.api.core.hipMemcpyAsync)(to.cast(), pointer(from), size, kind, stream)
        })
    }
}
