//! Timelines.
#![expect(unsafe_code, reason = "hands in streams")]
use super::support::{DEVICE, Gate, MAIN, allocate, at, free, kind, read, timeline, write};
use crate::own::{DefaultStream, Device, MANY_MARKS, MARKS, wrap};
use core::time::Duration;
use omniheap_core::{Backend, Epoch, ErrorKind, Point, TimelineId, Timelines, Transfer};
use std::time::Instant;

cases! {
    Nothing: a_fresh_timeline_has_reached_the_start, marks_never_decrease, many_marks_do_not_grow,
        closed_timelines_are_refused, an_epoch_from_elsewhere_is_refused, default_streams_work,
        a_per_thread_stream_stays_on_its_thread, a_foreign_stream_is_refused,
        timelines_come_and_go, a_wrapped_stream_works;
    Compiler: an_epoch_is_reached_after_its_work_and_not_before, one_timeline_waits_for_another,
        waiting_marks_are_bounded, an_adopted_stream_is_a_timeline, closing_waits_for_the_work,
        waiters_see_their_own_epoch;
}

fn point(timeline: TimelineId, epoch: Epoch) -> Point {
    Point { timeline, epoch }
}

/// Checks again and again, long enough for a device that does not wait to be caught.
fn for_a_while(check: impl Fn()) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(30) {
        check();
    }
}

fn a_fresh_timeline_has_reached_the_start(device: &Device) {
    let on = timeline(device);
    assert_eq!(device.reached(on), Ok(Epoch::START));
    assert_eq!(device.wait(point(on, Epoch::START)), Ok(()));
    assert_eq!(device.close(on), Ok(()));
}

fn an_epoch_is_reached_after_its_work_and_not_before(device: &Device) {
    for on in [MAIN, timeline(device)] {
        let before = device.mark(on).expect("open");
        device.wait(point(on, before)).expect("open");
        let gate = Gate::close(device, on);
        let epoch = device.mark(on).expect("open");
        assert!(epoch > before);
        for_a_while(|| assert_eq!(device.reached(on), Ok(before), "too early"));
        gate.open();
        device.wait(point(on, epoch)).expect("open");
        assert_eq!(device.reached(on), Ok(epoch));
    }
}

fn one_timeline_waits_for_another(device: &Device) {
    let (first, second) = (timeline(device), timeline(device));
    let block = allocate(device, DEVICE, 64);
    write(device, &block, 0, &[0; 64]);
    device.wait_idle().expect("the device works");
    let gate = Gate::close(device, first);
    device.fill(first, at(&block, 0), 64, 1).expect("in range");
    let epoch = device.mark(first).expect("open");
    device.order(second, point(first, epoch)).expect("both open");
    device.fill(second, at(&block, 0), 32, 2).expect("in range");
    let done = device.mark(second).expect("open");
    for_a_while(|| assert!(device.reached(second).expect("open") < done, "it did not wait"));
    gate.open();
    device.wait(point(second, done)).expect("open");
    device.wait(point(first, epoch)).expect("open");
    let seen = read(device, &block, 0, 64);
    assert_eq!((seen[0], seen[31], seen[32], seen[63]), (2, 2, 1, 1));
    drop(gate);
    // A point that was reached holds nothing back.
    device.order(first, point(second, done)).expect("both open");
    free(device, block);
}

fn marks_never_decrease(device: &Device) {
    let on = timeline(device);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut last = Epoch::START;
                for _ in 0..500 {
                    let epoch = device.mark(on).expect("open");
                    assert!(epoch > last);
                    last = epoch;
                    let reached = device.reached(on).expect("open");
                    device.wait(point(on, epoch)).expect("open");
                    assert!(device.reached(on).expect("open") >= reached.max(epoch));
                }
            });
        }
    });
    device.close(on).expect("it was open");
}

fn many_marks_do_not_grow(device: &Device) {
    let on = timeline(device);
    let mut last = Epoch::START;
    for _ in 0..MANY_MARKS {
        last = device.mark(on).expect("open");
    }
    device.wait(point(on, last)).expect("open");
    assert_eq!(device.reached(on), Ok(last));
    let events = device.timelines().spare_events();
    println!("{events} events for {MANY_MARKS} marks");
    assert!((1..=1100).contains(&events), "{events} events");
    device.close(on).expect("it was open");
}

fn waiting_marks_are_bounded(device: &Device) {
    let on = timeline(device);
    let gate = Gate::close(device, on);
    let epochs: Vec<_> = (0..MARKS).map(|_| device.mark(on).expect("open")).collect();
    assert_eq!(device.reached(on), Ok(Epoch::START), "too early");
    gate.open();
    for &epoch in epochs.iter().step_by(333) {
        device.wait(point(on, epoch)).expect("open");
        assert!(device.reached(on).expect("open") >= epoch);
    }
    device.wait(point(on, epochs[MARKS - 1])).expect("open");
    assert_eq!(device.reached(on), Ok(epochs[MARKS - 1]));
    assert!(
        device.timelines().spare_events() <= 1100,
        "{} events",
        device.timelines().spare_events()
    );
}

fn closed_timelines_are_refused(device: &Device) {
    let on = timeline(device);
    let block = allocate(device, DEVICE, 8);
    device.close(on).expect("it was open");
    let refused = Some(ErrorKind::NoSuchTimeline);
    assert_eq!(kind(device.close(on)), refused);
    assert_eq!(kind(device.mark(on)), refused);
    assert_eq!(kind(device.reached(on)), refused);
    assert_eq!(kind(device.wait(point(on, Epoch::START))), refused);
    assert_eq!(kind(device.order(MAIN, point(on, Epoch::START))), refused);
    assert_eq!(kind(device.order(on, point(MAIN, Epoch::START))), refused);
    assert_eq!(kind(device.write(on, at(&block, 0), &[1])), refused);
    assert_eq!(kind(device.fill(on, at(&block, 0), 1, 1)), refused);
    assert_eq!(kind(device.close(MAIN)), Some(ErrorKind::Unsupported));
    assert_ne!(timeline(device), on, "an id is not used again");
    free(device, block);
}

