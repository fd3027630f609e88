//! Reports of a manager's memory, as JSON and as a page.
#![expect(unsafe_code, reason = "exports C functions")]
use crate::handle::{OmniheapManager, OmniheapPool, POOLS, holder};
use crate::sized::{empty, fill, grows};
use crate::status::{Failure, OmniheapStatus, call, put_text, text};
use core::ffi::c_char;
use omniheap::report::Totals;
use omniheap::trace::NewFile;
use omniheap::trace::report::write_html;

/// Sums over everything that a manager holds. Start from `omniheap_sums_default`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OmniheapTotals {
    /// Bytes of this struct, which `omniheap_sums_default` sets.
    pub struct_size: usize,
    /// Live allocations, those that wait for a timeline included.
    pub live: u64,
    /// Bytes that their callers asked for.
    pub live_bytes: u64,
    /// Bytes held from the driver.
    pub reserved_bytes: u64,
    /// Bytes in holes.
    pub free_bytes: u64,
    /// The largest hole.
    pub largest_hole: u64,
    /// Bytes freed that wait for a timeline.
    pub waiting_bytes: u64,
    /// Allocations made so far.
    pub allocated: u64,
    /// Frees so far.
    pub freed: u64,
}

grows!(filled OmniheapTotals to freed: "totals" from "omniheap_sums_default");

impl From<Totals> for OmniheapTotals {
    fn from(sums: Totals) -> Self {
        Self {
            live: sums.live,
            live_bytes: sums.live_bytes,
            reserved_bytes: sums.reserved_bytes,
            free_bytes: sums.free_bytes,
            largest_hole: sums.largest_hole,
            waiting_bytes: sums.deferred_bytes,
            allocated: sums.allocated,
            freed: sums.freed,
            ..empty()
        }
    }
}

/// Sums, cheap enough for every frame.
///
/// # Safety
///
/// `totals` is null, or starts with its size and may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_totals(
    manager: OmniheapManager,
    totals: *mut OmniheapTotals,
) -> OmniheapStatus {
    call(|| {
        let sums = holder(manager)?.manager.totals();
        // SAFETY: the caller's promise.
        unsafe { fill(totals, &sums.into()) }
    })
}

/// The same sums of one pool alone. Walks the blocks of the pool.
///
/// # Safety
///
/// `totals` is null, or starts with its size and may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_pool_totals(
    pool: OmniheapPool,
    totals: *mut OmniheapTotals,
) -> OmniheapStatus {
    call(|| {
        let sums = POOLS.get(pool.id)?.with(|pool| pool.report().totals)?;
        // SAFETY: the caller's promise.
        unsafe { fill(totals, &sums.into()) }
    })
}

/// The whole report as JSON, as docs/report.schema.json describes it.
///
/// # Safety
///
/// As for `omniheap_devices_json`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_report_json(
    manager: OmniheapManager,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> OmniheapStatus {
    call(|| {
        let data = omniheap::report::picture(&holder(manager)?.manager, "omniheap");
        let shown = serde_json::to_string(&data)
            .map_err(|error| Failure::new(OmniheapStatus::Bug, error.to_string()))?;
        // SAFETY: the caller's promise.
        unsafe { put_text(&shown, buffer, capacity, length) }
    })
}

/// Writes the report as one self-contained HTML page. A file that is there stays as it is until the page is whole.
///
/// # Safety
///
/// `path` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_report_html(
    manager: OmniheapManager,
    path: *const c_char,
) -> OmniheapStatus {
    call(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { text(path, "path") }?;
        let data = omniheap::report::picture(&holder(manager)?.manager, "omniheap");
        let new = NewFile::create(path.as_ref());
        let written = new.and_then(|new| new.write(|sink| write_html(&data, sink)));
        let refused = |error| Failure::new(OmniheapStatus::File, format!("{path}: {error}"));
        written.map(drop).map_err(refused)
    })
}
