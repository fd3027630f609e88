//! Timelines: epochs come in order, after their work, and only while their timeline is open.
use crate::{
    Check, Target,
    blocks::{DEVICE, kind},
    bytes::{MAIN, at},
};
use core::sync::atomic::{AtomicBool, Ordering};
use omniheap_core::{Backend, Epoch, ErrorKind, Move, Point, TimelineId, Timelines, Transfer};
use std::sync::Arc;

pub(crate) const CASES: &[(&str, Check)] = &[
    ("epochs_follow_their_work", epochs_follow_their_work),
    ("epochs_cover_the_engines_submissions", epochs_cover_the_engines_submissions),
    ("waiting_does_not_wait_for_later_work", waiting_does_not_wait_for_later_work),
    ("closed_timelines_are_refused", closed_timelines_are_refused),
    ("points_that_nobody_marked_are_refused", points_that_nobody_marked_are_refused),
    ("marks_from_many_threads_never_decrease", marks_from_many_threads_never_decrease),
];

/// Copies for a while. How long that takes is the device's business: no verdict may depend on it.
fn keep_busy(backend: &omniheap_wgpu::Wgpu, submissions: usize) {
    let size = 32 << 20;
    let from = backend.allocate(DEVICE, size).expect("fits");
    let to = backend.allocate(DEVICE, size).expect("fits");
    let one = Move { from: at(&from, 0), to: at(&to, 0), size };
    for _ in 0..submissions * 16 {
        backend.copy(MAIN, &[one]).expect("in range");
    }
    // Dropped while in use: wgpu keeps both until the copies are done.
}

/// Returns whether work is done at once, as on the stand-in.
fn is_instant(target: &Target) -> bool {
    target.label == "noop"
}

/// Returns a flag that wgpu sets once everything submitted so far is done.
fn told_by_wgpu(backend: &omniheap_wgpu::Wgpu) -> Arc<AtomicBool> {
    let done = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&done);
    backend.queue().on_submitted_work_done(move || told.store(true, Ordering::SeqCst));
    done
}

/// Polls until an epoch is reached; by then wgpu has reported the work before it as done.
fn follows(backend: &omniheap_wgpu::Wgpu, epoch: Epoch, done: &AtomicBool) {
    while backend.reached(MAIN).expect("there") < epoch {
        std::thread::yield_now();
    }
    backend.device().poll(wgpu::PollType::Poll).expect("there");
    assert!(done.load(Ordering::SeqCst), "reached before its work");
}

fn epochs_follow_their_work(target: &Target) {
    let backend = (target.open)();
    assert_eq!(backend.reached(MAIN).expect("there"), Epoch::START);
    keep_busy(&backend, 8);
    let done = told_by_wgpu(&backend);
    let first = backend.mark(MAIN).expect("there");
    let second = backend.mark(MAIN).expect("there");
    assert!(Epoch::START < first && first <= second);
    follows(&backend, first, &done);
    backend.wait(Point { timeline: MAIN, epoch: second }).expect("there");
    assert!(backend.reached(MAIN).expect("there") >= second);
}

fn epochs_cover_the_engines_submissions(target: &Target) {
    let backend = (target.open)();
    let size = 64 << 20;
    let block = backend.allocate(DEVICE, size).expect("fits");
    let mut encoder = backend.device().create_command_encoder(&Default::default());
    for _ in 0..32 {
        encoder.clear_buffer(block.buffer(), 0, Some(size));
    }
    backend.queue().submit([encoder.finish()]);
    let done = told_by_wgpu(&backend);
    let epoch = backend.mark(MAIN).expect("there");
    follows(&backend, epoch, &done);
    backend.wait_idle().expect("there");
    assert!(backend.reached(MAIN).expect("there") >= epoch);
}

fn waiting_does_not_wait_for_later_work(target: &Target) {
    let backend = (target.open)();
    let returns_before_the_rest = |later: usize| {
        keep_busy(&backend, 1);
        let early = backend.mark(MAIN).expect("there");
        keep_busy(&backend, later);
        let late = backend.mark(MAIN).expect("there");
        backend.wait(Point { timeline: MAIN, epoch: early }).expect("there");
        let is_before = backend.reached(MAIN).expect("there") < late;
        backend.wait_idle().expect("there");
        is_before
    };
    if is_instant(target) {
        assert!(!returns_before_the_rest(1), "it has done the rest");
        return;
    }
    // The device may be through with the rest when this thread looks; then it gets twice as much. Whoever waits for
    // everything never returns before.
    let shown = (2..=6).any(|power| returns_before_the_rest(1 << power));
    assert!(shown, "waited for everything");
}

fn closed_timelines_are_refused(target: &Target) {
    let backend = (target.open)();
    let timeline = backend.open().expect("there");
    let other = backend.open().expect("there");
    assert!(timeline != other && timeline != MAIN);
    let block = backend.allocate(DEVICE, 64).expect("small");
    backend.fill(timeline, at(&block, 0), 64, 1).expect("in range");
    let epoch = backend.mark(timeline).expect("open");
    let point = Point { timeline, epoch };
    backend.order(other, point).expect("both open");
    backend.close(timeline).expect("open");
    let refusals = [
        kind(backend.mark(timeline)),
        kind(backend.reached(timeline)),
        kind(backend.wait(point)),
        kind(backend.order(other, point)),
        kind(backend.order(timeline, Point { timeline: other, epoch })),
        kind(backend.close(timeline)),
        kind(backend.fill(timeline, at(&block, 0), 4, 1)),
    ];
    assert_eq!(refusals, [Some(ErrorKind::NoSuchTimeline); 7]);
    assert_eq!(kind(backend.close(MAIN)), Some(ErrorKind::Unsupported));
    let third = backend.open().expect("there");
    assert!(![MAIN, timeline, other].contains(&third), "an id is used twice");
}

fn points_that_nobody_marked_are_refused(target: &Target) {
    let backend = (target.open)();
    let epoch = Epoch(backend.mark(MAIN).expect("there").0 + 1);
    let future = Point { timeline: MAIN, epoch };
    assert_eq!(kind(backend.wait(future)), Some(ErrorKind::NoSuchTimeline));
    assert_eq!(kind(backend.order(MAIN, future)), Some(ErrorKind::NoSuchTimeline));
    assert_eq!(kind(backend.mark(TimelineId(9))), Some(ErrorKind::NoSuchTimeline));
}

fn marks_from_many_threads_never_decrease(target: &Target) {
    let backend = &(target.open)();
    let block = &backend.allocate(DEVICE, 1024).expect("small");
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                let timeline = backend.open().expect("there");
                let mut last = Epoch::START;
                for value in 0..100 {
                    let place = at(block, thread * 256);
                    backend.fill(timeline, place, 256, value).expect("in range");
                    let epoch = backend.mark(timeline).expect("open");
                    assert!(epoch > last);
                    last = epoch;
                }
                backend.wait(Point { timeline, epoch: last }).expect("open");
                assert!(backend.reached(timeline).expect("open") >= last);
                backend.close(timeline).expect("open");
            });
        }
    });
}
