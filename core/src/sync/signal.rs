//! Waiting for something that others do.
#![forbid(unsafe_code)]
use super::primitive::{Condvar, StdMutex};
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
}
