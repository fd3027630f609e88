//! Status that every function returns, and the guard around each of them.
#![expect(unsafe_code, reason = "reads and writes through the caller's pointers")]
use core::cell::RefCell;
use core::ffi::{CStr, c_char};
use core::panic::AssertUnwindSafe;
use omniheap::residency::SleepError;
use omniheap::{AllocateError, Error, ErrorKind};
use std::collections::VecDeque;
use std::ffi::CString;
use std::panic::catch_unwind;

/// Status of a call. Zero is success; `omniheap_error` says more.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OmniheapStatus {
    /// The call did what it says.
    Ok = 0,
    /// The device has no memory left: free something, trim, or wait for a timeline.
    OutOfDeviceMemory = 1,
    /// The host has no memory left.
    OutOfHostMemory = 2,
    /// Enough bytes are free, but scattered: defragment.
    Fragmented = 3,
    /// The request can never fit: ask for less, or for another heap.
    ExceedsLimit = 4,
    /// A budget forbids it: raise it, or free something.
    OverBudget = 5,
    /// Zero bytes were asked for.
    ZeroSize = 6,
    /// The alignment is not a power of two that the heap can give.
    InvalidAlignment = 7,
    /// Size or offset overflows 64 bits.
    SizeOverflow = 8,
    /// The range lies outside the allocation.
    OutOfRange = 9,
    /// Offset or length is not a multiple of the device's copy alignment.
    Misaligned = 10,
    /// No heap of the device satisfies the request.
    NoSuchHeap = 11,
    /// The timeline was closed or belongs to another device, or the epoch was never marked on it.
    NoSuchTimeline = 12,
    /// The handle belongs to another manager.
    Foreign = 13,
    /// The handle was freed, closed or ended already, or never existed.
    Stale = 14,
    /// The object is still in use: free its allocations, or wait.
    Busy = 15,
    /// The host cannot see these bytes: use write and read.
    NotMappable = 16,
    /// The backend lacks the capability, or is not here.
    Unsupported = 17,
    /// A setting contradicts itself or the device.
    InvalidConfig = 18,
    /// The device is lost: open a new one.
    DeviceLost = 19,
    /// The driver refused; the message has its code.
    Driver = 20,
    /// A pointer that must not be null is null.
    NullArgument = 21,
    /// A number stands for nothing, a text is not UTF-8, or a pointer is not aligned for what it points to.
    InvalidArgument = 22,
    /// The buffer is too short; the length that was returned says how long it must be.
    ShortBuffer = 23,
    /// A file could not be written; the message says why.
    File = 24,
    /// A bug in omniheap: please report it.
    Bug = 25,
    /// The bytes were published, and are read-only: allocate new ones.
    Published = 26,
    /// Copies of one batch, or targets of one load, overlap: split them.
    Overlap = 27,
    /// A pool's own strategy broke its contract; pools that C makes have none.
    BadStrategy = 28,
    /// The pool is asleep: wake it first.
    Asleep = 29,
    /// The pool sleeps already; nothing was changed.
    AlreadyAsleep = 30,
    /// The pool is awake already; nothing was changed.
    AlreadyAwake = 31,
    /// Nothing is published under the name that this user may attach.
    NotPublished = 32,
    /// Something is published under the name: withdraw it first, or choose another.
    NameTaken = 33,
    /// The bytes are not those that were published: their digest differs.
    Changed = 34,
    /// A weights file that cannot be read, is damaged, or changed while it was loaded.
    BadFile = 35,
    /// No tensor has this name or number.
    NoSuchTensor = 36,
    /// The caller's own function cancelled the call.
    Cancelled = 37,
}

impl From<ErrorKind> for OmniheapStatus {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::OutOfDeviceMemory => Self::OutOfDeviceMemory,
            ErrorKind::OutOfHostMemory => Self::OutOfHostMemory,
            ErrorKind::Fragmented => Self::Fragmented,
            ErrorKind::ExceedsLimit => Self::ExceedsLimit,
            ErrorKind::OverBudget => Self::OverBudget,
            ErrorKind::ZeroSize => Self::ZeroSize,
            ErrorKind::InvalidAlignment => Self::InvalidAlignment,
            ErrorKind::SizeOverflow => Self::SizeOverflow,
            ErrorKind::OutOfRange => Self::OutOfRange,
            ErrorKind::Misaligned => Self::Misaligned,
            ErrorKind::Overlap => Self::Overlap,
            ErrorKind::NoSuchHeap => Self::NoSuchHeap,
            ErrorKind::NoSuchTimeline => Self::NoSuchTimeline,
            ErrorKind::Foreign => Self::Foreign,
            ErrorKind::Stale => Self::Stale,
            ErrorKind::Busy => Self::Busy,
            ErrorKind::NotMappable => Self::NotMappable,
            ErrorKind::Published => Self::Published,
            ErrorKind::Unsupported => Self::Unsupported,
            ErrorKind::InvalidConfig => Self::InvalidConfig,
            ErrorKind::BadStrategy => Self::BadStrategy,
            ErrorKind::Asleep => Self::Asleep,
            ErrorKind::AlreadyAsleep => Self::AlreadyAsleep,
            ErrorKind::AlreadyAwake => Self::AlreadyAwake,
            ErrorKind::DeviceLost => Self::DeviceLost,
            _ => Self::Driver,
        }
    }
}

/// Failure of a call: the code, and a sentence that says what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: OmniheapStatus,
    message: String,
}

