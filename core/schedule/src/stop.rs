//! Stop signal: a question asked now and then, whose first "yes" is final.

use core::cell::Cell;
use core::fmt;

/// Asks the caller's closure whether to stop, and remembers a yes.
pub struct Stop<'a> {
    ask: &'a dyn Fn() -> bool,
    hit: Cell<bool>,
}

impl<'a> Stop<'a> {
    pub fn new(ask: &'a dyn Fn() -> bool) -> Self {
        Self { ask, hit: Cell::new(false) }
    }

    /// Returns whether to stop now.
    pub fn now(&self) -> bool {
        if !self.hit.get() {
            self.hit.set((self.ask)());
        }
        self.hit.get()
    }
}

impl fmt::Debug for Stop<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop").field("hit", &self.hit).finish_non_exhaustive()
    }
}
