//! The functions this backend calls, in groups that are there as a whole or not at all.

#![expect(unsafe_code, reason = "symbols are given the types that AMD declares for them")]

use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use super::functions::functions;
use super::types::*;
use super::values::*;

functions! {
    /// Required functions, present in every runtime.
    Core {
        hipInit(c_uint) -> hipError_t;
        hipDriverGetVersion(*mut c_int) -> hipError_t;
        hipRuntimeGetVersion(*mut c_int) -> hipError_t;
        hipGetErrorName(hipError_t) -> *const c_char;
        hipGetErrorString(hipError_t) -> *const c_char;
        hipGetLastError() -> hipError_t;
        hipMemGetInfo(*mut usize, *mut usize) -> hipError_t;
        hipMalloc(*mut *mut c_void, usize) -> hipError_t;
        hipFree(*mut c_void) -> hipError_t;
        hipHostMalloc(*mut *mut c_void, usize, c_uint) -> hipError_t;
        hipHostFree(*mut c_void) -> hipError_t;
        hipHostGetDevicePointer(*mut *mut c_void, *mut c_void, c_uint) -> hipError_t;
        hipMemGetAddressRange(*mut *mut c_void, *mut usize, *mut c_void) -> hipError_t;
        hipPointerGetAttributes(*mut hipPointerAttribute_t, *const c_void) -> hipError_t;
        hipMemcpy(*mut c_void, *const c_void, usize, hipMemcpyKind) -> hipError_t;
        hipMemcpyAsync(*mut c_void, *const c_void, usize, hipMemcpyKind, hipStream_t) -> hipError_t;
        hipMemcpy2DAsync(*mut c_void, usize, *const c_void, usize, usize, usize, hipMemcpyKind, hipStream_t) -> hipError_t;
        hipMemset(*mut c_void, c_int, usize) -> hipError_t;
        hipMemsetAsync(*mut c_void, c_int, usize, hipStream_t) -> hipError_t;
        hipMemsetD32Async(*mut c_void, c_int, usize, hipStream_t) -> hipError_t;
        hipStreamCreateWithFlags(*mut hipStream_t, c_uint) -> hipError_t;
        hipStreamDestroy(hipStream_t) -> hipError_t;
        hipStreamSynchronize(hipStream_t) -> hipError_t;
        hipStreamQuery(hipStream_t) -> hipError_t;
        hipStreamWaitEvent(hipStream_t, hipEvent_t, c_uint) -> hipError_t;
        hipEventCreateWithFlags(*mut hipEvent_t, c_uint) -> hipError_t;
        hipEventDestroy(hipEvent_t) -> hipError_t;
        hipEventRecord(hipEvent_t, hipStream_t) -> hipError_t;
        hipEventQuery(hipEvent_t) -> hipError_t;
        hipEventSynchronize(hipEvent_t) -> hipError_t;
        hipEventElapsedTime(*mut f32, hipEvent_t, hipEvent_t) -> hipError_t;
    }
}

functions! {
    /// Choosing and describing devices; as necessary as [`Core`].
    Device {
        hipGetDeviceCount(*mut c_int) -> hipError_t;
        hipSetDevice(c_int) -> hipError_t;
        hipGetDevice(*mut c_int) -> hipError_t;
        hipDeviceGetAttribute(*mut c_int, hipDeviceAttribute_t, c_int) -> hipError_t;
        hipDeviceGetName(*mut c_char, c_int, c_int) -> hipError_t;
        hipDeviceGetUuid(*mut hipUUID, c_int) -> hipError_t;
        hipDeviceGetPCIBusId(*mut c_char, c_int, c_int) -> hipError_t;
        hipDeviceSynchronize() -> hipError_t;
    }
}

functions! {
    /// Since HIP 5.7.
    StreamDevice {
        hipStreamGetDevice(hipStream_t, *mut c_int) -> hipError_t;
    }
}

