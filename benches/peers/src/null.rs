//! A driver that costs nothing, so that only the manager's own work is measured.
use omniheap_core::{Backend, Caps, HeapId, Result};

/// Blocks without bytes.
pub struct Null(Caps);

impl Null {
    /// The caps of another device.
    pub fn like(caps: &Caps) -> Self {
        Self(caps.clone())
    }
}

// SAFETY: a block has no bytes that anyone could reach: no capability is offered.
unsafe impl Backend for Null {
    type Block = ();
    fn caps(&self) -> &Caps {
        &self.0
    }
    fn allocate(&self, _: HeapId, _: u64) -> Result<()> {
        Ok(())
    }
    unsafe fn free(&self, (): ()) -> Result<()> {
        Ok(())
    }
    fn wait_idle(&self) -> Result<()> {
        Ok(())
    }
}
