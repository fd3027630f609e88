//! Each model runs again and again under a checker that tries all orders in which threads can take the locks, with a few
//! interruptions.
#![expect(unsafe_code, reason = "signs the contract of Backend for a device without bytes")]
use loom::thread::{self, JoinHandle};
use omniheap_core::*;
use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};

/// Times that a thread is interrupted where it could go on; few are enough for nearly every mistake.
const PREEMPTIONS: usize = 2;
const BLOCK: u64 = 1 << 22;
/// The smallest span.
const PIECE: u64 = 256;
const ONE: TimelineId = TimelineId(1);
const TWO: TimelineId = TimelineId(2);

/// Work of a device: what was submitted to it, what has run, and what runs after what.
#[derive(Debug, Default)]
struct Work {
    blocks: u64,
    taken: u64,
    closed: u64,
    /// Blocks that the driver has; no limit where zero.
    most: u64,
    submitted: HashMap<TimelineId, u64>,
    finished: HashMap<TimelineId, u64>,
    /// By the later timeline.
    orders: HashMap<TimelineId, Vec<Point>>,
    /// The last use of the bytes at an offset.
    uses: HashMap<u64, Point>,
}

impl Work {
    fn has_finished(&self, point: Point) -> bool {
        self.finished.get(&point.timeline).is_some_and(|done| *done >= point.epoch.0)
    }

    fn runs_after(&self, timeline: TimelineId, point: Point) -> bool {
        let is_later =
            |known: &Point| known.timeline == point.timeline && known.epoch >= point.epoch;
        timeline == point.timeline || self.orders.get(&timeline).into_iter().flatten().any(is_later)
    }
}

/// The driver of a device; it outlives the device. Its work runs when a model says so.
#[derive(Debug, Default)]
struct Driver(std::sync::Mutex<Work>);

impl Driver {
    /// Nobody switches threads with it locked: they are no threads of the system, and would wait for themselves.
    fn work(&self) -> MutexGuard<'_, Work> {
        // After a failed check everything is still freed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits work that uses an allocation.
    fn submit(&self, timeline: TimelineId, one: &Allocation<Fake>) -> Point {
        // Asked before: threads are switched while a lane is locked.
        let offset = one.binding().span().offset;
        let mut work = self.work();
        let count = work.submitted.entry(timeline).or_default();
        *count += 1;
        let point = Point { timeline, epoch: Epoch(*count) };
        work.uses.insert(offset, point);
        point
    }

    fn run(&self, timeline: TimelineId) {
        let mut work = self.work();
        let count = work.submitted.get(&timeline).copied().unwrap_or(0);
        work.finished.insert(timeline, count);
    }

    /// Fails where the bytes are in use for somebody else.
    fn assert_usable(&self, one: &Allocation<Fake>, timeline: Option<TimelineId>) {
        let offset = one.binding().span().offset;
        let work = self.work();
        let Some(last) = work.uses.get(&offset).copied() else { return };
        let is_ordered = timeline.is_some_and(|timeline| work.runs_after(timeline, last));
        assert!(is_ordered || work.has_finished(last), "{last:?} still uses it: {work:?}");
    }
}

/// A device without bytes.
struct Fake {
    caps: Caps,
    driver: Arc<Driver>,
}

fn caps() -> Caps {
    let heap = Heap::new(HeapKind::Device, 1 << 30).granule(Align::of(PIECE));
    Caps::new(DeviceInfo::default(), vec![heap]).max_blocks(100)
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.driver.work().closed += 1;
    }
}

// SAFETY: there are no bytes, so none is shared; `caps` never changes.
unsafe impl Backend for Fake {
    type Block = ();
    fn caps(&self) -> &Caps {
        &self.caps
    }
    fn allocate(&self, _: HeapId, _: u64) -> Result<()> {
        let mut work = self.driver.work();
        if work.most > 0 && work.blocks >= work.most {
            return Err(ErrorKind::OutOfDeviceMemory.into());
        }
        work.taken += 1;
        work.blocks += 1;
        Ok(())
    }
    unsafe fn free(&self, (): ()) -> Result<()> {
        self.driver.work().blocks -= 1;
        Ok(())
    }
    fn wait_idle(&self) -> Result<()> {
        [ONE, TWO].into_iter().for_each(|timeline| self.driver.run(timeline));
        Ok(())
    }
    fn as_timelines(&self) -> Option<&dyn Timelines> {
        Some(self)
    }
}

// SAFETY: a mark is the count of what was submitted, and work that is reached has run.
unsafe impl Timelines for Fake {
    fn open(&self) -> Result<TimelineId> {
        Ok(TWO)
    }
    fn close(&self, _: TimelineId) -> Result<()> {
        Ok(())
    }
    fn mark(&self, timeline: TimelineId) -> Result<Epoch> {
        Ok(Epoch(self.driver.work().submitted.get(&timeline).copied().unwrap_or(0)))
    }
    fn reached(&self, timeline: TimelineId) -> Result<Epoch> {
        Ok(Epoch(self.driver.work().finished.get(&timeline).copied().unwrap_or(0)))
    }
    fn wait(&self, point: Point) -> Result<()> {
        let mut work = self.driver.work();
        let done = work.finished.entry(point.timeline).or_default();
        *done = point.epoch.0.max(*done);
        Ok(())
    }
    fn order(&self, timeline: TimelineId, point: Point) -> Result<()> {
        self.driver.work().orders.entry(timeline).or_default().push(point);
        Ok(())
    }
}

fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Checks a model; what it returns must have been given back, and every device closed once.
fn check(model: impl Fn(&Arc<Driver>) + Send + Sync + 'static) {
    explore(PREEMPTIONS, move || {
        let driver = Arc::new(Driver::default());
        model(&driver);
        assert_eq!(driver.work().blocks, 0, "a block was kept, or freed twice");
        assert_eq!(driver.work().closed, 1, "the device was not closed once");
    });
}

fn config(lanes: u32, block: Option<u64>) -> ManagerConfig {
    let mut config = ManagerConfig::default().plain();
    (config.pool.lanes, config.pool.block) = (Some(lanes), block);
    config
}

fn manager(driver: &Arc<Driver>, lanes: u32) -> Manager<Fake> {
    Manager::with_config(Fake { caps: caps(), driver: Arc::clone(driver) }, config(lanes, None))
}

fn take<B: Backend>(manager: &Manager<B>, size: u64) -> Allocation<B> {
    manager.allocate(&Request::new(size)).expect("fits")
}

/// Runs in another thread.
fn beside<B: Backend + 'static, T: 'static>(
    manager: &Manager<B>,
    run: impl FnOnce(&Manager<B>) -> T + 'static,
) -> JoinHandle<T> {
    let manager = manager.clone();
    thread::spawn(move || run(&manager))
}

fn assert_apart(held: &[&Allocation<Fake>]) {
    let place = |held: &&Allocation<Fake>| {
        let binding = held.binding();
        (core::ptr::from_ref(binding.block()).addr(), binding.span())
    };
    let spans: Vec<_> = held.iter().map(place).collect();
    for (at, (block, span)) in spans.iter().enumerate() {
        let overlaps =
            spans[..at].iter().any(|(other, known)| other == block && known.overlaps(*span));
        assert!(!overlaps, "bytes were handed out twice: {spans:?}");
    }
}

#[test]
fn threads_that_share_a_lane_never_share_bytes() {
    check(|driver| {
        let manager = manager(driver, 1);
        let first = take(&manager, 1024);
        let other = beside(&manager, |manager| take(manager, 512));
        drop(first);
        let second = take(&manager, 1024);
        let third = other.join().expect("no panic");
        assert_apart(&[&second, &third]);
        assert_eq!(manager.validate(), Ok(()));
        assert_eq!(driver.work().taken, 1, "one block is enough");
    });
}

#[test]
fn an_allocation_freed_by_another_thread_is_free_once() {
    check(|driver| {
        let manager = manager(driver, 1);
        let (first, second) = (take(&manager, 1024), take(&manager, 1024));
        let other = thread::spawn(move || drop(first));
        drop(second);
        let third = take(&manager, 1024);
        other.join().expect("no panic");
        let fourth = take(&manager, 1024);
        assert_apart(&[&third, &fourth]);
        assert_eq!(manager.report().totals.live, 2);
    });
}

#[test]
fn the_last_owner_ends_the_lane_whoever_it_is() {
    check(|driver| {
        let manager = manager(driver, 1);
        let (first, second) = (take(&manager, 1024), take(&manager, 1024));
        let other = thread::spawn(move || drop(first));
        drop(manager);
        drop(second);
        other.join().expect("no panic");
    });
}

#[test]
fn owners_that_come_and_go_keep_the_lane() {
    check(|driver| {
        let manager = manager(driver, 1);
        let round = |manager: &Manager<Fake>| drop(take(manager, 1024));
        round(&manager);
        let other = beside(&manager, move |manager| (0..2).for_each(|_| round(manager)));
        round(&manager);
        drop(manager);
        other.join().expect("no panic");
    });
}

#[test]
fn a_lane_that_lends_does_not_hand_out_the_same_bytes() {
    check(|driver| {
        let manager = manager(driver, 2);
        // This thread's lane has a block that is free but for one allocation; the other thread's has none.
        let first = take(&manager, 1024);
        let other = beside(&manager, |manager| take(manager, BLOCK / 4));
        let second = take(&manager, BLOCK / 4);
        let third = other.join().expect("no panic");
        assert_apart(&[&first, &second, &third]);
        assert_eq!(driver.work().taken, 1, "what was idle was lent");
        assert_eq!(manager.validate(), Ok(()));
    });
}

