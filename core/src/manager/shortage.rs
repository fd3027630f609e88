//! Why a request could not be served, in numbers.
#![forbid(unsafe_code)]
use super::Manager;
use super::error::{AllocateError, Shortage};
use crate::pool::{Ask, Pool};
use crate::{Backend, Error, ErrorKind};

impl<B: Backend> Manager<B> {
    /// Adds to a failure what people need to understand it.
    pub(super) fn explain_failure(&self, pool: &Pool<B>, ask: Ask, error: Error) -> AllocateError {
        if !error.kind().is_out_of_memory() {
            return error.into();
        }
        let mut shortage = self.shortage(pool, ask);
        let free = shortage.free;
        shortage.fits_after_defragment = free >= ask.layout.size;
        shortage.fits_after_wait = free.saturating_add(shortage.deferred) >= ask.layout.size;
        let scattered =
            shortage.fits_after_defragment && error.kind() == ErrorKind::OutOfDeviceMemory;
        let error = if scattered {
            Error::new(ErrorKind::Fragmented).with_native(error.native())
        } else {
            error
        };
        AllocateError::short(error, shortage)
    }

    fn shortage(&self, pool: &Pool<B>, ask: Ask) -> Shortage {
        let heap = pool.shared.heap;
        let mut shortage = Shortage {
            heap,
            requested: ask.size,
            largest_hole: 0,
            free: 0,
            reserved: pool.shared.reserved(),
            live: 0,
            deferred: 0,
            hard_limit: self.inner.device.heap_use(heap).map_or(u64::MAX, |heap| heap.hard_limit),
            fits_after_defragment: false,
            fits_after_wait: false,
            fits_after_spill: self.could_spill(heap, ask.layout.size),
        };
        for lane in pool.lanes() {
            let state = lane.state.lock();
            let usage = state.usage();
            shortage.largest_hole = shortage.largest_hole.max(usage.largest_hole);
            shortage.free += usage.free;
            shortage.live += state.counts.live_bytes;
            shortage.deferred += state.deferred.bytes();
        }
        shortage
    }
}