impl Failure {
    pub(crate) fn new(status: OmniheapStatus, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// An argument that must not be null.
    pub(crate) fn null(name: &str) -> Self {
        let message = format!("{name} is a null pointer; pass the address of something");
        Self::new(OmniheapStatus::NullArgument, message)
    }

    /// The same failure, of something with a name.
    pub(crate) fn of(self, name: &str) -> Self {
        Self { message: format!("{name}: {}", self.message), ..self }
    }

    /// A number or text that stands for nothing.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(OmniheapStatus::InvalidArgument, message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(error.kind().into(), error.to_string())
    }
}

impl From<ErrorKind> for Failure {
    fn from(kind: ErrorKind) -> Self {
        Error::new(kind).into()
    }
}

impl From<SleepError> for Failure {
    fn from(error: SleepError) -> Self {
        Self::new(error.kind().into(), error.to_string())
    }
}

impl From<AllocateError> for Failure {
    fn from(error: AllocateError) -> Self {
        Self::new(error.kind().into(), error.to_string())
    }
}

/// Messages of a thread that are kept: a caller may compare two, or ask again while it handles one.
const KEPT: usize = 16;

thread_local! {
    static MESSAGES: RefCell<VecDeque<CString>> = const { RefCell::new(VecDeque::new()) };
}

/// Keeps a message as the last of this thread.
fn keep(message: CString) {
    // A thread that is ending has nobody left to ask.
    let _ = MESSAGES.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        kept.truncate(KEPT - 1);
        kept.push_front(message);
    });
}

/// Runs a call: a failure leaves its message with the thread, a panic goes no further.
pub(crate) fn call(work: impl FnOnce() -> Result<(), Failure>) -> OmniheapStatus {
    let bug =
        || Failure::new(OmniheapStatus::Bug, "omniheap met a bug of its own; please report it");
    match catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(bug())) {
        Ok(()) => OmniheapStatus::Ok,
        Err(Failure { status, message }) => {
            let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
            keep(message);
            status
        }
    }
}

/// The sentence of this thread's last failed call: what happened, and what to do. The text stays where it is until the same
/// thread has failed sixteen more times, or ends; calls of other threads do not change it.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_error() -> *const c_char {
    let last = MESSAGES.try_with(|kept| kept.borrow().front().map(|message| message.as_ptr()));
    last.ok().flatten().unwrap_or(c"".as_ptr())
}

/// The version of the library: major in bits 16 to 23, minor in bits 8 to 15, patch in bits 0 to 7. The ABI changes with major and minor: compare
/// `omniheap_version() >> 8`.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_version() -> u32 {
    OMNIHEAP_VERSION
}

/// The version that the header was made for; `omniheap_version` says which the library has.
pub const OMNIHEAP_VERSION: u32 = 0x0000_0100;

/// Refuses a pointer that cannot point to a `T`. Calls with an effect check the pointers of their results before it.
pub(crate) fn check<T>(pointer: *const T, name: &str) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(Failure::null(name));
    }
    if !pointer.is_aligned() {
        let align = align_of::<T>();
        let message =
            format!("{name} is not at a multiple of {align} bytes; pass an aligned pointer");
        return Err(Failure::invalid(message));
    }
    Ok(())
}

/// Refuses a pointer as [`check`] does, and more items than memory can have: a negative number that a caller passed.
pub(crate) fn check_many<T>(pointer: *const T, count: usize, name: &str) -> Result<(), Failure> {
    check(pointer, name)?;
    let bytes = count.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
    bytes.map(|_| ()).ok_or_else(|| ErrorKind::SizeOverflow.into())
}

/// Writes a result.
///
/// # Safety
///
/// `pointer` is null, or not aligned, or may be written.
pub(crate) unsafe fn put<T>(pointer: *mut T, value: T, name: &str) -> Result<(), Failure> {
    check(pointer, name)?;
    // SAFETY: not null and aligned, and otherwise the caller's promise.
    unsafe { pointer.write(value) };
    Ok(())
}

/// A text that must be there.
///
/// # Safety
///
/// `pointer` is null or a C string.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::invalid(format!("{name} is not UTF-8; pass UTF-8")))
}

/// Copies a text and its closing zero into the caller's buffer; `length` gets its bytes without the zero.
///
/// # Safety
///
/// `buffer` is null or has `capacity` bytes; `length` is null or may be written.
pub(crate) unsafe fn put_text(
    text: &str,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    unsafe { put(length, text.len(), "length") }?;
    if buffer.is_null() && capacity == 0 {
        return Ok(());
    }
    if buffer.is_null() {
        return Err(Failure::null("buffer"));
    }
    if capacity <= text.len() {
        let message =
            format!("the text has {} bytes and a closing zero; pass a longer buffer", text.len());
        return Err(Failure::new(OmniheapStatus::ShortBuffer, message));
    }
    let buffer = buffer.cast::<u8>();
    // SAFETY: the caller promises `capacity` bytes, and the text is shorter.
    unsafe { buffer.copy_from_nonoverlapping(text.as_ptr(), text.len()) };
    // SAFETY: as above: the byte behind the text is inside.
    let end = unsafe { buffer.add(text.len()) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_last_messages_and_no_more() {
        for _ in 0..3 * KEPT {
            assert_eq!(call(|| Err(Failure::null("it"))), OmniheapStatus::NullArgument);
        }
        assert_eq!(MESSAGES.with_borrow(VecDeque::len), KEPT);
    }
}
