//! Programs in which a coin is tossed for each word of a request, over allocations whose timelines are held, closed or asleep.
//!
//! The host device is strict: it refuses to take back what work still uses, and what was refused is quarantined. So what is asked
//! of the manager at the end is that it lost nothing.
use super::before::{Asked, asked};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use omniheap_core::{
    Align, Allocation, Backend, Budget, Class, CopyRegion, ErrorKind, Event, HeapId, HeapKind,
    Lifetime, Limits, Manager, ManagerConfig, Observer, Pass, Point, PoolConfig, Request, Sleep,
    Tag, TimelineId, Timelines, Usage, UserPool, Uses, Waiting, Wake,
};
use omniheap_host::{Hold, Host, heap};
use omniheap_layers::{CallKind, Verdict};
use omniheap_model::{Random, Store, seed};
use std::sync::{Arc, Mutex};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Live allocations of a program, at most.
const MOST: usize = 60;
/// Operations of a program.
const OPERATIONS: u64 = 600;

/// Change that a coin makes to a request.
type Word = fn(Request<'static>) -> Request<'static>;

/// Timelines that are held until a call waits that may be for them.
type Holds = Arc<Mutex<Vec<Hold>>>;

#[derive(Debug, Default)]
struct Told(AtomicU64);

impl Observer for Told {
    fn observe(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// A live allocation, and the byte that it is full of; none for one in which nothing was written.
struct Entry {
    one: Allocation<Asked>,
    value: Option<u8>,
}

struct Program {
    random: Random,
    host: Arc<Host>,
    holds: Holds,
    manager: Manager<Asked>,
    /// A pool that may sleep, where the settings allow one.
    sleepy: Option<UserPool<Asked>>,
    lines: Vec<TimelineId>,
    live: Vec<Entry>,
    pass: Option<Pass<Asked>>,
    served: u64,
}

type Step = Result<(), omniheap_core::Error>;

/// Returns true if a call may be refused so in a program that makes no mistake.
fn is_usual(kind: ErrorKind) -> bool {
    use ErrorKind::{Asleep, ExceedsLimit, NoSuchHeap, Unsupported};
    kind.is_out_of_memory() || matches!(kind, Asleep | ExceedsLimit | NoSuchHeap | Unsupported)
}

impl Program {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let device = heap(HeapKind::Device, 48 * MIB).page(Some(Align::of(64 * KIB)));
        let [staging, unified] = [(HeapKind::Staging, 1), (HeapKind::Unified, 2)]
            .map(|(kind, physical)| heap(kind, 16 * MIB).physical(physical));
        let host = Host::builder().heap(device).heap(staging).heap(unified).open();
        let (host, holds) = (Arc::new(host.expect("a host device")), Holds::default());
        let held = Arc::clone(&holds);
        let device = asked(&host, move |call| {
            use CallKind::{Close, Read, Wait, WaitIdle};
            if matches!(call.kind, Wait | WaitIdle | Close | Read) {
                held.lock().expect("nothing panics").clear();
            }
            Verdict::Forward
        });
        let mut config = ManagerConfig::default();
        config.pool.paged = random.below(2) == 0;
        config.pool.lanes = random.pick(&[Some(1), Some(2)]);
        config.pool.waiting = random.pick(&[Waiting::LastResort, Waiting::Thrift]);
        config.pool.uses = random.pick(&[Uses::Declared, Uses::Declared, Uses::Undeclared]);
        if random.below(2) == 0 {
            config.observer = Some(Arc::new(Told::default()));
        }
        if random.below(3) == 0 {
            config = config.guarded();
        }
        let manager = Manager::with_config(device, config);
        let sleepy = manager.create_pool(HeapId(0), PoolConfig::new().sleepable()).ok();
        let opened = [(); 3].map(|()| host.open().expect("another timeline"));
        let lines = core::iter::once(TimelineId::MAIN).chain(opened).collect();
        let (live, pass) = (Vec::new(), None);
        Self { random, host, holds, manager, sleepy, lines, live, pass, served: 0 }
    }

    fn coin(&mut self, one_of: u64) -> bool {
        self.random.below(one_of) == 0
    }

    fn line(&mut self) -> TimelineId {
        self.random.pick(&self.lines)
    }

    fn size(&mut self) -> u64 {
        let most = self.random.pick(&[300, 20 * KIB, 20 * KIB, 200 * KIB, 2 * MIB]);
        1 + self.random.below(most)
    }

    /// A coin for each word.
    fn request(&mut self) -> Request<'static> {
        let mut request = Request::new(self.size());
        if !self.coin(3) {
            request = request.on(self.line());
        }
        let coins: [(u64, Word); 14] = [
            (4, Request::secret),
            (6, Request::dedicated),
            (8, Request::registrable),
            (6, Request::pinned),
            (6, Request::moved_on_consent),
            (5, Request::zeroed),
            (12, Request::no_grow),
            (8, Request::may_spill),
            (10, |request| request.class(Class::Tiled)),
            (10, |request| request.lifetime(Lifetime::Frame)),
            (5, |request| request.tag(Tag(7))),
            (5, |request| request.name("named")),
            (12, |request| request.usage(Usage::Upload)),
            (12, |request| request.usage(Usage::Unified)),
        ];
        for (one_of, word) in coins {
            if self.coin(one_of) {
                request = word(request);
            }
        }
        if self.coin(4) {
            request = request.align(Align::of(1 << self.random.below(13)));
        }
        if self.coin(2) {
            request.heap(HeapId(self.random.pick(&[0, 0, 0, 1, 2])))
        } else {
            request
        }
    }

    fn allocate(&mut self) -> Step {
        let request = self.request();
        let got = match &self.sleepy {
            Some(pool) if self.random.below(4) == 0 => pool.allocate(&request),
            _ => self.manager.allocate(&request),
        };
        let one = match got {
            Ok(one) => one,
            Err(error) if is_usual(error.kind()) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        self.served += 1;
        let is_zeroed = request.contents == omniheap_core::Contents::Zero;
        let mut entry = Entry { one, value: is_zeroed.then_some(0) };
        self.check(&entry)?;
        self.fill(&mut entry)?;
        self.live.push(entry);
        Ok(())
    }

    /// Fills an allocation, most often, in the order of its timeline.
    fn fill(&mut self, entry: &mut Entry) -> Step {
        if self.coin(6) {
            return Ok(());
        }
        let value = 1 + self.random.below(254).to_le_bytes()[0];
        match entry.one.fill(0, entry.one.size(), value) {
            Ok(()) => entry.value = Some(value),
            Err(error) if error.kind() == ErrorKind::Asleep => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn check(&self, entry: &Entry) -> Step {
        let Some(value) = entry.value else { return Ok(()) };
        let mut seen = vec![!value; usize::try_from(entry.one.size()).expect("small")];
        match entry.one.read(0, &mut seen) {
            Err(error) if error.kind() == ErrorKind::Asleep => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                assert!(seen.iter().all(|byte| *byte == value), "{:?} lost bytes", entry.one);
                Ok(())
            }
        }
    }

    fn take(&mut self) -> Option<Entry> {
        let count = self.live.len();
        (count > 0).then(|| self.live.swap_remove(self.random.index(count)))
    }

    fn free(&mut self) -> Step {
        let Some(entry) = self.take() else { return Ok(()) };
        if self.coin(4) {
            self.check(&entry)?;
        }
        if self.coin(4) {
            let timeline = self.line();
            let epoch = self.host.mark(timeline)?;
            entry.one.free_after(Point { timeline, epoch });
        }
        Ok(())
    }

    /// Has another timeline read some bytes, or its own write them anew.
    fn work(&mut self) -> Step {
        let (Some(mut from), on) = (self.take(), self.line()) else { return Ok(()) };
        let Some(to) = self.take() else {
            self.live.push(from);
            return Ok(());
        };
        let size = from.one.size().min(to.one.size());
        if self.coin(2) {
            self.fill(&mut from)?;
        } else if let Some(home) = from.one.timeline() {
            let Ok(epoch) = self.host.mark(home) else {
                self.live.extend([from, to]);
                return Ok(());
            };
            // Before and after what the other timeline does.
            self.host.order(on, Point { timeline: home, epoch })?;
            let region =
                CopyRegion { from: &from.one, from_offset: 0, to: &to.one, to_offset: 0, size };
            match self.manager.copy(on, &[region]) {
                Ok(()) => {
                    let epoch = self.host.mark(on)?;
                    self.host.order(home, Point { timeline: on, epoch })?;
                    self.live.push(from);
                    return Ok(()); // The target is freed while it is written.
                }
                Err(error) if is_usual(error.kind()) => {}
                Err(error) => return Err(error),
            }
        }
        self.live.extend([from, to]);
        Ok(())
    }

    fn hold(&mut self) -> Step {
        let line = self.line();
        let hold = self.host.hold(line)?;
        self.holds.lock().expect("nothing panics").push(hold);
        Ok(())
    }

    fn resize(&mut self) -> Step {
        let (Some(Entry { one, value }), size) = (self.take(), self.size()) else { return Ok(()) };
        let old = one.size();
        let entry = match self.manager.resize(one, size) {
            Ok(one) => Entry { one, value: value.filter(|_| size <= old) },
            Err(refused) if is_usual(refused.error.kind()) => Entry { one: refused.given, value },
            Err(refused) => return Err(refused.error),
        };
        self.check(&entry)?;
        self.live.push(entry);
        Ok(())
    }

    fn change_timelines(&mut self) -> Step {
        let at = 1 + self.random.index(self.lines.len() - 1);
        // Without the layer, so let go here.
        self.holds.lock().expect("nothing panics").clear();
        self.host.close(self.lines[at])?;
        self.lines[at] = self.host.open()?;
        Ok(())
    }

    fn move_together(&mut self) -> Step {
        match (self.pass.take(), self.random.below(4)) {
            (None, 0) => self.pass = Some(self.manager.begin_recall(&Budget::new())?),
            (None, _) => self.pass = Some(self.manager.begin_defragment(&Budget::new())?),
            (Some(pass), 0) => drop(pass),
            (Some(mut pass), 1) => {
                pass.start()?;
                self.pass = Some(pass);
            }
            (Some(pass), _) => drop(pass.commit()?),
        }
        Ok(())
    }

    fn sleep_or_wake(&mut self) -> Step {
        let Some(pool) = &self.sleepy else { return Ok(()) };
        // A pinned or moving allocation keeps the pool awake; a pool that is awake need not wake.
        if self.random.below(2) == 0 {
            let _ = pool.sleep(&Sleep::to(Arc::new(Store::default())));
        } else {
            let _ = pool.wake(&Wake::all());
        }
        Ok(())
    }

    fn tidy(&mut self) -> Step {
        match self.random.below(6) {
            0 => self.manager.trim().map(drop),
            1 => self.manager.retire().map(drop),
            2 => self.manager.step().map(drop),
            3 => {
                let hard = self.random.pick(&[u64::MAX, u64::MAX, 24 * MIB]);
                self.manager.set_budget(HeapId(0), Limits { soft: hard / 2, hard })
            }
            4 => {
                self.manager.validate().expect("sound");
                Ok(())
            }
            _ => self.manager.defragment().map(drop),
        }
    }

    fn step(&mut self) -> Step {
        match self.random.below(100) {
            0..36 if self.live.len() < MOST => self.allocate(),
            0..62 => self.free(),
            62..74 => self.work(),
            74..80 => self.hold(),
            80..84 => self.resize(),
            84..88 => self.move_together(),
            88..92 => self.sleep_or_wake(),
            92..94 => self.change_timelines(),
            _ => self.tidy(),
        }
    }

    /// Frees everything and checks that nothing is lost.
    fn end(self) {
        let Self { host, holds, manager, sleepy, live, pass, .. } = self;
        drop((live, pass));
        holds.lock().expect("nothing panics").clear();
        host.wait_idle().expect("alive");
        // A pool that sleeps is awake for its end or not, as it comes.
        drop(sleepy);
        for _ in 0..3 {
            manager
                .set_budget(HeapId(0), Limits { soft: u64::MAX, hard: u64::MAX })
                .expect("there");
            manager.trim().expect("alive");
            host.wait_idle().expect("alive");
        }
        manager.validate().expect("sound");
        if let Ok(found) = manager.overwrites() {
            assert!(found.is_empty(), "{found:?}");
        }
        let (totals, report) = (manager.totals(), manager.report());
        assert_eq!(report.quarantined_bytes, 0, "the driver got back what it still used");
        assert_eq!((totals.live, totals.deferred_bytes, totals.reserved_bytes), (0, 0, 0));
    }
}

fn run(seed: u64) -> u64 {
    let mut program = Program::new(seed);
    for number in 0..OPERATIONS {
        program.step().unwrap_or_else(|error| panic!("operation {number}: {error}"));
    }
    let served = program.served;
    program.end();
    served
}

#[test]
fn nothing_is_lost_whatever_a_request_says() {
    let set = std::env::var("OMNIHEAP_OPERATIONS").ok().and_then(|text| text.parse().ok());
    let count: u64 =
        set.unwrap_or(if cfg!(debug_assertions) { 20 * OPERATIONS } else { 400 * OPERATIONS });
    let (first, mut served) = (seed("nothing_is_lost_whatever_a_request_says"), 0);
    for seed in first..first + (count / OPERATIONS).max(1) {
        match std::panic::catch_unwind(|| run(seed)) {
            Ok(more) => served += more,
            Err(panic) => {
                eprintln!("OMNIHEAP_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    assert!(served * 5 > count, "{served} requests of {count} operations were served");
}
