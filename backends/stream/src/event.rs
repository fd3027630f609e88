//! Events, used again and again.
#![expect(unsafe_code, reason = "calls the driver")]
use crate::{Progress, StreamDriver, lock};
use omniheap_seam::Result;
use std::sync::{Arc, Mutex};

/// An event, destroyed with its last user.
pub(crate) struct Event<D: StreamDriver> {
    driver: Arc<D>,
    pub(crate) raw: D::Event,
}

impl<D: StreamDriver> Event<D> {
    pub(crate) fn new(driver: &Arc<D>) -> Result<Self> {
        Ok(Self { driver: driver.clone(), raw: driver.create_event()? })
    }

    /// # Safety
    ///
    /// `stream` is a live stream of the event's device.
    pub(crate) unsafe fn record(&self, stream: D::Stream) -> Result<()> {
        // SAFETY: `raw` lives as long as `self`; the caller promises the stream.
        unsafe { self.driver.record(self.raw, stream) }
    }

    pub(crate) fn progress(&self) -> Result<Progress> {
        // SAFETY: `raw` lives as long as `self`.
        unsafe { self.driver.progress(self.raw) }
    }

    pub(crate) fn wait(&self) -> Result<()> {
        // SAFETY: `raw` lives as long as `self`.
        unsafe { self.driver.wait_event(self.raw) }
    }
}

impl<D: StreamDriver> Drop for Event<D> {
    fn drop(&mut self) {
        // SAFETY: created in `new`, destroyed once here. The driver keeps a pending event's work; a failure leaves
        // nothing to do.
        let _ = unsafe { self.driver.destroy_event(self.raw) };
    }
}

/// Events that wait to be recorded again.
pub(crate) struct Spare<D: StreamDriver>(Mutex<Vec<Arc<Event<D>>>>);

impl<D: StreamDriver> Spare<D> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    pub(crate) fn take(&self, driver: &Arc<D>) -> Result<Arc<Event<D>>> {
        match lock(&self.0).pop() {
            Some(event) => Ok(event),
            None => Event::new(driver).map(Arc::new),
        }
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    /// Keeps the event for reuse unless something still waits for it: recording it again would change what it waits for.
    pub(crate) fn put(&self, event: Arc<Event<D>>) {
        if Arc::strong_count(&event) == 1 {
            lock(&self.0).push(event);
        }
    }
}
