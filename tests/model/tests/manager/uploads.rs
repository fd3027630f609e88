//! Memory that the host writes directly: what the device still reads is never overwritten, and frames cost no driver calls.
use omniheap_core::{
    Allocation, Backend, CopyRegion, HeapId, HeapKind, Manager, ManagerConfig, Point, Request,
    TimelineId, Timelines, Usage,
};
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Record};
use std::sync::Arc;

const MAIN: TimelineId = TimelineId::MAIN;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Heaps of `open`: device memory, staging memory, and memory that both sides see.
const STAGING: HeapId = HeapId(1);
const UNIFIED: HeapId = HeapId(2);

fn open(config: ManagerConfig) -> (Arc<Host>, Manager<Arc<Host>>) {
    let kinds = [HeapKind::Device, HeapKind::Staging, HeapKind::Unified];
    let heaps = kinds.map(|kind| heap(kind, 1 << 30)).into_iter();
    let host = heaps.fold(Host::builder(), |host, heap| host.heap(heap)).open();
    let host = Arc::new(host.expect("a host device"));
    (Arc::clone(&host), Manager::with_config(host, config))
}

fn put<B: Backend>(to: &Allocation<B>, value: u8) {
    let bytes = vec![value; usize::try_from(to.size()).expect("small")];
    to.map().expect("host-visible").write(0, &bytes).expect("inside");
}

fn value<B: Backend>(of: &Allocation<B>) -> u8 {
    let mut seen = vec![0; usize::try_from(of.size()).expect("small")];
    of.read(0, &mut seen).expect("inside");
    assert!(seen.iter().all(|byte| *byte == seen[0]), "the bytes are of several writers");
    seen[0]
}

fn send<B: Backend>(manager: &Manager<B>, from: &Allocation<B>, to: &Allocation<B>) {
    let size = to.size();
    manager
        .copy(MAIN, &[CopyRegion { from, from_offset: 0, to, to_offset: 0, size }])
        .expect("both are long enough");
}

