//! The driver's own functions, found once, by a handle of its library.
#![expect(unsafe_code, reason = "finds the driver's functions")]
use crate::Code;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};
use std::sync::OnceLock;

/// The C library's `dlsym`, for `door`, which jumps to it.
pub(crate) static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

static LIBRARY: AtomicUsize = AtomicUsize::new(0);

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// Versions of the C library's `dlsym` on x86-64: since 2.34, and before.
const VERSIONS: [&CStr; 2] = [c"GLIBC_2.34", c"GLIBC_2.2.5"];

/// Finds the C library's `dlsym`, behind ours.
pub(crate) fn find_dlsym() -> *mut c_void {
    let known = REAL_DLSYM.load(Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: both are C strings.
    let find = |version: &&CStr| unsafe {
        libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr())
    };
    let found = VERSIONS.iter().map(find).find(|found| !found.is_null());
    let found = found.unwrap_or(ptr::null_mut());
    REAL_DLSYM.store(found, Relaxed);
    found
}

/// Looks a symbol up, past our own `dlsym`.
///
/// # Safety
///
/// As for `dlsym`.
pub(crate) unsafe fn look_up(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let found = find_dlsym();
    if found.is_null() {
        return found;
    }
    // SAFETY: it is the C library's function of this signature.
    let dlsym = unsafe { core::mem::transmute::<*mut c_void, Dlsym>(found) };
    // SAFETY: the caller's promise.
    unsafe { dlsym(handle, name) }
}

/// Returns the handle of the driver's library, loaded now if it was not; null where there is none.
pub(crate) fn library() -> *mut c_void {
    let known = LIBRARY.load(Relaxed);
    if known != 0 {
        return ptr::with_exposed_provenance_mut(known);
    }
    // SAFETY: a C string; loading the driver has no preconditions. It stays loaded for good.
    let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY) };
    LIBRARY.store(handle.expose_provenance(), Relaxed);
    handle
}

macro_rules! functions {
    ($($name:ident($($kind:ty),*);)*) => {
        /// The driver's functions; `None` for those that this driver does not have.
        #[expect(non_snake_case, reason = "the driver's names")]
        pub(crate) struct Real {
            $(pub(crate) $name: Option<unsafe extern "C" fn($($kind),*) -> Code>,)*
        }

        impl Real {
            fn find(library: *mut c_void) -> Self {
                Self {$(
                    $name: {
                        let name = concat!(stringify!($name), "\0").as_ptr().cast();
                        // SAFETY: the library stays loaded, and the name is a C string.
                        let found = unsafe { look_up(library, name) };
                        // SAFETY: the signature is the documented one; null is `None`.
                        unsafe { core::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($kind),*) -> Code>>(found) }
                    },
                )*}
            }
        }
    };
}

/// A context, a stream or a pool of the driver.
pub(crate) type Handle = *mut c_void;

