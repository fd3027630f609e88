//! Which threads are in this library, and whether this process is a fork.
//!
//! A call from within, by the CUDA backend or by a signal handler that interrupts us, goes straight to the driver: nothing here
//! waits for a lock that its own thread holds.
#![expect(unsafe_code, reason = "learns of forks")]
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Once;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// Guard of a thread that is in this library.
pub(crate) struct Inside(());

impl Inside {
    /// Enters; `None` for a thread that is inside already, and in a fork, whose copy of our books is worth nothing.
    #[inline]
    pub(crate) fn enter() -> Option<Self> {
        if IS_FORKED.load(Relaxed) || INSIDE.replace(true) {
            return None;
        }
        Some(Self(()))
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// Returns true if this thread is in this library.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// Returns true if this process is a fork of the one whose books these are.
pub(crate) fn is_forked() -> bool {
    IS_FORKED.load(Relaxed)
}

extern "C" fn forked() {
    IS_FORKED.store(true, Relaxed);
}

/// Notices forks from now on.
pub(crate) fn watch_forks() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the handler only stores to an atomic, which is allowed after a fork. Without memory for it forks are not noticed,
        // and the driver refuses their calls.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
}
