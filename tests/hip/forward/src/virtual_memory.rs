//! Virtual memory; structures have the same layout in HIP and CUDA, and handles are as wide as pointers. Only CUDA's
//! description of physical memory goes on where HIP's ends.

#![expect(unsafe_code, reason = "exports C symbols and calls the CUDA driver")]

use core::ffi::{c_uint, c_ulonglong};

use crate::code::Code;
use crate::cuda::{Pointer, Source};
use crate::export::{cu, export, forward};

/// Bytes of `hipMemAllocationProp` without the padding at its end.
const DESCRIBED: usize = 28;

/// `CUmemAllocationProp`, which has four reserved bytes where HIP's structure is padded: CUDA wants zeros there, and
/// padding is anything.
#[repr(C, align(8))]
struct Description([u8; 32]);

const _: () = assert!(size_of::<Description>() == 32 && DESCRIBED < 32);

impl Description {
    fn of(prop: Source) -> Result<Self, Code> {
        if prop.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().take(DESCRIBED).enumerate() {
            // SAFETY: the caller of the HIP function gave a whole structure, whose fields take this many bytes.
            *byte = unsafe { prop.cast::<u8>().wrapping_add(index).read() };
        }
        Ok(Self(bytes))
    }

    fn pointer(&self) -> Source {
        self.0.as_ptr().cast()
    }
}

export! {
    fn hipMemGetAllocationGranularity(out: *mut usize, prop: Source, option: c_uint) |cuda| {
        let description = Description::of(prop)?;
        cu!(cuda, cuMemGetAllocationGranularity(out, description.pointer(), option))
    };

    fn hipMemCreate(out: *mut u64, size: usize, prop: Source, flags: c_ulonglong) |cuda| {
        let description = Description::of(prop)?;
        cu!(cuda, cuMemCreate(out, size, description.pointer(), flags))
    };
}

forward! {
    hipMemAddressReserve => cuMemAddressReserve(
        out: *mut u64, size: usize, align: usize, hint: u64, flags: c_ulonglong);
    hipMemAddressFree => cuMemAddressFree(pointer: u64, size: usize);
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

#[cfg(test)]
mod tests {
    use super::{DESCRIBED, Description};

    #[test]
    fn padding_of_hips_structure_never_reaches_cuda() {
        let prop = [0xFF_u8; 32];
        let description = Description::of(prop.as_ptr().cast()).expect("not null");
        assert_eq!(description.0[..DESCRIBED], prop[..DESCRIBED]);
        assert_eq!(description.0[DESCRIBED..], [0; 4]);
        assert!(Description::of(core::ptr::null()).is_err());
    }
}
