//! Events, used again and again.
#![expect(unsafe_code, reason = "calls the runtime")]
use crate::{
    driver::{Driver, Progress},
    lock,
    sys::{hipEvent_t, hipStream_t},
};
use omniheap_core::Result;
use std::sync::{Arc, Mutex};

/// An event, destroyed with its last user.
pub(crate) struct Event {
    driver: Arc<Driver>,
    pub(crate) raw: hipEvent_t,
}

impl Event {
    pub(crate) fn new(driver: &Arc<Driver>) -> Result<Self> {
        Ok(Self { driver: driver.clone(), raw: driver.create_event()? })
    }

    /// # Safety
    ///
    /// `stream` is a live stream of the event's device.
    pub(crate) unsafe fn record(&self, stream: hipStream_t) -> Result<()> {
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

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created in `new`, destroyed once here. The runtime keeps a pending event's work; a failure leaves
        // nothing to do.
        let _ = unsafe { self.driver.destroy_event(self.raw) };
    }
}

/// Events that wait to be recorded again.
#[derive(Default)]
pub(crate) struct Spare(Mutex<Vec<Arc<Event>>>);

impl Spare {
    pub(crate) fn take(&self, driver: &Arc<Driver>) -> Result<Arc<Event>> {
        match lock(&self.0).pop() {
            Some(event) => Ok(event),
            None => Event::new(driver).map(Arc::new),
        }
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    /// Keeps the event unless somebody still waits for it: recording it again would make them wait for other work.
    pub(crate) fn put(&self, event: Arc<Event>) {
        if Arc::strong_count(&event) == 1 {
            lock(&self.0).push(event);
        }
    }
}
