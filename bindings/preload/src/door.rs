//! The doors through which programs find the driver's functions: `dlsym` here, `cuGetProcAddress` in `hooks`, and exported symbols.
#![expect(unsafe_code, reason = "stands before the C library's dlsym")]
use crate::hooks::HOOKS;
use crate::inside::is_inside;
use crate::real::{self, REAL_DLSYM};
use crate::settings;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

/// Programs that want the functions of the calling thread's default stream ask with this bit.
const PER_THREAD: u64 = 2;
/// Flag of handles: the next library that has the symbol, behind the caller.
const NEXT: *mut c_void = libc::RTLD_NEXT;

/// One of our functions, and the name and version by which the driver has it.
pub(crate) struct Hook {
    /// The exported symbol.
    pub(crate) symbol: &'static str,
    /// The name that `cuGetProcAddress` knows.
    pub(crate) name: &'static str,
    /// The first CUDA version whose function of this name has this signature.
    pub(crate) since: c_int,
    /// The first CUDA version in which it has another signature.
    pub(crate) until: c_int,
    /// True if the function is the variant for the calling thread's default stream.
    pub(crate) per_thread: bool,
    pub(crate) function: *const (),
}

// SAFETY: the pointer is that of a function.
unsafe impl Sync for Hook {}

/// Prefixes of functions that submit work on device memory. They pass a gate if memory can sleep, and are the driver's otherwise.
const WORK: [&str; 4] = ["cuLaunch", "cuGraphLaunch", "cuMemcpy", "cuMemset"];

/// Returns true if programs that look a function up shall get ours.
fn is_wanted(hook: &Hook) -> bool {
    !WORK.iter().any(|work| hook.name.starts_with(work)) || settings::get().sleeps
}

/// Returns our function for a name that a program asks the driver for, if we have one.
pub(crate) fn by_name(name: &CStr, version: c_int, flags: u64) -> Option<*mut c_void> {
    let name = name.to_bytes();
    let fits =
        |hook: &&Hook| hook.name.as_bytes() == name && (hook.since..hook.until).contains(&version);
    let wanted = flags & PER_THREAD != 0;
    let mut found = HOOKS.iter().filter(fits);
    let first = found.next()?;
    let other = Some(first).into_iter().chain(found).find(|hook| hook.per_thread == wanted);
    let hook = other.unwrap_or(first);
    is_wanted(hook).then(|| hook.function.cast_mut().cast())
}

/// The handle that stands for all libraries, this one among them.
const EVERYWHERE: *mut c_void = libc::RTLD_DEFAULT;

/// Returns true if the driver is loaded. Without it, a lookup of its names must fail, although we have them too.
fn is_driver_loaded() -> bool {
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    // SAFETY: a C string; nothing is loaded.
    let driver = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), flags) };
    if !driver.is_null() {
        // SAFETY: opened above.
        unsafe { libc::dlclose(driver) };
    }
    !driver.is_null()
}

/// Answer to `dlsym`, in the two registers of a result. If `found` is null, the C library answers, for `handle`.
#[repr(C)]
struct Decision {
    found: *mut c_void,
    handle: *mut c_void,
}

/// Decides what `dlsym` returns.
///
/// # Safety
///
/// As for `dlsym`.
unsafe extern "C" fn decide(handle: *mut c_void, name: *const c_char) -> Decision {
    // SAFETY: the caller's promise.
    let found = unsafe { choose(handle, name) };
    // SAFETY: as above.
    let is_ours_alone = found.is_null() && handle == EVERYWHERE && unsafe { is_hook(name) };
    let handle = if is_ours_alone && !is_driver_loaded() {
        // The C library has none of these names, so `dlerror` reports that. It stays loaded anyway.
        // SAFETY: a C string; nothing is loaded.
        unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) }
    } else {
        handle
    };
    Decision { found, handle }
}

/// Returns true if one of our functions has this name.
///
/// # Safety
///
/// `name` is null or a C string.
unsafe fn is_hook(name: *const c_char) -> bool {
    // SAFETY: the caller's promise.
    let is_named = || unsafe { CStr::from_ptr(name) }.to_bytes();
    !name.is_null() && HOOKS.iter().any(|hook| hook.symbol.as_bytes() == is_named())
}

/// Returns our function if the program is to get it, or null if the C library must answer.
///
/// # Safety
///
/// As for `dlsym`.
unsafe fn choose(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    real::find_dlsym();
    if name.is_null() || handle == NEXT {
        return ptr::null_mut();
    }
    // SAFETY: the caller passes a C string.
    let name = unsafe { CStr::from_ptr(name) };
    if !name.to_bytes().starts_with(b"cu") {
        return ptr::null_mut();
    }
    let Some(hook) = HOOKS.iter().find(|hook| hook.symbol.as_bytes() == name.to_bytes()) else {
        return ptr::null_mut();
    };
    if is_inside() {
        // The CUDA backend looks the driver up, perhaps by a handle of ours.
        // SAFETY: the driver stays loaded.
        return unsafe { real::look_up(real::library(), name.as_ptr()) };
    }
    if handle == EVERYWHERE && !is_driver_loaded() {
        return ptr::null_mut();
    }
    // SAFETY: the caller's promise.
    let found = unsafe { real::look_up(handle, name.as_ptr()) };
    if found.is_null() || !is_wanted(hook) {
        // The C library looks it up once more, so that its `dlerror` says why it is missing.
        return ptr::null_mut();
    }
    hook.function.cast_mut().cast()
}

/// Replaces the C library's `dlsym`. For `RTLD_NEXT` that function looks at its caller, so this one jumps to it with the caller's
/// own return address.
///
/// # Safety
///
/// As for `dlsym`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {decide}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        "mov rdi, rdx",
        "mov rax, qword ptr [rip + {real}]",
        "jmp rax",
        decide = sym decide,
        real = sym REAL_DLSYM,
    )
}
