//! The store that keeps nothing.
#![forbid(unsafe_code)]
use omniheap_core::{
    AllocationId, BackingStore, ErrorKind, GetPiece, Privacy, PutPiece, Result, StoreKind,
};
use std::sync::Arc;

/// Drops the bytes: allocations wake up zeroed. For what a program fills again itself.
#[derive(Clone, Copy, Debug)]
pub struct Nothing;

impl Nothing {
    /// Creates the store.
    #[must_use]
    #[expect(clippy::new_ret_no_self, reason = "a pool takes stores behind a shared pointer")]
    pub fn new() -> Arc<dyn BackingStore> {
        Arc::new(Self)
    }
}

impl BackingStore for Nothing {
    fn put(&self, _: AllocationId, _: u64, _: Privacy, _: &mut PutPiece<'_>) -> Result<()> {
        Ok(())
    }

    fn get(&self, _: AllocationId, _: &mut GetPiece<'_>) -> Result<()> {
        Err(ErrorKind::Stale.into())
    }

    fn forget(&self, _: AllocationId) {}

    fn kind(&self) -> StoreKind {
        StoreKind::Nothing
    }
}
