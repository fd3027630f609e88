//! Finds functions by name and version, as run-time libraries do instead of asking the loader.

use core::ffi::c_int;

use crate::api::driver::VERSION;
use crate::api::{
    code, context, device, driver, event, graph, host, ipc, memory, pointer, pool, set, stream,
    transfer, virtual_memory,
};
use crate::ffi::{InText, Word};

/// Flag: zero stands for the calling thread's default stream.
const PER_THREAD: u64 = 2;
/// The first version with functions for which zero stands for that stream.
const SINCE_PER_THREAD: c_int = 7000;

/// Reason why a function was not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Arguments,
    Name,
    /// The function is newer than the version that was asked for.
    Version,
}

/// A function: its name without a version, the version it is from, and its two addresses.
struct Door {
    symbol: &'static str,
    since: c_int,
    plain: usize,
    per_thread: usize,
}

macro_rules! address {
    ($name:path) => {
        ($name as *const ()).addr()
    };
    ($name:path, $own:path) => {
        ($own as *const ()).addr()
    };
}

macro_rules! doors {
    ($($module:ident::$name:ident $(/ $own:ident)?, $since:literal;)*) => {
        /// Lists every function.
        fn doors() -> Vec<Door> {
            vec![$(Door {
                symbol: stringify!($name),
                since: $since,
                plain: address!($module::$name),
                per_thread: address!($module::$name $(, $module::$own)?),
            },)*]
        }
    };
}

