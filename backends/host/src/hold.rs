//! Holding a timeline back, so that a test decides when work finishes.
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Keeps a timeline from finishing anything submitted after it. Dropping it lets the timeline go on.
///
/// Made by [`Host::hold`](crate::Host::hold). It behaves like a kernel that runs until it is told to stop: earlier work
/// finishes, marks taken afterwards are not reached, other timelines run on.
#[derive(Debug)]
#[must_use = "dropping it lets the timeline go on at once"]
pub struct Hold {
    pub(crate) gate: Arc<Gate>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.gate.open();
    }
}

/// Closed until opened, then open for ever.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn open(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }

    pub(crate) fn wait(&self) {
        let guard = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = self.opened.wait_while(guard, |is_open| !*is_open);
        drop(opened.unwrap_or_else(PoisonError::into_inner));
    }
}
