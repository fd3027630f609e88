//! Which pages exist, and which positions of a reserved block are mapped.
use crate::{lock, sys::hipMemGenericAllocationHandle_t as Handle};
use core::{
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};
use omniheap_core::{ErrorKind, Page, Result};
use std::{collections::HashSet, sync::Mutex};

/// The pages that exist. HIP follows any number it is given, so one that is not here never gets there.
#[derive(Default)]
pub(crate) struct Pages(Mutex<HashSet<u64>>);

impl Pages {
    /// Refuses pages that another backend made, or nobody.
    pub(crate) fn require(&self, pages: &[Page]) -> Result<()> {
        let live = lock(&self.0);
        let all = pages.iter().all(|page| live.contains(&page.0));
        if all { Ok(()) } else { Err(ErrorKind::Foreign.into()) }
    }

    pub(crate) fn add(&self, page: Handle) -> Page {
        let number = page.0.expose_provenance() as u64;
        lock(&self.0).insert(number);
        Page(number)
    }

    /// Takes a page out, so that it is released once.
    pub(crate) fn remove(&self, page: Page) -> Result<Handle> {
        if lock(&self.0).remove(&page.0) { handle(page) } else { Err(ErrorKind::Foreign.into()) }
    }
}

/// The runtime's handle of a page.
pub(crate) fn handle(page: Page) -> Result<Handle> {
    let address = usize::try_from(page.0).map_err(|_| ErrorKind::Foreign)?;
    Ok(Handle(ptr::with_exposed_provenance_mut(address)))
}

/// Which positions of a reserved block are mapped: one bit each.
pub(crate) struct Positions {
    pub(crate) page: u64,
    count: u64,
    pub(crate) mapped: Mutex<Vec<u64>>,
    /// Whether a map failed there: AMD's runtime remembers it, and takes it for what is mapped at those addresses later.
    spoiled: AtomicBool,
}

impl Positions {
    pub(crate) fn new(page: u64, count: u64) -> Result<Self> {
        let words = usize::try_from(count.div_ceil(64)).map_err(|_| ErrorKind::ExceedsLimit)?;
        let mut mapped = Vec::new();
        mapped.try_reserve_exact(words).map_err(|_| ErrorKind::OutOfHostMemory)?;
        mapped.resize(words, 0);
        Ok(Self { page, count, mapped: Mutex::new(mapped), spoiled: AtomicBool::new(false) })
    }

    /// Notes that a map failed.
    pub(crate) fn spoil(&self) {
        self.spoiled.store(true, Ordering::Relaxed);
    }

    /// Whether the addresses must stay taken.
    pub(crate) fn is_spoiled(&self) -> bool {
        self.spoiled.load(Ordering::Relaxed)
    }

    /// Refuses positions outside the block.
    pub(crate) fn require_inside(&self, first: u64, count: u64) -> Result<()> {
        match first.checked_add(count) {
            Some(end) if end <= self.count => Ok(()),
            _ => Err(ErrorKind::OutOfRange.into()),
        }
    }

    /// Refuses bytes whose pages are not all mapped: touching them would cost the device.
    pub(crate) fn require_mapped(&self, offset: u64, size: u64) -> Result<()> {
        if size == 0 {
            return Ok(());
        }
        let (first, end) = (offset / self.page, (offset + size).div_ceil(self.page));
        let mapped = lock(&self.mapped);
        let all = (first..end).all(|position| is_set(&mapped, position));
        if all { Ok(()) } else { Err(ErrorKind::OutOfRange.into()) }
    }

    pub(crate) fn is_any_mapped(&self) -> bool {
        lock(&self.mapped).iter().any(|&word| word != 0)
    }
}

/// The word and the bit of a position inside the block.
fn bit(position: u64) -> (usize, u64) {
    let word = usize::try_from(position / 64).expect("`Positions::new` made a word for it");
    (word, 1 << (position % 64))
}

/// Whether a position is mapped.
pub(crate) fn is_set(mapped: &[u64], position: u64) -> bool {
    let (word, mask) = bit(position);
    mapped[word] & mask != 0
}

/// Turns mapped positions into unmapped ones, and the other way round.
pub(crate) fn flip(mapped: &mut [u64], first: u64, count: u64) {
    for position in first..first + count {
        let (word, mask) = bit(position);
        mapped[word] ^= mask;
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
    fn a_page_is_known_until_it_is_released() {
        let kind = |result: Result<()>| result.map_err(|error| error.kind());
        let (pages, made) = (Pages::default(), Handle(ptr::without_provenance_mut(0x5000)));
        let page = pages.add(made);
        assert_eq!(kind(pages.require(&[page])), Ok(()));
        assert_eq!(kind(pages.require(&[page, Page(0)])), Err(ErrorKind::Foreign));
        assert_eq!(pages.remove(page), Ok(made));
        assert_eq!(pages.remove(page).map_err(|error| error.kind()), Err(ErrorKind::Foreign));
        assert_eq!(kind(pages.require(&[page])), Err(ErrorKind::Foreign));
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