doors! {
    context::cuCtxAttach, 2000;
    context::cuCtxCreate_v2, 3020;
    context::cuCtxCreate_v4, 12050;
    context::cuCtxDestroy, 2000;
    context::cuCtxDestroy_v2, 4000;
    context::cuCtxDetach, 2000;
    context::cuCtxDisablePeerAccess, 2000;
    context::cuCtxEnablePeerAccess, 2000;
    context::cuCtxFromGreenCtx, 12040;
    context::cuCtxGetApiVersion, 2000;
    context::cuCtxGetCacheConfig, 2000;
    context::cuCtxGetCurrent, 4000;
    context::cuCtxGetDevice, 2000;
    context::cuCtxGetFlags, 2000;
    context::cuCtxGetId, 12000;
    context::cuCtxGetLimit, 2000;
    context::cuCtxGetStreamPriorityRange, 2000;
    context::cuCtxPopCurrent_v2, 4000;
    context::cuCtxPushCurrent_v2, 4000;
    context::cuCtxRecordEvent, 12050;
    context::cuCtxSetCacheConfig, 2000;
    context::cuCtxSetCurrent, 4000;
    context::cuCtxSetLimit, 2000;
    context::cuCtxSynchronize, 2000;
    device::cuDeviceCanAccessPeer, 2000;
    device::cuDeviceGet, 2000;
    device::cuDeviceGetAttribute, 2000;
    device::cuDeviceGetByPCIBusId, 2000;
    device::cuDeviceGetCount, 2000;
    pool::cuDeviceGetDefaultMemPool, 11020;
    pool::cuDeviceGetMemPool, 11020;
    device::cuDeviceGetName, 2000;
    device::cuDeviceGetPCIBusId, 2000;
    device::cuDeviceGetUuid, 9020;
    device::cuDeviceGetUuid_v2, 11040;
    device::cuDevicePrimaryCtxGetState, 7000;
    device::cuDevicePrimaryCtxRelease, 7000;
    device::cuDevicePrimaryCtxRelease_v2, 11000;
    device::cuDevicePrimaryCtxReset, 7000;
    device::cuDevicePrimaryCtxReset_v2, 11000;
    device::cuDevicePrimaryCtxRetain, 7000;
    device::cuDevicePrimaryCtxSetFlags_v2, 11000;
    pool::cuDeviceSetMemPool, 11020;
    device::cuDeviceTotalMem_v2, 3020;
    driver::cuDriverGetVersion, 2000;
    event::cuEventCreate, 2000;
    event::cuEventDestroy_v2, 4000;
    event::cuEventElapsedTime, 2000;
    event::cuEventElapsedTime_v2, 12080;
    event::cuEventQuery, 2000;
    event::cuEventRecord / cuEventRecord_ptsz, 2000;
    event::cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz, 11010;
    event::cuEventSynchronize, 2000;
    code::cuFuncGetAttribute, 2000;
    code::cuFuncSetAttribute, 2000;
    driver::cuGetErrorName, 2000;
    driver::cuGetErrorString, 2000;
    driver::cuGetExportTable, 2000;
    driver::cuGetProcAddress, 11030;
    driver::cuGetProcAddress_v2, 12000;
    graph::cuGraphCreate, 10000;
    graph::cuGraphDestroy, 10000;
    graph::cuGraphExecDestroy, 10000;
    graph::cuGraphGetNodes, 10000;
    graph::cuGraphInstantiateWithFlags, 11040;
    graph::cuGraphLaunch / cuGraphLaunch_ptsz, 10000;
    graph::cuGraphRetainUserObject, 11030;
    context::cuGreenCtxCreate, 12040;
    context::cuGreenCtxDestroy, 12040;
    driver::cuInit, 2000;
    ipc::cuIpcCloseMemHandle, 4010;
    ipc::cuIpcGetMemHandle, 4010;
    ipc::cuIpcOpenMemHandle_v2, 11000;
    stream::cuLaunchHostFunc / cuLaunchHostFunc_ptsz, 10000;
    code::cuLaunchKernel / cuLaunchKernel_ptsz, 4000;
    virtual_memory::cuMemAddressFree, 10020;
    virtual_memory::cuMemAddressReserve, 10020;
    memory::cuMemAdvise, 8000;
    memory::cuMemAlloc_v2, 3020;
    pool::cuMemAllocAsync / cuMemAllocAsync_ptsz, 11020;
    pool::cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz, 11020;
    host::cuMemAllocHost_v2, 3020;
    memory::cuMemAllocManaged, 6000;
    memory::cuMemAllocPitch_v2, 3020;
    virtual_memory::cuMemCreate, 10020;
    virtual_memory::cuMemExportToShareableHandle, 10020;
    memory::cuMemFree_v2, 3020;
    pool::cuMemFreeAsync / cuMemFreeAsync_ptsz, 11020;
    host::cuMemFreeHost, 2000;
    virtual_memory::cuMemGetAccess, 10020;
    memory::cuMemGetAddressRange_v2, 3020;
    virtual_memory::cuMemGetAllocationGranularity, 10020;
    memory::cuMemGetInfo_v2, 3020;
    host::cuMemHostAlloc, 2000;
    host::cuMemHostGetDevicePointer_v2, 3020;
    host::cuMemHostGetFlags, 2000;
    host::cuMemHostRegister_v2, 6050;
    host::cuMemHostUnregister, 4000;
    virtual_memory::cuMemImportFromShareableHandle, 10020;
    virtual_memory::cuMemMap, 10020;
    pool::cuMemPoolCreate, 11020;
    pool::cuMemPoolDestroy, 11020;
    pool::cuMemPoolGetAccess, 11020;
    pool::cuMemPoolGetAttribute, 11020;
    pool::cuMemPoolSetAccess, 11020;
    pool::cuMemPoolSetAttribute, 11020;
    pool::cuMemPoolTrimTo, 11020;
    memory::cuMemPrefetchAsync / cuMemPrefetchAsync_ptsz, 8000;
    virtual_memory::cuMemRelease, 10020;
    virtual_memory::cuMemRetainAllocationHandle, 11000;
    virtual_memory::cuMemSetAccess, 10020;
    virtual_memory::cuMemUnmap, 10020;
    pool::cuMemSetMemPool, 13000;
    transfer::cuMemcpy / cuMemcpy_ptds, 4000;
    transfer::cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds, 3020;
    transfer::cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz, 3020;
    transfer::cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds, 3020;
    transfer::cuMemcpyAsync / cuMemcpyAsync_ptsz, 4000;
    transfer::cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds, 3020;
    transfer::cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz, 3020;
    transfer::cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds, 3020;
    transfer::cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz, 3020;
    transfer::cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds, 3020;
    transfer::cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz, 3020;
    transfer::cuMemcpyPeer / cuMemcpyPeer_ptds, 4000;
    transfer::cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz, 4000;
    set::cuMemsetD16_v2 / cuMemsetD16_v2_ptds, 3020;
    set::cuMemsetD16Async / cuMemsetD16Async_ptsz, 2000;
    set::cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds, 3020;
    set::cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz, 2000;
    set::cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds, 3020;
    set::cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz, 2000;
    set::cuMemsetD32_v2 / cuMemsetD32_v2_ptds, 3020;
    set::cuMemsetD32Async / cuMemsetD32Async_ptsz, 2000;
    set::cuMemsetD8_v2 / cuMemsetD8_v2_ptds, 3020;
    set::cuMemsetD8Async / cuMemsetD8Async_ptsz, 2000;
    code::cuModuleGetFunction, 2000;
    code::cuModuleGetGlobal_v2, 3020;
    code::cuModuleLoadData, 2000;
    code::cuModuleLoadDataEx, 2000;
    code::cuModuleUnload, 2000;
    pointer::cuPointerGetAttribute, 4000;
    pointer::cuPointerGetAttributes, 7000;
    pointer::cuPointerSetAttribute, 6000;
    stream::cuStreamBeginCapture / cuStreamBeginCapture_ptsz, 10000;
    stream::cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz, 10010;
    stream::cuStreamCreate, 2000;
    stream::cuStreamCreateWithPriority, 2000;
    stream::cuStreamDestroy, 2000;
    stream::cuStreamDestroy_v2, 4000;
    stream::cuStreamEndCapture / cuStreamEndCapture_ptsz, 10000;
    stream::cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz, 11030;
    stream::cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz, 12030;
    stream::cuStreamGetCtx / cuStreamGetCtx_ptsz, 9020;
    stream::cuStreamGetFlags / cuStreamGetFlags_ptsz, 2000;
    stream::cuStreamGetId / cuStreamGetId_ptsz, 12000;
    stream::cuStreamGetPriority / cuStreamGetPriority_ptsz, 2000;
    stream::cuStreamIsCapturing / cuStreamIsCapturing_ptsz, 10000;
    stream::cuStreamQuery / cuStreamQuery_ptsz, 2000;
    stream::cuStreamSynchronize / cuStreamSynchronize_ptsz, 2000;
    stream::cuStreamWaitEvent / cuStreamWaitEvent_ptsz, 2000;
    context::cuThreadExchangeStreamCaptureMode, 10010;
    graph::cuUserObjectCreate, 11030;
    graph::cuUserObjectRelease, 11030;
    graph::cuUserObjectRetain, 11030;
}