fn an_epoch_from_elsewhere_is_refused(device: &Device) {
    let on = timeline(device);
    let epoch = device.mark(on).expect("open");
    let later = point(on, Epoch(epoch.0 + 1));
    assert_eq!(kind(device.wait(later)), Some(ErrorKind::NoSuchTimeline));
    assert_eq!(kind(device.order(MAIN, later)), Some(ErrorKind::NoSuchTimeline));
}

fn default_streams_work(device: &Device) {
    let block = allocate(device, DEVICE, 64);
    for (value, which) in [(1, DefaultStream::Legacy), (2, DefaultStream::PerThread)] {
        let on = device.open_default(which).expect("they exist");
        device.write(on, at(&block, 0), &[value; 64]).expect("in range");
        let epoch = device.mark(on).expect("open");
        device.wait(point(on, epoch)).expect("open");
        let mut seen = [0; 64];
        device.read(on, at(&block, 0), &mut seen).expect("in range");
        assert_eq!(seen, [value; 64], "{which:?}");
        device.close(on).expect("it was open");
    }
    free(device, block);
}

fn a_per_thread_stream_stays_on_its_thread(device: &Device) {
    let on = device.open_default(DefaultStream::PerThread).expect("it exists");
    let epoch = device.mark(on).expect("this thread's own");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(kind(device.mark(on)), Some(ErrorKind::NoSuchTimeline));
            assert_eq!(device.wait(point(on, epoch)), Ok(()), "looking is allowed");
        });
    });
    device.close(on).expect("it was open");
}

fn an_adopted_stream_is_a_timeline(device: &Device) {
    let own = timeline(device);
    let stream = device.stream(own).expect("open");
    // SAFETY: the stream lives until `own` is closed, which is after `adopted` is.
    let adopted = unsafe { device.adopt_stream(stream) }.expect("the same device");
    let gate = Gate::close(device, own);
    let epoch = device.mark(adopted).expect("open");
    assert_eq!(device.reached(adopted), Ok(Epoch::START), "it is the same stream");
    gate.open();
    device.wait(point(adopted, epoch)).expect("open");
    drop(gate);
    device.close(adopted).expect("it was open");
    // Closing the adopted one leaves the stream alone.
    let block = allocate(device, DEVICE, 8);
    device.write(own, at(&block, 0), &[6; 8]).expect("in range");
    let mut seen = [0; 8];
    device.read(own, at(&block, 0), &mut seen).expect("in range");
    assert_eq!(seen, [6; 8]);
    device.close(own).expect("it was open");
    free(device, block);
}

fn a_foreign_stream_is_refused(device: &Device) {
    let peer = Device::count() - 1;
    if peer == 0 {
        // Both are one device, whose streams are not foreign.
        return;
    }
    let other = Device::open(peer).expect("it was counted");
    let stream = other.stream(MAIN).expect("open");
    // SAFETY: the stream lives as long as `other`; the timeline is refused.
    let adopted = unsafe { device.adopt_stream(stream) };
    assert_eq!(kind(adopted), Some(ErrorKind::Foreign));
}

fn a_wrapped_stream_works(device: &Device) {
    let stream = device.stream(MAIN).expect("open");
    let wrapped = wrap(device, stream).expect("a live stream");
    let block = allocate(&wrapped, DEVICE, 4096);
    write(&wrapped, &block, 0, &[9; 4096]);
    assert_eq!(read(&wrapped, &block, 0, 4096), [9; 4096]);
    assert_eq!(wrapped.stream(MAIN), Ok(stream));
    assert_eq!(wrapped.caps().device, device.caps().device);
    free(&wrapped, block);
    drop(wrapped);
    let epoch = device.mark(MAIN).expect("the stream is still there");
    device.wait(point(MAIN, epoch)).expect("open");
}

fn timelines_come_and_go(device: &Device) {
    let block = allocate(device, DEVICE, 256);
    for round in 0..200u8 {
        let on = timeline(device);
        device.write(on, at(&block, 0), &[round; 256]).expect("in range");
        device.close(on).expect("it was open");
        assert_eq!(read(device, &block, 0, 256), [round; 256], "closing waits for the work");
    }
    free(device, block);
}

fn closing_waits_for_the_work(device: &Device) {
    let on = timeline(device);
    let block = allocate(device, DEVICE, 64);
    let gate = Gate::close(device, on);
    device.fill(on, at(&block, 0), 64, 7).expect("in range");
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| device.close(on));
        for_a_while(|| assert!(!closing.is_finished(), "it did not wait"));
        gate.open();
        assert_eq!(closing.join().expect("no panic"), Ok(()));
    });
    assert_eq!(read(device, &block, 0, 64), [7; 64]);
    drop(gate);
    free(device, block);
}

fn waiters_see_their_own_epoch(device: &Device) {
    let on = timeline(device);
    let gate = Gate::close(device, on);
    let epochs: Vec<_> = (0..8).map(|_| device.mark(on).expect("open")).collect();
    std::thread::scope(|scope| {
        for &epoch in &epochs {
            scope.spawn(move || {
                device.wait(point(on, epoch)).expect("open");
                assert!(device.reached(on).expect("open") >= epoch);
            });
        }
        gate.open();
        // Events are recorded again while others wait for their first meaning.
        for _ in 0..2000 {
            device.mark(MAIN).expect("open");
            device.reached(MAIN).expect("open");
        }
    });
}
