//! Stop signal: a question asked now and then, whose first "yes" is final.

use core::cell::Cell;

/// Asks the caller's closure whether to stop, and remembers a yes.
pub(crate) struct Stop<'a> {
    ask: &'a dyn Fn() -> bool,
    hit: Cell<bool>,
}

impl<'a> Stop<'a> {
    pub(crate) fn new(ask: &'a dyn Fn() -> bool) -> Self {
        Self { ask, hit: Cell::new(false) }
    }

    /// Returns whether to stop now.
    pub(crate) fn now(&self) -> bool {
        if !self.hit.get() {
            self.hit.set((self.ask)());
        }
        self.hit.get()
    }
}
