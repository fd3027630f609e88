//! Memory that leaves the process as a file descriptor: what is refused before the driver sees it.
use crate::{Device, Driver};
use omniheap_seam::{Align, ErrorKind, Exported, HeapId, Result};

impl<D: Driver> Device<D> {
    /// Refuses a size that cannot leave the process; otherwise rounds it up, and says it as drivers take it too.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`, `Unsupported` for a heap without pages, `ZeroSize`, `SizeOverflow`, `ExceedsLimit`.
    pub fn admit_export(&self, heap: HeapId, size: u64, granule: Align) -> Result<(u64, usize)> {
        self.page(heap)?;
        if size == 0 {
            return Err(ErrorKind::ZeroSize.into());
        }
        let size = granule.up(size).ok_or(ErrorKind::SizeOverflow)?;
        let (_, bytes) = self.admit(heap, size)?;
        Ok((size, bytes))
    }

    /// Refuses memory from elsewhere that cannot be a block here; says its size as drivers take it.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`, `Unsupported` for a heap without pages, `Foreign` for another device's, `ZeroSize`,
    /// `ExceedsLimit`.
    pub fn admit_import(&self, heap: HeapId, exported: &Exported) -> Result<usize> {
        self.page(heap)?;
        if exported.uuid.is_some() && exported.uuid != self.caps().device.uuid {
            return Err(ErrorKind::Foreign.into());
        }
        Ok(self.admit(heap, exported.size)?.1)
    }
}
