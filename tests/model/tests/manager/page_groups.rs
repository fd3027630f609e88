//! Pools over a driver whose pages come in groups: it refuses to divide one, as real ones do.
#![expect(unsafe_code, reason = "implements the unsafe traits of a device")]
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use omniheap_core::*;
use std::collections::BTreeMap;
use std::sync::Mutex;

const PAGE: u64 = 1 << 21;

/// Addresses without bytes, and page groups that exist.
struct PageGroups {
    caps: Caps,
    next: AtomicU64,
    /// Pages of every group that exists.
    made: Mutex<BTreeMap<u64, u64>>,
    most: AtomicU64,
    work: Work,
    /// Marks so far, the last that was reached, and how often someone waited for one.
    marks: AtomicU64,
    reached: AtomicU64,
    waits: AtomicU64,
    /// Timelines that run after others.
    orders: Mutex<Vec<(TimelineId, TimelineId)>>,
    /// Blocks, and reservations of addresses.
    blocks: AtomicU64,
    /// Act of another thread while pages are mapped.
    meanwhile: Mutex<Option<Box<dyn FnMut() + Send>>>,
}

/// Treatment of work by the device.
#[derive(PartialEq)]
enum Work {
    /// All of it at once.
    AtOnce,
    /// Nothing before someone waits for it.
    Late,
    /// Nothing, and nobody can wait for it or run after it now.
    Stuck,
}

/// The page at every mapped position.
#[derive(Default)]
struct Addresses(Mutex<BTreeMap<u64, u64>>);

impl PageGroups {
    fn new(work: Work) -> Self {
        let page = Align::of(PAGE);
        let heap = Heap::new(HeapKind::Device, 8 << 30).align(page).granule(page).page(Some(page));
        let caps = Caps::new(DeviceInfo::default(), vec![heap]).max_blocks(64);
        let [next, most, marks, reached, waits, blocks] = [const { AtomicU64::new(0) }; 6];
        let (made, orders, meanwhile) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { caps, next, made, most, work, marks, reached, waits, orders, blocks, meanwhile }
    }

    /// Whole groups, and nothing else.
    fn check(&self, pages: impl Iterator<Item = u64>) {
        let made = self.made.lock().unwrap();
        let mut counts = BTreeMap::<u64, u64>::new();
        pages.for_each(|page| *counts.entry(page).or_default() += 1);
        for (group, count) in counts {
            assert_eq!(made.get(&group), Some(&count), "group {group} was divided");
        }
    }
}

// SAFETY: no block has bytes, so none shares any.
unsafe impl Backend for PageGroups {
    type Block = Addresses;
    fn caps(&self) -> &Caps {
        &self.caps
    }
    fn allocate(&self, _: HeapId, _: u64) -> Result<Addresses> {
        self.blocks.fetch_add(1, Relaxed);
        Ok(Addresses::default())
    }
    unsafe fn free(&self, block: Addresses) -> Result<()> {
        assert!(block.0.lock().unwrap().is_empty());
        self.blocks.fetch_sub(1, Relaxed);
        Ok(())
    }
    fn wait_idle(&self) -> Result<()> {
        Ok(())
    }
    fn as_timelines(&self) -> Option<&dyn Timelines> {
        Some(self)
    }
    fn as_remap(&self) -> Option<&dyn Remap<Block = Addresses>> {
        Some(self)
    }
}

// SAFETY: there is no work, so whatever epoch is reached, all of it has finished.
unsafe impl Timelines for PageGroups {
    fn open(&self) -> Result<TimelineId> {
        Err(ErrorKind::Unsupported.into())
    }
    fn close(&self, _: TimelineId) -> Result<()> {
        Ok(())
    }
    fn mark(&self, _: TimelineId) -> Result<Epoch> {
        Ok(Epoch(self.marks.fetch_add(1, Relaxed) + 1))
    }
    fn reached(&self, _: TimelineId) -> Result<Epoch> {
        let all = self.work == Work::AtOnce;
        Ok(Epoch(if all { &self.marks } else { &self.reached }.load(Relaxed)))
    }
    fn wait(&self, point: Point) -> Result<()> {
        if self.work == Work::Stuck {
            return Err(ErrorKind::Busy.into());
        }
        self.reached.fetch_max(point.epoch.0, Relaxed);
        self.waits.fetch_add(1, Relaxed);
        Ok(())
    }
    fn order(&self, later: TimelineId, earlier: Point) -> Result<()> {
        if self.work == Work::Stuck {
            return Err(ErrorKind::Busy.into());
        }
        self.orders.lock().unwrap().push((later, earlier.timeline));
        Ok(())
    }
}

