//! Callbacks into a program while a second thread of it frees, closes timelines, ends pools and asks for memory.
//!
//! A pressure callback and an owner that decides about moves wait for the second thread, as a program may. The others only give it a turn: an
//! observer is called under a lock, a store keeps the bytes of a pool that nobody else can put to sleep, and guards look at bytes between
//! two driver calls.
use super::before::{Asked, asked};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use omniheap_core::{
    Allocation, AllocationId, Backend, BackingStore, Budget, Decision, ErrorKind, Event, GetPiece,
    HeapId, HeapKind, Limits, Manager, ManagerConfig, Observer, PoolConfig, Privacy, PutPiece,
    Relief, Request, Sleep, TimelineId, Timelines, Usage, Wake,
};
use omniheap_host::{Host, heap};
use omniheap_layers::Verdict;
use omniheap_model::{Random, Store, seed};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

const MIB: u64 = 1 << 20;
const DEVICE: HeapId = HeapId(0);

/// Turns that the first thread gives to the second.
#[derive(Debug, Default)]
struct Turns {
    /// Turns given, turns taken, and whether there are no more.
    state: Mutex<(u64, u64, bool)>,
    changed: Condvar,
    /// The second thread, which gives itself none.
    second: Mutex<Option<thread::ThreadId>>,
    given: AtomicU64,
    is_open: AtomicBool,
}

impl Turns {
    fn is_mine(&self) -> bool {
        *self.second.lock().expect("no panic") == Some(thread::current().id())
    }

    /// Gives the second thread a turn, which it takes when it likes.
    fn give(&self) {
        if !self.is_open.load(Relaxed) || self.is_mine() {
            return;
        }
        let mut state = self.state.lock().expect("no panic");
        state.0 = state.1 + 1;
        drop(state);
        self.given.fetch_add(1, Relaxed);
        self.changed.notify_all();
        thread::yield_now();
    }

    /// Gives the second thread a turn, and waits until it has taken it.
    fn give_and_wait(&self) {
        self.give();
        let state = self.state.lock().expect("no panic");
        if !self.is_mine() {
            drop(self.changed.wait_while(state, |state| state.1 < state.0 && !state.2));
        }
    }

    /// Waits for a turn; `false` where there are no more.
    fn next(&self) -> bool {
        let state = self.state.lock().expect("no panic");
        let state = self.changed.wait_while(state, |state| state.1 >= state.0 && !state.2);
        !state.expect("no panic").2
    }

    fn taken(&self) {
        let mut state = self.state.lock().expect("no panic");
        state.1 = state.0;
        drop(state);
        self.changed.notify_all();
    }

    fn end(&self) {
        self.is_open.store(false, Relaxed);
        self.state.lock().expect("no panic").2 = true;
        self.changed.notify_all();
    }
}

/// Gives a turn at each event.
#[derive(Clone, Debug)]
struct Giver(Arc<Turns>);

impl Observer for Giver {
    fn observe(&self, _: &Event<'_>) {
        self.0.give();
    }
}

/// A store that gives a turn before each copy.
#[derive(Debug)]
struct Giving(Store, Arc<Turns>);

impl BackingStore for Giving {
    fn put(
        &self,
        id: AllocationId,
        size: u64,
        privacy: Privacy,
        copy: &mut PutPiece<'_>,
    ) -> omniheap_core::Result<()> {
        self.1.give();
        self.0.put(id, size, privacy, copy)
    }

    fn get(&self, id: AllocationId, take: &mut GetPiece<'_>) -> omniheap_core::Result<()> {
        self.1.give();
        self.0.get(id, take)
    }

    fn forget(&self, id: AllocationId) {
        self.0.forget(id);
    }
}

/// State that both threads work on.
struct Shared {
    turns: Arc<Turns>,
    manager: Manager<Asked>,
    host: Arc<Host>,
    lines: Mutex<Vec<TimelineId>>,
    live: Mutex<Vec<Allocation<Asked>>>,
}

/// Returns true if a call may be refused so: the other thread may close a timeline, take memory or put a pool to sleep.
fn is_usual(kind: ErrorKind) -> bool {
    use ErrorKind::{Asleep, ExceedsLimit, NoSuchTimeline};
    kind.is_out_of_memory() || matches!(kind, Asleep | ExceedsLimit | NoSuchTimeline)
}

fn usual<T, E: Into<omniheap_core::Error>>(done: Result<T, E>) -> Option<T> {
    done.map_err(Into::into).inspect_err(|error| assert!(is_usual(error.kind()), "{error}")).ok()
}

impl Shared {
    fn allocate(&self, random: &mut Random) {
        let most = random.pick(&[4096, 200_000, 6 * MIB]);
        let size = 1 + random.below(most);
        let is_upload = random.below(8) == 0;
        let request = Request::new(size);
        let mut request =
            if is_upload { request.usage(Usage::Upload) } else { request.heap(DEVICE) };
        if random.below(3) > 0 {
            request = request.on(random.pick(&self.lines.lock().expect("no panic")));
        }
        if random.below(4) == 0 {
            request = request.secret();
        }
        if random.below(6) == 0 {
            request = request.dedicated();
        }
        if random.below(4) == 0 {
            request = request.may_spill();
        }
        if let Some(one) = usual(self.manager.allocate(&request)) {
            let _ = usual(one.fill(0, size, 7));
            self.live.lock().expect("no panic").push(one);
        }
    }

    fn free(&self, random: &mut Random) {
        let mut live = self.live.lock().expect("no panic");
        let count = live.len();
        let one = (count > 0).then(|| live.swap_remove(random.index(count)));
        drop(live);
        drop(one);
    }

