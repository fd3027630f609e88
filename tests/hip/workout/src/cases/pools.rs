//! The runtime's own stream-ordered pools.

#![expect(unsafe_code, reason = "calls the HIP library under test")]

use core::ffi::c_void;
use core::ptr;

use omniheap_hip::sys::{
    Pools, hipError_t, hipMemAllocationHandleType, hipMemAllocationType, hipMemLocation,
    hipMemLocationType, hipMemPool_t, hipMemPoolAttr, hipMemPoolProps, hipStream_t,
    hipStreamNonBlocking,
};

use crate::run::{Run, call, quiet};

/// The first device.
pub(crate) const HERE: hipMemLocation =
    hipMemLocation { r#type: hipMemLocationType::hipMemLocationTypeDevice, id: 0 };

const PROPS: hipMemPoolProps = hipMemPoolProps {
    allocType: hipMemAllocationType::hipMemAllocationTypePinned,
    handleTypes: hipMemAllocationHandleType::hipMemHandleTypeNone,
    location: HERE,
    win32SecurityAttributes: ptr::null_mut(),
    maxSize: 0,
    reserved: [0; 56],
};

/// Asks a pool for one of its 64-bit attributes.
pub(crate) fn attribute(pools: &Pools, pool: hipMemPool_t, attribute: hipMemPoolAttr) -> u64 {
    let mut value = 0_u64;
    quiet!(pools, hipMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()));
    value
}

const RESERVED: hipMemPoolAttr = hipMemPoolAttr::hipMemPoolAttrReservedMemCurrent;
const USED: hipMemPoolAttr = hipMemPoolAttr::hipMemPoolAttrUsedMemCurrent;
const THRESHOLD: hipMemPoolAttr = hipMemPoolAttr::hipMemPoolAttrReleaseThreshold;

pub(crate) fn stream_ordered(run: &mut Run) {
    let Some(pools) = run.group("pools", run.api.pools) else { return };
    let core = run.api.core;
    let mut stream = hipStream_t::NULL;
    call!(run, core, hipStreamCreateWithFlags(&raw mut stream, hipStreamNonBlocking));
    let mut pool = hipMemPool_t::NULL;
    call!(run, pools, hipDeviceGetDefaultMemPool(&raw mut pool, 0));
    run.fact("release threshold", attribute(&pools, pool, THRESHOLD));
    let mut memory: *mut c_void = ptr::null_mut();
    call!(run, pools, hipMallocAsync(&raw mut memory, 10 << 20, stream));
    run.fact("reserved for 10 MiB", attribute(&pools, pool, RESERVED));
    run.check("used is what was asked for", attribute(&pools, pool, USED) == 10 << 20);
    call!(run, pools, hipFreeAsync(memory, stream));
    call!(run, core, hipStreamSynchronize(stream));
    run.fact("reserved after free", attribute(&pools, pool, RESERVED));
    run.check("nothing is used after free", attribute(&pools, pool, USED) == 0);
    keep(run, &pools, pool, stream);
    call!(run, pools, hipMallocAsync(&raw mut memory, 64, stream));
    run.check("small blocks are aligned", memory.addr().is_multiple_of(256));
    call!(run, core, hipFree(memory));
    let (mut free, mut total) = (0, 0);
    quiet!(core, hipMemGetInfo(&raw mut free, &raw mut total));
    let code = call!(run, pools, hipMallocAsync(&raw mut memory, 4 * total, stream));
    run.check("too much is out of memory", code == hipError_t::hipErrorOutOfMemory);
    quiet!(core, hipGetLastError());
    own(run, &pools, stream);
    call!(run, core, hipStreamDestroy(stream));
}

/// A pool that may keep everything.
fn keep(run: &mut Run, pools: &Pools, pool: hipMemPool_t, stream: hipStream_t) {
    let core = run.api.core;
    let mut threshold = u64::MAX;
    call!(run, pools, hipMemPoolSetAttribute(pool, THRESHOLD, (&raw mut threshold).cast()));
    let (mut first, mut second): (*mut c_void, *mut c_void) = (ptr::null_mut(), ptr::null_mut());
    call!(run, pools, hipMallocAsync(&raw mut first, 10 << 20, stream));
    call!(run, pools, hipFreeAsync(first, stream));
    call!(run, core, hipStreamSynchronize(stream));
    run.fact("kept after free", attribute(pools, pool, RESERVED));
    call!(run, pools, hipMallocAsync(&raw mut second, 10 << 20, stream));
    run.fact("the same address again", first == second);
    call!(run, pools, hipFreeAsync(second, stream));
    call!(run, core, hipStreamSynchronize(stream));
    call!(run, pools, hipMemPoolTrimTo(pool, 0));
    run.check("a trimmed pool holds nothing", attribute(pools, pool, RESERVED) == 0);
    threshold = 0;
    call!(run, pools, hipMemPoolSetAttribute(pool, THRESHOLD, (&raw mut threshold).cast()));
}

fn own(run: &mut Run, pools: &Pools, stream: hipStream_t) {
    let mut pool = hipMemPool_t::NULL;
    let mut memory: *mut c_void = ptr::null_mut();
    call!(run, pools, hipMemPoolCreate(&raw mut pool, &PROPS));
    call!(run, pools, hipMallocFromPoolAsync(&raw mut memory, 1 << 20, pool, stream));
    call!(run, pools, hipFreeAsync(memory, stream));
    call!(run, run.api.core, hipStreamSynchronize(stream));
    call!(run, pools, hipMemPoolDestroy(pool));
}
