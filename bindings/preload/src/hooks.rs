//! The functions that programs get instead of the driver's. Each has the contract of the driver's documentation.
#![expect(unsafe_code, reason = "exports the driver's functions")]
use crate::door::{Hook, by_name};
use crate::inside::Inside;
use crate::real::{self, Handle};
use crate::{Code, ask, books, capture, contexts, gate, memory, pools};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

/// Answer where there is no driver.
const NOT_INITIALIZED: Code = 3;
/// Answer where the driver has no such function.
const NOT_FOUND: Code = 500;
/// Answer after a bug of ours.
const UNKNOWN: Code = 999;
const EVER: c_int = c_int::MAX;

/// Runs our own answer to a call. `None` if the driver must answer.
#[inline]
fn answer(own: impl FnOnce() -> Option<Code>) -> Option<Code> {
    let _inside = Inside::enter()?;
    catch_unwind(AssertUnwindSafe(own)).unwrap_or(Some(UNKNOWN))
}

/// Exports functions of the driver, and lists them in `HOOKS`. A function gives our answer or else the driver's, and may take a
/// note of the driver's.
macro_rules! hooks {
    ($(
        fn $symbol:ident($($argument:ident: $kind:ty),*) as $name:literal $since:literal..$until:expr, $per_thread:literal
            = |$real:ident| $own:expr $(; then |$code:pat_param| $note:expr)?;
    )*) => {
        $(
            #[allow(clippy::allow_attributes, non_snake_case, clippy::unused_unit, reason = "the driver's names")]
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $symbol($($argument: $kind),*) -> Code {
                let Some($real) = real::driver() else { return NOT_INITIALIZED };
                let Some(function) = $real.$symbol else { return NOT_FOUND };
                if let Some(code) = answer(|| $own) {
                    return code;
                }
                // SAFETY: the caller's arguments, as it passed them.
                let code = unsafe { function($($argument),*) };
                $({ let $code = code; answer(|| { $note; None }); })?
                code
            }
        )*

        /// All functions that programs get.
        pub(crate) static HOOKS: &[Hook] = &[$(
            Hook {
                symbol: stringify!($symbol),
                name: $name,
                since: $since,
                until: $until,
                per_thread: $per_thread,
                function: $symbol as *const (),
            },
        )*];
    };
}

