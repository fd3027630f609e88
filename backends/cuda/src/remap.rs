//! Blocks whose pages are mapped one by one, through the driver's virtual memory calls.
#![expect(unsafe_code, reason = "implements the unsafe contract")]
use crate::{
    backend::Cuda,
    block::{Block, Kind},
    driver::Sharing,
};
use omniheap_seam::{ErrorKind, HeapId, Page, Remap, Result};
use omniheap_stream::{
    StreamDriver,
    positions::{Positions, addresses_ran_out, bytes, groups, lengths},
};

impl Cuda {
    pub(crate) fn free_reserved(&self, block: &Block, positions: &Positions) -> Result<()> {
        if positions.is_any_mapped() {
            return Err(ErrorKind::Busy.into());
        }
        // SAFETY: `reserve` made the range, nothing is mapped there, and `free` takes the block by value.
        unsafe { self.driver().unreserve(block.address(), bytes(block.size())?) }
    }

    /// Maps each page group in turn; on failure, unmaps those before it.
    ///
    /// # Safety
    ///
    /// The range from `base` on is reserved and unmapped, and the pages are of `page` bytes and mapped at one other place at most.
    unsafe fn map_each(&self, base: u64, page: u64, pages: &[Page]) -> Result<()> {
        let mut done = 0;
        for group in groups(pages) {
            let count = group.len() as u64;
            let mapped = bytes(page * count).and_then(|size| {
                // SAFETY: the caller's promise.
                unsafe { self.driver().map(base + done * page, size, group[0].0) }
            });
            if let Err(error) = mapped {
                let before = &pages[..usize::try_from(done).unwrap_or(0)];
                // SAFETY: the pages before this group were mapped just now and nobody knows them yet.
                unsafe { self.undo(base, page, &lengths(before)) };
                return Err(error);
            }
            done += count;
        }
        Ok(())
    }

    /// Creates one page group after the other by `create`, all or none; the last one may be shorter.
    fn create_each(
        &self,
        heap: HeapId,
        count: u64,
        most: u64,
        pages: &mut Vec<Page>,
        create: impl Fn(usize) -> Result<u64>,
    ) -> Result<()> {
        let page = self.device.page(heap)?;
        let _current = self.driver().enter()?;
        let before = pages.len();
        let more = usize::try_from(count).map_err(|_| ErrorKind::ExceedsLimit)?;
        pages.try_reserve(more).map_err(|_| ErrorKind::OutOfHostMemory)?;
        let mut left = count;
        while left > 0 {
            let length = left.min(most.max(1));
            let size = page.checked_mul(length).ok_or(ErrorKind::ExceedsLimit.into());
            match size.and_then(bytes).and_then(&create) {
                Ok(handle) => pages.extend((0..length).map(|_| Page(handle))),
                Err(error) => {
                    for group in groups(&pages[before..]) {
                        // SAFETY: created just above, mapped nowhere, forgotten below so released once.
                        let _ = unsafe { self.driver().release_page(group[0].0) };
                    }
                    pages.truncate(before);
                    return Err(error);
                }
            }
            left -= length;
        }
        Ok(())
    }

    /// Unmaps what a failed step had mapped.
    ///
    /// # Safety
    ///
    /// The pages are mapped, and no device work uses them.
    unsafe fn undo(&self, base: u64, page: u64, groups: &[u64]) {
        // SAFETY: the caller's promise.
        let (undone, result) = unsafe { self.unmap_run(base, page, groups) };
        if let Err(error) = result {
            let count: u64 = groups.iter().sum();
            tracing::error!(base, count, undone, %error, "failed to unmap pages after a failed map");
        }
    }

