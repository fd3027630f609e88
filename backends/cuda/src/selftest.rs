//! Tests of optional features when a device is opened, with this driver's calls.
#![expect(unsafe_code, reason = "calls the driver")]
use crate::{
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

/// Tries everything.
pub(crate) fn run(driver: &Arc<Driver>, claims: Claims) -> Result<Outcome<AsyncPool>> {
    selftest::run(driver, claims, |stream| pages(driver, stream), |stream| pool(driver, stream))
}

/// Maps one page, uses it, and unmaps it. Returns the page size.
fn pages(driver: &Driver, stream: Stream) -> Result<Align> {
    let align = Align::new(driver.granularity(Sharing::Private)?).ok_or(ErrorKind::Driver)?;
    let size = usize::try_from(align.get()).map_err(|_| ErrorKind::ExceedsLimit)?;
    let page = driver.create_page(size, Sharing::Private)?;
    let result = with_addresses(driver, size, |address| {
        // SAFETY: the range was reserved for this probe, and the page is its own.
        unsafe { driver.map(address, size, page) }?;
        // SAFETY: mapped just above.
        let allowed = unsafe { driver.allow(address, size) };
        // SAFETY: a page has at least `PROBE` bytes, and they are mapped.
        let used = allowed.and_then(|()| unsafe { stamp(driver, address, stream) });
        // SAFETY: mapped above; `stamp` has waited.
        let unmapped = unsafe { driver.unmap(address, size) };
        used.and(unmapped)
    });
    // SAFETY: created above; unmapped, or the driver keeps it until it is.
    let released = unsafe { driver.release_page(page) };
    result.and(released).map(|()| align)
}

/// Runs `work` on reserved addresses.
fn with_addresses(
    driver: &Driver,
    size: usize,
    work: impl FnOnce(u64) -> Result<()>,
) -> Result<()> {
    let address = driver.reserve(size, size)?;
    let result = work(address);
    // SAFETY: reserved just above; `work` unmaps what it maps.
    let freed = unsafe { driver.unreserve(address, size) };
    result.and(freed)
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
