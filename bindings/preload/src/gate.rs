//! The gate: calls that use device memory wait here while that memory sleeps.
//!
//! The gate exists only if memory can sleep. Closing it waits for calls that are already past it, so that their work is in a
//! stream before the sleep marks all streams.
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use core::time::Duration;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

thread_local! {
    /// True if this thread is counted as past the gate.
    static PAST: Cell<bool> = const { Cell::new(false) };
}

/// True if memory can sleep.
static STANDS: AtomicBool = AtomicBool::new(false);
static CLOSED: AtomicBool = AtomicBool::new(false);
/// Calls that are past the gate.
static CALLS: AtomicUsize = AtomicUsize::new(0);
static OPENED: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());

/// The longest wait for calls that are past the gate.
const PATIENCE: Duration = Duration::from_secs(30);

/// Builds the gate, open.
pub(crate) fn build() {
    STANDS.store(true, SeqCst);
}

/// Passes the gate, once it is open.
#[inline]
pub(crate) fn pass() {
    if STANDS.load(SeqCst) {
        enter();
    }
}

#[cold]
fn enter() {
    loop {
        CALLS.fetch_add(1, SeqCst);
        if !CLOSED.load(SeqCst) {
            return PAST.set(true);
        }
        CALLS.fetch_sub(1, SeqCst);
        wait();
    }
}

/// Notes that a call that passed the gate has returned.
#[inline]
pub(crate) fn leave() {
    if PAST.take() {
        CALLS.fetch_sub(1, SeqCst);
    }
}

/// Waits until the gate is open.
pub(crate) fn wait() {
    let mut lock = OPENED.0.lock().unwrap_or_else(PoisonError::into_inner);
    while CLOSED.load(SeqCst) {
        lock = OPENED.1.wait(lock).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Closes the gate, and waits for the calls that are past it. If one does not return, opens the gate again and returns false.
pub(crate) fn close() -> bool {
    CLOSED.store(true, SeqCst);
    let began = Instant::now();
    while CALLS.load(SeqCst) > 0 {
        if began.elapsed() > PATIENCE {
            open();
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Opens the gate.
pub(crate) fn open() {
    let _lock = OPENED.0.lock().unwrap_or_else(PoisonError::into_inner);
    CLOSED.store(false, SeqCst);
    OPENED.1.notify_all();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_waits_while_the_gate_is_closed_and_a_sleep_waits_for_calls_that_passed() {
        build();
        pass();
        let closing = thread::spawn(close);
        thread::sleep(Duration::from_millis(20));
        assert!(!closing.is_finished(), "a call is past the gate");
        leave();
        assert!(closing.join().expect("it does not panic"));
        let call = thread::spawn(|| {
            pass();
            leave();
        });
        thread::sleep(Duration::from_millis(20));
        assert!(!call.is_finished(), "the gate is closed");
        open();
        call.join().expect("it does not panic");
        assert_eq!(CALLS.load(SeqCst), 0);
    }
}
