//! CUDA: the driver's functions, and those that programs get instead. Each of them has the contract of the driver's documentation.
#![expect(unsafe_code, reason = "exports and calls the driver's functions")]
use crate::ask::{BUFFER_ID, CONTEXT, RANGE_SIZE, RANGE_START};
use crate::door::{Door, Hook};
use crate::hooks::table;
use crate::inside::Inside;
use crate::real::Handle;
use crate::vendor::{Native, Shared, State, Thread, Vendor};
use crate::{Code, ask, books, capture, contexts, memory, pools};
use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr;
use core::sync::atomic::AtomicUsize;
use omniheap_core::Result;
use omniheap_cuda::{Config, Cuda, Driver};
use std::thread::LocalKey;

const EVER: c_int = c_int::MAX;

pub(crate) static DOOR: Door = Door {
    prefix: b"cu",
    work: &["cuLaunch", "cuGraphLaunch", "cuMemcpy", "cuMemset"],
    libraries: &[c"libcuda.so.1"],
    hooks: Nvidia::HOOKS,
    library: AtomicUsize::new(0),
};

thread_local! {
    static THREAD: Thread<Nvidia> = const { Thread::new() };
}

static STATE: State<Nvidia> = State::new();

impl Vendor for Nvidia {
    type Driver = Driver;
    type Gpu = Cuda;
    const WAITS: bool = false;
    const OWN: &'static [u32] = &[CONTEXT, BUFFER_ID, RANGE_START, RANGE_SIZE];
    const EXPORT: &'static str = "cuIpcGetMemHandle";

    #[inline]
    fn driver() -> Option<&'static Self> {
        Self::find()
    }

    #[inline]
    fn state() -> &'static State<Self> {
        &STATE
    }

    #[inline]
    fn thread() -> &'static LocalKey<Thread<Self>> {
        &THREAD
    }

    #[inline]
    fn shared(&self) -> Shared {
        Shared {
            allocate: self.cuMemAlloc_v2,
            free: self.cuMemFree_v2,
            free_async: self.cuMemFreeAsync,
            info: self.cuMemGetInfo_v2,
            range: self.cuMemGetAddressRange_v2,
            attribute: self.cuPointerGetAttribute,
            attributes: self.cuPointerGetAttributes,
            export: self.cuIpcGetMemHandle,
            device: self.cuCtxGetDevice,
            devices: self.cuDeviceGetCount,
            pool: self.cuDeviceGetMemPool,
            first_pool: self.cuDeviceGetDefaultMemPool,
            synchronize: self.cuStreamSynchronize,
            is_capturing: self.cuStreamIsCapturing,
        }
    }

    #[inline]
    fn context(&self) -> Option<Handle> {
        let mut context = ptr::null_mut();
        // SAFETY: a valid out-pointer.
        let code = unsafe { self.cuCtxGetCurrent?(&raw mut context) };
        (code == 0 && !context.is_null()).then_some(context)
    }

    #[inline]
    fn number(&self, stream: Handle) -> Option<u64> {
        let mut number = 0;
        // SAFETY: the caller of the driver's function promises a live stream; a valid out-pointer.
        let code = unsafe { self.cuStreamGetId?(stream, &raw mut number) };
        (code == 0).then_some(number)
    }

    fn native(stream: Handle) -> Native<Self> {
        stream.cast()
    }

    unsafe fn open(context: Handle) -> Result<(Cuda, i32)> {
        // SAFETY: the caller's promise.
        let cuda = unsafe { Cuda::wrap(context.cast(), None, Config::new().light()) }?;
        let ordinal = i32::try_from(cuda.ordinal()).unwrap_or(0);
        Ok((cuda, ordinal))
    }

    fn refuse(&self, code: Code) -> Code {
        code
    }

    #[inline]
    fn pass_on() -> Option<Inside> {
        None
    }
}

