//! Random programs whose observer keeps books of its own: what a manager tells, reports and does must agree after every operation.
use super::before::Asked;
use super::{HEAP, MIB, Managed, managed};
use omniheap_core::{
    Align, Allocation, AllocationId, Backend, Backing, BlockNumber, Budget, Decision, Event,
    HeapKind, ManagerConfig, Mobility, Observer, Report, Request, Rung, SpanState, TimelineId,
    Timelines,
};
use omniheap_host::{Host, heap};
use omniheap_model::{Random, sound, stamp};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// An allocation as the observer knows it.
#[derive(Clone, Debug)]
struct Known {
    block: BlockNumber,
    offset: u64,
    size: u64,
    timeline: Option<TimelineId>,
    name: Option<String>,
    pinned: bool,
    /// Its owner freed it, and timelines may still use the bytes.
    waits: bool,
}

#[derive(Debug, Default)]
struct Books {
    blocks: HashMap<BlockNumber, (u64, Backing, Option<u64>)>,
    page_bytes: u64,
    known: HashMap<AllocationId, Known>,
    live_bytes: u64,
    peak_live_bytes: u64,
    peak_reserved: u64,
    allocated: u64,
    freed: u64,
    moves: u64,
    failures: u64,
    rungs: [u64; Rung::ALL.len()],
}

#[derive(Debug, Default)]
struct Bookkeeper(Mutex<Books>);

impl Observer for Bookkeeper {
    fn observe(&self, event: &Event<'_>) {
        // After a failed check everything is still freed, and told.
        let mut books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let books = &mut *books;
        match *event {
            Event::Allocate { id, request, block, offset, .. } => {
                let (size, timeline) = (request.layout.size, request.timeline);
                let name = request.name.map(String::from);
                let pinned = request.mobility == Mobility::Pinned;
                let known = Known { block, offset, size, timeline, name, pinned, waits: false };
                assert!(books.known.insert(id, known).is_none(), "{id:?} was told before");
                books.live_bytes += size;
                books.peak_live_bytes = books.peak_live_bytes.max(books.live_bytes);
                books.allocated += 1;
            }
            Event::FreeRequested { id, timeline } => {
                let known = books.known.get_mut(&id).expect("it was told");
                assert_eq!((known.timeline, known.waits), (timeline, false));
                known.waits = true;
            }
            Event::Free { id, timeline } => {
                let known = books.known.remove(&id).expect("it was told");
                assert_eq!(known.timeline, timeline);
                books.live_bytes -= known.size;
                books.freed += 1;
            }
            Event::Use { id, .. } => assert!(books.known.contains_key(&id)),
            Event::Name { id, name } => {
                books.known.get_mut(&id).expect("it was told").name = Some(name.to_owned());
            }
            Event::Move { id, block, offset } => {
                let known = books.known.get_mut(&id).expect("it was told");
                (known.block, known.offset) = (block, offset);
                books.moves += 1;
            }
            ref other => books.note(other),
        }
    }
}

impl Books {
    /// Notes what concerns no single allocation.
    fn note(&mut self, event: &Event<'_>) {
        match *event {
            Event::TakeBlock { block, size, heap, backing, address } => {
                assert_eq!(heap, HEAP);
                assert!(self.blocks.insert(block, (size, backing, address)).is_none());
            }
            Event::ReturnBlock { block } => {
                self.blocks.remove(&block).expect("it was taken");
                assert!(self.known.values().all(|known| known.block != block), "it is in use");
            }
            Event::TakePages { bytes, .. } => self.page_bytes += bytes,
            Event::ReturnPages { bytes, .. } => self.page_bytes -= bytes,
            Event::Climb { rung, .. } => self.rungs[rung as usize] += 1,
            Event::Fail { .. } => self.failures += 1,
            ref other => panic!("{other:?} is new"),
        }
        self.peak_reserved = self.peak_reserved.max(self.reserved());
    }

    /// Every allocation is shown where it lies, by its name, and whether it may move.
    fn check_spans(&self, report: &Report) {
        let blocks = report.pools.iter().flat_map(|pool| &pool.blocks);
        let spans = blocks.flat_map(|block| block.live.iter().map(|one| (block.number, one)));
        let spans: HashMap<_, _> =
            spans.map(|(block, one)| ((block, one.span.offset), one)).collect();
        assert_eq!(spans.len(), self.known.len());
        for known in self.known.values() {
            let shown = spans[&(known.block, known.offset)];
            let state = match (known.waits, known.pinned) {
                (true, _) => SpanState::Deferred,
                (false, true) => SpanState::Pinned,
                (false, false) => SpanState::Movable,
            };
            assert_eq!((&shown.name, shown.state), (&known.name, state), "{known:?}");
            assert!(shown.span.size >= known.size, "{shown:?} and {known:?}");
        }
    }

