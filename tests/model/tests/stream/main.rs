//! Marks and bounces of streams, over the driver of plain host memory, when nothing that was submitted has run yet.
#![expect(unsafe_code, reason = "writes through the staging of a device")]
#[path = "../../../../backends/stream/tests/plain/driver.rs"]
#[expect(dead_code, reason = "the tests of the streams need more of it")]
mod driver;
#[path = "../../../../backends/stream/tests/plain/rig.rs"]
#[expect(dead_code, reason = "as above")]
mod rig;
#[path = "../../../../backends/stream/tests/plain/streams.rs"]
#[expect(dead_code, reason = "as above")]
mod streams;

use core::sync::atomic::Ordering;
use omniheap_core::{Point, TimelineId};
use omniheap_stream::{Staging, lock};
use std::sync::Arc;

const MAIN: TimelineId = TimelineId::MAIN;

/// So many marks wait that some are joined with later ones; what they stand for must not seem to have passed, or be unknown.
#[test]
fn marks_that_wait_are_told_apart_or_joined_with_later_ones() {
    let device = rig::open();
    let lines = device.timelines();
    let stream = lines.get(MAIN).and_then(|line| line.stream()).expect("open");
    let other = lines.open().expect("streams are numbers");
    let mut points = Vec::new();
    for _ in 0..5000 {
        lock(&device.driver().streams).submit(stream);
        let epoch = lines.mark(MAIN).expect("alive");
        points.push(Point { timeline: MAIN, epoch });
        assert!(lines.reached(MAIN).expect("alive") < points[0].epoch, "nothing has run");
        lines.order(other, points[points.len() - 1]).expect("the last mark is known");
    }
    points.iter().for_each(|point| lines.order(other, *point).expect("it was marked"));
    lines.wait(points[points.len() / 2]).expect("it comes");
    let reached = lines.reached(MAIN).expect("alive");
    assert!(reached >= points[points.len() / 2].epoch && reached < points[4999].epoch);
    lock(&device.driver().streams).finish();
    assert!(lines.reached(MAIN).expect("alive") >= points[4999].epoch);
}

/// Marks that were made can still be waited for when too many wait and the driver refuses the next one.
#[test]
fn no_mark_is_lost_when_the_next_one_fails() {
    let device = rig::open();
    let lines = device.timelines();
    let stream = lines.get(MAIN).and_then(|line| line.stream()).expect("open");
    let other = lines.open().expect("streams are numbers");
    let mut points = Vec::new();
    for number in 0..5000 {
        lock(&device.driver().streams).submit(stream);
        let epoch = lines.mark(MAIN).expect("alive");
        points.push(Point { timeline: MAIN, epoch });
        device.driver().refuses_records.store(true, Ordering::Relaxed);
        lines.mark(MAIN).expect_err("the driver refuses");
        device.driver().refuses_records.store(false, Ordering::Relaxed);
        let last = lines.order(other, points[number]);
        assert!(last.is_ok(), "mark {number} of 5000 is gone: {last:?}");
    }
    for point in points {
        lines.wait(point).expect("it was marked");
        assert!(lines.reached(MAIN).expect("alive") >= point.epoch);
    }
}

/// While a thread waits for an event, the mark is found reached and others are made: none of them takes that event, or the
/// thread would wait for work that came later.
#[test]
fn an_event_that_somebody_waits_for_is_not_recorded_again() {
    let device = Arc::new(rig::open());
    let stream = device.timelines().get(MAIN).and_then(|line| line.stream()).expect("open");
    lock(&device.driver().streams).submit(stream);
    let point = Point { timeline: MAIN, epoch: device.timelines().mark(MAIN).expect("alive") };
    let (later, told) = std::sync::mpsc::channel();
    let other = Arc::clone(&device);
    *lock(&device.driver().at_wait) = Some(Box::new(move || {
        let (streams, lines) = (&other.driver().streams, other.timelines());
        lock(streams).finish();
        assert_eq!(lines.reached(MAIN).expect("alive"), point.epoch);
        lock(streams).submit(stream);
        later.send(lines.mark(MAIN).expect("alive")).expect("somebody listens");
    }));
    device.timelines().wait(point).expect("it comes");
    let later = told.try_recv().expect("the driver was asked to wait");
    assert!(later > point.epoch);
    assert_eq!(device.timelines().reached(MAIN).expect("alive"), point.epoch, "it waited for more");
}

/// While copies out of a bounce have not run, the next write takes another one, and nobody waits.
#[test]
fn a_bounce_in_flight_is_left_alone() {
    let device = rig::open();
    let (driver, line) = (device.driver(), device.timelines().get(MAIN).expect("open"));
    let stream = line.stream().expect("anybody's");
    let staging = Staging::new(driver);
    let target = rig::allocate(&device, rig::DEVICE, 4096).expect("fits");
    lock(&driver.streams).submit(stream);
    let event = driver_event(driver, stream);
    let mut sources = Vec::new();
    for value in 0..4 {
        // SAFETY: the target has as many bytes.
        unsafe { staging.write(&line, target.address(), &[value; 4096], 1) }.expect("alive");
        sources.push(driver.written_from.load(Ordering::Relaxed));
    }
    assert!(!lock(&driver.streams).is_finished(event), "somebody waited");
    sources.sort_unstable();
    sources.dedup();
    assert_eq!(sources.len(), 4, "a bounce was written to while the device reads it");
    lock(&driver.streams).finish();
    // SAFETY: as above.
    unsafe { staging.write(&line, target.address(), &[9; 4096], 1) }.expect("alive");
    assert!(sources.contains(&driver.written_from.load(Ordering::Relaxed)), "they are used again");
    drop(staging);
    rig::free(&device, target).expect("idle");
}

/// An event behind what was submitted to a stream.
fn driver_event(driver: &Arc<driver::Plain>, stream: u32) -> u32 {
    let event = u32::MAX;
    lock(&driver.streams).record(event, stream);
    event
}
