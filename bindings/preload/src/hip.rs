//! HIP: the runtime's functions, and those that programs get instead. Each of them has the contract of the runtime's documentation.
//!
//! HIP has one context for each device. This library names it by a handle of its own: the device's number and one.
#![expect(unsafe_code, reason = "exports and calls the runtime's functions")]
use crate::ask::{BUFFER_ID, RANGE_SIZE, RANGE_START};
use crate::book::OUT_OF_MEMORY;
use crate::door::{Door, Hook};
use crate::hooks::table;
use crate::inside::Inside;
use crate::memory::{NOBODYS, PER_THREAD};
use crate::real::Handle;
use crate::vendor::{Native, Shared, State, Thread, Vendor};
use crate::{Code, ask, books, capture, memory, pools};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use omniheap_core::{ErrorKind, Result};
use omniheap_hip::driver::Driver;
use omniheap_hip::sys::{Api, hipStream_t};
use omniheap_hip::{Config, Hip};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::OnceLock;
use std::thread::LocalKey;

const EVER: c_int = c_int::MAX;
/// The element of rows that every device takes.
const WORD: c_uint = 4;
/// A size that no device has.
const TOO_MUCH: usize = 1 << 62;

pub(crate) static DOOR: Door = Door {
    prefix: b"hip",
    work: &[
        "hipLaunch",
        "hipExtLaunch",
        "hipModuleLaunch",
        "hipExtModuleLaunch",
        "hipDrvLaunch",
        "hipGraphLaunch",
        "hipMemcpy",
        "hipMemset",
    ],
    libraries: &[c"libamdhip64.so.7", c"libamdhip64.so.6", c"libamdhip64.so.5", c"libamdhip64.so"],
    hooks: Amd::HOOKS,
    library: AtomicUsize::new(0),
};

thread_local! {
    static THREAD: Thread<Amd> = const { Thread::new() };
    /// The number of this thread's default stream: all of them have one handle.
    static NUMBER: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Relaxed)
    };
}

static STATE: State<Amd> = State::new();

/// Returns the handle of a device's context.
fn context_of(device: c_int) -> Option<Handle> {
    Some(ptr::without_provenance_mut(usize::try_from(device).ok()? + 1))
}

/// Returns the library that the program uses, as the backend calls it.
fn api() -> Option<&'static Api> {
    static API: OnceLock<Option<Api>> = OnceLock::new();
    API.get_or_init(|| {
        // SAFETY: all zeros is a value of this structure.
        let mut about: libc::Dl_info = unsafe { core::mem::zeroed() };
        let function = Amd::find()?.hipMalloc? as *const c_void;
        // SAFETY: a function of a loaded library, and a valid out-pointer.
        if unsafe { libc::dladdr(function, &raw mut about) } == 0 || about.dli_fname.is_null() {
            return None;
        }
        // SAFETY: the loader's own name of the library, which stays loaded.
        let path = unsafe { CStr::from_ptr(about.dli_fname) };
        Api::load_from(Path::new(OsStr::from_bytes(path.to_bytes()))).ok()
    })
    .as_ref()
}

