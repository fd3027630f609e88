//! Slides that cannot be finished: every byte is at one place, the old one or the new.
use super::before::{Asked, asked};
use super::{KIB, MIB};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use omniheap_core::{
    Allocation, Backend, ErrorKind, HeapId, HeapKind, InsideBlock, Manager, ManagerConfig,
    PoolConfig, Request, TimelineId, UserPool,
};
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Verdict};
use std::sync::{Arc, Mutex};

/// The bytes of a block of which a hole lies before what has to slide.
struct Stage {
    pool: UserPool<Asked>,
    slides: Vec<(u8, Allocation<Asked>)>,
    /// The number of the copy from which on all are refused.
    refused_from: Arc<AtomicU64>,
    copies: Arc<AtomicU64>,
    manager: Manager<Asked>,
}

/// Bytes that differ at any distance; cheap to make.
fn stamp(id: u8, size: u64) -> Vec<u8> {
    let mut bytes = vec![id; usize::try_from(size).expect("small")];
    for (number, few) in bytes.chunks_mut(512).enumerate() {
        few[..8].copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

impl Stage {
    /// Makes a stage whose slides go by `distance`.
    fn new(distance: u64, sizes: &[u64], inside: InsideBlock) -> Self {
        let host = Host::builder().heap(heap(HeapKind::Device, 64 * MIB)).inside_block(inside);
        let host = Arc::new(host.open().expect("a host device"));
        let [refused_from, copies] = [u64::MAX, 0].map(|value| Arc::new(AtomicU64::new(value)));
        let (from, count) = (Arc::clone(&refused_from), Arc::clone(&copies));
        let device = asked(&host, move |call| match call.kind {
            CallKind::Copy if count.fetch_add(1, Relaxed) >= from.load(Relaxed) => {
                Verdict::Refuse(ErrorKind::Driver.into())
            }
            _ => Verdict::Forward,
        });
        let manager = Manager::with_config(device, ManagerConfig::default().plain());
        let whole = 16 * MIB;
        let pool = PoolConfig::new().block(whole).maximum(whole).lanes(1);
        let pool = manager.create_pool(HeapId(0), pool).expect("valid");
        let ask = |size| pool.allocate(&Request::new(size)).expect("fits");
        let below = ask(distance);
        let slides: Vec<_> = (1..).zip(sizes.iter().map(|size| ask(*size))).collect();
        slides.iter().for_each(|(id, one)| one.write(0, &stamp(*id, one.size())).expect("fits"));
        drop(below);
        copies.store(0, Relaxed);
        Self { pool, slides, refused_from, copies, manager }
    }

    /// Asks for all that is free.
    fn ask_for_the_rest(&self) -> bool {
        let live: u64 = self.slides.iter().map(|(_, one)| one.size()).sum();
        self.pool.allocate(&Request::new(16 * MIB - live)).is_ok()
    }

    #[track_caller]
    fn is_intact(&self, when: &str) {
        for (id, one) in &self.slides {
            let mut seen = vec![0; usize::try_from(one.size()).expect("small")];
            one.read(0, &mut seen).expect("in range");
            assert!(seen == stamp(*id, one.size()), "{id} lost its bytes {when}");
        }
    }
}

/// From the first copy on, the device cannot be waited for as a whole, as during a capture. The timeline of the copies can.
#[test]
fn copies_are_waited_for_where_the_device_cannot_be() {
    let host = Host::builder().heap(heap(HeapKind::Device, 16 * MIB)).open();
    let host = Arc::new(host.expect("a host device"));
    let (holder, held) = (Arc::clone(&host), Mutex::new(None));
    let is_captured = AtomicBool::new(false);
    let device = asked(&host, move |call| {
        let mut held = held.lock().expect("nothing panics");
        match call.kind {
            CallKind::Copy if !is_captured.swap(true, Relaxed) => {
                *held = Some(holder.hold(TimelineId::MAIN).expect("open"));
            }
            CallKind::WaitIdle if is_captured.load(Relaxed) => {
                return Verdict::Refuse(ErrorKind::Busy.into());
            }
            CallKind::Wait => *held = None,
            _ => {}
        }
        Verdict::Forward
    });
    let manager = Manager::with_config(device, ManagerConfig::default().plain());
    drop(manager.allocate(&Request::new(16 * MIB)).expect("one block"));
    let below = manager.allocate(&Request::new(4 * MIB)).expect("fits");
    let one = manager.allocate(&Request::new(6 * MIB)).expect("fits");
    one.write(0, &stamp(1, one.size())).expect("in range");
    drop(below);
    let rest = manager.allocate(&Request::new(10 * MIB)).expect("ten free MiB become one hole");
    let mut seen = stamp(0, one.size());
    one.read(0, &mut seen).expect("in range");
    assert!(seen == stamp(1, one.size()), "its bytes were still on the way");
    drop((rest, one));
    core::mem::forget(manager); // Nothing more can be waited for.
}

/// Copies of slides that nothing could follow: neither the device nor their timeline can be waited for from the first one on.
struct Unfollowed {
    manager: Manager<Asked>,
    one: Allocation<Asked>,
    is_captured: Arc<AtomicBool>,
    held: Arc<Mutex<Option<omniheap_host::Hold>>>,
    host: Arc<Host>,
}

impl Unfollowed {
    /// A request failed whose slides moved `one` down by 4 MiB, while the main timeline is held.
    fn new() -> Self {
        let host = Host::builder().heap(heap(HeapKind::Device, 16 * MIB)).open();
        let host = Arc::new(host.expect("a host device"));
        let held = Arc::new(Mutex::new(None));
        let [is_captured, was_captured] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (holder, hold, captured) =
            (Arc::clone(&host), Arc::clone(&held), Arc::clone(&is_captured));
        let device = asked(&host, move |call| {
            let mut hold = hold.lock().expect("nothing panics");
            match call.kind {
                CallKind::Copy if !was_captured.swap(true, Relaxed) => {
                    *hold = Some(holder.hold(TimelineId::MAIN).expect("open"));
                    captured.store(true, Relaxed);
                }
                CallKind::WaitIdle | CallKind::Wait | CallKind::Mark if captured.load(Relaxed) => {
                    return Verdict::Refuse(ErrorKind::Busy.into());
                }
                // A request for these bytes waits for the copies, or is ordered behind them.
                CallKind::WaitIdle | CallKind::Wait | CallKind::Order
                    if call.point.is_none_or(|point| point.timeline == TimelineId::MAIN) =>
                {
                    *hold = None;
                }
                _ => {}
            }
            Verdict::Forward
        });
        let manager = Manager::with_config(device, ManagerConfig::default().plain());
        drop(manager.allocate(&Request::new(16 * MIB)).expect("one block"));
        let below = manager.allocate(&Request::new(4 * MIB)).expect("fits");
        let one = manager.allocate(&Request::new(6 * MIB)).expect("fits");
        one.write(0, &stamp(1, one.size())).expect("in range");
        drop(below);
        assert!(manager.allocate(&Request::new(10 * MIB)).is_err(), "its slides were not followed");
        assert!(held.lock().expect("nothing panics").is_some(), "the copies still run");
        Self { manager, one, is_captured, held, host }
    }
}

#[test]
fn what_copies_still_write_is_given_to_nobody() {
    let Unfollowed { manager, one, is_captured, held, host } = Unfollowed::new();
    is_captured.store(false, Relaxed);
    let timeline = host.as_timelines().expect("timelines").open().expect("few");
    let rest = manager.allocate(&Request::new(10 * MIB).on(timeline)).expect("ten MiB are free");
    rest.write(0, &stamp(2, rest.size())).expect("in range");
    *held.lock().expect("nothing panics") = None;
    host.wait_idle().expect("nothing is held");
    for (id, place) in [(1, &one), (2, &rest)] {
        let mut seen = stamp(0, place.size());
        place.read(0, &mut seen).expect("in range");
        assert!(seen == stamp(id, place.size()), "{id} lost bytes to copies of slides");
    }
}

#[test]
fn what_is_freed_while_copies_still_write_it_is_given_to_nobody() {
    let Unfollowed { manager, one, is_captured, held, host } = Unfollowed::new();
    let size = one.size();
    drop(one);
    assert_eq!(manager.report().quarantined_bytes, size, "nothing tells when the copies end");
    is_captured.store(false, Relaxed);
    *held.lock().expect("nothing panics") = None;
    host.wait_idle().expect("nothing is held");
    assert!(manager.allocate(&Request::new(16 * MIB)).is_err(), "six MiB are lost");
    drop(manager.allocate(&Request::new(10 * MIB)).expect("the copies have left the rest"));
}

/// Progress of a free and slides that run at once.
const SLIDES_COPY: u64 = 1;
const FREE_ASKS: u64 = 2;
const SLIDES_ENDED: u64 = 3;

fn wait_for(stage: &AtomicU64, wanted: u64) {
    while stage.load(Relaxed) < wanted {
        std::thread::yield_now();
    }
}

/// A device whose main timeline is held, and cannot be waited for, from the first copy on. A mark of another timeline ends when
/// the slides have. Marks of the main one are refused, or counted in `marks` from then on.
fn meets_a_free(host: &Arc<Host>, stage: &Arc<AtomicU64>, marks: Option<Arc<AtomicU64>>) -> Asked {
    let (holder, stage, held) = (Arc::clone(host), Arc::clone(stage), Mutex::new(None));
    asked(host, move |call| {
        let is_captured = stage.load(Relaxed) >= SLIDES_COPY;
        match call.kind {
            CallKind::Copy if !is_captured => {
                let hold = holder.hold(TimelineId::MAIN).expect("open");
                *held.lock().expect("nothing panics") = Some(hold);
                stage.store(SLIDES_COPY, Relaxed);
                wait_for(&stage, FREE_ASKS);
            }
            CallKind::Mark if is_captured && call.timeline != Some(TimelineId::MAIN) => {
                stage.fetch_max(FREE_ASKS, Relaxed);
                wait_for(&stage, SLIDES_ENDED);
            }
            CallKind::Mark if is_captured && let Some(marks) = &marks => {
                marks.fetch_add(u64::from(stage.load(Relaxed) == SLIDES_ENDED), Relaxed);
            }
            CallKind::WaitIdle | CallKind::Wait | CallKind::Mark if is_captured => {
                return Verdict::Refuse(ErrorKind::Busy.into());
            }
            _ => {}
        }
        Verdict::Forward
    })
}

/// Frees what slides, and ends the slides while the free asks which timelines use the bytes.
fn free_during_slides(manager: &Manager<Asked>, stage: &AtomicU64, users: &[TimelineId]) {
    drop(manager.allocate(&Request::new(16 * MIB)).expect("one block"));
    let below = manager.allocate(&Request::new(4 * MIB)).expect("fits");
    let one = manager.allocate(&Request::new(6 * MIB)).expect("fits");
    users.iter().for_each(|user| one.use_on(*user).expect("open"));
    drop(below);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for(stage, SLIDES_COPY);
            drop(one);
        });
        assert!(manager.allocate(&Request::new(10 * MIB)).is_err(), "nobody follows the slides");
        stage.store(SLIDES_ENDED, Relaxed);
    });
}

