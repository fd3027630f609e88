//! Blocks whose pages are mapped one by one, through the runtime's virtual memory.
#![expect(unsafe_code, reason = "implements the unsafe contract")]
use crate::{
    addresses,
    backend::Hip,
    block::{Block, Kind, Reservation},
    driver::Sharing,
    pages::handle,
};
use core::sync::atomic::{AtomicBool, Ordering};
use omniheap_seam::{ErrorKind, HeapId, Page, Remap, Result};
use omniheap_stream::{
    StreamDriver,
    positions::{Mapped, Positions, addresses_ran_out, bytes},
};

impl Hip {
    /// Keeps the addresses of a block without pages for others, unless nothing must be mapped there again.
    pub(crate) fn free_reserved(&self, reservation: &Reservation) -> Result<()> {
        if reservation.positions.is_any_mapped() {
            return Err(ErrorKind::Busy.into());
        }
        if !reservation.is_spoiled.load(Ordering::Relaxed) {
            // SAFETY: `reserve` took the range, nothing is mapped there and no map failed, and `free` takes the block by value.
            unsafe { addresses::keep(self.driver(), reservation.reserved) };
        }
        Ok(())
    }

    /// Maps each page in turn, and lets the device in; on failure, unmaps them again.
    ///
    /// # Safety
    ///
    /// The run is reserved and unmapped, its reservation's positions are mapped as `mapped` says, and the pages are
    /// of `run.page` bytes and mapped at one other place at most.
    unsafe fn map_each(&self, run: &Run, pages: &[Page], mapped: &Mapped) -> Result<()> {
        let size = bytes(run.page)?;
        for (done, (address, page)) in (run.base..).step_by(size).zip(pages).enumerate() {
            let mapped = handle(*page).and_then(|page| {
                // SAFETY: the caller's promise.
                unsafe { self.driver().map(address, size, page) }
            });
            if let Err(error) = mapped {
                // SAFETY: the pages before this one were mapped just now and nobody knows them yet.
                unsafe { self.undo(run.base, run.page, done as u64) };
                return Err(error);
            }
        }
        // SAFETY: the whole range was mapped just above.
        unsafe { self.allow_run(run, mapped) }.inspect_err(|_| {
            // SAFETY: mapped just above, and nobody knows it yet.
            unsafe { self.undo(run.base, run.page, run.count) };
        })
    }

    /// Grants the device access to a range that was just mapped: at once, then together with what is mapped before it (HIP 7.2
    /// refuses a tail alone), then page by page (it refuses some ranges whatever they hold).
    ///
    /// # Safety
    ///
    /// The run lies in one reservation, whose positions before it are mapped as `mapped` says.
    unsafe fn allow_run(&self, run: &Run, mapped: &Mapped) -> Result<()> {
        let whole = bytes(run.page * run.count)?;
        // SAFETY: the caller's promise.
        let Err(first) = (unsafe { self.driver().allow(run.base, whole) }) else { return Ok(()) };
        if first.kind() != ErrorKind::Driver {
            return Err(first);
        }
        let before = mapped.before(run.first) * run.page;
        // SAFETY: the caller's promise.
        if unsafe { self.driver().allow(run.base - before, bytes(before)? + whole) }.is_ok() {
            return Ok(());
        }
        let size = bytes(run.page)?;
        for address in (run.base..run.base + run.page * run.count).step_by(size) {
            // SAFETY: the caller's promise.
            unsafe { self.driver().allow(address, size) }.map_err(|_| first)?;
        }
        Ok(())
    }

    /// Unmaps what a failed step had mapped, as far as it had.
    ///
    /// # Safety
    ///
    /// The run is that of calls of `map`, one for each page, and no device work uses it.
    unsafe fn undo(&self, base: u64, page: u64, count: u64) {
        let Ok(size) = bytes(page) else { return };
        for address in (base..base + page * count).step_by(size) {
            // SAFETY: the caller's promise.
            if let Err(error) = unsafe { self.driver().undo_map(address, size) } {
                tracing::error!(address, %error, "failed to unmap a page after a failed map");
            }
        }
    }

