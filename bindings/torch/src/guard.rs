//! Guard around every exported function: panics end here, and failures leave a text.
#![expect(unsafe_code, reason = "reads C strings, and learns of forks")]
use core::cell::RefCell;
use core::ffi::{CStr, c_char, c_int};
use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicBool, Ordering};
use omniheap::Error;
use std::ffi::CString;
use std::panic::catch_unwind;
use std::sync::{Mutex, Once};

/// Message of the last allocation that failed, for `omniheap_torch_explain_oom`.
pub(crate) static LAST_OOM: Mutex<String> = Mutex::new(String::new());

/// Message for a forked process.
pub(crate) const FORKED: &str =
    "device memory cannot be used in a forked process; start it with the spawn method";

/// Message for a panic.
pub(crate) const BUG: &str = "omniheap met a bug of its own; please report it with what was called";

static IS_FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn forked() {
    IS_FORKED.store(true, Ordering::Relaxed);
}

/// Notices forks of this process from now on.
pub(crate) fn watch_forks() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the handler only stores to an atomic, which is allowed after a fork. Without memory for it, forks are
        // not noticed, and the driver refuses its calls.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
}

/// Returns true if this process is a fork of the one that opened the devices: the driver does not work in it.
#[inline]
pub(crate) fn is_forked() -> bool {
    IS_FORKED.load(Ordering::Relaxed)
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Keeps a text for this thread and returns its address, which is good until the thread's next call.
pub(crate) fn say(text: &str) -> *const c_char {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    said(|message| {
        *message.borrow_mut() = text;
        message.borrow().as_ptr()
    })
}

/// The thread's text; a thread that is ending has none any more.
fn said(with: impl FnOnce(&RefCell<CString>) -> *const c_char) -> *const c_char {
    MESSAGE.try_with(with).unwrap_or(c"".as_ptr())
}

/// The last text that was kept for this thread.
pub(crate) fn last() -> *const c_char {
    said(|message| message.borrow().as_ptr())
}

/// Runs something that may fail; on failure the thread's message says why, and the result is -1.
///
/// Nothing runs in a forked process: another thread may have held any lock when it was forked, and what the parent writes is
/// the parent's.
pub(crate) fn guarded(work: impl FnOnce() -> Result<(), String>) -> c_int {
    if is_forked() {
        say(FORKED);
        return -1;
    }
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => 0,
        Ok(Err(line)) => {
            say(&line);
            -1
        }
        Err(_) => {
            say(BUG);
            -1
        }
    }
}

/// Text from a C string.
///
/// # Safety
///
/// `text` is null or a C string.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, String> {
    if text.is_null() {
        return Err(format!("{what} is a null pointer; pass a C string"));
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| format!("{what} is not UTF-8"))
}

/// Returns a function that words an error of a call, with what the call was doing.
pub(crate) fn failed(doing: &str) -> impl Fn(Error) -> String {
    move |error| format!("{doing}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said() -> String {
        // SAFETY: the last text of this thread, a C string that stays until its next call.
        unsafe { CStr::from_ptr(last()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn failures_and_panics_end_here_and_leave_a_text() {
        say("earlier");
        assert_eq!((guarded(|| Ok(())), said()), (0, "earlier".into()));
        assert_eq!((guarded(|| Err("a\0b".into())), said()), (-1, "a b".into()));
        assert_eq!(guarded(|| panic!("a bug")), -1);
        assert!(said().starts_with("omniheap met a bug of its own"), "{}", said());
    }
}
