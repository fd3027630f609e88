//! Holding timelines back, so that a test decides when work finishes, and losing the device.
use core::sync::atomic::{AtomicBool, Ordering};
use omniheap_seam::lock;
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
        *lock(&self.is_open) = true;
        self.opened.notify_all();
    }

    pub(crate) fn wait(&self) {
        let guard = lock(&self.is_open);
        let opened = self.opened.wait_while(guard, |is_open| !*is_open);
        drop(opened.unwrap_or_else(PoisonError::into_inner));
    }
}

/// State of a lost device, and the waiters to wake.
#[derive(Default)]
pub(crate) struct Status {
    lost: AtomicBool,
    gates: Mutex<Vec<Arc<Gate>>>,
}

impl Status {
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Loses the device.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.open_all();
    }

    /// Remembers a gate, and forgets those without waiters.
    pub(crate) fn register(&self, gate: &Arc<Gate>) {
        let mut gates = lock(&self.gates);
        gates.retain(|gate| Arc::strong_count(gate) > 1);
        gates.push(Arc::clone(gate));
        // Losing the device opens the gates it finds; one that comes later opens itself.
        if self.is_lost() {
            gate.open();
        }
    }

    pub(crate) fn open_all(&self) {
        let gates = lock(&self.gates);
        gates.iter().for_each(|gate| gate.open());
    }
}