hooks! {
    fn cuMemAlloc_v2(out: *mut u64, size: usize) as "cuMemAlloc" 3020..EVER, false
        = |real| memory::allocate(real, out, size); then |code| memory::given(code, out);
    fn cuMemAllocPitch_v2(out: *mut u64, pitch: *mut usize, width: usize, height: usize, element: c_uint)
        as "cuMemAllocPitch" 3020..EVER, false
        = |real| memory::allocate_pitch(real, out, pitch, (width, height), element);
        then |code| memory::given(code, out);
    fn cuMemFree_v2(address: u64) as "cuMemFree" 3020..EVER, false
        = |real| memory::free(real, address);
    fn cuMemAllocAsync(out: *mut u64, size: usize, stream: Handle) as "cuMemAllocAsync" 11020..EVER, false
        = |real| memory::allocate_async(real, out, size, stream);
        then |code| memory::given(code, out);
    fn cuMemAllocAsync_ptsz(out: *mut u64, size: usize, stream: Handle) as "cuMemAllocAsync" 11020..EVER, true
        = |real| memory::allocate_async(real, out, size, memory::per_thread(stream));
        then |code| memory::given(code, out);
    fn cuMemAllocFromPoolAsync(out: *mut u64, size: usize, pool: Handle, stream: Handle)
        as "cuMemAllocFromPoolAsync" 11020..EVER, false
        = |real| memory::allocate_from_pool(real, out, size, (pool, stream));
        then |code| memory::given(code, out);
    fn cuMemAllocFromPoolAsync_ptsz(out: *mut u64, size: usize, pool: Handle, stream: Handle)
        as "cuMemAllocFromPoolAsync" 11020..EVER, true
        = |real| memory::allocate_from_pool(real, out, size, (pool, memory::per_thread(stream)));
        then |code| memory::given(code, out);
    fn cuMemAllocManaged(out: *mut u64, size: usize, flags: c_uint) as "cuMemAllocManaged" 6000..EVER, false
        = |real| None; then |code| memory::given(code, out);
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
        = |real| ask::export(real, address);
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
        then |code| if code != 0 { capture::end(stream) };
    fn cuStreamBeginCapture_ptsz(stream: Handle) as "cuStreamBeginCapture" 10000..10010, true
        = |real| { capture::begin(real, memory::per_thread(stream)); None };
        then |code| if code != 0 { capture::end(memory::per_thread(stream)) };
    fn cuStreamBeginCapture_v2(stream: Handle, mode: c_uint) as "cuStreamBeginCapture" 10010..EVER, false
        = |real| { capture::begin(real, stream); None };
        then |code| if code != 0 { capture::end(stream) };
    fn cuStreamBeginCapture_v2_ptsz(stream: Handle, mode: c_uint) as "cuStreamBeginCapture" 10010..EVER, true
        = |real| { capture::begin(real, memory::per_thread(stream)); None };
        then |code| if code != 0 { capture::end(memory::per_thread(stream)) };
    fn cuStreamBeginCaptureToGraph(
        stream: Handle, graph: Handle, nodes: *const c_void, data: *const c_void, count: usize, mode: c_uint
    ) as "cuStreamBeginCaptureToGraph" 12030..EVER, false
        = |real| { capture::begin(real, stream); None };
        then |code| if code != 0 { capture::end(stream) };
    fn cuStreamBeginCaptureToGraph_ptsz(
        stream: Handle, graph: Handle, nodes: *const c_void, data: *const c_void, count: usize, mode: c_uint
    ) as "cuStreamBeginCaptureToGraph" 12030..EVER, true
        = |real| { capture::begin(real, memory::per_thread(stream)); None };
        then |code| if code != 0 { capture::end(memory::per_thread(stream)) };
    fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) as "cuStreamEndCapture" 10000..EVER, false
        = |real| { capture::ending(real, stream); None }; then |_| capture::ended(real, stream);
    fn cuStreamEndCapture_ptsz(stream: Handle, graph: *mut Handle) as "cuStreamEndCapture" 10000..EVER, true
        = |real| { capture::ending(real, memory::per_thread(stream)); None };
        then |_| capture::ended(real, memory::per_thread(stream));
    fn cuStreamDestroy(stream: Handle) as "cuStreamDestroy" 2000..4000, false
        = |real| { capture::destroying(stream); books::ending_stream(real, stream); None };
        then |code| { capture::destroyed(stream, code == 0); books::ended_stream(code == 0) };
    fn cuStreamDestroy_v2(stream: Handle) as "cuStreamDestroy" 4000..EVER, false
        = |real| { capture::destroying(stream); books::ending_stream(real, stream); None };
        then |code| { capture::destroyed(stream, code == 0); books::ended_stream(code == 0) };
    fn cuGetProcAddress(name: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64)
        as "cuGetProcAddress" 11030..12000, false
        = |real| None; then |code| replace(code, name, function, (version, flags));
    fn cuGetProcAddress_v2(
        name: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int
    ) as "cuGetProcAddress" 12000..EVER, false
        = |real| None; then |code| replace(code, name, function, (version, flags));
    fn cuLaunchKernel(function_: Handle, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, arguments: *mut *mut c_void, extra: *mut *mut c_void) as "cuLaunchKernel" 4000..EVER, false
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuLaunchKernelEx(config: *const c_void, kernel: Handle, arguments: *mut *mut c_void, extra: *mut *mut c_void) as "cuLaunchKernelEx" 11060..EVER, false
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuLaunchCooperativeKernel(function_: Handle, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, arguments: *mut *mut c_void) as "cuLaunchCooperativeKernel" 9000..EVER, false
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuGraphLaunch(graph: Handle, stream: Handle) as "cuGraphLaunch" 10000..EVER, false
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpyAsync(to: u64, from: u64, size: usize, stream: Handle) as "cuMemcpyAsync" 4000..EVER, false
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, size: usize, stream: Handle) as "cuMemcpyHtoDAsync" 3020..EVER, false
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, size: usize, stream: Handle) as "cuMemcpyDtoHAsync" 3020..EVER, false
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, size: usize, stream: Handle) as "cuMemcpyDtoDAsync" 3020..EVER, false
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpy2DAsync_v2(copy: *const c_void, stream: Handle) as "cuMemcpy2DAsync" 3020..EVER, false
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpy3DAsync_v2(copy: *const c_void, stream: Handle) as "cuMemcpy3DAsync" 3020..EVER, false
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: Handle) as "cuMemsetD8Async" 3020..EVER, false
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemsetD32Async(to: u64, value: c_uint, count: usize, stream: Handle) as "cuMemsetD32Async" 3020..EVER, false
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuLaunchKernel_ptsz(function_: Handle, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, arguments: *mut *mut c_void, extra: *mut *mut c_void) as "cuLaunchKernel" 4000..EVER, true
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuLaunchKernelEx_ptsz(config: *const c_void, kernel: Handle, arguments: *mut *mut c_void, extra: *mut *mut c_void) as "cuLaunchKernelEx" 11060..EVER, true
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuLaunchCooperativeKernel_ptsz(function_: Handle, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, arguments: *mut *mut c_void) as "cuLaunchCooperativeKernel" 9000..EVER, true
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuGraphLaunch_ptsz(graph: Handle, stream: Handle) as "cuGraphLaunch" 10000..EVER, true
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpyAsync_ptsz(to: u64, from: u64, size: usize, stream: Handle) as "cuMemcpyAsync" 4000..EVER, true
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpyHtoDAsync_v2_ptsz(to: u64, from: *const c_void, size: usize, stream: Handle) as "cuMemcpyHtoDAsync" 3020..EVER, true
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpyDtoHAsync_v2_ptsz(to: *mut c_void, from: u64, size: usize, stream: Handle) as "cuMemcpyDtoHAsync" 3020..EVER, true
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpyDtoDAsync_v2_ptsz(to: u64, from: u64, size: usize, stream: Handle) as "cuMemcpyDtoDAsync" 3020..EVER, true
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpy2DAsync_v2_ptsz(copy: *const c_void, stream: Handle) as "cuMemcpy2DAsync" 3020..EVER, true
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpy3DAsync_v2_ptsz(copy: *const c_void, stream: Handle) as "cuMemcpy3DAsync" 3020..EVER, true
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemsetD8Async_ptsz(to: u64, value: u8, count: usize, stream: Handle) as "cuMemsetD8Async" 3020..EVER, true
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemsetD32Async_ptsz(to: u64, value: c_uint, count: usize, stream: Handle) as "cuMemsetD32Async" 3020..EVER, true
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpy(to: u64, from: u64, size: usize) as "cuMemcpy" 4000..EVER, false
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, size: usize) as "cuMemcpyHtoD" 3020..EVER, false
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, size: usize) as "cuMemcpyDtoH" 3020..EVER, false
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpyDtoD_v2(to: u64, from: u64, size: usize) as "cuMemcpyDtoD" 3020..EVER, false
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpy2D_v2(copy: *const c_void) as "cuMemcpy2D" 3020..EVER, false
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpy3D_v2(copy: *const c_void) as "cuMemcpy3D" 3020..EVER, false
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemsetD8_v2(to: u64, value: u8, count: usize) as "cuMemsetD8" 3020..EVER, false
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemsetD32_v2(to: u64, value: c_uint, count: usize) as "cuMemsetD32" 3020..EVER, false
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpy_ptds(to: u64, from: u64, size: usize) as "cuMemcpy" 4000..EVER, true
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpyHtoD_v2_ptds(to: u64, from: *const c_void, size: usize) as "cuMemcpyHtoD" 3020..EVER, true
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpyDtoH_v2_ptds(to: *mut c_void, from: u64, size: usize) as "cuMemcpyDtoH" 3020..EVER, true
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpyDtoD_v2_ptds(to: u64, from: u64, size: usize) as "cuMemcpyDtoD" 3020..EVER, true
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpy2D_v2_ptds(copy: *const c_void) as "cuMemcpy2D" 3020..EVER, true
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemcpy3D_v2_ptds(copy: *const c_void) as "cuMemcpy3D" 3020..EVER, true
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemsetD8_v2_ptds(to: u64, value: u8, count: usize) as "cuMemsetD8" 3020..EVER, true
        = |real| { gate::pass(); None }; then |_| gate::leave();
    fn cuMemsetD32_v2_ptds(to: u64, value: c_uint, count: usize) as "cuMemsetD32" 3020..EVER, true
        = |real| { gate::pass(); None }; then |_| gate::leave();
}

/// Puts our function in the place of the driver's that a program was given.
fn replace(
    code: Code,
    name: *const c_char,
    function: *mut *mut c_void,
    (version, flags): (c_int, u64),
) -> Option<()> {
    if code != 0 || name.is_null() || function.is_null() {
        return None;
    }
    // SAFETY: the driver wrote there just now.
    if unsafe { function.read() }.is_null() {
        return None;
    }
    // SAFETY: the driver read it just now, as a C string.
    let ours = by_name(unsafe { CStr::from_ptr(name) }, version, flags)?;
    // SAFETY: as above.
    unsafe { function.write(ours) };
    Some(())
}
