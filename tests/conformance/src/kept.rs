//! A store for the bytes of sleeping pools: a table in host memory, and nothing more.
use omniheap_core::{AllocationId, BackingStore, ErrorKind, GetPiece, Privacy, PutPiece, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes by allocation.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<HashMap<AllocationId, Vec<u8>>>);

impl Kept {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Returns the number of allocations that it keeps bytes of.
    pub(crate) fn count(&self) -> usize {
        self.table().len()
    }

    fn table(&self) -> MutexGuard<'_, HashMap<AllocationId, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BackingStore for Kept {
    fn put(&self, id: AllocationId, size: u64, _: Privacy, copy: &mut PutPiece<'_>) -> Result<()> {
        let mut bytes = vec![0; usize::try_from(size).map_err(|_| ErrorKind::OutOfHostMemory)?];
        // Two pieces, because a store may choose them.
        let half = bytes.len() / 2 / 4096 * 4096;
        let (first, second) = bytes.split_at_mut(half);
        for (at, piece) in [(0, first), (half as u64, second)] {
            if !piece.is_empty() {
                copy(at, piece)?;
            }
        }
        self.table().insert(id, bytes);
        Ok(())
    }

    fn get(&self, id: AllocationId, take: &mut GetPiece<'_>) -> Result<()> {
        let bytes = self.table().get(&id).cloned().ok_or(ErrorKind::Stale)?;
        take(0, &bytes)
    }

    fn forget(&self, id: AllocationId) {
        self.table().remove(&id);
    }
}
