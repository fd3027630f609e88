//! Memory that leaves the process, or comes from another process or API, as a file descriptor.
#![expect(unsafe_code, reason = "calls the driver and takes descriptors over")]
use crate::{
    backend::Cuda,
    block::{Block, Kind},
};
use cudarc::driver::sys::CUextMemory_st;
use omniheap_seam::{Align, Error, ErrorKind, Export, Exported, HeapId, Result};
use omniheap_stream::{MemoryDriver, Raw};

impl Cuda {
    /// Returns the size that exported memory is a multiple of, and aligned to.
    fn share_granule(&self, heap: HeapId) -> Result<Align> {
        let about = self.device.caps().heap(heap).ok_or(ErrorKind::NoSuchHeap)?;
        about.registrable.ok_or_else(|| ErrorKind::Unsupported.into())
    }

    /// Maps physical memory at a new address; on failure nothing changes.
    fn place(&self, page: u64, size: usize, align: Align) -> Result<u64> {
        let driver = self.driver();
        let align = usize::try_from(align.get()).map_err(|_| ErrorKind::ExceedsLimit)?;
        let base = driver.reserve(size, align)?;
        // SAFETY: the range was reserved just above; the callers pass a live page, and the driver checks its size.
        let mapped = unsafe { driver.map(base, size, page) };
        if let Err(error) = mapped {
            // SAFETY: reserved just above, nothing mapped.
            let _ = unsafe { driver.unreserve(base, size) };
            return Err(error);
        }
        // SAFETY: the whole range was mapped just above.
        if let Err(error) = unsafe { driver.allow(base, size) } {
            let _ = self.unplace(base, size);
            return Err(error);
        }
        Ok(base)
    }

    fn unplace(&self, base: u64, size: usize) -> Result<()> {
        // SAFETY: `place` mapped the range as one mapping; whoever frees it promises that nothing uses it.
        let unmapped = unsafe { self.driver().unmap(base, size) };
        // SAFETY: `place` reserved the range. Where unmapping failed the driver refuses this too.
        let unreserved = unsafe { self.driver().unreserve(base, size) };
        unmapped.and(unreserved)
    }

    pub(crate) fn free_shared(&self, block: &Block, page: u64) -> Result<()> {
        let size = usize::try_from(block.size()).map_err(|_| ErrorKind::ExceedsLimit)?;
        let unplaced = self.unplace(block.address(), size);
        // SAFETY: created or imported for this block, which `free` took by value.
        let released = unsafe { self.driver().release_page(page) };
        unplaced.and(released)
    }

    pub(crate) fn free_external(&self, block: &Block, memory: Raw<CUextMemory_st>) -> Result<()> {
        // SAFETY: `import` got the address for this block, which `free` took by value.
        let freed = unsafe { self.driver().free(block.address()) };
        // SAFETY: as above; its address was freed just now.
        let destroyed = unsafe { self.driver().destroy_external(memory) };
        freed.and(destroyed)
    }

    /// Takes over memory that CUDA exported.
    fn import_cuda(&self, heap: HeapId, exported: &Exported, size: usize) -> Result<Block> {
        let page = self.driver().import_page(exported.number())?;
        let placed = self.share_granule(heap).and_then(|granule| self.place(page, size, granule));
        match placed {
            Ok(base) => {
                // SAFETY: `place` mapped as many bytes there, for this block alone.
                Ok(unsafe { self.device.block(heap, base, exported.size, Kind::Imported(page)) })
            }
            Err(error) => {
                // SAFETY: imported just above, mapped nowhere.
                let _ = unsafe { self.driver().release_page(page) };
                // The descriptor was right and mapping takes no memory, so what the driver refuses is the size.
                Err(match error.kind() {
                    ErrorKind::DeviceLost | ErrorKind::OutOfHostMemory => error,
                    _ => Error::new(ErrorKind::ExceedsLimit).with_native(error.native()),
                })
            }
        }
    }

    /// Takes over memory that another API exported. On success the driver keeps the descriptor that it is given.
    fn import_external(&self, heap: HeapId, exported: &Exported) -> Result<Block> {
        let memory = exported.give_copy(|fd| self.driver().import_external(fd, exported.size))?;
        // SAFETY: imported just above.
        match unsafe { self.driver().external_address(memory, exported.size) } {
            Ok(base) => {
                // SAFETY: the driver mapped as many bytes there, for this block alone.
                Ok(unsafe { self.device.block(heap, base, exported.size, Kind::External(memory)) })
            }
            Err(error) => {
                // SAFETY: imported just above, without an address.
                let _ = unsafe { self.driver().destroy_external(memory) };
                Err(error)
            }
        }
    }
}

// SAFETY: exportable memory is mapped for one block alone; imported memory keeps a reference of its own, and its size is the
// driver's to check.
unsafe impl Export for Cuda {
    type Block = Block;

    fn allocate_exportable(&self, heap: HeapId, size: u64) -> Result<Block> {
        let granule = self.share_granule(heap)?;
        let (size, bytes) = self.device.admit_export(heap, size, granule)?;
        let page = self.driver().create_exportable(bytes)?;
        match self.place(page, bytes, granule) {
            // SAFETY: `place` mapped as many bytes there, for this block alone.
            Ok(base) => Ok(unsafe { self.device.block(heap, base, size, Kind::Exportable(page)) }),
            Err(error) => {
                // SAFETY: created just above, mapped nowhere.
                let _ = unsafe { self.driver().release_page(page) };
                Err(error)
            }
        }
    }

    fn export(&self, block: &Block) -> Result<Exported> {
        self.device.owns(block)?;
        let Kind::Exportable(page) = *block.kind() else {
            return Err(ErrorKind::Unsupported.into());
        };
        // SAFETY: the block is live, so its page is, and was created exportable.
        let fd = unsafe { self.driver().export_page(page) }?;
        // SAFETY: the driver just made it, for us to close.
        unsafe { Exported::own(fd, block.size(), self.device.caps().device.uuid) }
    }

    fn import(&self, heap: HeapId, exported: &Exported) -> Result<Block> {
        let bytes = self.device.admit_import(heap, exported)?;
        match self.import_cuda(heap, exported, bytes) {
            Ok(block) => Ok(block),
            // The descriptor is CUDA's, only the size is not.
            Err(error) if error.kind() == ErrorKind::ExceedsLimit => Err(error),
            Err(_) => self.import_external(heap, exported),
        }
    }
}
