//! Blocks of their own, and what is given up for them.
#![expect(unsafe_code, reason = "takes blocks that the caller made")]
use super::error::AllocateError;
use super::ladder::{Climb, Make, check};
use super::{Allocation, Manager};
use crate::{Backend, ErrorKind, Request, Result};

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
        mut make: impl FnMut() -> Result<B::Block>,
    ) -> Result<Allocation<B>, AllocateError> {
        check(request)?;
        let pool = self.pool(request.heap.ok_or(ErrorKind::NoSuchHeap)?)?;
        let ask = pool.ask(request)?;
        let lane = pool.lane_for(request.timeline)?;
        let make: Make<'_, B> = &mut make;
        let own = Some((request.layout.size, make));
        let mut climb = Climb { manager: self, pool, lane, ask, own };
        let (rung, (lane, slot)) = climb.up(&Climb::DEDICATED)?;
        if let Some(rung) = rung {
            self.climbed(rung, ask.size, ask.timeline);
        }
        let request = request.dedicated().pinned();
        self.note(&lane, slot, &request);
        if let Some(watch) = &lane.shared.watch {
            watch.sanitizer.skip(); // Its block has no byte to spare.
        }
        Ok(self.claim(&lane, slot, &request, None))
    }
}
