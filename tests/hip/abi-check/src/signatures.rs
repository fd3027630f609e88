//! Every function, argument by argument.

use core::ffi::c_void;

use hip_sys::hiprt as theirs;
use omniheap_hip::sys as ours;

/// Says that a value of this type may be passed where C expects `Other`.
pub trait Compatible<Other: ?Sized> {}

/// Compiles when the function `ours` can stand for the function `theirs`.
///
/// ```
/// unsafe extern "C" fn ours(_: *mut usize) -> u32 { 0 }
/// unsafe extern "C" fn theirs(_: *mut usize) -> u32 { 0 }
/// omniheap_hip_abi_check::same(
///     ours as unsafe extern "C" fn(_) -> _,
///     theirs as unsafe extern "C" fn(_) -> _,
/// );
/// ```
///
/// An argument of another width does not compile:
///
/// ```compile_fail,E0277
/// unsafe extern "C" fn ours(_: *mut usize) -> u32 { 0 }
/// unsafe extern "C" fn theirs(_: *mut u32) -> u32 { 0 }
/// omniheap_hip_abi_check::same(
///     ours as unsafe extern "C" fn(_) -> _,
///     theirs as unsafe extern "C" fn(_) -> _,
/// );
/// ```
pub const fn same<Ours: Compatible<Theirs> + Copy, Theirs: Copy>(_ours: Ours, _theirs: Theirs) {}

macro_rules! plain {
    ($($name:ty),*) => {$(impl Compatible<$name> for $name {})*};
}
plain!(i8, i32, u32, u64, usize, f32, c_void);

// C's `const` is no part of the calling convention, and HIP 5 to 7 differ in it.
impl<Ours: Compatible<Theirs>, Theirs> Compatible<*mut Theirs> for *mut Ours {}
impl<Ours: Compatible<Theirs>, Theirs> Compatible<*const Theirs> for *const Ours {}

macro_rules! named {
    ($($name:ident),*) => {$(
        impl Compatible<theirs::$name> for ours::$name {}
        const _: () = assert!(size_of::<ours::$name>() == size_of::<theirs::$name>(), stringify!($name));
    )*};
}
named! {
    hipError_t, hipMemcpyKind, hipDeviceAttribute_t, hipMemAccessFlags, hipMemAllocationHandleType,
    hipMemAllocationGranularity_flags, hipMemPoolAttr, hipMemoryAdvise, hipMemRangeAttribute, hipFuncAttribute,
    hipFunction_attribute, hipStream_t, hipEvent_t, hipMemPool_t, hipMemGenericAllocationHandle_t, hipModule_t,
    hipFunction_t, hipGraph_t, hipUserObject_t, hipStreamCaptureStatus, hipStreamCaptureMode, hipMemLocation, hipMemAccessDesc, hipMemPoolProps, hipPointerAttribute_t, hipIpcMemHandle_t
}
/// A destructor that C calls.
type Destroy = Option<unsafe extern "C" fn(*mut c_void)>;
impl Compatible<Destroy> for Destroy {}
// Nobody here looks at nodes.
impl Compatible<theirs::hipGraphNode_t> for c_void {}
impl Compatible<theirs::hipUUID_t> for ours::hipUUID {}
// Reordered by HIP 5.7 and only ever behind a pointer; `layout` has the order.
impl Compatible<theirs::hipMemAllocationProp> for ours::hipMemAllocationProp {}

macro_rules! functions_of {
    ($(($($ours:ident $theirs:ident),*))*) => {$(
        impl<$($ours: Compatible<$theirs>, $theirs,)* R: Compatible<S>, S>
            Compatible<unsafe extern "C" fn($($theirs),*) -> S> for unsafe extern "C" fn($($ours),*) -> R {}
    )*};
}
functions_of! {
    ()
    (A1 B1)
    (A1 B1, A2 B2)
    (A1 B1, A2 B2, A3 B3)
    (A1 B1, A2 B2, A3 B3, A4 B4)
    (A1 B1, A2 B2, A3 B3, A4 B4, A5 B5)
    (A1 B1, A2 B2, A3 B3, A4 B4, A5 B5, A6 B6)
    (A1 B1, A2 B2, A3 B3, A4 B4, A5 B5, A6 B6, A7 B7, A8 B8)
    (A1 B1, A2 B2, A3 B3, A4 B4, A5 B5, A6 B6, A7 B7, A8 B8, A9 B9, A10 B10, A11 B11)
}

