//! The store of a pool that sleeps.
use omniheap_core::{AllocationId, BackingStore, ErrorKind, GetPiece, Privacy, PutPiece, Result};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Keeps what sleeps.
#[derive(Debug, Default)]
pub(crate) struct Store(Mutex<HashMap<AllocationId, Vec<u8>>>);

impl Store {
    /// Allocations whose bytes it keeps.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl BackingStore for Store {
    fn put(&self, id: AllocationId, size: u64, _: Privacy, copy: &mut PutPiece<'_>) -> Result<()> {
        let mut bytes = vec![0; usize::try_from(size).expect("worlds are small")];
        copy(0, &mut bytes)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id, bytes);
        Ok(())
    }

    fn get(&self, id: AllocationId, take: &mut GetPiece<'_>) -> Result<()> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        take(0, &kept.ok_or(ErrorKind::Stale)?)
    }

    fn forget(&self, id: AllocationId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }
}
