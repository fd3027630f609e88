//! Graph captures. The driver itself answers calls about memory while a graph is captured.
#![expect(unsafe_code, reason = "asks the driver for captures")]
use crate::real::{Handle, Real};
use crate::{books, lock};
use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Mutex;

thread_local! {
    /// True if this thread is ending a capture, or the stream of one.
    static ENDING: Cell<bool> = const { Cell::new(false) };
}

static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
/// Streams in which captures began, and the contexts that were current then.
static CAPTURES: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// Returns true if a capture is under way somewhere.
#[inline]
pub(crate) fn is_under_way() -> bool {
    UNDER_WAY.load(Relaxed) > 0
}

/// Notes that a capture is about to begin. From now on nothing marks or waits for a device, because the capture may spread to any
/// context.
pub(crate) fn begin(real: &Real, stream: Handle) {
    let context = books::current_context(real).map_or(0, |context| context.addr());
    let _alone = books::alone();
    lock(&CAPTURES).push((stream.addr(), context));
    UNDER_WAY.fetch_add(1, Relaxed);
    books::each(|book| book.hold());
}

/// Notes that the capture of a stream has ended.
pub(crate) fn end(stream: Handle) {
    let at = |captures: &[(usize, usize)]| captures.iter().position(|it| it.0 == stream.addr());
    end_one(at);
}

/// Notes that a program is about to destroy a stream.
pub(crate) fn destroying(stream: Handle) {
    ENDING.set(is_under_way() && lock(&CAPTURES).iter().any(|it| it.0 == stream.addr()));
}

/// Notes that the driver has answered: a capture ends with its stream, and another stream may have its handle.
pub(crate) fn destroyed(stream: Handle, is_done: bool) {
    books::forget_last();
    if ENDING.take() && is_done {
        end(stream);
    }
}

/// Ends the captures of a context that is being destroyed.
pub(crate) fn end_all(context: Handle) {
    let at = |captures: &[(usize, usize)]| captures.iter().position(|it| it.1 == context.addr());
    while end_one(at) {}
}

/// Ends the capture that `find` chooses. Returns false if it chooses none.
fn end_one(find: impl Fn(&[(usize, usize)]) -> Option<usize>) -> bool {
    let _alone = books::alone();
    let mut captures = lock(&CAPTURES);
    let Some(at) = find(&captures) else { return false };
    captures.swap_remove(at);
    UNDER_WAY.fetch_sub(1, Relaxed);
    drop(captures);
    books::each(|book| book.release());
    true
}

/// Returns true if a stream is captured, or if the driver does not say: it then answers the call itself.
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

/// Notes that the driver has answered. A stream that is no longer captured has ended its capture, whatever the driver's code.
pub(crate) fn ended(real: &Real, stream: Handle) {
    if ENDING.take() && !is_captured(real, stream) {
        end(stream);
    }
}