impl Vendor for Amd {
    type Driver = Driver;
    type Gpu = Hip;
    const WAITS: bool = true;
    // The runtime knows no contexts of pointers.
    const OWN: &'static [u32] = &[BUFFER_ID, RANGE_START, RANGE_SIZE];
    const EXPORT: &'static str = "hipIpcGetMemHandle";

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
            allocate: self.hipMalloc,
            free: self.hipFree,
            free_async: self.hipFreeAsync,
            info: self.hipMemGetInfo,
            range: self.hipMemGetAddressRange,
            attribute: self.hipPointerGetAttribute,
            attributes: self.hipDrvPointerGetAttributes,
            export: self.hipIpcGetMemHandle,
            device: self.hipGetDevice,
            devices: self.hipGetDeviceCount,
            pool: self.hipDeviceGetMemPool,
            first_pool: self.hipDeviceGetDefaultMemPool,
            synchronize: self.hipStreamSynchronize,
            is_capturing: self.hipStreamIsCapturing,
        }
    }

    #[inline]
    fn context(&self) -> Option<Handle> {
        let mut device = 0;
        // SAFETY: a valid out-pointer.
        let code = unsafe { self.hipGetDevice?(&raw mut device) };
        if code == 0 { context_of(device) } else { None }
    }

    /// Handles tell streams apart but for those of threads: a stream is forgotten when it is destroyed.
    #[inline]
    fn number(&self, stream: Handle) -> Option<u64> {
        Some(if stream == PER_THREAD { NUMBER.with(|number| *number) } else { 0 })
    }

    fn native(stream: Handle) -> Native<Self> {
        hipStream_t(stream)
    }

    unsafe fn open(context: Handle) -> Result<(Hip, i32)> {
        let ordinal = u32::try_from(context.addr() - 1).map_err(|_| ErrorKind::InvalidConfig)?;
        let api = api().ok_or(ErrorKind::Unsupported)?;
        let hip = Hip::open_on(api, ordinal, Config::new())?;
        let ordinal = hip.ordinal();
        Ok((hip, ordinal))
    }

    /// The runtime says itself that it is out of memory, so that `hipGetLastError` knows.
    fn refuse(&self, code: Code) -> Code {
        let mut none = 0;
        if let Some(allocate) = self.hipMalloc.filter(|_| code == OUT_OF_MEMORY) {
            // SAFETY: a valid out-pointer; nothing has as much memory.
            let _ = unsafe { allocate(&raw mut none, TOO_MUCH) };
        }
        code
    }

    /// HIP's calls may be answered by CUDA's.
    #[inline]
    fn pass_on() -> Option<Inside> {
        Inside::enter()
    }
}

/// Closes the book of a device whose memory is about to go.
fn reset(context: Handle) -> Option<()> {
    capture::end_all::<Amd>(context);
    books::take::<Amd>(context.addr()).map(books::end)
}

/// Answers `hipPointerGetAttributes`, where an address was freed and its memory is still held.
fn describe(real: &Amd, out: *mut c_void, address: u64) -> Option<Code> {
    if !ask::is_gone(real, address) {
        return None;
    }
    // SAFETY: the caller's pointer, as it passed it.
    Some(unsafe { real.hipPointerGetAttributes?(out, NOBODYS) })
}

/// Numbers of blocks or threads, as launches take them.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Dim3 {
    x: c_uint,
    y: c_uint,
    z: c_uint,
}

