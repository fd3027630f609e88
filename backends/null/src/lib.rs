#![doc = include_str!("../README.md")]
#![expect(unsafe_code, reason = "signs the contract of Backend, with no memory to break it")]
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use omniheap_seam::{
    Backend, BlockOffset, Caps, Epoch, ErrorKind, Heap, HeapId, Move, Page, Point, Remap, Result,
    TimelineId, Timelines, Transfer,
};

/// A device that keeps accounts and has no bytes.
#[derive(Debug)]
pub struct Null {
    caps: Caps,
    used: Vec<AtomicU64>,
    blocks: AtomicU64,
    next_page: AtomicU64,
    timelines: AtomicU32,
}

/// A block of a [`Null`] device: a size, and no bytes.
#[derive(Debug)]
pub struct Block {
    heap: HeapId,
    size: u64,
    /// Number of mapped positions; `None` for a block with its own memory.
    mapped: Option<AtomicU64>,
}

impl Null {
    /// Creates a device with these caps.
    #[must_use]
    pub fn new(caps: Caps) -> Self {
        let used = caps.heaps.iter().map(|_| AtomicU64::new(0)).collect();
        let (blocks, next_page) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { caps, used, blocks, next_page, timelines: AtomicU32::new(1) }
    }

    /// Returns the bytes of a heap that are held.
    ///
    /// # Panics
    ///
    /// Panics when the device has no such heap.
    #[must_use]
    pub fn used(&self, heap: HeapId) -> u64 {
        self.used[usize::from(heap.0)].load(Relaxed)
    }

    fn heap(&self, id: HeapId) -> Result<&Heap> {
        self.caps.heap(id).ok_or(ErrorKind::NoSuchHeap.into())
    }

    fn charge(&self, id: HeapId, bytes: u64) -> Result<()> {
        let size = self.heap(id)?.size;
        let within = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= size);
        let charged = self.used[usize::from(id.0)].fetch_update(Relaxed, Relaxed, within);
        charged.map(|_| ()).map_err(|_| ErrorKind::OutOfDeviceMemory.into())
    }

    fn refund(&self, id: HeapId, bytes: u64) {
        self.used[usize::from(id.0)].fetch_sub(bytes, Relaxed);
    }

    fn count_block(&self) -> Result<()> {
        let within = |count: u64| (count < self.caps.max_blocks).then_some(count + 1);
        let counted = self.blocks.fetch_update(Relaxed, Relaxed, within);
        counted.map(|_| ()).map_err(|_| ErrorKind::OutOfDeviceMemory.into())
    }

    fn page(&self, id: HeapId) -> Result<u64> {
        self.heap(id)?.page.map(|page| page.get()).ok_or(ErrorKind::Unsupported.into())
    }

    fn check(&self, on: TimelineId, place: &BlockOffset<'_, Block>, size: u64) -> Result<()> {
        self.known(on)?;
        self.caps.copy.check_range(place.block.size, place.offset, size)
    }

    fn known(&self, timeline: TimelineId) -> Result<()> {
        let known = timeline.0 < self.timelines.load(Relaxed);
        if known { Ok(()) } else { Err(ErrorKind::NoSuchTimeline.into()) }
    }
}

// SAFETY: no block has bytes, so none shares any; nothing dereferences a base that is never told; `caps` is never
// written; all state is atomic.
unsafe impl Backend for Null {
    type Block = Block;

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn allocate(&self, id: HeapId, size: u64) -> Result<Block> {
        let heap = self.heap(id)?;
        if size == 0 {
            return Err(ErrorKind::ZeroSize.into());
        }
        let size = heap.granule.up(size).ok_or(ErrorKind::ExceedsLimit)?;
        if size > heap.max_block || size > heap.size {
            return Err(ErrorKind::ExceedsLimit.into());
        }
        self.charge(id, size)?;
        self.count_block().inspect_err(|_| self.refund(id, size))?;
        Ok(Block { heap: id, size, mapped: None })
    }

    unsafe fn free(&self, block: Block) -> Result<()> {
        self.blocks.fetch_sub(1, Relaxed);
        match block.mapped {
            None => self.refund(block.heap, block.size),
            Some(mapped) if mapped.load(Relaxed) > 0 => return Err(ErrorKind::Busy.into()),
            Some(_) => {}
        }
        Ok(())
    }

