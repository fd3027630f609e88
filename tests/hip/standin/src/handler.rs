//! Functions that HIP wants called when a signal gets somewhere. As in AMD's library, one thread calls all of them.

#![expect(unsafe_code, reason = "exports C symbols and calls back into C")]

use core::ffi::c_void;

use crate::abi::{Condition, SignalHandle};
use crate::ffi::export;
use crate::signal::Signal;
use crate::worker::{Job, Worker};

/// Answers whether to be called again.
type Function = unsafe extern "C" fn(i64, *mut c_void) -> bool;

struct Handler {
    signal: &'static Signal,
    condition: Condition,
    reference: i64,
    function: Function,
    argument: *mut c_void,
}

// SAFETY: C hands the argument over for exactly this use, on the thread that calls the handlers.
unsafe impl Send for Handler {}

impl Job for Handler {
    fn ready(&self) -> bool {
        self.condition.holds(self.signal.load(), self.reference)
    }

    fn run(self) -> Option<Self> {
        // SAFETY: C registered this function to be called with this argument once the condition holds, which
        // `Worker` saw.
        let again = unsafe { (self.function)(self.signal.load(), self.argument) };
        again.then_some(self)
    }
}

static HANDLERS: Worker<Handler> = Worker::new();

export! {
    fn hsa_amd_signal_async_handler(
        handle: SignalHandle, condition: Condition, reference: i64, function: Function, argument: *mut c_void,
    ) {
        let signal = Signal::find(handle)?;
        HANDLERS.submit(Handler { signal, condition, reference, function, argument });
        Ok(())
    }
}
