//! Virtual memory: addresses, physical memory, mappings, access.

#![expect(unsafe_code, reason = "calls the HIP library under test")]

use core::ffi::{c_int, c_void};
use core::ptr;

use omniheap_hip::sys::{
    Virtual, hipError_t, hipMemAccessDesc, hipMemAccessFlags, hipMemAllocationGranularity_flags,
    hipMemAllocationHandleType, hipMemAllocationProp, hipMemAllocationPropFlags,
    hipMemAllocationType, hipMemGenericAllocationHandle_t, hipMemcpyKind,
};

use super::copies::pattern;
use super::pools::HERE;
use crate::run::{Run, call, quiet};

/// The size of a page that every library maps.
pub(crate) const PAGE: usize = 2 << 20;
pub(crate) const NONE: hipMemGenericAllocationHandle_t = hipMemGenericAllocationHandle_t::NULL;
/// Read and write for the first device.
pub(crate) const OPEN: hipMemAccessDesc =
    hipMemAccessDesc { location: HERE, flags: hipMemAccessFlags::hipMemAccessFlagsProtReadWrite };
const TO_DEVICE: hipMemcpyKind = hipMemcpyKind::hipMemcpyHostToDevice;
const TO_HOST: hipMemcpyKind = hipMemcpyKind::hipMemcpyDeviceToHost;
const MINIMUM: hipMemAllocationGranularity_flags =
    hipMemAllocationGranularity_flags::hipMemAllocationGranularityMinimum;
const ADVISED: hipMemAllocationGranularity_flags =
    hipMemAllocationGranularity_flags::hipMemAllocationGranularityRecommended;

/// Memory of the first device that can be handed on as a file descriptor.
pub(crate) const PROP: hipMemAllocationProp = hipMemAllocationProp {
    r#type: hipMemAllocationType::hipMemAllocationTypePinned,
    requestedHandleType: hipMemAllocationHandleType::hipMemHandleTypePosixFileDescriptor,
    location: HERE,
    win32HandleMetaData: ptr::null_mut(),
    allocFlags: hipMemAllocationPropFlags { compressionType: 0, gpuDirectRDMACapable: 0, usage: 0 },
};

fn free_bytes(run: &Run) -> usize {
    let (mut free, mut total) = (0, 0);
    quiet!(run.api.core, hipMemGetInfo(&raw mut free, &raw mut total));
    free
}

/// Makes the runtime load its own kernels, which take memory of the device.
fn warm_up(run: &Run) {
    let core = run.api.core;
    let mut memory: *mut c_void = ptr::null_mut();
    quiet!(core, hipMalloc(&raw mut memory, 4096));
    quiet!(core, hipMemset(memory, 0, 4096));
    quiet!(run.api.device, hipDeviceSynchronize());
    quiet!(core, hipFree(memory));
}

pub(crate) fn reserve_map_unmap(run: &mut Run) {
    let Some(table) = run.group("virtual memory", run.api.virtual_memory) else { return };
    let (mut least, mut advised) = (0, 0);
    call!(run, table, hipMemGetAllocationGranularity(&raw mut least, &PROP, MINIMUM));
    call!(run, table, hipMemGetAllocationGranularity(&raw mut advised, &PROP, ADVISED));
    run.fact("granularity", format_args!("{least}, advised {advised}"));
    warm_up(run);
    let before = free_bytes(run);
    let mut start: *mut c_void = ptr::null_mut();
    call!(run, table, hipMemAddressReserve(&raw mut start, 64 * PAGE, 0, ptr::null_mut(), 0));
    run.check("addresses cost nothing", free_bytes(run) == before);
    let (mut first, mut second) = (NONE, NONE);
    call!(run, table, hipMemCreate(&raw mut first, PAGE, &PROP, 0));
    run.fact("a page costs", before - free_bytes(run));
    call!(run, table, hipMemCreate(&raw mut second, PAGE, &PROP, 0));
    call!(run, table, hipMemSetAccess(start, PAGE, &OPEN, 1));
    call!(run, table, hipMemMap(start, PAGE, 0, first, 0));
    call!(run, table, hipMemSetAccess(start, PAGE, &OPEN, 1));
    call!(run, table, hipMemMap(start.wrapping_byte_add(PAGE), PAGE, 0, second, 0));
    call!(run, table, hipMemSetAccess(start, 2 * PAGE, &OPEN, 1));
    touch(run, start);
    move_page(run, &table, start, first);
    call!(run, table, hipMemUnmap(start.wrapping_byte_add(8 * PAGE), PAGE));
    call!(run, table, hipMemUnmap(start.wrapping_byte_add(PAGE), PAGE));
    call!(run, table, hipMemRelease(first));
    call!(run, table, hipMemRelease(second));
    call!(run, table, hipMemAddressFree(start, 64 * PAGE));
    run.check("nothing is lost", free_bytes(run) == before);
    call!(run, table, hipMemCreate(&raw mut first, 12_345, &PROP, 0));
    quiet!(run.api.core, hipGetLastError());
}