impl Door {
    /// Returns the address of the function, and the version it is from.
    fn way(&self, flags: u64) -> (usize, c_int) {
        if flags == PER_THREAD && self.per_thread != self.plain {
            return (self.per_thread, self.since.max(SINCE_PER_THREAD));
        }
        (self.plain, self.since)
    }

    /// Returns the name that programs ask for, which has no version.
    fn name(&self) -> &'static str {
        match self.symbol.rsplit_once("_v") {
            Some((name, version)) if version.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => self.symbol,
        }
    }
}

/// Finds the address of the youngest function of a name that is no younger than `version`.
pub(crate) fn find(name: InText, version: c_int, flags: u64) -> Result<Word, Missing> {
    let name = name.get().map_err(|_| Missing::Arguments)?;
    if flags > PER_THREAD || version > VERSION + 999 {
        return Err(Missing::Arguments);
    }
    let doors = doors();
    let named = || doors.iter().filter(|door| door.name() == name).map(|door| door.way(flags));
    let old_enough = named().filter(|(_, since)| *since <= version);
    match old_enough.max_by_key(|(_, since)| *since) {
        Some((address, _)) => Ok(Word::new(address as u64)),
        None if named().next().is_some() => Err(Missing::Version),
        None => Err(Missing::Name),
    }
}
