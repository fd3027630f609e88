//! The functions of the CUDA driver and of NVRTC that are called, found at run time.

#![expect(unsafe_code, reason = "symbols are given the types that NVIDIA declares for them")]
#![expect(non_snake_case, reason = "the names are NVIDIA's")]

use core::error::Error;
use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use libloading::Library;

/// A pointer that is passed on as it is.
pub(crate) type Pointer = *mut c_void;
/// A pointer that is only read through.
pub(crate) type Source = *const c_void;
/// A list of strings for the compiler.
pub(crate) type Texts = *const *const c_char;

/// `CUDA_MEMCPY2D_v2`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Copy2d {
    pub(crate) from: Side2d,
    pub(crate) to: Side2d,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// One half of [`Copy2d`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Side2d {
    pub(crate) x: usize,
    pub(crate) y: usize,
    /// `CUmemorytype`: 1 host, 2 device.
    pub(crate) kind: u32,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: u64,
    pub(crate) pitch: usize,
}

const _: () = assert!(size_of::<Copy2d>() == 128);

/// A handle of memory that another process can open: 64 bytes, passed by value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct IpcHandle {
    bytes: [u8; 64],
}

macro_rules! table {
    ($(#[$doc:meta])* $group:ident { $($name:ident($($argument:ty),*) -> $answer:ty;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $group {$(
            pub(crate) $name: unsafe extern "C" fn($($argument),*) -> $answer,
        )*}

        impl $group {
            /// Finds every function; answers the name of the first that is missing.
            pub(crate) fn load(library: &Library) -> Result<Self, &'static str> {
                Ok(Self {$(
                    $name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: the type is that of NVIDIA's header for this symbol, whose name carries its version;
                        // the library is never unloaded.
                        let symbol = unsafe { library.get(name.as_bytes()) };
                        *symbol.map_err(|_| stringify!($name))?
                    },
                )*})
            }
        }
    };
}

