//! State that all domains of one device share: the backend, its limits, and the bytes promised to each domain.
#![forbid(unsafe_code)]
use super::driver_budget::DriverBudgets;
use super::system_limits::SystemLimits;
use crate::sync::{Guard, Mutex};
use crate::{Backend, Error, ErrorKind, HeapId, Result};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// One heap, over all domains.
#[derive(Debug, Default)]
pub(super) struct Sum {
    /// Bytes that all domains hold.
    held: u64,
    /// Bytes that were promised to domains and that those do not hold yet.
    promised: u64,
}

impl Sum {
    /// Books bytes of one domain, whose own unheld promise goes from `before` to `after`.
    pub(super) const fn claim(
        &mut self,
        bytes: u64,
        before: u64,
        after: u64,
        size: u64,
    ) -> Result<(), ErrorKind> {
        let others = self.promised - before;
        let held = self.held.saturating_add(bytes);
        // Without promises only the driver knows what fits: heaps are often larger than they say.
        if others > 0 && held.saturating_add(others) > size {
            return Err(ErrorKind::OverBudget);
        }
        self.held = held;
        self.promised = others + after;
        Ok(())
    }

    /// Returns how much one domain may hold beside what was promised to others; it holds `own`, and was promised `unheld` more.
    pub(super) const fn left(&self, own: u64, unheld: u64, size: u64) -> u64 {
        let promised = self.promised - unheld;
        if promised == 0 {
            return u64::MAX;
        }
        size.saturating_sub((self.held - own).saturating_add(promised))
    }

    /// Books bytes of one domain back.
    pub(super) const fn release(&mut self, bytes: u64, before: u64, after: u64) {
        self.held -= bytes;
        self.promised = self.promised - before + after;
    }

    /// Changes one domain's unheld promise.
    pub(super) fn promise(&mut self, before: u64, after: u64, size: u64) -> Result<(), ErrorKind> {
        let promised = (self.promised - before).saturating_add(after);
        // To ask for less is never too much.
        if after > before && promised.saturating_add(self.held) > size {
            return Err(ErrorKind::ExceedsLimit);
        }
        self.promised = promised;
        Ok(())
    }
}

/// The opened device.
pub(super) struct Opened<B> {
    pub(super) backend: B,
    heaps: Vec<Mutex<Sum>>,
    blocks: AtomicU64,
    domains: AtomicU32,
    pub(super) driver_budgets: DriverBudgets,
    pub(super) system_limits: SystemLimits,
}

impl<B: Backend> Opened<B> {
    pub(super) fn new(backend: B) -> Self {
        let heaps = backend.caps().heaps.iter().map(|_| Mutex::new(Sum::default())).collect();
        let (blocks, domains) = (AtomicU64::new(0), AtomicU32::new(0));
        let system_limits = SystemLimits::new(&backend);
        let driver_budgets = DriverBudgets::new();
        Self { backend, heaps, blocks, domains, driver_budgets, system_limits }
    }

    pub(super) fn heap(&self, heap: HeapId) -> Result<Guard<'_, Sum>> {
        let sum = self.heaps.get(usize::from(heap.0)).ok_or(Error::new(ErrorKind::NoSuchHeap))?;
        Ok(sum.lock())
    }

    /// Returns the bytes that all domains hold of the physical memory behind a heap.
    pub(super) fn held_beside(&self, heap: HeapId) -> u64 {
        let caps = self.backend.caps();
        let Some(physical) = caps.heap(heap).map(|heap| heap.physical) else { return 0 };
        let same = caps.heap_ids().filter(|(_, heap)| heap.physical == physical);
        same.filter_map(|(id, _)| self.heap(id).ok()).map(|sum| sum.held).sum()
    }

    /// Domains that there ever were: what one left in the driver's memory outlives it.
    pub(super) fn domains(&self) -> u32 {
        self.domains.load(Relaxed)
    }

    pub(super) fn count_domain(&self) {
        self.domains.fetch_add(1, Relaxed);
    }

    /// Books one block of as many as the driver allows.
    pub(super) fn claim_block(&self) -> Result<()> {
        let limit = self.backend.caps().max_blocks;
        let within = |count: u64| (count < limit).then_some(count + 1);
        let claimed = self.blocks.fetch_update(Relaxed, Relaxed, within);
        claimed.map(|_| ()).map_err(|_| Error::new(ErrorKind::OutOfDeviceMemory))
    }

    pub(super) fn release_block(&self) {
        self.blocks.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_is_never_refused_even_where_more_is_held_than_the_heap_says() {
        let (mut all, size) = (Sum::default(), 64);
        all.promise(0, 64, size).expect("all of it");
        all.claim(100, 64, 0, size).expect("the driver has more than it says");
        all.claim(50, 0, 0, size).expect("another domain: nothing is promised that is not held");
        all.release(90, 0, 54);
        assert_eq!((all.held, all.promised), (60, 54));
        assert_eq!(all.claim(1, 0, 0, size), Err(ErrorKind::OverBudget), "it is promised");
        assert_eq!(all.promise(54, 55, size), Err(ErrorKind::ExceedsLimit));
        assert_eq!((all.held, all.promised), (60, 54), "a refusal changes nothing");
        for (before, after) in [(54, 54), (54, 30), (30, 0)] {
            assert_eq!(all.promise(before, after, size), Ok(()), "{before} to {after}");
        }
        assert_eq!((all.held, all.promised), (60, 0));
    }
}
