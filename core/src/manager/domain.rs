//! Domains: managers of one device that never see each other's bytes.
use super::{Manager, ManagerConfig};
use crate::{Backend, ErrorKind, HeapId, Result};

impl<B: Backend> Manager<B> {
    /// Makes another manager of the same device: a domain of its own, for a tenant that must not see what others left.
    ///
    /// Domains share the driver and its limits and nothing else: each has its own pools, budgets and report. As long as
    /// there is one domain, nothing is cleared; from the second on, every domain clears memory that it takes from the
    /// driver before anyone gets it. [`set_budget`](Self::set_budget) is a domain's quota,
    /// [`set_reserve`](Self::set_reserve) what the others must leave to it.
    ///
    /// # Errors
    ///
    /// `Unsupported` when the device cannot clear memory.
    pub fn domain(&self, config: ManagerConfig) -> Result<Self> {
        if self.backend().as_transfer().is_none() {
            return Err(ErrorKind::Unsupported.into());
        }
        Ok(Self::over(self.inner.device.another(), config))
    }

    /// Promises this domain bytes of a heap, held or not: other domains fail before they take them.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`; `ExceedsLimit` when the heap has not that much beside what others hold and were promised.
    pub fn set_reserve(&self, heap: HeapId, bytes: u64) -> Result<()> {
        self.inner.device.promise(heap, bytes)
    }
}
