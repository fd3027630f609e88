//! Timelines.
#![expect(unsafe_code, reason = "hands in streams")]
use crate::support::{DEVICE, Gate, MAIN, allocate, at, free, kind, read, timeline, write};
use core::time::Duration;
use omniheap_core::{Backend, Epoch, ErrorKind, Point, TimelineId, Timelines, Transfer};
use omniheap_cuda::{Config, Cuda, DefaultStream};
use std::time::Instant;

crate::cases! {
    Nothing: a_fresh_timeline_has_reached_the_start, marks_never_decrease, many_marks_do_not_grow,
        closed_timelines_are_refused, an_epoch_from_elsewhere_is_refused, default_streams_work,
        a_per_thread_stream_stays_on_its_thread, a_foreign_stream_is_refused,
        timelines_come_and_go, a_wrapped_context_works;
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

fn a_fresh_timeline_has_reached_the_start(cuda: &Cuda) {
    let on = timeline(cuda);
    assert_eq!(cuda.reached(on), Ok(Epoch::START));
    assert_eq!(cuda.wait(point(on, Epoch::START)), Ok(()));
    assert_eq!(cuda.close(on), Ok(()));
}

fn an_epoch_is_reached_after_its_work_and_not_before(cuda: &Cuda) {
    for on in [MAIN, timeline(cuda)] {
        let before = cuda.mark(on).expect("open");
        cuda.wait(point(on, before)).expect("open");
        let gate = Gate::close(cuda, on);
        let epoch = cuda.mark(on).expect("open");
        assert!(epoch > before);
        for_a_while(|| assert_eq!(cuda.reached(on), Ok(before), "too early"));
        gate.open();
        cuda.wait(point(on, epoch)).expect("open");
        assert_eq!(cuda.reached(on), Ok(epoch));
    }
}

fn one_timeline_waits_for_another(cuda: &Cuda) {
    let (first, second) = (timeline(cuda), timeline(cuda));
    let block = allocate(cuda, DEVICE, 64);
    write(cuda, &block, 0, &[0; 64]);
    cuda.wait_idle().expect("the device works");
    let gate = Gate::close(cuda, first);
    cuda.fill(first, at(&block, 0), 64, 1).expect("in range");
    let epoch = cuda.mark(first).expect("open");
    cuda.order(second, point(first, epoch)).expect("both open");
    cuda.fill(second, at(&block, 0), 32, 2).expect("in range");
    let done = cuda.mark(second).expect("open");
    for_a_while(|| assert!(cuda.reached(second).expect("open") < done, "it did not wait"));
    gate.open();
    cuda.wait(point(second, done)).expect("open");
    cuda.wait(point(first, epoch)).expect("open");
    let seen = read(cuda, &block, 0, 64);
    assert_eq!((seen[0], seen[31], seen[32], seen[63]), (2, 2, 1, 1));
    drop(gate);
    // A point that was reached holds nothing back.
    cuda.order(first, point(second, done)).expect("both open");
    free(cuda, block);
}

fn marks_never_decrease(cuda: &Cuda) {
    let on = timeline(cuda);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut last = Epoch::START;
                for _ in 0..500 {
                    let epoch = cuda.mark(on).expect("open");
                    assert!(epoch > last);
                    last = epoch;
                    let reached = cuda.reached(on).expect("open");
                    cuda.wait(point(on, epoch)).expect("open");
                    assert!(cuda.reached(on).expect("open") >= reached.max(epoch));
                }
            });
        }
    });
    cuda.close(on).expect("it was open");
}

fn many_marks_do_not_grow(cuda: &Cuda) {
    let on = timeline(cuda);
    let mut last = Epoch::START;
    for _ in 0..100_000 {
        last = cuda.mark(on).expect("open");
    }
    cuda.wait(point(on, last)).expect("open");
    assert_eq!(cuda.reached(on), Ok(last));
    let events = cuda.spare_events();
    println!("{events} events for 100,000 marks");
    assert!((1..=1100).contains(&events), "{events} events");
    cuda.close(on).expect("it was open");
}

