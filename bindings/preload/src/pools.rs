//! The pool that each device has from the start. Asynchronous memory is ours, so that the driver's own pool is empty: what programs ask
//! about it is answered with both.
#![expect(unsafe_code, reason = "writes what callers point to")]
use crate::book::Book;
use crate::live::Ordered;
use crate::real::Handle;
use crate::vendor::Vendor;
use crate::{Code, books, lock};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Attributes of pools.
const RESERVED: u32 = 5;
const RESERVED_HIGH: u32 = 6;
const USED: u32 = 7;
const USED_HIGH: u32 = 8;

/// Bytes of a device.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    reserved: u64,
    used: Ordered,
}

/// A place of memory, as the driver's structures have it.
#[repr(C)]
struct Location {
    kind: u32,
    id: i32,
}

/// Rights of a place to a pool, as the driver's structures have them.
#[repr(C)]
struct Access {
    place: Location,
    rights: u32,
}

/// The kind of a place that is a device, and that of memory that lies only there.
const DEVICE: u32 = 1;
const PINNED: u32 = 1;

/// Devices, a bit for each, whose asynchronous allocations the driver may have to serve.
pub(crate) struct Choices {
    /// Those for which the program has chosen another pool, which it may have destroyed since.
    chosen: AtomicU64,
    /// Those whose pool it has opened to others.
    opened: AtomicU64,
}

impl Choices {
    pub(crate) const fn new() -> Self {
        Self { chosen: AtomicU64::new(0), opened: AtomicU64::new(0) }
    }
}

fn bit(device: i32) -> Option<u64> {
    1_u64.checked_shl(u32::try_from(device).ok()?)
}

/// Notes that the program has chosen a pool for a device.
pub(crate) fn chosen<V: Vendor>(real: &V, code: Code, device: i32, pool: Handle) -> Option<()> {
    if code != 0 {
        return None;
    }
    let bit = bit(device)?;
    if first(real, device)? == pool {
        V::state().choices.chosen.fetch_and(!bit, Relaxed);
    } else {
        V::state().choices.chosen.fetch_or(bit, Relaxed);
    }
    Some(())
}

/// Notes that the program has chosen a pool for memory of a kind at a place.
pub(crate) fn chosen_at<V: Vendor>(
    real: &V,
    code: Code,
    (location, kind): (*const c_void, u32),
    pool: Handle,
) -> Option<()> {
    if code != 0 || kind != PINNED || location.is_null() {
        return None;
    }
    // SAFETY: the driver read it just now.
    let location = unsafe { location.cast::<Location>().read_unaligned() };
    if location.kind == DEVICE { chosen(real, code, location.id, pool) } else { None }
}

/// Notes that the program has opened a pool to others than its device.
///
/// # Safety
///
/// `list` has as many places with their rights, where the driver took them.
pub(crate) unsafe fn opened<V: Vendor>(
    real: &V,
    code: Code,
    pool: Handle,
    (list, count): (*const c_void, usize),
) -> Option<()> {
    let mut devices = 0;
    // SAFETY: a valid out-pointer.
    if code != 0 || unsafe { real.shared().devices?(&raw mut devices) } != 0 {
        return None;
    }
    let device = (0..devices).find(|device| first(real, *device) == Some(pool))?;
    let is_others = |at| {
        // SAFETY: the caller's promise.
        let access = unsafe { list.cast::<Access>().wrapping_add(at).read_unaligned() };
        access.rights != 0 && (access.place.kind, access.place.id) != (DEVICE, device)
    };
    if (0..count).any(is_others) {
        V::state().choices.opened.fetch_or(bit(device)?, Relaxed);
    }
    Some(())
}

/// Returns true if the driver serves the asynchronous allocations of a device.
#[inline]
pub(crate) fn is_the_drivers<V: Vendor>(real: &V, device: i32) -> bool {
    let (chosen, opened) =
        (V::state().choices.chosen.load(Relaxed), V::state().choices.opened.load(Relaxed));
    chosen | opened != 0 && is_among(real, device, (chosen, opened)).unwrap_or(true)
}

