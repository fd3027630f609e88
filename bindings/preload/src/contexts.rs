//! CUDA's contexts, which come and go: with the last use of one ends its book. HIP has one for each device, which a reset alone ends.
#![expect(unsafe_code, reason = "reads what the driver wrote, and asks it for contexts")]
use crate::cuda::Nvidia;
use crate::real::Handle;
use crate::vendor::Vendor as _;
use crate::{Code, books, capture, ending, inside, lock};
use core::ffi::{c_int, c_uint};
use core::ptr;
use std::sync::{Mutex, MutexGuard};

/// Contexts that the program attached to, once for each time.
static ATTACHED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// A function of the driver that ends uses of the primary context of a device.
type End = unsafe extern "C" fn(c_int) -> Code;

/// Turns to begin and end uses of primary contexts. The next primary context of a device has the handle of the one before, so that the
/// end of that one must be noticed before the next begins.
static TURNS: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];

fn turn(device: c_int) -> MutexGuard<'static, ()> {
    // A fork may copy a turn that another thread has, and nobody would end there.
    inside::watch_forks();
    lock(&TURNS[usize::try_from(device).unwrap_or(0) % TURNS.len()])
}

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
pub(crate) fn detach(real: &Nvidia, context: Handle) -> Option<Code> {
    if real.context() != Some(context) {
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
pub(crate) fn destroy(real: &Nvidia, context: Handle) -> Option<Code> {
    let book = books::all::<Nvidia>().find(|book| book.context() == context.addr());
    let is_primary = |device| {
        let _turn = turn(device);
        primary(real, device) == Some(context)
    };
    if book.is_some_and(|book| is_primary(book.ordinal)) { None } else { close(real, context) }
}

/// Closes the book of a context that is about to end, while the driver can still take its memory.
fn close(real: &Nvidia, context: Handle) -> Option<Code> {
    // First, so that this book may wait again as well.
    capture::end_all::<Nvidia>(context);
    lock(&ATTACHED).retain(|attached| *attached != context.addr());
    let book = books::take::<Nvidia>(context.addr())?;
    // SAFETY: the program's context, live until the driver's function destroys it.
    if unsafe { real.cuCtxPushCurrent_v2?(context) } == 0 {
        books::end(book);
        let mut popped = ptr::null_mut();
        // SAFETY: a valid out-pointer; pushed above.
        unsafe { real.cuCtxPopCurrent_v2?(&raw mut popped) };
    }
    None
}

/// Returns the primary context of a device, where a book may be forgotten with it, or that it was left to the driver. The
/// caller has the device's [`turn`].
fn primary(real: &Nvidia, device: i32) -> Option<Handle> {
    if !books::all::<Nvidia>().any(|book| book.ordinal == device) && !books::has_refused::<Nvidia>()
    {
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
    // SAFETY: retained above; the program retains it as well: it is active, and releases wait for their turn.
    unsafe { real.cuDevicePrimaryCtxRelease_v2?(device) };
    Some(context)
}

/// Answers a call that retains a primary context.
pub(crate) fn retain(real: &Nvidia, out: *mut Handle, device: c_int) -> Option<Code> {
    let _turn = turn(device);
    // SAFETY: the caller's arguments, as it passed them.
    Some(unsafe { real.cuDevicePrimaryCtxRetain?(out, device) })
}

/// Answers a call that releases a primary context. Others may have retained it, so nothing is waited for.
pub(crate) fn release(real: &Nvidia, device: c_int, end: Option<End>) -> Option<Code> {
    let _turn = turn(device);
    let context = primary(real, device);
    // SAFETY: the caller's argument, as it passed it.
    let code = unsafe { end?(device) };
    notice_end(real, device, context);
    Some(code)
}

/// Answers a call that ends a primary context at once, and all green contexts of its device.
pub(crate) fn reset(real: &Nvidia, device: c_int, end: Option<End>) -> Option<Code> {
    let _turn = turn(device);
    if let Some(context) = primary(real, device) {
        close(real, context);
    }
    // SAFETY: the caller's argument, as it passed it.
    let code = unsafe { end?(device) };
    if code == 0 {
        let gone = lock(&GREENS).extract_if(.., |it| it.device == device).collect::<Vec<_>>();
        gone.iter().for_each(|it| books::forget_refused::<Nvidia>(it.context));
    }
    Some(code)
}

/// Closes the book of a primary context that is gone: the driver took its plain memory, and not its pages.
fn notice_end(real: &Nvidia, device: c_int, context: Option<Handle>) -> Option<()> {
    let context = context?;
    let (mut flags, mut active) = (0, 0);
    // SAFETY: valid out-pointers.
    let code = unsafe { real.cuDevicePrimaryCtxGetState?(device, &raw mut flags, &raw mut active) };
    if code == 0 && active == 0 {
        capture::end_all::<Nvidia>(context);
        books::take::<Nvidia>(context.addr())
            .inspect(|book| ending::keep(*book))
            .inspect(|book| book.gpu().end_context())
            .inspect(|book| book.close());
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

/// Answers a call that makes a green context.
pub(crate) fn make_green(
    real: &Nvidia,
    out: *mut Handle,
    resources: Handle,
    (device, flags): (c_int, c_uint),
) -> Option<Code> {
    let _turn = turn(device);
    // SAFETY: the caller's arguments, as it passed them.
    let code = unsafe { real.cuGreenCtxCreate?(out, resources, device, flags) };
    if let Some(green) = given_context(code, out) {
        lock(&GREENS).push(Green { green, device, context: 0 });
    }
    Some(code)
}

/// Leaves a green context to the driver: its marks are behind its own work alone, and others use its memory as well.
pub(crate) fn is_green(code: Code, out: *const Handle, green: Handle) -> Option<()> {
    let context = given_context(code, out)?;
    books::refuse::<Nvidia>(context);
    let mut greens = lock(&GREENS);
    greens.iter_mut().find(|it| it.green == green.addr())?.context = context;
    Some(())
}

/// Answers a call that destroys a green context, and with it perhaps the last use of the primary one.
pub(crate) fn end_green(real: &Nvidia, green: Handle) -> Option<Code> {
    let device = lock(&GREENS).iter().find(|it| it.green == green.addr())?.device;
    let _turn = turn(device);
    let context = primary(real, device);
    // SAFETY: the caller's argument, as it passed it.
    let code = unsafe { real.cuGreenCtxDestroy?(green) };
    if code == 0 {
        let mut greens = lock(&GREENS);
        let is_it = |it: &Green| (it.green, it.device) == (green.addr(), device);
        let gone = greens.iter().position(is_it).map(|at| greens.swap_remove(at));
        drop(greens);
        if let Some(gone) = gone {
            books::forget_refused::<Nvidia>(gone.context);
        }
        notice_end(real, device, context);
    }
    Some(code)
}
