//! The end of one piece of work, which others wait for.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Set once, when the work has ended.
#[derive(Debug, Default)]
pub(crate) struct Marker {
    ended: Mutex<Option<Instant>>,
    bell: Condvar,
}

impl Marker {
    /// Returns a marker that is already set.
    pub(crate) fn ended() -> Arc<Self> {
        Arc::new(Self { ended: Mutex::new(Some(Instant::now())), bell: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the work as ended.
    pub(crate) fn set(&self) {
        *self.lock() = Some(Instant::now());
        self.bell.notify_all();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.lock().is_some()
    }

    /// Returns the time at which the work ended, if it has.
    pub(crate) fn time(&self) -> Option<Instant> {
        *self.lock()
    }

    /// Waits for the end.
    pub(crate) fn wait(&self) {
        let wait = self.bell.wait_while(self.lock(), |ended| ended.is_none());
        drop(wait.unwrap_or_else(PoisonError::into_inner));
    }
}
