//! Memory: allocations and frees of the program. A function returns `None` if the driver must answer.
#![expect(unsafe_code, reason = "writes what callers point to")]
use crate::book::{Book, EXPORTED, UNIT, code_of};
use crate::real::Handle;
use crate::vendor::Vendor;
use crate::{Code, books, capture, pools, settings};
use core::ops::RangeInclusive;
use core::ptr;
use omniheap_core::{AllocateError, TimelineId};

/// An address at which nothing ever lives. The driver answers questions about it as about freed memory.
pub(crate) const NOBODYS: u64 = 8;
/// Limit of sizes: larger ones are mistakes.
const MOST: usize = 1 << 46;
/// The driver's codes for calls that a capture does not allow.
const CAPTURE_CODES: RangeInclusive<Code> = 900..=907;
/// The handle of the calling thread's default stream.
pub(crate) const PER_THREAD: Handle = ptr::without_provenance_mut(2);
/// The handle of the legacy default stream; zero stands for it too.
const LEGACY: usize = 1;

/// Returns a stream for functions in which null means the calling thread's default stream.
pub(crate) fn per_thread(stream: Handle) -> Handle {
    if stream.is_null() { PER_THREAD } else { stream }
}

/// Writes an address, or zero with the code of a failure, as the driver does.
fn hand_out<V: Vendor>(real: &V, out: *mut u64, made: Result<u64, AllocateError>) -> Option<Code> {
    let (address, code) = match made {
        Ok(address) => (address, 0),
        Err(error) => (0, real.refuse(code_of(&error)?)),
    };
    // SAFETY: not null, and the caller of the driver's function promises that it may be written.
    unsafe { out.write(address) };
    Some(code)
}

/// Answers `cuMemAlloc`.
#[inline]
pub(crate) fn allocate<V: Vendor>(real: &V, out: *mut u64, size: usize) -> Option<Code> {
    if out.is_null() || size == 0 || size >= MOST || capture::is_under_way::<V>() {
        return None;
    }
    if (size as u64) < EXPORTED && settings::exports() {
        // The driver packs small ones itself, and exports each of them.
        return None;
    }
    let book = books::current(real)?;
    hand_out(real, out, book.allocate(size as u64))
}

/// Answers `cuMemAllocPitch`.
pub(crate) fn allocate_pitch<V: Vendor>(
    real: &V,
    out: *mut u64,
    pitch: *mut usize,
    (width, height): (usize, usize),
    element: u32,
) -> Option<Code> {
    if pitch.is_null() || !matches!(element, 4 | 8 | 16) {
        return None;
    }
    let row = width.checked_next_multiple_of(usize::try_from(UNIT).ok()?)?;
    // The driver knows whether a device has wider rows.
    i32::try_from(row).ok()?;
    let code = allocate(real, out, row.checked_mul(height)?)?;
    if code == 0 {
        // SAFETY: not null, and the caller of the driver's function promises that it may be written.
        unsafe { pitch.write(row) };
    }
    Some(code)
}

/// Answers `cuMemFree`.
#[inline]
pub(crate) fn free<V: Vendor>(real: &V, address: u64) -> Option<Code> {
    if capture::is_under_way::<V>()
        && let Some(code) = refused_in_capture(real)
    {
        return Some(code);
    }
    if books::usual(real).is_some_and(|book| book.free(address)) {
        return Some(0);
    }
    if books::all::<V>().any(|book| book.free(address)) {
        return Some(0);
    }
    if !books::all::<V>().any(|book| book.is_own_block(address)) {
        return None;
    }
    // SAFETY: nothing lives there, which the driver says with its own code.
    Some(unsafe { real.shared().free?(NOBODYS) })
}

/// Notes an allocation that the driver itself made for the program.
pub(crate) fn given<V: Vendor>(code: Code, out: *const u64) -> Option<()> {
    if code != 0 || out.is_null() {
        return None;
    }
    // SAFETY: the driver wrote there just now.
    let address = unsafe { out.read() };
    books::each::<V>(|book| book.is_the_programs(address));
    None
}

/// Returns the driver's code if it refuses frees in a capture. It refuses allocations too, so an allocation is tried.
#[cold]
fn refused_in_capture<V: Vendor>(real: &V) -> Option<Code> {
    let mut probe = 0;
    // SAFETY: a valid out-pointer.
    let code = unsafe { real.shared().allocate?(&raw mut probe, 1) };
    if code == 0 {
        // SAFETY: allocated above, and used by nothing.
        unsafe { real.shared().free?(probe) };
    }
    // A lack of memory for the probe does not forbid the free.
    CAPTURE_CODES.contains(&code).then_some(code)
}

