//! What threads do to each other, in every order that matters: `cargo xtask test models`.
//!
//! Each model runs again and again under a checker that tries all orders in which threads can take the locks, with
//! a few interruptions.
#![expect(unsafe_code, reason = "signs the contract of Backend for a device without bytes")]
use crate::sync::{Mutex, Signal};
use crate::*;
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use loom::thread;

/// Times that a thread is interrupted where it could go on; few are enough for nearly every mistake.
const PREEMPTIONS: usize = 2;
const BLOCK: u64 = 1 << 22;

/// What outlives the device.
#[derive(Debug, Default)]
struct Counts {
    blocks: AtomicI64,
    taken: AtomicI64,
    closed: AtomicI64,
    /// Blocks that the driver has; no limit where zero.
    most: AtomicI64,
    /// How far the only timeline has come.
    reached: AtomicU64,
}

struct Fake {
    caps: Caps,
    counts: Arc<Counts>,
}

impl Fake {
    fn new(counts: &Arc<Counts>) -> Self {
        let heap = Heap::new(HeapKind::Device, 1 << 30).granule(Align::of(256));
        let caps = Caps::new(DeviceInfo::default(), alloc::vec![heap]).max_blocks(100);
        Self { caps, counts: Arc::clone(counts) }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.counts.closed.fetch_add(1, SeqCst);
    }
}

// SAFETY: there are no bytes, so none is shared; `caps` never changes.
unsafe impl Backend for Fake {
    type Block = ();
    fn caps(&self) -> &Caps {
        &self.caps
    }
    fn allocate(&self, _: HeapId, _: u64) -> Result<()> {
        let most = self.counts.most.load(SeqCst);
        if most > 0 && self.counts.blocks.load(SeqCst) >= most {
            return Err(ErrorKind::OutOfDeviceMemory.into());
        }
        self.counts.taken.fetch_add(1, SeqCst);
        self.counts.blocks.fetch_add(1, SeqCst);
        Ok(())
    }
    unsafe fn free(&self, (): ()) -> Result<()> {
        self.counts.blocks.fetch_sub(1, SeqCst);
        Ok(())
    }
    fn wait_idle(&self) -> Result<()> {
        Ok(())
    }
    fn as_timelines(&self) -> Option<&dyn Timelines> {
        Some(self)
    }
}

// SAFETY: there is no work, so whatever epoch is reached, all of it has finished.
unsafe impl Timelines for Fake {
    fn open(&self) -> Result<TimelineId> {
        Ok(TimelineId(1))
    }
    fn close(&self, _: TimelineId) -> Result<()> {
        Ok(())
    }
    fn mark(&self, _: TimelineId) -> Result<Epoch> {
        Ok(Epoch(1))
    }
    fn reached(&self, _: TimelineId) -> Result<Epoch> {
        Ok(Epoch(self.counts.reached.load(SeqCst)))
    }
    fn wait(&self, _: Point) -> Result<()> {
        self.counts.reached.fetch_max(1, SeqCst);
        Ok(())
    }
    fn order(&self, _: TimelineId, _: Point) -> Result<()> {
        Ok(())
    }
}

/// Checks a model; what it returns must have been given back, and every device closed once.
fn check(model: impl Fn(&Arc<Counts>) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(move || {
        let counts = Arc::new(Counts::default());
        model(&counts);
        assert_eq!(counts.blocks.load(SeqCst), 0, "a block was kept, or freed twice");
        assert_eq!(counts.closed.load(SeqCst), 1, "the device was not closed once");
    });
}

fn manager(counts: &Arc<Counts>, lanes: u32) -> Manager<Fake> {
    let mut config = ManagerConfig::default().plain();
    config.pool.lanes = Some(lanes);
    Manager::with_config(Fake::new(counts), config)
}

fn spans_of(held: &[&Allocation<Fake>]) -> Vec<(usize, Span)> {
    let place = |held: &&Allocation<Fake>| {
        let binding = held.binding();
        (core::ptr::from_ref(binding.block()).addr(), binding.span())
    };
    held.iter().map(place).collect()
}

fn assert_apart(held: &[&Allocation<Fake>]) {
    let spans = spans_of(held);
    for (at, (block, span)) in spans.iter().enumerate() {
        let overlaps =
            spans[..at].iter().any(|(other, known)| other == block && known.overlaps(*span));
        assert!(!overlaps, "bytes were handed out twice: {spans:?}");
    }
}

