//! Memory that leaves the process, or comes from another one, as a file descriptor.
#![expect(unsafe_code, reason = "calls the runtime and closes descriptors")]
use crate::{
    backend::Hip,
    block::{Block, Kind},
    driver::{Reserved, Sharing},
    sys::hipMemGenericAllocationHandle_t as Handle,
};
use omniheap_core::{Align, Error, ErrorKind, Export, Exported, HeapId, Result};

/// Physical memory with an address of its own.
#[derive(Clone, Copy)]
pub(crate) struct Shared {
    page: Handle,
    reserved: Reserved,
    size: usize,
}

impl Hip {
    /// Gives physical memory an address; on failure it is as before.
    fn place(&self, page: Handle, size: usize, align: u64) -> Result<Shared> {
        let driver = self.driver();
        let align = usize::try_from(align).map_err(|_| ErrorKind::ExceedsLimit)?;
        let reserved = driver.reserve(size, align)?;
        // SAFETY: the range was reserved just above; the callers pass a live page of this size.
        let mapped = unsafe { driver.map(reserved.base, size, page) };
        if let Err(error) = mapped {
            // SAFETY: reserved just above, nothing mapped.
            let _ = unsafe { driver.unreserve(reserved) };
            return Err(error);
        }
        let shared = Shared { page, reserved, size };
        // SAFETY: the whole range was mapped just above.
        if let Err(error) = unsafe { driver.allow(reserved.base, size) } {
            // SAFETY: mapped just above, if that did not fail silently, and used by nothing.
            let undone = unsafe { driver.undo_map(reserved.base, size) };
            // SAFETY: reserved just above, and nothing is mapped there any more.
            let _ = undone.and_then(|()| unsafe { driver.unreserve(reserved) });
            return Err(error);
        }
        Ok(shared)
    }

    fn unplace(&self, shared: Shared) -> Result<()> {
        // SAFETY: `place` mapped the range as one mapping; whoever frees it promises that nothing uses it.
        unsafe { self.driver().unmap(shared.reserved.base, shared.size) }?;
        // SAFETY: `place` reserved the range, and nothing is mapped there any more.
        unsafe { self.driver().unreserve(shared.reserved) }
    }

    pub(crate) fn free_shared(&self, shared: Shared) -> Result<()> {
        let unplaced = self.unplace(shared);
        // SAFETY: created or imported for this block, which `free` took by value.
        let released = unsafe { self.driver().release_page(shared.page) };
        unplaced.and(released)
    }

    /// Gives a page an address and makes it a block; on failure releases it.
    fn settle(
        &self,
        heap: HeapId,
        page: Handle,
        size: u64,
        kind: fn(Shared) -> Kind,
    ) -> Result<Block> {
        let placed = usize::try_from(size)
            .map_err(|_| ErrorKind::ExceedsLimit.into())
            .and_then(|bytes| self.place(page, bytes, self.page(heap)?));
        match placed {
            Ok(shared) => Ok(self.block(heap, shared.reserved.base, size, kind(shared))),
            Err(error) => {
                // SAFETY: the callers made or imported it just now, and it is mapped nowhere.
                let _ = unsafe { self.driver().release_page(page) };
                Err(error)
            }
        }
    }
}

/// Closes a descriptor that the memory no longer needs.
#[cfg(unix)]
fn close(fd: i32) {
    use std::os::fd::{FromRawFd, OwnedFd};
    // SAFETY: `Export::import` takes the descriptor over on success, so it is ours to close, once.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}

#[cfg(not(unix))]
fn close(_fd: i32) {}

impl Export for Hip {
    fn allocate_exportable(&self, heap: HeapId, size: u64) -> Result<Block> {
        let granule = Align::new(self.page(heap)?).ok_or(ErrorKind::Driver)?;
        let (_, described) = self.source(heap)?;
        if size == 0 {
            return Err(ErrorKind::ZeroSize.into());
        }
        let size = granule.up(size).ok_or(ErrorKind::SizeOverflow)?;
        if size > described.max_block {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        let bytes = usize::try_from(size).map_err(|_| ErrorKind::ExceedsLimit)?;
        let page = self.driver().create_page(bytes, Sharing::Exportable)?;
        self.settle(heap, page, size, Kind::Exportable)
    }

    fn export(&self, block: &Block) -> Result<Exported> {
        self.owns(block)?;
        let Kind::Exportable(shared) = block.kind else {
            return Err(ErrorKind::Unsupported.into());
        };
        // SAFETY: the block is live, so its page is, and was created exportable.
        let fd = unsafe { self.driver().export_page(shared.page) }?;
        Ok(Exported { fd, size: block.size, uuid: self.attributes().uuid })
    }

    // HIP 6.4 and 7.2 do not give memory back that was ever imported, before the process ends.
    fn import(&self, heap: HeapId, exported: &Exported) -> Result<Block> {
        let page = self.page(heap)?;
        let (_, described) = self.source(heap)?;
        if exported.uuid.is_some() && exported.uuid != self.attributes().uuid {
            return Err(ErrorKind::Foreign.into());
        }
        if exported.fd < 0 {
            return Err(ErrorKind::OutOfRange.into());
        }
        if exported.size == 0 {
            return Err(ErrorKind::ZeroSize.into());
        }
        if exported.size > described.max_block || !exported.size.is_multiple_of(page) {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        let page = self.driver().import_page(exported.fd)?;
        let block = self.settle(heap, page, exported.size, Kind::Imported).map_err(wrong_size)?;
        close(exported.fd);
        Ok(block)
    }
}

/// The descriptor was right, so an argument that the runtime refuses is the size.
fn wrong_size(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Driver => Error::new(ErrorKind::ExceedsLimit).with_native(error.native()),
        _ => error,
    }
}
