//! Self-test: tries each optional feature once when a device is opened.
//!
//! A feature that misbehaves is quarantined: it is left out of the caps, and the reason is logged and kept.
#![expect(unsafe_code, reason = "calls the driver")]
use crate::{CopyDriver, Driver, MemoryDriver, Source, Usable};
use core::fmt;
use omniheap_seam::{Align, Error, ErrorKind, Result};
use std::sync::Arc;

/// Bytes that a probe writes and reads back.
pub const PROBE: usize = 4096;
/// Byte that a probe writes.
const STAMP: u8 = 0xA5;

/// An optional feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// Virtual memory: reserve, create, map, unmap.
    Pages,
    /// Managed memory that both sides may touch at any time.
    Managed,
    /// The driver's asynchronous pool.
    AsyncPool,
}

/// Result of testing a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The feature worked, and is used.
    Works,
    /// The device does not have it.
    Absent,
    /// Not tried: nobody asked for the feature.
    NotAsked,
    /// The device says it has it, but it failed: not used.
    Quarantined(Error),
}

/// Result of the self-test for one feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The feature.
    pub feature: Feature,
    /// The result.
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

/// Source of blocks of the device heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockSource {
    /// The driver's plain memory.
    #[default]
    Plain,
    /// The driver's own asynchronous pool, where the device has a working one; plain memory where not.
    AsyncPool,
}

/// Features that a device claims, and options that the caller requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims {
    /// True if the device has virtual memory.
    pub has_pages: bool,
    /// True if the device has managed memory.
    pub has_managed: bool,
    /// Both sides may touch managed memory at any time.
    pub has_concurrent_managed: bool,
    /// True if the caller wants managed memory.
    pub wants_managed: bool,
    /// True if the device has asynchronous pools.
    pub has_pools: bool,
    /// The requested source of device blocks.
    pub block_source: BlockSource,
}

/// Claim of the device to a feature; only a claimed one is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// The device says that it has it.
    Has,
    /// The device says that it does not have it.
    Lacks,
    /// Not claimed: nobody asked for it.
    NotAsked,
}

impl Claims {
    const fn pages(&self) -> Claim {
        if self.has_pages { Claim::Has } else { Claim::Lacks }
    }

    /// Without concurrent access, a host that looks while the device works is killed: that is no unified heap.
    const fn managed(&self) -> Claim {
        match self.has_managed && self.has_concurrent_managed {
            true if self.wants_managed => Claim::Has,
            true => Claim::NotAsked,
            false => Claim::Lacks,
        }
    }

    const fn pool(&self) -> Claim {
        match self.block_source {
            BlockSource::Plain => Claim::NotAsked,
            BlockSource::AsyncPool if self.has_pools => Claim::Has,
            BlockSource::AsyncPool => Claim::Lacks,
        }
    }
}

/// Outcome of the self-test; `P` is the vendor's asynchronous pool.
#[derive(Debug)]
pub struct Outcome<P> {
    /// Features that caps may report.
    pub usable: Usable,
    /// The pool, where it was asked for and works.
    pub pool: Option<P>,
    /// Result for each feature.
    pub findings: Vec<Finding>,
}

/// Tries what is claimed, and logs what is quarantined. A lost device ends the opening.
fn judge<T>(
    feature: Feature,
    claim: Claim,
    probe: impl FnOnce() -> Result<T>,
) -> Result<(Option<T>, Finding)> {
    let (value, verdict) = match claim {
        Claim::Lacks => (None, Verdict::Absent),
        Claim::NotAsked => (None, Verdict::NotAsked),
        Claim::Has => match probe() {
            Ok(value) => (Some(value), Verdict::Works),
            Err(error) if error.kind() == ErrorKind::DeviceLost => return Err(error),
            Err(error) => (None, Verdict::Quarantined(error)),
        },
    };
    if let Verdict::Quarantined(error) = verdict {
        tracing::warn!(?feature, %error, "a feature failed its self-test and is not used");
    }
    Ok((value, Finding { feature, verdict }))
}

/// Tries everything. `pages` maps one page, uses it with [`stamp`] and unmaps it, and returns the page size; `pool` does so
/// with a block of a new pool.
///
/// # Errors
///
/// A device that is lost, or gives no stream.
pub fn run<D: Driver, P>(
    driver: &Arc<D>,
    claims: Claims,
    pages: impl FnOnce(D::Stream) -> Result<Align>,
    pool: impl FnOnce(D::Stream) -> Result<P>,
) -> Result<Outcome<P>> {
    let stream = driver.create_stream()?;
    let try_all = || {
        let (page, pages) = judge(Feature::Pages, claims.pages(), || pages(stream))?;
        let probe = || managed(&**driver);
        let (managed, managed_finding) = judge(Feature::Managed, claims.managed(), probe)?;
        let (pool, pool_finding) = judge(Feature::AsyncPool, claims.pool(), || pool(stream))?;
        let usable = Usable { page, managed: managed.map(|()| Source::Managed), exportable: None };
        Ok(Outcome { usable, pool, findings: vec![pages, managed_finding, pool_finding] })
    };
    let outcome = try_all();
    // SAFETY: created just above; every probe has waited for its work.
    let _ = unsafe { driver.destroy_stream(stream) };
    outcome
}