/// Returns the number of a stream; `None` where the driver shall answer itself: in a capture.
#[inline]
fn number<V: Vendor>(real: &V, stream: Handle) -> Option<u64> {
    // The legacy stream is never captured, and each context has one.
    if stream.addr() <= LEGACY {
        return Some(0);
    }
    if capture::is_under_way::<V>() && capture::is_captured(real, stream) {
        return None;
    }
    real.number(stream)
}

/// Returns the timeline of a stream. `None` if the driver must answer: in a capture, and for streams of other contexts.
fn timeline<V: Vendor>(real: &V, book: &Book<V>, stream: Handle) -> Option<TimelineId> {
    let number = number(real, stream)?;
    // SAFETY: the caller of the driver's function promises a live stream.
    unsafe { book.timeline(stream, number) }
}

/// Returns the book and the timeline of a stream; `None` where the driver shall answer itself.
#[inline]
fn order<V: Vendor>(real: &V, stream: Handle) -> Option<(&'static Book<V>, TimelineId)> {
    let number = number(real, stream)?;
    // The number tells the context as well, but for the legacy stream.
    if stream.addr() > LEGACY
        && let Some(known) = books::of_stream(stream, number)
    {
        return Some(known);
    }
    let book = books::current(real)?;
    // SAFETY: the caller of the driver's function promises a live stream.
    let timeline = unsafe { book.timeline(stream, number) }?;
    books::note_stream::<V>(stream, number, timeline);
    Some((book, timeline))
}

/// Returns the handle by which a stream's own memory is known; never zero.
fn own(stream: Handle) -> usize {
    stream.addr().max(LEGACY)
}

/// Answers `cuMemAllocAsync`. A stream's memory is of the pool of its own device.
#[inline]
pub(crate) fn allocate_async<V: Vendor>(
    real: &V,
    out: *mut u64,
    size: usize,
    stream: Handle,
) -> Option<Code> {
    if out.is_null() || size == 0 || size >= MOST {
        return None;
    }
    let (book, timeline) = order(real, stream)?;
    if pools::is_the_drivers(real, book.ordinal) {
        return None;
    }
    hand_out(real, out, book.allocate_on(size as u64, (own(stream), timeline)))
}

/// Answers `cuMemAllocFromPoolAsync`, for the pool that every device has.
pub(crate) fn allocate_from_pool<V: Vendor>(
    real: &V,
    out: *mut u64,
    size: usize,
    (pool, stream): (Handle, Handle),
) -> Option<Code> {
    let book = books::current(real)?;
    if pools::first(real, book.ordinal)? != pool {
        return None;
    }
    allocate_async(real, out, size, stream)
}

/// Answers `cuMemFreeAsync`.
#[inline]
pub(crate) fn free_async<V: Vendor>(real: &V, address: u64, stream: Handle) -> Option<Code> {
    // This handle means another stream on each thread.
    let may_skip = stream != PER_THREAD && !capture::is_under_way::<V>();
    // Each context has another legacy stream, and all others have handles of their own.
    let usual = if stream.addr() > LEGACY { books::usual(real) } else { books::known(real) };
    if let Some(book) = usual.filter(|_| may_skip)
        && book.free_in_own_order(address, own(stream)).is_some()
    {
        return Some(0);
    }
    if let Some(book) = books::known(real)
        && book.free_on(address, || timeline(real, book, stream)).is_some()
    {
        return Some(0);
    }
    let holds =
        |book: &&'static Book<V>| book.find(address).is_some_and(|it| it.address == address);
    match books::all::<V>().find(holds) {
        Some(book) => free_elsewhere(real, book, address, stream),
        None if !books::all::<V>().any(|book| book.is_own_block(address)) => None,
        // SAFETY: nothing lives there, which the driver says with its own code.
        None => Some(unsafe { real.shared().free_async?(NOBODYS, stream) }),
    }
}

/// Frees memory of a context that is not current, on a stream of it or of another context. In a capture the driver answers.
#[cold]
fn free_elsewhere<V: Vendor>(
    real: &V,
    book: &Book<V>,
    address: u64,
    stream: Handle,
) -> Option<Code> {
    // Handles of default streams are those of the current context.
    if stream.addr() > PER_THREAD.addr()
        && book.free_on(address, || timeline(real, book, stream)).is_some()
    {
        return Some(0);
    }
    if capture::is_captured(real, stream) {
        return None;
    }
    // SAFETY: the caller of the driver's function promises a live stream.
    match unsafe { real.shared().synchronize?(stream) } {
        0 => book.free(address).then_some(0),
        code => Some(code),
    }
}
