//! Watchers of a program's allocations and frees: Python's history of allocations.
#![expect(unsafe_code, reason = "calls a C function")]
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Kind of event.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// Bytes were allocated.
    Allocated = 0,
    /// Bytes were freed.
    Freed = 1,
    /// A request failed.
    OutOfMemory = 2,
    /// Empty memory went back to the driver.
    Trimmed = 3,
}

/// Event on a device: `bytes` at `address` on `stream`, while `reserved` bytes are held of the driver.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Kind of the event.
    pub happened: Happened,
    /// The device's number.
    pub device: u32,
    /// Address; 0 for an event without a place.
    pub address: u64,
    /// Bytes that were asked for or freed.
    pub bytes: u64,
    /// The stream that asked.
    pub stream: u64,
    /// Bytes that are held of the driver.
    pub reserved: u64,
}

/// A function that looks on. It may be called on any thread, and returns normally.
pub type Watcher = unsafe extern "C" fn(*const Event);

static WATCHER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Has a function called for everything that happens: of a free before anybody else can have the bytes, of all else afterwards. Null ends
/// that. Calls that are under way end by themselves.
///
/// # Safety
///
/// The function may be called until the process ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_torch_watch(watcher: Option<Watcher>) -> c_int {
    let function = watcher.map_or(ptr::null_mut(), |watcher| watcher as *mut c_void);
    WATCHER.store(function, Ordering::Release);
    0
}

/// Tells of something that happened, where somebody looks on. No lock may be held: the function may wait for other threads.
#[inline]
pub(crate) fn tell(event: impl FnOnce() -> Event) {
    let function = WATCHER.load(Ordering::Relaxed);
    if !function.is_null() {
        tell_to(function, &event());
    }
}

#[cold]
fn tell_to(function: *mut c_void, event: &Event) {
    // SAFETY: only `omniheap_torch_watch` stores there, and only functions of this type that are not null.
    let watcher = unsafe { core::mem::transmute::<*mut c_void, Watcher>(function) };
    // SAFETY: whoever gave the function promised that it may be called; the event lives until it returns.
    unsafe { watcher(event) };
}
