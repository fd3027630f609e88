//! Blocks of their own, and what is given up for them.
#![expect(unsafe_code, reason = "takes blocks that the caller made")]
use super::error::AllocateError;
use super::ladder::{Taken, check};
use super::{Allocation, Manager, Relief};
use crate::event::Rung;
use crate::pool::{Ask, Lane, Patience, Pool};
use crate::{Backend, ErrorKind, Request, Result, Sharing};
use alloc::sync::Arc;

impl<B: Backend> Manager<B> {
    /// Allocates a block of its own that `make` gets from the driver: memory that a driver ties to one resource, say.
    ///
    /// It counts, is reported and is given back as every other dedicated block, and never moves. Where the driver has
    /// none left, what pools hold for nobody goes back first, and `make` is called again.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap` where the request names none, `ZeroSize`, `SizeOverflow`, `ExceedsLimit`, `OverBudget`; what `make`
    /// says.
    ///
    /// # Safety
    ///
    /// What `make` returns was made by this manager's backend, lies in the request's heap, has exactly the request's
    /// bytes, and nothing else uses it.
    pub unsafe fn allocate_made(
        &self,
        request: &Request<'_>,
        make: impl FnMut() -> Result<B::Block>,
    ) -> Result<Allocation<B>, AllocateError> {
        check(request)?;
        let pool = self.pool(request.heap.ok_or(ErrorKind::NoSuchHeap)?)?;
        let ask = pool.ask(request)?;
        let lane = pool.lane_for(request.timeline)?;
        let (lane, slot) = self.dedicate(pool, lane, ask, request.layout.size, make)?;
        let request = request.dedicated().pinned();
        self.note(&lane, slot, &request);
        if let Some(watch) = &lane.shared.watch {
            watch.sanitizer.skip(); // Its block has no byte to spare.
        }
        Ok(self.claim(&lane, slot, &request, None))
    }

    /// Has `make` ask for a block of `size` bytes for one request alone. Where the driver has none, what pools hold for nobody goes back first.
    pub(super) fn dedicate(
        &self,
        pool: &Arc<Pool<B>>,
        lane: &Arc<Lane<B>>,
        ask: Ask,
        size: u64,
        mut make: impl FnMut() -> Result<B::Block>,
    ) -> Result<Taken<B>> {
        let mut take = || {
            let slot = lane.grow_by(ask, size, Sharing::Dedicated, &pool.lanes(), &mut make);
            slot.map(|slot| (Arc::clone(lane), slot))
        };
        let refused = match take() {
            Err(error) if error.kind().is_out_of_memory() => error,
            other => return other,
        };
        for (patience, rung) in [(Patience::Look, Rung::Trim), (Patience::Wait, Rung::Wait)] {
            for each in pool.lanes() {
                each.settle(patience)?;
            }
            if self.trim_for(pool)? > 0
                && let Some(taken) = served(take())?
            {
                self.climbed(rung, ask.size, ask.timeline);
                return Ok(taken);
            }
        }
        if self.relieve(pool.shared.heap, ask.size) == Relief::Freed {
            self.trim_for(pool)?;
            if let Some(taken) = served(take())? {
                self.climbed(Rung::Pressure, ask.size, ask.timeline);
                return Ok(taken);
            }
        }
        Err(refused)
    }
}

/// What a try gave, or nothing where memory is still short.
fn served<T>(tried: Result<T>) -> Result<Option<T>> {
    match tried {
        Err(error) if error.kind().is_out_of_memory() => Ok(None),
        other => other.map(Some),
    }
}