functions! {
    cuCtxAttach(*mut Handle, c_uint);
    cuCtxDetach(Handle);
    cuCtxFromGreenCtx(*mut Handle, Handle);
    cuCtxGetCurrent(*mut Handle);
    cuCtxGetDevice(*mut c_int);
    cuCtxPushCurrent_v2(Handle);
    cuCtxPopCurrent_v2(*mut Handle);
    cuCtxDestroy(Handle);
    cuCtxDestroy_v2(Handle);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGetDefaultMemPool(*mut Handle, c_int);
    cuDeviceGetMemPool(*mut Handle, c_int);
    cuDeviceSetMemPool(c_int, Handle);
    cuDevicePrimaryCtxGetState(c_int, *mut c_uint, *mut c_int);
    cuDevicePrimaryCtxRelease(c_int);
    cuDevicePrimaryCtxRelease_v2(c_int);
    cuDevicePrimaryCtxReset(c_int);
    cuDevicePrimaryCtxReset_v2(c_int);
    cuDevicePrimaryCtxRetain(*mut Handle, c_int);
    cuGreenCtxCreate(*mut Handle, Handle, c_int, c_uint);
    cuGreenCtxDestroy(Handle);
    cuGetProcAddress(*const c_char, *mut *mut c_void, c_int, u64);
    cuGetProcAddress_v2(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int);
    cuIpcGetMemHandle(*mut c_void, u64);
    cuMemAllocAsync(*mut u64, usize, Handle);
    cuMemAllocAsync_ptsz(*mut u64, usize, Handle);
    cuMemAllocFromPoolAsync(*mut u64, usize, Handle, Handle);
    cuMemAllocFromPoolAsync_ptsz(*mut u64, usize, Handle, Handle);
    cuMemAllocPitch_v2(*mut u64, *mut usize, usize, usize, c_uint);
    cuMemAlloc_v2(*mut u64, usize);
    cuMemAllocManaged(*mut u64, usize, c_uint);
    cuMemFreeAsync(u64, Handle);
    cuMemFreeAsync_ptsz(u64, Handle);
    cuMemFree_v2(u64);
    cuMemGetAddressRange_v2(*mut u64, *mut usize, u64);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemSetMemPool(*const c_void, c_uint, Handle);
    cuMemPoolGetAttribute(Handle, c_uint, *mut c_void);
    cuMemPoolSetAttribute(Handle, c_uint, *mut c_void);
    cuMemPoolTrimTo(Handle, usize);
    cuMemPoolSetAccess(Handle, *const c_void, usize);
    cuPointerGetAttribute(*mut c_void, c_uint, u64);
    cuPointerGetAttributes(c_uint, *const c_uint, *mut *mut c_void, u64);
    cuStreamBeginCapture(Handle);
    cuStreamBeginCapture_ptsz(Handle);
    cuStreamBeginCapture_v2(Handle, c_uint);
    cuStreamBeginCapture_v2_ptsz(Handle, c_uint);
    cuStreamBeginCaptureToGraph(Handle, Handle, *const c_void, *const c_void, usize, c_uint);
    cuStreamBeginCaptureToGraph_ptsz(Handle, Handle, *const c_void, *const c_void, usize, c_uint);
    cuStreamDestroy(Handle);
    cuStreamDestroy_v2(Handle);
    cuStreamEndCapture(Handle, *mut Handle);
    cuStreamEndCapture_ptsz(Handle, *mut Handle);
    cuStreamGetId(Handle, *mut u64);
    cuStreamIsCapturing(Handle, *mut c_uint);
    cuStreamSynchronize(Handle);
    cuLaunchKernel(Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void);
    cuLaunchKernelEx(*const c_void, Handle, *mut *mut c_void, *mut *mut c_void);
    cuLaunchCooperativeKernel(Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void);
    cuGraphLaunch(Handle, Handle);
    cuMemcpyAsync(u64, u64, usize, Handle);
    cuMemcpyHtoDAsync_v2(u64, *const c_void, usize, Handle);
    cuMemcpyDtoHAsync_v2(*mut c_void, u64, usize, Handle);
    cuMemcpyDtoDAsync_v2(u64, u64, usize, Handle);
    cuMemcpy2DAsync_v2(*const c_void, Handle);
    cuMemcpy3DAsync_v2(*const c_void, Handle);
    cuMemsetD8Async(u64, u8, usize, Handle);
    cuMemsetD32Async(u64, c_uint, usize, Handle);
    cuLaunchKernel_ptsz(Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void);
    cuLaunchKernelEx_ptsz(*const c_void, Handle, *mut *mut c_void, *mut *mut c_void);
    cuLaunchCooperativeKernel_ptsz(Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void);
    cuGraphLaunch_ptsz(Handle, Handle);
    cuMemcpyAsync_ptsz(u64, u64, usize, Handle);
    cuMemcpyHtoDAsync_v2_ptsz(u64, *const c_void, usize, Handle);
    cuMemcpyDtoHAsync_v2_ptsz(*mut c_void, u64, usize, Handle);
    cuMemcpyDtoDAsync_v2_ptsz(u64, u64, usize, Handle);
    cuMemcpy2DAsync_v2_ptsz(*const c_void, Handle);
    cuMemcpy3DAsync_v2_ptsz(*const c_void, Handle);
    cuMemsetD8Async_ptsz(u64, u8, usize, Handle);
    cuMemsetD32Async_ptsz(u64, c_uint, usize, Handle);
    cuMemcpy(u64, u64, usize);
    cuMemcpyHtoD_v2(u64, *const c_void, usize);
    cuMemcpyDtoH_v2(*mut c_void, u64, usize);
    cuMemcpyDtoD_v2(u64, u64, usize);
    cuMemcpy2D_v2(*const c_void);
    cuMemcpy3D_v2(*const c_void);
    cuMemsetD8_v2(u64, u8, usize);
    cuMemsetD32_v2(u64, c_uint, usize);
    cuMemcpy_ptds(u64, u64, usize);
    cuMemcpyHtoD_v2_ptds(u64, *const c_void, usize);
    cuMemcpyDtoH_v2_ptds(*mut c_void, u64, usize);
    cuMemcpyDtoD_v2_ptds(u64, u64, usize);
    cuMemcpy2D_v2_ptds(*const c_void);
    cuMemcpy3D_v2_ptds(*const c_void);
    cuMemsetD8_v2_ptds(u64, u8, usize);
    cuMemsetD32_v2_ptds(u64, c_uint, usize);
}

/// Returns the driver's functions; `None` where there is no driver.
#[inline]
pub(crate) fn driver() -> Option<&'static Real> {
    static FOUND: OnceLock<Real> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Some(found);
    }
    let library = library();
    (!library.is_null()).then(|| FOUND.get_or_init(|| Real::find(library)))
}