functions! {
    /// Captures of streams, and what lives as long as their graphs. Since HIP 5.3.
    Captures {
        hipStreamGetCaptureInfo_v2(
            hipStream_t, *mut hipStreamCaptureStatus, *mut c_ulonglong, *mut hipGraph_t, *mut *const c_void, *mut usize)
            -> hipError_t;
        hipThreadExchangeStreamCaptureMode(*mut hipStreamCaptureMode) -> hipError_t;
        hipUserObjectCreate(
            *mut hipUserObject_t, *mut c_void, Option<unsafe extern "C" fn(*mut c_void)>, c_uint, c_uint) -> hipError_t;
        hipUserObjectRelease(hipUserObject_t, c_uint) -> hipError_t;
        hipGraphRetainUserObject(hipGraph_t, hipUserObject_t, c_uint, c_uint) -> hipError_t;
    }
}

functions! {
    /// The runtime's own stream-ordered pools.
    Pools {
        hipMallocAsync(*mut *mut c_void, usize, hipStream_t) -> hipError_t;
        hipFreeAsync(*mut c_void, hipStream_t) -> hipError_t;
        hipMallocFromPoolAsync(*mut *mut c_void, usize, hipMemPool_t, hipStream_t) -> hipError_t;
        hipDeviceGetDefaultMemPool(*mut hipMemPool_t, c_int) -> hipError_t;
        hipDeviceGetMemPool(*mut hipMemPool_t, c_int) -> hipError_t;
        hipDeviceSetMemPool(c_int, hipMemPool_t) -> hipError_t;
        hipMemPoolCreate(*mut hipMemPool_t, *const hipMemPoolProps) -> hipError_t;
        hipMemPoolDestroy(hipMemPool_t) -> hipError_t;
        hipMemPoolTrimTo(hipMemPool_t, usize) -> hipError_t;
        hipMemPoolGetAttribute(hipMemPool_t, hipMemPoolAttr, *mut c_void) -> hipError_t;
        hipMemPoolSetAttribute(hipMemPool_t, hipMemPoolAttr, *mut c_void) -> hipError_t;
        hipMemPoolGetAccess(*mut hipMemAccessFlags, hipMemPool_t, *mut hipMemLocation) -> hipError_t;
        hipMemPoolSetAccess(hipMemPool_t, *const hipMemAccessDesc, usize) -> hipError_t;
    }
}

functions! {
    /// Virtual memory: addresses and physical memory apart.
    Virtual {
        hipMemGetAllocationGranularity(
            *mut usize, *const hipMemAllocationProp, hipMemAllocationGranularity_flags) -> hipError_t;
        hipMemAddressReserve(*mut *mut c_void, usize, usize, *mut c_void, c_ulonglong) -> hipError_t;
        hipMemAddressFree(*mut c_void, usize) -> hipError_t;
        hipMemCreate(
            *mut hipMemGenericAllocationHandle_t, usize, *const hipMemAllocationProp, c_ulonglong) -> hipError_t;
        hipMemRelease(hipMemGenericAllocationHandle_t) -> hipError_t;
        hipMemMap(*mut c_void, usize, usize, hipMemGenericAllocationHandle_t, c_ulonglong) -> hipError_t;
        hipMemUnmap(*mut c_void, usize) -> hipError_t;
        hipMemSetAccess(*mut c_void, usize, *const hipMemAccessDesc, usize) -> hipError_t;
        hipMemGetAccess(*mut c_ulonglong, *const hipMemLocation, *mut c_void) -> hipError_t;
        hipMemExportToShareableHandle(
            *mut c_void, hipMemGenericAllocationHandle_t, hipMemAllocationHandleType, c_ulonglong) -> hipError_t;
        hipMemImportFromShareableHandle(
            *mut hipMemGenericAllocationHandle_t, *mut c_void, hipMemAllocationHandleType) -> hipError_t;
        hipMemRetainAllocationHandle(*mut hipMemGenericAllocationHandle_t, *mut c_void) -> hipError_t;
    }
}

