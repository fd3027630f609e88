//! Streams and events.
#![expect(unsafe_code, reason = "calls the driver")]
use super::check::NOT_READY;
use super::{Driver, Raw, check};
use crate::sys::CUstream;
use core::ptr;
use cudarc::driver::sys::{CUevent_st, CUstream_st};
use omniheap_core::{ErrorKind, Result};
use omniheap_stream::Progress;

const STREAM_NON_BLOCKING: u32 = 0x1;
const EVENT_DISABLE_TIMING: u32 = 0x2;

impl Driver {
    /// A stream that does not wait for the legacy default stream.
    pub(crate) fn create_stream(&self) -> Result<Raw<CUstream_st>> {
        let _current = self.enter()?;
        let mut stream = ptr::null_mut();
        // SAFETY: `stream` is a valid out-pointer; a context is current.
        check(unsafe { (self.fns.stream_create)(&raw mut stream, STREAM_NON_BLOCKING) })?;
        Ok(Raw(stream))
    }

    /// # Safety
    ///
    /// `stream` came from [`create_stream`](Self::create_stream) and is destroyed once.
    pub(crate) unsafe fn destroy_stream(&self, stream: Raw<CUstream_st>) -> Result<()> {
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|fns| unsafe { (fns.stream_destroy)(stream.0) })
    }

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

    /// # Safety
    ///
    /// `stream` is a live stream of this context.
    pub(crate) unsafe fn synchronize_stream(&self, stream: CUstream) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.fns.stream_synchronize)(stream) })
    }

    pub(crate) fn create_event(&self) -> Result<Raw<CUevent_st>> {
        let _current = self.enter()?;
        let mut event = ptr::null_mut();
        // SAFETY: `event` is a valid out-pointer; a context is current.
        check(unsafe { (self.fns.event_create)(&raw mut event, EVENT_DISABLE_TIMING) })?;
        Ok(Raw(event))
    }

    /// # Safety
    ///
    /// `event` came from [`create_event`](Self::create_event) and is destroyed once.
    pub(crate) unsafe fn destroy_event(&self, event: Raw<CUevent_st>) -> Result<()> {
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|fns| unsafe { (fns.event_destroy)(event.0) })
    }

    /// # Safety
    ///
    /// Event and stream are live and of this context.
    pub(crate) unsafe fn record(&self, event: Raw<CUevent_st>, stream: CUstream) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.fns.event_record)(event.0, stream) })
    }

    /// # Safety
    ///
    /// `event` is live and of this context.
    pub(crate) unsafe fn progress(&self, event: Raw<CUevent_st>) -> Result<Progress> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        match unsafe { (self.fns.event_query)(event.0) } {
            NOT_READY => Ok(Progress::Pending),
            code => check(code).map(|()| Progress::Finished),
        }
    }

    /// Blocks the calling thread until the event has finished.
    ///
    /// # Safety
    ///
    /// `event` is live and of this context.
    pub(crate) unsafe fn wait_event(&self, event: Raw<CUevent_st>) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.fns.event_synchronize)(event.0) })
    }

    /// Makes later work on `stream` wait for `event`.
    ///
    /// # Safety
    ///
    /// Event and stream are live and of this context.
    pub(crate) unsafe fn order(&self, stream: CUstream, event: Raw<CUevent_st>) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.fns.stream_wait)(stream, event.0, 0) })
    }
}
