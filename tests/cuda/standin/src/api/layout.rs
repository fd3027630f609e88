//! Structures and codes, held against declarations that were made from NVIDIA's header.

use core::mem::offset_of;
use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUipcMemHandle, CUmemAccessDesc, CUmemAllocationProp, CUmemLocation,
    CUmemPoolProps, CUresult as Nvidia,
};

use super::ipc::Handle;
use super::pool::{AccessOf, Location, PoolProperties};
use super::transfer::Copy2d;
use super::virtual_memory::Properties;
use crate::code::Code;

#[test]
fn structures_are_as_large_as_nvidias() {
    assert_eq!(size_of::<Location>(), size_of::<CUmemLocation>());
    assert_eq!(size_of::<AccessOf>(), size_of::<CUmemAccessDesc>());
    assert_eq!(size_of::<Properties>(), size_of::<CUmemAllocationProp>());
    assert_eq!(size_of::<Copy2d>(), size_of::<CUDA_MEMCPY2D>());
    assert_eq!(size_of::<Handle>(), size_of::<CUipcMemHandle>());
    assert_eq!(offset_of!(PoolProperties, location), offset_of!(CUmemPoolProps, location));
}

#[test]
fn codes_are_nvidias() {
    for code in [
        Nvidia::CUDA_SUCCESS,
        Nvidia::CUDA_ERROR_INVALID_VALUE,
        Nvidia::CUDA_ERROR_OUT_OF_MEMORY,
        Nvidia::CUDA_ERROR_NOT_INITIALIZED,
        Nvidia::CUDA_ERROR_DEINITIALIZED,
        Nvidia::CUDA_ERROR_NO_DEVICE,
        Nvidia::CUDA_ERROR_INVALID_DEVICE,
        Nvidia::CUDA_ERROR_INVALID_CONTEXT,
        Nvidia::CUDA_ERROR_UNSUPPORTED_LIMIT,
        Nvidia::CUDA_ERROR_INVALID_PTX,
        Nvidia::CUDA_ERROR_INVALID_HANDLE,
        Nvidia::CUDA_ERROR_ILLEGAL_STATE,
        Nvidia::CUDA_ERROR_NOT_FOUND,
        Nvidia::CUDA_ERROR_NOT_READY,
        Nvidia::CUDA_ERROR_ILLEGAL_ADDRESS,
        Nvidia::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
        Nvidia::CUDA_ERROR_CONTEXT_IS_DESTROYED,
        Nvidia::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
        Nvidia::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
        Nvidia::CUDA_ERROR_NOT_PERMITTED,
        Nvidia::CUDA_ERROR_NOT_SUPPORTED,
        Nvidia::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        Nvidia::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        Nvidia::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
        Nvidia::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
        Nvidia::CUDA_ERROR_UNKNOWN,
    ] {
        let (name, _) = Code(code as u32).words().expect("it is one of ours");
        assert_eq!(name.to_str(), Ok(&*format!("{code:?}")));
    }
}