    fn wait_idle(&self) -> Result<()> {
        Ok(())
    }
    fn as_transfer(&self) -> Option<&dyn Transfer<Block = Block>> {
        Some(self)
    }
    fn as_timelines(&self) -> Option<&dyn Timelines> {
        Some(self)
    }
    fn as_remap(&self) -> Option<&dyn Remap<Block = Block>> {
        self.caps.heaps.iter().any(|heap| heap.page.is_some()).then_some(self as _)
    }
}

// SAFETY: no byte is touched at all.
unsafe impl Transfer for Null {
    type Block = Block;

    fn write(&self, on: TimelineId, to: BlockOffset<'_, Block>, bytes: &[u8]) -> Result<()> {
        self.check(on, &to, bytes.len() as u64)
    }
    /// Reads zeros: there is nothing to read.
    fn read(&self, on: TimelineId, from: BlockOffset<'_, Block>, bytes: &mut [u8]) -> Result<()> {
        bytes.fill(0);
        self.check(on, &from, bytes.len() as u64)
    }
    fn fill(
        &self,
        on: TimelineId,
        to: BlockOffset<'_, Block>,
        size: u64,
        _value: u8,
    ) -> Result<()> {
        self.check(on, &to, size)
    }
    fn copy(&self, on: TimelineId, moves: &[Move<'_, Block>]) -> Result<()> {
        self.known(on)?;
        self.caps.copy.check_batch(moves, |block| Ok(block.size))
    }
}

// SAFETY: work has no bytes to touch and is over when its call returns, so every epoch is reached at once.
unsafe impl Timelines for Null {
    fn open(&self) -> Result<TimelineId> {
        Ok(TimelineId(self.timelines.fetch_add(1, Relaxed)))
    }
    fn close(&self, timeline: TimelineId) -> Result<()> {
        self.known(timeline)
    }
    fn mark(&self, timeline: TimelineId) -> Result<Epoch> {
        self.known(timeline).map(|()| Epoch::START)
    }
    fn reached(&self, timeline: TimelineId) -> Result<Epoch> {
        self.known(timeline).map(|()| Epoch::START)
    }
    fn wait(&self, point: Point) -> Result<()> {
        self.known(point.timeline)
    }
    fn order(&self, timeline: TimelineId, point: Point) -> Result<()> {
        self.known(timeline).and_then(|()| self.known(point.timeline))
    }
}

// SAFETY: positions have no bytes, so whichever page backs one has the same; pages are counted exactly.
unsafe impl Remap for Null {
    type Block = Block;

    fn reserve(&self, heap: HeapId, size: u64) -> Result<Block> {
        if size == 0 || !size.is_multiple_of(self.page(heap)?) {
            return Err(ErrorKind::Misaligned.into());
        }
        self.count_block()?;
        Ok(Block { heap, size, mapped: Some(AtomicU64::new(0)) })
    }

    fn create(&self, heap: HeapId, count: u64, pages: &mut Vec<Page>) -> Result<()> {
        let bytes = self.page(heap)?.checked_mul(count).ok_or(ErrorKind::SizeOverflow)?;
        let room = usize::try_from(count).map_err(|_| ErrorKind::OutOfHostMemory)?;
        pages.try_reserve(room).map_err(|_| ErrorKind::OutOfHostMemory)?;
        self.charge(heap, bytes)?;
        let first = self.next_page.fetch_add(count, Relaxed);
        pages.extend((first..first + count).map(Page));
        Ok(())
    }

    unsafe fn destroy(&self, heap: HeapId, pages: &[Page]) -> Result<()> {
        self.refund(heap, self.page(heap)? * pages.len() as u64);
        Ok(())
    }

    unsafe fn map_pages(&self, block: &Block, first: u64, pages: &[Page]) -> Result<()> {
        let mapped = block.mapped.as_ref().ok_or(ErrorKind::Unsupported)?;
        let end = first.checked_add(pages.len() as u64).ok_or(ErrorKind::OutOfRange)?;
        if end > block.size / self.page(block.heap)? {
            return Err(ErrorKind::OutOfRange.into());
        }
        mapped.fetch_add(pages.len() as u64, Relaxed);
        Ok(())
    }

    unsafe fn unmap_pages(&self, block: &Block, first: u64, count: u64) -> Result<()> {
        let mapped = block.mapped.as_ref().ok_or(ErrorKind::Unsupported)?;
        let end = first.checked_add(count).ok_or(ErrorKind::OutOfRange)?;
        if end > block.size / self.page(block.heap)? || mapped.load(Relaxed) < count {
            return Err(ErrorKind::OutOfRange.into());
        }
        mapped.fetch_sub(count, Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
