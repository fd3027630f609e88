//! A mark on threads that are inside this library, and on forked processes.
//!
//! A call from within this library, by a backend or a signal handler, goes straight to the driver. So no thread waits for a lock that it
//! holds itself. HIP's own calls count as within: where CUDA answers them, its calls are not the program's.
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
    /// Enters the library. `None` for a thread that is inside already, and in a fork, because its copy of our books is not valid.
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

/// Returns true if this process is a fork of the process that opened the books.
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
