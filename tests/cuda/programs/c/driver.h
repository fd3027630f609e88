// Own declarations of the CUDA driver API, as far as the programs call it: no toolkit is needed to build them.
#ifndef DRIVER_H
#define DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned long long Address;
typedef int Device;
typedef int Result;
typedef void *Handle;

typedef struct {
    unsigned type;
    int id;
} Location;

typedef struct {
    Location location;
    unsigned flags;
} Access;

typedef struct {
    unsigned type, handles;
    Location location;
    void *win32;
    unsigned char flags[8];
} Properties;

typedef struct {
    unsigned type, handles;
    Location location;
    void *win32;
    unsigned char reserved[64];
} PoolProperties;

typedef struct {
    char bytes[64];
} IpcHandle;

// Every function: the symbol, the name and the version that `cuGetProcAddress` is asked for, and the arguments.
#define FUNCTIONS(X) \
    X(cuInit, "cuInit", 2000, (unsigned)) \
    X(cuDriverGetVersion, "cuDriverGetVersion", 2020, (int *)) \
    X(cuGetErrorName, "cuGetErrorName", 6000, (Result, const char **)) \
    X(cuGetErrorString, "cuGetErrorString", 6000, (Result, const char **)) \
    X(cuDeviceGetCount, "cuDeviceGetCount", 2000, (int *)) \
    X(cuDeviceGet, "cuDeviceGet", 2000, (Device *, int)) \
    X(cuDeviceGetName, "cuDeviceGetName", 2000, (char *, int, Device)) \
    X(cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020, (size_t *, Device)) \
    X(cuDeviceGetAttribute, "cuDeviceGetAttribute", 2000, (int *, unsigned, Device)) \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, (Handle *, Device)) \
    X(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, (Device)) \
    X(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, (Device)) \
    X(cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState", 7000, (Device, unsigned *, int *)) \
    X(cuCtxCreate_v2, "cuCtxCreate", 3020, (Handle *, unsigned, Device)) \
    X(cuCtxDestroy_v2, "cuCtxDestroy", 4000, (Handle)) \
    X(cuCtxPushCurrent_v2, "cuCtxPushCurrent", 4000, (Handle)) \
    X(cuCtxPopCurrent_v2, "cuCtxPopCurrent", 4000, (Handle *)) \
    X(cuCtxSetCurrent, "cuCtxSetCurrent", 4000, (Handle)) \
    X(cuCtxGetCurrent, "cuCtxGetCurrent", 4000, (Handle *)) \
    X(cuCtxGetDevice, "cuCtxGetDevice", 2000, (Device *)) \
    X(cuCtxSynchronize, "cuCtxSynchronize", 2000, (void)) \
    X(cuCtxGetLimit, "cuCtxGetLimit", 3010, (size_t *, unsigned)) \
    X(cuCtxSetLimit, "cuCtxSetLimit", 3010, (unsigned, size_t)) \
    X(cuMemGetInfo_v2, "cuMemGetInfo", 3020, (size_t *, size_t *)) \
    X(cuMemAlloc_v2, "cuMemAlloc", 3020, (Address *, size_t)) \
    X(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, (Address *, size_t *, size_t, size_t, unsigned)) \
    X(cuMemFree_v2, "cuMemFree", 3020, (Address)) \
    X(cuMemGetAddressRange_v2, "cuMemGetAddressRange", 3020, (Address *, size_t *, Address)) \
    X(cuMemAllocManaged, "cuMemAllocManaged", 6000, (Address *, size_t, unsigned)) \
    X(cuMemHostAlloc, "cuMemHostAlloc", 2020, (void **, size_t, unsigned)) \
    X(cuMemFreeHost, "cuMemFreeHost", 2000, (void *)) \
    X(cuMemHostRegister_v2, "cuMemHostRegister", 6050, (void *, size_t, unsigned)) \
    X(cuMemHostUnregister, "cuMemHostUnregister", 4000, (void *)) \
    X(cuMemHostGetDevicePointer_v2, "cuMemHostGetDevicePointer", 3020, (Address *, void *, unsigned)) \
    X(cuPointerGetAttribute, "cuPointerGetAttribute", 4000, (void *, unsigned, Address)) \
    X(cuPointerGetAttributes, "cuPointerGetAttributes", 7000, (unsigned, unsigned *, void **, Address)) \
    X(cuMemcpyHtoD_v2, "cuMemcpyHtoD", 3020, (Address, const void *, size_t)) \
    X(cuMemcpyDtoH_v2, "cuMemcpyDtoH", 3020, (void *, Address, size_t)) \
    X(cuMemcpyDtoD_v2, "cuMemcpyDtoD", 3020, (Address, Address, size_t)) \
    X(cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", 3020, (Address, const void *, size_t, Handle)) \
    X(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", 3020, (void *, Address, size_t, Handle)) \
    X(cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync", 3020, (Address, Address, size_t, Handle)) \
    X(cuMemsetD8_v2, "cuMemsetD8", 3020, (Address, unsigned char, size_t)) \
    X(cuMemsetD32_v2, "cuMemsetD32", 3020, (Address, unsigned, size_t)) \
    X(cuMemsetD8Async, "cuMemsetD8Async", 3020, (Address, unsigned char, size_t, Handle)) \
    X(cuMemsetD32Async, "cuMemsetD32Async", 3020, (Address, unsigned, size_t, Handle)) \
    X(cuMemsetD2D8_v2, "cuMemsetD2D8", 3020, (Address, size_t, unsigned char, size_t, size_t)) \
    X(cuMemAllocAsync, "cuMemAllocAsync", 11020, (Address *, size_t, Handle)) \
    X(cuMemFreeAsync, "cuMemFreeAsync", 11020, (Address, Handle)) \
    X(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020, (Address *, size_t, Handle, Handle)) \
    X(cuDeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool", 11020, (Handle *, Device)) \
    X(cuDeviceGetMemPool, "cuDeviceGetMemPool", 11020, (Handle *, Device)) \
    X(cuDeviceSetMemPool, "cuDeviceSetMemPool", 11020, (Device, Handle)) \
    X(cuMemPoolCreate, "cuMemPoolCreate", 11020, (Handle *, const PoolProperties *)) \
    X(cuMemPoolDestroy, "cuMemPoolDestroy", 11020, (Handle)) \
    X(cuMemPoolTrimTo, "cuMemPoolTrimTo", 11020, (Handle, size_t)) \
    X(cuMemPoolGetAttribute, "cuMemPoolGetAttribute", 11020, (Handle, unsigned, void *)) \
    X(cuMemPoolSetAttribute, "cuMemPoolSetAttribute", 11020, (Handle, unsigned, void *)) \
    X(cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity", 10020, (size_t *, const Properties *, unsigned)) \
    X(cuMemAddressReserve, "cuMemAddressReserve", 10020, (Address *, size_t, size_t, Address, unsigned long long)) \
    X(cuMemAddressFree, "cuMemAddressFree", 10020, (Address, size_t)) \
    X(cuMemCreate, "cuMemCreate", 10020, (unsigned long long *, size_t, const Properties *, unsigned long long)) \
    X(cuMemRelease, "cuMemRelease", 10020, (unsigned long long)) \
    X(cuMemMap, "cuMemMap", 10020, (Address, size_t, size_t, unsigned long long, unsigned long long)) \
    X(cuMemUnmap, "cuMemUnmap", 10020, (Address, size_t)) \
    X(cuMemSetAccess, "cuMemSetAccess", 10020, (Address, size_t, const Access *, size_t)) \
    X(cuIpcGetMemHandle, "cuIpcGetMemHandle", 4010, (IpcHandle *, Address)) \
    X(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 11000, (Address *, IpcHandle, unsigned)) \
    X(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", 4010, (Address)) \
    X(cuStreamCreate, "cuStreamCreate", 2000, (Handle *, unsigned)) \
    X(cuStreamDestroy_v2, "cuStreamDestroy", 4000, (Handle)) \
    X(cuStreamSynchronize, "cuStreamSynchronize", 2000, (Handle)) \
    X(cuStreamQuery, "cuStreamQuery", 2000, (Handle)) \
    X(cuStreamWaitEvent, "cuStreamWaitEvent", 3020, (Handle, Handle, unsigned)) \
    X(cuLaunchHostFunc, "cuLaunchHostFunc", 10000, (Handle, void (*)(void *), void *)) \
    X(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010, (Handle, unsigned)) \
    X(cuStreamEndCapture, "cuStreamEndCapture", 10000, (Handle, Handle *)) \
    X(cuStreamIsCapturing, "cuStreamIsCapturing", 10000, (Handle, unsigned *)) \
    X(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", 10010, (unsigned *)) \
    X(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 11040, (Handle *, Handle, unsigned long long)) \
    X(cuGraphLaunch, "cuGraphLaunch", 10000, (Handle, Handle)) \
    X(cuGraphExecDestroy, "cuGraphExecDestroy", 10000, (Handle)) \
    X(cuGraphDestroy, "cuGraphDestroy", 10000, (Handle)) \
    X(cuEventCreate, "cuEventCreate", 2000, (Handle *, unsigned)) \
    X(cuEventDestroy_v2, "cuEventDestroy", 4000, (Handle)) \
    X(cuEventRecord, "cuEventRecord", 2000, (Handle, Handle)) \
    X(cuEventQuery, "cuEventQuery", 2000, (Handle)) \
    X(cuEventSynchronize, "cuEventSynchronize", 2000, (Handle)) \
    X(cuEventElapsedTime, "cuEventElapsedTime", 2000, (float *, Handle, Handle)) \
    X(cuModuleLoadData, "cuModuleLoadData", 2000, (Handle *, const void *)) \
    X(cuModuleUnload, "cuModuleUnload", 2000, (Handle)) \
    X(cuModuleGetFunction, "cuModuleGetFunction", 2000, (Handle *, Handle, const char *)) \
    X(cuLaunchKernel, "cuLaunchKernel", 4000, (Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **))

#define MEMBER(symbol, name, version, arguments) Result(*symbol) arguments;
typedef struct {
    FUNCTIONS(MEMBER)
} Driver;
#undef MEMBER

// The driver, through the door that the program was told.
extern Driver D;

// Calls a function and prints the call, as it is written, and its code.
#define DO(call) say(#call, (call))
// Calls a function that must succeed: only its code matters.
#define MUST(call) must(#call, (call))

void say(const char *call, Result code);
void must(const char *call, Result code);

// The first device with its own context current, and a module with the kernels.
Handle start(void);

extern Handle fill_kernel, spin_kernel;
void fill(Address to, unsigned value, unsigned long long count, Handle stream);
void spin(unsigned long long nanoseconds, Handle stream);

// Prints whether all `count` words from `from` on are `value`.
void look(const char *what, Address from, unsigned value, size_t count);

#endif
