//! Blocks whose pages are mapped one by one, through the driver's virtual memory calls.
#![expect(unsafe_code, reason = "implements the unsafe contract")]
use crate::{
    backend::Cuda,
    block::{Block, Kind},
    caps::Source,
    driver::Sharing,
    lock,
};
use omniheap_core::{Error, ErrorKind, HeapId, Page, Remap, Result};
use std::sync::Mutex;

/// Which positions of a reserved block are mapped: one bit each.
pub(crate) struct Positions {
    page: u64,
    count: u64,
    mapped: Mutex<Vec<u64>>,
}

impl Positions {
    fn new(page: u64, count: u64) -> Result<Self> {
        let words = usize::try_from(count.div_ceil(64)).map_err(|_| ErrorKind::ExceedsLimit)?;
        let mut mapped = Vec::new();
        mapped.try_reserve_exact(words).map_err(|_| ErrorKind::OutOfHostMemory)?;
        mapped.resize(words, 0);
        Ok(Self { page, count, mapped: Mutex::new(mapped) })
    }

    /// Refuses positions outside the block.
    fn require_inside(&self, first: u64, count: u64) -> Result<()> {
        match first.checked_add(count) {
            Some(end) if end <= self.count => Ok(()),
            _ => Err(ErrorKind::OutOfRange.into()),
        }
    }

    /// Refuses bytes whose pages are not all mapped: touching them would cost the context.
    pub(crate) fn require_mapped(&self, offset: u64, size: u64) -> Result<()> {
        if size == 0 {
            return Ok(());
        }
        let (first, end) = (offset / self.page, (offset + size).div_ceil(self.page));
        let mapped = lock(&self.mapped);
        let all = (first..end).all(|position| is_set(&mapped, position));
        if all { Ok(()) } else { Err(ErrorKind::OutOfRange.into()) }
    }

    fn is_any_mapped(&self) -> bool {
        lock(&self.mapped).iter().any(|&word| word != 0)
    }
}

/// The word and the bit of a position inside the block.
fn bit(position: u64) -> (usize, u64) {
    let word = usize::try_from(position / 64).expect("`Positions::new` made a word for it");
    (word, 1 << (position % 64))
}

fn is_set(mapped: &[u64], position: u64) -> bool {
    let (word, mask) = bit(position);
    mapped[word] & mask != 0
}

fn flip(mapped: &mut [u64], first: u64, count: u64) {
    for position in first..first + count {
        let (word, mask) = bit(position);
        mapped[word] ^= mask;
    }
}

impl Cuda {
    /// The page size of a heap that has pages.
    pub(crate) fn page(&self, heap: HeapId) -> Result<u64> {
        let (source, described) = self.source(heap)?;
        match (source, described.page) {
            (Source::Device, Some(page)) => Ok(page.get()),
            _ => Err(ErrorKind::Unsupported.into()),
        }
    }

    pub(crate) fn free_reserved(&self, block: &Block, positions: &Positions) -> Result<()> {
        if positions.is_any_mapped() {
            return Err(ErrorKind::Busy.into());
        }
        // SAFETY: `reserve` made the range, nothing is mapped there, and `free` takes the block by value.
        unsafe { self.driver().unreserve(block.base, bytes(block.size)?) }
    }

    /// Maps each page in turn; on failure, unmaps those before it.
    ///
    /// # Safety
    ///
    /// The range from `base` on is reserved and unmapped, and the pages are unmapped pages of `page` bytes.
    unsafe fn map_each(&self, base: u64, page: u64, pages: &[Page]) -> Result<()> {
        let size = bytes(page)?;
        for (done, (address, handle)) in (base..).step_by(size).zip(pages).enumerate() {
            // SAFETY: the caller's promise.
            if let Err(error) = unsafe { self.driver().map(address, size, handle.0) } {
                // SAFETY: the pages before this one were mapped just now and nobody knows them yet.
                unsafe { self.undo(base, page, done as u64) };
                return Err(error);
            }
        }
        Ok(())
    }

