//! The pool that each device has from the start. Asynchronous memory is ours, so that the driver's own pool is empty: what programs ask
//! about it is answered with both.
#![expect(unsafe_code, reason = "writes what callers point to")]
use crate::book::{Book, Ordered};
use crate::real::{Handle, Real};
use crate::{Code, books, lock};
use core::ffi::c_void;
use core::ptr;
use std::collections::BTreeMap;
use std::sync::Mutex;

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

/// The most held bytes of each device when somebody asked.
static HIGHS: Mutex<BTreeMap<i32, u64>> = Mutex::new(BTreeMap::new());

/// Returns the books of the device whose first pool this is.
fn books_of(real: &Real, pool: Handle) -> Option<(i32, Vec<&'static Book>)> {
    let is_of = |book: &&'static Book| {
        let mut usual = ptr::null_mut();
        let ask = real.cuDeviceGetDefaultMemPool;
        // SAFETY: a valid out-pointer.
        let code = ask.map(|ask| unsafe { ask(&raw mut usual, book.ordinal) });
        code == Some(0) && usual == pool
    };
    let found: Vec<_> = books::all().filter(is_of).collect();
    Some((found.first()?.ordinal, found))
}

fn figures(books: &[&Book]) -> Figures {
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
pub(crate) fn told(
    real: &Real,
    code: Code,
    (pool, attribute): (Handle, u32),
    value: *mut c_void,
) -> Option<()> {
    if code != 0 || value.is_null() || !(RESERVED..=USED_HIGH).contains(&attribute) {
        return None;
    }
    let (device, books) = books_of(real, pool)?;
    let now = figures(&books);
    let mut highs = lock(&HIGHS);
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
pub(crate) fn set(real: &Real, code: Code, (pool, attribute): (Handle, u32)) -> Option<()> {
    if code != 0 || !matches!(attribute, RESERVED_HIGH | USED_HIGH) {
        return None;
    }
    let (device, books) = books_of(real, pool)?;
    match attribute {
        RESERVED_HIGH => {
            books.iter().for_each(|book| book.set_back(|it| it.most_held = it.now));
            lock(&HIGHS).insert(device, figures(&books).reserved);
        }
        _ => books.iter().for_each(|book| book.set_back(|it| it.most = it.now)),
    }
    Some(())
}

/// Gives back what is empty, where a pool has more than it shall keep.
pub(crate) fn trim(real: &Real, pool: Handle, keep: usize) -> Option<()> {
    let (_, books) = books_of(real, pool)?;
    let mut rest = figures(&books).reserved.saturating_sub(keep as u64);
    for book in books {
        if rest > 0 {
            rest = rest.saturating_sub(book.shed(rest));
        }
    }
    Some(())
}
