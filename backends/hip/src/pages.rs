//! Registry of live pages.
use crate::sys::hipMemGenericAllocationHandle_t as Handle;
use core::ptr;
use omniheap_seam::{ErrorKind, Page, Result};
use omniheap_stream::lock;
use std::{collections::HashSet, sync::Mutex};

/// The pages that exist. HIP follows any number it is given, so one that is not here never gets there.
#[derive(Default)]
pub(crate) struct Pages(Mutex<HashSet<u64>>);

impl Pages {
    /// Rejects pages that this backend did not create.
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

/// Returns the runtime's handle of a page.
pub(crate) fn handle(page: Page) -> Result<Handle> {
    let address = usize::try_from(page.0).map_err(|_| ErrorKind::Foreign)?;
    Ok(Handle(ptr::with_exposed_provenance_mut(address)))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
