//! Device memory that can leave the device and come back: pools, and what an engine makes able to.
#![forbid(unsafe_code)]
use super::{AllocateError, Pressure, UserPool};
use crate::sleep::{Residence, Sleep, SleepError, Slept, Wake};
use crate::{Backend, HeapId, Result};
use core::fmt;

/// Device memory that can leave the device and come back with its bytes.
///
/// A [sleepable](crate::PoolConfig::sleepable) [`UserPool`] is one. An engine implements it for what it owns itself, an image say: a sleep copies
/// the bytes out and gives the memory back, a wake gets new memory and copies them in. A set of residents then calls both as budgets
/// ask for it, from any thread.
pub trait Sleepable: fmt::Debug + Send + Sync {
    /// Returns the heap whose budget the memory counts in. It stays the same for life.
    fn heap(&self) -> HeapId;

    /// Returns where the bytes are, without waiting for a sleep or wake under way. `stored` is what a wake needs from the device, and `device`
    /// what a sleep may give back.
    fn residence(&self) -> Residence;

    /// Copies the bytes to the [store](Sleep::store), after the [points](Sleep::points) that were named, and gives the memory back to the driver. Returns
    /// when that has happened.
    ///
    /// # Errors
    ///
    /// `AlreadyAsleep`; the reason why it stays as it was, awake and with all its bytes.
    fn sleep(&self, sleep: &Sleep) -> Result<Slept, SleepError>;

    /// Gets memory and the bytes back. Returns when work that is submitted from now on sees them. Called on what is awake too, by every hold: that
    /// changes nothing.
    ///
    /// # Errors
    ///
    /// `AlreadyAwake`; out of memory where others have to leave first; the reason why it stays asleep, with all its bytes.
    fn wake(&self, wake: &Wake) -> Result<(), AllocateError>;

    /// Notes that all work that uses it has been submitted by now: a sleep waits for that work. Called where a hold ends, by several threads at once
    /// where several hold it.
    fn used(&self) {}

    /// Returns whether it can sleep at all.
    fn is_sleepable(&self) -> bool {
        true
    }

    /// Returns true if a pressure callback was called for a request of its own while it is awake: it must not sleep for that.
    fn is_asking(&self, pressure: &Pressure) -> bool {
        let _ = pressure;
        false
    }
}

impl<B: Backend> Sleepable for UserPool<B> {
    fn heap(&self) -> HeapId {
        self.heap()
    }

    fn residence(&self) -> Residence {
        self.residence()
    }

    fn sleep(&self, sleep: &Sleep) -> Result<Slept, SleepError> {
        self.sleep(sleep)
    }

    fn wake(&self, wake: &Wake) -> Result<(), AllocateError> {
        self.wake(wake)
    }

    fn is_sleepable(&self) -> bool {
        self.is_sleepable()
    }

    fn is_asking(&self, pressure: &Pressure) -> bool {
        self.is_asking(pressure)
    }
}
