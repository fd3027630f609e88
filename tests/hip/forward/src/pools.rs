//! Stream-ordered pools; structures and attributes have the same layout and numbers in HIP and CUDA.

#![expect(unsafe_code, reason = "exports C symbols and calls the CUDA driver")]

use core::ffi::{c_int, c_uint};

use crate::cuda::{Pointer, Source};
use crate::device::set;
use crate::export::{cu, export, forward};

export! {
    fn hipMallocAsync(out: *mut u64, size: usize, stream: Pointer) |cuda| {
        if size == 0 { set(out, 0) } else { cu!(cuda, cuMemAllocAsync(out, size, stream)) }
    };

    fn hipMallocFromPoolAsync(out: *mut u64, size: usize, pool: Pointer, stream: Pointer) |cuda| {
        if size == 0 { set(out, 0) } else { cu!(cuda, cuMemAllocFromPoolAsync(out, size, pool, stream)) }
    };
}

forward! {
    hipFreeAsync => cuMemFreeAsync(pointer: u64, stream: Pointer);
    hipDeviceGetDefaultMemPool => cuDeviceGetDefaultMemPool(out: *mut Pointer, device: c_int);
    hipDeviceGetMemPool => cuDeviceGetMemPool(out: *mut Pointer, device: c_int);
    hipDeviceSetMemPool => cuDeviceSetMemPool(device: c_int, pool: Pointer);
    hipMemPoolCreate => cuMemPoolCreate(out: *mut Pointer, props: Source);
    hipMemPoolDestroy => cuMemPoolDestroy(pool: Pointer);
    hipMemPoolTrimTo => cuMemPoolTrimTo(pool: Pointer, keep: usize);
    hipMemPoolGetAttribute => cuMemPoolGetAttribute(pool: Pointer, attribute: c_uint, out: Pointer);
    hipMemPoolSetAttribute => cuMemPoolSetAttribute(pool: Pointer, attribute: c_uint, value: Pointer);
    hipMemPoolGetAccess => cuMemPoolGetAccess(out: *mut c_uint, pool: Pointer, location: Pointer);
    hipMemPoolSetAccess => cuMemPoolSetAccess(pool: Pointer, list: Source, count: usize);
}
