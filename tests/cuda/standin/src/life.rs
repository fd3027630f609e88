//! Life of the driver in this process: started, ended, or on the wrong side of a fork.

#![expect(unsafe_code, reason = "registers what runs at exit and after a fork")]

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Once;

use crate::code::{Answer, Code};
use crate::count;
use crate::knobs::knobs;

static STARTED: AtomicBool = AtomicBool::new(false);
static ENDED: AtomicBool = AtomicBool::new(false);
/// True in a forked child of a process that had started the driver. The driver does not work there.
static FORKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Part of the driver's life that a function needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing, for names, versions and addresses of functions.
    Nothing,
    /// A driver that was started and has not ended.
    Start,
}

/// Refuses whatever comes after the end.
pub(crate) fn go_on() -> Answer {
    if ENDED.load(Ordering::Acquire) { Err(Code::DEINITIALIZED) } else { Ok(()) }
}

/// Refuses a function that may not run now.
pub(crate) fn admit(needs: Needs) -> Answer {
    if needs == Needs::Nothing {
        return Ok(());
    }
    go_on()?;
    if FORKED.load(Ordering::Acquire) || !STARTED.load(Ordering::Acquire) {
        return Err(Code::NOT_INITIALIZED);
    }
    if IN_CALLBACK.get() {
        return Err(Code::NOT_PERMITTED);
    }
    Ok(())
}

/// Starts the driver, as often as asked.
pub(crate) fn start() -> Answer {
    static ONCE: Once = Once::new();
    go_on()?;
    if FORKED.load(Ordering::Acquire) {
        return Err(Code::NOT_INITIALIZED);
    }
    if knobs().devices == 0 {
        return Err(Code::NO_DEVICE);
    }
    ONCE.call_once(|| {
        // SAFETY: the function is there until the process ends: nothing unloads this library, which has thread-locals.
        unsafe { libc::atexit(end) };
        // SAFETY: as above; the handler only stores a flag, which a child may do.
        unsafe { libc::pthread_atfork(None, None, Some(fork)) };
        STARTED.store(true, Ordering::Release);
    });
    Ok(())
}

/// Runs a function of the program. Inside it, calls of the driver are refused.
pub(crate) fn call_back(run: impl FnOnce()) {
    IN_CALLBACK.set(true);
    run();
    IN_CALLBACK.set(false);
}

extern "C" fn end() {
    ENDED.store(true, Ordering::Release);
    if !FORKED.load(Ordering::Acquire) {
        count::write();
    }
}

extern "C" fn fork() {
    FORKED.store(true, Ordering::Release);
}
