//! Ctrl-C in long work: what is done is shown and said to be partial. A second Ctrl-C ends the process at once.
#![cfg_attr(unix, expect(unsafe_code, reason = "installs a signal handler"))]
use crate::Failure;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use core::time::Duration;
use std::panic::resume_unwind;
use std::thread;

static WANTED: AtomicBool = AtomicBool::new(false);

/// Lets the first Ctrl-C set a flag instead of ending the process. The command must look at [`is_wanted`] from then on.
///
/// Elsewhere than on Unix, Ctrl-C ends the process as before. Where whoever started the process had it ignore Ctrl-C, as shells do in the
/// background and `nohup` does, it goes on to.
pub fn watch() {
    #[cfg(unix)]
    if !is_ignored() {
        extern "C" fn note(_: libc::c_int) {
            WANTED.store(true, Relaxed);
            // SAFETY: `signal` may be called in a handler, and the default action is a valid disposition.
            unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        }
        let note: extern "C" fn(libc::c_int) = note;
        // SAFETY: the handler has the type that `signal` expects, and does only what a signal handler may: it stores to an
        // atomic and calls `signal`.
        unsafe { libc::signal(libc::SIGINT, note as libc::sighandler_t) };
    }
}

/// Returns whether the process ignores Ctrl-C.
#[cfg(unix)]
fn is_ignored() -> bool {
    let mut now = core::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no new action is set, and the present one is written to a place for it.
    let asked = unsafe { libc::sigaction(libc::SIGINT, core::ptr::null(), now.as_mut_ptr()) };
    // SAFETY: all zeros are a valid value, and the call writes a whole one.
    let now = unsafe { now.assume_init() };
    asked == 0 && now.sa_sigaction == libc::SIG_IGN
}

/// Runs work on a thread of its own until it ends or the user interrupts. The end of the process ends the thread.
///
/// The caller drops its own values, such as an unfinished file, as after every failure.
pub fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    watch();
    let thread = thread::spawn(work);
    if wait(|| thread.is_finished()) {
        return Ok(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
    }
    Err(Failure::interrupted("interrupted: the work is partial; no file is written"))
}

/// Waits until work is done or the user interrupts. Returns true if the work is done.
pub fn wait(is_done: impl Fn() -> bool) -> bool {
    /// Pause between two looks.
    const NAP: Duration = Duration::from_millis(20);
    while !is_done() {
        if is_wanted() {
            return false;
        }
        thread::sleep(NAP);
    }
    true
}

/// Returns whether the user wants to end.
pub fn is_wanted() -> bool {
    WANTED.load(Relaxed)
}

/// Fails if the user wanted to end when `done` of `all` were done.
pub fn check(done: usize, all: usize, what: &str) -> Result<(), Failure> {
    if is_wanted() && done < all {
        return Err(Failure::interrupted(format!(
            "interrupted: the results are partial, {done} of {all} {what}"
        )));
    }
    Ok(())
}
