//! The two raw calls that the hand-over scenario needs.
#![expect(unsafe_code, reason = "frees blocks and closes descriptors")]
use omniheap_core::{Backend, Exported, Result};
use std::os::fd::{FromRawFd, OwnedFd};

/// Frees a block that nothing uses.
pub(super) fn free<B: Backend>(backend: &B, block: B::Block) -> Result<()> {
    // SAFETY: the scenario made the block from this backend and gave no work to it.
    unsafe { backend.free(block) }
}

/// Closes a descriptor that no import took over.
pub(super) fn close(exported: &Exported) {
    // SAFETY: the descriptor came from `export`, and nobody else closes it.
    drop(unsafe { OwnedFd::from_raw_fd(exported.fd) });
}
