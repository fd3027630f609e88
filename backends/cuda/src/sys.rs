//! The driver's C functions that this crate calls, and no others. Nothing here has behaviour.
//!
//! Types, and the search for the library, are cudarc's. The functions are looked up here because cudarc panics when one
//! is missing, and because its result is a Rust `enum`: a newer driver may return a code that the enum does not have.
#![expect(unsafe_code, reason = "FFI declarations")]
use core::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
pub(crate) use cudarc::driver::sys::{
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUDA_MEMCPY2D, CUcontext,
    CUdevice, CUdevice_attribute as Attribute, CUdeviceptr, CUevent, CUexternalMemory, CUfunction,
    CUgraph, CUipcMemHandle, CUmemAccessDesc, CUmemAllocationProp, CUmemGenericAllocationHandle,
    CUmemPoolProps, CUmemoryPool, CUmodule, CUstream, CUuserObject, CUuuid,
};
use std::sync::OnceLock;

/// Result code of a driver call.
pub(crate) type Code = c_uint;

macro_rules! functions {
    (
        required { $($field:ident = $symbol:literal: fn($($arg:ty),* $(,)?);)* }
        optional { $($opt:ident = $opt_symbol:literal: fn($($opt_arg:ty),* $(,)?);)* }
    ) => {
        /// The driver's entry points, resolved once and kept for the life of the process.
        pub(crate) struct Functions {
            $(pub(crate) $field: unsafe extern "C" fn($($arg),*) -> Code,)*
            $(pub(crate) $opt: Option<unsafe extern "C" fn($($opt_arg),*) -> Code>,)*
        }

        impl Functions {
            fn resolve(library: &libloading::Library) -> Option<Self> {
                Some(Self {
                    $($field: {
                        // SAFETY: the signature is the documented one for this versioned symbol.
                        let symbol = unsafe { library.get::<unsafe extern "C" fn($($arg),*) -> Code>($symbol) };
                        *symbol.ok()?
                    },)*
                    $($opt: {
                        // SAFETY: as above; absence is kept as `None`.
                        let symbol = unsafe { library.get::<unsafe extern "C" fn($($opt_arg),*) -> Code>($opt_symbol) };
                        symbol.ok().map(|found| *found)
                    },)*
                })
            }
        }
    };
}

impl Functions {
    /// Returns the table; `None` when this machine has no driver library, or one without the required functions.
    pub(crate) fn get() -> Option<&'static Self> {
        static TABLE: OnceLock<Option<Functions>> = OnceLock::new();
        TABLE.get_or_init(Self::load).as_ref()
    }

    fn load() -> Option<Self> {
        // The name of the driver itself first, which cudarc tries last: `libcuda.so` belongs to toolkits, and may be an empty stub.
        // SAFETY: loading the driver library has no preconditions.
        if let Ok(library) = unsafe { libloading::Library::new("libcuda.so.1") } {
            let loaded = Self::resolve(&library);
            // Its functions are kept, so it is never unloaded.
            core::mem::forget(library);
            return loaded;
        }
        // SAFETY: as above.
        if !unsafe { cudarc::driver::sys::is_culib_present() } {
            return None;
        }
        // SAFETY: as above; the library was just seen, so cudarc's panic for a missing one is out of reach.
        let library = unsafe { cudarc::driver::sys::culib() };
        Self::resolve(library)
    }
}