/// A free asks which timelines use the bytes before slides end that nobody can follow, and takes effect after.
#[test]
fn a_free_that_began_before_slides_ended_waits_for_their_copies() {
    let host = Host::builder().heap(heap(HeapKind::Device, 16 * MIB)).open();
    let (host, stage) = (Arc::new(host.expect("a host device")), Arc::new(AtomicU64::new(0)));
    let other = host.as_timelines().expect("timelines").open().expect("few");
    let device = meets_a_free(&host, &stage, None);
    let manager = Manager::with_config(device, ManagerConfig::default().plain());
    free_during_slides(&manager, &stage, &[other]);
    assert_eq!(manager.report().quarantined_bytes, 6 * MIB, "nothing tells when the copies end");
    core::mem::forget(manager); // Nothing more can be waited for.
}

/// The bytes were used on the main timeline before, where the copies ran too.
#[test]
fn a_free_that_marked_before_slides_ended_marks_again() {
    let host = Host::builder().heap(heap(HeapKind::Device, 16 * MIB)).open();
    let (host, stage) = (Arc::new(host.expect("a host device")), Arc::new(AtomicU64::new(0)));
    let (marks, other) = (Arc::new(AtomicU64::new(0)), host.as_timelines().expect("timelines"));
    let other = other.open().expect("few");
    let device = meets_a_free(&host, &stage, Some(Arc::clone(&marks)));
    let manager = Manager::with_config(device, ManagerConfig::default().plain());
    free_during_slides(&manager, &stage, &[TimelineId::MAIN, other]);
    assert_eq!(manager.report().quarantined_bytes, 0, "a mark tells when the copies end");
    assert!(marks.load(Relaxed) > 0, "copies came after the first mark");
    core::mem::forget(manager); // Nothing more can be waited for.
}

