//! Requests that lost a race for memory that another thread carried.
use super::Manager;
use super::ladder::Taken;
use crate::pool::{Ask, Pool};
use crate::{Backend, Request, Result};
use alloc::sync::Arc;

/// How often a request climbs again after losing a race: a device this busy has nothing to spare.
const ROUNDS: u32 = 32;

impl<B: Backend> Manager<B> {
    /// Climbs, and again where another thread carried memory meanwhile and has set it down.
    pub(super) fn climb_again(
        &self,
        pool: &Arc<Pool<B>>,
        ask: Ask,
        request: &Request<'_>,
    ) -> Result<Taken<B>> {
        let transit = &self.inner.device.transit;
        let mut round = 0;
        loop {
            let before = transit.arrivals();
            let climbed = self.climb(pool, ask, request);
            if round == ROUNDS
                || !climbed.as_ref().is_err_and(|error| error.kind().is_out_of_memory())
            {
                return climbed;
            }
            transit.wait();
            if transit.arrivals() == before {
                return climbed;
            }
            round += 1;
        }
    }
}