functions! {
    /// Memory that host and device share: registered, managed, fine-grained.
    Managed {
        hipHostRegister(*mut c_void, usize, c_uint) -> hipError_t;
        hipHostUnregister(*mut c_void) -> hipError_t;
        hipMallocManaged(*mut *mut c_void, usize, c_uint) -> hipError_t;
        hipMemAdvise(*const c_void, usize, hipMemoryAdvise, c_int) -> hipError_t;
        hipMemPrefetchAsync(*const c_void, usize, c_int, hipStream_t) -> hipError_t;
        hipMemRangeGetAttribute(*mut c_void, usize, hipMemRangeAttribute, *const c_void, usize) -> hipError_t;
        hipExtMallocWithFlags(*mut *mut c_void, usize, c_uint) -> hipError_t;
    }
}

functions! {
    /// Other devices and other processes.
    Peer {
        hipDeviceCanAccessPeer(*mut c_int, c_int, c_int) -> hipError_t;
        hipDeviceEnablePeerAccess(c_int, c_uint) -> hipError_t;
        hipDeviceDisablePeerAccess(c_int) -> hipError_t;
        hipMemcpyPeerAsync(*mut c_void, c_int, *const c_void, c_int, usize, hipStream_t) -> hipError_t;
        hipIpcGetMemHandle(*mut hipIpcMemHandle_t, *mut c_void) -> hipError_t;
        hipIpcOpenMemHandle(*mut *mut c_void, hipIpcMemHandle_t, c_uint) -> hipError_t;
        hipIpcCloseMemHandle(*mut c_void) -> hipError_t;
    }
}

functions! {
    /// Modules and launches.
    Kernels {
        hipModuleLoadData(*mut hipModule_t, *const c_void) -> hipError_t;
        hipModuleUnload(hipModule_t) -> hipError_t;
        hipModuleGetFunction(*mut hipFunction_t, hipModule_t, *const c_char) -> hipError_t;
        hipModuleGetGlobal(*mut *mut c_void, *mut usize, hipModule_t, *const c_char) -> hipError_t;
        hipModuleLaunchKernel(
            hipFunction_t, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, hipStream_t,
            *mut *mut c_void, *mut *mut c_void) -> hipError_t;
        hipFuncSetAttribute(*const c_void, hipFuncAttribute, c_int) -> hipError_t;
        hipFuncGetAttribute(*mut c_int, hipFunction_attribute, hipFunction_t) -> hipError_t;
    }
}

functions! {
    /// The run-time compiler. Inside the runtime's library up to HIP 6, in its own library since.
    Rtc {
        hiprtcVersion(*mut c_int, *mut c_int) -> hiprtcResult;
        hiprtcCreateProgram(
            *mut hiprtcProgram, *const c_char, *const c_char, c_int, *mut *const c_char, *mut *const c_char)
            -> hiprtcResult;
        hiprtcCompileProgram(hiprtcProgram, c_int, *mut *const c_char) -> hiprtcResult;
        hiprtcDestroyProgram(*mut hiprtcProgram) -> hiprtcResult;
        hiprtcGetCodeSize(hiprtcProgram, *mut usize) -> hiprtcResult;
        hiprtcGetCode(hiprtcProgram, *mut c_char) -> hiprtcResult;
        hiprtcGetProgramLogSize(hiprtcProgram, *mut usize) -> hiprtcResult;
        hiprtcGetProgramLog(hiprtcProgram, *mut c_char) -> hiprtcResult;
        hiprtcAddNameExpression(hiprtcProgram, *const c_char) -> hiprtcResult;
        hiprtcGetLoweredName(hiprtcProgram, *const c_char, *mut *const c_char) -> hiprtcResult;
        hiprtcGetErrorString(hiprtcResult) -> *const c_char;
    }
}

/// The function that fills a device's properties; its structure changed with HIP 6, and so did its name.
#[derive(Clone, Copy, Debug)]
pub enum Properties {
    /// HIP 6 and later.
    R0600(unsafe extern "C" fn(*mut hipDeviceProp_tR0600, c_int) -> hipError_t),
    /// HIP 5.
    R0000(unsafe extern "C" fn(*mut hipDeviceProp_tR0000, c_int) -> hipError_t),
}