// SAFETY: positions have no bytes, so whichever page backs one has the same.
unsafe impl Remap for PageGroups {
    type Block = Addresses;

    fn reserve(&self, _: HeapId, _: u64) -> Result<Addresses> {
        self.blocks.fetch_add(1, Relaxed);
        Ok(Addresses::default())
    }
    fn create(&self, heap: HeapId, count: u64, pages: &mut Vec<Page>) -> Result<()> {
        self.create_groups(heap, count, 1, pages)
    }
    fn create_groups(&self, _: HeapId, count: u64, most: u64, to: &mut Vec<Page>) -> Result<()> {
        self.most.fetch_max(most, Relaxed);
        let mut left = count;
        while left > 0 {
            let (length, group) = (left.min(most), self.next.fetch_add(1, Relaxed));
            self.made.lock().unwrap().insert(group, length);
            to.extend((0..length).map(|_| Page(group)));
            left -= length;
        }
        Ok(())
    }
    unsafe fn destroy(&self, _: HeapId, pages: &[Page]) -> Result<()> {
        self.check(pages.iter().map(|page| page.0));
        let mut made = self.made.lock().unwrap();
        made.retain(|group, _| !pages.contains(&Page(*group)));
        Ok(())
    }
    unsafe fn map_pages(&self, block: &Addresses, first: u64, pages: &[Page]) -> Result<()> {
        self.check(pages.iter().map(|page| page.0));
        let mut table = block.0.lock().unwrap();
        for (position, page) in (first..).zip(pages) {
            assert_eq!(table.insert(position, page.0), None);
        }
        drop(table);
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(mut run) = meanwhile {
            run();
            *self.meanwhile.lock().unwrap() = Some(run);
        }
        Ok(())
    }
    unsafe fn unmap_pages(&self, block: &Addresses, first: u64, count: u64) -> Result<()> {
        let mut table = block.0.lock().unwrap();
        let gone = (first..first + count).map(|position| table.remove(&position));
        self.check(gone.map(|page| page.expect("mapped")).collect::<Vec<_>>().into_iter());
        Ok(())
    }
}

#[test]
fn groups_move_whole_and_all_of_them_go_back() {
    let manager = Manager::new(PageGroups::new(Work::AtOnce));
    let (mut live, mut seed) = (Vec::new(), 1_u64);
    for _ in 0..4000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (choice, size) = (seed >> 40, 1 + (seed >> 20) % (96 << 20));
        if live.len() < 64 && choice % 5 < 3 {
            live.extend(manager.allocate(&Request::new(size)).ok());
        } else if !live.is_empty() {
            drop(live.swap_remove(usize::try_from(choice).unwrap() % live.len()));
        }
        if choice % 400 == 0 {
            manager.trim().unwrap();
        }
    }
    assert!(manager.backend().most.load(Relaxed) > 1, "there were groups");
    live.clear();
    manager.trim().unwrap();
    assert_eq!(manager.heap_use(HeapId(0)).unwrap().reserved, 0);
    assert!(manager.backend().made.lock().unwrap().is_empty());
}

/// A driver takes its time for each group, so a large request has few. What moves whole stays small beside the request.
#[test]
fn the_more_pages_a_request_lacks_the_larger_are_their_groups() {
    let manager = Manager::new(PageGroups::new(Work::AtOnce));
    let mut live = Vec::new();
    for (pages, groups) in [(15, 15), (32, 8), (127, 9), (512, 32), (8, 4), (1024, 64), (8, 2)] {
        let before = manager.backend().made.lock().unwrap().len();
        live.push(manager.allocate(&Request::new(pages * PAGE)).unwrap());
        let made = manager.backend().made.lock().unwrap().len() - before;
        assert_eq!(made, groups, "{pages} pages");
    }
}

