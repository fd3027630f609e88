//! All work of a device as one timeline: it touches no stream that may be gone, and spoils no capture.
#![expect(unsafe_code, reason = "asks about streams")]
use crate::rig::{Device, open};
use crate::streams::Streams;
use omniheap_core::{Epoch, ErrorKind, Point, TimelineId};
use omniheap_stream::{Capture, Standing, StreamOwner, lock};
use std::sync::MutexGuard;

const ALL: TimelineId = TimelineId::ALL;
/// Streams that the caller owns.
const ONE: u32 = 1001;
const TWO: u32 = 1002;

fn streams(device: &Device) -> MutexGuard<'_, Streams> {
    lock(&device.driver().streams)
}

/// Returns a device whose driver follows all work at once, or not.
fn device(follows_all: bool) -> Device {
    let device = open();
    streams(&device).follows_all = follows_all;
    device
}

fn mark(device: &Device) -> Point {
    Point { timeline: ALL, epoch: device.timelines().mark(ALL).expect("always") }
}

fn has_reached(device: &Device, point: Point) -> bool {
    device.timelines().reached(ALL).expect("alive") >= point.epoch
}

#[test]
fn a_stream_that_is_gone_is_waited_for_and_never_touched() {
    let device = device(true);
    let lines = device.timelines();
    let one = lines.add(ONE, StreamOwner::Borrowed).expect("few");
    streams(&device).submit(ONE);
    streams(&device).destroy(ONE);
    let point = mark(&device);
    assert!(!has_reached(&device, point), "its work still runs");
    let own = lines.mark(one).expect("the whole device stands for it");
    assert!(lines.reached(one).expect("alive") < own);
    lines.order(TimelineId::MAIN, point).expect("it was recorded");
    streams(&device).finish();
    assert!(has_reached(&device, point));
    assert!(lines.reached(one).expect("alive") >= own);
    lines.close(one).expect("it waits for the device instead");
}

/// A wait for a stream fails while a graph is captured elsewhere. The work still runs, so the timeline must not look finished.
#[test]
fn a_timeline_whose_work_cannot_be_waited_for_stays_open() {
    let device = device(true);
    let lines = device.timelines();
    let line = lines.open().expect("a stream");
    let stream = lines.get(line).and_then(|it| it.stream()).expect("open");
    streams(&device).submit(stream);
    let own = lines.mark(line).expect("open");
    for kind in [ErrorKind::Busy, ErrorKind::Driver, ErrorKind::OutOfHostMemory] {
        *lock(&device.driver().at_drain) = Some(kind);
        assert_eq!(lines.close(line).map_err(|error| error.kind()), Err(kind));
        assert!(lines.reached(line).expect("it is still open") < own, "its work still runs");
    }
    *lock(&device.driver().at_drain) = None;
    lines.close(line).expect("its work can be waited for");
    let closed = lines.reached(line).map_err(|error| error.kind());
    assert_eq!(closed, Err(ErrorKind::NoSuchTimeline));
}

/// To close the timeline of a stream that may be gone, the device is waited for.
#[test]
fn closing_a_borrowed_stream_spoils_no_capture() {
    let device = device(true);
    let lines = device.timelines();
    let two = lines.add(TWO, StreamOwner::Borrowed).expect("few");
    lines.begin_capture();
    streams(&device).begin_capture(ONE);
    assert_eq!(lines.close(two).map_err(|error| error.kind()), Err(ErrorKind::Busy));
    streams(&device).end_capture(ONE);
    lines.end_capture();
    lines.close(two).expect("nothing stands in the way");
}

#[test]
fn a_timeline_of_a_lost_device_is_closed() {
    let device = device(true);
    let lines = device.timelines();
    let line = lines.open().expect("a stream");
    *lock(&device.driver().at_drain) = Some(ErrorKind::DeviceLost);
    assert_eq!(lines.close(line).map_err(|error| error.kind()), Err(ErrorKind::DeviceLost));
    let closed = lines.close(line).map_err(|error| error.kind());
    assert_eq!(closed, Err(ErrorKind::NoSuchTimeline));
}

#[test]
fn a_timeline_goes_on_with_another_stream() {
    let device = device(true);
    let lines = device.timelines();
    let line = lines.add(ONE, StreamOwner::Borrowed).expect("few");
    streams(&device).destroy(ONE);
    lines.lend_again(line, TWO).expect("it is open");
    let point = mark(&device);
    lines.order(line, point).expect("the new stream lives");
    assert_eq!(lines.get(line).expect("open").stream(), Ok(TWO));
    let unknown = lines.lend_again(TimelineId(77), TWO).map_err(|error| error.kind());
    assert_eq!(unknown, Err(ErrorKind::NoSuchTimeline));
}

#[test]
fn marks_of_a_capture_count_when_it_has_ended() {
    let device = device(true);
    let lines = device.timelines();
    let before = mark(&device);
    lines.begin_capture();
    streams(&device).begin_capture(ONE);
    assert!(has_reached(&device, before), "what was recorded before can be looked at");
    let during = mark(&device);
    assert_eq!(mark(&device), during, "it stands for both");
    assert!(!has_reached(&device, during));
    let busy = Some(ErrorKind::Busy);
    assert_eq!(lines.wait(during).err().map(|error| error.kind()), busy);
    let order = lines.order(TimelineId::MAIN, during);
    assert_eq!(order.err().map(|error| error.kind()), busy);
    streams(&device).end_capture(ONE);
    lines.end_capture();
    assert!(has_reached(&device, during));
    assert!(mark(&device).epoch > during.epoch);
}

