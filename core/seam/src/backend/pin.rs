//! Host memory that a device has pinned for its copies.
#![expect(unsafe_code, reason = "declares what a caller promises who pins memory")]
use crate::{Backend, Result};
use alloc::boxed::Box;
use core::{any::Any, fmt, ptr::NonNull};

/// Host memory that a device has pinned, until this is dropped.
pub struct HostPin {
    _unpins: Box<dyn Any + Send + Sync>,
}

impl HostPin {
    /// Wraps what unpins the memory when it is dropped.
    pub fn new(unpins: impl Send + Sync + 'static) -> Self {
        Self { _unpins: Box::new(unpins) }
    }
}

impl fmt::Debug for HostPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostPin").finish_non_exhaustive()
    }
}

/// Pins host memory for the copies of a pool's device.
pub struct HostPinner<'a>(&'a PinHost<'a>);

/// A device's way to pin: where the bytes begin, and how many there are. They stay mapped until the pin is dropped.
type PinHost<'a> = dyn Fn(NonNull<u8>, usize) -> Result<Option<HostPin>> + Sync + 'a;

impl HostPinner<'_> {
    /// Calls `with` a pinner for the copies of a backend, where it copies at all.
    ///
    /// # Errors
    ///
    /// Those of `with`.
    pub fn lend(
        backend: &impl Backend,
        with: impl FnOnce(&HostPinner<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(transfer) = backend.as_transfer() else { return Ok(()) };
        // SAFETY: only `pin` calls it, whose caller promises that the bytes stay mapped.
        with(&HostPinner(&|start, size| unsafe { transfer.pin_host(start, size) }))
    }

    /// Pins bytes until the returned value is dropped; nothing is returned where they are pinned already.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the device pins no memory of others; otherwise the driver's error.
    ///
    /// # Safety
    ///
    /// The `size` bytes from `start` on stay mapped until the returned value is dropped.
    pub unsafe fn pin(&self, start: NonNull<u8>, size: usize) -> Result<Option<HostPin>> {
        (self.0)(start, size)
    }
}

impl fmt::Debug for HostPinner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostPinner").finish_non_exhaustive()
    }
}