    fn reserved(&self) -> u64 {
        let memory = self.blocks.values().filter(|(_, backing, _)| *backing == Backing::Memory);
        memory.map(|(size, ..)| size).sum::<u64>() + self.page_bytes
    }

    /// No two allocations have a byte in common, and none leaves its block.
    fn check_places(&self) {
        let mut spans: Vec<_> =
            self.known.values().map(|known| (known.block, known.offset, known.size)).collect();
        spans.sort_unstable();
        for pair in spans.windows(2) {
            let [(block, offset, size), (next, start, _)] = [pair[0], pair[1]];
            assert!(block != next || offset + size <= start, "{pair:?} overlap");
        }
        for (block, offset, size) in spans {
            assert!(offset + size <= self.blocks[&block].0, "{offset} + {size} leaves its block");
        }
    }
}

type Device = Asked;

struct Program {
    manager: Managed,
    books: Arc<Bookkeeper>,
    lines: Vec<TimelineId>,
    random: Random,
    live: Vec<(u64, Allocation<Device>)>,
    next: u64,
    failed: u64,
}

impl Program {
    fn new(seed: u64, config: ManagerConfig) -> Self {
        let mut about = heap(HeapKind::Device, 6 * MIB);
        about.page = Some(Align::of(64 << 10));
        let host = Arc::new(Host::builder().heap(about).open().expect("a host device"));
        let books = Arc::new(Bookkeeper::default());
        let mut config = config.observed(Arc::clone(&books) as _);
        config.pool.lanes = Some(1);
        let lines = vec![TimelineId::MAIN, host.open().expect("another timeline")];
        let manager = managed(host, config);
        let (live, random) = (Vec::new(), Random(seed));
        Self { manager, books, lines, random, live, next: 0, failed: 0 }
    }

    fn allocate(&mut self) {
        let size = match self.random.below(4) {
            0 => 1 + self.random.below(512 << 10),
            1 => 1 + self.random.below(64 << 10),
            _ => 1 + self.random.below(4096),
        };
        let name = format!("number {}", self.next);
        let mut request = Request::new(size).align(Align::of(1 << self.random.below(13)));
        let line = self.random.pick(&self.lines);
        match self.random.below(8) {
            0 => request = request.dedicated(),
            1 => request = request.name(&name),
            2 => request = request.pinned(),
            3 => request = request.secret(),
            4..=6 => request = request.on(line),
            _ => {}
        }
        match self.manager.allocate(&request) {
            Ok(one) => {
                assert_eq!(one.binding().span().offset % request.layout.align.get(), 0);
                one.write(0, &stamp(self.next, size)).expect("in range");
                self.live.push((self.next, one));
                self.next += 1;
            }
            Err(error) => {
                assert!(error.kind().is_out_of_memory(), "{error}");
                self.failed += 1;
            }
        }
    }

    fn free(&mut self) {
        let at = self.random.index(self.live.len());
        let (_, one) = self.live.swap_remove(at);
        match self.random.below(3) {
            0 => one.use_on(self.lines[1]).expect("it is open"),
            1 => one.set_name("nearly gone"),
            _ => {}
        }
        drop(one);
    }

    fn defragment(&mut self) {
        let mut pass = self.manager.begin_defragment(&Budget::new()).expect("alive");
        let count = pass.moves().len();
        for which in 0..count {
            if self.random.below(4) == 0 {
                pass.decide(which, Decision::Ignore).expect("it is there");
            }
        }
        if self.random.below(3) == 0 && !self.live.is_empty() {
            self.free();
            let books = self.books.0.lock().expect("no panic");
            let owned = books.known.values().filter(|known| !known.waits).count();
            assert_eq!(owned, self.live.len(), "its owner freed it, whoever else has it");
        }
        if self.random.below(3) > 0 {
            pass.commit().expect("alive");
        }
    }

