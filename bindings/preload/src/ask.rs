//! Answers to questions about memory: free and total bytes, and facts about addresses.
#![expect(unsafe_code, reason = "writes what callers point to")]
use crate::Code;
use crate::book::{Book, Found};
use crate::memory::NOBODYS;
use crate::vendor::Vendor;
use crate::{books, ending, settings};
use core::ffi::c_void;
use std::sync::Once;

/// Attributes of pointers.
pub(crate) const CONTEXT: u32 = 1;
pub(crate) const BUFFER_ID: u32 = 7;
pub(crate) const RANGE_START: u32 = 11;
pub(crate) const RANGE_SIZE: u32 = 12;

/// Answers `cuMemGetInfo`. Bytes that are held and empty count as free, and no figure is above the limit.
pub(crate) fn info<V: Vendor>(real: &V, free: *mut usize, total: *mut usize) -> Option<Code> {
    if free.is_null() || total.is_null() {
        return None;
    }
    // SAFETY: the caller's pointers, as it passed them.
    let code = unsafe { real.shared().info?(free, total) };
    if code != 0 {
        return Some(code);
    }
    let (live, empty) = books::known(real).map_or((0, 0), Book::figures);
    let mut device = 0;
    // SAFETY: a valid out-pointer; a context is current: the driver has answered about it.
    let _ = unsafe { real.shared().device?(&raw mut device) };
    let limit = settings::limit(device);
    // SAFETY: the driver wrote both just now.
    let driver_free = unsafe { free.read() } as u64;
    // SAFETY: as above.
    let driver_total = unsafe { total.read() } as u64;
    let seen_total = driver_total.min(limit);
    let seen_free = (driver_free + empty).min(seen_total.saturating_sub(live));
    let to_usize = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    // SAFETY: as above.
    unsafe { free.write(to_usize(seen_free)) };
    // SAFETY: as above.
    unsafe { total.write(to_usize(seen_total)) };
    Some(0)
}

/// Returns true if an address was freed and its memory is still held. The driver would take it for live.
fn was_freed<V: Vendor>(address: u64) -> bool {
    books::all::<V>().any(|book| book.is_waiting(address) || book.is_vacant(address))
}

/// Returns the live allocation at an address, and its book.
fn find<V: Vendor>(real: &V, address: u64) -> Option<(&'static Book<V>, Found)> {
    let in_book = |book: &'static Book<V>| book.find(address).map(|found| (book, found));
    books::known(real).and_then(in_book).or_else(|| books::all::<V>().find_map(in_book))
}

/// Returns true if nothing lives at an address whose memory is still held.
pub(crate) fn is_gone<V: Vendor>(real: &V, address: u64) -> bool {
    find(real, address).is_none() && was_freed::<V>(address)
}

/// Answers `cuMemGetAddressRange`.
pub(crate) fn range<V: Vendor>(
    real: &V,
    base: *mut u64,
    size: *mut usize,
    address: u64,
) -> Option<Code> {
    let Some((_, found)) = find(real, address) else {
        // SAFETY: the caller's pointers, as it passed them.
        return was_freed::<V>(address)
            .then(|| Some(unsafe { real.shared().range?(base, size, NOBODYS) }))?;
    };
    if !base.is_null() {
        // SAFETY: the caller of the driver's function promises that it may be written.
        unsafe { base.write(found.address) };
    }
    if !size.is_null() {
        // SAFETY: as above.
        unsafe { size.write(usize::try_from(found.size).ok()?) };
    }
    Some(0)
}

/// Writes an attribute that belongs to an allocation, not to the block that it lies in.
///
/// # Safety
///
/// `data` may be written as the attribute needs it.
unsafe fn correct<V: Vendor>((book, found): (&Book<V>, Found), attribute: u32, data: *mut c_void) {
    if !V::OWN.contains(&attribute) {
        return;
    }
    let value = match attribute {
        CONTEXT => book.context() as u64,
        BUFFER_ID => found.number,
        RANGE_START => found.address,
        RANGE_SIZE => found.size,
        _ => return,
    };
    // SAFETY: each of these attributes is eight bytes, and the caller promises that they may be written.
    unsafe { data.cast::<u64>().write_unaligned(value) };
}

/// Answers `cuPointerGetAttribute`.
pub(crate) fn attribute<V: Vendor>(
    real: &V,
    data: *mut c_void,
    attribute: u32,
    address: u64,
) -> Option<Code> {
    if data.is_null() {
        return None;
    }
    let Some(found) = find(real, address) else {
        // SAFETY: the caller's arguments, as it passed them.
        return was_freed::<V>(address)
            .then(|| Some(unsafe { real.shared().attribute?(data, attribute, NOBODYS) }))?;
    };
    if !V::OWN.contains(&attribute) {
        return None;
    }
    // SAFETY: the caller of the driver's function promises that it may be written.
    unsafe { correct((found.0, found.1), attribute, data) };
    Some(0)
}

/// Answers `cuPointerGetAttributes`.
pub(crate) fn attributes<V: Vendor>(
    real: &V,
    (count, kinds, data): (u32, *const u32, *mut *mut c_void),
    address: u64,
) -> Option<Code> {
    let Some(found) = find(real, address) else {
        // SAFETY: the caller's arguments, as it passed them.
        return was_freed::<V>(address)
            .then(|| Some(unsafe { real.shared().attributes?(count, kinds, data, NOBODYS) }))?;
    };
    // SAFETY: the caller's arguments, as it passed them.
    let code = unsafe { real.shared().attributes?(count, kinds, data, address) };
    if code != 0 || count == 0 {
        return Some(code);
    }
    // SAFETY: the driver read as many of them.
    let kinds = unsafe { core::slice::from_raw_parts(kinds, count as usize) };
    // SAFETY: as above.
    let places = unsafe { core::slice::from_raw_parts(data, count as usize) };
    for (kind, place) in kinds.iter().zip(places) {
        if !place.is_null() {
            // SAFETY: the driver wrote there just now.
            unsafe { correct((found.0, found.1), *kind, *place) };
        }
    }
    Some(0)
}

/// Answers `cuIpcGetMemHandle`. A handle stands for a whole block, so memory that shares a block cannot be exported.
pub(crate) fn export<V: Vendor>(real: &V, handle: *mut c_void, address: u64) -> Option<Code> {
    static SAID: Once = Once::new();
    let (_, found) = find(real, address)?;
    if found.is_whole {
        return None;
    }
    settings::note_export();
    let function = V::EXPORT;
    let why = if settings::get().sleeps {
        format!(
            "memory that can sleep cannot be exported, and {function} was refused: start the program without --sleepable"
        )
    } else {
        format!(
            "{function} was refused for memory of a pool; what is allocated from now on can be exported, and with OMNIHEAP_IPC=1 all is"
        )
    };
    SAID.call_once(|| ending::say(&why));
    // SAFETY: the caller's handle, as it passed it; nothing lives there, which the driver says with its own code.
    Some(unsafe { real.shared().export?(handle, NOBODYS) })
}
