//! Pages: sparse buffers for addresses, binds for mapping.
#![expect(unsafe_code, reason = "signs the contract of Remap and submits binds")]
pub(crate) mod pages;
pub(crate) mod table;

use crate::{
    Block, Vulkan,
    block::Backing,
    caps::Slot,
    driver::{
        check,
        objects::{Buffer, Kind},
        turns::Turns,
    },
    remap::{pages::MOST, table::PageTable},
    timeline::clock::Fence,
};
use ash::vk;
use omniheap_seam::{Align, ErrorKind, Heap, HeapId, Page, Remap, Result};

/// Binds per driver call, so that other threads' calls come in between.
const AT_ONCE: usize = 8;

/// A bind that unbinds a range.
fn nothing(offset: u64, size: u64) -> vk::SparseMemoryBind {
    vk::SparseMemoryBind::default().resource_offset(offset).size(size)
}

/// Binds an unbound range, all or nothing: if `bind` fails, the whole range is unbound again.
fn bind_or_undo(
    binds: &[vk::SparseMemoryBind],
    mut bind: impl FnMut(&[vk::SparseMemoryBind]) -> Result<()>,
) -> Result<()> {
    let Err(why) = bind(binds) else { return Ok(()) };
    let start = binds.first().map_or(0, |first| first.resource_offset);
    let undone = bind(&[nothing(start, binds.iter().map(|bind| bind.size).sum())]);
    undone.and(Err(why))
}

impl Vulkan {
    fn paged(&self, heap: HeapId) -> Result<(&Heap, Slot, Align)> {
        let (described, slot) = self.heap(heap)?;
        let page = described.page.ok_or(ErrorKind::Unsupported)?;
        Ok((described, slot, page))
    }

    /// Returns the page size and table of a reserved block.
    fn table<'a>(&self, block: &'a Block) -> Result<(u64, &'a PageTable)> {
        block.belongs_to(&self.device)?;
        match block.backing() {
            Backing::Pages { page, table } => Ok((*page, table)),
            Backing::Memory { .. } => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// Binds in several calls and waits for each. On failure the first ones may be bound.
    fn bind_all(&self, block: &Block, binds: &[vk::SparseMemoryBind]) -> Result<()> {
        let mut turns = Turns::begin(&self.device);
        for some in binds.chunks(AT_ONCE) {
            self.bind(block, some)?;
            turns.pass();
        }
        Ok(())
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

// SAFETY: position `first + i` is bound to the memory that `Pages` keeps for `pages[i]`, until it is unbound; unbinding
// does not touch the memory. A page that moves is bound at two positions while no device work uses it, so that nothing is
// read or written through an alias.
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
        self.based(Block::with_pages(&self.device, heap, size, buffer, page.get()))
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
        let (page, table) = self.table(block)?;
        let change = table.begin_map(first, pages)?;
        if pages.is_empty() {
            return Ok(());
        }
        let binds = self.pages.binds(block.heap(), page, first * page, pages)?;
        bind_or_undo(&binds, |binds| self.bind_all(block, binds))?;
        change.commit();
        Ok(())
    }

    unsafe fn unmap_pages(&self, block: &Block, first: u64, count: u64) -> Result<()> {
        let (page, table) = self.table(block)?;
        let change = table.begin_unmap(first, count)?;
        if count == 0 {
            return Ok(());
        }
        let most = (MOST / page).max(1);
        let parts = (0..count.div_ceil(most)).map(|part| {
            let from = part * most;
            nothing((first + from) * page, most.min(count - from) * page)
        });
        self.bind_all(block, &parts.collect::<Vec<_>>())?;
        change.commit();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ash::vk::Handle as _;
    use std::collections::BTreeSet;

    const PAGE: u64 = 1 << 16;

    #[test]
    fn a_map_that_fails_half_way_leaves_nothing_bound() {
        let bind = |(offset, size)| nothing(offset, size).memory(vk::DeviceMemory::from_raw(1));
        let binds = [(3 * PAGE, PAGE), (4 * PAGE, 2 * PAGE), (6 * PAGE, PAGE)].map(bind);
        for fails_at in 0..4 {
            let (mut bound, mut calls) = (BTreeSet::new(), 0);
            let outcome = bind_or_undo(&binds, |some| {
                for bind in some {
                    calls += 1;
                    if calls == fails_at + 1 {
                        return Err(ErrorKind::OutOfDeviceMemory.into());
                    }
                    let end = bind.resource_offset + bind.size;
                    let pages = (bind.resource_offset..end).step_by(1 << 16);
                    match bind.memory == vk::DeviceMemory::null() {
                        true => bound.retain(|page| !(bind.resource_offset..end).contains(page)),
                        false => bound.extend(pages),
                    }
                }
                Ok(())
            });
            let expected = if fails_at < 3 { Err(ErrorKind::OutOfDeviceMemory) } else { Ok(()) };
            assert_eq!(outcome.map_err(|error| error.kind()), expected);
            assert_eq!(bound.len(), if fails_at < 3 { 0 } else { 4 }, "call {fails_at} failed");
        }
    }
}
