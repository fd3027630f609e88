//! What is tried when a device is opened: each optional feature once, on this driver.
//!
//! A feature that misbehaves is quarantined: it is left out of the caps, and the reason is logged and kept.
#![expect(unsafe_code, reason = "calls the runtime")]
use crate::{
    caps::{Attributes, Source, Usable},
    config::BlockSource,
    driver::{Driver, Sharing},
    pool::AsyncPool,
    sys::hipStream_t,
};
use core::fmt;
use omniheap_core::{Align, Error, ErrorKind, Result};
use std::sync::Arc;

/// Bytes that a probe writes and reads back.
const PROBE: usize = 4096;
/// The least page: AMD's granularity is 4 KiB, but its page tables and caches want large pieces.
const LEAST_PAGE: Align = Align::of(2 << 20);
/// What it writes.
const STAMP: u8 = 0xA5;

/// An optional feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// Virtual memory: reserve, create, map, unmap.
    Pages,
    /// Managed memory that both sides may touch at any time.
    Managed,
    /// The runtime's asynchronous pool.
    AsyncPool,
}

/// How a feature did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It worked, and is used.
    Works,
    /// The device does not have it.
    Absent,
    /// It was not asked for, and not tried.
    NotAsked,
    /// The device says it has it, but it failed: not used.
    Quarantined(Error),
}

/// What the self-test found about one feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The feature.
    pub feature: Feature,
    /// How it did.
    pub verdict: Verdict,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.feature {
            Feature::Pages => "pages",
            Feature::Managed => "managed memory",
            Feature::AsyncPool => "asynchronous pool",
        };
        match self.verdict {
            Verdict::Works => write!(f, "{name}: works"),
            Verdict::Absent => write!(f, "{name}: absent"),
            Verdict::NotAsked => write!(f, "{name}: not asked for"),
            Verdict::Quarantined(error) => write!(f, "{name}: quarantined, {error}"),
        }
    }
}

/// What is left standing.
pub(crate) struct Outcome {
    pub(crate) usable: Usable,
    pub(crate) pool: Option<AsyncPool>,
    pub(crate) findings: Vec<Finding>,
}

/// Turns a probe's result into a verdict, and logs what is quarantined. A lost device ends the opening.
fn judge<T>(feature: Feature, probe: Option<Result<T>>) -> Result<(Option<T>, Finding)> {
    let (value, verdict) = match probe {
        None => (None, Verdict::Absent),
        Some(Ok(value)) => (Some(value), Verdict::Works),
        Some(Err(error)) if error.kind() == ErrorKind::DeviceLost => return Err(error),
        Some(Err(error)) => (None, Verdict::Quarantined(error)),
    };
    let finding = Finding { feature, verdict };
    if let Verdict::Quarantined(error) = verdict {
        tracing::warn!(?feature, %error, "a feature failed its self-test and is not used");
    }
    Ok((value, finding))
}

/// Tries everything.
pub(crate) fn run(
    driver: &Arc<Driver>,
    attributes: &Attributes,
    block_source: BlockSource,
) -> Result<Outcome> {
    let stream = driver.create_stream()?;
    let outcome = try_all(driver, attributes, block_source, stream);
    // SAFETY: created just above; every probe has waited for its work.
    let _ = unsafe { driver.destroy_stream(stream) };
    outcome
}

fn try_all(
    driver: &Arc<Driver>,
    attributes: &Attributes,
    block_source: BlockSource,
    stream: hipStream_t,
) -> Result<Outcome> {
    let probe = attributes.has_virtual_memory.then(|| pages(driver, stream));
    let (page, pages) = judge(Feature::Pages, probe)?;
    // Without concurrent access, a host that looks while the device works is killed: that is no unified heap.
    let has_managed = attributes.has_managed && attributes.has_concurrent_managed;
    let probe = has_managed.then(|| managed(driver, stream));
    let (managed, managed_finding) = judge(Feature::Managed, probe)?;
    let (pool, pool_finding) = match block_source {
        BlockSource::Plain => {
            (None, Finding { feature: Feature::AsyncPool, verdict: Verdict::NotAsked })
        }
        BlockSource::AsyncPool => {
            let probe = attributes.has_pools.then(|| pool(driver, stream));
            judge(Feature::AsyncPool, probe)?
        }
    };
    let usable = Usable { page, managed: managed.map(|()| Source::Managed) };
    Ok(Outcome { usable, pool, findings: vec![pages, managed_finding, pool_finding] })
}

