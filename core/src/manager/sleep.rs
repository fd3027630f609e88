//! Pools that sleep: what their users call.
#![forbid(unsafe_code)]
use super::{AllocateError, UserPool};
use crate::sleep::{Residence, Sleep, SleepError, Slept, Wake};
use crate::{Backend, Result};

impl<B: Backend> UserPool<B> {
    /// Moves all bytes of the pool to a backing store and returns its memory to the driver. The allocations live on, and
    /// [`wake`](Self::wake) gives them their bytes back at the same addresses.
    ///
    /// Waits for the timelines that use the pool's allocations, and for no others. Copies what is live and no holes. While the
    /// pool is asleep, and from the start of this call, access to its allocations and requests fail with `Asleep`; frees work.
    /// Defragmentation and trims pass over it.
    ///
    /// # Errors
    ///
    /// `Busy` with [`SleepError::refused`] where allocations are pinned, dedicated, freed but still in use, or secret and the
    /// store takes no secrets; `AlreadyAsleep`; `Unsupported` for a pool that is not [sleepable](crate::PoolConfig::sleepable);
    /// what the store and the driver say. The pool is then awake and has all its bytes.
    pub fn sleep(&self, sleep: &Sleep) -> Result<Slept, SleepError> {
        self.pool().sleep(sleep, self.manager().mover()?)
    }

    /// Gives the allocations of a sleeping pool memory and their bytes, at the same addresses.
    ///
    /// # Errors
    ///
    /// `AlreadyAwake`; out of memory and `OverBudget` where the device has less than the pool needs, after empty memory of other pools was
    /// returned to the driver; what the store and the driver say. The pool is then asleep and has all its bytes: try again.
    pub fn wake(&self, wake: &Wake) -> Result<(), AllocateError> {
        let Wake {} = wake;
        let (manager, pool) = (self.manager(), self.pool());
        let make_room = || {
            // The second try says whether it was enough.
            let _ = manager.trim_for(pool);
        };
        Ok(pool.wake(manager.mover()?, make_room)?)
    }

    /// Says where the bytes of the pool are.
    #[must_use]
    pub fn residence(&self) -> Residence {
        self.pool().residence()
    }
}
