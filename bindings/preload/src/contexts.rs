//! Contexts that come and go: with the last use of one ends its book.
#![expect(unsafe_code, reason = "reads what the driver wrote, and asks it for contexts")]
use crate::real::{Handle, Real};
use crate::{Code, books, capture, ending, lock};
use core::cell::Cell;
use core::ptr;
use std::sync::Mutex;

/// Contexts that the program attached to, once for each time.
static ATTACHED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Reads a context that the driver gave to the program.
fn given_context(code: Code, out: *const Handle) -> Option<usize> {
    if code != 0 || out.is_null() {
        return None;
    }
    // SAFETY: the driver wrote there just now.
    Some(unsafe { out.read() }.addr())
}

/// Notes that the program attached to a context.
pub(crate) fn attached(code: Code, out: *const Handle) -> Option<()> {
    lock(&ATTACHED).push(given_context(code, out)?);
    Some(())
}

/// Closes the book of a context that the program detaches from for the last time; the driver refuses one that is not current.
pub(crate) fn detach(real: &Real, context: Handle) -> Option<Code> {
    if books::current_context(real) != Some(context) {
        return None;
    }
    let mut attached = lock(&ATTACHED);
    if let Some(at) = attached.iter().position(|it| *it == context.addr()) {
        attached.swap_remove(at);
        return None;
    }
    drop(attached);
    destroy(real, context)
}

/// Closes the book of a context that the program destroys; the driver refuses that for a primary one.
pub(crate) fn destroy(real: &Real, context: Handle) -> Option<Code> {
    let book = books::all().find(|book| book.context() == context.addr());
    if book.is_some_and(|book| primary(real, book.ordinal) == Some(context)) {
        return None;
    }
    close(real, context)
}

/// Closes the book of a context that is about to end, while the driver can still take its memory.
pub(crate) fn close(real: &Real, context: Handle) -> Option<Code> {
    // First, so that this book may wait again as well.
    capture::end_all(context);
    lock(&ATTACHED).retain(|attached| *attached != context.addr());
    let book = books::take(context.addr())?;
    // SAFETY: the program's context, live until the driver's function destroys it.
    if unsafe { real.cuCtxPushCurrent_v2?(context) } == 0 {
        book.look_at_guards();
        ending::keep(book);
        book.close();
        let mut popped = ptr::null_mut();
        // SAFETY: a valid out-pointer; pushed above.
        unsafe { real.cuCtxPopCurrent_v2?(&raw mut popped) };
    }
    None
}

/// Returns the primary context of a device, where a book may be forgotten with it, or that it was left to the driver.
pub(crate) fn primary(real: &Real, device: i32) -> Option<Handle> {
    if !books::all().any(|book| book.ordinal == device) && !books::has_refused() {
        return None;
    }
    let (mut flags, mut active) = (0, 0);
    // SAFETY: valid out-pointers.
    let code = unsafe { real.cuDevicePrimaryCtxGetState?(device, &raw mut flags, &raw mut active) };
    if code != 0 || active == 0 {
        return None;
    }
    let mut context = ptr::null_mut();
    // SAFETY: a valid out-pointer.
    if unsafe { real.cuDevicePrimaryCtxRetain?(&raw mut context, device) } != 0 {
        return None;
    }
    // SAFETY: retained above; the program retains it as well, since it is active.
    unsafe { real.cuDevicePrimaryCtxRelease_v2?(device) };
    Some(context)
}

thread_local! {
    /// The primary context that this thread is releasing.
    static RELEASING: Cell<Handle> = const { Cell::new(ptr::null_mut()) };
}

/// Notes that a program is about to release a primary context. Others may have retained it, so nothing is waited for.
pub(crate) fn releasing(real: &Real, device: i32) {
    RELEASING.set(primary(real, device).unwrap_or(ptr::null_mut()));
}

/// Closes the book of a primary context that the program released, if it is gone: the driver took its plain memory, and not its pages.
pub(crate) fn released(real: &Real, device: i32) -> Option<()> {
    let context = RELEASING.replace(ptr::null_mut());
    if context.is_null() {
        return None;
    }
    let (mut flags, mut active) = (0, 0);
    // SAFETY: valid out-pointers.
    let code = unsafe { real.cuDevicePrimaryCtxGetState?(device, &raw mut flags, &raw mut active) };
    if code == 0 && active == 0 {
        capture::end_all(context);
        books::take(context.addr()).inspect(|book| ending::keep(book)).inspect(|book| book.close());
    }
    Some(())
}

/// A green context of the program, which retains the primary context of its device.
struct Green {
    green: usize,
    device: i32,
    /// The same as other calls know it, once the program has asked.
    context: usize,
}

static GREENS: Mutex<Vec<Green>> = Mutex::new(Vec::new());

/// Notes that the program made a green context.
pub(crate) fn made_green(code: Code, out: *const Handle, device: i32) -> Option<()> {
    let green = given_context(code, out)?;
    lock(&GREENS).push(Green { green, device, context: 0 });
    Some(())
}

/// Leaves a green context to the driver: its marks are behind its own work alone, and others use its memory as well.
pub(crate) fn is_green(code: Code, out: *const Handle, green: Handle) -> Option<()> {
    let context = given_context(code, out)?;
    books::refuse(context);
    let mut greens = lock(&GREENS);
    greens.iter_mut().find(|it| it.green == green.addr())?.context = context;
    Some(())
}

/// Notes that the program is about to destroy a green context, and with it perhaps the last use of the primary one.
pub(crate) fn ending_green(real: &Real, green: Handle) -> Option<()> {
    let greens = lock(&GREENS);
    let device = greens.iter().find(|it| it.green == green.addr())?.device;
    drop(greens);
    releasing(real, device);
    Some(())
}

/// Notes that the driver has answered: its handle may be another context's now.
pub(crate) fn ended_green(real: &Real, code: Code, green: Handle) -> Option<()> {
    let mut greens = lock(&GREENS);
    let at = greens.iter().position(|it| code == 0 && it.green == green.addr())?;
    let Green { device, context, .. } = greens.swap_remove(at);
    drop(greens);
    books::take(context);
    released(real, device)
}
