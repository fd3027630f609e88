//! Tests of optional features when a device is opened, with the runtime's calls.
#![expect(unsafe_code, reason = "calls the runtime")]
use crate::{
    addresses,
    driver::{Driver, Sharing},
    pool::AsyncPool,
};
use omniheap_seam::{Align, ErrorKind, Result};
use omniheap_stream::{
    StreamDriver,
    selftest::{self, Claims, Outcome, PROBE, stamp},
};
use std::sync::Arc;

type Stream = <Driver as StreamDriver>::Stream;

/// The least page: AMD's granularity is 4 KiB, but its page tables and caches want large pieces.
const LEAST_PAGE: Align = Align::of(2 << 20);

/// Tries everything.
pub(crate) fn run(driver: &Arc<Driver>, claims: Claims) -> Result<Outcome<AsyncPool>> {
    selftest::run(driver, claims, |stream| pages(driver, stream), |stream| pool(driver, stream))
}

/// Maps one page, uses it, and unmaps it. Returns the page size.
fn pages(driver: &Driver, stream: Stream) -> Result<Align> {
    let granularity = Align::new(driver.granularity(Sharing::Private)?).ok_or(ErrorKind::Driver)?;
    let align = granularity.max(LEAST_PAGE);
    let size = usize::try_from(align.get()).map_err(|_| ErrorKind::ExceedsLimit)?;
    let page = driver.create_page(size, Sharing::Private)?;
    let result = with_addresses(driver, size, |address| {
        // SAFETY: the range was reserved for this probe, and the page is its own.
        unsafe { driver.map(address, size, page) }?;
        // SAFETY: mapped just above.
        let allowed = unsafe { driver.allow(address, size) };
        // SAFETY: a page has at least `PROBE` bytes, and they are mapped.
        let used = allowed.and_then(|()| unsafe { stamp(driver, address, stream) });
        // SAFETY: mapped above, or not if that failed silently; `stamp` has waited.
        let unmapped = unsafe { driver.undo_map(address, size) };
        used.and(unmapped)
    });
    // SAFETY: created above; unmapped, or the runtime keeps it until it is.
    let released = unsafe { driver.release_page(page) };
    result.and(released).map(|()| align)
}

/// Runs `work` on reserved addresses.
fn with_addresses(
    driver: &Driver,
    size: usize,
    work: impl FnOnce(u64) -> Result<()>,
) -> Result<()> {
    let reserved = addresses::take(driver, size, size)?;
    let result = work(reserved.base);
    if result.is_ok() {
        // SAFETY: taken just above; `work` has unmapped what it mapped, and nothing failed.
        unsafe { addresses::keep(driver, reserved) };
    }
    result
}

/// Takes a block from a new pool, and uses it on another stream.
fn pool(driver: &Arc<Driver>, stream: Stream) -> Result<AsyncPool> {
    let pool = AsyncPool::new(driver)?;
    let address = pool.allocate(PROBE)?;
    // SAFETY: allocated just above with `PROBE` bytes.
    let result = unsafe { stamp(&**driver, address, stream) };
    // SAFETY: allocated above, used by nothing any more.
    let freed = unsafe { pool.free(address) };
    result.and(freed).map(|()| pool)
}
