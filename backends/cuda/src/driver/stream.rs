//! Streams, events, and the pinned memory that copies go through.
#![expect(unsafe_code, reason = "calls the driver")]
use super::check::NOT_READY;
use super::{Current, Driver, check};
use crate::sys::CUstream;
use core::{
    ffi::c_void,
    ptr::{self, NonNull},
};
use cudarc::driver::sys::{CUevent_st, CUstream_st};
use omniheap_core::{ErrorKind, Result};
use omniheap_stream::{Caching, Progress, Raw, StreamDriver};

const STREAM_NON_BLOCKING: u32 = 0x1;
const EVENT_DISABLE_TIMING: u32 = 0x2;

impl Driver {
    /// Refuses a stream of another context.
    ///
    /// # Safety
    ///
    /// `stream` is a live stream.
    pub(crate) unsafe fn owns_stream(&self, stream: CUstream) -> Result<()> {
        let _current = self.enter()?;
        let mut context = ptr::null_mut();
        // SAFETY: `context` is a valid out-pointer; the caller promises the stream.
        check(unsafe { (self.fns.stream_context)(stream, &raw mut context) })?;
        if context == self.context.0 { Ok(()) } else { Err(ErrorKind::Foreign.into()) }
    }
}

// SAFETY: each function is one driver call, which keeps the promise of the same name; pinned memory is page-aligned.
unsafe impl StreamDriver for Driver {
    type Stream = Raw<CUstream_st>;
    type Event = Raw<CUevent_st>;
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
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.fns.event_record)(event.0, stream.0) })
    }

    unsafe fn progress(&self, event: Self::Event) -> Result<Progress> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        match unsafe { (self.fns.event_query)(event.0) } {
            NOT_READY => Ok(Progress::Pending),
            code => check(code).map(|()| Progress::Finished),
        }
    }

    unsafe fn wait_event(&self, event: Self::Event) -> Result<()> {
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