#[test]
fn marks_of_a_borrowed_stream_spoil_no_capture() {
    let device = device(true);
    let lines = device.timelines();
    let two = lines.add(TWO, StreamOwner::Borrowed).expect("few");
    lines.begin_capture();
    streams(&device).begin_capture(ONE);
    streams(&device).submit(TWO);
    let own = lines.mark(two).expect("always");
    streams(&device).finish();
    assert!(lines.reached(two).expect("alive") < own, "it is not recorded yet");
    let point = Point { timeline: two, epoch: own };
    let busy = Some(ErrorKind::Busy);
    assert_eq!(lines.wait(point).err().map(|error| error.kind()), busy);
    assert_eq!(lines.order(TimelineId::MAIN, point).err().map(|error| error.kind()), busy);
    streams(&device).end_capture(ONE);
    lines.end_capture();
    lines.wait(point).expect("nothing stands in the way");
    assert!(lines.reached(two).expect("alive") >= own);
}

#[test]
fn the_device_is_not_waited_for_while_a_capture_is_under_way() {
    let device = device(true);
    let lines = device.timelines();
    lines.begin_capture();
    streams(&device).begin_capture(ONE);
    assert_eq!(lines.wait_idle().map_err(|error| error.kind()), Err(ErrorKind::Busy));
    streams(&device).end_capture(ONE);
    lines.end_capture();
    lines.wait_idle().expect("nothing stands in the way");
}

#[test]
fn epochs_go_on_with_another_stream() {
    let device = device(true);
    let lines = device.timelines();
    let line = lines.add(ONE, StreamOwner::Borrowed).expect("few");
    let earlier = [(); 3].map(|()| lines.mark(line).expect("always"))[2];
    assert!(lines.reached(line).expect("alive") >= earlier);
    lines.lend_again(line, TWO).expect("it is open");
    assert!(lines.reached(line).expect("alive") >= earlier, "what is reached stays reached");
    assert!(lines.mark(line).expect("always") > earlier);
}

#[test]
fn captures_end_as_often_as_they_began() {
    let device = device(true);
    let lines = device.timelines();
    lines.begin_capture();
    lines.begin_capture();
    let during = mark(&device);
    lines.end_capture();
    assert!(!has_reached(&device, during), "one is still under way");
    lines.end_capture();
    assert!(has_reached(&device, during));
}

#[test]
fn marks_count_though_captures_follow_each_other_and_nobody_asks_between_them() {
    let device = device(true);
    let lines = device.timelines();
    lines.begin_capture();
    let during = mark(&device);
    lines.end_capture();
    lines.begin_capture();
    assert!(has_reached(&device, during));
    lines.end_capture();
}

#[test]
fn streams_that_last_are_joined_where_the_driver_cannot_follow_all() {
    let device = device(false);
    let lines = device.timelines();
    let [one, two] = [ONE, TWO].map(|stream| lines.add(stream, StreamOwner::Caller).expect("few"));
    streams(&device).submit(TWO);
    let point = mark(&device);
    assert!(!has_reached(&device, point));
    lines.order(one, point).expect("it was recorded");
    streams(&device).finish();
    assert!(has_reached(&device, point));
    streams(&device).begin_capture(ONE);
    let during = mark(&device);
    assert!(!has_reached(&device, during), "nothing may be recorded on a captured stream");
    streams(&device).end_capture(ONE);
    assert!(has_reached(&device, during));
    for line in [one, two] {
        lines.close(line).expect("idle");
    }
}

#[test]
fn where_nothing_can_be_followed_only_waiting_tells() {
    let device = device(false);
    let lines = device.timelines();
    lines.add(ONE, StreamOwner::Borrowed).expect("few");
    streams(&device).submit(ONE);
    streams(&device).destroy(ONE);
    let point = mark(&device);
    streams(&device).finish();
    assert!(!has_reached(&device, point), "nobody can know");
    lines.wait(point).expect("the device is waited for");
    assert!(has_reached(&device, point));
    assert!(!has_reached(&device, mark(&device)));
}

#[test]
fn nothing_is_submitted_to_all_timelines() {
    let device = device(true);
    let lines = device.timelines();
    let refused = Some(ErrorKind::NoSuchTimeline);
    assert_eq!(lines.get(ALL).err().map(|error| error.kind()), refused);
    assert_eq!(lines.close(ALL).err().map(|error| error.kind()), refused);
    let point = Point { timeline: TimelineId::MAIN, epoch: Epoch::START };
    assert_eq!(lines.order(ALL, point).err().map(|error| error.kind()), refused);
}

#[test]
fn a_stream_is_known_by_its_number_or_by_its_capture() {
    let device = device(true);
    let lines = device.timelines();
    // SAFETY: streams of this driver are numbers.
    let standing = |stream| unsafe { lines.standing(stream) }.expect("alive");
    assert_eq!(standing(ONE), Standing::Running(Some(u64::from(ONE))));
    streams(&device).begin_capture(ONE);
    // Its number is not asked for: that would spoil the capture.
    assert_eq!(standing(ONE), Standing::Captured(Capture { id: 1, graph: Some(1) }));
    // SAFETY: as above.
    let gone = unsafe { lines.watch(1) }.expect("the driver tells");
    assert!(!gone.load(core::sync::atomic::Ordering::Acquire));
    streams(&device).end_capture(ONE);
}
