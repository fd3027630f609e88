//! The driver's budget: read seldom, smoothed, and kept away from by a reserve.
#![forbid(unsafe_code)]
use crate::sync::Mutex;
use crate::{Backend, ErrorKind, HeapBudget, HeapId};
use alloc::vec::Vec;

/// Growth of a manager beyond the driver's budget: avoided, or not.
///
/// A driver that is asked for more than its budget often serves the request and starts to page, which is slow for everything on the
/// device. [`ManagerConfig::within_driver_budget`](crate::ManagerConfig::within_driver_budget) sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverLimit {
    /// The driver alone decides.
    #[default]
    Ignored,
    /// A request that would need more than the budget, less a sixty-fourth of it, is `OverBudget` in that heap: empty memory is
    /// returned, pressure callbacks run, and other heaps serve it.
    Honoured,
}

/// Part of the budget that stays free: budgets flutter by about a hundredth.
const RESERVE: u64 = 64;
/// Part of a change that one reading takes over, once a frame: a budget that dips for a moment changes little.
const SETTLE: u64 = 4;

/// Budget and use that the driver reported of one physical memory.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// Smoothed.
    budget: u64,
    used: u64,
    /// Bytes that all domains held when the driver was asked.
    held: u64,
}

impl Reading {
    /// Returns the bytes that may be in use in all.
    const fn limit(&self) -> u64 {
        self.budget - self.budget / RESERVE
    }

    /// Returns the bytes in use when `held` bytes are held here.
    const fn used_with(&self, held: u64) -> u64 {
        self.used.saturating_add(held).saturating_sub(self.held)
    }
}

/// The latest readings, by physical memory.
#[derive(Debug)]
pub(super) struct DriverBudgets(Mutex<Vec<Option<Reading>>>);

impl DriverBudgets {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Returns the last reading of a heap, where there was one.
    pub(super) fn last<B: Backend>(
        &self,
        backend: &B,
        heap: HeapId,
        held: u64,
    ) -> Option<HeapBudget> {
        let reading = self.known(backend, heap)?;
        Some(HeapBudget { budget: reading.budget, used: reading.used_with(held) })
    }

    /// Reads the budget of a heap once more, smoothed.
    pub(super) fn refresh<B: Backend>(&self, backend: &B, heap: HeapId, held: u64) {
        self.read(backend, heap, held, true);
    }

    /// Checks that `bytes` more stay within the driver's budget; `held` are the bytes of the physical memory held so far.
    ///
    /// A reading serves as long as less was taken since than the reserve covers. A refusal always comes from a fresh one.
    pub(super) fn check<B: Backend>(
        &self,
        backend: &B,
        heap: HeapId,
        held: u64,
        bytes: u64,
    ) -> Result<(), ErrorKind> {
        let fits =
            |reading: &Reading| reading.used_with(held).saturating_add(bytes) <= reading.limit();
        let after = held.saturating_add(bytes);
        let is_fresh = |reading: &Reading| after.abs_diff(reading.held) <= reading.budget / RESERVE;
        let known = self.known(backend, heap);
        if known.filter(is_fresh).is_some_and(|reading| fits(&reading)) {
            return Ok(());
        }
        // All of a change counts now: a request hangs on it.
        match self.read(backend, heap, held, false) {
            Some(reading) if !fits(&reading) => Err(ErrorKind::OverBudget),
            _ => Ok(()),
        }
    }

    fn known<B: Backend>(&self, backend: &B, heap: HeapId) -> Option<Reading> {
        let physical = usize::from(backend.caps().heap(heap)?.physical);
        self.0.lock().get(physical).copied().flatten()
    }

    /// Asks the driver, without a lock; a smooth reading takes over only a part of a change. A driver that tells nothing now
    /// changes nothing.
    fn read<B: Backend>(
        &self,
        backend: &B,
        heap: HeapId,
        held: u64,
        smooth: bool,
    ) -> Option<Reading> {
        let physical = usize::from(backend.caps().heap(heap)?.physical);
        let told = backend.as_budget().and_then(|driver| driver.budget(heap).ok())?;
        let mut all = self.0.lock();
        if all.len() <= physical {
            all.resize(physical + 1, None);
        }
        let before = all[physical].filter(|_| smooth);
        let budget = before.map_or(told.budget, |before| settled(before.budget, told.budget));
        let reading = Reading { budget, used: told.used, held };
        all[physical] = Some(reading);
        Some(reading)
    }
}

/// Returns `from`, moved towards `to` by a part of the way, and all of it for the last bytes.
const fn settled(from: u64, to: u64) -> u64 {
    let step = from.abs_diff(to).div_ceil(SETTLE);
    if to > from { from + step } else { from - step }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_settles_and_a_flutter_stays_within_the_reserve() {
        let mut budget = 6400;
        for _ in 0..40 {
            budget = settled(budget, 3200);
        }
        assert_eq!(budget, 3200);
        for _ in 0..1000 {
            budget = settled(settled(budget, 3232), 3168);
            assert!(budget.abs_diff(3200) < 3200 / RESERVE, "{budget}");
        }
    }

    #[test]
    fn what_was_taken_since_counts_as_used() {
        let reading = Reading { budget: 6400, used: 1000, held: 600 };
        assert_eq!((reading.limit(), reading.used_with(600)), (6300, 1000));
        assert_eq!((reading.used_with(5900), reading.used_with(0)), (6300, 400));
    }
}
