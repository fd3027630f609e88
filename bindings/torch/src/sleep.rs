//! The C functions of tags: what sleeps and wakes.
#![expect(unsafe_code, reason = "exports C functions")]
use crate::figures::shown;
use crate::guard::{failed, guarded, text};
use crate::state::{self, answer, on};
use crate::tags::{Refusal, Tag, Target};
use core::ffi::{c_char, c_int};

/// Answer of a call when memory is short; every other failure is -1.
const SHORT: c_int = -2;

/// Lets the calling thread allocate in a tag, until `omniheap_torch_leave_tag`.
///
/// # Safety
///
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_torch_enter_tag(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    guarded(|| Tag::enter(unsafe { text(name, "tag") }?))
}

/// Ends what `omniheap_torch_enter_tag` began on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_leave_tag() -> c_int {
    guarded(Tag::leave)
}

/// Runs something that may be refused; -2 where memory of the device is missing.
fn refusable(work: impl FnOnce() -> Result<(), Refusal>) -> c_int {
    let mut is_short = false;
    let code = guarded(|| {
        work().map_err(|refusal| {
            is_short = refusal.is_short;
            refusal.line
        })
    });
    if is_short { SHORT } else { code }
}

/// Text from a C string, where there is one.
///
/// # Safety
///
/// `name` is null or a C string.
unsafe fn optional<'a>(name: *const c_char) -> Result<Option<&'a str>, String> {
    // SAFETY: the caller's promise.
    if name.is_null() { Ok(None) } else { unsafe { text(name, "tag") }.map(Some) }
}

/// Moves the bytes of a tag on a device to a store (`host`, `disk:/directory`, `origin` or `nothing`), and returns its memory to the driver. A tag
/// of null is all that are awake, and everything else that is empty goes back to the driver too.
///
/// # Safety
///
/// `tag` is null or a C string, and so is `to`. Until the tag is awake again, nothing uses an address in it, but for work that streams
/// were given before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_torch_sleep(
    device: c_int,
    tag: *const c_char,
    to: *const c_char,
) -> c_int {
    refusable(|| {
        // SAFETY: the caller's promise.
        let tag = unsafe { optional(tag) }?;
        // SAFETY: as above.
        let target = Target::parse(unsafe { text(to, "to") }?)?;
        let found = state::device(device).map_err(failed("sleep"))?;
        // SAFETY: as above.
        on!(found, it => unsafe { it.sleep(tag, &target) })
    })
}

/// Gives a tag on a device its memory and its bytes back, at the same addresses; a tag of null is all that sleep. Returns -2 where the
/// device has too little memory: the tag sleeps on. `host_mapped` bytes at most may be host memory then, which the device reaches over the link.
///
/// # Safety
///
/// `tag` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_torch_wake(
    device: c_int,
    tag: *const c_char,
    host_mapped: u64,
) -> c_int {
    refusable(|| {
        // SAFETY: the caller's promise.
        let tag = unsafe { optional(tag) }?;
        let found = state::device(device).map_err(failed("wake"))?;
        on!(found, it => it.wake(tag, host_mapped))
    })
}

/// Takes host memory for sleeping bytes and has a device pin it, until `bytes` are there: in the background, unless `wait` is not 0.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_prepare_sleep(device: c_int, bytes: u64, wait: c_int) -> c_int {
    answer!(device, "prepare_sleep", it => {
        it.prepare_sleep(bytes, wait != 0).map_err(failed("prepare_sleep"))
    })
}

/// Says where the bytes of each tag of a device are, as JSON; null on failure.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_torch_residence(device: c_int) -> *const c_char {
    shown(|| {
        let found = state::device(device).map_err(failed("residence"))?;
        Ok(on!(found, it => it.residence()).to_string())
    })
}
