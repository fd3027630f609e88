//! Host memory of others that a device has pinned.
#![expect(unsafe_code, reason = "pins and unpins memory")]
use crate::{Driver, lock};
use core::ptr::NonNull;
use omniheap_seam::{HostPin, Result};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, Weak};

/// Host memory that a device has pinned. Whatever is left is unpinned when the device is closed.
pub(crate) struct Pins<D: Driver> {
    driver: Arc<D>,
    /// The length of each piece, by its first address; none while the driver pins or unpins it. The lock is not held then, because
    /// that takes long, and other threads pin other pieces meanwhile.
    pieces: Mutex<BTreeMap<usize, (NonNull<u8>, usize)>>,
}

// SAFETY: the pointers are only handed to the driver, which takes them on any thread.
unsafe impl<D: Driver> Send for Pins<D> {}
// SAFETY: as above; the map is behind a lock.
unsafe impl<D: Driver> Sync for Pins<D> {}

/// Unpins one piece when it is dropped, unless the device was closed before.
struct Pin<D: Driver> {
    pins: Weak<Pins<D>>,
    start: usize,
}

impl<D: Driver> Pins<D> {
    pub(crate) fn new(driver: &Arc<D>) -> Arc<Self> {
        Arc::new(Self { driver: Arc::clone(driver), pieces: Mutex::default() })
    }

    /// Pins a piece; nothing where this device or another one of the process has.
    ///
    /// # Safety
    ///
    /// As for [`Transfer::pin_host`](omniheap_seam::Transfer::pin_host).
    pub(crate) unsafe fn pin(
        self: &Arc<Self>,
        start: NonNull<u8>,
        size: usize,
    ) -> Result<Option<HostPin>> {
        let address = start.as_ptr().expose_provenance();
        if let Entry::Vacant(vacant) = lock(&self.pieces).entry(address) {
            vacant.insert((start, 0));
        } else {
            return Ok(None);
        }
        // SAFETY: the caller's promise: the bytes are mapped until the pin is dropped, and that unpins them, unless `self` did.
        let pinned = unsafe { self.driver.pin(start, size) };
        let mut pieces = lock(&self.pieces);
        if pinned.is_ok() {
            pieces.insert(address, (start, size));
        } else {
            pieces.remove(&address);
        }
        drop(pieces);
        match pinned {
            Ok(()) => Ok(Some(HostPin::new(Pin { pins: Arc::downgrade(self), start: address }))),
            Err(_) if self.driver.holds(address as u64, size as u64) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns true if bytes lie in a piece.
    pub(crate) fn hold(&self, bytes: &[u8]) -> bool {
        let start = bytes.as_ptr().expose_provenance();
        let pieces = lock(&self.pieces);
        let piece = pieces.range(..=start).next_back();
        piece.is_some_and(|(first, (_, size))| bytes.len() <= size.saturating_sub(start - first))
    }

    fn unpin(&self, start: NonNull<u8>) {
        // SAFETY: it was pinned and is unpinned once: it was just taken out. Copies have run before whoever lent the bytes gives
        // them up. On a lost device nothing is left to do.
        let _ = unsafe { self.driver.unpin(start) };
    }
}

impl<D: Driver> Drop for Pins<D> {
    fn drop(&mut self) {
        for (start, _) in core::mem::take(&mut *lock(&self.pieces)).into_values() {
            self.unpin(start);
        }
    }
}

impl<D: Driver> Drop for Pin<D> {
    fn drop(&mut self) {
        let Some(pins) = self.pins.upgrade() else { return };
        let found = lock(&pins.pieces).get_mut(&self.start).map(|(start, size)| {
            *size = 0;
            *start
        });
        if let Some(start) = found {
            pins.unpin(start);
            // Only now may the piece be pinned again.
            lock(&pins.pieces).remove(&self.start);
        }
    }
}