functions! {
    required {
        init = b"cuInit\0": fn(c_uint);
        driver_version = b"cuDriverGetVersion\0": fn(*mut c_int);
        device_count = b"cuDeviceGetCount\0": fn(*mut c_int);
        device_get = b"cuDeviceGet\0": fn(*mut CUdevice, c_int);
        device_name = b"cuDeviceGetName\0": fn(*mut c_char, c_int, CUdevice);
        device_uuid = b"cuDeviceGetUuid_v2\0": fn(*mut CUuuid, CUdevice);
        device_total = b"cuDeviceTotalMem_v2\0": fn(*mut usize, CUdevice);
        device_attribute = b"cuDeviceGetAttribute\0": fn(*mut c_int, c_uint, CUdevice);
        primary_retain = b"cuDevicePrimaryCtxRetain\0": fn(*mut CUcontext, CUdevice);
        primary_release = b"cuDevicePrimaryCtxRelease_v2\0": fn(CUdevice);
        context_current = b"cuCtxGetCurrent\0": fn(*mut CUcontext);
        context_push = b"cuCtxPushCurrent_v2\0": fn(CUcontext);
        context_pop = b"cuCtxPopCurrent_v2\0": fn(*mut CUcontext);
        context_device = b"cuCtxGetDevice\0": fn(*mut CUdevice);
        context_synchronize = b"cuCtxSynchronize\0": fn();
        capture_mode = b"cuThreadExchangeStreamCaptureMode\0": fn(*mut c_uint);
        mem_info = b"cuMemGetInfo_v2\0": fn(*mut usize, *mut usize);
        mem_alloc = b"cuMemAlloc_v2\0": fn(*mut CUdeviceptr, usize);
        mem_free = b"cuMemFree_v2\0": fn(CUdeviceptr);
        host_alloc = b"cuMemHostAlloc\0": fn(*mut *mut c_void, usize, c_uint);
        host_free = b"cuMemFreeHost\0": fn(*mut c_void);
        host_register = b"cuMemHostRegister_v2\0": fn(*mut c_void, usize, c_uint);
        host_unregister = b"cuMemHostUnregister\0": fn(*mut c_void);
        host_address = b"cuMemHostGetDevicePointer_v2\0": fn(*mut CUdeviceptr, *mut c_void, c_uint);
        managed_alloc = b"cuMemAllocManaged\0": fn(*mut CUdeviceptr, usize, c_uint);
        pointer_attributes = b"cuPointerGetAttributes\0":
            fn(c_uint, *const c_uint, *mut *mut c_void, CUdeviceptr);
        copy_to_device = b"cuMemcpyHtoDAsync_v2\0": fn(CUdeviceptr, *const c_void, usize, CUstream);
        copy_to_host = b"cuMemcpyDtoHAsync_v2\0": fn(*mut c_void, CUdeviceptr, usize, CUstream);
        copy_on_device = b"cuMemcpyDtoDAsync_v2\0": fn(CUdeviceptr, CUdeviceptr, usize, CUstream);
        copy_unified = b"cuMemcpyAsync\0": fn(CUdeviceptr, CUdeviceptr, usize, CUstream);
        copy_2d = b"cuMemcpy2DAsync_v2\0": fn(*const CUDA_MEMCPY2D, CUstream);
        set_bytes = b"cuMemsetD8Async\0": fn(CUdeviceptr, c_uchar, usize, CUstream);
        set_words = b"cuMemsetD32Async\0": fn(CUdeviceptr, c_uint, usize, CUstream);
        stream_create = b"cuStreamCreate\0": fn(*mut CUstream, c_uint);
        stream_destroy = b"cuStreamDestroy_v2\0": fn(CUstream);
        stream_context = b"cuStreamGetCtx\0": fn(CUstream, *mut CUcontext);
        stream_number = b"cuStreamGetId\0": fn(CUstream, *mut c_ulonglong);
        stream_is_captured = b"cuStreamIsCapturing\0": fn(CUstream, *mut c_uint);
        stream_capture = b"cuStreamGetCaptureInfo_v2\0": fn(
            CUstream, *mut c_uint, *mut c_ulonglong, *mut CUgraph, *mut *const c_void, *mut usize,
        );
        stream_synchronize = b"cuStreamSynchronize\0": fn(CUstream);
        stream_wait = b"cuStreamWaitEvent\0": fn(CUstream, CUevent, c_uint);
        event_create = b"cuEventCreate\0": fn(*mut CUevent, c_uint);
        event_destroy = b"cuEventDestroy_v2\0": fn(CUevent);
        event_record = b"cuEventRecord\0": fn(CUevent, CUstream);
        event_query = b"cuEventQuery\0": fn(CUevent);
        event_synchronize = b"cuEventSynchronize\0": fn(CUevent);
        module_load = b"cuModuleLoadDataEx\0":
            fn(*mut CUmodule, *const c_void, c_uint, *mut c_uint, *mut *mut c_void);
        module_unload = b"cuModuleUnload\0": fn(CUmodule);
        module_function = b"cuModuleGetFunction\0": fn(*mut CUfunction, CUmodule, *const c_char);
        module_global = b"cuModuleGetGlobal_v2\0":
            fn(*mut CUdeviceptr, *mut usize, CUmodule, *const c_char);
        function_get = b"cuFuncGetAttribute\0": fn(*mut c_int, c_uint, CUfunction);
        function_set = b"cuFuncSetAttribute\0": fn(CUfunction, c_uint, c_int);
        launch = b"cuLaunchKernel\0": fn(
            CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void,
            *mut *mut c_void,
        );
    }
    optional {
        event_record_all = b"cuCtxRecordEvent\0": fn(CUcontext, CUevent);
        object_create = b"cuUserObjectCreate\0":
            fn(*mut CUuserObject, *mut c_void, unsafe extern "C" fn(*mut c_void), c_uint, c_uint);
        object_release = b"cuUserObjectRelease\0": fn(CUuserObject, c_uint);
        graph_retain = b"cuGraphRetainUserObject\0": fn(CUgraph, CUuserObject, c_uint, c_uint);
        granularity = b"cuMemGetAllocationGranularity\0":
            fn(*mut usize, *const CUmemAllocationProp, c_uint);
        address_reserve = b"cuMemAddressReserve\0":
            fn(*mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong);
        address_free = b"cuMemAddressFree\0": fn(CUdeviceptr, usize);
        page_create = b"cuMemCreate\0":
            fn(*mut CUmemGenericAllocationHandle, usize, *const CUmemAllocationProp, c_ulonglong);
        page_release = b"cuMemRelease\0": fn(CUmemGenericAllocationHandle);
        page_map = b"cuMemMap\0":
            fn(CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong);
        page_unmap = b"cuMemUnmap\0": fn(CUdeviceptr, usize);
        page_access = b"cuMemSetAccess\0": fn(CUdeviceptr, usize, *const CUmemAccessDesc, usize);
        handle_export = b"cuMemExportToShareableHandle\0":
            fn(*mut c_void, CUmemGenericAllocationHandle, c_uint, c_ulonglong);
        handle_import = b"cuMemImportFromShareableHandle\0":
            fn(*mut CUmemGenericAllocationHandle, *mut c_void, c_uint);
        pool_create = b"cuMemPoolCreate\0": fn(*mut CUmemoryPool, *const CUmemPoolProps);
        pool_destroy = b"cuMemPoolDestroy\0": fn(CUmemoryPool);
        pool_alloc = b"cuMemAllocFromPoolAsync\0":
            fn(*mut CUdeviceptr, usize, CUmemoryPool, CUstream);
        pool_free = b"cuMemFreeAsync\0": fn(CUdeviceptr, CUstream);
        external_import = b"cuImportExternalMemory\0":
            fn(*mut CUexternalMemory, *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC);
        external_buffer = b"cuExternalMemoryGetMappedBuffer\0":
            fn(*mut CUdeviceptr, CUexternalMemory, *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC);
        external_destroy = b"cuDestroyExternalMemory\0": fn(CUexternalMemory);
        ipc_handle = b"cuIpcGetMemHandle\0": fn(*mut CUipcMemHandle, CUdeviceptr);
        ipc_open = b"cuIpcOpenMemHandle_v2\0": fn(*mut CUdeviceptr, CUipcMemHandle, c_uint);
        ipc_close = b"cuIpcCloseMemHandle\0": fn(CUdeviceptr);
    }
}