    fn change_timelines(&self, random: &mut Random) {
        let fresh = self.host.open().expect("another timeline");
        let mut lines = self.lines.lock().expect("no panic");
        let at = random.index(lines.len());
        let old = core::mem::replace(&mut lines[at], fresh);
        drop(lines);
        self.host.close(old).expect("it was open");
    }

    fn end_a_pool(&self) {
        let pool = usual(self.manager.create_pool(DEVICE, PoolConfig::new()));
        let Some(pool) = pool else { return };
        let line = self.lines.lock().expect("no panic")[0];
        if let Some(one) = usual(pool.allocate(&Request::new(5000).on(line))) {
            let _ = usual(one.fill(0, 5000, 9));
            self.live.lock().expect("no panic").push(one);
        }
        drop(pool);
    }

    fn sleep(&self) {
        // Guards keep a pool awake.
        let pool = self.manager.create_pool(DEVICE, PoolConfig::new().sleepable());
        let Ok(pool) = pool else { return };
        if let Some(one) = usual(pool.allocate(&Request::new(70_000))) {
            let store = Giving(Store::default(), Arc::clone(&self.turns));
            let _ = pool.sleep(&Sleep::to(Arc::new(store)));
            let _ = pool.wake(&Wake::all());
            self.live.lock().expect("no panic").push(one);
        }
    }

    fn run_a_pass(&self, random: &mut Random) {
        let budget = Budget::new().moves(8);
        let pass = match random.below(2) {
            0 => self.manager.begin_defragment(&budget),
            _ => self.manager.begin_recall(&budget),
        };
        let Some(pass) = usual(pass) else { return };
        usual(pass.run(|_| {
            self.turns.give_and_wait();
            Decision::Copy
        }));
    }

    fn act(&self, random: &mut Random) {
        match random.below(17) {
            0..4 => self.allocate(random),
            4..8 => self.free(random),
            8 => self.change_timelines(random),
            9 => self.end_a_pool(),
            10 => drop(usual(self.manager.trim())),
            11 => drop(usual(self.manager.retire())),
            12 => drop(usual(self.manager.defragment())),
            13 => self.sleep(),
            14 => self.manager.validate().expect("sound"),
            15 => self.run_a_pass(random),
            _ => {
                let hard = random.pick(&[24 * MIB, u64::MAX]);
                let limits = Limits { soft: hard / 2, hard };
                self.manager.set_budget(DEVICE, limits).expect("it is there");
            }
        }
    }

    fn end(self) {
        let Self { manager, host, live, .. } = self;
        drop(live);
        host.wait_idle().expect("alive");
        for _ in 0..3 {
            manager.trim().expect("alive");
            host.wait_idle().expect("alive");
        }
        manager.validate().expect("sound");
        let (totals, report) = (manager.totals(), manager.report());
        assert_eq!(report.quarantined_bytes, 0, "the driver got back what it still used");
        assert_eq!((totals.live, totals.deferred_bytes), (0, 0));
    }
}

fn stage(turns: &Arc<Turns>, random: &mut Random) -> Shared {
    let host = Host::builder()
        .heap(heap(HeapKind::Device, 32 * MIB))
        .heap(heap(HeapKind::Staging, 16 * MIB).physical(1))
        .open();
    let host = Arc::new(host.expect("a host device"));
    let (at_calls, calls) = (Arc::clone(turns), AtomicU64::new(0));
    let mut config = ManagerConfig::default();
    // Guards are laid and looked at by calls, so each is a chance to come between.
    let every = if random.below(2) == 0 { 1 } else { 5 };
    let device = asked(&host, move |_| {
        if calls.fetch_add(1, Relaxed) % every == 0 {
            at_calls.give();
        }
        Verdict::Forward
    });
    (config.pool.paged, config.pool.lanes) = (random.below(2) == 0, Some(2));
    if random.below(2) == 0 {
        config.observer = Some(Arc::new(Giver(Arc::clone(turns))));
    }
    if every == 1 {
        config = config.guarded();
    }
    let manager = Manager::with_config(device, config);
    let under_pressure = Arc::clone(turns);
    manager.on_pressure(move |_| {
        under_pressure.give_and_wait();
        Relief::Freed
    });
    let lines = [(); 3].map(|()| host.open().expect("another timeline"));
    let (turns, lines) = (Arc::clone(turns), Mutex::new(lines.into()));
    Shared { turns, manager, host, lines, live: Mutex::new(Vec::new()) }
}

fn run(seed: u64) -> u64 {
    let (turns, mut random) = (Arc::new(Turns::default()), Random(seed));
    let shared = stage(&turns, &mut random);
    thread::scope(|scope| {
        let (turns, shared) = (&turns, &shared);
        scope.spawn(move || {
            *turns.second.lock().expect("no panic") = Some(thread::current().id());
            turns.is_open.store(true, Relaxed);
            let mut random = Random(!seed);
            while turns.next() {
                shared.act(&mut random);
                turns.taken();
            }
        });
        for _ in 0..400 {
            shared.act(&mut random);
        }
        turns.end();
    });
    shared.end();
    turns.given.load(Relaxed)
}

#[test]
fn a_second_thread_acts_inside_every_callback() {
    let first = seed("a_second_thread_acts_inside_every_callback");
    let rounds = if cfg!(debug_assertions) { 8 } else { 80 };
    let given: u64 = (first..first + rounds).map(run).sum();
    assert!(given > 100 * rounds, "{given} turns");
}
