//! A bounce: one pinned buffer between pageable slices and the device.
#![expect(unsafe_code, reason = "copies through raw pinned memory")]
use crate::{Progress, StreamDriver, Timeline, event::Event};
use core::ptr::NonNull;
use omniheap_seam::Result;
use std::sync::Arc;

/// Bytes of one bounce: long enough that the bus is busy, short enough to overlap with the host's copying.
pub const BOUNCE: usize = 2 << 20;

/// Returns the device's address of pinned memory that was just allocated; where there is none, frees the memory.
///
/// # Errors
///
/// The driver's error.
///
/// # Safety
///
/// `host` is pinned memory of this driver, and nothing uses it.
pub unsafe fn address_of_pinned<D: StreamDriver>(driver: &D, host: NonNull<u8>) -> Result<u64> {
    driver.host_address(host).inspect_err(|_| {
        // SAFETY: the caller's promise.
        let _ = unsafe { driver.free_host(host.as_ptr()) };
    })
}

/// A pinned buffer of [`BOUNCE`] bytes. When it is in flight, its event says until when.
pub(crate) struct Bounce<D: StreamDriver> {
    driver: Arc<D>,
    host: NonNull<u8>,
    /// Device address.
    address: u64,
    event: Event<D>,
    in_flight: bool,
}

// SAFETY: the buffer belongs to the bounce alone and is host memory like any other.
unsafe impl<D: StreamDriver> Send for Bounce<D> {}

impl<D: StreamDriver> Bounce<D> {
    pub(crate) fn new(driver: &Arc<D>) -> Result<Self> {
        let event = Event::new(driver)?;
        let host = driver.allocate_bounce(BOUNCE)?;
        // SAFETY: allocated just above and used by nothing.
        let address = unsafe { address_of_pinned(&**driver, host) }?;
        Ok(Self { driver: driver.clone(), host, address, event, in_flight: false })
    }

    pub(crate) fn is_idle(&self) -> Result<bool> {
        Ok(!self.in_flight || self.event.progress()? == Progress::Finished)
    }

    pub(crate) fn wait(&mut self) -> Result<()> {
        if self.in_flight {
            self.event.wait()?;
            self.in_flight = false;
        }
        Ok(())
    }

    /// Notes that work up to here on the stream uses the bounce.
    pub(crate) fn depart(&mut self, timeline: &Timeline<D>) -> Result<()> {
        // SAFETY: the stream lives as long as the timeline.
        match unsafe { self.event.record(timeline.stream()?) } {
            Ok(()) => self.in_flight = true,
            // Without an event, only an idle stream tells that the bounce is free.
            Err(_) => timeline.drain()?,
        }
        Ok(())
    }

    /// Returns the bounce's bytes from `offset` on, as the host and as the device see them.
    ///
    /// # Safety
    ///
    /// `offset <= BOUNCE`.
    pub(crate) unsafe fn at(&self, offset: usize) -> (NonNull<u8>, u64) {
        // SAFETY: the caller keeps `offset` inside the bounce.
        (unsafe { self.host.add(offset) }, self.address + offset as u64)
    }

    /// Copies a slice into the bounce and from there to the device.
    ///
    /// # Safety
    ///
    /// `to` begins as many live bytes as the slice has; `offset + bytes.len() <= BOUNCE`; no copy in flight uses these
    /// bytes of the bounce.
    pub(crate) unsafe fn upload(
        &self,
        offset: usize,
        to: u64,
        bytes: &[u8],
        stream: D::Stream,
    ) -> Result<()> {
        // SAFETY: the caller keeps `offset` inside the bounce.
        let (host, _) = unsafe { self.at(offset) };
        // SAFETY: the caller promises the room, and a slice never overlaps our pinned buffer.
        unsafe { host.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        // SAFETY: the caller promises `to`; the bounce stays unchanged until `depart`'s event or the filling's end.
        unsafe { self.driver.write(to, host.as_ptr(), bytes.len(), stream) }
    }

    /// Copies from the device into the bounce and, once that has run, into a slice.
    ///
    /// # Safety
    ///
    /// `from` begins as many live bytes as the slice has, at most [`BOUNCE`]; the bounce is not in flight.
    pub(crate) unsafe fn download(
        &mut self,
        from: u64,
        bytes: &mut [u8],
        timeline: &Timeline<D>,
    ) -> Result<()> {
        let (stream, length) = (timeline.stream()?, bytes.len());
        // SAFETY: the caller promises `from`; the bounce is touched again only after `wait`.
        let sent = unsafe { self.driver.read(self.host.as_ptr(), from, length, stream) };
        // Also where it failed: the device may write the bytes all the same.
        self.depart(timeline)?;
        self.wait()?;
        sent?;
        // SAFETY: the caller keeps `length <= BOUNCE`, the copy into the bounce has run, and a slice never overlaps it.
        unsafe { self.host.copy_to_nonoverlapping(NonNull::from(&mut *bytes).cast(), length) };
        Ok(())
    }
}

impl<D: StreamDriver> Drop for Bounce<D> {
    fn drop(&mut self) {
        let _ = self.wait();
        // SAFETY: allocated in `new`, freed once here; no copy uses it, or the device is lost.
        let _ = unsafe { self.driver.free_host(self.host.as_ptr()) };
    }
}