#[test]
fn a_signal_is_never_missed() {
    loom::model(|| {
        let signal = Arc::new(Signal::default());
        let done = Arc::new(Mutex::new(false));
        let other = thread::spawn({
            let (signal, done) = (Arc::clone(&signal), Arc::clone(&done));
            move || {
                *done.lock() = true;
                signal.raise();
            }
        });
        // As those do who wait for something: count, look, wait.
        loop {
            let count = signal.count();
            if *done.lock() {
                break;
            }
            signal.wait_beyond(count);
        }
        other.join().expect("no panic");
    });
}

#[test]
fn threads_that_share_a_lane_never_share_bytes() {
    check(|counts| {
        let manager = manager(counts, 1);
        let first = manager.allocate(&Request::new(1024)).expect("fits");
        let other = thread::spawn({
            let manager = manager.clone();
            move || manager.allocate(&Request::new(512)).expect("fits")
        });
        drop(first);
        let second = manager.allocate(&Request::new(1024)).expect("fits");
        let third = other.join().expect("no panic");
        assert_apart(&[&second, &third]);
        assert_eq!(manager.validate(), Ok(()));
        assert_eq!(counts.taken.load(SeqCst), 1, "one block is enough");
    });
}

#[test]
fn an_allocation_freed_by_another_thread_is_free_once() {
    check(|counts| {
        let manager = manager(counts, 1);
        let (first, second) =
            (manager.allocate(&Request::new(1024)), manager.allocate(&Request::new(1024)));
        let other = thread::spawn(move || drop(first));
        drop(second);
        let third = manager.allocate(&Request::new(1024)).expect("fits");
        other.join().expect("no panic");
        let fourth = manager.allocate(&Request::new(1024)).expect("fits");
        assert_apart(&[&third, &fourth]);
        assert_eq!(manager.report().totals.live, 2);
    });
}

#[test]
fn the_last_owner_ends_the_lane_whoever_it_is() {
    check(|counts| {
        let manager = manager(counts, 1);
        let first = manager.allocate(&Request::new(1024)).expect("fits");
        let second = manager.allocate(&Request::new(1024)).expect("fits");
        let other = thread::spawn(move || drop(first));
        drop(manager);
        drop(second);
        other.join().expect("no panic");
    });
}

#[test]
fn owners_that_come_and_go_keep_the_lane() {
    check(|counts| {
        let manager = manager(counts, 1);
        let round = |manager: &Manager<Fake>| drop(manager.allocate(&Request::new(1024)));
        round(&manager);
        let other = thread::spawn({
            let manager = manager.clone();
            move || (0..2).for_each(|_| round(&manager))
        });
        round(&manager);
        drop(manager);
        other.join().expect("no panic");
    });
}

#[test]
fn a_lane_that_lends_does_not_hand_out_the_same_bytes() {
    check(|counts| {
        let manager = manager(counts, 2);
        // This thread's lane has a block that is free but for one allocation; the other thread's has none.
        let first = manager.allocate(&Request::new(1024)).expect("fits");
        let other = thread::spawn({
            let manager = manager.clone();
            move || manager.allocate(&Request::new(BLOCK / 4)).expect("fits")
        });
        let second = manager.allocate(&Request::new(BLOCK / 4)).expect("fits");
        let third = other.join().expect("no panic");
        assert_apart(&[&first, &second, &third]);
        assert_eq!(counts.taken.load(SeqCst), 1, "what was idle was lent");
        assert_eq!(manager.validate(), Ok(()));
    });
}

#[test]
fn what_waits_for_a_timeline_is_freed_once() {
    check(|counts| {
        let manager = manager(counts, 1);
        let first = manager.allocate(&Request::new(1024)).expect("fits");
        let second = manager.allocate(&Request::new(1024)).expect("fits");
        let point = Point { timeline: TimelineId(1), epoch: Epoch(1) };
        let other = thread::spawn({
            let (manager, counts) = (manager.clone(), Arc::clone(counts));
            move || {
                second.free_after(point);
                counts.reached.store(1, SeqCst);
                manager.retire().expect("the device works")
            }
        });
        first.free_after(point);
        let retired = manager.retire().expect("the device works");
        let retired = retired + other.join().expect("no panic");
        let rest = manager.retire().expect("the device works");
        assert_eq!(retired + rest, 2);
        assert_eq!(manager.report().totals.live, 0);
        assert_eq!(manager.validate(), Ok(()));
    });
}

#[test]
fn threads_that_grow_together_share_the_only_block() {
    check(|counts| {
        counts.most.store(1, SeqCst);
        let manager = manager(counts, 2);
        let other = thread::spawn({
            let manager = manager.clone();
            move || manager.allocate(&Request::new(1024))
        });
        let first = manager.allocate(&Request::new(1024)).expect("the only block has room");
        let second = other.join().expect("no panic").expect("the only block has room");
        assert_apart(&[&first, &second]);
    });
}