/// Frames of a program whose device is far behind: each writes a number, has it copied away, and lets go of its bytes.
fn frames_behind_a_busy_device(config: ManagerConfig, frame: &Request<'_>) {
    let (host, manager) = open(config);
    let sink = || manager.allocate(&Request::new(frame.layout.size).on(MAIN)).expect("room");
    let sinks: Vec<_> = (0..8).map(|_| sink()).collect();
    let held = host.hold(MAIN).expect("open");
    for (n, to) in (1u8..).zip(&sinks) {
        let from = manager.allocate(frame).expect("room");
        assert_eq!(from.timeline(), Some(MAIN));
        put(&from, n);
        send(&manager, &from, to);
    }
    drop(held);
    let seen: Vec<u8> = sinks.iter().map(value).collect();
    assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn a_frame_never_overwrites_what_the_device_still_reads() {
    for config in [ManagerConfig::default(), ManagerConfig::default().guarded()] {
        for request in [
            Request::new(4 * KIB).usage(Usage::Upload).on(MAIN),
            Request::new(4 * KIB).usage(Usage::Upload).on(MAIN).name("frame").pinned(),
            Request::new(4 * KIB).usage(Usage::Upload).on(MAIN).dedicated(),
            Request::new(4 * KIB).on(MAIN).heap(STAGING),
            Request::new(4 * KIB).usage(Usage::Readback).on(MAIN).heap(UNIFIED),
        ] {
            frames_behind_a_busy_device(config.clone(), &request);
        }
    }
}

/// The span that was freed last is lent again at once, and the host still waits for what its earlier owner does.
#[test]
fn a_span_that_comes_back_at_once_is_mapped_after_its_earlier_work() {
    let host =
        Host::builder().heap(heap(HeapKind::Unified, 1 << 30)).open().expect("a host device");
    let host = Arc::new(host);
    let manager = Manager::with_config(Arc::clone(&host), ManagerConfig::default().plain());
    let request = Request::new(4 * KIB).on(MAIN);
    let first = manager.allocate(&request).expect("room");
    let (place, held) = (first.binding().span(), host.hold(MAIN).expect("open"));
    first.fill(0, 4 * KIB, 1).expect("inside");
    drop(first);
    let second = manager.allocate(&request).expect("room");
    assert_eq!(second.binding().span(), place, "the span that was freed last");
    std::thread::scope(|scope| {
        scope.spawn(|| put(&second, 2));
        std::thread::sleep(core::time::Duration::from_millis(50));
        drop(held);
    });
    assert_eq!(value(&second), 2, "the work of its earlier owner came later");
}

/// A resized upload is one still: its next map does not wait either.
#[test]
fn a_resized_upload_is_still_the_hosts() {
    let (host, manager) = open(ManagerConfig::default());
    let sink = manager.allocate(&Request::new(4 * KIB).on(MAIN)).expect("room");
    let old = manager.allocate(&Request::new(KIB).usage(Usage::Upload).on(MAIN)).expect("room");
    put(&old, 7);
    let new = manager.resize(old, 4 * KIB).expect("room");
    let held = host.hold(MAIN).expect("open");
    put(&new, 8); // The copy of the old bytes is over.
    send(&manager, &new, &sink);
    drop(new);
    put(&manager.allocate(&Request::new(4 * KIB).usage(Usage::Upload).on(MAIN)).expect("room"), 9);
    drop(held);
    assert_eq!(value(&sink), 8);
}

#[test]
fn zeros_do_not_come_after_the_hosts_bytes() {
    let (_, manager) = open(ManagerConfig::default());
    for request in [Request::new(8 * MIB).usage(Usage::Upload), Request::new(8 * MIB).heap(UNIFIED)]
    {
        for _ in 0..4 {
            let one = manager.allocate(&request.on(MAIN).zeroed()).expect("room");
            put(&one, 5);
            assert_eq!(value(&one), 5);
        }
    }
}

/// Memory whose request says nothing of the host is reused at once, so a map has to wait for its earlier owners.
#[test]
fn a_map_of_device_memory_waits_for_earlier_owners() {
    let (_, manager) = open(ManagerConfig::default());
    let record = Arc::new(Record::new(Arc::clone(manager.backend())));
    let manager = Manager::with_config(Arc::clone(&record), ManagerConfig::default());
    let request = Request::new(4 * KIB).on(MAIN).heap(UNIFIED);
    let waits = || record.calls().of(CallKind::Wait);
    let first = manager.allocate(&request).expect("room");
    put(&first, 1);
    assert_eq!(waits(), 0, "nobody had the bytes before");
    let place = first.binding().span();
    drop(first);
    let second = manager.allocate(&request).expect("room");
    assert_eq!(second.binding().span(), place, "in the timeline's order they are free at once");
    put(&second, 2);
    assert_eq!(waits(), 1, "the host is in no timeline's order");
    put(&second, 3);
    assert_eq!(waits(), 1, "once is enough");
}

/// Up to three frames in flight, as an engine has them: the driver is asked for the memory of a frame more in flight, and never again.
#[test]
fn frames_in_flight_take_turns_without_driver_calls() {
    for size in [64 * KIB, 16 * MIB] {
        let (host, manager) = open(ManagerConfig::default());
        let sink = manager.allocate(&Request::new(size).on(MAIN)).expect("room");
        let now = || {
            let held = manager.heap_use(STAGING).expect("there").reserved;
            (manager.report().driver_calls, held)
        };
        let mut points = Vec::new();
        let mut before = now();
        for n in 0..200u8 {
            let frame =
                manager.allocate(&Request::new(size).usage(Usage::Upload).on(MAIN)).expect("room");
            put(&frame, n);
            send(&manager, &frame, &sink);
            drop(frame);
            points.push(Point { timeline: MAIN, epoch: host.mark(MAIN).expect("open") });
            if n >= 2 {
                host.wait(points[usize::from(n) - 2]).expect("open");
            }
            // The device's own speed decides how many frames are in flight at once.
            let after = now();
            assert!(after == before || after.1 > before.1, "frame {n} of {size} bytes: {after:?}");
            before = after;
        }
        assert!(before.1 <= 4 * size.max(MIB), "{before:?}");
    }
}
