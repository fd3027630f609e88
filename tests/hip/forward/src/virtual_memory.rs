//! Virtual memory; structures have the same layout in HIP and CUDA, and handles are as wide as pointers.

#![expect(unsafe_code, reason = "exports C symbols and calls the CUDA driver")]

use core::ffi::{c_uint, c_ulonglong};

use crate::cuda::{Pointer, Source};
use crate::export::forward;

forward! {
    hipMemGetAllocationGranularity => cuMemGetAllocationGranularity(out: *mut usize, prop: Source, option: c_uint);
    hipMemAddressReserve => cuMemAddressReserve(
        out: *mut u64, size: usize, align: usize, hint: u64, flags: c_ulonglong);
    hipMemAddressFree => cuMemAddressFree(pointer: u64, size: usize);
    hipMemCreate => cuMemCreate(out: *mut u64, size: usize, prop: Source, flags: c_ulonglong);
    hipMemRelease => cuMemRelease(handle: u64);
    hipMemMap => cuMemMap(pointer: u64, size: usize, offset: usize, handle: u64, flags: c_ulonglong);
    hipMemUnmap => cuMemUnmap(pointer: u64, size: usize);
    hipMemSetAccess => cuMemSetAccess(pointer: u64, size: usize, list: Source, count: usize);
    hipMemGetAccess => cuMemGetAccess(out: *mut c_ulonglong, location: Source, pointer: u64);
    hipMemExportToShareableHandle => cuMemExportToShareableHandle(
        out: Pointer, handle: u64, kind: c_uint, flags: c_ulonglong);
    hipMemImportFromShareableHandle => cuMemImportFromShareableHandle(out: *mut u64, handle: Pointer, kind: c_uint);
    hipMemRetainAllocationHandle => cuMemRetainAllocationHandle(out: *mut u64, pointer: Pointer);
}
