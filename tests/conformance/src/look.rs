//! A layer that shows other caps than the device has, and that can stop a call on its way to the driver.
#![expect(unsafe_code, reason = "signs the contract of Hooks")]
use core::fmt;
use omniheap_core::Caps;
use omniheap_core::layer::{Call, CallKind, Hooks, Verdict};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What the layer does.
pub struct Look {
    caps: Caps,
    stop: Mutex<Option<(CallKind, Arc<Stop>)>>,
}

impl fmt::Debug for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Look").finish_non_exhaustive()
    }
}

impl Look {
    pub(crate) const fn new(caps: Caps) -> Self {
        Self { caps, stop: Mutex::new(None) }
    }

    /// Stops every call of a kind before it reaches the driver, until the result is dropped.
    pub(crate) fn stop(&self, kind: CallKind) -> Stopped {
        let stop = Arc::new(Stop::default());
        *lock(&self.stop) = Some((kind, Arc::clone(&stop)));
        Stopped(stop)
    }
}

#[derive(Default)]
struct Stop {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: u64,
    open: bool,
}

/// Calls that are stopped until this is dropped.
pub(crate) struct Stopped(Arc<Stop>);

impl Stopped {
    /// Waits until a call has been stopped.
    pub(crate) fn arrived(&self) {
        let state = lock(&self.0.state);
        let reached = self.0.changed.wait_while(state, |state| state.waiting == 0);
        drop(reached.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        lock(&self.0.state).open = true;
        self.0.changed.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// SAFETY: the caps are made once from the device's own, and only ever show it stricter; sizes and addresses pass.
unsafe impl Hooks for Look {
    fn caps<'a>(&'a self, _: &'a Caps) -> &'a Caps {
        &self.caps
    }

    fn before(&self, call: &Call) -> Verdict {
        let stop = lock(&self.stop).clone();
        if let Some((kind, stop)) = stop
            && kind == call.kind
        {
            let mut state = lock(&stop.state);
            state.waiting += 1;
            stop.changed.notify_all();
            let opened = stop.changed.wait_while(state, |state| !state.open);
            drop(opened.unwrap_or_else(PoisonError::into_inner));
        }
        Verdict::Forward
    }
}