#[test]
fn what_waits_for_a_timeline_is_freed_once() {
    check(|driver| {
        let manager = manager(driver, 1);
        let (first, second) = (take(&manager, 1024), take(&manager, 1024));
        let point = driver.submit(ONE, &first);
        let other = beside(&manager, {
            let driver = Arc::clone(driver);
            move |manager| {
                second.free_after(point);
                driver.run(ONE);
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
    check(|driver| {
        driver.work().most = 1;
        let manager = manager(driver, 2);
        let other = beside(&manager, |manager| take(manager, 1024));
        let first = take(&manager, 1024);
        let second = other.join().expect("no panic");
        assert_apart(&[&first, &second]);
    });
}

/// A pass that publishes new places, and threads that read, write, free and allocate meanwhile.
mod moves {
    use super::{PIECE, beside, caps, config, explore, take};
    use core::sync::atomic::Ordering::SeqCst;
    use loom::sync::atomic::AtomicU64;
    use loom::thread;
    use omniheap_core::*;
    use std::sync::Arc;

    /// Spans of a block; each has one number in it.
    const EACH: u64 = 4;

    /// A block of numbers that the checker watches.
    type Numbers = Arc<Vec<AtomicU64>>;

    /// A device that copies numbers at once.
    struct Copier(Caps);

    // SAFETY: numbers of one block are no other's; the caps never change.
    unsafe impl Backend for Copier {
        type Block = Numbers;
        fn caps(&self) -> &Caps {
            &self.0
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

        fn write(&self, _: TimelineId, _: BlockOffset<'_, Numbers>, _: &[u8]) -> Result<()> {
            Ok(())
        }
        fn read(&self, _: TimelineId, _: BlockOffset<'_, Numbers>, _: &mut [u8]) -> Result<()> {
            Ok(())
        }
        fn fill(&self, _: TimelineId, _: BlockOffset<'_, Numbers>, _: u64, _: u8) -> Result<()> {
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
        let manager = Manager::with_config(Copier(caps()), config(1, Some(PIECE * EACH)));
        let all: Vec<_> = (0..2 * EACH).map(|_| take(&manager, PIECE)).collect();
        let mut live: Vec<_> =
            (0..).zip(all).filter(|(n, _)| [0, 4, 6].contains(n)).map(|(_, one)| one).collect();
        (1..).zip(&live).for_each(|(number, one)| set(one, number));
        live.swap(0, 2);
        (manager, live)
    }

    /// Checks a model with up to three switches where nobody waits: more take hours.
    fn check(model: impl Fn() + Send + Sync + 'static) {
        explore(3, model);
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
            let other = beside(&manager, |manager| {
                drop(moved);
                let next = take(manager, PIECE);
                set(&next, 7);
                next
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
    use super::{Driver, Fake, ONE, PIECE, TWO, beside, caps, check, config};
    use loom::thread;
    use omniheap_core::*;
    use std::sync::Arc;

    /// A device with room for two pieces.
    fn open(driver: &Arc<Driver>, lanes: u32) -> Manager<Fake> {
        driver.work().most = 1;
        let device = Fake { caps: caps(), driver: Arc::clone(driver) };
        Manager::with_config(device, config(lanes, Some(2 * PIECE)))
    }

    /// Two allocations of the first timeline, one of which it has used and freed.
    fn half_free(driver: &Driver, manager: &Manager<Fake>) -> Allocation<Fake> {
        let ask = || manager.allocate(&Request::new(PIECE).on(ONE)).expect("fits");
        let (first, second) = (ask(), ask());
        driver.submit(ONE, &first);
        drop(first);
        second
    }

    /// Another thread uses and frees the second half, after what `first` does, while this one asks twice for a half. What it gets may be used
    /// at once, and the half that was free is one of them.
    fn ask_beside_a_free(driver: &Arc<Driver>, request: &Request<'_>, first: fn(&Driver)) {
        let manager = open(driver, 1);
        let second = half_free(driver, &manager);
        let other = thread::spawn({
            let driver = Arc::clone(driver);
            move || {
                first(&driver);
                driver.submit(ONE, &second);
                drop(second);
            }
        });
        let ask = || {
            let got = manager.allocate(request);
            got.inspect(|one| driver.assert_usable(one, request.timeline))
        };
        let both = [ask(), ask()];
        other.join().expect("no panic");
        both[0].as_ref().expect("one piece was free: in order, or after a wait");
        assert_eq!(manager.validate(), Ok(()));
    }

    #[test]
    fn what_is_freed_after_a_mark_has_not_passed_with_it() {
        check(|driver| ask_beside_a_free(driver, &Request::new(PIECE), |driver| driver.run(ONE)));
    }

    #[test]
    fn what_is_freed_after_an_order_is_not_in_order() {
        check(|driver| ask_beside_a_free(driver, &Request::new(PIECE).on(TWO), |_| {}));
    }

    #[test]
    fn a_lane_hands_its_bytes_over_in_order() {
        check(|driver| {
            let manager = open(driver, 2);
            let second = half_free(driver, &manager);
            // Another thread has another lane.
            let other = beside(&manager, {
                let driver = Arc::clone(driver);
                move |manager| {
                    let got = manager.allocate(&Request::new(PIECE).on(TWO)).expect("handed over");
                    driver.assert_usable(&got, Some(TWO));
                }
            });
            driver.submit(ONE, &second);
            drop(second);
            other.join().expect("no panic");
            assert_eq!(manager.validate(), Ok(()));
        });
    }
}
