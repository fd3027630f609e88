//! The doors through which programs find a driver's functions: `dlsym` and the driver's own lookup here, and exported symbols.
#![expect(unsafe_code, reason = "stands before the C library's dlsym")]
use crate::inside::is_inside;
use crate::real::{self, REAL_DLSYM};
use crate::{Code, cuda, hip, settings};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Programs that want the functions of the calling thread's default stream ask with this bit.
const PER_THREAD: u64 = 2;
/// Flag of handles: the next library that has the symbol, behind the caller.
const NEXT: *mut c_void = libc::RTLD_NEXT;

/// One of our functions, and the name and version by which the driver has it.
pub(crate) struct Hook {
    /// The exported symbol.
    pub(crate) symbol: &'static str,
    /// The name that the driver's own lookup knows.
    pub(crate) name: &'static str,
    /// The driver's first version whose function of this name has this signature.
    pub(crate) since: c_int,
    /// The first version in which it has another signature.
    pub(crate) until: c_int,
    /// True if the function is the variant for the calling thread's default stream.
    pub(crate) per_thread: bool,
    pub(crate) function: *const (),
}

impl Hook {
    /// Returns a function that every version of the driver has, by one name.
    pub(crate) const fn plain(symbol: &'static str, function: *const ()) -> Self {
        Self { symbol, name: symbol, since: 0, until: c_int::MAX, per_thread: false, function }
    }
}

// SAFETY: the pointer is that of a function.
unsafe impl Sync for Hook {}

/// A vendor's driver, as programs find it.
pub(crate) struct Door {
    /// The start of the names of its functions.
    pub(crate) prefix: &'static [u8],
    /// Starts of the names of those that submit work on device memory. They pass a gate if memory can sleep, and are the driver's
    /// otherwise.
    pub(crate) work: &'static [&'static str],
    /// Names of its library.
    pub(crate) libraries: &'static [&'static CStr],
    /// The functions that programs get.
    pub(crate) hooks: &'static [Hook],
    /// Handle of its library, once it was found.
    pub(crate) library: AtomicUsize,
}

static DOORS: [&Door; 2] = [&cuda::DOOR, &hip::DOOR];

impl Door {
    /// Returns true if programs that look a function up shall get ours.
    fn is_wanted(&self, hook: &Hook) -> bool {
        !self.work.iter().any(|work| hook.name.starts_with(work)) || settings::get().sleeps
    }

    /// Opens the library by the first of its names that can be opened so; null where there is none.
    fn open(&self, flags: c_int) -> *mut c_void {
        // SAFETY: C strings; loading the driver has no preconditions.
        let open = |name: &&CStr| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | flags) };
        let found = self.libraries.iter().map(open).find(|found| !found.is_null());
        found.unwrap_or(ptr::null_mut())
    }

    /// Returns the handle of the driver's library, loaded now if it was not; null where there is none. It stays loaded for good.
    pub(crate) fn library(&self) -> *mut c_void {
        let known = self.library.load(Relaxed);
        if known != 0 {
            return ptr::with_exposed_provenance_mut(known);
        }
        let loaded = self.open(libc::RTLD_NOLOAD);
        let handle = if loaded.is_null() { self.open(0) } else { loaded };
        self.library.store(handle.expose_provenance(), Relaxed);
        handle
    }

    /// Returns true if the driver is loaded. Without it, a lookup of its names must fail, although we have them too.
    fn is_loaded(&self) -> bool {
        let driver = self.open(libc::RTLD_NOLOAD);
        if !driver.is_null() {
            // SAFETY: opened above.
            unsafe { libc::dlclose(driver) };
        }
        !driver.is_null()
    }

    /// Returns our function for a name that a program asks the driver for, if we have one.
    fn by_name(&self, name: &CStr, version: c_int, flags: u64) -> Option<*mut c_void> {
        let name = name.to_bytes();
        let fits = |hook: &&Hook| {
            hook.name.as_bytes() == name && (hook.since..hook.until).contains(&version)
        };
        let wanted = flags & PER_THREAD != 0;
        let mut found = self.hooks.iter().filter(fits);
        let first = found.next()?;
        let other = Some(first).into_iter().chain(found).find(|hook| hook.per_thread == wanted);
        let hook = other.unwrap_or(first);
        self.is_wanted(hook).then(|| hook.function.cast_mut().cast())
    }

    /// Puts our function in the place of the driver's that a program was given.
    pub(crate) fn replace(
        &self,
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
        let ours = self.by_name(unsafe { CStr::from_ptr(name) }, version, flags)?;
        // SAFETY: as above.
        unsafe { function.write(ours) };
        Some(())
    }
}

/// Returns our function of a name, and its driver.
fn find(name: &CStr) -> Option<(&'static Door, &'static Hook)> {
    let name = name.to_bytes();
    let door = DOORS.into_iter().find(|door| name.starts_with(door.prefix))?;
    Some((door, door.hooks.iter().find(|hook| hook.symbol.as_bytes() == name)?))
}

/// The handle that stands for all libraries, this one among them.
const EVERYWHERE: *mut c_void = libc::RTLD_DEFAULT;

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
    let is_missing = found.is_null() && handle == EVERYWHERE && !name.is_null();
    // SAFETY: as above.
    let ours = if is_missing { find(unsafe { CStr::from_ptr(name) }) } else { None };
    let handle = if ours.is_some_and(|(door, _)| !door.is_loaded()) {
        // The C library has none of these names, so `dlerror` reports that. It stays loaded anyway.
        // SAFETY: a C string; nothing is loaded.
        unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) }
    } else {
        handle
    };
    Decision { found, handle }
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
    let Some((door, hook)) = find(name) else { return ptr::null_mut() };
    if is_inside() {
        // A backend looks the driver up, perhaps by a handle of ours.
        // SAFETY: the driver stays loaded.
        return unsafe { real::look_up(door.library(), name.as_ptr()) };
    }
    if handle == EVERYWHERE && !door.is_loaded() {
        return ptr::null_mut();
    }
    // SAFETY: the caller's promise.
    let found = unsafe { real::look_up(handle, name.as_ptr()) };
    if found.is_null() || !door.is_wanted(hook) {
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
