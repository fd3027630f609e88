//! The host's view of blocks, their addresses, and what the driver says is free.
#![expect(unsafe_code, reason = "signs the contracts of Map and Address")]
use crate::{Block, BlockKind, Device, Driver, Memory, Source};
use core::ptr::{self, NonNull};
use omniheap_seam::{
    Address, BlockOffset, DriverBudget, ErrorKind, HeapBudget, HeapId, Map, Result, SystemLimit,
};

// SAFETY: pinned and managed memory is mapped as long as it exists, at one address. Every host-visible heap is coherent, so
// flushing touches nothing.
unsafe impl<D: Driver> Map for Device<D> {
    type Block = Block<D::Kind>;

    fn map(&self, block: &Self::Block) -> Result<NonNull<u8>> {
        self.owns(block)?;
        let host = match (block.kind.pinned(), block.memory()) {
            (Some(host), _) => host.0,
            // Managed memory has one address on both sides.
            (None, Memory::Managed) => {
                let address = usize::try_from(block.base).map_err(|_| ErrorKind::NotMappable)?;
                ptr::with_exposed_provenance_mut(address)
            }
            _ => return Err(ErrorKind::NotMappable.into()),
        };
        NonNull::new(host).ok_or_else(|| ErrorKind::NotMappable.into())
    }

    fn flush(&self, block: &Self::Block, offset: u64, size: u64) -> Result<()> {
        self.map(block)?;
        self.range(&BlockOffset { block, offset }, size).map(drop)
    }

    fn invalidate(&self, block: &Self::Block, offset: u64, size: u64) -> Result<()> {
        self.flush(block, offset, size)
    }
}

// SAFETY: whoever made the block promised that its bytes begin at its base, until it is freed.
unsafe impl<D: Driver> Address for Device<D> {
    type Block = Block<D::Kind>;

    fn address(&self, block: &Self::Block) -> u64 {
        block.address()
    }
}

impl<D: Driver> DriverBudget for Device<D> {
    fn limits(&self, _: HeapId) -> Vec<SystemLimit> {
        self.system_limits().read()
    }
    fn budget(&self, heap: HeapId) -> Result<HeapBudget> {
        let (source, described) = self.source(heap)?;
        match source {
            Source::Device => {
                let info = self.driver().memory_info()?;
                let used = info.total.saturating_sub(info.free);
                Ok(HeapBudget { budget: info.total, used })
            }
            // The driver does not tell how much of it there is: managed memory moves between device and host. Our own
            // count is all there is.
            Source::Managed | Source::Combined | Source::Cached | Source::Constant => {
                Ok(HeapBudget { budget: described.size, used: self.used(heap) })
            }
        }
    }
}
