//! Graphs that are being captured: memory is the driver's own business meanwhile.
#![expect(unsafe_code, reason = "asks the driver for captures")]
use crate::books;
use crate::real::{Handle, Real};
use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

thread_local! {
    /// True if this thread is ending a capture.
    static ENDING: Cell<bool> = const { Cell::new(false) };
}

static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// Returns true if a capture is under way somewhere.
#[inline]
pub(crate) fn is_under_way() -> bool {
    UNDER_WAY.load(Relaxed) > 0
}

/// Notes that a capture is about to begin: nothing marks or waits for a device from now on.
pub(crate) fn begin() {
    UNDER_WAY.fetch_add(1, Relaxed);
    books::each(|book| book.hold());
}

/// Ends what [`begin`] began.
pub(crate) fn end() {
    let less = |count: usize| count.checked_sub(1);
    if UNDER_WAY.fetch_update(Relaxed, Relaxed, less).is_ok() {
        books::each(|book| book.release());
    }
}

/// Returns true if a stream is captured; where the driver does not tell, it answers the call itself as well.
pub(crate) fn is_captured(real: &Real, stream: Handle) -> bool {
    let mut status = 0;
    // SAFETY: the caller of the driver's function promises a live stream; a valid out-pointer.
    let asked = real.cuStreamIsCapturing.map(|ask| unsafe { ask(stream, &raw mut status) });
    asked != Some(0) || status != 0
}

/// Notes that a program is about to end a capture.
pub(crate) fn ending(real: &Real, stream: Handle) {
    ENDING.set(is_captured(real, stream));
}

/// Notes that the driver has answered; a capture that nothing can be ended of any more has ended, whatever became of it.
pub(crate) fn ended(real: &Real, stream: Handle) {
    if ENDING.take() && !is_captured(real, stream) {
        end();
    }
}