    /// Unmaps a run of pages one by one: HIP 6 cannot free addresses that were unmapped otherwise. Says how many are
    /// unmapped.
    ///
    /// # Safety
    ///
    /// The pages are mapped, one mapping each, and no device work uses them.
    unsafe fn unmap_run(&self, base: u64, page: u64, count: u64) -> (u64, Result<()>) {
        let Ok(size) = bytes(page) else { return (0, Err(ErrorKind::ExceedsLimit.into())) };
        for (done, address) in (0..count).zip((base..).step_by(size)) {
            // SAFETY: the caller's promise.
            if let Err(error) = unsafe { self.driver().unmap(address, size) } {
                return (done, Err(error));
            }
        }
        (count, Ok(()))
    }
}

/// Positions that are mapped together.
struct Run {
    /// The address of the first.
    base: u64,
    /// Bytes of each.
    page: u64,
    /// The first position.
    first: u64,
    /// Their number.
    count: u64,
}

/// Returns the reservation of a block.
fn reservation(block: &Block) -> Result<&Reservation> {
    match block.kind() {
        Kind::Reserved(reservation) => Ok(reservation),
        _ => Err(ErrorKind::Unsupported.into()),
    }
}

// SAFETY: `map_each` maps `pages[i]` at `first + i`; a page is a handle that keeps its memory until released.
unsafe impl Remap for Hip {
    type Block = Block;

    fn reserve(&self, heap: HeapId, size: u64) -> Result<Block> {
        let page = self.device.admit_reservation(heap, size)?;
        let reserved = addresses::take(self.driver(), bytes(size)?, bytes(page)?);
        let reserved = reserved.map_err(addresses_ran_out)?;
        // After the runtime agreed, so that a senseless size never gets to allocate its bits.
        match Positions::new(page, size / page) {
            Ok(positions) => {
                let is_spoiled = AtomicBool::new(false);
                let kind = Kind::Reserved(Reservation { reserved, positions, is_spoiled });
                // SAFETY: reserved just above, nothing mapped.
                Ok(unsafe { self.device.block(heap, reserved.base, size, kind) })
            }
            Err(error) => {
                // SAFETY: taken just above, nothing was mapped.
                unsafe { addresses::keep(self.driver(), reserved) };
                Err(error)
            }
        }
    }

    fn create(&self, heap: HeapId, count: u64, pages: &mut Vec<Page>) -> Result<()> {
        let page = bytes(self.device.page(heap)?)?;
        let before = pages.len();
        let more = usize::try_from(count).map_err(|_| ErrorKind::ExceedsLimit)?;
        pages.try_reserve(more).map_err(|_| ErrorKind::OutOfHostMemory)?;
        let _current = self.driver().enter()?;
        for _ in 0..count {
            match self.driver().create_page(page, Sharing::Private) {
                Ok(handle) => pages.push(self.pages.add(handle)),
                Err(error) => {
                    // SAFETY: created just above, mapped nowhere.
                    let _ = unsafe { self.destroy(heap, &pages[before..]) };
                    pages.truncate(before);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    unsafe fn destroy(&self, heap: HeapId, pages: &[Page]) -> Result<()> {
        self.device.page(heap)?;
        let mut result = Ok(());
        for page in pages {
            let released = self.pages.remove(*page).and_then(|page| {
                // SAFETY: it is one of ours and was just taken out; the caller promises that it is unmapped.
                unsafe { self.driver().release_page(page) }
            });
            result = result.and(released);
        }
        result
    }

    unsafe fn map_pages(&self, block: &Block, first: u64, pages: &[Page]) -> Result<()> {
        self.device.owns(block)?;
        let Reservation { positions, is_spoiled, .. } = reservation(block)?;
        positions.map(first, pages, |mapped| {
            self.pages.require(pages)?;
            let (page, count) = (positions.page(), pages.len() as u64);
            let run = Run { base: block.at(first * page), page, first, count };
            let _current = self.driver().enter()?;
            // SAFETY: the positions are inside and unmapped, those before are as `mapped` says; the pages are ours, and the
            // caller promises that they are unmapped.
            let done = unsafe { self.map_each(&run, pages, mapped) };
            done.inspect_err(|_| is_spoiled.store(true, Ordering::Relaxed))
        })
    }

    unsafe fn unmap_pages(&self, block: &Block, first: u64, count: u64) -> Result<()> {
        self.device.owns(block)?;
        let positions = block.positions()?;
        let _current = self.driver().enter()?;
        positions.unmap(first, count, |_, first, count| {
            let (base, page) = (block.at(first * positions.page()), positions.page());
            // SAFETY: all positions are mapped, one whole mapping each; the caller promises that nothing uses them.
            unsafe { self.unmap_run(base, page, count) }
        })
    }
}