#[test]
fn a_request_is_served_though_another_takes_every_hole_beside_its_pages() {
    let mut config = ManagerConfig::default();
    config.defragmentation = Defragmentation::Off;
    let manager = Manager::with_config(PageGroups::new(Work::AtOnce), config);
    let _first = manager.allocate(&Request::new(PAGE / 2)).unwrap();
    let (other, mut taken) = (manager.clone(), Vec::new());
    let calls = manager.report().driver_calls;
    *manager.backend().meanwhile.lock().unwrap() = Some(Box::new(move || {
        let holes = [PAGE, PAGE / 2].map(|size| other.allocate(&Request::new(size).no_grow()));
        taken.extend(holes.into_iter().flatten());
    }));
    let served = manager.allocate(&Request::new(PAGE + PAGE / 4));
    *manager.backend().meanwhile.lock().unwrap() = None;
    assert!(served.is_ok(), "{}", served.unwrap_err());
    let calls = manager.report().driver_calls - calls;
    assert_eq!(calls, 4, "pages are made and mapped beside a hole, and once more without one");
}

#[test]
fn a_summary_is_a_report_without_its_blocks() {
    let manager = Manager::new(PageGroups::new(Work::AtOnce));
    let _live = [1, 2, 3].map(|pages| manager.allocate(&Request::new(pages * PAGE)).unwrap());
    let mut report = manager.report();
    assert!(report.pools.iter().any(|pool| !pool.blocks.is_empty()));
    report.pools.iter_mut().for_each(|pool| pool.blocks.clear());
    assert_eq!(manager.summary(), report);
}

/// A manager of a device that does nothing before someone waits for it.
fn late(waiting: Waiting) -> Manager<PageGroups> {
    let mut config = ManagerConfig::default();
    config.pool.waiting = waiting;
    Manager::with_config(PageGroups::new(Work::Late), config)
}

/// Fills a lane with ten allocations, frees every second one, and asks for two in one; says what is held then.
fn held_after_holes(manager: &Manager<PageGroups>, size: u64) -> u64 {
    let ask = |size| manager.allocate(&Request::new(size).on(TimelineId(1))).unwrap();
    let mut live: Vec<_> = (0..10).map(|_| Some(ask(size))).collect();
    live.iter_mut().step_by(2).for_each(|slot| *slot = None);
    live.push(Some(ask(2 * size)));
    manager.heap_use(HeapId(0)).unwrap().reserved
}

#[test]
fn much_waste_is_worth_waiting_for_the_device() {
    let manager = late(Waiting::Thrift);
    assert_eq!(held_after_holes(&manager, 64 << 20), 640 << 20);
    assert_eq!(manager.backend().waits.load(Relaxed), 1);
    let manager = late(Waiting::LastResort);
    assert_eq!(held_after_holes(&manager, 64 << 20), 768 << 20);
    assert_eq!(manager.backend().waits.load(Relaxed), 0);
}

#[test]
fn little_waste_is_not_worth_waiting() {
    let manager = late(Waiting::Thrift);
    assert_eq!(held_after_holes(&manager, 4 << 20), 48 << 20);
    assert_eq!(manager.backend().waits.load(Relaxed), 0);
}

#[test]
fn timelines_take_turns_with_the_same_pages() {
    let manager = Manager::new(PageGroups::new(Work::AtOnce));
    let ask = |on| manager.allocate(&Request::new(16 << 20).on(TimelineId(on))).unwrap();
    drop(ask(1));
    let calls = manager.report().driver_calls;
    for round in 0..1000 {
        drop(ask(1 + round % 3));
    }
    assert_eq!(manager.report().driver_calls, calls, "nothing is mapped anew");
    assert_eq!(manager.heap_use(HeapId(0)).unwrap().reserved, 16 << 20);
}

