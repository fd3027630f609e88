//! Waiting for something that others do.
#![forbid(unsafe_code)]
use super::primitive::{Condvar, StdMutex};
use core::time::Duration;
use std::sync::PoisonError;

/// Something that happens again and again, and that threads wait for.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    count: StdMutex<u64>,
    changed: Condvar,
}

impl Signal {
    /// How often it happened so far.
    pub(crate) fn count(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that it happened.
    pub(crate) fn raise(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Waits until it has happened more than `count` times.
    pub(crate) fn wait_beyond(&self, count: u64) {
        let mut seen = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *seen <= count {
            seen = self.changed.wait(seen).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// As [`wait_beyond`](Self::wait_beyond), but not longer than `most`; may return early.
    pub(crate) fn wait_beyond_for(&self, count: u64, most: Duration) {
        let seen = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen <= count {
            drop(self.changed.wait_timeout(seen, most));
        }
    }
}
