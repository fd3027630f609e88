//! A backend that asks the arbiter before it takes device memory from the driver.
#![expect(unsafe_code, reason = "signs the contract of Hooks")]

use crate::frame::Refusal;
use crate::tenant::Tenant;
use crate::{ArbiterError, Arbitrated};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use omniheap_layers::{Call, CallKind, Hooks, Layer, Verdict};
use omniheap_seam::{Backend, Error, ErrorKind, Result};
use std::sync::Arc;

/// Hooks of [`Arbitrated`]: ask the arbiter for memory, and tell it what was given back.
#[derive(Debug)]
pub struct Tenancy {
    tenant: Arc<Tenant>,
    /// True for each heap that lies in the memory of the device, which alone is divided.
    divided: Vec<bool>,
    /// Bytes that were granted for this device and not given back.
    held: AtomicU64,
}

impl Drop for Tenancy {
    /// The device was closed just before, and with it went what the driver had refused to take back.
    fn drop(&mut self) {
        self.give(self.held.load(Relaxed));
    }
}

/// Makes a backend take its device memory with the arbiter's permission only. Without a tenant, no permission is asked.
pub fn arbitrated<B: Backend>(backend: B, tenant: impl Into<Option<Arc<Tenant>>>) -> Arbitrated<B> {
    let caps = backend.caps();
    let divided = caps.heap_ids().map(|(heap, _)| caps.is_device_memory(heap)).collect();
    let tenancy = |tenant| Tenancy { tenant, divided, held: AtomicU64::new(0) };
    let tenancy = tenant.into().map(tenancy);
    Layer::wrap(backend, tenancy)
}

impl Tenancy {
    /// Returns this process as the arbiter knows it.
    #[must_use]
    pub const fn tenant(&self) -> &Arc<Tenant> {
        &self.tenant
    }

    fn is_divided(&self, call: &Call) -> bool {
        let heap = call.heap.map(|heap| usize::from(heap.0));
        heap.and_then(|heap| self.divided.get(heap)).copied().unwrap_or(false)
    }

    fn take(&self, bytes: u64) -> Result<()> {
        self.tenant.take(bytes).map_err(|error| error_of(&error))?;
        self.held.fetch_add(bytes, Relaxed);
        Ok(())
    }

    fn give(&self, bytes: u64) {
        if bytes > 0 && self.tenant.is_own() {
            self.held.fetch_sub(bytes, Relaxed);
            self.tenant.give(bytes);
        }
    }
}

fn error_of(error: &ArbiterError) -> Error {
    match error {
        ArbiterError::Forked => ErrorKind::DeviceLost.because(
            "a forked child has neither its parent's memory nor its arbiter: start a new process instead",
        ),
        ArbiterError::Refused(Refusal::Never) => ErrorKind::ExceedsLimit.into(),
        ArbiterError::Refused(Refusal::OverQuota) => ErrorKind::OutOfDeviceMemory
            .because("the arbiter's quota for this process; see `omniheap tenants`"),
        ArbiterError::Refused(_) => ErrorKind::OutOfDeviceMemory
            .because("other tenants hold the memory; see `omniheap tenants`"),
        // No shortage: a smaller request would fail as this one does, and so would freed memory.
        ArbiterError::Version(..) => ErrorKind::Driver
            .because("the arbiter is of another version; use the same omniheap on both sides"),
        _ => ErrorKind::Driver.because("the arbiter does not answer; start `omniheap serve` again"),
    }
}

/// Returns true if a call takes memory from the driver. Imported memory was taken by its exporter.
const fn takes(kind: CallKind) -> bool {
    matches!(kind, CallKind::Allocate | CallKind::AllocateExportable | CallKind::Create)
}

// SAFETY: caps, sizes, addresses and epochs pass unchanged.
unsafe impl Hooks for Tenancy {
    fn before(&self, call: &Call) -> Verdict {
        if call.size == 0 || !takes(call.kind) || !self.is_divided(call) {
            return Verdict::Forward;
        }
        self.take(call.size).map_or_else(Verdict::Refuse, |()| Verdict::Forward)
    }

    fn after(&self, call: &Call, result: Result<()>) {
        let gives = match call.kind {
            kind if takes(kind) => result.is_err(),
            // Memory that the driver refuses to take back is lost until the device is closed, and nobody else can have
            // it.
            CallKind::Free => result.is_ok() && call.origin.is_some_and(takes),
            CallKind::Destroy => result.is_ok(),
            _ => false,
        };
        if gives && self.is_divided(call) {
            self.give(call.size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameError;
    use std::path::PathBuf;

    /// Programs halve their batch, or free what they can, for the kinds that mean a shortage.
    #[test]
    fn only_what_the_arbiter_refuses_for_want_of_memory_is_a_shortage() {
        let path = PathBuf::new;
        let failures = [
            ArbiterError::Version(path(), FrameError::Version(1)),
            ArbiterError::Lost(path()),
            ArbiterError::Silent(path()),
            ArbiterError::System { path: path(), error: std::io::ErrorKind::NotFound.into() },
        ];
        for failure in failures {
            let error = error_of(&failure);
            assert_eq!(error.kind(), ErrorKind::Driver, "{failure:?}");
            assert!(error.to_string().contains("the arbiter"), "{error}");
        }
        let short = error_of(&ArbiterError::Refused(Refusal::OverQuota));
        assert_eq!(short.kind(), ErrorKind::OutOfDeviceMemory);
    }
}