fn waiting_marks_are_bounded(cuda: &Cuda) {
    let on = timeline(cuda);
    let gate = Gate::close(cuda, on);
    let epochs: Vec<_> = (0..20_000).map(|_| cuda.mark(on).expect("open")).collect();
    assert_eq!(cuda.reached(on), Ok(Epoch::START), "too early");
    gate.open();
    for &epoch in epochs.iter().step_by(999) {
        cuda.wait(point(on, epoch)).expect("open");
        assert!(cuda.reached(on).expect("open") >= epoch);
    }
    cuda.wait(point(on, epochs[19_999])).expect("open");
    assert_eq!(cuda.reached(on), Ok(epochs[19_999]));
    assert!(cuda.spare_events() <= 1100, "{} events", cuda.spare_events());
}

fn closed_timelines_are_refused(cuda: &Cuda) {
    let on = timeline(cuda);
    let block = allocate(cuda, DEVICE, 8);
    cuda.close(on).expect("it was open");
    let refused = Some(ErrorKind::NoSuchTimeline);
    assert_eq!(kind(cuda.close(on)), refused);
    assert_eq!(kind(cuda.mark(on)), refused);
    assert_eq!(kind(cuda.reached(on)), refused);
    assert_eq!(kind(cuda.wait(point(on, Epoch::START))), refused);
    assert_eq!(kind(cuda.order(MAIN, point(on, Epoch::START))), refused);
    assert_eq!(kind(cuda.order(on, point(MAIN, Epoch::START))), refused);
    assert_eq!(kind(cuda.write(on, at(&block, 0), &[1])), refused);
    assert_eq!(kind(cuda.fill(on, at(&block, 0), 1, 1)), refused);
    assert_eq!(kind(cuda.close(MAIN)), Some(ErrorKind::Unsupported));
    assert_ne!(timeline(cuda), on, "an id is not used again");
    free(cuda, block);
}

fn an_epoch_from_elsewhere_is_refused(cuda: &Cuda) {
    let on = timeline(cuda);
    let epoch = cuda.mark(on).expect("open");
    let later = point(on, Epoch(epoch.0 + 1));
    assert_eq!(kind(cuda.wait(later)), Some(ErrorKind::NoSuchTimeline));
    assert_eq!(kind(cuda.order(MAIN, later)), Some(ErrorKind::NoSuchTimeline));
}

fn default_streams_work(cuda: &Cuda) {
    let block = allocate(cuda, DEVICE, 64);
    for (value, which) in [(1, DefaultStream::Legacy), (2, DefaultStream::PerThread)] {
        let on = cuda.open_default(which).expect("they exist");
        cuda.write(on, at(&block, 0), &[value; 64]).expect("in range");
        let epoch = cuda.mark(on).expect("open");
        cuda.wait(point(on, epoch)).expect("open");
        let mut seen = [0; 64];
        cuda.read(on, at(&block, 0), &mut seen).expect("in range");
        assert_eq!(seen, [value; 64], "{which:?}");
        cuda.close(on).expect("it was open");
    }
    free(cuda, block);
}

fn a_per_thread_stream_stays_on_its_thread(cuda: &Cuda) {
    let on = cuda.open_default(DefaultStream::PerThread).expect("it exists");
    let epoch = cuda.mark(on).expect("this thread's own");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(kind(cuda.mark(on)), Some(ErrorKind::NoSuchTimeline));
            assert_eq!(cuda.wait(point(on, epoch)), Ok(()), "looking is allowed");
        });
    });
    cuda.close(on).expect("it was open");
}