/// A pass that publishes new places, and threads that read, write, free and allocate meanwhile.
mod moves {
    use crate::*;
    use alloc::{sync::Arc, vec::Vec};
    use core::sync::atomic::Ordering::SeqCst;
    use loom::sync::atomic::AtomicU64;
    use loom::thread;

    /// Bytes of a span; each has one number in it.
    const PIECE: u64 = 256;
    /// Spans of a block.
    const EACH: u64 = 4;

    /// A block of numbers that the checker watches.
    type Numbers = Arc<Vec<AtomicU64>>;

    /// A device that copies numbers at once.
    struct Copier {
        caps: Caps,
    }

    impl Copier {
        fn new() -> Self {
            let mut caps = super::Fake::new(&Arc::default()).caps.clone();
            caps.heaps[0].granule = Align::of(PIECE);
            Self { caps }
        }
    }

    // SAFETY: numbers of one block are no other's; `caps` never changes.
    unsafe impl Backend for Copier {
        type Block = Numbers;
        fn caps(&self) -> &Caps {
            &self.caps
        }
        fn allocate(&self, _: HeapId, size: u64) -> Result<Numbers> {
            Ok(Arc::new((0..size / PIECE).map(|_| AtomicU64::new(0)).collect()))
        }
        unsafe fn free(&self, _: Numbers) -> Result<()> {
            Ok(())
        }
        fn wait_idle(&self) -> Result<()> {
            Ok(())
        }
        fn as_transfer(&self) -> Option<&dyn Transfer<Block = Numbers>> {
            Some(self)
        }
    }

    // SAFETY: copies touch the numbers of the spans that they are given.
    unsafe impl Transfer for Copier {
        type Block = Numbers;

        fn write(&self, _: TimelineId, _: Place<'_, Numbers>, _: &[u8]) -> Result<()> {
            Ok(())
        }
        fn read(&self, _: TimelineId, _: Place<'_, Numbers>, _: &mut [u8]) -> Result<()> {
            Ok(())
        }
        fn fill(&self, _: TimelineId, _: Place<'_, Numbers>, _: u64, _: u8) -> Result<()> {
            Ok(())
        }
        fn copy(&self, _: TimelineId, moves: &[Move<'_, Numbers>]) -> Result<()> {
            for step in moves {
                let number = at(step.from.block, step.from.offset).load(SeqCst);
                at(step.to.block, step.to.offset).store(number, SeqCst);
            }
            Ok(())
        }
    }

    fn at(block: &Numbers, offset: u64) -> &AtomicU64 {
        &block[usize::try_from(offset / PIECE).expect("small")]
    }

    fn set(one: &Allocation<Copier>, number: u64) {
        let binding = one.binding();
        at(binding.block(), binding.span().offset).store(number, SeqCst);
    }

    fn get(one: &Allocation<Copier>) -> u64 {
        let binding = one.binding();
        at(binding.block(), binding.span().offset).load(SeqCst)
    }

    /// A block with one allocation, and one with two: a pass moves the one to the two.
    fn scattered() -> (Manager<Copier>, Vec<Allocation<Copier>>) {
        let mut config = ManagerConfig::default().plain();
        (config.pool.lanes, config.pool.block) = (Some(1), Some(PIECE * EACH));
        let manager = Manager::with_config(Copier::new(), config);
        let all: Vec<_> =
            (0..2 * EACH).map(|_| manager.allocate(&Request::new(PIECE)).expect("fits")).collect();
        let mut live: Vec<_> =
            (0..).zip(all).filter(|(n, _)| [0, 4, 6].contains(n)).map(|(_, one)| one).collect();
        (1..).zip(&live).for_each(|(number, one)| set(one, number));
        live.swap(0, 2);
        (manager, live)
    }