    /// Unmaps what a failed step had mapped.
    ///
    /// # Safety
    ///
    /// The pages are mapped, and no device work uses them.
    unsafe fn undo(&self, base: u64, page: u64, count: u64) {
        // SAFETY: the caller's promise.
        let (undone, result) = unsafe { self.unmap_run(base, page, count) };
        if let Err(error) = result {
            tracing::error!(base, count, undone, %error, "mapped pages could not be unmapped again");
        }
    }

    /// Unmaps a run of pages: by one call, or one by one where the driver refuses that. Says how many are unmapped.
    ///
    /// # Safety
    ///
    /// The pages are mapped, and no device work uses them.
    unsafe fn unmap_run(&self, base: u64, page: u64, count: u64) -> (u64, Result<()>) {
        let Ok(size) = bytes(page) else { return (0, Err(ErrorKind::ExceedsLimit.into())) };
        let Ok(_current) = self.driver().enter() else {
            return (0, Err(ErrorKind::DeviceLost.into()));
        };
        if count == 0 {
            return (0, Ok(()));
        }
        let whole = bytes(page * count).and_then(|whole| {
            // SAFETY: the caller's promise.
            unsafe { self.driver().unmap(base, whole) }
        });
        match whole {
            Err(error) if error.kind() == ErrorKind::Driver && count > 1 => {}
            result => return (if result.is_ok() { count } else { 0 }, result),
        }
        for (done, address) in (0..count).zip((base..).step_by(size)) {
            // SAFETY: the caller's promise.
            if let Err(error) = unsafe { self.driver().unmap(address, size) } {
                return (done, Err(error));
            }
        }
        (count, Ok(()))
    }
}

/// A size that is known to fit, because the driver gave it.
fn bytes(size: u64) -> Result<usize> {
    usize::try_from(size).map_err(|_| ErrorKind::ExceedsLimit.into())
}

/// Where addresses ran out, no free of device memory brings them back.
fn addresses_ran_out(error: Error) -> Error {
    match error.kind() {
        ErrorKind::OutOfDeviceMemory => {
            Error::new(ErrorKind::ExceedsLimit).with_native(error.native())
        }
        _ => error,
    }
}

/// The positions of a reserved block.
fn positions(block: &Block) -> Result<&Positions> {
    match &block.kind {
        Kind::Reserved(positions) => Ok(positions),
        _ => Err(ErrorKind::Unsupported.into()),
    }
}

// SAFETY: `map_each` maps `pages[i]` at `first + i`; a page is a driver handle that keeps its memory until released.
unsafe impl Remap for Cuda {
    fn reserve(&self, heap: HeapId, size: u64) -> Result<Block> {
        let page = self.page(heap)?;
        if size == 0 {
            return Err(ErrorKind::ZeroSize.into());
        }
        if !size.is_multiple_of(page) {
            return Err(ErrorKind::Misaligned.into());
        }
        let base = self.driver().reserve(bytes(size)?, bytes(page)?).map_err(addresses_ran_out)?;
        // After the driver agreed, so that a senseless size never gets to allocate its bits.
        match Positions::new(page, size / page) {
            Ok(positions) => Ok(self.block(heap, base, size, Kind::Reserved(positions))),
            Err(error) => {
                // SAFETY: reserved just above, nothing mapped.
                let _ = unsafe { self.driver().unreserve(base, bytes(size)?) };
                Err(error)
            }
        }
    }

