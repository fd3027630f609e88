//! Bytes in, out and across.
#![expect(unsafe_code, reason = "reads and writes the caller's memory")]
use crate::handle::{ALLOCATIONS, OmniheapAllocation, OmniheapManager, holder};
use crate::status::{Failure, OmniheapStatus, call, check, put};
use core::ffi::c_void;
use omniheap::{ErrorKind, TimelineId, transfer::CopyRegion};

/// The length of a host buffer.
fn length(size: u64) -> Result<usize, Failure> {
    usize::try_from(size)
        .ok()
        .filter(|size| isize::try_from(*size).is_ok())
        .ok_or_else(|| ErrorKind::SizeOverflow.into())
}

/// Shows an allocation to the host, from now until it is freed; it does not move any more.
///
/// # Safety
///
/// `pointer` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_map(
    allocation: OmniheapAllocation,
    pointer: *mut *mut c_void,
) -> OmniheapStatus {
    call(|| {
        check(pointer, "pointer")?;
        let bytes = ALLOCATIONS.get(allocation.id)?;
        let mapped = bytes.allocation.map()?;
        // The address leaves for good, so the bytes must never move.
        let _ = bytes.allocation.pin_for_life();
        // SAFETY: the caller's promise.
        unsafe { put(pointer, mapped.as_ptr().as_ptr().cast(), "pointer") }
    })
}

/// Makes the host's writes to mapped bytes visible to the device.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_flush(
    allocation: OmniheapAllocation,
    offset: u64,
    size: u64,
) -> OmniheapStatus {
    call(|| Ok(ALLOCATIONS.get(allocation.id)?.allocation.map()?.flush(offset, size)?))
}

/// Makes the device's writes to mapped bytes visible to the host.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_invalidate(
    allocation: OmniheapAllocation,
    offset: u64,
    size: u64,
) -> OmniheapStatus {
    call(|| Ok(ALLOCATIONS.get(allocation.id)?.allocation.map()?.invalidate(offset, size)?))
}

/// Writes bytes from the host, in the order of the allocation's timeline; without one, before it returns.
///
/// # Safety
///
/// `data` is null or has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_write(
    allocation: OmniheapAllocation,
    offset: u64,
    data: *const c_void,
    size: u64,
) -> OmniheapStatus {
    call(|| {
        let (bytes, size) = (ALLOCATIONS.get(allocation.id)?, length(size)?);
        if data.is_null() {
            return Err(Failure::null("data"));
        }
        // SAFETY: the caller's promise.
        let data = unsafe { core::slice::from_raw_parts(data.cast::<u8>(), size) };
        Ok(bytes.allocation.write(offset, data)?)
    })
}

/// Reads bytes to the host, after everything earlier on the allocation's timeline.
///
/// # Safety
///
/// `data` is null or has `size` bytes that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_read(
    allocation: OmniheapAllocation,
    offset: u64,
    data: *mut c_void,
    size: u64,
) -> OmniheapStatus {
    call(|| {
        let (bytes, size) = (ALLOCATIONS.get(allocation.id)?, length(size)?);
        if data.is_null() {
            return Err(Failure::null("data"));
        }
        // Before anything of the caller's is touched: a call that fails changes nothing.
        let end = offset.checked_add(size as u64).ok_or(ErrorKind::SizeOverflow)?;
        if end > bytes.allocation.size() {
            return Err(ErrorKind::OutOfRange.into());
        }
        // SAFETY: the caller's promise. The bytes may never have been written: they are set first, so that the slice holds
        // values.
        unsafe { data.cast::<u8>().write_bytes(0, size) };
        // SAFETY: as above.
        let data = unsafe { core::slice::from_raw_parts_mut(data.cast::<u8>(), size) };
        Ok(bytes.allocation.read(offset, data)?)
    })
}

/// Sets bytes, in the order of the allocation's timeline.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_fill(
    allocation: OmniheapAllocation,
    offset: u64,
    size: u64,
    value: u8,
) -> OmniheapStatus {
    call(|| Ok(ALLOCATIONS.get(allocation.id)?.allocation.fill(offset, size, value)?))
}

/// Makes the bytes final: waits for the writes on the allocation's timeline, and refuses later ones with `Published`.
///
/// What another timeline writes is the caller's to wait for.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_publish(allocation: OmniheapAllocation) -> OmniheapStatus {
    call(|| Ok(ALLOCATIONS.get(allocation.id)?.allocation.publish()?))
}

/// Copies between two allocations of a manager, in a timeline's order; 0 is the main one.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_copy(
    manager: OmniheapManager,
    timeline: u32,
    from: OmniheapAllocation,
    from_offset: u64,
    to: OmniheapAllocation,
    to_offset: u64,
    size: u64,
) -> OmniheapStatus {
    call(|| {
        let holder = holder(manager)?;
        let (from, to) = (ALLOCATIONS.get(from.id)?, ALLOCATIONS.get(to.id)?);
        let (from, to) = (&from.allocation, &to.allocation);
        let one = CopyRegion { from, from_offset, to, to_offset, size };
        Ok(holder.manager.copy(TimelineId(timeline), &[one])?)
    })
}
