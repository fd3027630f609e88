//! Streams and queues.
#![expect(unsafe_code, reason = "exports C functions")]
use crate::OMNIHEAP_ANY;
use crate::handle::{Holder, Native, OmniheapManager, holder};
use crate::status::{Failure, OmniheapStatus, call, check, put};
use core::ffi::c_void;
use omniheap::hip::hipStream_t;
use omniheap::{
    Backend as _, ErrorKind, Point, TimelineId,
    seam::{Epoch, Timelines},
};

/// The timelines of a device.
fn timelines(of: &Holder) -> Result<&dyn Timelines, Failure> {
    Ok(of.manager.backend().as_timelines().ok_or(ErrorKind::Unsupported)?)
}

/// Runs `with` on the timelines of a manager's device.
fn with<R>(
    manager: OmniheapManager,
    with: impl FnOnce(&dyn Timelines) -> omniheap::seam::Result<R>,
) -> Result<R, Failure> {
    Ok(with(timelines(&*holder(manager)?)?)?)
}

/// The timeline of a number. `OMNIHEAP_ANY` is none: to some backends its number means all timelines together.
pub(crate) fn named(number: u32) -> Result<TimelineId, Failure> {
    if number == OMNIHEAP_ANY {
        let message = "OMNIHEAP_ANY is no timeline here; pass 0, or one that was opened";
        return Err(Failure::new(OmniheapStatus::NoSuchTimeline, message));
    }
    Ok(TimelineId(number))
}

/// The timeline of a number, if it is open on a device.
pub(crate) fn open_in(of: &Holder, number: u32) -> Result<TimelineId, Failure> {
    let timeline = named(number)?;
    match timelines(of)?.reached(timeline) {
        // Nothing runs on it any more, and the call that needs the device says so.
        Err(error) if error.kind() != ErrorKind::DeviceLost => Err(error.into()),
        _ => Ok(timeline),
    }
}

/// Runs `with` on the timelines of a manager's device and a point of one of them, and says so if that point was never marked.
fn with_point(
    manager: OmniheapManager,
    (timeline, epoch): (u32, u64),
    with: impl FnOnce(&dyn Timelines, Point) -> omniheap::seam::Result<()>,
) -> Result<(), Failure> {
    let holder = holder(manager)?;
    let point = Point { timeline: named(timeline)?, epoch: Epoch(epoch) };
    with(timelines(&holder)?, point).map_err(|error| match error.kind() {
        ErrorKind::NoSuchTimeline | ErrorKind::OutOfRange if open_in(&holder, timeline).is_ok() => {
            let message = format!(
                "epoch {epoch} of timeline {timeline} was never marked; pass one that omniheap_timeline_mark returned for it"
            );
            Failure::new(OmniheapStatus::NoSuchTimeline, message)
        }
        _ => error.into(),
    })
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
    call(|| {
        let timeline = named(timeline)?;
        with(manager, |timelines| timelines.close(timeline))
    })
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
        let timeline = named(timeline)?;
        let marked = with(manager, |timelines| timelines.mark(timeline))?;
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
        let timeline = named(timeline)?;
        let reached = with(manager, |timelines| timelines.reached(timeline))?;
        // SAFETY: the caller's promise.
        unsafe { put(epoch, reached.0, "epoch") }
    })
}

/// Blocks until a timeline has reached an epoch. `NO_SUCH_TIMELINE` also for an epoch that was never marked.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_timeline_wait(
    manager: OmniheapManager,
    timeline: u32,
    epoch: u64,
) -> OmniheapStatus {
    call(|| with_point(manager, (timeline, epoch), |timelines, point| timelines.wait(point)))
}

/// Makes the timeline `waiting` wait, on the device, until another has reached an epoch. The host does not wait.
#[unsafe(no_mangle)]
pub extern "C" fn omniheap_timeline_order(
    manager: OmniheapManager,
    waiting: u32,
    timeline: u32,
    epoch: u64,
) -> OmniheapStatus {
    call(|| {
        let waiting = open_in(&*holder(manager)?, waiting)?;
        with_point(manager, (timeline, epoch), |timelines, point| timelines.order(waiting, point))
    })
}