    /// Unmaps adjacent page groups: by one call, or one by one if the driver refuses. Returns how
    /// many pages are unmapped.
    ///
    /// # Safety
    ///
    /// The pages are mapped, and no device work uses them.
    unsafe fn unmap_run(&self, base: u64, page: u64, groups: &[u64]) -> (u64, Result<()>) {
        let count: u64 = groups.iter().sum();
        if count == 0 {
            return (0, Ok(()));
        }
        let whole = bytes(page * count).and_then(|whole| {
            // SAFETY: the caller's promise.
            unsafe { self.driver().unmap(base, whole) }
        });
        match whole {
            Err(error) if error.kind() == ErrorKind::Driver && groups.len() > 1 => {}
            result => return (if result.is_ok() { count } else { 0 }, result),
        }
        let mut done = 0;
        for group in groups {
            let unmapped = bytes(page * group).and_then(|size| {
                // SAFETY: the caller's promise.
                unsafe { self.driver().unmap(base + done * page, size) }
            });
            if let Err(error) = unmapped {
                return (done, Err(error));
            }
            done += group;
        }
        (done, Ok(()))
    }
}

// SAFETY: `map_each` maps `pages[i]` at `first + i`; a page is a driver handle that keeps its memory until released.
unsafe impl Remap for Cuda {
    type Block = Block;

    fn reserve(&self, heap: HeapId, size: u64) -> Result<Block> {
        let page = self.device.admit_reservation(heap, size)?;
        let base = self.driver().reserve(bytes(size)?, bytes(page)?).map_err(addresses_ran_out)?;
        // After the driver agreed, so that a senseless size never gets to allocate its bits.
        match Positions::new(page, size / page) {
            Ok(positions) => {
                // SAFETY: reserved just above, nothing mapped.
                Ok(unsafe { self.device.block(heap, base, size, Kind::Reserved(positions)) })
            }
            Err(error) => {
                // SAFETY: reserved just above, nothing mapped.
                let _ = unsafe { self.driver().unreserve(base, bytes(size)?) };
                Err(error)
            }
        }
    }

    fn create(&self, heap: HeapId, count: u64, pages: &mut Vec<Page>) -> Result<()> {
        self.create_groups(heap, count, 1, pages)
    }

    fn create_groups(
        &self,
        heap: HeapId,
        count: u64,
        most: u64,
        pages: &mut Vec<Page>,
    ) -> Result<()> {
        let create = |size| self.driver().create_page(size, Sharing::Private);
        self.create_each(heap, count, most, pages, create)
    }

    fn create_on_host(
        &self,
        heap: HeapId,
        count: u64,
        most: u64,
        pages: &mut Vec<Page>,
    ) -> Result<()> {
        self.create_each(heap, count, most, pages, |size| self.driver().create_host_page(size))
    }

    unsafe fn destroy(&self, heap: HeapId, pages: &[Page]) -> Result<()> {
        self.device.page(heap)?;
        let mut result = Ok(());
        for group in groups(pages) {
            // SAFETY: the caller promises that the pages are ours and unmapped, and names all of a group.
            let released = unsafe { self.driver().release_page(group[0].0) };
            result = result.and(released);
        }
        result
    }

    unsafe fn map_pages(&self, block: &Block, first: u64, pages: &[Page]) -> Result<()> {
        self.device.owns(block)?;
        let positions = block.positions()?;
        positions.map(first, pages, |_| {
            let page = positions.page();
            let (base, whole) = (block.at(first * page), bytes(page * pages.len() as u64)?);
            let _current = self.driver().enter()?;
            // SAFETY: the positions are inside and unmapped; the caller promises the pages.
            unsafe { self.map_each(base, page, pages) }?;
            // SAFETY: the whole range was mapped just above.
            unsafe { self.driver().allow(base, whole) }.inspect_err(|_| {
                // SAFETY: mapped just above, and without access nothing can use it.
                unsafe { self.undo(base, page, &lengths(pages)) };
            })
        })
    }

    unsafe fn unmap_pages(&self, block: &Block, first: u64, count: u64) -> Result<()> {
        self.device.owns(block)?;
        let positions = block.positions()?;
        let _current = self.driver().enter()?;
        positions.unmap(first, count, |mapped, first, count| {
            let (base, page) = (block.at(first * positions.page()), positions.page());
            // SAFETY: all positions are mapped, whole groups of them; the caller promises that nothing uses them.
            unsafe { self.unmap_run(base, page, &mapped.groups(first, count)) }
        })
    }
}
