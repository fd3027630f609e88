//! Eight threads at random work, contents checked, while a ninth moves, aborts and steps, and the driver fails now and
//! then. `OMNIHEAP_OPERATIONS` says how many operations.
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use core::time::Duration;
use omniheap_core::{
    Align, Allocation, Background, Budget, Decision, Defragmentation, HeapKind, HostAccess,
    Manager, ManagerConfig, Mapper, Request, TimelineId, Timelines,
};
use omniheap_host::{Host, heap};
use omniheap_layers::{Fault, Plan};
use omniheap_model::{Random, stamp};

type Device = Fault<Host>;

const THREADS: u64 = 8;

fn operations() -> u64 {
    std::env::var("OMNIHEAP_OPERATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(16_000)
}

/// An allocation and what is in it; `None` where a write failed.
struct Item {
    allocation: Allocation<Device>,
    stamp: Option<u64>,
}

impl Item {
    fn write(&mut self, id: u64) {
        let bytes = stamp(id, self.allocation.size());
        self.stamp = self.allocation.write(0, &bytes).is_ok().then_some(id);
    }

    fn check(&self) {
        let mut found = vec![0; usize::try_from(self.allocation.size()).expect("small")];
        let Some(expected) = self.stamp.map(|id| stamp(id, self.allocation.size())) else { return };
        // Reading waits for what was written; a view then shows the same, whatever moves meanwhile.
        if self.allocation.read(0, &mut found).is_err() {
            return;
        }
        assert!(found == expected, "{:?} lost its bytes", self.stamp);
        if let Ok(view) = self.allocation.map() {
            std::thread::yield_now();
            found.fill(0);
            view.read(0, &mut found).expect("in range, and coherent");
            assert!(found == expected, "a view of {:?} lost its bytes", self.stamp);
        }
    }
}

/// Random work of one thread, which the upper bits of its seed number, and what lives after it; `lines` are the timelines
/// that it may use.
fn work(manager: &Manager<Device>, seed: u64, count: u64, lines: &[TimelineId]) -> Vec<Item> {
    let (mut random, mut live) = (Random(seed), Vec::<Item>::new());
    // No two allocations of any threads have the same.
    let id = |step: u64| seed >> 48 << 48 | step;
    for step in 0..count {
        let at = (!live.is_empty()).then(|| random.index(live.len()));
        match (random.below(10), at) {
            (0..4, _) => live.extend(make(manager, &mut random, lines, id(step))),
            (4..7, Some(at)) => {
                let gone = live.swap_remove(at);
                gone.check();
                // Without a timeline only what is out of use is freed; reading waited for it.
                gone.allocation.free();
            }
            (7, Some(at)) => live[at].check(),
            (8, Some(at)) => live[at].write(id(step)),
            (_, Some(at)) => {
                let binding = live[at].allocation.binding();
                let place = (binding.address(), binding.span());
                let pin = live[at].allocation.pin();
                std::thread::yield_now();
                assert_eq!(place, (binding.address(), binding.span()));
                drop(pin);
            }
            _ => {}
        }
        if live.len() > 300 {
            live.drain(..150).for_each(|item| item.check());
        }
    }
    live.iter().for_each(Item::check);
    live
}

fn make(
    manager: &Manager<Device>,
    random: &mut Random,
    lines: &[TimelineId],
    id: u64,
) -> Option<Item> {
    let size = if random.below(50) == 0 { 200_000 } else { 1 + random.below(9_000) };
    let mut request = Request::new(size);
    if random.below(3) == 0 {
        request = request.on(lines[random.index(lines.len())]);
    }
    if random.below(20) == 0 {
        request = request.align(Align::of(2048)).name("aligned");
    }
    let allocation = manager.allocate(&request).ok()?;
    let mut item = Item { allocation, stamp: None };
    item.write(id);
    Some(item)
}

/// Rounds that the mover has to do its part after the others have done theirs: it may have come late.
const LAST_ROUNDS: u32 = 1000;

/// Moves, aborts and steps until it is stopped and has done each; how many moves were committed.
fn move_about(manager: &Manager<Device>, stop: &AtomicBool) -> u64 {
    let (mut random, mut aborts, mut late) = (Random(99), 0, 0);
    let moves = || manager.report().defragmentation.moves;
    while !stop.load(Relaxed) || (aborts == 0 || moves() == 0) && late < LAST_ROUNDS {
        late += u32::from(stop.load(Relaxed));
        let budget = Budget::new().moves(1 + random.below(400));
        // The driver fails now and then; what that does to contents is what the workers check.
        let _ = match random.below(5) {
            0 => manager.defragment().map(drop),
            1 => manager.step().map(drop),
            choice => manager.begin_defragment(&budget).and_then(|mut pass| {
                if choice == 2 {
                    pass.start()?;
                    aborts += 1;
                    return Ok(());
                }
                let mut which = 0;
                pass.run(|_| {
                    which += 1;
                    if which % 7 == 0 { Decision::Ignore } else { Decision::Copy }
                })
                .map(drop)
            }),
        };
        std::thread::yield_now();
    }
    assert!(aborts > 0, "no pass was dropped half-way");
    moves()
}

fn soak(paged: bool, faults: u32) {
    let mut device = heap(HeapKind::Device, 96 << 20);
    device.host = HostAccess::Cached;
    // With calls that fail, requests may also be served by copying what is live instead of mapping.
    device.mapper = if faults > 0 { Mapper::Queue } else { Mapper::Host };
    // Small pages, so that there are many to empty.
    device.page = device.page.map(|_| Align::of(64 << 10));
    let host = Host::builder().heap(device).open().expect("a device");
    let lines = [TimelineId::MAIN, host.open().expect("open"), host.open().expect("open")];
    let mut config = ManagerConfig::default();
    (config.pool.paged, config.pool.lanes) = (paged, Some(4));
    // Small blocks, so that there are many to empty.
    config.pool.block = (!paged).then_some(256 << 10);
    let budget = Budget::new().moves(64).time(Duration::from_millis(5));
    config.defragmentation = Defragmentation::Background(Background::new(budget).between(1, 5));
    let manager = Manager::with_config(Fault::new(host), config);
    let seed = std::time::UNIX_EPOCH.elapsed().map_or(1, |time| u64::from(time.subsec_nanos()));
    println!("seed {seed}, {} operations, paged: {paged}", operations());
    let plan = Plan::Random { per_million: faults, seed };
    manager.backend().inject(if faults > 0 { plan } else { Plan::Never }, 0);
    let stop = AtomicBool::new(false);
    let moves = std::thread::scope(|scope| {
        let mover = scope.spawn(|| move_about(&manager, &stop));
        let start = |thread: u64| {
            let (manager, lines) = (&manager, &lines);
            let share = operations() / THREADS;
            scope.spawn(move || work(manager, seed ^ (thread + 1) << 48, share, lines))
        };
        let workers: Vec<_> = (0..THREADS).map(start).collect();
        // All of them before a panic goes on: the mover must be stopped.
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stop.store(true, Relaxed);
        let moves = mover.join().expect("no panic");
        // The rest lived on, so that the mover had something to move however late it came.
        ended.into_iter().flat_map(|left| left.expect("no panic")).for_each(|item| item.check());
        moves
    });
    manager.backend().inject(Plan::Never, 0);
    println!("{moves} moves, {:?}", manager.report().defragmentation);
    assert!(moves > 0, "nothing moved");
    manager.validate().expect("sound");
    manager.retire().expect("alive");
}

#[test]
fn contents_survive_threads_and_moves_of_blocks() {
    soak(false, 0);
}

#[test]
fn contents_survive_threads_and_moves_of_pages() {
    soak(true, 0);
}

#[test]
fn contents_survive_a_driver_that_fails() {
    soak(false, 2_000);
    soak(true, 2_000);
}
