//! The host's view of blocks, and what the driver says is free.
use crate::{Block, BlockKind, Device, Driver, Memory, Source};
use core::ptr::{self, NonNull};
use omniheap_core::{ErrorKind, HeapBudget, HeapId, Place, Result};

impl<D: Driver> Device<D> {
    /// The block's first byte for the host, as [`Map::map`](omniheap_core::Map::map).
    ///
    /// # Errors
    ///
    /// `Foreign`, `NotMappable`.
    pub fn map<K: BlockKind>(&self, block: &Block<K>) -> Result<NonNull<u8>> {
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

    /// Makes writes of one side visible to the other, as [`Map::flush`](omniheap_core::Map::flush) and `invalidate`.
    ///
    /// # Errors
    ///
    /// As for [`map`](Self::map); `OutOfRange`.
    pub fn flush<K: BlockKind>(&self, block: &Block<K>, offset: u64, size: u64) -> Result<()> {
        // Every host-visible heap is coherent: there is nothing to do but to refuse what is wrong.
        self.map(block)?;
        self.range(&Place { block, offset }, size).map(|_| ())
    }

    /// What a heap may hold and holds, as [`DriverBudget::budget`](omniheap_core::DriverBudget::budget).
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`, or what the driver says.
    pub fn budget(&self, heap: HeapId) -> Result<HeapBudget> {
        let (source, described) = self.source(heap)?;
        match source {
            Source::Device | Source::Managed => {
                let info = self.driver().memory_info()?;
                let used = info.total.saturating_sub(info.free);
                Ok(HeapBudget { budget: info.total, used })
            }
            // The driver does not tell; our own count is all there is.
            Source::Combined | Source::Cached | Source::Constant => {
                Ok(HeapBudget { budget: described.size, used: self.used(heap) })
            }
        }
    }
}
