//! Plan, explain, budgets, trim, defragment.
#![expect(unsafe_code, reason = "exports C functions")]
use crate::handle::{ALLOCATIONS, OmniheapAllocation, OmniheapManager, holder};
use crate::request::{Asked, OmniheapRequest, heap, read};
use crate::sized::{empty, fill, grows};
use crate::status::{Failure, OmniheapStatus, call, check, put, put_text};
use core::ffi::c_char;
use omniheap::{
    ErrorKind, Limits,
    placement::{Keyword as _, Placement},
    report::Source,
    seam::HeapKind,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// From a hole of memory that is held.
pub const OMNIHEAP_SOURCE_HELD: u32 = 0;
/// From a new block that others may share.
pub const OMNIHEAP_SOURCE_NEW_BLOCK: u32 = 1;
/// From pages, mapped where they are needed.
pub const OMNIHEAP_SOURCE_PAGES: u32 = 2;
/// From a block of its own.
pub const OMNIHEAP_SOURCE_DEDICATED: u32 = 3;

/// Forecast of an allocation. Start from `omniheap_planned_default`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OmniheapPlan {
    /// Bytes of this struct, which `omniheap_planned_default` sets.
    pub struct_size: usize,
    /// The heap.
    pub heap: u32,
    /// `OMNIHEAP_SOURCE_…`.
    pub source: u32,
    /// Bytes that the driver would be asked for, at most.
    pub new_bytes: u64,
    /// Bytes of the heap that would be held afterwards.
    pub reserved_after: u64,
    /// Bytes that the budget leaves afterwards.
    pub budget_after: u64,
}

grows!(filled OmniheapPlan to budget_after: "plan" from "omniheap_planned_default");

/// Device memory.
pub const OMNIHEAP_KIND_DEVICE: u32 = 0;
/// Read-only for kernels, small, cached for broadcasts.
pub const OMNIHEAP_KIND_CONSTANT: u32 = 1;
/// Host memory that the device reaches.
pub const OMNIHEAP_KIND_STAGING: u32 = 2;
/// Reached fast by both sides.
pub const OMNIHEAP_KIND_UNIFIED: u32 = 3;

/// A heap of a device: what it is, and what is held of it. Start from `omniheap_heap_info_default`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OmniheapHeap {
    /// Bytes of this struct, which `omniheap_heap_info_default` sets.
    pub struct_size: usize,
    /// Bytes.
    pub size: u64,
    /// The largest block that the driver gives.
    pub max_block: u64,
    /// Bytes held from the driver.
    pub reserved: u64,
    /// The most that was ever held.
    pub peak_reserved: u64,
    /// Bytes above which memory is refused.
    pub hard_limit: u64,
    /// Bytes above which memory is given back early and pressure callbacks run.
    pub soft_limit: u64,
    /// `OMNIHEAP_KIND_…`.
    pub kind: u32,
    /// Non-zero where the host sees the bytes.
    pub mappable: u32,
}

grows!(filled OmniheapHeap to mappable: "about" from "omniheap_heap_info_default");

/// Says what an allocation would do, without doing it.
///
/// # Safety
///
/// `request` is null or a request, `plan` null, or starts with its size and may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_plan(
    manager: OmniheapManager,
    request: *const OmniheapRequest,
    plan: *mut OmniheapPlan,
) -> OmniheapStatus {
    call(|| {
        // SAFETY: the caller's promise.
        let Asked { request, .. } = unsafe { read(request) }?;
        let made = holder(manager)?.manager.plan(&request)?;
        let source = match made.source {
            Source::Held => OMNIHEAP_SOURCE_HELD,
            Source::NewBlock => OMNIHEAP_SOURCE_NEW_BLOCK,
            Source::Pages => OMNIHEAP_SOURCE_PAGES,
            Source::Dedicated => OMNIHEAP_SOURCE_DEDICATED,
        };
        let shown = OmniheapPlan {
            heap: made.heap.0.into(),
            source,
            new_bytes: made.new_bytes,
            reserved_after: made.reserved_after,
            budget_after: made.budget_after,
            ..empty()
        };
        // SAFETY: as above.
        unsafe { fill(plan, &shown) }
    })
}

/// Says where a request would go, why, and what was rejected, as JSON.
///
/// # Safety
///
/// `request` is null or a request; the rest as for `omniheap_devices_json`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_explain_json(
    manager: OmniheapManager,
    request: *const OmniheapRequest,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> OmniheapStatus {
    call(|| {
        // SAFETY: the caller's promise.
        let Asked { request, .. } = unsafe { read(request) }?;
        let holder = holder(manager)?;
        let found = holder.manager.explain(&request)?;
        let rejected: Vec<_> = found
            .verdicts
            .iter()
            .filter_map(|verdict| Some((verdict.heap, verdict.rejected?)))
            .map(|(heap, why)| json!({ "heap": heap.0, "why": why.to_string() }))
            .collect();
        let mut shown = described(&found.placement);
        shown["rejected"] = json!(rejected);
        // SAFETY: as above.
        unsafe { put_text(&shown.to_string(), buffer, capacity, length) }
    })
}

/// Returns the part of `omniheap_explain_json` about a decision.
fn described(placement: &Placement) -> Value {
    json!({
        "region": placement.region.word(),
        "heaps": placement.heaps.as_slice().iter().map(|heap| heap.0).collect::<Vec<_>>(),
        "reason": placement.reason.to_string(),
    })
}