table! {
    /// The driver.
    Cuda {
        cuInit(c_uint) -> u32;
        cuDeviceGetCount(*mut c_int) -> u32;
        cuDeviceGet(*mut c_int, c_int) -> u32;
        cuDeviceGetName(*mut c_char, c_int, c_int) -> u32;
        cuDeviceGetUuid(Pointer, c_int) -> u32;
        cuDeviceGetPCIBusId(*mut c_char, c_int, c_int) -> u32;
        cuDeviceTotalMem_v2(*mut usize, c_int) -> u32;
        cuDeviceGetAttribute(*mut c_int, c_uint, c_int) -> u32;
        cuDevicePrimaryCtxRetain(*mut Pointer, c_int) -> u32;
        cuDevicePrimaryCtxReset_v2(c_int) -> u32;
        cuCtxSetCurrent(Pointer) -> u32;
        cuCtxSynchronize() -> u32;
        cuMemGetInfo_v2(*mut usize, *mut usize) -> u32;
        cuMemAlloc_v2(*mut u64, usize) -> u32;
        cuMemFree_v2(u64) -> u32;
        cuMemAllocPitch_v2(*mut u64, *mut usize, usize, usize, c_uint) -> u32;
        cuMemAllocManaged(*mut u64, usize, c_uint) -> u32;
        cuMemHostAlloc(*mut Pointer, usize, c_uint) -> u32;
        cuMemFreeHost(Pointer) -> u32;
        cuMemHostRegister_v2(Pointer, usize, c_uint) -> u32;
        cuMemHostUnregister(Pointer) -> u32;
        cuMemHostGetDevicePointer_v2(*mut u64, Pointer, c_uint) -> u32;
        cuPointerGetAttribute(Pointer, c_uint, u64) -> u32;
        cuPointerGetAttributes(c_uint, *const c_uint, *mut Pointer, u64) -> u32;
        cuMemAdvise(u64, usize, c_uint, c_int) -> u32;
        cuMemPrefetchAsync(u64, usize, c_int, Pointer) -> u32;
        cuMemRangeGetAttribute(Pointer, usize, c_uint, u64, usize) -> u32;
        cuMemcpy(u64, u64, usize) -> u32;
        cuMemcpyAsync(u64, u64, usize, Pointer) -> u32;
        cuMemcpy2DAsync_v2(*const Copy2d, Pointer) -> u32;
        cuMemcpyPeerAsync(u64, Pointer, u64, Pointer, usize, Pointer) -> u32;
        cuMemsetD8_v2(u64, u8, usize) -> u32;
        cuMemsetD8Async(u64, u8, usize, Pointer) -> u32;
        cuMemsetD32Async(u64, c_uint, usize, Pointer) -> u32;
        cuStreamCreate(*mut Pointer, c_uint) -> u32;
        cuStreamDestroy_v2(Pointer) -> u32;
        cuStreamSynchronize(Pointer) -> u32;
        cuStreamQuery(Pointer) -> u32;
        cuStreamGetCtx(Pointer, *mut Pointer) -> u32;
        cuStreamWaitEvent(Pointer, Pointer, c_uint) -> u32;
        cuStreamBeginCapture_v2(Pointer, c_uint) -> u32;
        cuStreamEndCapture(Pointer, *mut Pointer) -> u32;
        cuStreamIsCapturing(Pointer, *mut c_uint) -> u32;
        cuGraphDestroy(Pointer) -> u32;
        cuStreamGetCaptureInfo_v2(Pointer, *mut c_uint, *mut u64, *mut Pointer, *mut Source, *mut usize) -> u32;
        cuThreadExchangeStreamCaptureMode(*mut c_uint) -> u32;
        cuUserObjectCreate(*mut Pointer, Pointer, Pointer, c_uint, c_uint) -> u32;
        cuUserObjectRelease(Pointer, c_uint) -> u32;
        cuGraphRetainUserObject(Pointer, Pointer, c_uint, c_uint) -> u32;
        cuEventCreate(*mut Pointer, c_uint) -> u32;
        cuEventDestroy_v2(Pointer) -> u32;
        cuEventRecord(Pointer, Pointer) -> u32;
        cuEventQuery(Pointer) -> u32;
        cuEventSynchronize(Pointer) -> u32;
        cuEventElapsedTime(*mut f32, Pointer, Pointer) -> u32;
        cuLaunchHostFunc(Pointer, Pointer, Pointer) -> u32;
        cuMemAllocAsync(*mut u64, usize, Pointer) -> u32;
        cuMemFreeAsync(u64, Pointer) -> u32;
        cuMemAllocFromPoolAsync(*mut u64, usize, Pointer, Pointer) -> u32;
        cuDeviceGetDefaultMemPool(*mut Pointer, c_int) -> u32;
        cuDeviceGetMemPool(*mut Pointer, c_int) -> u32;
        cuDeviceSetMemPool(c_int, Pointer) -> u32;
        cuMemPoolCreate(*mut Pointer, Source) -> u32;
        cuMemPoolDestroy(Pointer) -> u32;
        cuMemPoolTrimTo(Pointer, usize) -> u32;
        cuMemPoolGetAttribute(Pointer, c_uint, Pointer) -> u32;
        cuMemPoolSetAttribute(Pointer, c_uint, Pointer) -> u32;
        cuMemPoolGetAccess(*mut c_uint, Pointer, Pointer) -> u32;
        cuMemPoolSetAccess(Pointer, Source, usize) -> u32;
        cuMemGetAllocationGranularity(*mut usize, Source, c_uint) -> u32;
        cuMemAddressReserve(*mut u64, usize, usize, u64, c_ulonglong) -> u32;
        cuMemAddressFree(u64, usize) -> u32;
        cuMemCreate(*mut u64, usize, Source, c_ulonglong) -> u32;
        cuMemRelease(u64) -> u32;
        cuMemMap(u64, usize, usize, u64, c_ulonglong) -> u32;
        cuMemUnmap(u64, usize) -> u32;
        cuMemSetAccess(u64, usize, Source, usize) -> u32;
        cuMemGetAccess(*mut c_ulonglong, Source, u64) -> u32;
        cuMemExportToShareableHandle(Pointer, u64, c_uint, c_ulonglong) -> u32;
        cuMemImportFromShareableHandle(*mut u64, Pointer, c_uint) -> u32;
        cuMemRetainAllocationHandle(*mut u64, Pointer) -> u32;
        cuDeviceCanAccessPeer(*mut c_int, c_int, c_int) -> u32;
        cuCtxEnablePeerAccess(Pointer, c_uint) -> u32;
        cuCtxDisablePeerAccess(Pointer) -> u32;
        cuIpcGetMemHandle(Pointer, u64) -> u32;
        cuIpcOpenMemHandle_v2(*mut u64, IpcHandle, c_uint) -> u32;
        cuIpcCloseMemHandle(u64) -> u32;
        cuModuleLoadData(*mut Pointer, Source) -> u32;
        cuModuleUnload(Pointer) -> u32;
        cuModuleGetFunction(*mut Pointer, Pointer, *const c_char) -> u32;
        cuModuleGetGlobal_v2(*mut u64, *mut usize, Pointer, *const c_char) -> u32;
        cuLaunchKernel(Pointer, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Pointer, Pointer, Pointer) -> u32;
        cuFuncSetAttribute(Pointer, c_uint, c_int) -> u32;
        cuFuncGetAttribute(*mut c_int, c_uint, Pointer) -> u32;
    }
}

table! {
    /// The run-time compiler.
    Nvrtc {
        nvrtcVersion(*mut c_int, *mut c_int) -> u32;
        nvrtcCreateProgram(*mut Pointer, *const c_char, *const c_char, c_int, Texts, Texts) -> u32;
        nvrtcCompileProgram(Pointer, c_int, Texts) -> u32;
        nvrtcDestroyProgram(*mut Pointer) -> u32;
        nvrtcGetCUBINSize(Pointer, *mut usize) -> u32;
        nvrtcGetCUBIN(Pointer, *mut c_char) -> u32;
        nvrtcGetProgramLogSize(Pointer, *mut usize) -> u32;
        nvrtcGetProgramLog(Pointer, *mut c_char) -> u32;
        nvrtcAddNameExpression(Pointer, *const c_char) -> u32;
        nvrtcGetLoweredName(Pointer, *const c_char, *mut *const c_char) -> u32;
        nvrtcGetErrorString(u32) -> *const c_char;
    }
}

/// Loads the first of `names` that is there and keeps it for good.
pub(crate) fn open(names: &[&str]) -> Result<&'static Library, String> {
    let mut last = String::new();
    for &name in names {
        // SAFETY: the initializers that run are those of NVIDIA's libraries.
        match unsafe { Library::new(name) } {
            Ok(library) => return Ok(Box::leak(Box::new(library))),
            Err(error) => {
                last = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            }
        }
    }
    Err(last)
}