/// Each timeline has its own bytes back at once, also where those of another lie beside them.
#[test]
fn timelines_that_lag_reuse_their_own_bytes_side_by_side() {
    for paged in [true, false] {
        let mut config = ManagerConfig::default();
        config.pool.paged = paged;
        let manager = Manager::with_config(PageGroups::new(Work::Stuck), config);
        let round = || {
            for on in [ONE, TWO, THREE] {
                drop(manager.allocate(&Request::new(256 << 10).on(on)).unwrap());
            }
        };
        round();
        let calls = manager.report().driver_calls;
        (0..100).for_each(|_| round());
        assert_eq!(manager.report().driver_calls, calls, "paged: {paged}");
        assert_eq!(*manager.backend().orders.lock().unwrap(), []);
    }
}

const ONE: TimelineId = TimelineId(1);
const TWO: TimelineId = TimelineId(2);

fn ask(manager: &Manager<PageGroups>, on: TimelineId, mib: u64) -> Allocation<PageGroups> {
    manager.allocate(&Request::new(mib << 20).on(on)).unwrap()
}

fn held(manager: &Manager<PageGroups>) -> u64 {
    manager.heap_use(HeapId(0)).unwrap().reserved >> 20
}

#[test]
fn much_waste_is_worth_running_after_another_timeline() {
    for waiting in [Waiting::Thrift, Waiting::LastResort] {
        let manager = late(waiting);
        drop(ask(&manager, ONE, 512));
        let taken = ask(&manager, TWO, 256);
        assert_eq!(held(&manager), 512);
        assert_eq!(*manager.backend().orders.lock().unwrap(), [(TWO, ONE)]);
        drop(taken);
        // The first timeline cannot know when the second is done with it, so it runs after it.
        drop(ask(&manager, ONE, 512));
        assert_eq!(held(&manager), 512);
        assert_eq!(*manager.backend().orders.lock().unwrap(), [(TWO, ONE), (ONE, TWO)]);
        assert_eq!(manager.backend().waits.load(Relaxed), 0);
    }
}

#[test]
fn little_waste_is_not_worth_running_after_another_timeline() {
    let manager = late(Waiting::LastResort);
    let _live = ask(&manager, ONE, 512);
    drop(ask(&manager, ONE, 64));
    let _own = ask(&manager, TWO, 64);
    assert_eq!(held(&manager), 640);
    assert!(manager.backend().orders.lock().unwrap().is_empty());
}

/// Whoever runs after a timeline runs after everything that this one runs after: it need not be said again.
#[test]
fn running_after_one_is_running_after_all_that_it_runs_after() {
    let manager = late(Waiting::LastResort);
    let three = TimelineId(3);
    let parts = [ask(&manager, ONE, 256), ask(&manager, TWO, 256)];
    drop(parts);
    drop(ask(&manager, ONE, 512));
    assert_eq!(*manager.backend().orders.lock().unwrap(), [(ONE, TWO)]);
    let _all = ask(&manager, three, 512);
    assert_eq!(held(&manager), 512);
    assert_eq!(*manager.backend().orders.lock().unwrap(), [(ONE, TWO), (three, ONE)]);
}

#[test]
fn thrift_takes_back_what_others_use_and_runs_after_them() {
    let manager = late(Waiting::Thrift);
    let used = ask(&manager, ONE, 512);
    used.use_on(TWO).unwrap();
    drop(used);
    let _again = ask(&manager, ONE, 512);
    assert_eq!(held(&manager), 512);
    assert_eq!(*manager.backend().orders.lock().unwrap(), [(ONE, TWO)]);
    assert_eq!(manager.backend().waits.load(Relaxed), 0);
}

const THREE: TimelineId = TimelineId(3);

/// A thrifty manager whose allocations any timeline may use.
fn undeclared(work: Work) -> Manager<PageGroups> {
    let mut config = ManagerConfig::default();
    (config.pool.waiting, config.pool.uses) = (Waiting::Thrift, Uses::Undeclared);
    Manager::with_config(PageGroups::new(work), config)
}

#[test]
fn where_uses_are_undeclared_whoever_takes_bytes_runs_after_all_work() {
    let manager = undeclared(Work::Late);
    drop(ask(&manager, ONE, 512));
    drop(ask(&manager, TWO, 256));
    assert_eq!(*manager.backend().orders.lock().unwrap(), [(TWO, TimelineId::ALL)]);
    // Lent memory comes back after all work too.
    drop(ask(&manager, ONE, 512));
    assert_eq!(held(&manager), 512);
    let both = [(TWO, TimelineId::ALL), (ONE, TimelineId::ALL)];
    assert_eq!(*manager.backend().orders.lock().unwrap(), both);
}