/// Says where an allocation lies and why, as JSON: `region`, `heap`, `reason`, and `rung`, which is null where memory that was
/// held served the request. The reason is the decision, or what replaced it because better heaps were full.
///
/// # Safety
///
/// `buffer` is null or has `capacity` bytes to write; `length` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_placement_json(
    manager: OmniheapManager,
    allocation: OmniheapAllocation,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> OmniheapStatus {
    call(|| {
        let (holder, bytes) = (holder(manager)?, ALLOCATIONS.get(allocation.id)?);
        if !Arc::ptr_eq(&holder, bytes.owner.holder()) {
            return Err(ErrorKind::Foreign.into());
        }
        let placed = bytes.allocation().placed();
        let shown = json!({
            "region": placed.region.word(),
            "heap": placed.heap.0,
            "reason": placed.reason.to_string(),
            "rung": placed.rung.map(|rung| rung.word()),
        });
        // SAFETY: the caller's promise.
        unsafe { put_text(&shown.to_string(), buffer, capacity, length) }
    })
}

/// Writes the number of the device's heaps; they are numbered from 0.
///
/// # Safety
///
/// `count` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_heap_count(
    manager: OmniheapManager,
    count: *mut u32,
) -> OmniheapStatus {
    call(|| {
        let heaps = holder(manager)?.manager.caps().heaps.len();
        // SAFETY: the caller's promise.
        unsafe { put(count, u32::try_from(heaps).unwrap_or(u32::MAX), "count") }
    })
}

/// Says what a heap is, and what is held of it.
///
/// # Safety
///
/// `about` is null, or starts with its size and may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_heap(
    manager: OmniheapManager,
    number: u32,
    about: *mut OmniheapHeap,
) -> OmniheapStatus {
    call(|| {
        let (holder, id) = (holder(manager)?, heap(number)?);
        let held = holder.manager.heap_use(id)?;
        let described = holder.manager.caps().heap(id).ok_or(ErrorKind::NoSuchHeap)?;
        let shown = OmniheapHeap {
            size: described.size,
            max_block: described.max_block,
            reserved: held.reserved,
            peak_reserved: held.peak_reserved,
            hard_limit: held.hard_limit,
            soft_limit: held.soft_limit,
            kind: match described.kind {
                HeapKind::Constant => OMNIHEAP_KIND_CONSTANT,
                HeapKind::Staging => OMNIHEAP_KIND_STAGING,
                HeapKind::Unified => OMNIHEAP_KIND_UNIFIED,
                _ => OMNIHEAP_KIND_DEVICE,
            },
            mappable: u32::from(described.host.is_visible()),
            ..empty()
        };
        // SAFETY: the caller's promise.
        unsafe { fill(about, &shown) }
    })
}

/// Says how many bytes of a heap the driver lets this process hold, and how many are held now. Both may be null.
///
/// # Safety
///
/// `budget` and `used` are null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_driver_budget(
    manager: OmniheapManager,
    number: u32,
    budget: *mut u64,
    used: *mut u64,
) -> OmniheapStatus {
    call(|| {
        let holder = holder(manager)?;
        let driver = holder.manager.backend().as_budget().ok_or_else(|| {
            let message = "this driver does not tell its budget; set one with omniheap_set_budget";
            Failure::new(OmniheapStatus::Unsupported, message)
        })?;
        let told = driver.budget(heap(number)?)?;
        // SAFETY: the caller's promise.
        unsafe { put_optional(budget, || Ok(told.budget)) }?;
        // SAFETY: as above.
        unsafe { put_optional(used, || Ok(told.used)) }
    })
}

/// Sets how much of a heap may be held: above `soft`, memory is given back early; above `hard`, requests fail.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_set_budget(
    manager: OmniheapManager,
    number: u32,
    soft: u64,
    hard: u64,
) -> OmniheapStatus {
    call(|| Ok(holder(manager)?.manager.set_budget(heap(number)?, Limits { soft, hard })?))
}

/// Sets when pools wait that were made with `OMNIHEAP_WAITING_THRIFT`: `OMNIHEAP_WAITING_LAST_RESORT` suspends that, for the
/// while that a stream is captured into a graph, and `OMNIHEAP_WAITING_THRIFT` resumes it.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_set_waiting(manager: OmniheapManager, waiting: u32) -> OmniheapStatus {
    call(|| {
        holder(manager)?.manager.set_waiting(crate::open::waiting(waiting)?);
        Ok(())
    })
}

/// Makes reusable everything whose timelines have passed; `count` gets how many allocations that were, and may be null.
///
/// # Safety
///
/// `count` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_retire(
    manager: OmniheapManager,
    count: *mut u64,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    call(|| unsafe { put_optional(count, || Ok(holder(manager)?.manager.retire()?)) })
}

/// Gives empty blocks and pages back to the driver; `bytes` gets how many, and may be null.
///
/// # Safety
///
/// `bytes` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_trim(
    manager: OmniheapManager,
    bytes: *mut u64,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    call(|| unsafe { put_optional(bytes, || Ok(holder(manager)?.manager.trim()?)) })
}

/// Moves live data out of little used blocks and gives those back; `bytes` gets how many, and may be null.
///
/// Allocations that are pinned or mapped stay where they are. Waits for the device.
///
/// # Safety
///
/// `bytes` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_defragment(
    manager: OmniheapManager,
    bytes: *mut u64,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    call(|| unsafe { put_optional(bytes, || Ok(holder(manager)?.manager.defragment()?)) })
}

/// Does `work` and writes its answer, where the caller wants it.
///
/// # Safety
///
/// `to` is null, or not aligned, or may be written.
pub(crate) unsafe fn put_optional(
    to: *mut u64,
    work: impl FnOnce() -> Result<u64, Failure>,
) -> Result<(), Failure> {
    if to.is_null() {
        return work().map(drop);
    }
    check(to, "the result")?;
    // SAFETY: the caller's promise.
    unsafe { put(to, work()?, "the result") }
}
