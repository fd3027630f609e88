//! Pages: sparse buffers for addresses, binds for mapping.
#![expect(unsafe_code, reason = "signs the contract of Remap and submits binds")]
pub(crate) mod pages;

use crate::{
    Block, Vulkan,
    block::Backing,
    caps::Slot,
    driver::{
        check,
        device::lock,
        objects::{Buffer, Kind},
    },
    timeline::clock::Fence,
};
use ash::vk;
use omniheap_seam::{Align, ErrorKind, Heap, HeapId, Page, Remap, Result};
use std::sync::Mutex;

type Slots = Mutex<Vec<Option<Page>>>;

impl Vulkan {
    fn paged(&self, heap: HeapId) -> Result<(&Heap, Slot, Align)> {
        let (described, slot) = self.heap(heap)?;
        let page = described.page.ok_or(ErrorKind::Unsupported)?;
        Ok((described, slot, page))
    }

    /// Returns the page size and table of a reserved block.
    fn table<'a>(&self, block: &'a Block) -> Result<(u64, &'a Slots)> {
        block.belongs_to(&self.device)?;
        match block.backing() {
            Backing::Pages { page, slots } => Ok((*page, slots)),
            Backing::Memory { .. } => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// Binds, and waits until the device has.
    fn bind(&self, block: &Block, binds: &[vk::SparseMemoryBind]) -> Result<()> {
        let buffer = block.buffer().expect("a reserved block always has its buffer");
        let fence = Fence::create(&self.device)?;
        let buffers = [vk::SparseBufferMemoryBindInfo::default().buffer(buffer).binds(binds)];
        let info = [vk::BindSparseInfo::default().buffer_binds(&buffers)];
        self.device.with_queue(self.binder, |queue| {
            // SAFETY: the queue binds sparse memory and is ours alone; buffer, pages and fence are alive and stay so
            // until the wait below; positions and sizes are whole pages inside the buffer.
            check(unsafe { self.device.raw.queue_bind_sparse(queue, &info, fence.raw) })
        })?;
        fence.wait()
    }
}

/// Positions as indices, or `OutOfRange`.
fn positions(slots: &[Option<Page>], first: u64, count: u64) -> Result<core::ops::Range<usize>> {
    let end = first.checked_add(count).filter(|end| *end <= slots.len() as u64);
    let end = end.ok_or(ErrorKind::OutOfRange)?;
    let index = |n: u64| usize::try_from(n).map_err(|_| ErrorKind::OutOfRange);
    Ok(index(first)?..index(end)?)
}

// SAFETY: position `first + i` is bound to the memory that `Pages` keeps for `pages[i]`, until it is unbound; unbinding
// does not touch the memory.
unsafe impl Remap for Vulkan {
    type Block = Block;

    fn reserve(&self, heap: HeapId, size: u64) -> Result<Block> {
        let (_, _, page) = self.paged(heap)?;
        if size == 0 {
            return Err(ErrorKind::ZeroSize.into());
        }
        if !page.divides(size) {
            return Err(ErrorKind::Misaligned.into());
        }
        if size > self.sparse_limit {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        let buffer = Buffer::create(&self.device, size, Kind::Sparse)?;
        let block = Block::with_pages(&self.device, heap, size, buffer, page.get())?;
        self.based(block)
    }

    fn create(&self, heap: HeapId, count: u64, pages: &mut Vec<Page>) -> Result<()> {
        let (described, slot, page) = self.paged(heap)?;
        self.enabled(slot)?;
        let heap_pages = described.size / page.get();
        if count > heap_pages {
            return Err(ErrorKind::OutOfDeviceMemory.into());
        }
        let max_pages = described.max_block / page.get();
        let (memory_type, page) = (slot.memory_type, page.get());
        let kind = pages::Kind { heap, memory_type, page, heap_pages, max_pages };
        self.pages.create(kind, count, pages)
    }

    unsafe fn destroy(&self, heap: HeapId, pages: &[Page]) -> Result<()> {
        self.pages.destroy(heap, pages)
    }

    unsafe fn map_pages(&self, block: &Block, first: u64, pages: &[Page]) -> Result<()> {
        let (page, slots) = self.table(block)?;
        let mut slots = lock(slots);
        let range = positions(&slots, first, pages.len() as u64)?;
        if slots[range.clone()].iter().any(Option::is_some) {
            return Err(ErrorKind::Busy.into());
        }
        if pages.is_empty() {
            return Ok(());
        }
        let binds = self.pages.binds(block.heap(), page, first * page, pages)?;
        self.bind(block, &binds)?;
        for (slot, page) in slots[range].iter_mut().zip(pages) {
            *slot = Some(*page);
        }
        Ok(())
    }

    unsafe fn unmap_pages(&self, block: &Block, first: u64, count: u64) -> Result<()> {
        let (page, slots) = self.table(block)?;
        let mut slots = lock(slots);
        let range = positions(&slots, first, count)?;
        if slots[range.clone()].iter().any(Option::is_none) {
            return Err(ErrorKind::OutOfRange.into());
        }
        if count == 0 {
            return Ok(());
        }
        let nothing =
            vk::SparseMemoryBind::default().resource_offset(first * page).size(count * page);
        self.bind(block, &[nothing])?;
        slots[range].fill(None);
        Ok(())
    }
}