table! {
    /// The driver's functions; `None` for those that this driver does not have.
    Nvidia;
    asks {
        cuCtxGetCurrent(*mut Handle);
        cuCtxGetDevice(*mut c_int);
        cuCtxPushCurrent_v2(Handle);
        cuCtxPopCurrent_v2(*mut Handle);
        cuDeviceGetCount(*mut c_int);
        cuDeviceGetDefaultMemPool(*mut Handle, c_int);
        cuDeviceGetMemPool(*mut Handle, c_int);
        cuDevicePrimaryCtxGetState(c_int, *mut c_uint, *mut c_int);
        cuStreamGetId(Handle, *mut u64);
        cuStreamIsCapturing(Handle, *mut c_uint);
        cuStreamSynchronize(Handle);
    }
    answers {
        fn cuMemAlloc_v2(out: *mut u64, size: usize) as "cuMemAlloc" 3020..EVER, false
            = |real| memory::allocate(real, out, size); then |code| memory::given::<Nvidia>(code, out);
        fn cuMemAllocPitch_v2(out: *mut u64, pitch: *mut usize, width: usize, height: usize, element: c_uint)
            as "cuMemAllocPitch" 3020..EVER, false
            = |real| memory::allocate_pitch(real, out, pitch, (width, height), element);
            then |code| memory::given::<Nvidia>(code, out);
        fn cuMemFree_v2(address: u64) as "cuMemFree" 3020..EVER, false
            = |real| memory::free(real, address);
        fn cuMemAllocAsync(out: *mut u64, size: usize, stream: Handle) as "cuMemAllocAsync" 11020..EVER, false
            = |real| memory::allocate_async(real, out, size, stream);
            then |code| memory::given::<Nvidia>(code, out);
        fn cuMemAllocAsync_ptsz(out: *mut u64, size: usize, stream: Handle) as "cuMemAllocAsync" 11020..EVER, true
            = |real| memory::allocate_async(real, out, size, memory::per_thread(stream));
            then |code| memory::given::<Nvidia>(code, out);
        fn cuMemAllocFromPoolAsync(out: *mut u64, size: usize, pool: Handle, stream: Handle)
            as "cuMemAllocFromPoolAsync" 11020..EVER, false
            = |real| memory::allocate_from_pool(real, out, size, (pool, stream));
            then |code| memory::given::<Nvidia>(code, out);
        fn cuMemAllocFromPoolAsync_ptsz(out: *mut u64, size: usize, pool: Handle, stream: Handle)
            as "cuMemAllocFromPoolAsync" 11020..EVER, true
            = |real| memory::allocate_from_pool(real, out, size, (pool, memory::per_thread(stream)));
            then |code| memory::given::<Nvidia>(code, out);
        fn cuMemAllocManaged(out: *mut u64, size: usize, flags: c_uint) as "cuMemAllocManaged" 6000..EVER, false
            = |real| None; then |code| memory::given::<Nvidia>(code, out);
        fn cuMemFreeAsync(address: u64, stream: Handle) as "cuMemFreeAsync" 11020..EVER, false
            = |real| memory::free_async(real, address, stream);
        fn cuMemFreeAsync_ptsz(address: u64, stream: Handle) as "cuMemFreeAsync" 11020..EVER, true
            = |real| memory::free_async(real, address, memory::per_thread(stream));
        fn cuDeviceSetMemPool(device: c_int, pool: Handle) as "cuDeviceSetMemPool" 11020..EVER, false
            = |real| None; then |code| pools::chosen(real, code, device, pool);
        fn cuMemPoolGetAttribute(pool: Handle, attribute: c_uint, value: *mut c_void)
            as "cuMemPoolGetAttribute" 11020..EVER, false
            = |real| None; then |code| pools::told(real, code, (pool, attribute), value);
        fn cuMemPoolSetAttribute(pool: Handle, attribute: c_uint, value: *mut c_void)
            as "cuMemPoolSetAttribute" 11020..EVER, false
            = |real| None; then |code| pools::set(real, code, (pool, attribute));
        fn cuMemPoolTrimTo(pool: Handle, keep: usize) as "cuMemPoolTrimTo" 11020..EVER, false
            = |real| { pools::trim(real, pool, keep); None };
        fn cuMemSetMemPool(location: *const c_void, kind: c_uint, pool: Handle)
            as "cuMemSetMemPool" 13000..EVER, false
            = |real| None; then |code| pools::chosen_at(real, code, (location, kind), pool);
        fn cuMemPoolSetAccess(pool: Handle, list: *const c_void, count: usize)
            as "cuMemPoolSetAccess" 11020..EVER, false
            = |real| None; then |code| {
                // SAFETY: the caller's list, which the driver has read where it did the call.
                unsafe { pools::opened(real, code, pool, (list, count)) };
            };
        fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) as "cuMemGetInfo" 3020..EVER, false
            = |real| ask::info(real, free, total);
        fn cuMemGetAddressRange_v2(base: *mut u64, size: *mut usize, address: u64)
            as "cuMemGetAddressRange" 3020..EVER, false
            = |real| ask::range(real, base, size, address);
        fn cuPointerGetAttribute(data: *mut c_void, attribute: c_uint, address: u64)
            as "cuPointerGetAttribute" 4000..EVER, false
            = |real| ask::attribute(real, data, attribute, address);
        fn cuPointerGetAttributes(count: c_uint, kinds: *const c_uint, data: *mut *mut c_void, address: u64)
            as "cuPointerGetAttributes" 7000..EVER, false
            = |real| ask::attributes(real, (count, kinds, data), address);
        fn cuIpcGetMemHandle(handle: *mut c_void, address: u64) as "cuIpcGetMemHandle" 4010..EVER, false
            = |real| ask::export(real, handle, address);
        fn cuCtxAttach(out: *mut Handle, flags: c_uint) as "cuCtxAttach" 2000..EVER, false
            = |real| None; then |code| contexts::attached(code, out);
        fn cuCtxDetach(context: Handle) as "cuCtxDetach" 2000..EVER, false
            = |real| contexts::detach(real, context);
        fn cuCtxDestroy(context: Handle) as "cuCtxDestroy" 2000..4000, false
            = |real| contexts::destroy(real, context);
        fn cuCtxDestroy_v2(context: Handle) as "cuCtxDestroy" 4000..EVER, false
            = |real| contexts::destroy(real, context);
        fn cuCtxFromGreenCtx(out: *mut Handle, green: Handle) as "cuCtxFromGreenCtx" 12040..EVER, false
            = |real| None; then |code| contexts::is_green(code, out, green);
        fn cuGreenCtxCreate(out: *mut Handle, resources: Handle, device: c_int, flags: c_uint)
            as "cuGreenCtxCreate" 12040..EVER, false
            = |real| contexts::make_green(real, out, resources, (device, flags));
        fn cuGreenCtxDestroy(green: Handle) as "cuGreenCtxDestroy" 12040..EVER, false
            = |real| contexts::end_green(real, green);
        fn cuDevicePrimaryCtxRetain(out: *mut Handle, device: c_int) as "cuDevicePrimaryCtxRetain" 7000..EVER, false
            = |real| contexts::retain(real, out, device);
        fn cuDevicePrimaryCtxReset(device: c_int) as "cuDevicePrimaryCtxReset" 7000..11000, false
            = |real| contexts::reset(real, device, real.cuDevicePrimaryCtxReset);
        fn cuDevicePrimaryCtxReset_v2(device: c_int) as "cuDevicePrimaryCtxReset" 11000..EVER, false
            = |real| contexts::reset(real, device, real.cuDevicePrimaryCtxReset_v2);
        fn cuDevicePrimaryCtxRelease(device: c_int) as "cuDevicePrimaryCtxRelease" 7000..11000, false
            = |real| contexts::release(real, device, real.cuDevicePrimaryCtxRelease);
        fn cuDevicePrimaryCtxRelease_v2(device: c_int) as "cuDevicePrimaryCtxRelease" 11000..EVER, false
            = |real| contexts::release(real, device, real.cuDevicePrimaryCtxRelease_v2);
        fn cuStreamBeginCapture(stream: Handle) as "cuStreamBeginCapture" 10000..10010, false
            = |real| { capture::begin(real, stream); None };
            then |code| if code != 0 { capture::end::<Nvidia>(stream) };
        fn cuStreamBeginCapture_ptsz(stream: Handle) as "cuStreamBeginCapture" 10000..10010, true
            = |real| { capture::begin(real, memory::per_thread(stream)); None };
            then |code| if code != 0 { capture::end::<Nvidia>(memory::per_thread(stream)) };
        fn cuStreamBeginCapture_v2(stream: Handle, mode: c_uint) as "cuStreamBeginCapture" 10010..EVER, false
            = |real| { capture::begin(real, stream); None };
            then |code| if code != 0 { capture::end::<Nvidia>(stream) };
        fn cuStreamBeginCapture_v2_ptsz(stream: Handle, mode: c_uint) as "cuStreamBeginCapture" 10010..EVER, true
            = |real| { capture::begin(real, memory::per_thread(stream)); None };
            then |code| if code != 0 { capture::end::<Nvidia>(memory::per_thread(stream)) };
        fn cuStreamBeginCaptureToGraph(
            stream: Handle, graph: Handle, nodes: *const c_void, data: *const c_void, count: usize, mode: c_uint
        ) as "cuStreamBeginCaptureToGraph" 12030..EVER, false
            = |real| { capture::begin(real, stream); None };
            then |code| if code != 0 { capture::end::<Nvidia>(stream) };
        fn cuStreamBeginCaptureToGraph_ptsz(
            stream: Handle, graph: Handle, nodes: *const c_void, data: *const c_void, count: usize, mode: c_uint
        ) as "cuStreamBeginCaptureToGraph" 12030..EVER, true
            = |real| { capture::begin(real, memory::per_thread(stream)); None };
            then |code| if code != 0 { capture::end::<Nvidia>(memory::per_thread(stream)) };
        fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) as "cuStreamEndCapture" 10000..EVER, false
            = |real| { capture::ending(real, stream); None }; then |_| capture::ended(real, stream);
        fn cuStreamEndCapture_ptsz(stream: Handle, graph: *mut Handle) as "cuStreamEndCapture" 10000..EVER, true
            = |real| { capture::ending(real, memory::per_thread(stream)); None };
            then |_| capture::ended(real, memory::per_thread(stream));
        fn cuStreamDestroy(stream: Handle) as "cuStreamDestroy" 2000..4000, false
            = |real| { capture::destroying::<Nvidia>(stream); books::ending_stream(real, stream); None };
            then |code| { capture::destroyed::<Nvidia>(stream, code == 0); books::ended_stream::<Nvidia>(code == 0) };
        fn cuStreamDestroy_v2(stream: Handle) as "cuStreamDestroy" 4000..EVER, false
            = |real| { capture::destroying::<Nvidia>(stream); books::ending_stream(real, stream); None };
            then |code| { capture::destroyed::<Nvidia>(stream, code == 0); books::ended_stream::<Nvidia>(code == 0) };
        fn cuGetProcAddress(name: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64)
            as "cuGetProcAddress" 11030..12000, false
            = |real| None; then |code| DOOR.replace(code, name, function, (version, flags));
        fn cuGetProcAddress_v2(
            name: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int
        ) as "cuGetProcAddress" 12000..EVER, false
            = |real| None; then |code| DOOR.replace(code, name, function, (version, flags));
    }
    gates {
        fn cuLaunchKernel(function_: Handle, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, arguments: *mut *mut c_void, extra: *mut *mut c_void) as "cuLaunchKernel" 4000..EVER, false;
        fn cuLaunchKernelEx(config: *const c_void, kernel: Handle, arguments: *mut *mut c_void, extra: *mut *mut c_void) as "cuLaunchKernelEx" 11060..EVER, false;
        fn cuLaunchCooperativeKernel(function_: Handle, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, arguments: *mut *mut c_void) as "cuLaunchCooperativeKernel" 9000..EVER, false;
        fn cuGraphLaunch(graph: Handle, stream: Handle) as "cuGraphLaunch" 10000..EVER, false;
        fn cuMemcpyAsync(to: u64, from: u64, size: usize, stream: Handle) as "cuMemcpyAsync" 4000..EVER, false;
        fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, size: usize, stream: Handle) as "cuMemcpyHtoDAsync" 3020..EVER, false;
        fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, size: usize, stream: Handle) as "cuMemcpyDtoHAsync" 3020..EVER, false;
        fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, size: usize, stream: Handle) as "cuMemcpyDtoDAsync" 3020..EVER, false;
        fn cuMemcpy2DAsync_v2(copy: *const c_void, stream: Handle) as "cuMemcpy2DAsync" 3020..EVER, false;
        fn cuMemcpy3DAsync_v2(copy: *const c_void, stream: Handle) as "cuMemcpy3DAsync" 3020..EVER, false;
        fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: Handle) as "cuMemsetD8Async" 3020..EVER, false;
        fn cuMemsetD32Async(to: u64, value: c_uint, count: usize, stream: Handle) as "cuMemsetD32Async" 3020..EVER, false;
        fn cuLaunchKernel_ptsz(function_: Handle, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, arguments: *mut *mut c_void, extra: *mut *mut c_void) as "cuLaunchKernel" 4000..EVER, true;
        fn cuLaunchKernelEx_ptsz(config: *const c_void, kernel: Handle, arguments: *mut *mut c_void, extra: *mut *mut c_void) as "cuLaunchKernelEx" 11060..EVER, true;
        fn cuLaunchCooperativeKernel_ptsz(function_: Handle, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, arguments: *mut *mut c_void) as "cuLaunchCooperativeKernel" 9000..EVER, true;
        fn cuGraphLaunch_ptsz(graph: Handle, stream: Handle) as "cuGraphLaunch" 10000..EVER, true;
        fn cuMemcpyAsync_ptsz(to: u64, from: u64, size: usize, stream: Handle) as "cuMemcpyAsync" 4000..EVER, true;
        fn cuMemcpyHtoDAsync_v2_ptsz(to: u64, from: *const c_void, size: usize, stream: Handle) as "cuMemcpyHtoDAsync" 3020..EVER, true;
        fn cuMemcpyDtoHAsync_v2_ptsz(to: *mut c_void, from: u64, size: usize, stream: Handle) as "cuMemcpyDtoHAsync" 3020..EVER, true;
        fn cuMemcpyDtoDAsync_v2_ptsz(to: u64, from: u64, size: usize, stream: Handle) as "cuMemcpyDtoDAsync" 3020..EVER, true;
        fn cuMemcpy2DAsync_v2_ptsz(copy: *const c_void, stream: Handle) as "cuMemcpy2DAsync" 3020..EVER, true;
        fn cuMemcpy3DAsync_v2_ptsz(copy: *const c_void, stream: Handle) as "cuMemcpy3DAsync" 3020..EVER, true;
        fn cuMemsetD8Async_ptsz(to: u64, value: u8, count: usize, stream: Handle) as "cuMemsetD8Async" 3020..EVER, true;
        fn cuMemsetD32Async_ptsz(to: u64, value: c_uint, count: usize, stream: Handle) as "cuMemsetD32Async" 3020..EVER, true;
        fn cuMemcpy(to: u64, from: u64, size: usize) as "cuMemcpy" 4000..EVER, false;
        fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, size: usize) as "cuMemcpyHtoD" 3020..EVER, false;
        fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, size: usize) as "cuMemcpyDtoH" 3020..EVER, false;
        fn cuMemcpyDtoD_v2(to: u64, from: u64, size: usize) as "cuMemcpyDtoD" 3020..EVER, false;
        fn cuMemcpy2D_v2(copy: *const c_void) as "cuMemcpy2D" 3020..EVER, false;
        fn cuMemcpy3D_v2(copy: *const c_void) as "cuMemcpy3D" 3020..EVER, false;
        fn cuMemsetD8_v2(to: u64, value: u8, count: usize) as "cuMemsetD8" 3020..EVER, false;
        fn cuMemsetD32_v2(to: u64, value: c_uint, count: usize) as "cuMemsetD32" 3020..EVER, false;
        fn cuMemcpy_ptds(to: u64, from: u64, size: usize) as "cuMemcpy" 4000..EVER, true;
        fn cuMemcpyHtoD_v2_ptds(to: u64, from: *const c_void, size: usize) as "cuMemcpyHtoD" 3020..EVER, true;
        fn cuMemcpyDtoH_v2_ptds(to: *mut c_void, from: u64, size: usize) as "cuMemcpyDtoH" 3020..EVER, true;
        fn cuMemcpyDtoD_v2_ptds(to: u64, from: u64, size: usize) as "cuMemcpyDtoD" 3020..EVER, true;
        fn cuMemcpy2D_v2_ptds(copy: *const c_void) as "cuMemcpy2D" 3020..EVER, true;
        fn cuMemcpy3D_v2_ptds(copy: *const c_void) as "cuMemcpy3D" 3020..EVER, true;
        fn cuMemsetD8_v2_ptds(to: u64, value: u8, count: usize) as "cuMemsetD8" 3020..EVER, true;
        fn cuMemsetD32_v2_ptds(to: u64, value: c_uint, count: usize) as "cuMemsetD32" 3020..EVER, true;
    }
}
