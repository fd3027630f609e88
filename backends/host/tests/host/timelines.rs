//! Time: asynchronous, in order on one timeline, independent across them.
use crate::common::{HEAP, MAIN, MIB, at, free, host, kind, read};
use omniheap_core::{Backend, Epoch, ErrorKind, Point, TimelineId, Timelines, Transfer};

#[test]
fn work_waits_while_its_timeline_is_held_and_others_run_on() {
    let host = host(MIB);
    let (a, b) = (host.open().expect("opens"), host.open().expect("opens"));
    let block = host.allocate(HEAP, 8192).expect("fits");
    let hold = host.hold(a).expect("alive");
    host.fill(a, at(&block, 0), 4096, 1).expect("checked");
    host.fill(b, at(&block, 4096), 4096, 2).expect("checked");
    assert_eq!(read(&host, b, &block, 4096, 1), [2]);
    assert_eq!(read(&host, b, &block, 0, 1), [0], "held back");
    let point = Point { timeline: a, epoch: host.mark(a).expect("alive") };
    assert!(host.reached(a).expect("alive") < point.epoch);
    drop(hold);
    host.wait(point).expect("alive");
    assert!(host.reached(a).expect("alive") >= point.epoch);
    assert_eq!(read(&host, b, &block, 0, 1), [1]);
    free(&host, block).expect("idle");
}

#[test]
fn one_timeline_runs_in_order() {
    let host = host(MIB);
    let block = host.allocate(HEAP, 4096).expect("fits");
    for value in 0..=255 {
        host.fill(MAIN, at(&block, 0), 4096, value).expect("checked");
        host.copy(
            MAIN,
            &[omniheap_core::Move { from: at(&block, 0), to: at(&block, 2048), size: 1 }],
        )
        .expect("disjoint");
    }
    assert_eq!(read(&host, MAIN, &block, 2048, 2), [255, 255]);
    free(&host, block).expect("idle");
}

#[test]
fn a_write_takes_the_bytes_at_once() {
    let host = host(MIB);
    let block = host.allocate(HEAP, 4096).expect("fits");
    let hold = host.hold(MAIN).expect("alive");
    let mut bytes = *b"first";
    host.write(MAIN, at(&block, 0), &bytes).expect("checked");
    bytes.copy_from_slice(b"later");
    drop(hold);
    assert_eq!(read(&host, MAIN, &block, 0, 5), b"first");
    free(&host, block).expect("idle");
}

#[test]
fn order_makes_one_timeline_wait_for_another() {
    let host = host(MIB);
    let (a, b) = (host.open().expect("opens"), host.open().expect("opens"));
    let block = host.allocate(HEAP, 4096).expect("fits");
    let hold = host.hold(a).expect("alive");
    host.fill(a, at(&block, 0), 1, 1).expect("checked");
    let point = Point { timeline: a, epoch: host.mark(a).expect("alive") };
    host.order(b, point).expect("does not block");
    host.fill(b, at(&block, 0), 1, 2).expect("checked");
    let after = Point { timeline: b, epoch: host.mark(b).expect("alive") };
    for _ in 0..10_000 {
        std::thread::yield_now();
        assert!(host.reached(b).expect("alive") < after.epoch, "b has every chance to overtake");
    }
    drop(hold);
    host.wait(after).expect("alive");
    assert!(host.reached(a).expect("alive") >= point.epoch, "b cannot overtake a");
    assert_eq!(read(&host, b, &block, 0, 1), [2]);
    free(&host, block).expect("idle");
}

#[test]
fn marks_never_decrease_and_idle_ones_are_reached() {
    let host = host(MIB);
    let line = host.open().expect("opens");
    assert_eq!(host.mark(line).expect("alive"), Epoch::START);
    assert_eq!(host.reached(line).expect("alive"), Epoch::START);
    let block = host.allocate(HEAP, 4096).expect("fits");
    let mut last = Epoch::START;
    for _ in 0..10 {
        host.fill(line, at(&block, 0), 1, 1).expect("checked");
        let mark = host.mark(line).expect("alive");
        assert!(mark > last);
        last = mark;
    }
    host.wait_idle().expect("alive");
    assert_eq!(host.reached(line).expect("alive"), last);
    free(&host, block).expect("idle");
}

#[test]
fn closed_and_unknown_timelines_are_refused() {
    let host = host(MIB);
    let block = host.allocate(HEAP, 4096).expect("fits");
    let line = host.open().expect("opens");
    host.fill(line, at(&block, 0), 4096, 9).expect("checked");
    host.close(line).expect("waits for its work");
    assert_eq!(read(&host, MAIN, &block, 4095, 1), [9]);
    let unknown = TimelineId(4711);
    for gone in [line, unknown] {
        let point = Point { timeline: gone, epoch: Epoch::START };
        assert_eq!(kind(host.mark(gone)), ErrorKind::NoSuchTimeline);
        assert_eq!(kind(host.reached(gone)), ErrorKind::NoSuchTimeline);
        assert_eq!(kind(host.wait(point)), ErrorKind::NoSuchTimeline);
        assert_eq!(kind(host.order(MAIN, point)), ErrorKind::NoSuchTimeline);
        assert_eq!(kind(host.close(gone)), ErrorKind::NoSuchTimeline);
        assert_eq!(kind(host.fill(gone, at(&block, 0), 1, 1)), ErrorKind::NoSuchTimeline);
        assert_eq!(kind(host.hold(gone)), ErrorKind::NoSuchTimeline);
    }
    assert_ne!(host.open().expect("opens"), line, "an id is not used again");
    assert_eq!(kind(host.close(MAIN)), ErrorKind::Unsupported);
    let never = Point { timeline: MAIN, epoch: Epoch(99) };
    assert_eq!(kind(host.wait(never)), ErrorKind::OutOfRange);
    free(&host, block).expect("idle");
}

#[test]
fn freeing_under_running_work_is_busy_and_harmless() {
    let host = host(MIB);
    let block = host.allocate(HEAP, 4096).expect("fits");
    let hold = host.hold(MAIN).expect("alive");
    host.fill(MAIN, at(&block, 0), 4096, 1).expect("checked");
    assert_eq!(kind(free(&host, block)), ErrorKind::Busy);
    drop(hold);
    host.wait_idle().expect("alive");
}

#[test]
fn a_hold_that_outlives_its_device_does_not_block_it() {
    let host = host(MIB);
    let block = host.allocate(HEAP, 4096).expect("fits");
    let hold = host.hold(MAIN).expect("alive");
    host.fill(MAIN, at(&block, 0), 4096, 1).expect("checked");
    drop(host);
    drop(hold);
    drop(block);
}