    /// Checks a model with up to three switches where nobody waits: more take hours.
    fn check(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    fn commit(manager: &Manager<Copier>) {
        let pass = manager.begin_defragment(&Budget::new()).expect("works");
        pass.commit().expect("works");
    }

    #[test]
    fn what_is_written_while_a_pass_copies_is_kept() {
        check(|| {
            let (manager, mut live) = scattered();
            let moved = live.pop().expect("three");
            let other = thread::spawn(move || {
                let seen = get(&moved);
                set(&moved, 9);
                (seen, moved)
            });
            commit(&manager);
            let (seen, moved) = other.join().expect("no panic");
            assert_eq!((seen, get(&moved)), (1, 9), "a place was shown half moved");
            assert!([get(&live[0]), get(&live[1])] == [3, 2]);
            assert_eq!(manager.validate(), Ok(()));
        });
    }

    #[test]
    fn what_is_freed_while_a_pass_copies_is_free_once() {
        check(|| {
            let (manager, mut live) = scattered();
            let moved = live.pop().expect("three");
            let other = thread::spawn({
                let manager = manager.clone();
                move || {
                    drop(moved);
                    let next = manager.allocate(&Request::new(PIECE)).expect("fits");
                    set(&next, 7);
                    next
                }
            });
            commit(&manager);
            let next = other.join().expect("no panic");
            assert!([get(&live[0]), get(&live[1]), get(&next)] == [3, 2, 7]);
            assert_eq!(manager.report().totals.live, 3);
            assert_eq!(manager.validate(), Ok(()));
        });
    }

    #[test]
    fn a_pass_that_is_dropped_leaves_every_number_in_one_place() {
        check(|| {
            let (manager, mut live) = scattered();
            let moved = live.pop().expect("three");
            let other = thread::spawn(move || (get(&moved), moved));
            let mut pass = manager.begin_defragment(&Budget::new()).expect("works");
            pass.start().expect("works");
            drop(pass);
            let (seen, moved) = other.join().expect("no panic");
            assert_eq!((seen, get(&moved)), (1, 1));
            assert_eq!(manager.totals().live, 3);
            assert_eq!(manager.validate(), Ok(()));
        });
    }
}

/// Bytes that one timeline frees and another one gets, while threads mark, wait and free more.
mod reuse {
    use crate::*;
    use alloc::{sync::Arc, vec::Vec};
    use loom::thread;
    use std::collections::HashMap;
    use std::sync::Mutex;

    const PIECE: u64 = 256;
    const ONE: TimelineId = TimelineId(1);
    const TWO: TimelineId = TimelineId(2);

    /// What was submitted, what has run, and what runs after what.
    #[derive(Debug, Default)]
    struct Work {
        submitted: HashMap<TimelineId, u64>,
        finished: HashMap<TimelineId, u64>,
        /// By the later timeline.
        orders: HashMap<TimelineId, Vec<Point>>,
        /// The last use of the bytes at an offset.
        uses: HashMap<u64, Point>,
        blocks: u64,
    }

    impl Work {
        fn has_finished(&self, point: Point) -> bool {
            self.finished.get(&point.timeline).is_some_and(|done| *done >= point.epoch.0)
        }

        fn runs_after(&self, timeline: TimelineId, point: Point) -> bool {
            let is_later =
                |known: &Point| known.timeline == point.timeline && known.epoch >= point.epoch;
            timeline == point.timeline
                || self.orders.get(&timeline).into_iter().flatten().any(is_later)
        }
    }

    /// A device with room for two pieces, whose work runs when a model says so.
    #[derive(Clone)]
    struct Lines {
        caps: Caps,
        work: Arc<Mutex<Work>>,
    }

    impl Lines {
        fn work(&self) -> std::sync::MutexGuard<'_, Work> {
            self.work.lock().expect("no panic")
        }

        /// Submits work that uses an allocation.
        fn submit(&self, timeline: TimelineId, one: &Allocation<Self>) {
            // Asked before: threads are switched while a lane is locked, and they share this one.
            let offset = one.binding().span().offset;
            let mut work = self.work();
            let count = work.submitted.entry(timeline).or_default();
            *count += 1;
            let point = Point { timeline, epoch: Epoch(*count) };
            work.uses.insert(offset, point);
        }

        fn run(&self, timeline: TimelineId) {
            let mut work = self.work();
            let count = work.submitted.get(&timeline).copied().unwrap_or(0);
            work.finished.insert(timeline, count);
        }

        /// Fails where the bytes are in use for somebody else.
        fn assert_usable(&self, one: &Allocation<Self>, timeline: Option<TimelineId>) {
            let offset = one.binding().span().offset;
            let work = self.work();
            let Some(last) = work.uses.get(&offset).copied() else { return };
            let is_ordered = timeline.is_some_and(|timeline| work.runs_after(timeline, last));
            assert!(is_ordered || work.has_finished(last), "{last:?} still uses it: {work:?}");
        }
    }

