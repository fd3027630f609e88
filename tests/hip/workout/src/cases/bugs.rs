//! Known faults of AMD's runtime, in pools and plain memory.

#![expect(unsafe_code, reason = "calls the HIP library under test")]

use core::ffi::c_void;
use core::ptr;

use omniheap_hip::sys::{
    hipError_t, hipMemPool_t, hipMemPoolAttr, hipStream_t, hipStreamNonBlocking,
};

use super::pools::attribute;
use crate::run::{Run, call, quiet};

fn stream(run: &Run) -> hipStream_t {
    let mut stream = hipStream_t::NULL;
    quiet!(run.api.core, hipStreamCreateWithFlags(&raw mut stream, hipStreamNonBlocking));
    stream
}

/// rocm-systems#11690: memory goes back although the threshold says to keep everything.
pub(crate) fn threshold_is_ignored(run: &mut Run) {
    let Some(pools) = run.group("pools", run.api.pools) else { return };
    let (core, stream) = (run.api.core, stream(run));
    let mut pool = hipMemPool_t::NULL;
    let mut threshold = u64::MAX;
    quiet!(pools, hipDeviceGetDefaultMemPool(&raw mut pool, 0));
    let key = hipMemPoolAttr::hipMemPoolAttrReleaseThreshold;
    call!(run, pools, hipMemPoolSetAttribute(pool, key, (&raw mut threshold).cast()));
    let mut blocks: [*mut c_void; 3] = [ptr::null_mut(); 3];
    for block in &mut blocks {
        quiet!(pools, hipMallocAsync(&raw mut *block, 64 << 20, stream));
    }
    quiet!(core, hipStreamSynchronize(stream));
    let reserved = || attribute(&pools, pool, hipMemPoolAttr::hipMemPoolAttrReservedMemCurrent);
    let before = reserved();
    run.fact("MiB held before", before >> 20);
    quiet!(pools, hipFreeAsync(blocks[0], stream));
    quiet!(pools, hipFreeAsync(blocks[1], stream));
    quiet!(core, hipStreamSynchronize(stream));
    std::thread::sleep(core::time::Duration::from_millis(50));
    quiet!(pools, hipFreeAsync(blocks[2], stream));
    quiet!(core, hipStreamSynchronize(stream));
    run.fact("MiB held after", reserved() >> 20);
    run.fact("threshold honoured", reserved() == before);
}

/// A pointer into a block frees the whole block.
pub(crate) fn interior_free_frees_all(run: &mut Run) {
    let core = run.api.core;
    let mut block: *mut c_void = ptr::null_mut();
    call!(run, core, hipMalloc(&raw mut block, 1 << 20));
    call!(run, core, hipFree(block.wrapping_byte_add(4096)));
    call!(run, core, hipFree(block));
}

/// hip#3775: sizes that grow, freed at once, run out of memory; depends on timing.
pub(crate) fn growth_runs_out(run: &mut Run) {
    let Some(pools) = run.group("pools", run.api.pools) else { return };
    let stream = stream(run);
    let mut block: *mut c_void = ptr::null_mut();
    let mut code = hipError_t::hipSuccess;
    for round in 0..60 {
        code =
            quiet!(pools, hipMallocAsync(&raw mut block, (64 << 20) + round * (4 << 20), stream));
        if code != hipError_t::hipSuccess {
            break;
        }
        quiet!(pools, hipFreeAsync(block, stream));
    }
    let expected = code == hipError_t::hipSuccess || code == hipError_t::hipErrorOutOfMemory;
    run.check("either holds out or says out of memory", expected);
}
