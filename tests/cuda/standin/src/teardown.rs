//! Ends of contexts, with everything that they own.

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