    fn resize(&mut self) {
        let at = self.random.index(self.live.len());
        let (id, one) = self.live.swap_remove(at);
        let size = 1 + self.random.below(100_000);
        let (one, kept) = match self.manager.resize(one, size) {
            Ok(one) => (one, id),
            Err(refused) => {
                self.failed += u64::from(refused.error.kind().is_out_of_memory());
                (refused.given, id)
            }
        };
        one.write(0, &stamp(kept, one.size())).expect("in range");
        self.live.push((kept, one));
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..=9 => self.allocate(),
            10..=15 if !self.live.is_empty() => self.free(),
            16 => self.defragment(),
            17 => drop(self.manager.trim().expect("alive")),
            18 if !self.live.is_empty() => self.resize(),
            19 => drop(self.manager.retire().expect("alive")),
            _ => {}
        }
    }

    /// Compares the books with what the manager says.
    fn check(&self) {
        // Places are asked for first: that may end moves.
        let places: Vec<_> = self.live.iter().map(|(_, one)| place(one)).collect();
        let (report, totals) = (self.manager.report(), self.manager.totals());
        let books = self.books.0.lock().expect("no panic");
        for ((_, one), (offset, address)) in self.live.iter().zip(places) {
            let known = &books.known[&one.id()];
            assert_eq!((known.offset, known.size, known.waits), (offset, one.size(), false));
            let start = books.blocks[&known.block].2;
            assert_eq!(start.map(|start| start + offset), address);
        }
        books.check_places();
        books.check_spans(&report);
        assert_eq!(totals.peak_live_bytes, books.peak_live_bytes);
        let held = self.manager.heap_use(HEAP).expect("there");
        assert_eq!((held.reserved, held.peak_reserved), (books.reserved(), books.peak_reserved));
        let waiting: u64 =
            books.known.values().filter(|known| known.waits).map(|known| known.size).sum();
        let live: u64 = books.known.values().map(|known| known.size).sum();
        let owned = books.known.values().filter(|known| !known.waits).count();
        assert_eq!(owned, self.live.len());
        assert_eq!((totals.live, totals.live_bytes), (books.known.len() as u64, live));
        assert_eq!(totals.deferred_bytes, waiting);
        assert_eq!((totals.allocated, totals.freed), (books.allocated, books.freed));
        assert_eq!(totals.reserved_bytes, books.reserved());
        assert_eq!((report.rungs, report.blocks), (books.rungs, books.blocks.len() as u64));
        assert_eq!(books.failures, self.failed);
    }
}

fn place(one: &Allocation<Device>) -> (u64, Option<u64>) {
    let binding = one.binding();
    (binding.span().offset, binding.address())
}

/// Runs a program; returns how many moves and failures there were.
fn run(seed: u64, config: ManagerConfig) -> (u64, u64) {
    let mut program = Program::new(seed, config);
    for number in 0..300 {
        program.step();
        program.check();
        if number % 50 == 0 {
            sound(&program.manager, &program.live);
        }
    }
    sound(&program.manager, &program.live);
    let Program { manager, books, live, .. } = program;
    drop(live);
    manager.backend().wait_idle().expect("alive");
    manager.retire().expect("alive");
    manager.trim().expect("alive");
    let left = (manager.totals().live, manager.heap_use(HEAP).expect("there").reserved);
    assert_eq!(left, (0, 0), "seed {seed}");
    drop(manager);
    let books = books.0.lock().expect("no panic");
    assert!(books.known.is_empty() && books.blocks.is_empty() && books.page_bytes == 0);
    (books.moves, books.failures)
}

/// Runs a program with blocks and one with pages; each test has few, so that a run which tries tests one by one comes to the next soon.
/// The number of moves depends on when timelines pass.
fn run_some(seeds: [u64; 2]) {
    for config in [ManagerConfig::default().plain(), ManagerConfig::default()] {
        let failures: u64 = seeds.iter().map(|seed| run(*seed, config.clone()).1).sum();
        assert!(failures > 0, "{seeds:?}: the heap is small");
    }
}

#[test]
fn the_books_of_an_observer_agree_with_the_manager() {
    run_some([0, 1]);
}

#[test]
fn the_books_of_an_observer_agree_with_the_manager_once_more() {
    run_some([2, 3]);
}

#[test]
fn the_books_of_an_observer_agree_with_the_manager_and_something_moves() {
    let runs = (4..8).map(|seed| run(seed, ManagerConfig::default()));
    let (moves, failures) = runs.fold((0, 0), |sum, done| (sum.0 + done.0, sum.1 + done.1));
    assert!(moves > 0 && failures > 0, "{moves} moves, {failures} failures");
}
