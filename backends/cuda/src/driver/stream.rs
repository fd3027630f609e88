//! Streams, events, and the pinned memory that copies go through.
#![expect(unsafe_code, reason = "calls the driver")]
use super::check::{NO_CONTEXT, NOT_READY};
use super::{Current, Driver, check};
use crate::sys::{CUstream, Code, Functions};
use core::{
    ffi::c_void,
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, Ordering},
};
use cudarc::driver::sys::{CUevent_st, CUgraph_st, CUstream_st};
use omniheap_seam::{ErrorKind, Result};
use omniheap_stream::{
    Caching, Capture, DefaultStream, NativeStreams, Progress, Raw, StreamDriver, StreamOwner,
};
use std::{sync::Arc, thread};

const STREAM_NON_BLOCKING: u32 = 0x1;
const EVENT_DISABLE_TIMING: u32 = 0x2;
const REGISTER_PORTABLE: u32 = 0x1;
/// The driver's own handle of the stream that zero stands for too.
const LEGACY: CUstream = ptr::without_provenance_mut(1);
/// The driver's own handle of each thread's default stream.
const PER_THREAD: CUstream = ptr::without_provenance_mut(2);
/// Capture states of a stream: not captured, and captured without an error.
const NOT_CAPTURED: u32 = 0;
const CAPTURED: u32 = 1;
/// The driver calls a destructor without promising that anything waits for it.
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// A graph takes over the caller's reference.
const MOVE: u32 = 1;

/// Sets a flag, and lets it go. The driver's threads call this, where nothing of the driver may be called.
///
/// # Safety
///
/// `flag` came from `Arc::into_raw`, and is used once.
unsafe extern "C" fn tell(flag: *mut c_void) {
    // SAFETY: the caller's promise.
    let gone = unsafe { Arc::from_raw(flag.cast_const().cast::<AtomicBool>()) };
    gone.store(true, Ordering::Release);
}

impl Driver {
    /// Queries a stream. Its context is usually current, so that is not checked first: every allocation of
    /// a framework comes through here.
    #[inline]
    fn ask(&self, mut call: impl FnMut(&Functions) -> Code) -> Result<()> {
        match call(self.fns) {
            NO_CONTEXT => {
                let _current = self.enter()?;
                check(call(self.fns))
            }
            code => check(code),
        }
    }
}

impl NativeStreams for Driver {
    type Native = CUstream;

    fn of_caller(stream: CUstream) -> (Raw<CUstream_st>, StreamOwner) {
        if stream.is_null() {
            return (Raw(LEGACY), StreamOwner::Caller);
        }
        if stream == PER_THREAD {
            return (Raw(stream), StreamOwner::Thread(thread::current().id()));
        }
        (Raw(stream), StreamOwner::Caller)
    }

    fn default_stream(which: DefaultStream) -> CUstream {
        match which {
            DefaultStream::Legacy => LEGACY,
            DefaultStream::PerThread => PER_THREAD,
        }
    }

    fn native(stream: Raw<CUstream_st>) -> CUstream {
        stream.0
    }

    unsafe fn owns_stream(&self, stream: Raw<CUstream_st>) -> Result<()> {
        let _current = self.enter()?;
        let mut context = ptr::null_mut();
        // SAFETY: `context` is a valid out-pointer; the caller promises the stream.
        check(unsafe { (self.fns.stream_context)(stream.0, &raw mut context) })?;
        if context == self.context.0 { Ok(()) } else { Err(ErrorKind::Foreign.into()) }
    }
}

// SAFETY: each function is one driver call, which keeps the promise of the same name; pinned memory is page-aligned.
unsafe impl StreamDriver for Driver {
    type Stream = Raw<CUstream_st>;
    type Event = Raw<CUevent_st>;
    type Graph = Raw<CUgraph_st>;
    type Current<'a> = Current<'a>;

