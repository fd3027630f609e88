//! Writes behind the end of allocations, which guards found.
#![expect(unsafe_code, reason = "exports C functions")]
use crate::defrag::Handles;
use crate::handle::{OmniheapAllocation, OmniheapManager, holder};
use crate::sized::{empty, fill, grows};
use crate::status::{Failure, OmniheapStatus, call, check, put};
use core::ffi::c_char;
use omniheap::ErrorKind;
use omniheap::guards::Overwrite;
use omniheap::seam::lock;
use std::ffi::CString;

/// A write behind the end of an allocation. Start from `omniheap_overwritten_default`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OmniheapOverwrite {
    /// Bytes of this struct, which `omniheap_overwritten_default` sets.
    pub struct_size: usize,
    /// The allocation behind whose end it happened; zero where it was freed before `omniheap_overwrites` looked.
    pub allocation: OmniheapAllocation,
    /// Its name, empty where it has none. The text stays until the manager is closed.
    pub name: *const c_char,
    /// Bytes that it asked for.
    pub size: u64,
    /// Bytes between its end and the first byte that was overwritten: zero for the byte right behind it.
    pub distance: u64,
    /// The heap that it lies in.
    pub heap: u32,
    /// Value that this byte should have.
    pub expected: u32,
    /// Value that it has.
    pub found: u32,
}

grows!(filled OmniheapOverwrite to found: "overwrite" from "omniheap_overwritten_default");

/// Counts of checked and unchecked guards. Start from `omniheap_guarded_default`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OmniheapGuarded {
    /// Bytes of this struct, which `omniheap_guarded_default` sets.
    pub struct_size: usize,
    /// Guards that were looked at when their allocation ended.
    pub checked: u64,
    /// Allocations with a write behind their end.
    pub overwritten: u64,
    /// Guards that could not be looked at, because the device refused.
    pub missed: u64,
    /// Allocations without a guard, because nothing is left between them and the next.
    pub unguarded: u64,
}

grows!(filled OmniheapGuarded to unguarded: "guards" from "omniheap_guarded_default");

/// A finding that C was told of: its allocation's handle, if it had one, and its name as C has it.
pub(crate) struct Found {
    what: Overwrite,
    allocation: OmniheapAllocation,
    name: CString,
}

/// Looks for writes behind the end of allocations, of those that live and those that were freed; `count` gets how many were found since the
/// manager was opened, at most 1024. `omniheap_overwrite` says each of them.
///
/// Waits for what uses the allocations. `INVALID_CONFIG` where the manager was opened without `config.guards`.
///
/// # Safety
///
/// `count` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_overwrites(
    manager: OmniheapManager,
    count: *mut usize,
) -> OmniheapStatus {
    call(|| {
        let holder = holder(manager)?;
        check(count, "count")?;
        let all = holder.manager.overwrites().map_err(|error| match error.kind() {
            ErrorKind::InvalidConfig => {
                let message = "the manager has no guards; set config.guards when you open it";
                Failure::new(OmniheapStatus::InvalidConfig, message)
            }
            _ => error.into(),
        })?;
        let mut found = lock(&holder.overwrites);
        // Entries stay in the list, because C holds pointers to their names.
        if found.len() < all.len() {
            let handles = Handles::of(&holder);
            for what in all.into_iter().skip(found.len()) {
                let name = what.name.as_deref().unwrap_or_default().replace('\0', " ");
                let (allocation, name) = (handles.of_id(what.id), CString::new(name));
                found.push(Found { what, allocation, name: name.unwrap_or_default() });
            }
        }
        // SAFETY: the caller's promise.
        unsafe { put(count, found.len(), "count") }
    })
}

/// Says what `omniheap_overwrites` has found, numbered from 0 in the order of the findings. `OUT_OF_RANGE` where there is no such one.
///
/// # Safety
///
/// `overwrite` is null, or starts with its size and may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_overwrite(
    manager: OmniheapManager,
    which: usize,
    overwrite: *mut OmniheapOverwrite,
) -> OmniheapStatus {
    call(|| {
        let holder = holder(manager)?;
        let found = lock(&holder.overwrites);
        let Found { what, allocation, name } = found.get(which).ok_or_else(|| {
            let message = format!(
                "{} overwrites were found, numbered from 0; ask omniheap_overwrites first",
                found.len()
            );
            Failure::new(OmniheapStatus::OutOfRange, message)
        })?;
        let shown = OmniheapOverwrite {
            allocation: *allocation,
            name: name.as_ptr(),
            size: what.size,
            distance: what.distance,
            heap: what.heap.0.into(),
            expected: what.expected.into(),
            found: what.found.into(),
            ..empty()
        };
        // SAFETY: the caller's promise.
        unsafe { fill(overwrite, &shown) }
    })
}

/// Counts how guards fared; all zero where the manager was opened without `config.guards`.
///
/// # Safety
///
/// `guards` is null, or starts with its size and may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_guards(
    manager: OmniheapManager,
    guards: *mut OmniheapGuarded,
) -> OmniheapStatus {
    call(|| {
        let counts = holder(manager)?.manager.guard_report();
        let shown = OmniheapGuarded {
            checked: counts.checked,
            overwritten: counts.overwritten,
            missed: counts.missed,
            unguarded: counts.unguarded,
            ..empty()
        };
        // SAFETY: the caller's promise.
        unsafe { fill(guards, &shown) }
    })
}