/// Fills bytes on the device and compares them on the host.
///
/// # Errors
///
/// `Driver` for other bytes, or the driver's error.
///
/// # Safety
///
/// `address` begins [`PROBE`] live bytes that the device reaches; `stream` is live.
pub unsafe fn stamp<D: CopyDriver>(driver: &D, address: u64, stream: D::Stream) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { driver.fill(address, STAMP, PROBE, stream) }?;
    let mut seen = [0u8; PROBE];
    // SAFETY: the caller promises the address; the buffer outlives the wait below.
    unsafe { driver.read(seen.as_mut_ptr(), address, PROBE, stream) }?;
    // SAFETY: the caller promises the stream.
    unsafe { driver.synchronize_stream(stream) }?;
    if seen == [STAMP; PROBE] { Ok(()) } else { Err(ErrorKind::Driver.into()) }
}

/// Takes managed memory and uses it on the host.
///
/// The device's part waits until somebody wants such memory: its first touch costs 128 MiB of an H200 for as long as the
/// context lives, and most programs never use any.
fn managed<D: MemoryDriver>(driver: &D) -> Result<()> {
    with_managed(driver, |address| {
        let last = last_byte(address)?;
        // SAFETY: managed memory is the host's too, at the same address, and the device does not use it.
        unsafe { last.write_volatile(STAMP) };
        host_sees(address)
    })
}

/// Writes managed memory on the device and reads it on the host.
///
/// # Errors
///
/// `Driver` for other bytes, or the driver's error.
pub(crate) fn touch_managed<D: CopyDriver + MemoryDriver>(driver: &D) -> Result<()> {
    let stream = driver.create_stream()?;
    let result = with_managed(driver, |address| {
        // SAFETY: the bytes are live, and so is the stream.
        unsafe { stamp(driver, address, stream) }?;
        host_sees(address)
    });
    // SAFETY: created above; `stamp` has waited for its work, or failed to queue any.
    result.and(unsafe { driver.destroy_stream(stream) })
}

/// Runs `work` on [`PROBE`] bytes of managed memory.
fn with_managed<D: MemoryDriver>(driver: &D, work: impl FnOnce(u64) -> Result<()>) -> Result<()> {
    let address = driver.allocate_managed(PROBE)?;
    let result = work(address);
    // SAFETY: allocated above, used by nothing any more.
    result.and(unsafe { driver.free(address) })
}

/// Returns the host pointer to the last byte of a probe.
fn last_byte(address: u64) -> Result<*mut u8> {
    let address = usize::try_from(address).map_err(|_| ErrorKind::Driver)?;
    Ok(core::ptr::with_exposed_provenance_mut(address + PROBE - 1))
}

/// Returns whether the host finds the stamp at the device's address.
fn host_sees(address: u64) -> Result<()> {
    // SAFETY: managed memory is the host's too, at the same address; it is claimed only where both sides may touch it at any
    // time, and whoever wrote it has finished.
    let last = unsafe { last_byte(address)?.read_volatile() };
    if last == STAMP { Ok(()) } else { Err(ErrorKind::Driver.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_feature_is_quarantined_and_a_lost_device_is_not_opened() {
        let works = judge(Feature::Pages, Claim::Has, || Ok(7)).expect("works");
        assert_eq!((works.0, works.1.verdict), (Some(7), Verdict::Works));
        let error: Error = ErrorKind::Driver.into();
        let failing = judge::<()>(Feature::AsyncPool, Claim::Has, || Err(error));
        let failing = failing.expect("quarantined");
        assert_eq!((failing.0, failing.1.verdict), (None, Verdict::Quarantined(error)));
        let lost = judge::<()>(Feature::Pages, Claim::Has, || Err(ErrorKind::DeviceLost.into()));
        assert_eq!(lost.map_err(|error| error.kind()).err(), Some(ErrorKind::DeviceLost));
    }

    #[test]
    fn what_is_absent_or_not_asked_for_is_not_tried() {
        for (claim, verdict) in
            [(Claim::Lacks, Verdict::Absent), (Claim::NotAsked, Verdict::NotAsked)]
        {
            let probe = || -> Result<()> { panic!("it is not to be tried") };
            let (value, finding) = judge(Feature::Managed, claim, probe).expect("nothing to fail");
            assert_eq!((value, finding.verdict), (None, verdict));
        }
    }

    #[test]
    fn claims_are_the_devices_and_the_callers() {
        let claims = Claims {
            has_pages: true,
            has_managed: true,
            has_concurrent_managed: false,
            wants_managed: true,
            has_pools: true,
            block_source: BlockSource::Plain,
        };
        assert_eq!((claims.pages(), claims.managed()), (Claim::Has, Claim::Lacks));
        assert_eq!(claims.pool(), Claim::NotAsked);
        let unwanted = Claims { has_concurrent_managed: true, wants_managed: false, ..claims };
        assert_eq!(unwanted.managed(), Claim::NotAsked);
        let asked = Claims { block_source: BlockSource::AsyncPool, ..claims };
        assert_eq!(asked.pool(), Claim::Has);
        assert_eq!(Claims { has_pools: false, ..asked }.pool(), Claim::Lacks);
    }
}
