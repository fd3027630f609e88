//! Contexts, and the stack of them that each thread has.

use core::cell::RefCell;
use core::mem::ManuallyDrop;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::budget::DEVICES;
use crate::code::{Answer, Code};
use crate::handle;
use crate::knobs::knobs;

#[derive(Debug)]
struct Context {
    device: u32,
    flags: u32,
    /// The error that all of its work ended with.
    error: Option<Code>,
    /// Times it was attached to, beside its making.
    attached: u32,
    limits: BTreeMap<u32, usize>,
}

/// A device's own context; its handle stays when it is reset.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Primary {
    handle: u64,
    /// Times it was retained, less the times it was released.
    retained: u32,
    pub(crate) flags: u32,
    pub(crate) is_active: bool,
}

#[derive(Debug)]
struct State {
    contexts: BTreeMap<u64, Context>,
    primaries: [Primary; DEVICES],
}

static STATE: Mutex<State> = Mutex::new(State {
    contexts: BTreeMap::new(),
    primaries: [Primary { handle: 0, retained: 0, flags: 0, is_active: false }; DEVICES],
});

thread_local! {
    // Never dropped: programs call the driver when their threads, and they themselves, end.
    static STACK: RefCell<ManuallyDrop<Vec<u64>>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks the number of a device.
pub(crate) fn device(number: i32) -> Answer<u32> {
    let known = u32::try_from(number).ok().filter(|&number| number < knobs().devices);
    known.ok_or(Code::INVALID_DEVICE)
}

impl State {
    fn add(&mut self, handle: u64, device: u32, flags: u32) {
        let context = Context { device, flags, error: None, attached: 0, limits: BTreeMap::new() };
        self.contexts.insert(handle, context);
    }
}

/// Makes a context.
pub(crate) fn create(device: u32, flags: u32) -> u64 {
    let handle = handle::fresh();
    state().add(handle, device, flags);
    handle
}

/// Retains the device's own context, and makes it where there is none.
pub(crate) fn retain(device: u32) -> u64 {
    let mut state = state();
    let mut primary = state.primaries[device as usize];
    if primary.handle == 0 {
        primary.handle = handle::fresh();
    }
    if !primary.is_active {
        state.add(primary.handle, device, primary.flags);
    }
    primary.is_active = true;
    primary.retained += 1;
    state.primaries[device as usize] = primary;
    primary.handle
}

/// Releases the device's own context. Returns it after the last release.
pub(crate) fn release(device: u32) -> Answer<Option<u64>> {
    let mut state = state();
    let primary = &mut state.primaries[device as usize];
    primary.retained = primary.retained.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
    Ok((primary.retained == 0 && primary.is_active).then_some(primary.handle))
}

/// Returns the device's own context.
pub(crate) fn primary(device: u32) -> Primary {
    state().primaries[device as usize]
}

impl Primary {
    /// Returns the handle of one that is there.
    pub(crate) fn active(&self) -> Option<u64> {
        self.is_active.then_some(self.handle)
    }
}

/// Sets the flags that the device's own context has from its next start on.
pub(crate) fn set_flags(device: u32, flags: u32) {
    state().primaries[device as usize].flags = flags;
}

/// Returns whether a context is a device's own.
pub(crate) fn is_primary(context: u64) -> bool {
    state().primaries.iter().any(|primary| primary.handle == context)
}

/// Forgets a context, whose streams and memory are gone.
pub(crate) fn forget(context: u64) {
    let mut state = state();
    state.contexts.remove(&context);
    if let Some(primary) = state.primaries.iter_mut().find(|primary| primary.handle == context) {
        primary.is_active = false;
    }
    drop(state);
    STACK.with_borrow_mut(|stack| {
        // A context that was made and is destroyed while it is current leaves its thread without it.
        if stack.last() == Some(&context) && !is_primary(context) {
            stack.pop();
        }
    });
}

/// Checks that a context is there.
pub(crate) fn known(context: u64) -> Answer<u64> {
    let is_known = state().contexts.contains_key(&context);
    if is_known { Ok(context) } else { Err(Code::INVALID_CONTEXT) }
}

/// Returns the current context, even if it was destroyed or lost.
pub(crate) fn top() -> Option<u64> {
    STACK.with_borrow(|stack| stack.last().copied())
}

/// Returns the current context if it is usable.
pub(crate) fn current() -> Answer<u64> {
    let context = top().ok_or(Code::INVALID_CONTEXT)?;
    let state = state();
    let found = state.contexts.get(&context).ok_or(Code::CONTEXT_IS_DESTROYED)?;
    found.error.map_or(Ok(context), Err)
}

/// Attaches to a context.
pub(crate) fn attach(context: u64) {
    if let Some(context) = state().contexts.get_mut(&context) {
        context.attached += 1;
    }
}

/// Detaches from a context; returns true if nobody holds it any more.
pub(crate) fn detach(context: u64) -> bool {
    let mut state = state();
    let found = state.contexts.get_mut(&context).filter(|context| context.attached > 0);
    found.map(|context| context.attached -= 1).is_none()
}

/// Returns the device of a context.
pub(crate) fn device_of(context: u64) -> Answer<u32> {
    state().contexts.get(&context).map(|context| context.device).ok_or(Code::INVALID_CONTEXT)
}

/// Returns the flags of a context.
pub(crate) fn flags_of(context: u64) -> Answer<u32> {
    state().contexts.get(&context).map(|context| context.flags).ok_or(Code::INVALID_CONTEXT)
}

/// Notes that work of a context ended with an error. The error stays.
pub(crate) fn fail(context: u64, code: Code) {
    if let Some(context) = state().contexts.get_mut(&context) {
        context.error.get_or_insert(code);
    }
}

/// Returns whether the work of a context ended with an error.
pub(crate) fn has_failed(context: u64) -> bool {
    state().contexts.get(&context).is_some_and(|context| context.error.is_some())
}

pub(crate) fn push(context: u64) {
    STACK.with_borrow_mut(|stack| stack.push(context));
}

pub(crate) fn pop() -> Answer<u64> {
    STACK.with_borrow_mut(|stack| stack.pop()).ok_or(Code::INVALID_CONTEXT)
}

/// Replaces the current context; zero leaves the thread with the one below.
pub(crate) fn set(context: u64) {
    STACK.with_borrow_mut(|stack| {
        stack.pop();
        if context != 0 {
            stack.push(context);
        }
    });
}

/// Returns a limit of a context.
pub(crate) fn limit(context: u64, limit: u32) -> Answer<usize> {
    let default = match limit {
        0 => 1024,
        1 | 2 => 8 << 20,
        5 => 64,
        6 => 0,
        _ => return Err(Code::UNSUPPORTED_LIMIT),
    };
    let state = state();
    let found = state.contexts.get(&context).ok_or(Code::INVALID_CONTEXT)?;
    Ok(found.limits.get(&limit).copied().unwrap_or(default))
}

/// Changes a limit of a context.
pub(crate) fn set_limit(context: u64, number: u32, value: usize) -> Answer {
    limit(context, number)?;
    let mut state = state();
    let found = state.contexts.get_mut(&context).ok_or(Code::INVALID_CONTEXT)?;
    found.limits.insert(number, value);
    Ok(())
}
