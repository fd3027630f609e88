//! Ends of contexts, with everything that they own.

use crate::code::Answer;
use crate::{context, event, module, pool, space, stream};

/// Waits for the work of a context, and frees everything that it owns.
pub(crate) fn destroy(context: u64) {
    stream::drain(context);
    stream::forget(context);
    event::forget(context);
    pool::forget(context);
    space::forget(context);
    module::forget(context);
    context::forget(context);
}

/// Releases a device's own context, which ends with its last release.
pub(crate) fn release(device: u32) -> Answer {
    if let Some(context) = context::release(device)? {
        destroy(context);
    }
    Ok(())
}
