//! Asking the program to free something, once at a time.
use super::{Manager, Pressure, Relief};
use crate::{Backend, HeapId};
use alloc::vec::Vec;
use core::cell::RefCell;

std::thread_local! {
    /// The managers whose callbacks this thread runs now, by number.
    static ASKING: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// While it lives, this thread asks nobody else on behalf of a manager.
struct Asking(u32);

impl Asking {
    /// Nothing where this thread is asking already: a callback that allocates would be asked without end.
    fn begin(manager: u32) -> Option<Self> {
        let begun = ASKING.try_with(|asking| {
            let mut asking = asking.borrow_mut();
            let is_first = !asking.contains(&manager);
            if is_first {
                asking.push(manager);
            }
            is_first
        });
        // A thread that is ending asks nobody.
        begun.unwrap_or(false).then_some(Self(manager))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // A thread that is ending has forgotten already.
        let _ = ASKING.try_with(|asking| asking.borrow_mut().retain(|other| *other != self.0));
    }
}

impl<B: Backend> Manager<B> {
    /// Runs the pressure callbacks, without a lock; not again for what such a callback itself asks for.
    pub(super) fn relieve(&self, heap: HeapId, wanted: u64) -> Relief {
        let Some(_asking) = Asking::begin(self.number()) else { return Relief::Nothing };
        let callbacks: Vec<_> = self.inner.callbacks.lock().clone();
        let reserved = self.inner.device.heap_use(heap).map_or(0, |heap| heap.reserved);
        let pressure = Pressure { heap, wanted, reserved };
        let mut relief = Relief::Nothing;
        for callback in callbacks {
            if callback(&pressure) == Relief::Freed {
                relief = Relief::Freed;
            }
        }
        relief
    }
}
