//! The host's view of blocks, their addresses, and what the runtime says is free.
use crate::{
    backend::Hip,
    block::{Block, Kind},
    caps::Source,
};
use core::ptr::{self, NonNull};
use omniheap_core::{Address, DriverBudget, ErrorKind, HeapBudget, HeapId, Map, Place, Result};

impl Map for Hip {
    fn map(&self, block: &Block) -> Result<NonNull<u8>> {
        self.owns(block)?;
        let host = match block.kind {
            Kind::Pinned(host) => host.0,
            // Managed memory has one address on both sides.
            Kind::Managed => {
                let address = usize::try_from(block.base).map_err(|_| ErrorKind::NotMappable)?;
                ptr::with_exposed_provenance_mut(address)
            }
            _ => return Err(ErrorKind::NotMappable.into()),
        };
        NonNull::new(host).ok_or_else(|| ErrorKind::NotMappable.into())
    }

    fn flush(&self, block: &Block, offset: u64, size: u64) -> Result<()> {
        // The host's caches are coherent with the device's bus: there is nothing to do but to refuse what is wrong.
        self.map(block)?;
        self.range(&Place { block, offset }, size).map(|_| ())
    }

    fn invalidate(&self, block: &Block, offset: u64, size: u64) -> Result<()> {
        self.flush(block, offset, size)
    }
}

impl Address for Hip {
    fn address(&self, block: &Block) -> u64 {
        block.base
    }
}

impl DriverBudget for Hip {
    fn budget(&self, heap: HeapId) -> Result<HeapBudget> {
        let (source, described) = self.source(heap)?;
        match source {
            Source::Device | Source::Managed => {
                let info = self.driver().memory_info()?;
                // The runtime does not count managed memory that is not on the device now.
                let used = info.total.saturating_sub(info.free).max(self.used(heap));
                Ok(HeapBudget { budget: info.total, used })
            }
            // The runtime does not tell; our own count is all there is.
            Source::Combined | Source::Cached | Source::Constant => {
                Ok(HeapBudget { budget: described.size, used: self.used(heap) })
            }
        }
    }
}