#[test]
fn where_uses_are_undeclared_only_the_timeline_that_asks_waits_for_others() {
    let manager = undeclared(Work::Late);
    let used = ask(&manager, ONE, 512);
    used.use_on(TWO).unwrap();
    drop(used);
    drop(ask(&manager, THREE, 512));
    let orders = manager.backend().orders.lock().unwrap();
    assert!(orders.iter().all(|(later, _)| *later == THREE), "{orders:?}");
}

#[test]
fn work_that_cannot_be_waited_for_now_is_no_reason_to_fail() {
    let manager = undeclared(Work::Stuck);
    assert_eq!(held_after_holes(&manager, 64 << 20), 768 << 20);
    let error = manager.allocate(&Request::new(1).on(TimelineId::ALL)).err();
    assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::NoSuchTimeline));
}

#[test]
fn a_block_of_its_own_waits_for_the_device_itself() {
    let manager = late(Waiting::Thrift);
    let alone = manager.allocate(&Request::new(16 << 20).on(ONE).dedicated()).unwrap();
    let used = ask(&manager, ONE, 512);
    [&alone, &used].into_iter().for_each(|each| each.use_on(TWO).unwrap());
    let blocks = manager.backend().blocks.load(Relaxed);
    drop([alone, used]);
    let _again = ask(&manager, ONE, 512);
    assert_eq!(*manager.backend().orders.lock().unwrap(), [(ONE, TWO)]);
    assert_eq!(manager.backend().waits.load(Relaxed), 0);
    assert_eq!(manager.backend().blocks.load(Relaxed), blocks, "the driver has it back too early");
}

#[test]
fn a_hurried_manager_orders_nothing() {
    let manager = late(Waiting::Thrift);
    drop(ask(&manager, ONE, 512));
    manager.set_waiting(Waiting::LastResort);
    let first = ask(&manager, TWO, 256);
    assert_eq!(held(&manager), 768);
    drop(first);
    manager.set_waiting(Waiting::Thrift);
    let _second = ask(&manager, TWO, 512);
    assert_eq!(held(&manager), 768);
}

#[test]
fn what_was_taken_in_order_is_a_timelines_own() {
    let manager = late(Waiting::Thrift);
    drop(ask(&manager, ONE, 512));
    for _ in 0..1000 {
        drop(ask(&manager, TWO, 256));
    }
    assert_eq!((held(&manager), manager.report().rungs[Rung::Order as usize]), (512, 1));
    assert_eq!(*manager.backend().orders.lock().unwrap(), [(TWO, ONE)]);
    assert_eq!(manager.backend().waits.load(Relaxed), 0);
}

#[test]
fn blocks_that_another_timeline_left_empty_go_back_before_more_is_held() {
    let config = ManagerConfig::default().plain();
    let manager = Manager::with_config(PageGroups::new(Work::AtOnce), config);
    drop(ask(&manager, ONE, 64));
    let _larger = ask(&manager, TWO, 72);
    assert_eq!(held(&manager), 72);
    let config = ManagerConfig::default().plain();
    let manager = Manager::with_config(PageGroups::new(Work::Late), config);
    drop(ask(&manager, ONE, 64));
    let _larger = ask(&manager, TWO, 72);
    assert_eq!(held(&manager), 136, "the device may still use them");
}

#[test]
fn small_allocations_that_stay_leave_addresses_for_large_ones() {
    let manager = Manager::new(PageGroups::new(Work::AtOnce));
    let mut small = Vec::new();
    for round in 0..12 {
        // One takes what the large one leaves of its last page, and another the start of the hole that stays behind.
        let large = ask(&manager, ONE, 6 * 1024 + 16 * round + 1);
        small.push(ask(&manager, ONE, 1));
        drop(large);
        small.push(ask(&manager, ONE, 1));
    }
    let most = 6 * 1024 + 16 * 12 + 2 * 24;
    assert!(held(&manager) <= most, "{} MiB are held", held(&manager));
}
