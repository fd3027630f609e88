//! Page mapping: addresses from `mmap`, pages from an anonymous file.
//!
//! The system limits how many separate mappings a process has (65,530 by default). Neighbouring positions that hold
//! neighbouring pages are one mapping; beyond the limit `map_pages` answers `OutOfHostMemory` and changes nothing.
#![expect(unsafe_code, reason = "signs the contract of Remap")]
use crate::block::{Backing, Block, Body};
use crate::device::Host;
use crate::driver::Memory;
use crate::pages::{Lost, Pages};
use crate::slots::Slots;
use core::sync::atomic::Ordering::Relaxed;
use omniheap_seam::{ErrorKind, HeapId, Page, Remap, Result};
use std::sync::Arc;

impl Host {
    fn pages(&self, heap: HeapId) -> Result<&Arc<Pages>> {
        let pages = self.pages.get(usize::from(heap.0)).ok_or(ErrorKind::NoSuchHeap)?;
        pages.as_ref().ok_or(ErrorKind::Unsupported.into())
    }

    /// Frees pages of a heap: where they were, how many are gone, and what was wrong with the others.
    fn destroy_of(&self, heap: HeapId, pages: &[Page]) -> Result<(&Pages, u64, Result<()>)> {
        self.check_process()?;
        let source = self.pages(heap)?;
        let alive = self.check_alive();
        let lost = if alive.is_ok() { Lost::No } else { Lost::Yes };
        let (gone, verdict) = source.destroy(pages, lost);
        Ok((source, gone, alive.and(verdict)))
    }

    /// Returns the bytes of a heap's pages that [`create_on_host`](Remap::create_on_host) made and that are not destroyed.
    ///
    /// # Errors
    ///
    /// `NoSuchHeap`; `Unsupported` for a heap without pages.
    pub fn on_host(&self, heap: HeapId) -> Result<u64> {
        let pages = self.pages(heap)?;
        Ok(pages.on_host.load(Relaxed) * pages.size)
    }

    fn slots<'a>(&self, block: &'a Block) -> Result<(&'a Body, &'a Slots)> {
        self.check_alive()?;
        let body = self.own(block)?;
        match &body.backing {
            Backing::Pages(slots) => Ok((body, slots)),
            _ => Err(ErrorKind::Unsupported.into()),
        }
    }
}

// SAFETY: `Slots::map` backs positions with the pages given, run by run; the file keeps their bytes until `destroy`.
unsafe impl Remap for Host {
    type Block = Block;

    fn reserve(&self, heap: HeapId, size: u64) -> Result<Block> {
        self.check_alive()?;
        let pages = self.pages(heap)?;
        if size == 0 {
            return Err(ErrorKind::ZeroSize.into());
        }
        if !size.is_multiple_of(pages.size) {
            return Err(ErrorKind::Misaligned.into());
        }
        let align = self.heap(heap)?.align.get().max(pages.size);
        let memory = Memory::reserve(size, align)?;
        let backing = Backing::Pages(Slots::new(Arc::clone(pages)));
        Ok(Block { body: Arc::new(Body::new(self.id, heap, size, memory, backing)) })
    }

    fn create(&self, heap: HeapId, count: u64, pages: &mut Vec<Page>) -> Result<()> {
        self.check_alive()?;
        let source = self.pages(heap)?;
        let bytes = count.checked_mul(source.size).ok_or(ErrorKind::OutOfDeviceMemory)?;
        let room = usize::try_from(count).map_err(|_| ErrorKind::OutOfDeviceMemory)?;
        self.ledger.charge(heap, bytes, 0)?;
        let made = pages.try_reserve(room).map_err(|_| ErrorKind::OutOfHostMemory.into());
        match made.and_then(|()| source.create(count)) {
            Ok(range) => pages.extend(range.map(Page)),
            Err(error) => {
                self.ledger.refund(heap, bytes, 0);
                return Err(error);
            }
        }
        Ok(())
    }

    fn create_on_host(
        &self,
        heap: HeapId,
        count: u64,
        _most: u64,
        pages: &mut Vec<Page>,
    ) -> Result<()> {
        self.check_alive()?;
        let source = self.pages(heap)?;
        let room = usize::try_from(count).map_err(|_| ErrorKind::OutOfHostMemory)?;
        pages.try_reserve(room).map_err(|_| ErrorKind::OutOfHostMemory)?;
        pages.extend(source.create(count)?.map(Page));
        source.on_host.fetch_add(count, Relaxed);
        Ok(())
    }

    unsafe fn destroy_on_host(&self, heap: HeapId, pages: &[Page]) -> Result<()> {
        let (source, gone, verdict) = self.destroy_of(heap, pages)?;
        source.on_host.fetch_sub(gone, Relaxed);
        verdict
    }

    /// Answers `Stale` for a page that is gone already and `Busy` for one that is mapped.
    unsafe fn destroy(&self, heap: HeapId, pages: &[Page]) -> Result<()> {
        let (source, gone, verdict) = self.destroy_of(heap, pages)?;
        self.ledger.refund(heap, gone * source.size, 0);
        verdict
    }

    /// Answers `Stale` for a page that was destroyed, and `Busy` also for one that is mapped at two positions.
    unsafe fn map_pages(&self, block: &Block, first: u64, pages: &[Page]) -> Result<()> {
        let (body, slots) = self.slots(block)?;
        if pages.is_empty() { Ok(()) } else { slots.map(&body.memory, first, pages) }
    }

    /// Answers `OutOfRange` when a position is not mapped and `Busy` when work still uses one.
    unsafe fn unmap_pages(&self, block: &Block, first: u64, count: u64) -> Result<()> {
        let (body, slots) = self.slots(block)?;
        if count == 0 { Ok(()) } else { slots.unmap(&body.memory, first, count) }
    }
}
