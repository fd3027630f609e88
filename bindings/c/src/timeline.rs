//! Streams and queues.
#![expect(unsafe_code, reason = "exports C functions")]
use crate::handle::{Native, OmniheapManager, holder};
use crate::status::{Failure, OmniheapStatus, call, check, put};
use core::ffi::c_void;
use omniheap::hip::hipStream_t;
use omniheap::{
    Backend as _, ErrorKind, Point, TimelineId,
    seam::{Epoch, Timelines},
};

/// Runs `with` on the timelines of a manager's device.
fn with<R>(
    manager: OmniheapManager,
    with: impl FnOnce(&dyn Timelines) -> omniheap::seam::Result<R>,
) -> Result<R, Failure> {
    let holder = holder(manager)?;
    let timelines = holder.manager.backend().as_timelines().ok_or(ErrorKind::Unsupported)?;
    Ok(with(timelines)?)
}

/// Opens a timeline. Timeline 0 exists always.
///
/// # Safety
///
/// `timeline` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_timeline_open(
    manager: OmniheapManager,
    timeline: *mut u32,
) -> OmniheapStatus {
    call(|| {
        check(timeline, "timeline")?;
        let opened = with(manager, |timelines| timelines.open())?;
        // SAFETY: the caller's promise.
        unsafe { put(timeline, opened.0, "timeline") }
    })
}

/// Opens a timeline over a `CUstream` or `hipStream_t` that the caller owns.
///
/// # Safety
///
/// `stream` is null (the default stream) or a live stream of the manager's device, until the timeline is closed. `timeline`
/// is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_timeline_adopt(
    manager: OmniheapManager,
    stream: *mut c_void,
    timeline: *mut u32,
) -> OmniheapStatus {
    call(|| {
        check(timeline, "timeline")?;
        let opened = match &holder(manager)?.native {
            // SAFETY: the caller's promise.
            Native::Cuda(cuda) => unsafe { cuda.inner().adopt_stream(stream.cast()) }?,
            // SAFETY: as above.
            Native::Hip(hip) => unsafe { hip.inner().adopt_stream(hipStream_t(stream)) }?,
            Native::Vulkan(_) | Native::Host(_) | Native::Other => {
                let message = "only CUDA and HIP have streams to adopt; open a timeline instead";
                return Err(Failure::new(OmniheapStatus::Unsupported, message));
            }
        };
        // SAFETY: as above.
        unsafe { put(timeline, opened.0, "timeline") }
    })
}

/// Closes a timeline after its work has finished.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_timeline_close(
    manager: OmniheapManager,
    timeline: u32,
) -> OmniheapStatus {
    call(|| with(manager, |timelines| timelines.close(TimelineId(timeline))))
}

/// Marks a timeline: `epoch` is reached once everything submitted to it so far has finished.
///
/// # Safety
///
/// `epoch` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_timeline_mark(
    manager: OmniheapManager,
    timeline: u32,
    epoch: *mut u64,
) -> OmniheapStatus {
    call(|| {
        check(epoch, "epoch")?;
        let marked = with(manager, |timelines| timelines.mark(TimelineId(timeline)))?;
        // SAFETY: the caller's promise.
        unsafe { put(epoch, marked.0, "epoch") }
    })
}

/// Says the latest epoch that a timeline has reached. Does not wait.
///
/// # Safety
///
/// `epoch` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_timeline_reached(
    manager: OmniheapManager,
    timeline: u32,
    epoch: *mut u64,
) -> OmniheapStatus {
    call(|| {
        let reached = with(manager, |timelines| timelines.reached(TimelineId(timeline)))?;
        // SAFETY: the caller's promise.
        unsafe { put(epoch, reached.0, "epoch") }
    })
}

/// Blocks until a timeline has reached an epoch.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_timeline_wait(
    manager: OmniheapManager,
    timeline: u32,
    epoch: u64,
) -> OmniheapStatus {
    let point = Point { timeline: TimelineId(timeline), epoch: Epoch(epoch) };
    call(|| with(manager, |timelines| timelines.wait(point)))
}

/// Makes the timeline `waiting` wait, on the device, until another has reached an epoch. The host does not wait.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_timeline_order(
    manager: OmniheapManager,
    waiting: u32,
    timeline: u32,
    epoch: u64,
) -> OmniheapStatus {
    let point = Point { timeline: TimelineId(timeline), epoch: Epoch(epoch) };
    call(|| with(manager, |timelines| timelines.order(TimelineId(waiting), point)))
}
