//! Store of pools that sleep in tests.
use omniheap_core::{AllocationId, BackingStore, ErrorKind, GetPiece, Privacy, PutPiece, Result};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Keeps what sleeps in the test's own memory, each allocation once.
#[derive(Debug, Default)]
pub struct Store(Mutex<HashMap<AllocationId, Vec<u8>>>);

impl Store {
    pub(crate) fn kept(&self) -> std::sync::MutexGuard<'_, HashMap<AllocationId, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BackingStore for Store {
    fn put(&self, id: AllocationId, size: u64, _: Privacy, copy: &mut PutPiece<'_>) -> Result<()> {
        let mut bytes = vec![0; usize::try_from(size).expect("it fits the heap")];
        copy(0, &mut bytes)?;
        assert!(self.kept().insert(id, bytes).is_none(), "{id:?} was put twice");
        Ok(())
    }

    fn get(&self, id: AllocationId, take: &mut GetPiece<'_>) -> Result<()> {
        let bytes = self.kept().get(&id).cloned().ok_or(ErrorKind::Stale)?;
        take(0, &bytes)
    }

    fn forget(&self, id: AllocationId) {
        self.kept().remove(&id);
    }
}