#[cold]
fn is_among<V: Vendor>(real: &V, device: i32, (chosen, opened): (u64, u64)) -> Option<bool> {
    let (bit, mut pool) = (bit(device)?, ptr::null_mut());
    if opened & bit != 0 || chosen & bit == 0 {
        return Some(opened & bit != 0);
    }
    // The end of a pool that was chosen makes the first one current again.
    // SAFETY: a valid out-pointer.
    let code = unsafe { real.shared().pool?(&raw mut pool, device) };
    Some(code != 0 || first(real, device)? != pool)
}

/// Returns the pool that a device has from the start.
pub(crate) fn first<V: Vendor>(real: &V, device: i32) -> Option<Handle> {
    let mut pool = ptr::null_mut();
    // SAFETY: a valid out-pointer.
    let code = unsafe { real.shared().first_pool?(&raw mut pool, device) };
    (code == 0).then_some(pool)
}

/// Returns the books of the device whose first pool this is.
fn books_of<V: Vendor>(real: &V, pool: Handle) -> Option<(i32, Vec<&'static Book<V>>)> {
    let is_of = |book: &&'static Book<V>| first(real, book.ordinal) == Some(pool);
    let found: Vec<_> = books::all::<V>().filter(is_of).collect();
    Some((found.first()?.ordinal, found))
}

fn figures<V: Vendor>(books: &[&Book<V>]) -> Figures {
    let mut used = Ordered::default();
    for ordered in books.iter().map(|book| book.ordered()) {
        used.now += ordered.now;
        used.most += ordered.most;
        used.most_held += ordered.most_held;
    }
    let empty: u64 = books.iter().map(|book| book.figures().1).sum();
    Figures { reserved: used.now + empty, used }
}

/// Adds what we hold to what the driver has told of a pool.
pub(crate) fn told<V: Vendor>(
    real: &V,
    code: Code,
    (pool, attribute): (Handle, u32),
    value: *mut c_void,
) -> Option<()> {
    if code != 0 || value.is_null() || !(RESERVED..=USED_HIGH).contains(&attribute) {
        return None;
    }
    let (device, books) = books_of(real, pool)?;
    let now = figures(&books);
    let mut highs = lock(&V::state().highs);
    let high = highs.entry(device).or_default();
    // Used bytes were held too.
    *high = now.reserved.max(now.used.most_held).max(*high);
    let ours = match attribute {
        RESERVED => now.reserved,
        RESERVED_HIGH => *high,
        USED => now.used.now,
        _ => now.used.most,
    };
    let value = value.cast::<u64>();
    // SAFETY: these attributes are eight bytes, which the driver wrote just now.
    let told = unsafe { value.read_unaligned() };
    // SAFETY: as above.
    unsafe { value.write_unaligned(told.saturating_add(ours)) };
    Some(())
}

/// Notes that the program set an attribute of a pool: the most that was there can be set back alone.
pub(crate) fn set<V: Vendor>(real: &V, code: Code, (pool, attribute): (Handle, u32)) -> Option<()> {
    if code != 0 || !matches!(attribute, RESERVED_HIGH | USED_HIGH) {
        return None;
    }
    let (device, books) = books_of(real, pool)?;
    match attribute {
        RESERVED_HIGH => {
            books.iter().for_each(|book| book.set_back(|it| it.most_held = it.now));
            lock(&V::state().highs).insert(device, figures(&books).reserved);
        }
        _ => books.iter().for_each(|book| book.set_back(|it| it.most = it.now)),
    }
    Some(())
}

/// Gives back what is empty, where a pool has more than it shall keep.
pub(crate) fn trim<V: Vendor>(real: &V, pool: Handle, keep: usize) -> Option<()> {
    let (_, books) = books_of(real, pool)?;
    let mut rest = figures(&books).reserved.saturating_sub(keep as u64);
    for book in books {
        if rest > 0 {
            rest = rest.saturating_sub(book.shed(rest));
        }
    }
    Some(())
}