fn an_adopted_stream_is_a_timeline(cuda: &Cuda) {
    let own = timeline(cuda);
    let stream = cuda.stream(own).expect("open");
    // SAFETY: the stream lives until `own` is closed, which is after `adopted` is.
    let adopted = unsafe { cuda.adopt_stream(stream) }.expect("the same context");
    let gate = Gate::close(cuda, own);
    let epoch = cuda.mark(adopted).expect("open");
    assert_eq!(cuda.reached(adopted), Ok(Epoch::START), "it is the same stream");
    gate.open();
    cuda.wait(point(adopted, epoch)).expect("open");
    drop(gate);
    cuda.close(adopted).expect("it was open");
    // Closing the adopted one leaves the stream alone.
    let block = allocate(cuda, DEVICE, 8);
    cuda.write(own, at(&block, 0), &[6; 8]).expect("in range");
    let mut seen = [0; 8];
    cuda.read(own, at(&block, 0), &mut seen).expect("in range");
    assert_eq!(seen, [6; 8]);
    cuda.close(own).expect("it was open");
    free(cuda, block);
}

fn a_foreign_stream_is_refused(cuda: &Cuda) {
    let nowhere = core::ptr::null_mut();
    // SAFETY: a null context is refused before it is used.
    let wrapped = unsafe { Cuda::wrap(nowhere, None, Config::new()) };
    assert_eq!(kind(wrapped), Some(ErrorKind::InvalidConfig));
    let peer = Cuda::count() - 1;
    if peer == 0 {
        // Both are the primary context of one device, whose streams are not foreign.
        return;
    }
    let other = Cuda::open(peer).expect("it was counted");
    let stream = other.stream(MAIN).expect("open");
    // SAFETY: the stream lives as long as `other`; the timeline is refused.
    let adopted = unsafe { cuda.adopt_stream(stream) };
    assert_eq!(kind(adopted), Some(ErrorKind::Foreign));
}

fn a_wrapped_context_works(cuda: &Cuda) {
    let stream = cuda.stream(MAIN).expect("open");
    // SAFETY: context and stream live as long as `cuda`, which outlives `wrapped`.
    let wrapped = unsafe { Cuda::wrap(cuda.context(), Some(stream), Config::new()) };
    let wrapped = wrapped.expect("a live context");
    let block = allocate(&wrapped, DEVICE, 4096);
    write(&wrapped, &block, 0, &[9; 4096]);
    assert_eq!(read(&wrapped, &block, 0, 4096), [9; 4096]);
    assert_eq!(wrapped.stream(MAIN), Ok(stream));
    assert_eq!(wrapped.caps().device, cuda.caps().device);
    free(&wrapped, block);
    drop(wrapped);
    let epoch = cuda.mark(MAIN).expect("the stream is still there");
    cuda.wait(point(MAIN, epoch)).expect("open");
}

fn timelines_come_and_go(cuda: &Cuda) {
    let block = allocate(cuda, DEVICE, 256);
    for round in 0..200u8 {
        let on = timeline(cuda);
        cuda.write(on, at(&block, 0), &[round; 256]).expect("in range");
        cuda.close(on).expect("it was open");
        assert_eq!(read(cuda, &block, 0, 256), [round; 256], "closing waits for the work");
    }
    free(cuda, block);
}

fn closing_waits_for_the_work(cuda: &Cuda) {
    let on = timeline(cuda);
    let block = allocate(cuda, DEVICE, 64);
    let gate = Gate::close(cuda, on);
    cuda.fill(on, at(&block, 0), 64, 7).expect("in range");
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| cuda.close(on));
        for_a_while(|| assert!(!closing.is_finished(), "it did not wait"));
        gate.open();
        assert_eq!(closing.join().expect("no panic"), Ok(()));
    });
    assert_eq!(read(cuda, &block, 0, 64), [7; 64]);
    drop(gate);
    free(cuda, block);
}

fn waiters_see_their_own_epoch(cuda: &Cuda) {
    let on = timeline(cuda);
    let gate = Gate::close(cuda, on);
    let epochs: Vec<_> = (0..8).map(|_| cuda.mark(on).expect("open")).collect();
    std::thread::scope(|scope| {
        for &epoch in &epochs {
            scope.spawn(move || {
                cuda.wait(point(on, epoch)).expect("open");
                assert!(cuda.reached(on).expect("open") >= epoch);
            });
        }
        gate.open();
        // Events are recorded again while others wait for their first meaning.
        for _ in 0..2000 {
            cuda.mark(MAIN).expect("open");
            cuda.reached(MAIN).expect("open");
        }
    });
}
