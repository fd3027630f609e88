//! Time that the driver takes, and what it says is used: measured around each call that takes memory or gives it back.
#![expect(unsafe_code, reason = "signs the contract of Hooks")]
use core::fmt;
use core::time::Duration;
use omniheap::layers::{Call, CallKind, Hooks, Verdict};
use omniheap::{AnyBackend, Backend, HeapId, seam::Result};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Times and results of the calls.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// Inside the driver's calls.
    pub(super) driver: Duration,
    /// Asking the driver what is used, which is no part of a replay.
    pub(super) asking: Duration,
    /// The most that the driver said was used.
    pub(super) most_used: Option<u64>,
    started: Option<Instant>,
}

/// Measures around calls of one thread.
pub(super) struct Clock {
    /// The device to ask, and the heap, where the driver tells.
    asked: Option<(AnyBackend, HeapId)>,
    figures: Mutex<Figures>,
}

impl Clock {
    /// Creates a clock that asks `device` how much of `heap` is used whenever that has grown.
    pub(super) fn new(asked: Option<(AnyBackend, HeapId)>) -> Self {
        Self { asked, figures: Mutex::default() }
    }

    pub(super) fn figures(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes in use according to the driver.
    pub(super) fn used(&self) -> Option<u64> {
        let (device, heap) = self.asked.as_ref()?;
        Some(device.as_budget()?.budget(*heap).ok()?.used)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("figures", &self.figures()).finish_non_exhaustive()
    }
}

// SAFETY: nothing is changed on its way.
unsafe impl Hooks for Clock {
    fn before(&self, call: &Call) -> Verdict {
        if call.kind.is_memory() {
            self.figures().started = Some(Instant::now());
        }
        Verdict::Forward
    }

    fn after(&self, call: &Call, _: Result<()>) {
        let mut figures = self.figures();
        let Some(started) = figures.started.take() else { return };
        let now = Instant::now();
        figures.driver += now - started;
        if matches!(call.kind, CallKind::Allocate | CallKind::Create) {
            figures.most_used = figures.most_used.max(self.used());
            figures.asking += now.elapsed();
        }
    }
}
