//! Known faults of AMD's runtime, in virtual memory.

#![expect(unsafe_code, reason = "calls the HIP library under test")]

use core::ffi::c_void;
use core::ptr;

use omniheap_hip::sys::{Virtual, hipError_t, hipMemGenericAllocationHandle_t};

use super::virtual_memory::{NONE, OPEN, PROP};
use crate::run::{Run, call, quiet};

const MIB: usize = 1 << 20;

fn table(run: &Run) -> Option<Virtual> {
    quiet!(run.api.core, hipInit(0));
    run.group("virtual memory", run.api.virtual_memory)
}

fn reserve(table: &Virtual, size: usize) -> *mut c_void {
    let mut start = ptr::null_mut();
    quiet!(table, hipMemAddressReserve(&raw mut start, size, 0, ptr::null_mut(), 0));
    start
}

/// Creates a page, maps it and asks for access.
fn back(
    table: &Virtual,
    at: *mut c_void,
    size: usize,
) -> (hipMemGenericAllocationHandle_t, hipError_t) {
    let mut page = NONE;
    quiet!(table, hipMemCreate(&raw mut page, size, &PROP, 0));
    quiet!(table, hipMemMap(at, size, 0, page, 0));
    (page, quiet!(table, hipMemSetAccess(at, size, &OPEN, 1)))
}

/// rocm-systems#2516: access is refused for ranges that are mapped, depending on where they are.
pub(crate) fn access_fails_for_some_sizes(run: &mut Run) {
    let Some(table) = table(run) else { return };
    let start = reserve(&table, 1 << 32);
    let (mut offset, mut refused) = (0, 0);
    for size in [2_379_776, 7_864_320, 6_533_120] {
        let (_, code) = back(&table, start.wrapping_byte_add(offset), size);
        refused += usize::from(code != hipError_t::hipSuccess);
        offset += size;
    }
    run.fact("access refused to a mapped range", refused > 0);
}

/// rocm-systems#6977: access is refused for what was mapped behind a range; asking for the whole range works.
pub(crate) fn access_fails_on_a_grown_tail(run: &mut Run) {
    let Some(table) = table(run) else { return };
    let starts = [0; 3].map(|_| reserve(&table, 64 * MIB));
    for start in starts {
        back(&table, start, 4 * MIB);
    }
    let (mut refused, mut cured) = (0, true);
    for start in starts {
        let (_, code) = back(&table, start.wrapping_byte_add(4 * MIB), 8 * MIB);
        if code != hipError_t::hipSuccess {
            refused += 1;
            cured &=
                quiet!(table, hipMemSetAccess(start, 12 * MIB, &OPEN, 1)) == hipError_t::hipSuccess;
        }
    }
    run.fact("access refused to a grown tail", refused > 0);
    run.check("asking for the whole range works", cured);
}

/// `ROCR-Runtime`#285: one unmap over several mappings leaves the addresses in use.
pub(crate) fn one_unmap_over_many_maps(run: &mut Run) {
    let Some(table) = table(run) else { return };
    let start = reserve(&table, 64 * MIB);
    let pages =
        [0, 1, 2].map(|index| back(&table, start.wrapping_byte_add(index * 2 * MIB), 2 * MIB).0);
    call!(run, table, hipMemUnmap(start, 6 * MIB));
    for page in pages {
        quiet!(table, hipMemRelease(page));
    }
    call!(run, table, hipMemAddressFree(start, 64 * MIB));
}

pub(crate) fn unmap_of_a_stranger(run: &mut Run) {
    let Some(table) = table(run) else { return };
    let mut local = 0_u64;
    call!(run, table, hipMemUnmap((&raw mut local).cast(), 4096));
}

pub(crate) fn address_free_of_a_stranger(run: &mut Run) {
    let Some(table) = table(run) else { return };
    let mut local = 0_u64;
    call!(run, table, hipMemAddressFree((&raw mut local).cast(), 4096));
}

/// Mappings that did not happen are answered with success.
pub(crate) fn wrong_maps_succeed(run: &mut Run) {
    let Some(table) = table(run) else { return };
    let start = reserve(&table, 8 * MIB);
    let mut page = NONE;
    call!(run, table, hipMemCreate(&raw mut page, 4 * MIB, &PROP, 0));
    call!(run, table, hipMemMap(start, 2 * MIB, 2 * MIB, page, 0));
    call!(run, table, hipMemMap(start, 2 * MIB, 0, page, 0));
    call!(run, table, hipMemSetAccess(start, 2 * MIB, &OPEN, 1));
    call!(run, table, hipMemMap(start, 2 * MIB, 0, page, 0));
    call!(run, table, hipMemMap(start.wrapping_byte_add(100 * MIB), 2 * MIB, 0, page, 0));
}

/// A retained page is gone with the first release.
pub(crate) fn retain_takes_no_reference(run: &mut Run) {
    let Some(table) = table(run) else { return };
    let start = reserve(&table, 8 * MIB);
    let (page, _) = back(&table, start, 2 * MIB);
    let mut again = NONE;
    call!(run, table, hipMemRetainAllocationHandle(&raw mut again, start));
    run.fact("the same page", page == again);
    call!(run, table, hipMemUnmap(start, 2 * MIB));
    let (mut before, mut after, mut total) = (0, 0, 0);
    quiet!(run.api.core, hipMemGetInfo(&raw mut before, &raw mut total));
    call!(run, table, hipMemRelease(page));
    quiet!(run.api.core, hipMemGetInfo(&raw mut after, &raw mut total));
    run.fact("bytes freed by the first release", after - before);
}
