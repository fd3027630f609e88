//! Graph captures. The driver itself answers calls about memory while a graph is captured.
#![expect(unsafe_code, reason = "asks the driver for captures")]
use crate::real::Handle;
use crate::vendor::Vendor;
use crate::{books, lock};
use core::sync::atomic::Ordering::Relaxed;

/// Returns true if a capture is under way somewhere.
#[inline]
pub(crate) fn is_under_way<V: Vendor>() -> bool {
    V::state().under_way.load(Relaxed) > 0
}

/// Notes that a capture is about to begin. From now on nothing marks or waits for a device, because the capture may spread to any
/// context.
pub(crate) fn begin<V: Vendor>(real: &V, stream: Handle) {
    let context = real.context().map_or(0, |context| context.addr());
    let _alone = books::alone::<V>();
    lock(&V::state().captures).push((stream.addr(), context));
    V::state().under_way.fetch_add(1, Relaxed);
    books::each::<V>(|book| book.hold());
}

/// Notes that the capture of a stream has ended.
pub(crate) fn end<V: Vendor>(stream: Handle) {
    let at = |captures: &[(usize, usize)]| captures.iter().position(|it| it.0 == stream.addr());
    end_one::<V>(at);
}

/// Notes that a program is about to destroy a stream.
pub(crate) fn destroying<V: Vendor>(stream: Handle) {
    let is_its = |it: &(usize, usize)| it.0 == stream.addr();
    let is_ending = is_under_way::<V>() && lock(&V::state().captures).iter().any(is_its);
    V::thread().with(|thread| thread.is_ending.set(is_ending));
}

/// Notes that the driver has answered: a capture ends with its stream, and another stream may have its handle.
pub(crate) fn destroyed<V: Vendor>(stream: Handle, is_done: bool) {
    books::forget_last::<V>();
    if V::thread().with(|thread| thread.is_ending.take()) && is_done {
        end::<V>(stream);
    }
}

/// Ends the captures of a context that is being destroyed.
pub(crate) fn end_all<V: Vendor>(context: Handle) {
    let at = |captures: &[(usize, usize)]| captures.iter().position(|it| it.1 == context.addr());
    while end_one::<V>(at) {}
}

/// Ends the capture that `find` chooses. Returns false if it chooses none.
fn end_one<V: Vendor>(find: impl Fn(&[(usize, usize)]) -> Option<usize>) -> bool {
    let _alone = books::alone::<V>();
    let mut captures = lock(&V::state().captures);
    let Some(at) = find(&captures) else { return false };
    captures.swap_remove(at);
    V::state().under_way.fetch_sub(1, Relaxed);
    drop(captures);
    books::each::<V>(|book| book.release());
    true
}

/// Returns true if a stream is captured, or if the driver does not say: it then answers the call itself.
pub(crate) fn is_captured<V: Vendor>(real: &V, stream: Handle) -> bool {
    let mut status = 0;
    // SAFETY: the caller of the driver's function promises a live stream; a valid out-pointer.
    let asked = real.shared().is_capturing.map(|ask| unsafe { ask(stream, &raw mut status) });
    asked != Some(0) || status != 0
}

/// Notes that a program is about to end a capture.
pub(crate) fn ending<V: Vendor>(real: &V, stream: Handle) {
    let is_ending = is_captured(real, stream);
    V::thread().with(|thread| thread.is_ending.set(is_ending));
}

/// Notes that the driver has answered. A stream that is no longer captured has ended its capture, whatever the driver's code.
pub(crate) fn ended<V: Vendor>(real: &V, stream: Handle) {
    if V::thread().with(|thread| thread.is_ending.take()) && !is_captured(real, stream) {
        end::<V>(stream);
    }
}
