//! Allocate and free.
#![expect(unsafe_code, reason = "exports C functions")]
use crate::handle::{ALLOCATIONS, Bytes, OmniheapAllocation, OmniheapManager, POOLS, holder};
use crate::request::{Asked, OmniheapRequest, read};
use crate::sized::{empty, fill, grows};
use crate::status::{Failure, OmniheapStatus, call, check, put};
use crate::timeline::{self, open_in};
use crate::{OmniheapPool, handle::Holder};
use core::ffi::c_void;
use omniheap::{Allocation, AnyBackend, Point, seam::Epoch};
use std::sync::Arc;

/// Place of an allocation right now. Start from `omniheap_placed_default`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OmniheapPlace {
    /// Bytes of this struct, which `omniheap_placed_default` sets.
    pub struct_size: usize,
    /// Bytes that were asked for.
    pub size: u64,
    /// Offset of the bytes in their block.
    pub offset: u64,
    /// The address that kernels see; zero where the backend has none.
    pub address: u64,
}

grows!(filled OmniheapPlace to address: "place" from "omniheap_placed_default");

/// Gives an allocation a handle.
///
/// # Safety
///
/// `to` is null or may be written.
pub(crate) unsafe fn publish(
    holder: &Arc<Holder>,
    allocation: Allocation<AnyBackend>,
    user: *mut c_void,
    to: *mut OmniheapAllocation,
) -> Result<(), Failure> {
    check(to, "allocation")?;
    let bytes = Bytes::new(allocation, holder);
    bytes.set_user(user);
    let id = ALLOCATIONS.insert(bytes)?;
    // SAFETY: the caller's promise.
    unsafe { put(to, OmniheapAllocation { id }, "allocation") }
}

/// Allocates. On failure nothing has changed, and `omniheap_error` says what was missing.
///
/// # Safety
///
/// `request` is null or a request, `allocation` null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_allocate(
    manager: OmniheapManager,
    request: *const OmniheapRequest,
    allocation: *mut OmniheapAllocation,
) -> OmniheapStatus {
    call(|| {
        let holder = holder(manager)?;
        // SAFETY: the caller's promise.
        let Asked { request, user, .. } = unsafe { read(request) }?;
        let made = holder.manager.allocate(&request)?;
        // SAFETY: as above.
        unsafe { publish(&holder, made, user, allocation) }
    })
}

/// Allocates from a pool alone.
///
/// # Safety
///
/// As for `omniheap_allocate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_pool_allocate(
    pool: OmniheapPool,
    request: *const OmniheapRequest,
    allocation: *mut OmniheapAllocation,
) -> OmniheapStatus {
    call(|| {
        let pool = POOLS.get(pool.id)?;
        // SAFETY: the caller's promise.
        let Asked { request, user, .. } = unsafe { read(request) }?;
        let made = pool.with(|pool| pool.allocate(&request))??;
        // SAFETY: as above.
        unsafe { publish(pool.owner.holder(), made, user, allocation) }
    })
}

/// Frees: at once for its own timeline, after they have passed for the others that use it. A second free is `STALE`.
///
/// The handle is stale at once. Where another thread is in a call with it, the bytes are freed when that call ends.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_free(allocation: OmniheapAllocation) -> OmniheapStatus {
    call(|| ALLOCATIONS.remove(allocation.id).map(drop))
}

/// Frees once a timeline has reached an epoch; otherwise as `omniheap_free`.
///
/// On the allocation's own timeline that is in its order, and so at once. On another, the epoch may be one that is still to be marked; while
/// it is not, the bytes wait. `NO_SUCH_TIMELINE` where the timeline is not open: the
/// allocation stays live then. A timeline that was closed has finished: call `omniheap_free`.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_free_after(
    allocation: OmniheapAllocation,
    timeline: u32,
    epoch: u64,
) -> OmniheapStatus {
    call(|| {
        let live = ALLOCATIONS.get(allocation.id)?;
        let timeline = open_in(live.owner.holder(), timeline)?;
        let freed = ALLOCATIONS.remove(allocation.id)?;
        // Only the call that removed it gets here, so nothing is set yet.
        let _ = freed.after.set(Point { timeline, epoch: Epoch(epoch) });
        Ok(())
    })
}

/// Says that another timeline uses the bytes too: after a free they wait for it.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_use_on(allocation: OmniheapAllocation, timeline: u32) -> OmniheapStatus {
    call(|| {
        let bytes = ALLOCATIONS.get(allocation.id)?;
        Ok(bytes.allocation().use_on(timeline::named(timeline)?)?)
    })
}

/// Sets a pointer of the caller's, which the library hands back and never follows: `omniheap_user` returns it, and moves show it.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_set_user(
    allocation: OmniheapAllocation,
    user: *mut c_void,
) -> OmniheapStatus {
    call(|| {
        ALLOCATIONS.get(allocation.id)?.set_user(user);
        Ok(())
    })
}

/// Returns the pointer that `request.user` or `omniheap_set_user` gave an allocation; null where none did.
///
/// # Safety
///
/// `user` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_user(
    allocation: OmniheapAllocation,
    user: *mut *mut c_void,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    call(|| unsafe { put(user, ALLOCATIONS.get(allocation.id)?.user(), "user") })
}

/// Says where an allocation is, which holds until something may move it.
///
/// # Safety
///
/// `place` is null, or starts with its size and may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_place(
    allocation: OmniheapAllocation,
    place: *mut OmniheapPlace,
) -> OmniheapStatus {
    call(|| {
        let bytes = ALLOCATIONS.get(allocation.id)?;
        let binding = bytes.allocation().binding();
        let found = OmniheapPlace {
            size: bytes.allocation().size(),
            offset: binding.span().offset,
            address: binding.address().unwrap_or(0),
            ..empty()
        };
        // SAFETY: the caller's promise.
        unsafe { fill(place, &found) }
    })
}

/// Pins an allocation for the rest of its life and says its address, which is zero where the backend has none.
///
/// # Safety
///
/// `address` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_pin(
    allocation: OmniheapAllocation,
    address: *mut u64,
) -> OmniheapStatus {
    call(|| {
        let bytes = ALLOCATIONS.get(allocation.id)?;
        check(address, "address")?;
        // SAFETY: the caller's promise.
        unsafe { put(address, bytes.allocation().pin_for_life().unwrap_or(0), "address") }
    })
}
