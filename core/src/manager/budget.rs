//! How much of a heap may be held, and what was held at most.
#![forbid(unsafe_code)]
use super::Manager;
use crate::device::HeapUse;
use crate::{Backend, ErrorKind, HeapId, Result};

impl<B: Backend> Manager<B> {
    /// Sets how much of a heap may be held: above `soft`, memory is given back early; above `hard`, requests fail.
    ///
    /// A limit below what is held frees nothing by force; it only stops growth.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`; `InvalidConfig` when `soft` is above `hard`.
    pub fn set_budget(&self, heap: HeapId, soft: u64, hard: u64) -> Result<()> {
        self.inner.device.set_limits(heap, soft, hard)
    }

    /// Sets the hard limit of a heap to a share of its size; the soft limit is the same.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`; `InvalidConfig` unless the share is between 0 and 1.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a size: checked to lie between nothing and all of it"
    )]
    pub fn set_budget_share(&self, heap: HeapId, share: f64) -> Result<()> {
        let size = self.inner.device.heap(heap)?.size;
        if !(0.0..=1.0).contains(&share) {
            return Err(ErrorKind::InvalidConfig.into());
        }
        let limit = (size as f64 * share) as u64;
        self.set_budget(heap, limit, limit)
    }

    /// Starts the peaks of the report again at what is live and held now.
    pub fn reset_peaks(&self) {
        self.inner.device.reset_peaks();
        for lane in self.all_pools().into_iter().flat_map(|pool| pool.lanes()) {
            let counts = &mut lane.state.lock().counts;
            counts.peak_live_bytes = counts.live_bytes;
        }
    }

    /// How much of a heap is held and may be held.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`.
    pub fn heap_use(&self, heap: HeapId) -> Result<HeapUse> {
        self.inner.device.heap_use(heap)
    }
}