    fn create(&self, heap: HeapId, count: u64, pages: &mut Vec<Page>) -> Result<()> {
        let page = bytes(self.page(heap)?)?;
        let before = pages.len();
        let more = usize::try_from(count).map_err(|_| ErrorKind::ExceedsLimit)?;
        pages.try_reserve(more).map_err(|_| ErrorKind::OutOfHostMemory)?;
        let _current = self.driver().enter()?;
        for _ in 0..count {
            match self.driver().create_page(page, Sharing::Private) {
                Ok(handle) => pages.push(Page(handle)),
                Err(error) => {
                    for made in pages.drain(before..) {
                        // SAFETY: created just above, mapped nowhere, drained so released once.
                        let _ = unsafe { self.driver().release_page(made.0) };
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    unsafe fn destroy(&self, heap: HeapId, pages: &[Page]) -> Result<()> {
        self.page(heap)?;
        let mut result = Ok(());
        for page in pages {
            // SAFETY: the caller promises that the pages are ours and unmapped.
            let released = unsafe { self.driver().release_page(page.0) };
            result = result.and(released);
        }
        result
    }

    unsafe fn map_pages(&self, block: &Block, first: u64, pages: &[Page]) -> Result<()> {
        self.owns(block)?;
        let positions = positions(block)?;
        let count = pages.len() as u64;
        positions.require_inside(first, count)?;
        if pages.is_empty() {
            return Ok(());
        }
        let mut mapped = lock(&positions.mapped);
        if (first..first + count).any(|position| is_set(&mapped, position)) {
            return Err(ErrorKind::Busy.into());
        }
        let (base, page) = (block.at(first * positions.page), positions.page);
        let _current = self.driver().enter()?;
        // SAFETY: the positions are inside and unmapped; the caller promises the pages.
        unsafe { self.map_each(base, page, pages) }?;
        // SAFETY: the whole range was mapped just above.
        if let Err(error) = unsafe { self.driver().allow(base, bytes(page * count)?) } {
            // SAFETY: mapped just above, and without access nothing can use it.
            unsafe { self.undo(base, page, count) };
            return Err(error);
        }
        flip(&mut mapped, first, count);
        Ok(())
    }

    unsafe fn unmap_pages(&self, block: &Block, first: u64, count: u64) -> Result<()> {
        self.owns(block)?;
        let positions = positions(block)?;
        positions.require_inside(first, count)?;
        if count == 0 {
            return Ok(());
        }
        let mut mapped = lock(&positions.mapped);
        if !(first..first + count).all(|position| is_set(&mapped, position)) {
            return Err(ErrorKind::OutOfRange.into());
        }
        let (base, page) = (block.at(first * positions.page), positions.page);
        // SAFETY: all positions are mapped, one whole mapping each; the caller promises that nothing uses them.
        let (unmapped, result) = unsafe { self.unmap_run(base, page, count) };
        flip(&mut mapped, first, unmapped);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_know_what_is_mapped() {
        let positions = Positions::new(10, 130).expect("small");
        flip(&mut lock(&positions.mapped), 62, 5);
        let kind = |result: Result<()>| result.map_err(|error| error.kind());
        assert_eq!(kind(positions.require_mapped(620, 50)), Ok(()));
        assert_eq!(kind(positions.require_mapped(625, 1)), Ok(()));
        assert_eq!(kind(positions.require_mapped(619, 2)), Err(ErrorKind::OutOfRange));
        assert_eq!(kind(positions.require_mapped(669, 2)), Err(ErrorKind::OutOfRange));
        assert_eq!(kind(positions.require_mapped(5, 0)), Ok(()));
        assert!(positions.is_any_mapped());
        flip(&mut lock(&positions.mapped), 62, 5);
        assert!(!positions.is_any_mapped());
    }

    #[test]
    fn positions_outside_the_block_are_refused() {
        let positions = Positions::new(10, 130).expect("small");
        let kind = |result: Result<()>| result.map_err(|error| error.kind());
        assert_eq!(kind(positions.require_inside(129, 1)), Ok(()));
        assert_eq!(kind(positions.require_inside(130, 1)), Err(ErrorKind::OutOfRange));
        assert_eq!(kind(positions.require_inside(u64::MAX, 2)), Err(ErrorKind::OutOfRange));
    }
}
