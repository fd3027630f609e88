//! Timelines.
#![expect(unsafe_code, reason = "hands in streams")]
use crate::support::{DEVICE, Gate, MAIN, allocate, at, free, kind, read, timeline, write};
use core::time::Duration;
use omniheap_core::{Backend, Epoch, ErrorKind, Point, TimelineId, Timelines, Transfer};
use omniheap_hip::{Config, DefaultStream, Hip};
use std::time::Instant;

crate::cases! {
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

fn a_fresh_timeline_has_reached_the_start(hip: &Hip) {
    let on = timeline(hip);
    assert_eq!(hip.reached(on), Ok(Epoch::START));
    assert_eq!(hip.wait(point(on, Epoch::START)), Ok(()));
    assert_eq!(hip.close(on), Ok(()));
}

fn an_epoch_is_reached_after_its_work_and_not_before(hip: &Hip) {
    for on in [MAIN, timeline(hip)] {
        let before = hip.mark(on).expect("open");
        hip.wait(point(on, before)).expect("open");
        let gate = Gate::close(hip, on);
        let epoch = hip.mark(on).expect("open");
        assert!(epoch > before);
        for_a_while(|| assert_eq!(hip.reached(on), Ok(before), "too early"));
        gate.open();
        hip.wait(point(on, epoch)).expect("open");
        assert_eq!(hip.reached(on), Ok(epoch));
    }
}

fn one_timeline_waits_for_another(hip: &Hip) {
    let (first, second) = (timeline(hip), timeline(hip));
    let block = allocate(hip, DEVICE, 64);
    write(hip, &block, 0, &[0; 64]);
    hip.wait_idle().expect("the device works");
    let gate = Gate::close(hip, first);
    hip.fill(first, at(&block, 0), 64, 1).expect("in range");
    let epoch = hip.mark(first).expect("open");
    hip.order(second, point(first, epoch)).expect("both open");
    hip.fill(second, at(&block, 0), 32, 2).expect("in range");
    let done = hip.mark(second).expect("open");
    for_a_while(|| assert!(hip.reached(second).expect("open") < done, "it did not wait"));
    gate.open();
    hip.wait(point(second, done)).expect("open");
    hip.wait(point(first, epoch)).expect("open");
    let seen = read(hip, &block, 0, 64);
    assert_eq!((seen[0], seen[31], seen[32], seen[63]), (2, 2, 1, 1));
    drop(gate);
    // A point that was reached holds nothing back.
    hip.order(first, point(second, done)).expect("both open");
    free(hip, block);
}

fn marks_never_decrease(hip: &Hip) {
    let on = timeline(hip);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut last = Epoch::START;
                for _ in 0..500 {
                    let epoch = hip.mark(on).expect("open");
                    assert!(epoch > last);
                    last = epoch;
                    let reached = hip.reached(on).expect("open");
                    hip.wait(point(on, epoch)).expect("open");
                    assert!(hip.reached(on).expect("open") >= reached.max(epoch));
                }
            });
        }
    });
    hip.close(on).expect("it was open");
}

fn many_marks_do_not_grow(hip: &Hip) {
    let on = timeline(hip);
    let mut last = Epoch::START;
    for _ in 0..100_000 {
        last = hip.mark(on).expect("open");
    }
    hip.wait(point(on, last)).expect("open");
    assert_eq!(hip.reached(on), Ok(last));
    let events = hip.spare_events();
    println!("{events} events for 100,000 marks");
    assert!((1..=1100).contains(&events), "{events} events");
    hip.close(on).expect("it was open");
}

fn waiting_marks_are_bounded(hip: &Hip) {
    // Not more: a queue of AMD's has an end, and a mark waits for room in it.
    const MARKS: usize = 4_000;
    let on = timeline(hip);
    let gate = Gate::close(hip, on);
    let epochs: Vec<_> = (0..MARKS).map(|_| hip.mark(on).expect("open")).collect();
    assert_eq!(hip.reached(on), Ok(Epoch::START), "too early");
    gate.open();
    for &epoch in epochs.iter().step_by(333) {
        hip.wait(point(on, epoch)).expect("open");
        assert!(hip.reached(on).expect("open") >= epoch);
    }
    hip.wait(point(on, epochs[MARKS - 1])).expect("open");
    assert_eq!(hip.reached(on), Ok(epochs[MARKS - 1]));
    assert!(hip.spare_events() <= 1100, "{} events", hip.spare_events());
}

fn closed_timelines_are_refused(hip: &Hip) {
    let on = timeline(hip);
    let block = allocate(hip, DEVICE, 8);
    hip.close(on).expect("it was open");
    let refused = Some(ErrorKind::NoSuchTimeline);
    assert_eq!(kind(hip.close(on)), refused);
    assert_eq!(kind(hip.mark(on)), refused);
    assert_eq!(kind(hip.reached(on)), refused);
    assert_eq!(kind(hip.wait(point(on, Epoch::START))), refused);
    assert_eq!(kind(hip.order(MAIN, point(on, Epoch::START))), refused);
    assert_eq!(kind(hip.order(on, point(MAIN, Epoch::START))), refused);
    assert_eq!(kind(hip.write(on, at(&block, 0), &[1])), refused);
    assert_eq!(kind(hip.fill(on, at(&block, 0), 1, 1)), refused);
    assert_eq!(kind(hip.close(MAIN)), Some(ErrorKind::Unsupported));
    assert_ne!(timeline(hip), on, "an id is not used again");
    free(hip, block);
}

fn an_epoch_from_elsewhere_is_refused(hip: &Hip) {
    let on = timeline(hip);
    let epoch = hip.mark(on).expect("open");
    let later = point(on, Epoch(epoch.0 + 1));
    assert_eq!(kind(hip.wait(later)), Some(ErrorKind::NoSuchTimeline));
    assert_eq!(kind(hip.order(MAIN, later)), Some(ErrorKind::NoSuchTimeline));
}

