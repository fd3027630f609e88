//! A snapshot for people and tools.
use super::{Manager, UserPool};
use crate::defrag::Moved;
use crate::device::{HeapLimit, MoveCost};
use crate::event::Rung;
use crate::lane::{BlockReport, Totals};
use crate::pool::Pool;
use crate::{Backend, HeapId, LimitKind, LimitValue, SystemLimit};
use alloc::vec::Vec;

/// One pool's part of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolReport {
    /// The heap.
    pub heap: HeapId,
    /// The sums.
    pub totals: Totals,
    /// Its blocks.
    pub blocks: Vec<BlockReport>,
}

/// A snapshot of a manager.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Sums over all pools.
    pub totals: Totals,
    /// The most that was ever held from the driver, over all heaps.
    pub peak_reserved_bytes: u64,
    /// Driver calls that took or returned memory.
    pub driver_calls: u64,
    /// Blocks and reservations held.
    pub blocks: u64,
    /// Bytes out of use: the driver refused to take them back, work on them could not be followed, or a secret could not be zeroed.
    /// Those of a secret come back once a later call zeroes it.
    pub quarantined_bytes: u64,
    /// Number of requests that each rung of the ladder served, in the order of [`Rung::ALL`].
    pub rungs: [u64; Rung::ALL.len()],
    /// Bytes that defragmentation has moved.
    pub moved_bytes: u64,
    /// Work and gain of defragmentation.
    pub defragmentation: Moved,
    /// Costs of copies and remaps, heap by heap: the cheaper is chosen.
    pub move_costs: Vec<MoveCost>,
    /// Limits that were set from outside, each with its source, and the driver's budget where the manager stays within it.
    pub limits: Vec<HeapLimit>,
    /// Pool by pool.
    pub pools: Vec<PoolReport>,
}

impl<B: Backend> Manager<B> {
    /// A snapshot. Each lane is consistent in itself; lanes are read one after the other.
    #[must_use]
    pub fn report(&self) -> Report {
        self.report_with(block_reports)
    }

    /// As [`report`](Self::report), but no pool shows its blocks: cheap enough for every frame.
    #[must_use]
    pub fn summary(&self) -> Report {
        self.report_with(|_| Vec::new())
    }

    fn report_with(&self, blocks: impl Fn(&Pool<B>) -> Vec<BlockReport>) -> Report {
        let device = &self.inner.device;
        let defragmentation = self.inner.defrag_stats.read();
        let pool_report = |pool: &Pool<B>| PoolReport { blocks: blocks(pool), ..summed(pool) };
        let pools: Vec<_> = self.all_pools().iter().map(|pool| pool_report(pool)).collect();
        let heaps = self.caps().heap_ids().filter_map(|(heap, _)| device.heap_use(heap).ok());
        Report {
            totals: pools.iter().map(|pool| pool.totals).sum(),
            peak_reserved_bytes: heaps.map(|heap| heap.peak_reserved).sum(),
            driver_calls: device.driver_calls(),
            blocks: device.blocks(),
            quarantined_bytes: device.quarantined(),
            rungs: self.inner.climbs.read(),
            moved_bytes: defragmentation.bytes,
            defragmentation,
            move_costs: self
                .caps()
                .heap_ids()
                .map(|(heap, _)| device.cost(heap).rates().tell(heap))
                .collect(),
            limits: self.limits(),
            pools,
        }
    }

    fn limits(&self) -> Vec<HeapLimit> {
        let device = &self.inner.device;
        let budget = |(heap, _): (HeapId, &crate::Heap)| {
            let budget = device.heap_use(heap).ok()?.driver?.budget;
            let (source, kind) = ("the driver's budget".into(), LimitKind::Hard);
            let limit = SystemLimit { source, kind, value: LimitValue::Bytes(budget) };
            Some(HeapLimit { heap, limit })
        };
        let mut limits = device.limits();
        limits.extend(self.caps().heap_ids().filter_map(budget));
        limits
    }

    /// Sums over all pools, without the map of blocks: cheap enough for every frame.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.all_pools().iter().map(|pool| pool_totals(pool)).sum()
    }

    /// Checks every counter and every strategy against a full walk.
    ///
    /// # Errors
    ///
    /// A sentence that says what is broken.
    pub fn validate(&self) -> Result<(), &'static str> {
        self.all_pools().iter().flat_map(|pool| pool.lanes()).try_for_each(|lane| lane.validate())
    }
}

impl<B: Backend> UserPool<B> {
    /// Returns a snapshot of this pool alone, as it is in [`Manager::report`].
    #[must_use]
    pub fn report(&self) -> PoolReport {
        PoolReport { blocks: block_reports(self.pool()), ..summed(self.pool()) }
    }
}

fn block_reports<B: Backend>(pool: &Pool<B>) -> Vec<BlockReport> {
    pool.lanes().iter().flat_map(|lane| lane.block_reports()).collect()
}

/// Returns a pool's part of a report, without its blocks.
fn summed<B: Backend>(pool: &Pool<B>) -> PoolReport {
    PoolReport { heap: pool.shared.heap, totals: pool_totals(pool), blocks: Vec::new() }
}

pub(super) fn pool_totals<B: Backend>(pool: &Pool<B>) -> Totals {
    let lanes = pool.lanes();
    let mut sum: Totals = lanes.iter().map(|lane| lane.totals()).sum();
    sum.reserved_bytes = pool.shared.reserved();
    sum
}
