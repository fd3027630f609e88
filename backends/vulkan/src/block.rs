//! One driver allocation with a buffer over all its bytes, or sparse addresses that pages are mapped into.
#![expect(unsafe_code, reason = "holds the pointer of a mapping")]
use crate::driver::{
    device::Device,
    objects::{Buffer, Memory},
};
use crate::remap::table::PageTable;
use ash::vk;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use omniheap_seam::{ErrorKind, HeapId, Result, lock};
use std::sync::{Arc, Mutex};

/// Native memory: a `VkDeviceMemory` and, where the heap takes buffers, one `VkBuffer` over all of it.
///
/// Give it back with [`Backend::free`](omniheap_seam::Backend::free). A block that is dropped instead waits until the
/// device is idle and then frees itself; in either case the device outlives it.
#[derive(Debug)]
pub struct Block {
    // Destroyed before the memory under it.
    buffer: Option<Buffer>,
    backing: Backing,
    heap: HeapId,
    size: u64,
    address: u64,
    shared: Shared,
    /// The raw handle of the one resource that the memory is for.
    #[cfg_attr(not(feature = "manager"), expect(dead_code, reason = "resources need the manager"))]
    owner: Option<u64>,
    ending: Ending,
    user_data: AtomicU64,
    device: Arc<Device>,
}

#[derive(Debug)]
pub(crate) enum Backing {
    Memory { memory: Memory, mapped: Mutex<Option<Mapped>> },
    Pages { page: u64, table: PageTable },
}

/// The pointer of a mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapped(NonNull<u8>);

// SAFETY: an address; who dereferences it answers for races, as `Map::map` says.
unsafe impl Send for Mapped {}

/// Sharing of a block with another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shared {
    No,
    Exportable,
    Imported,
}

/// Way in which a block is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Waits for the device: nobody said that it is done with the block.
    Waits,
    /// Freed at once: the caller of `free` said that the device is done with it.
    AtOnce,
}

impl Block {
    pub(crate) fn with_memory(
        device: &Arc<Device>,
        heap: HeapId,
        size: u64,
        buffer: Option<Buffer>,
        memory: Memory,
        shared: Shared,
    ) -> Self {
        let address = buffer.as_ref().map_or(0, Buffer::address);
        let backing = Backing::Memory { memory, mapped: Mutex::new(None) };
        let (owner, ending, user_data) = (None, Ending::Waits, AtomicU64::new(0));
        let device = Arc::clone(device);
        Self { buffer, backing, heap, size, address, shared, owner, ending, user_data, device }
    }

    pub(crate) fn with_pages(
        device: &Arc<Device>,
        heap: HeapId,
        size: u64,
        buffer: Buffer,
        page: u64,
    ) -> Self {
        let table = PageTable::new(size / page);
        let (address, device) = (buffer.address(), Arc::clone(device));
        let (backing, shared) = (Backing::Pages { page, table }, Shared::No);
        let (buffer, owner) = (Some(buffer), None);
        let (ending, user_data) = (Ending::Waits, AtomicU64::new(0));
        Self { buffer, backing, heap, size, address, shared, owner, ending, user_data, device }
    }

    /// Returns the buffer over all bytes; `None` in a heap that takes only images, and in memory dedicated to another resource.
    #[must_use]
    pub fn buffer(&self) -> Option<vk::Buffer> {
        self.buffer.as_ref().map(|buffer| buffer.raw)
    }

    /// Returns the memory; `None` when it is mapped page by page.
    #[must_use]
    pub fn memory(&self) -> Option<vk::DeviceMemory> {
        match &self.backing {
            Backing::Memory { memory, .. } => Some(memory.raw),
            Backing::Pages { .. } => None,
        }
    }

    /// Returns the heap it came from.
    #[must_use]
    pub const fn heap(&self) -> HeapId {
        self.heap
    }

    /// Bytes, rounded up to the heap's granule.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Returns the base address on the device, zero where it has none.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Returns a number that is the program's: 0 in a new block, and never read by omniheap.
    ///
    /// With it a program finds what it knows of a block without a table of handles, which drivers use again.
    #[must_use]
    pub const fn user_data(&self) -> &AtomicU64 {
        &self.user_data
    }

    pub(crate) const fn backing(&self) -> &Backing {
        &self.backing
    }

    /// Sets the resource that the memory is dedicated to.
    #[cfg(feature = "manager")]
    pub(crate) const fn owned_by(mut self, handle: u64) -> Self {
        self.owner = Some(handle);
        self
    }

    #[cfg(feature = "manager")]
    pub(crate) const fn owner(&self) -> Option<u64> {
        self.owner
    }

    pub(crate) const fn shared(&self) -> Shared {
        self.shared
    }

    /// `Foreign` unless the block was made on `device`.
    pub(crate) fn belongs_to(&self, device: &Arc<Device>) -> Result<()> {
        match Arc::ptr_eq(&self.device, device) {
            true => Ok(()),
            false => Err(ErrorKind::Foreign.into()),
        }
    }

    /// `OutOfRange` unless `offset..offset + size` lies in the block and has memory behind it.
    pub(crate) fn covers(&self, offset: u64, size: u64) -> Result<()> {
        let end = offset.checked_add(size).filter(|end| *end <= self.size);
        let end = end.ok_or(ErrorKind::OutOfRange)?;
        match &self.backing {
            Backing::Pages { page, table } if size > 0 => {
                let first = offset / page;
                table.check_mapped(first, (end - 1) / page - first + 1)
            }
            _ => Ok(()),
        }
    }

    /// Maps once and remembers.
    pub(crate) fn mapping(&self) -> Result<NonNull<u8>> {
        let Backing::Memory { memory, mapped } = &self.backing else {
            return Err(ErrorKind::NotMappable.into());
        };
        let mut mapped = lock(mapped);
        if let Some(Mapped(start)) = *mapped {
            return Ok(start);
        }
        let start = memory.map()?;
        *mapped = Some(Mapped(start));
        Ok(start)
    }

    /// Destroys the block without waiting.
    ///
    /// # Safety
    ///
    /// No device work uses it any more.
    pub(crate) unsafe fn end(mut self) {
        self.ending = Ending::AtOnce;
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.ending == Ending::Waits {
            // A lost device runs nothing any more; either way no work uses the block.
            let _ = self.device.wait_idle();
        }
    }
}
