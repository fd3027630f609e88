//! What timelines and staging need of the runtime.
#![expect(unsafe_code, reason = "signs the contract of StreamDriver")]
use super::{Caching, Coherence, Driver};
use crate::sys::{hipEvent_t, hipStream_t};
use core::ptr::NonNull;
use omniheap_core::Result;
use omniheap_stream::{Progress, StreamDriver};

// SAFETY: each function is one call of the runtime, which keeps the promise of the same name; pinned memory is page-aligned.
unsafe impl StreamDriver for Driver {
    type Stream = hipStream_t;
    type Event = hipEvent_t;

    fn create_stream(&self) -> Result<Self::Stream> {
        self.create_stream()
    }

    unsafe fn destroy_stream(&self, stream: Self::Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.destroy_stream(stream) }
    }

    unsafe fn synchronize_stream(&self, stream: Self::Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.synchronize_stream(stream) }
    }

    fn synchronize(&self) -> Result<()> {
        self.synchronize()
    }

    fn create_event(&self) -> Result<Self::Event> {
        self.create_event()
    }

    unsafe fn destroy_event(&self, event: Self::Event) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.destroy_event(event) }
    }

    unsafe fn record(&self, event: Self::Event, stream: Self::Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.record(event, stream) }
    }

    unsafe fn progress(&self, event: Self::Event) -> Result<Progress> {
        // SAFETY: the caller's promise.
        unsafe { self.progress(event) }
    }

    unsafe fn wait_event(&self, event: Self::Event) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.wait_event(event) }
    }

    unsafe fn order(&self, stream: Self::Stream, event: Self::Event) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.order(stream, event) }
    }

    fn allocate_bounce(&self, size: usize) -> Result<NonNull<u8>> {
        self.allocate_host(size, Caching::Cached, Coherence::Fine)
    }

    fn host_address(&self, host: NonNull<u8>) -> Result<u64> {
        self.host_address(host)
    }

    unsafe fn free_host(&self, host: *mut u8) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.free_host(host) }
    }

    unsafe fn write(
        &self,
        to: u64,
        from: *const u8,
        size: usize,
        stream: Self::Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.write(to, from, size, stream) }
    }

    unsafe fn read(&self, to: *mut u8, from: u64, size: usize, stream: Self::Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.read(to, from, size, stream) }
    }
}
