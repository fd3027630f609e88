//! The raw call that the hand-over scenario needs.
#![expect(unsafe_code, reason = "frees blocks")]
use omniheap_core::{Backend, Result};

/// Frees a block that nothing uses.
pub(super) fn free<B: Backend>(backend: &B, block: B::Block) -> Result<()> {
    // SAFETY: the scenario made the block from this backend and gave no work to it.
    unsafe { backend.free(block) }
}
