//! Plain numbers for a display that is drawn every frame.
#![forbid(unsafe_code)]
use super::{Manager, report::pool_totals};
use crate::lane::Totals;
use crate::{Backend, HeapBudget, HeapId};
use alloc::{string::String, vec::Vec};

/// One heap's part of an [`Overlay`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapOverlay {
    /// The heap.
    pub heap: HeapId,
    /// Its name.
    pub name: String,
    /// Bytes that the device has.
    pub size: u64,
    /// Bytes held from the driver.
    pub reserved_bytes: u64,
    /// Bytes that live allocations asked for.
    pub live_bytes: u64,
    /// Bytes in holes.
    pub free_bytes: u64,
    /// Holes.
    pub holes: u64,
    /// The largest hole.
    pub largest_hole: u64,
    /// Bytes above which memory is refused.
    pub hard_limit: u64,
    /// The driver's budget: see [`HeapUse::driver`](crate::HeapUse::driver).
    pub driver: Option<HeapBudget>,
}

/// Memory that a manager holds now, counted without a walk of its allocations.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Overlay {
    /// Sums over all pools.
    pub totals: Totals,
    /// Blocks and reservations held.
    pub blocks: u64,
    /// Driver calls that took or returned memory.
    pub driver_calls: u64,
    /// The heaps of which something was ever held.
    pub heaps: Vec<HeapOverlay>,
}

impl<B: Backend> Manager<B> {
    /// Returns numbers for a display. Cheap enough for every frame: it asks the driver nothing, and takes the lock of each lane once.
    #[must_use]
    pub fn overlay(&self) -> Overlay {
        let device = &self.inner.device;
        let sums: Vec<_> =
            self.all_pools().iter().map(|pool| (pool.shared.heap, pool_totals(pool))).collect();
        let heap = |heap: HeapId| {
            let of_heap = sums.iter().filter(|(other, _)| *other == heap);
            let totals: Totals = of_heap.map(|(_, totals)| *totals).sum();
            let (about, held) = (device.heap(heap).ok()?, device.heap_use(heap).ok()?);
            (held.peak_reserved > 0).then(|| HeapOverlay {
                heap,
                name: about.name.clone(),
                size: about.size,
                reserved_bytes: held.reserved,
                live_bytes: totals.live_bytes,
                free_bytes: totals.free_bytes,
                holes: totals.holes,
                largest_hole: totals.largest_hole,
                hard_limit: held.hard_limit,
                driver: held.driver,
            })
        };
        Overlay {
            totals: sums.iter().map(|(_, totals)| *totals).sum(),
            blocks: device.blocks(),
            driver_calls: device.driver_calls(),
            heaps: self.caps().heap_ids().filter_map(|(id, _)| heap(id)).collect(),
        }
    }
}