    fn enter(&self) -> Result<Current<'_>> {
        self.enter_code().map_err(|code| check(code).expect_err("`enter_code` fails with a code"))
    }

    fn synchronize(&self) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: a context is current.
        check(unsafe { (self.fns.context_synchronize)() })
    }

    fn create_stream(&self) -> Result<Self::Stream> {
        let _current = self.enter()?;
        let mut stream = ptr::null_mut();
        // SAFETY: `stream` is a valid out-pointer; a context is current.
        check(unsafe { (self.fns.stream_create)(&raw mut stream, STREAM_NON_BLOCKING) })?;
        Ok(Raw(stream))
    }

    unsafe fn destroy_stream(&self, stream: Self::Stream) -> Result<()> {
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|fns| unsafe { (fns.stream_destroy)(stream.0) })
    }

    unsafe fn synchronize_stream(&self, stream: Self::Stream) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.fns.stream_synchronize)(stream.0) })
    }

    fn create_event(&self) -> Result<Self::Event> {
        let _current = self.enter()?;
        let mut event = ptr::null_mut();
        // SAFETY: `event` is a valid out-pointer; a context is current.
        check(unsafe { (self.fns.event_create)(&raw mut event, EVENT_DISABLE_TIMING) })?;
        Ok(Raw(event))
    }

    unsafe fn destroy_event(&self, event: Self::Event) -> Result<()> {
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|fns| unsafe { (fns.event_destroy)(event.0) })
    }

    unsafe fn record(&self, event: Self::Event, stream: Self::Stream) -> Result<()> {
        if self.has_ended() {
            return Err(ErrorKind::DeviceLost.into());
        }
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.fns.event_record)(event.0, stream.0) })
    }

    unsafe fn record_all(&self, event: Self::Event) -> Result<()> {
        if self.has_ended() {
            return Err(ErrorKind::DeviceLost.into());
        }
        let record = self.fns.event_record_all.ok_or(ErrorKind::Unsupported)?;
        let _current = self.enter()?;
        let mut status = 0;
        // A blocking stream that is captured makes the legacy stream answer with an error, and this is the one way to ask
        // that spoils nothing.
        // SAFETY: `status` is a valid out-pointer; the legacy stream always lives.
        check(unsafe { (self.fns.stream_is_captured)(LEGACY, &raw mut status) })?;
        // SAFETY: the context is ours; the caller promises the event.
        check(unsafe { record(self.context.0, event.0) })
    }

    #[inline]
    unsafe fn capture(&self, stream: Self::Stream) -> Result<Option<Capture<Self::Graph>>> {
        if stream.0.addr() <= LEGACY.addr() {
            return Ok(None); // The legacy stream cannot be captured.
        }
        let (mut status, mut id, mut graph) = (0, 0, ptr::null_mut());
        self.ask(|fns| {
            let (status, id, graph) = (&raw mut status, &raw mut id, &raw mut graph);
            let (nodes, count) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: the caller promises the stream; those that are not null are valid out-pointers.
            unsafe { (fns.stream_capture)(stream.0, status, id, graph, nodes, count) }
        })?;
        Ok((status != NOT_CAPTURED).then(|| {
            let graph = (status == CAPTURED).then_some(Raw(graph));
            Capture { id, graph }
        }))
    }

    #[inline]
    unsafe fn stream_number(&self, stream: Self::Stream) -> Result<Option<u64>> {
        if stream.0.addr() <= LEGACY.addr() {
            return Ok(Some(0)); // There is one; the driver refuses to tell its number while others are captured.
        }
        let mut number = 0;
        // SAFETY: the caller promises the stream; `number` is a valid out-pointer.
        self.ask(|fns| unsafe { (fns.stream_number)(stream.0, &raw mut number) })?;
        Ok(Some(number))
    }

    unsafe fn watch(&self, graph: Self::Graph, gone: Arc<AtomicBool>) -> Result<()> {
        let (Some(create), Some(release), Some(retain)) =
            (self.fns.object_create, self.fns.object_release, self.fns.graph_retain)
        else {
            return Err(ErrorKind::Unsupported.into());
        };
        let _current = self.enter()?;
        let mut object = ptr::null_mut();
        let flag = Arc::into_raw(gone).cast_mut().cast::<c_void>();
        // SAFETY: `object` is a valid out-pointer; `tell` takes the flag over and calls nothing of the driver.
        let made = check(unsafe { create(&raw mut object, flag, tell, 1, NO_DESTRUCTOR_SYNC) });
        if made.is_err() {
            // SAFETY: without an object nobody else has the flag.
            unsafe { tell(flag) };
            return made;
        }
        // SAFETY: the caller promises the graph; our one reference becomes its.
        check(unsafe { retain(graph.0, object, 1, MOVE) }).inspect_err(|_| {
            // SAFETY: the reference is still ours.
            let _ = unsafe { release(object, 1) };
        })
    }

    unsafe fn progress(&self, event: Self::Event) -> Result<Progress> {
        if self.has_ended() {
            return Ok(Progress::Finished);
        }
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        match unsafe { (self.fns.event_query)(event.0) } {
            NOT_READY => Ok(Progress::Pending),
            code => check(code).map(|()| Progress::Finished),
        }
    }

    unsafe fn wait_event(&self, event: Self::Event) -> Result<()> {
        if self.has_ended() {
            return Ok(());
        }
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.fns.event_synchronize)(event.0) })
    }

    unsafe fn order(&self, stream: Self::Stream, event: Self::Event) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.fns.stream_wait)(stream.0, event.0, 0) })
    }

    fn allocate_bounce(&self, size: usize) -> Result<NonNull<u8>> {
        self.allocate_host(size, Caching::Cached)
    }

    fn host_address(&self, host: NonNull<u8>) -> Result<u64> {
        let _current = self.enter()?;
        let mut address = 0;
        // SAFETY: `address` is a valid out-pointer; the driver checks that `host` is pinned.
        check(unsafe { (self.fns.host_address)(&raw mut address, host.as_ptr().cast(), 0) })?;
        Ok(address)
    }

    unsafe fn free_host(&self, host: *mut u8) -> Result<()> {
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|fns| unsafe { (fns.host_free)(host.cast()) })
    }

    unsafe fn pin(&self, start: NonNull<u8>, size: usize) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.fns.host_register)(start.as_ptr().cast(), size, REGISTER_PORTABLE) })
    }

    unsafe fn unpin(&self, start: NonNull<u8>) -> Result<()> {
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|fns| unsafe { (fns.host_unregister)(start.as_ptr().cast()) })
    }

    unsafe fn write(
        &self,
        to: u64,
        from: *const u8,
        size: usize,
        stream: Self::Stream,
    ) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.fns.copy_to_device)(to, from.cast::<c_void>(), size, stream.0) })
    }

    unsafe fn read(&self, to: *mut u8, from: u64, size: usize, stream: Self::Stream) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.fns.copy_to_host)(to.cast::<c_void>(), from, size, stream.0) })
    }
}
