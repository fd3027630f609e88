//! A layer that shows other caps than the device has, that can stop a call on its way to the driver, that lets a held
//! timeline go when a call would wait for it, and that remembers which timelines run after which, and which answers the seam
//! does not list.
#![expect(unsafe_code, reason = "signs the contract of Hooks")]
use crate::rig::Held;
use core::fmt;
use omniheap_core::{Caps, ErrorKind, Point, Result, TimelineId};
use omniheap_layers::{Call, CallKind, Hooks, Verdict, is_documented};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Hooks of the layer.
pub struct Look {
    caps: Caps,
    stop: Mutex<Option<(CallKind, Arc<Stop>)>>,
    held: Mutex<Option<Held>>,
    orders: Mutex<Vec<(TimelineId, Point)>>,
    unlisted: Mutex<Vec<(CallKind, ErrorKind)>>,
}

impl fmt::Debug for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Look").finish_non_exhaustive()
    }
}

impl Look {
    pub(crate) const fn new(caps: Caps) -> Self {
        Self {
            caps,
            stop: Mutex::new(None),
            held: Mutex::new(None),
            orders: Mutex::new(Vec::new()),
            unlisted: Mutex::new(Vec::new()),
        }
    }

    /// Keeps a timeline held until a call reaches the driver that may wait for it, or until [`let_go`](Self::let_go).
    pub(crate) fn hold_until_waited_for(&self, held: Held) {
        *lock(&self.held) = Some(held);
    }

    /// Lets the held timeline go on, if it is still held.
    pub(crate) fn let_go(&self) {
        let held = lock(&self.held).take();
        drop(held);
    }

    /// Returns the timelines that were told to run after others since the last call, with the points, in order.
    pub(crate) fn take_orders(&self) -> Vec<(TimelineId, Point)> {
        core::mem::take(&mut *lock(&self.orders))
    }

    /// Returns the first answer of the device that the seam's documents do not list for its call.
    pub(crate) fn unlisted(&self) -> Option<(CallKind, ErrorKind)> {
        lock(&self.unlisted).first().copied()
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

/// Returns true if a driver may wait for its timelines in a call of this kind.
const fn may_wait(kind: CallKind) -> bool {
    use CallKind::{Close, Read, Wait, WaitIdle};
    matches!(kind, Wait | WaitIdle | Close | Read) || kind.gives_up()
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
        if may_wait(call.kind) {
            self.let_go();
        }
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

    fn after(&self, call: &Call, result: Result<()>) {
        let refused = result.err().map(|error| error.kind());
        let unlisted = refused.filter(|kind| !is_documented(call.kind, *kind));
        lock(&self.unlisted).extend(unlisted.map(|kind| (call.kind, kind)));
        if let (CallKind::Order, Some(timeline), Some(point), Ok(())) =
            (call.kind, call.timeline, call.point, result)
        {
            lock(&self.orders).push((timeline, point));
        }
    }
}