table! {
    /// The runtime's functions; `None` for those that this runtime does not have.
    Amd;
    asks {
        hipDeviceGetDefaultMemPool(*mut Handle, c_int);
        hipDeviceGetMemPool(*mut Handle, c_int);
        hipGetDevice(*mut c_int);
        hipGetDeviceCount(*mut c_int);
        hipStreamIsCapturing(Handle, *mut c_uint);
        hipStreamSynchronize(Handle);
    }
    answers {
        fn hipMalloc(out: *mut u64, size: usize)
            = |real| memory::allocate(real, out, size); then |code| memory::given::<Amd>(code, out);
        fn hipMallocPitch(out: *mut u64, pitch: *mut usize, width: usize, height: usize)
            = |real| memory::allocate_pitch(real, out, pitch, (width, height), WORD);
            then |code| memory::given::<Amd>(code, out);
        fn hipMemAllocPitch(out: *mut u64, pitch: *mut usize, width: usize, height: usize, element: c_uint)
            = |real| memory::allocate_pitch(real, out, pitch, (width, height), element);
            then |code| memory::given::<Amd>(code, out);
        fn hipExtMallocWithFlags(out: *mut u64, size: usize, flags: c_uint)
            = |real| None; then |code| memory::given::<Amd>(code, out);
        fn hipMallocManaged(out: *mut u64, size: usize, flags: c_uint)
            = |real| None; then |code| memory::given::<Amd>(code, out);
        fn hipFree(address: u64) = |real| memory::free(real, address);
        fn hipMallocAsync(out: *mut u64, size: usize, stream: Handle)
            = |real| memory::allocate_async(real, out, size, stream);
            then |code| memory::given::<Amd>(code, out);
        fn hipMallocFromPoolAsync(out: *mut u64, size: usize, pool: Handle, stream: Handle)
            = |real| memory::allocate_from_pool(real, out, size, (pool, stream));
            then |code| memory::given::<Amd>(code, out);
        fn hipFreeAsync(address: u64, stream: Handle) = |real| memory::free_async(real, address, stream);
        fn hipDeviceSetMemPool(device: c_int, pool: Handle)
            = |real| None; then |code| pools::chosen(real, code, device, pool);
        fn hipMemPoolGetAttribute(pool: Handle, attribute: c_uint, value: *mut c_void)
            = |real| None; then |code| pools::told(real, code, (pool, attribute), value);
        fn hipMemPoolSetAttribute(pool: Handle, attribute: c_uint, value: *mut c_void)
            = |real| None; then |code| pools::set(real, code, (pool, attribute));
        fn hipMemPoolTrimTo(pool: Handle, keep: usize) = |real| { pools::trim(real, pool, keep); None };
        fn hipMemPoolSetAccess(pool: Handle, list: *const c_void, count: usize)
            = |real| None; then |code| {
                // SAFETY: the caller's list, which the runtime has read where it did the call.
                unsafe { pools::opened(real, code, pool, (list, count)) };
            };
        fn hipMemGetInfo(free: *mut usize, total: *mut usize) = |real| ask::info(real, free, total);
        fn hipMemGetAddressRange(base: *mut u64, size: *mut usize, address: u64)
            = |real| ask::range(real, base, size, address);
        fn hipPointerGetAttribute(data: *mut c_void, attribute: c_uint, address: u64)
            = |real| ask::attribute(real, data, attribute, address);
        fn hipDrvPointerGetAttributes(count: c_uint, kinds: *const c_uint, data: *mut *mut c_void, address: u64)
            = |real| ask::attributes(real, (count, kinds, data), address);
        fn hipPointerGetAttributes(out: *mut c_void, address: u64) = |real| describe(real, out, address);
        fn hipIpcGetMemHandle(handle: *mut c_void, address: u64) = |real| ask::export(real, handle, address);
        fn hipDeviceReset() = |real| { real.context().and_then(reset); None };
        fn hipDevicePrimaryCtxReset(device: c_int) = |real| { context_of(device).and_then(reset); None };
        fn hipStreamBeginCapture(stream: Handle, mode: c_uint) as "hipStreamBeginCapture" 0..EVER, false
            = |real| { capture::begin(real, stream); None };
            then |code| if code != 0 { capture::end::<Amd>(stream) };
        fn hipStreamBeginCapture_spt(stream: Handle, mode: c_uint) as "hipStreamBeginCapture" 0..EVER, true
            = |real| { capture::begin(real, memory::per_thread(stream)); None };
            then |code| if code != 0 { capture::end::<Amd>(memory::per_thread(stream)) };
        fn hipStreamBeginCaptureToGraph(
            stream: Handle, graph: Handle, nodes: *const c_void, data: *const c_void, count: usize, mode: c_uint)
            = |real| { capture::begin(real, stream); None };
            then |code| if code != 0 { capture::end::<Amd>(stream) };
        fn hipStreamEndCapture(stream: Handle, graph: *mut Handle) as "hipStreamEndCapture" 0..EVER, false
            = |real| { capture::ending(real, stream); None }; then |_| capture::ended(real, stream);
        fn hipStreamEndCapture_spt(stream: Handle, graph: *mut Handle) as "hipStreamEndCapture" 0..EVER, true
            = |real| { capture::ending(real, memory::per_thread(stream)); None };
            then |_| capture::ended(real, memory::per_thread(stream));
        fn hipStreamDestroy(stream: Handle)
            = |real| { capture::destroying::<Amd>(stream); books::ending_stream(real, stream); None };
            then |code| { capture::destroyed::<Amd>(stream, code == 0); books::ended_stream::<Amd>(code == 0) };
        fn hipGetProcAddress(
            name: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int)
            = |real| None; then |code| DOOR.replace(code, name, function, (version, flags));
    }
    gates {
        fn hipLaunchKernel(function_: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared: usize, stream: Handle) as "hipLaunchKernel" 0..EVER, false;
        fn hipLaunchKernel_spt(function_: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared: usize, stream: Handle) as "hipLaunchKernel" 0..EVER, true;
        fn hipLaunchCooperativeKernel(function_: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared: c_uint, stream: Handle) as "hipLaunchCooperativeKernel" 0..EVER, false;
        fn hipLaunchCooperativeKernel_spt(function_: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared: c_uint, stream: Handle) as "hipLaunchCooperativeKernel" 0..EVER, true;
        fn hipLaunchKernelExC(config: *const c_void, function_: *const c_void, arguments: *mut *mut c_void);
        fn hipDrvLaunchKernelEx(config: *const c_void, function_: Handle, arguments: *mut *mut c_void, extra: *mut *mut c_void);
        fn hipExtLaunchKernel(function_: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared: usize, stream: Handle, start: Handle, end: Handle, flags: c_int);
        fn hipModuleLaunchKernel(function_: Handle, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, arguments: *mut *mut c_void, extra: *mut *mut c_void);
        fn hipModuleLaunchCooperativeKernel(function_: Handle, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, arguments: *mut *mut c_void);
        fn hipExtModuleLaunchKernel(function_: Handle, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: usize, stream: Handle, arguments: *mut *mut c_void, extra: *mut *mut c_void, start: Handle, end: Handle, flags: c_uint);
        fn hipGraphLaunch(graph: Handle, stream: Handle) as "hipGraphLaunch" 0..EVER, false;
        fn hipGraphLaunch_spt(graph: Handle, stream: Handle) as "hipGraphLaunch" 0..EVER, true;
        fn hipMemcpy(to: *mut c_void, from: *const c_void, size: usize, kind: c_uint) as "hipMemcpy" 0..EVER, false;
        fn hipMemcpy_spt(to: *mut c_void, from: *const c_void, size: usize, kind: c_uint) as "hipMemcpy" 0..EVER, true;
        fn hipMemcpyWithStream(to: *mut c_void, from: *const c_void, size: usize, kind: c_uint, stream: Handle);
        fn hipMemcpyAsync(to: *mut c_void, from: *const c_void, size: usize, kind: c_uint, stream: Handle) as "hipMemcpyAsync" 0..EVER, false;
        fn hipMemcpyAsync_spt(to: *mut c_void, from: *const c_void, size: usize, kind: c_uint, stream: Handle) as "hipMemcpyAsync" 0..EVER, true;
        fn hipMemcpyHtoD(to: u64, from: *const c_void, size: usize);
        fn hipMemcpyDtoH(to: *mut c_void, from: u64, size: usize);
        fn hipMemcpyDtoD(to: u64, from: u64, size: usize);
        fn hipMemcpyHtoDAsync(to: u64, from: *const c_void, size: usize, stream: Handle);
        fn hipMemcpyDtoHAsync(to: *mut c_void, from: u64, size: usize, stream: Handle);
        fn hipMemcpyDtoDAsync(to: u64, from: u64, size: usize, stream: Handle);
        fn hipMemcpy2D(to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize, kind: c_uint) as "hipMemcpy2D" 0..EVER, false;
        fn hipMemcpy2D_spt(to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize, kind: c_uint) as "hipMemcpy2D" 0..EVER, true;
        fn hipMemcpy2DAsync(to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize, kind: c_uint, stream: Handle) as "hipMemcpy2DAsync" 0..EVER, false;
        fn hipMemcpy2DAsync_spt(to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize, kind: c_uint, stream: Handle) as "hipMemcpy2DAsync" 0..EVER, true;
        fn hipMemset(to: *mut c_void, value: c_int, size: usize) as "hipMemset" 0..EVER, false;
        fn hipMemset_spt(to: *mut c_void, value: c_int, size: usize) as "hipMemset" 0..EVER, true;
        fn hipMemsetAsync(to: *mut c_void, value: c_int, size: usize, stream: Handle) as "hipMemsetAsync" 0..EVER, false;
        fn hipMemsetAsync_spt(to: *mut c_void, value: c_int, size: usize, stream: Handle) as "hipMemsetAsync" 0..EVER, true;
        fn hipMemsetD8(to: u64, value: u8, count: usize);
        fn hipMemsetD8Async(to: u64, value: u8, count: usize, stream: Handle);
        fn hipMemsetD32(to: u64, value: c_int, count: usize);
        fn hipMemsetD32Async(to: u64, value: c_int, count: usize, stream: Handle);
    }
}