fn default_streams_work(hip: &Hip) {
    let block = allocate(hip, DEVICE, 64);
    for (value, which) in [(1, DefaultStream::Legacy), (2, DefaultStream::PerThread)] {
        let on = hip.open_default(which).expect("they exist");
        hip.write(on, at(&block, 0), &[value; 64]).expect("in range");
        let epoch = hip.mark(on).expect("open");
        hip.wait(point(on, epoch)).expect("open");
        let mut seen = [0; 64];
        hip.read(on, at(&block, 0), &mut seen).expect("in range");
        assert_eq!(seen, [value; 64], "{which:?}");
        hip.close(on).expect("it was open");
    }
    free(hip, block);
}

fn a_per_thread_stream_stays_on_its_thread(hip: &Hip) {
    let on = hip.open_default(DefaultStream::PerThread).expect("it exists");
    let epoch = hip.mark(on).expect("this thread's own");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(kind(hip.mark(on)), Some(ErrorKind::NoSuchTimeline));
            assert_eq!(hip.wait(point(on, epoch)), Ok(()), "looking is allowed");
        });
    });
    hip.close(on).expect("it was open");
}

fn an_adopted_stream_is_a_timeline(hip: &Hip) {
    let own = timeline(hip);
    let stream = hip.stream(own).expect("open");
    // SAFETY: the stream lives until `own` is closed, which is after `adopted` is.
    let adopted = unsafe { hip.adopt_stream(stream) }.expect("the same device");
    let gate = Gate::close(hip, own);
    let epoch = hip.mark(adopted).expect("open");
    assert_eq!(hip.reached(adopted), Ok(Epoch::START), "it is the same stream");
    gate.open();
    hip.wait(point(adopted, epoch)).expect("open");
    drop(gate);
    hip.close(adopted).expect("it was open");
    // Closing the adopted one leaves the stream alone.
    let block = allocate(hip, DEVICE, 8);
    hip.write(own, at(&block, 0), &[6; 8]).expect("in range");
    let mut seen = [0; 8];
    hip.read(own, at(&block, 0), &mut seen).expect("in range");
    assert_eq!(seen, [6; 8]);
    hip.close(own).expect("it was open");
    free(hip, block);
}

fn a_foreign_stream_is_refused(hip: &Hip) {
    let own = hip.stream(MAIN).expect("open");
    // SAFETY: the device is refused before the stream is used.
    let wrapped = unsafe { Hip::wrap(Hip::count(), own, Config::new()) };
    assert_eq!(kind(wrapped), Some(ErrorKind::InvalidConfig));
    let peer = Hip::count() - 1;
    if peer == 0 {
        // Both are one device, whose streams are not foreign.
        return;
    }
    let other = Hip::open(peer).expect("it was counted");
    let stream = other.stream(MAIN).expect("open");
    // SAFETY: the stream lives as long as `other`; the timeline is refused.
    let adopted = unsafe { hip.adopt_stream(stream) };
    assert_eq!(kind(adopted), Some(ErrorKind::Foreign));
}

fn a_wrapped_stream_works(hip: &Hip) {
    let stream = hip.stream(MAIN).expect("open");
    // SAFETY: the stream lives as long as `hip`, which outlives `wrapped`.
    let wrapped = unsafe { Hip::wrap(0, stream, Config::new()) };
    let wrapped = wrapped.expect("a live stream");
    let block = allocate(&wrapped, DEVICE, 4096);
    write(&wrapped, &block, 0, &[9; 4096]);
    assert_eq!(read(&wrapped, &block, 0, 4096), [9; 4096]);
    assert_eq!(wrapped.stream(MAIN), Ok(stream));
    assert_eq!(wrapped.caps().device, hip.caps().device);
    free(&wrapped, block);
    drop(wrapped);
    let epoch = hip.mark(MAIN).expect("the stream is still there");
    hip.wait(point(MAIN, epoch)).expect("open");
}

fn timelines_come_and_go(hip: &Hip) {
    let block = allocate(hip, DEVICE, 256);
    for round in 0..200u8 {
        let on = timeline(hip);
        hip.write(on, at(&block, 0), &[round; 256]).expect("in range");
        hip.close(on).expect("it was open");
        assert_eq!(read(hip, &block, 0, 256), [round; 256], "closing waits for the work");
    }
    free(hip, block);
}

fn closing_waits_for_the_work(hip: &Hip) {
    let on = timeline(hip);
    let block = allocate(hip, DEVICE, 64);
    let gate = Gate::close(hip, on);
    hip.fill(on, at(&block, 0), 64, 7).expect("in range");
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| hip.close(on));
        for_a_while(|| assert!(!closing.is_finished(), "it did not wait"));
        gate.open();
        assert_eq!(closing.join().expect("no panic"), Ok(()));
    });
    assert_eq!(read(hip, &block, 0, 64), [7; 64]);
    drop(gate);
    free(hip, block);
}

fn waiters_see_their_own_epoch(hip: &Hip) {
    let on = timeline(hip);
    let gate = Gate::close(hip, on);
    let epochs: Vec<_> = (0..8).map(|_| hip.mark(on).expect("open")).collect();
    std::thread::scope(|scope| {
        for &epoch in &epochs {
            scope.spawn(move || {
                hip.wait(point(on, epoch)).expect("open");
                assert!(hip.reached(on).expect("open") >= epoch);
            });
        }
        gate.open();
        // Events are recorded again while others wait for their first meaning.
        for _ in 0..2000 {
            hip.mark(MAIN).expect("open");
            hip.reached(MAIN).expect("open");
        }
    });
}
