//! Memory that leaves the process, or comes from another one, as a file descriptor.
#![expect(unsafe_code, reason = "calls the runtime and takes descriptors over")]
use crate::{
    addresses,
    backend::Hip,
    block::{Block, Kind, Shared},
    driver::{Reserved, Sharing},
    sys::hipMemGenericAllocationHandle_t as Handle,
};
use omniheap_seam::{Align, Error, ErrorKind, Export, Exported, HeapId, Result};

/// Places that are tried: HIP 7.2 refuses access at some addresses whatever they hold, and others may do.
const PLACES: usize = 8;

/// Record that the runtime keeps of a failed map.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trace {
    /// Nothing: others can have them.
    None,
    /// AMD's runtime remembers a map that failed, and takes it for what is mapped there later: it refuses that, or crashes. So
    /// nothing must ever be mapped there again.
    Left,
}

/// Reason why memory got no address.
struct Refusal {
    error: Error,
    trace: Trace,
}

impl Hip {
    /// Maps physical memory at a new address; on failure nothing changes.
    fn place(&self, page: Handle, size: usize, align: u64) -> Result<Shared> {
        let align = usize::try_from(align).map_err(|_| ErrorKind::ExceedsLimit)?;
        // Kept until the end, so that each try is at other addresses.
        let mut refused = Vec::new();
        let placed = loop {
            let reserved = match addresses::take(self.driver(), size, align) {
                Ok(reserved) => reserved,
                Err(error) => break Err(error),
            };
            // SAFETY: the range was reserved just above; the callers pass a live page of this size.
            match unsafe { self.place_at(page, size, reserved) } {
                Ok(()) => break Ok(Shared { page, reserved, size }),
                Err(Refusal { error, trace }) => {
                    refused.push((reserved, trace));
                    if error.kind() != ErrorKind::Driver || refused.len() >= PLACES {
                        break Err(error);
                    }
                }
            }
        };
        for (reserved, _) in refused.iter().filter(|(_, trace)| *trace == Trace::None) {
            // SAFETY: taken above; the map that was refused left no trace.
            unsafe { addresses::keep(self.driver(), *reserved) };
        }
        placed
    }

    /// Maps physical memory at reserved addresses, and lets the device in; undoes what it did on failure.
    ///
    /// # Safety
    ///
    /// The range was reserved for `size` bytes, nothing is mapped there, and the page is live and of this size.
    unsafe fn place_at(
        &self,
        page: Handle,
        size: usize,
        reserved: Reserved,
    ) -> core::result::Result<(), Refusal> {
        let (driver, base) = (self.driver(), reserved.base);
        // SAFETY: the caller's promise.
        unsafe { driver.map(base, size, page) }
            .map_err(|error| Refusal { error, trace: Trace::None })?;
        // SAFETY: the whole range was mapped just above.
        unsafe { driver.allow(base, size) }.map_err(|error| {
            // SAFETY: mapped just above, if that did not fail silently, and used by nothing.
            if let Err(error) = unsafe { driver.undo_map(base, size) } {
                tracing::error!(base, %error, "failed to unmap exported memory");
            }
            Refusal { error, trace: Trace::Left }
        })
    }

    pub(crate) fn free_exportable(&self, shared: Shared) -> Result<()> {
        // SAFETY: `place` mapped the range as one mapping; whoever frees it promises that nothing uses it.
        let unmapped = unsafe { self.driver().unmap(shared.reserved.base, shared.size) };
        let unplaced = unmapped.inspect(|()| {
            // SAFETY: `place` took the range, and nothing is mapped there any more.
            unsafe { addresses::keep(self.driver(), shared.reserved) };
        });
        // SAFETY: created for this block, which `free` took by value.
        let released = unsafe { self.driver().release_page(shared.page) };
        unplaced.and(released)
    }

    /// Frees imported memory. Its addresses stay reserved: AMD's runtime remembers the memory there until the process ends, and
    /// whatever is mapped at those addresses later is refused, or crashes.
    pub(crate) fn free_imported(&self, shared: Shared) -> Result<()> {
        // SAFETY: `place` mapped the range as one mapping; whoever frees it promises that nothing uses it.
        let unmapped = unsafe { self.driver().unmap(shared.reserved.base, shared.size) };
        // SAFETY: imported for this block, which `free` took by value.
        let released = unsafe { self.driver().release_page(shared.page) };
        unmapped.and(released)
    }

    /// Maps a page at a new address and makes it a block; releases the page on failure.
    fn map_block(
        &self,
        heap: HeapId,
        page: Handle,
        size: u64,
        kind: fn(Shared) -> Kind,
    ) -> Result<Block> {
        let placed = usize::try_from(size)
            .map_err(|_| ErrorKind::ExceedsLimit.into())
            .and_then(|bytes| self.place(page, bytes, self.device.page(heap)?));
        match placed {
            Ok(shared) => {
                let base = shared.reserved.base;
                // SAFETY: `place` mapped as many bytes there, for this block alone.
                Ok(unsafe { self.device.block(heap, base, size, kind(shared)) })
            }
            Err(error) => {
                // SAFETY: the callers made or imported it just now, and it is mapped nowhere.
                let _ = unsafe { self.driver().release_page(page) };
                Err(error)
            }
        }
    }
}

// SAFETY: exportable memory is mapped for one block alone; imported memory keeps a reference of its own, and its size is the
// driver's to check.
unsafe impl Export for Hip {
    type Block = Block;

    fn allocate_exportable(&self, heap: HeapId, size: u64) -> Result<Block> {
        let granule = Align::new(self.device.page(heap)?).ok_or(ErrorKind::Driver)?;
        let (size, bytes) = self.device.admit_export(heap, size, granule)?;
        let page = self.driver().create_page(bytes, Sharing::Exportable)?;
        self.map_block(heap, page, size, Kind::Exportable)
    }

    fn export(&self, block: &Block) -> Result<Exported> {
        self.device.owns(block)?;
        let Kind::Exportable(shared) = *block.kind() else {
            return Err(ErrorKind::Unsupported.into());
        };
        // SAFETY: the block is live, so its page is, and was created exportable.
        let fd = unsafe { self.driver().export_page(shared.page) }?;
        // SAFETY: the runtime just made it, for us to close.
        unsafe { Exported::own(fd, block.size(), self.device.caps().device.uuid) }
    }

    // HIP 6.4 and 7.2 do not give memory back that was ever imported, before the process ends.
    fn import(&self, heap: HeapId, exported: &Exported) -> Result<Block> {
        self.device.admit_import(heap, exported)?;
        if !exported.size.is_multiple_of(self.device.page(heap)?) {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        let page = self.driver().import_page(exported.number())?;
        self.map_block(heap, page, exported.size, Kind::Imported).map_err(wrong_size)
    }
}

/// Blames the size for an argument that the runtime rejects: the descriptor was accepted before.
fn wrong_size(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Driver | ErrorKind::Unsupported => {
            Error::new(ErrorKind::ExceedsLimit).with_native(error.native())
        }
        _ => error,
    }
}
