//! The backend's own driver functions for pages, pools and managed memory, over the library under test.

#![expect(unsafe_code, reason = "calls the driver functions under test")]

use omniheap_hip::driver::{Coherence, Driver, Sharing};
use omniheap_hip::sys::hipStream_t;
use omniheap_stream::{Caching, CopyDriver, MemoryDriver, StreamDriver};

use super::driver::open;
use crate::run::Run;

const PAGE: usize = 2 << 20;

pub(crate) fn pages_and_pools(run: &mut Run) {
    let Some(driver) = open(run) else { return };
    let Ok(stream) = driver.create_stream() else { return run.check("a stream is made", false) };
    let granule = driver.granularity(Sharing::Private).unwrap_or(0);
    run.check("pages have a granularity", granule.is_power_of_two() && granule <= PAGE as u64);
    moved(run, &driver, stream);
    pooled(run, &driver, stream);
    let managed = driver.allocate_managed(4096);
    // SAFETY: allocated just above, freed once.
    run.check(
        "managed memory comes and goes",
        managed.is_ok_and(|base| unsafe { driver.free(base) }.is_ok()),
    );
    // SAFETY: made above, destroyed once.
    run.check("the stream is destroyed", unsafe { driver.destroy_stream(stream) }.is_ok());
}

/// One page at two places, one after the other, by way of a descriptor.
fn moved(run: &mut Run, driver: &Driver, stream: hipStream_t) {
    let Ok(reserved) = driver.reserve(4 * PAGE, PAGE) else {
        return run.check("addresses are there", false);
    };
    run.check("they are aligned", reserved.base.is_multiple_of(PAGE as u64));
    let Ok(page) = driver.create_page(PAGE, Sharing::Exportable) else {
        return run.check("a page is there", false);
    };
    // SAFETY: the page is exportable.
    let Ok(fd) = (unsafe { driver.export_page(page) }) else {
        return run.check("it is exported", false);
    };
    let Ok(same) = driver.import_page(fd) else { return run.check("it is imported", false) };
    run.check("no descriptor is none", driver.import_page(-1).is_err());
    let (here, there) = (reserved.base, reserved.base + 2 * PAGE as u64);
    let Ok(host) = driver.allocate_host(8, Caching::Cached, Coherence::Fine) else {
        return run.check("pinned memory is there", false);
    };
    let mut well = true;
    for (place, handle) in [(here, page), (there, same)] {
        // SAFETY: the place is reserved and unmapped, and the page has this size.
        well &= unsafe { driver.map(place, PAGE, handle) }.is_ok();
        // SAFETY: mapped just above.
        well &= unsafe { driver.allow(place, PAGE) }.is_ok();
    }
    // SAFETY: mapped and accessible; the fill is in the page.
    well &= unsafe { driver.fill(here + 4096, 0x5C, 4096, stream) }.is_ok();
    // SAFETY: as above; the pinned bytes are not touched before the wait below.
    well &= unsafe { driver.read(host.as_ptr(), there + 4096, 8, stream) }.is_ok();
    // SAFETY: the stream is live.
    well &= unsafe { driver.synchronize_stream(stream) }.is_ok();
    run.check("both places are mapped and used", well);
    // SAFETY: the copy into these bytes has run.
    let got = unsafe { core::slice::from_raw_parts(host.as_ptr(), 8) };
    run.check("what is written at one place is read at the other", got == [0x5C; 8]);
    for (place, handle) in [(here, page), (there, same)] {
        // SAFETY: mapped above as one mapping; the stream is idle.
        well &= unsafe { driver.unmap(place, PAGE) }.is_ok();
        // SAFETY: created or imported above, released once.
        well &= unsafe { driver.release_page(handle) }.is_ok();
    }
    // SAFETY: reserved above, nothing is mapped, freed once.
    well &= unsafe { driver.unreserve(reserved) }.is_ok();
    // SAFETY: allocated above, freed once.
    well &= unsafe { driver.free_host(host.as_ptr()) }.is_ok();
    run.check("everything is given back", well);
}

fn pooled(run: &mut Run, driver: &Driver, stream: hipStream_t) {
    let Ok(pool) = driver.create_pool() else { return run.check("a pool is made", false) };
    // SAFETY: pool and stream are live.
    let Ok(base) = (unsafe { driver.allocate_from_pool(1 << 20, pool, stream) }) else {
        return run.check("the pool gives memory", false);
    };
    // SAFETY: the block has this size, and the stream orders the fill behind the allocation.
    let filled = unsafe { driver.fill(base, 1, 1 << 20, stream) };
    // SAFETY: allocated above, freed once, used on this stream only.
    let freed = unsafe { driver.free_to_pool(base, stream) };
    // SAFETY: the stream is live.
    let waited = unsafe { driver.synchronize_stream(stream) };
    // SAFETY: the pool is live.
    let trimmed = unsafe { driver.trim_pool(pool) };
    // SAFETY: its only block was freed; destroyed once.
    let destroyed = unsafe { driver.destroy_pool(pool) };
    let all = [filled, freed, waited, trimmed, destroyed].iter().all(Result::is_ok);
    run.check("a pool gives, takes and goes", all);
}