/// From one copy on, the driver makes none any more: what was moved in part goes back through the host.
#[test]
fn copies_that_never_work_again_lose_no_byte() {
    let shapes: [(u64, &[u64]); 3] =
        [(MIB, &[4 * MIB, 2 * MIB]), (4 * KIB, &[12 * MIB]), (MIB, &[MIB / 2, MIB / 2, 3 * MIB])];
    for (distance, sizes) in shapes {
        for inside in [InsideBlock::Allowed, InsideBlock::Forbidden] {
            let mut nth = 0;
            loop {
                let stage = Stage::new(distance, sizes, inside);
                stage.refused_from.store(nth, Relaxed);
                let served = stage.ask_for_the_rest();
                let when = format!("after {nth} copies of {sizes:?}, {inside:?}");
                assert_eq!(served, stage.copies.load(Relaxed) <= nth, "{when}");
                stage.is_intact(&when);
                stage.refused_from.store(u64::MAX, Relaxed);
                assert!(stage.ask_for_the_rest(), "it copies again {when}");
                stage.is_intact(&when);
                let costs = stage.manager.report().move_costs[0];
                assert!(costs.wait.is_some() && costs.per_copy.is_some(), "it is learnt {when}");
                if served {
                    break;
                }
                nth += 1;
            }
            assert!(nth > 1, "{nth} copies of {sizes:?}");
        }
    }
}
