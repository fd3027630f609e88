//! Bytes in, out and across.
#![expect(unsafe_code, reason = "reads and writes the caller's memory")]
use crate::handle::{ALLOCATIONS, OmniheapAllocation, OmniheapManager, holder};
use crate::status::{Failure, OmniheapStatus, call, check, put};
use crate::timeline::named;
use core::ffi::c_void;
use omniheap::{Backend as _, ErrorKind, transfer::CopyRegion};

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
        let mapped = bytes.allocation().map()?;
        // The address leaves for good, so the bytes must never move.
        let _ = bytes.allocation().pin_for_life();
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
    call(|| Ok(ALLOCATIONS.get(allocation.id)?.allocation().map()?.flush(offset, size)?))
}

/// Makes the device's writes to mapped bytes visible to the host.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_invalidate(
    allocation: OmniheapAllocation,
    offset: u64,
    size: u64,
) -> OmniheapStatus {
    call(|| Ok(ALLOCATIONS.get(allocation.id)?.allocation().map()?.invalidate(offset, size)?))
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
        Ok(bytes.allocation().write(offset, data)?)
    })
}

/// Reads bytes to the host, after everything earlier on the allocation's timeline. A call that is refused leaves `data` alone; where the
/// device fails, its bytes are unspecified.
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
        // Before anything of the caller's is touched: a call that is refused changes nothing. The binding keeps the bytes awake.
        offset.checked_add(size as u64).ok_or(ErrorKind::SizeOverflow)?;
        let binding = bytes.allocation().binding();
        binding.place(offset, size as u64)?;
        let manager = &bytes.owner.holder().manager;
        manager.backend().as_transfer().ok_or(ErrorKind::Unsupported)?;
        let unit = manager.caps().copy.align;
        if !unit.divides(offset) || !unit.divides(size as u64) {
            return Err(ErrorKind::Misaligned.into());
        }
        // SAFETY: the caller's promise. The bytes may never have been written: they are set first, so that the slice holds
        // values.
        unsafe { data.cast::<u8>().write_bytes(0, size) };
        // SAFETY: as above.
        let data = unsafe { core::slice::from_raw_parts_mut(data.cast::<u8>(), size) };
        Ok(bytes.allocation().read(offset, data)?)
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
    call(|| Ok(ALLOCATIONS.get(allocation.id)?.allocation().fill(offset, size, value)?))
}

/// Makes the bytes final: waits for the writes on the allocation's timeline, and refuses later ones with `Published`.
///
/// The caller waits for the writes of other timelines.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_publish(allocation: OmniheapAllocation) -> OmniheapStatus {
    call(|| Ok(ALLOCATIONS.get(allocation.id)?.allocation().publish()?))
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
        let (from, to) = (from.allocation(), to.allocation());
        let one = CopyRegion { from, from_offset, to, to_offset, size };
        Ok(holder.manager.copy(named(timeline)?, &[one])?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::{Bytes, Holder, Native};
    use crate::open::settings;
    use omniheap::host::{Host, heap};
    use omniheap::seam::{HeapKind, erase};
    use omniheap::{Align, Request};
    use std::sync::Arc;

    #[test]
    fn a_read_that_is_refused_leaves_the_buffer_alone() {
        let host = Host::builder().heap(heap(HeapKind::Device, 64 << 20)).copy_align(Align::of(4));
        let host = host.open().expect("a device");
        // SAFETY: null stands for the usual settings.
        let settings = unsafe { settings(core::ptr::null()) }.expect("the usual ones");
        let holder = Holder::new(erase(Arc::new(host)), Native::Other, 0, settings);
        let holder = holder.expect("a manager");
        let allocation = holder.manager.allocate(&Request::new(64)).expect("room");
        allocation.fill(0, 64, 5).expect("live");
        let made = Bytes::new(allocation, &holder);
        let allocation = OmniheapAllocation { id: ALLOCATIONS.insert(made).expect("room") };
        for (offset, size, status) in [
            (0, 6, OmniheapStatus::Misaligned),
            (2, 8, OmniheapStatus::Misaligned),
            (60, 8, OmniheapStatus::OutOfRange),
            (u64::MAX - 3, 8, OmniheapStatus::SizeOverflow),
        ] {
            let mut data = [7u8; 8];
            // SAFETY: it has eight bytes.
            let said = unsafe { omniheap_read(allocation, offset, data.as_mut_ptr().cast(), size) };
            assert_eq!((said, data), (status, [7; 8]), "{size} from {offset} on");
        }
        let mut data = [7u8; 8];
        // SAFETY: it has eight bytes.
        let said = unsafe { omniheap_read(allocation, 8, data.as_mut_ptr().cast(), 8) };
        assert_eq!((said, data), (OmniheapStatus::Ok, [5; 8]));
        drop(ALLOCATIONS.remove(allocation.id));
    }
}