/// Compares each function of each table. Generic, and never called: the types are checked and no symbol is needed.
macro_rules! same_functions {
    ($($group:ident { $($name:ident($($argument:tt),*);)* })*) => {$(
        const _: () = {
            #[expect(non_snake_case, dead_code, reason = "named as the table, type-checked and never run")]
            fn $group<Never>(table: &ours::$group, _: Never) {
                $(same(table.$name, theirs::$name as unsafe extern "C" fn($($argument),*) -> _);)*
            }
        };
    )*};
}
same_functions! {
    Core {
        hipInit(_);
        hipDriverGetVersion(_);
        hipRuntimeGetVersion(_);
        hipGetErrorName(_);
        hipGetErrorString(_);
        hipGetLastError();
        hipMemGetInfo(_, _);
        hipMalloc(_, _);
        hipFree(_);
        hipHostMalloc(_, _, _);
        hipHostFree(_);
        hipHostGetDevicePointer(_, _, _);
        hipMemGetAddressRange(_, _, _);
        hipPointerGetAttributes(_, _);
        hipMemcpy(_, _, _, _);
        hipMemcpyAsync(_, _, _, _, _);
        hipMemcpy2DAsync(_, _, _, _, _, _, _, _);
        hipMemset(_, _, _);
        hipMemsetAsync(_, _, _, _);
        hipMemsetD32Async(_, _, _, _);
        hipStreamCreateWithFlags(_, _);
        hipStreamDestroy(_);
        hipStreamSynchronize(_);
        hipStreamQuery(_);
        hipStreamWaitEvent(_, _, _);
        hipEventCreateWithFlags(_, _);
        hipEventDestroy(_);
        hipEventRecord(_, _);
        hipEventQuery(_);
        hipEventSynchronize(_);
        hipEventElapsedTime(_, _, _);
    }
    Device {
        hipGetDeviceCount(_);
        hipSetDevice(_);
        hipGetDevice(_);
        hipDeviceGetAttribute(_, _, _);
        hipDeviceGetName(_, _, _);
        hipDeviceGetUuid(_, _);
        hipDeviceGetPCIBusId(_, _, _);
        hipDeviceSynchronize();
    }
    Captures {
        hipStreamGetCaptureInfo_v2(_, _, _, _, _, _);
        hipThreadExchangeStreamCaptureMode(_);
        hipUserObjectCreate(_, _, _, _, _);
        hipUserObjectRelease(_, _);
        hipGraphRetainUserObject(_, _, _, _);
    }
    Pools {
        hipMallocAsync(_, _, _);
        hipFreeAsync(_, _);
        hipMallocFromPoolAsync(_, _, _, _);
        hipDeviceGetDefaultMemPool(_, _);
        hipDeviceGetMemPool(_, _);
        hipDeviceSetMemPool(_, _);
        hipMemPoolCreate(_, _);
        hipMemPoolDestroy(_);
        hipMemPoolTrimTo(_, _);
        hipMemPoolGetAttribute(_, _, _);
        hipMemPoolSetAttribute(_, _, _);
        hipMemPoolGetAccess(_, _, _);
        hipMemPoolSetAccess(_, _, _);
    }
    Virtual {
        hipMemGetAllocationGranularity(_, _, _);
        hipMemAddressReserve(_, _, _, _, _);
        hipMemAddressFree(_, _);
        hipMemCreate(_, _, _, _);
        hipMemRelease(_);
        hipMemMap(_, _, _, _, _);
        hipMemUnmap(_, _);
        hipMemSetAccess(_, _, _, _);
        hipMemGetAccess(_, _, _);
        hipMemExportToShareableHandle(_, _, _, _);
        hipMemImportFromShareableHandle(_, _, _);
        hipMemRetainAllocationHandle(_, _);
    }
    Managed {
        hipHostRegister(_, _, _);
        hipHostUnregister(_);
        hipMallocManaged(_, _, _);
        hipMemAdvise(_, _, _, _);
        hipMemPrefetchAsync(_, _, _, _);
        hipMemRangeGetAttribute(_, _, _, _, _);
        hipExtMallocWithFlags(_, _, _);
    }
    Peer {
        hipDeviceCanAccessPeer(_, _, _);
        hipDeviceEnablePeerAccess(_, _);
        hipDeviceDisablePeerAccess(_);
        hipMemcpyPeerAsync(_, _, _, _, _, _);
        hipIpcGetMemHandle(_, _);
        hipIpcOpenMemHandle(_, _, _);
        hipIpcCloseMemHandle(_);
    }
    Kernels {
        hipModuleLoadData(_, _);
        hipModuleUnload(_);
        hipModuleGetFunction(_, _, _);
        hipModuleGetGlobal(_, _, _, _);
        hipModuleLaunchKernel(_, _, _, _, _, _, _, _, _, _, _);
        hipFuncSetAttribute(_, _, _);
        hipFuncGetAttribute(_, _, _);
    }
}