/// Fills bytes on the device and compares them on the host.
///
/// # Safety
///
/// `address` begins [`PROBE`] live bytes that the device reaches; `stream` is live.
unsafe fn stamp(driver: &Driver, address: u64, stream: hipStream_t) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { driver.fill(address, STAMP, PROBE, stream) }?;
    let mut seen = [0u8; PROBE];
    // SAFETY: the caller promises the address; the buffer outlives the wait below.
    unsafe { driver.read(seen.as_mut_ptr(), address, PROBE, stream) }?;
    // SAFETY: the caller promises the stream.
    unsafe { driver.synchronize_stream(stream) }?;
    if seen == [STAMP; PROBE] { Ok(()) } else { Err(ErrorKind::Driver.into()) }
}

/// Maps one page, uses it, and unmaps it. Returns the page size.
fn pages(driver: &Driver, stream: hipStream_t) -> Result<Align> {
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
    let reserved = driver.reserve(size, size)?;
    let result = work(reserved.base);
    // SAFETY: reserved just above; `work` unmaps what it maps.
    let freed = unsafe { driver.unreserve(reserved) };
    result.and(freed)
}

fn managed(driver: &Driver, stream: hipStream_t) -> Result<()> {
    let address = driver.allocate_managed(PROBE)?;
    // SAFETY: allocated just above with `PROBE` bytes.
    let result = unsafe { stamp(driver, address, stream) }.and_then(|()| host_sees(address));
    // SAFETY: allocated above, used by nothing any more.
    let freed = unsafe { driver.free(address) };
    result.and(freed)
}

/// Whether the host finds the stamp at the device's address.
fn host_sees(address: u64) -> Result<()> {
    let address = usize::try_from(address).map_err(|_| ErrorKind::Driver)?;
    let bytes = core::ptr::with_exposed_provenance::<u8>(address + PROBE - 1);
    // SAFETY: managed memory with concurrent access is the host's too, at the same address; `stamp` has waited.
    let last = unsafe { bytes.read_volatile() };
    if last == STAMP { Ok(()) } else { Err(ErrorKind::Driver.into()) }
}

/// Takes a block from a new pool, and uses it on another stream.
fn pool(driver: &Arc<Driver>, stream: hipStream_t) -> Result<AsyncPool> {
    let pool = AsyncPool::new(driver)?;
    let address = pool.allocate(PROBE)?;
    // SAFETY: allocated just above with `PROBE` bytes.
    let result = unsafe { stamp(driver, address, stream) };
    // SAFETY: allocated above, used by nothing any more.
    let freed = unsafe { pool.free(address) };
    result.and(freed).map(|()| pool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_feature_is_quarantined_and_a_lost_device_is_not_opened() {
        let works = judge(Feature::Pages, Some(Ok(7))).expect("works");
        assert_eq!((works.0, works.1.verdict), (Some(7), Verdict::Works));
        let absent = judge::<()>(Feature::Managed, None).expect("absent");
        assert_eq!((absent.0, absent.1.verdict), (None, Verdict::Absent));
        let error: Error = ErrorKind::Driver.into();
        let failing = judge::<()>(Feature::AsyncPool, Some(Err(error))).expect("quarantined");
        assert_eq!((failing.0, failing.1.verdict), (None, Verdict::Quarantined(error)));
        let lost = judge::<()>(Feature::Pages, Some(Err(ErrorKind::DeviceLost.into())));
        assert_eq!(lost.map_err(|error| error.kind()).err(), Some(ErrorKind::DeviceLost));
    }
}
