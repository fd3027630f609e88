//! Devices that one case hands on to the next: opening one takes half a second on some machines.
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Devices that no case uses now.
#[derive(Debug)]
pub struct Spares<B>(Mutex<Vec<Arc<B>>>);

impl<B> Default for Spares<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B> Spares<B> {
    /// No device yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// A device for one case alone: one that an earlier case is done with, or a new one.
    ///
    /// # Errors
    ///
    /// Those of `open`.
    pub fn take<E>(&'static self, open: impl FnOnce() -> Result<B, E>) -> Result<Lease<B>, E> {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let device = spare.map_or_else(|| open().map(Arc::new), Ok)?;
        Ok(Lease { device, home: self, lost: AtomicBool::new(false) })
    }
}

/// A device until the end of a case, when it is handed on.
#[derive(Debug)]
pub struct Lease<B: 'static> {
    device: Arc<B>,
    home: &'static Spares<B>,
    lost: AtomicBool,
}

impl<B> Lease<B> {
    /// The device.
    #[must_use]
    pub const fn device(&self) -> &Arc<B> {
        &self.device
    }

    /// Keeps it from being handed on.
    pub fn lose(&self) {
        self.lost.store(true, Relaxed);
    }
}

impl<B> Drop for Lease<B> {
    fn drop(&mut self) {
        if !self.lost.load(Relaxed) {
            let mut spares = self.home.0.lock().unwrap_or_else(PoisonError::into_inner);
            spares.push(Arc::clone(&self.device));
        }
    }
}
