//! The C library's `dlsym`, behind ours: by it the drivers' own functions are found.
#![expect(unsafe_code, reason = "finds functions")]
use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// The C library's `dlsym`, for `door`, which jumps to it.
pub(crate) static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

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

/// A context, a stream or a pool of a driver.
pub(crate) type Handle = *mut c_void;