    // SAFETY: there are no bytes, so none is shared; `caps` never changes.
    unsafe impl Backend for Lines {
        type Block = ();
        fn caps(&self) -> &Caps {
            &self.caps
        }
        fn allocate(&self, _: HeapId, _: u64) -> Result<()> {
            let mut work = self.work();
            if work.blocks > 0 {
                return Err(ErrorKind::OutOfDeviceMemory.into());
            }
            work.blocks += 1;
            Ok(())
        }
        unsafe fn free(&self, (): ()) -> Result<()> {
            self.work().blocks -= 1;
            Ok(())
        }
        fn wait_idle(&self) -> Result<()> {
            [ONE, TWO].into_iter().for_each(|timeline| self.run(timeline));
            Ok(())
        }
        fn as_timelines(&self) -> Option<&dyn Timelines> {
            Some(self)
        }
    }

    // SAFETY: a mark is the count of what was submitted, and work that is reached has run.
    unsafe impl Timelines for Lines {
        fn open(&self) -> Result<TimelineId> {
            Ok(TWO)
        }
        fn close(&self, _: TimelineId) -> Result<()> {
            Ok(())
        }
        fn mark(&self, timeline: TimelineId) -> Result<Epoch> {
            Ok(Epoch(self.work().submitted.get(&timeline).copied().unwrap_or(0)))
        }
        fn reached(&self, timeline: TimelineId) -> Result<Epoch> {
            Ok(Epoch(self.work().finished.get(&timeline).copied().unwrap_or(0)))
        }
        fn wait(&self, point: Point) -> Result<()> {
            let mut work = self.work();
            let done = work.finished.entry(point.timeline).or_default();
            *done = point.epoch.0.max(*done);
            Ok(())
        }
        fn order(&self, timeline: TimelineId, point: Point) -> Result<()> {
            self.work().orders.entry(timeline).or_default().push(point);
            Ok(())
        }
    }

    fn open(lanes: u32) -> (Lines, Manager<Lines>) {
        let mut caps = super::Fake::new(&Arc::default()).caps.clone();
        (caps.heaps[0].granule, caps.max_blocks) = (Align::of(PIECE), 1);
        let lines = Lines { caps, work: Arc::default() };
        let mut config = ManagerConfig::default().plain();
        (config.pool.lanes, config.pool.block) = (Some(lanes), Some(2 * PIECE));
        (lines.clone(), Manager::with_config(lines, config))
    }

    /// Two allocations of the first timeline, one of which it has used and freed.
    fn half_free(lines: &Lines, manager: &Manager<Lines>) -> Allocation<Lines> {
        let ask = || manager.allocate(&Request::new(PIECE).on(ONE)).expect("fits");
        let (first, second) = (ask(), ask());
        lines.submit(ONE, &first);
        drop(first);
        second
    }

    fn check(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(super::PREEMPTIONS);
        builder.check(model);
    }

    #[test]
    fn what_is_freed_after_a_mark_has_not_passed_with_it() {
        check(|| {
            let (lines, manager) = open(1);
            let second = half_free(&lines, &manager);
            let other = thread::spawn({
                let lines = lines.clone();
                move || {
                    lines.run(ONE);
                    lines.submit(ONE, &second);
                    drop(second);
                }
            });
            let ask = || {
                let got = manager.allocate(&Request::new(PIECE));
                got.inspect(|one| lines.assert_usable(one, None))
            };
            let both = [ask(), ask()];
            other.join().expect("no panic");
            both[0].as_ref().expect("one piece was free, and waiting for it is allowed");
            assert_eq!(manager.validate(), Ok(()));
        });
    }

    #[test]
    fn what_is_freed_after_an_order_is_not_in_order() {
        check(|| {
            let (lines, manager) = open(1);
            let second = half_free(&lines, &manager);
            let other = thread::spawn({
                let lines = lines.clone();
                move || {
                    lines.submit(ONE, &second);
                    drop(second);
                }
            });
            let ask = || {
                let got = manager.allocate(&Request::new(PIECE).on(TWO));
                got.inspect(|one| lines.assert_usable(one, Some(TWO)))
            };
            let both = [ask(), ask()];
            other.join().expect("no panic");
            both[0].as_ref().expect("one piece was free in order");
            assert_eq!(manager.validate(), Ok(()));
        });
    }

    #[test]
    fn a_lane_hands_its_bytes_over_in_order() {
        check(|| {
            let (lines, manager) = open(2);
            let second = half_free(&lines, &manager);
            // Another thread has another lane.
            let other = thread::spawn({
                let (lines, manager) = (lines.clone(), manager.clone());
                move || {
                    let got = manager.allocate(&Request::new(PIECE).on(TWO)).expect("handed over");
                    lines.assert_usable(&got, Some(TWO));
                }
            });
            lines.submit(ONE, &second);
            drop(second);
            other.join().expect("no panic");
            assert_eq!(manager.validate(), Ok(()));
        });
    }
}
