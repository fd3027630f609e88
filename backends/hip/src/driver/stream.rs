//! Streams and events.

#![expect(unsafe_code, reason = "calls the runtime")]

use omniheap_core::{ErrorKind, Result};
use omniheap_stream::Progress;

use super::{Driver, check};
use crate::sys::{
    hipError_t, hipEvent_t, hipEventDisableTiming, hipStream_t, hipStreamNonBlocking,
};

impl Driver {
    /// Creates a stream that does not wait for the legacy default stream.
    ///
    /// # Errors
    /// What the runtime says.
    pub fn create_stream(&self) -> Result<hipStream_t> {
        let _current = self.enter()?;
        let mut stream = hipStream_t::NULL;
        // SAFETY: `stream` is a valid out-pointer; the device is the thread's.
        check(unsafe {
            (self.api.core.hipStreamCreateWithFlags)(&raw mut stream, hipStreamNonBlocking)
        })?;
        Ok(stream)
    }

    /// Destroys a stream.
    ///
    /// # Errors
    /// What the runtime says.
    ///
    /// # Safety
    /// `stream` came from [`create_stream`](Self::create_stream) and is destroyed once.
    pub unsafe fn destroy_stream(&self, stream: hipStream_t) -> Result<()> {
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|core| unsafe { (core.hipStreamDestroy)(stream) })
    }

    /// Refuses a stream of another device; a runtime that cannot tell refuses none.
    ///
    /// # Errors
    /// `Foreign`, or what the runtime says.
    ///
    /// # Safety
    /// `stream` is a live stream.
    pub unsafe fn owns_stream(&self, stream: hipStream_t) -> Result<()> {
        let Some(table) = self.api.stream_device else { return Ok(()) };
        let _current = self.enter()?;
        let mut device = -1;
        // SAFETY: `device` is a valid out-pointer; the caller promises the stream.
        check(unsafe { (table.hipStreamGetDevice)(stream, &raw mut device) })?;
        if device == self.device { Ok(()) } else { Err(ErrorKind::Foreign.into()) }
    }

    /// Blocks the calling thread until the stream has nothing left to do.
    ///
    /// # Errors
    /// What the runtime says.
    ///
    /// # Safety
    /// `stream` is a live stream of this device.
    pub unsafe fn synchronize_stream(&self, stream: hipStream_t) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.api.core.hipStreamSynchronize)(stream) })
    }

    /// Creates an event that measures no time.
    ///
    /// # Errors
    /// What the runtime says.
    pub fn create_event(&self) -> Result<hipEvent_t> {
        let _current = self.enter()?;
        let mut event = hipEvent_t::NULL;
        // SAFETY: `event` is a valid out-pointer; the device is the thread's.
        check(unsafe {
            (self.api.core.hipEventCreateWithFlags)(&raw mut event, hipEventDisableTiming)
        })?;
        Ok(event)
    }

    /// Destroys an event.
    ///
    /// # Errors
    /// What the runtime says.
    ///
    /// # Safety
    /// `event` came from [`create_event`](Self::create_event) and is destroyed once.
    pub unsafe fn destroy_event(&self, event: hipEvent_t) -> Result<()> {
        // SAFETY: the caller's promise is the function's precondition.
        self.release(|core| unsafe { (core.hipEventDestroy)(event) })
    }

    /// Records an event behind everything submitted to a stream.
    ///
    /// # Errors
    /// What the runtime says.
    ///
    /// # Safety
    /// Event and stream are live and of this device.
    pub unsafe fn record(&self, event: hipEvent_t, stream: hipStream_t) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.api.core.hipEventRecord)(event, stream) })
    }

    /// Asks how far an event is, without waiting.
    ///
    /// # Errors
    /// What the runtime says.
    ///
    /// # Safety
    /// `event` is live and of this device.
    pub unsafe fn progress(&self, event: hipEvent_t) -> Result<Progress> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        match unsafe { (self.api.core.hipEventQuery)(event) } {
            hipError_t::hipErrorNotReady => Ok(Progress::Pending),
            code => check(code).map(|()| Progress::Finished),
        }
    }

    /// Blocks the calling thread until the event has finished.
    ///
    /// # Errors
    /// What the runtime says.
    ///
    /// # Safety
    /// `event` is live and of this device.
    pub unsafe fn wait_event(&self, event: hipEvent_t) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.api.core.hipEventSynchronize)(event) })
    }

    /// Makes later work on `stream` wait for `event`.
    ///
    /// # Errors
    /// What the runtime says.
    ///
    /// # Safety
    /// Event and stream are live.
    pub unsafe fn order(&self, stream: hipStream_t, event: hipEvent_t) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise is the function's precondition.
        check(unsafe { (self.api.core.hipStreamWaitEvent)(stream, event, 0) })
    }
}