/// Bytes across the seam of two pages.
fn touch(run: &mut Run, start: *mut c_void) {
    let core = run.api.core;
    let (sent, mut got) = (pattern(8192), vec![0; 8192]);
    let seam = start.wrapping_byte_add(PAGE - 4096);
    call!(run, core, hipMemset(start, 0x5A, 2 * PAGE));
    call!(run, core, hipMemcpy(seam, sent.as_ptr().cast(), 8192, TO_DEVICE));
    call!(run, core, hipMemcpy(got.as_mut_ptr().cast(), seam, 8192, TO_HOST));
    run.check("two pages are one range", got == sent);
    let mut rights = 99;
    let Some(table) = run.api.virtual_memory else { return };
    call!(run, table, hipMemGetAccess(&raw mut rights, &HERE, start));
    run.check("access is as granted", rights == 3);
    super::pointers::attributes(run, "mapped", start);
}

/// Takes the first page from its place and puts it elsewhere: the bytes go with it.
fn move_page(
    run: &mut Run,
    table: &Virtual,
    start: *mut c_void,
    page: hipMemGenericAllocationHandle_t,
) {
    let core = run.api.core;
    let elsewhere = start.wrapping_byte_add(8 * PAGE);
    call!(run, table, hipMemUnmap(start, PAGE));
    call!(run, table, hipMemMap(elsewhere, PAGE, 0, page, 0));
    call!(run, table, hipMemSetAccess(elsewhere, PAGE, &OPEN, 1));
    let (sent, mut got) = (pattern(4096), vec![0; 4096]);
    let end = elsewhere.wrapping_byte_add(PAGE - 4096);
    call!(run, core, hipMemcpy(got.as_mut_ptr().cast(), end, 4096, TO_HOST));
    run.check("a page keeps its bytes when it moves", got == sent);
}

/// Memory handed on as a file descriptor, and mapped a second time.
pub(crate) fn share(run: &mut Run) {
    let Some(table) = run.group("virtual memory", run.api.virtual_memory) else { return };
    let core = run.api.core;
    let (mut page, mut again) = (NONE, NONE);
    let (mut start, mut other): (*mut c_void, *mut c_void) = (ptr::null_mut(), ptr::null_mut());
    let mut descriptor: c_int = -1;
    let kind = hipMemAllocationHandleType::hipMemHandleTypePosixFileDescriptor;
    call!(run, table, hipMemCreate(&raw mut page, PAGE, &PROP, 0));
    call!(run, table, hipMemExportToShareableHandle((&raw mut descriptor).cast(), page, kind, 0));
    run.check("there is a descriptor", descriptor >= 0);
    // HIP 6 wants a pointer to the descriptor, HIP 7 and CUDA the descriptor as a pointer. In this order: HIP 6 follows
    // whatever it is given, while HIP 7 finds no open file behind the number that an address is.
    let pointer = (&raw mut descriptor).cast();
    let code = call!(run, table, hipMemImportFromShareableHandle(&raw mut again, pointer, kind));
    if code != hipError_t::hipSuccess {
        let value = ptr::without_provenance_mut(usize::try_from(descriptor).unwrap_or_default());
        call!(run, table, hipMemImportFromShareableHandle(&raw mut again, value, kind));
    }
    for (address, handle) in [(&raw mut start, page), (&raw mut other, again)] {
        quiet!(table, hipMemAddressReserve(address, PAGE, 0, ptr::null_mut(), 0));
        // SAFETY: both point to the variables above.
        let address = unsafe { *address };
        call!(run, table, hipMemMap(address, PAGE, 0, handle, 0));
        call!(run, table, hipMemSetAccess(address, PAGE, &OPEN, 1));
    }
    let (sent, mut got) = (pattern(4096), vec![0; 4096]);
    call!(run, core, hipMemcpy(start, sent.as_ptr().cast(), 4096, TO_DEVICE));
    call!(run, core, hipMemcpy(got.as_mut_ptr().cast(), other, 4096, TO_HOST));
    run.check("both addresses are the same bytes", got == sent);
    for (address, handle) in [(start, page), (other, again)] {
        call!(run, table, hipMemUnmap(address, PAGE));
        call!(run, table, hipMemRelease(handle));
        call!(run, table, hipMemAddressFree(address, PAGE));
    }
}

/// One page mapped, for runs in which a call below it is made to fail.
pub(crate) fn map_once(run: &mut Run) {
    let Some(table) = run.group("virtual memory", run.api.virtual_memory) else { return };
    let mut page = NONE;
    let mut start: *mut c_void = ptr::null_mut();
    call!(run, table, hipMemAddressReserve(&raw mut start, PAGE, 0, ptr::null_mut(), 0));
    call!(run, table, hipMemCreate(&raw mut page, PAGE, &PROP, 0));
    call!(run, table, hipMemMap(start, PAGE, 0, page, 0));
    call!(run, table, hipMemSetAccess(start, PAGE, &OPEN, 1));
}
