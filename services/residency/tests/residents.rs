//! Pools that make room for each other: who falls asleep, who comes back, and that no byte is lost.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use omniheap_core::*;
use omniheap_host::{Host, heap};
use omniheap_residency::{Arena, ArenaConfig, HostStore, Moved, Nothing, Resident, Residents};
use std::sync::{Arc, Condvar, Mutex};

const HEAP: HeapId = HeapId(0);
const MIB: u64 = 1 << 20;

type Pool = Arc<UserPool<Host>>;

struct World {
    manager: Manager<Host>,
    residents: Residents<Host>,
    arena: Arena,
}

impl World {
    /// A device of 64 MiB.
    fn new() -> Self {
        let device = heap(HeapKind::Device, 64 * MIB).page(Some(Align::of(64 << 10)));
        let manager = Manager::new(Host::builder().heap(device).open().unwrap());
        let mut config = ArenaConfig::default();
        (config.piece, config.threads) = (8 * MIB, Some(1));
        let residents = Residents::of(&manager);
        Self { manager, residents, arena: Arena::with_config(config).unwrap() }
    }

    fn pool(&self) -> Pool {
        Arc::new(self.manager.create_pool(HEAP, PoolConfig::new().sleepable()).unwrap())
    }

    /// A pool of the set, with so many bytes that are all `value`.
    fn resident(&self, priority: i32, size: u64, value: u8) -> (Pool, Allocation<Host>) {
        let how = Resident::to(HostStore::within(&self.arena)).priority(priority);
        self.resident_as(how, size, value)
    }

    fn resident_as(&self, how: Resident, size: u64, value: u8) -> (Pool, Allocation<Host>) {
        let pool = self.pool();
        self.residents.add(&pool, how).expect("it was made to sleep");
        let one = pool.allocate(&Request::new(size)).unwrap();
        one.fill(0, size, value).unwrap();
        (pool, one)
    }

    /// Makes a step and waits for it.
    fn step(&self) -> Moved {
        self.try_step().unwrap()
    }

    fn try_step(&self) -> Result<Moved, AllocateError> {
        let (begun, more) = (self.residents.step(), self.residents.settle());
        let (mut sum, more) = (begun?, more?);
        sum.slept += more.slept;
        sum.woken += more.woken;
        sum.returned += more.returned;
        Ok(sum)
    }
}

/// Copies of a store wait here while it is closed.
#[derive(Debug, Default)]
struct Gate {
    is_closed: Mutex<bool>,
    changed: Condvar,
    /// Number of copies that wait.
    waiting: AtomicU64,
}

impl Gate {
    fn set_closed(&self, is_closed: bool) {
        *self.is_closed.lock().unwrap() = is_closed;
        self.changed.notify_all();
    }

    fn pass(&self) {
        self.waiting.fetch_add(1, Relaxed);
        let closed = self.is_closed.lock().unwrap();
        drop(self.changed.wait_while(closed, |is_closed| *is_closed).unwrap());
        self.waiting.fetch_sub(1, Relaxed);
    }

    fn wait_for_copies(&self) {
        while self.waiting.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
    }
}

/// A store whose copies begin and end when the test says so.
#[derive(Debug)]
struct Slow {
    inner: Arc<dyn BackingStore>,
    gate: Arc<Gate>,
}

impl BackingStore for Slow {
    fn put(
        &self,
        id: AllocationId,
        size: u64,
        privacy: Privacy,
        copy: &mut PutPiece<'_>,
    ) -> Result<()> {
        self.gate.pass();
        self.inner.put(id, size, privacy, copy)
    }

    fn get(&self, id: AllocationId, take: &mut GetPiece<'_>) -> Result<()> {
        self.gate.pass();
        self.inner.get(id, take)
    }

    fn forget(&self, id: AllocationId) {
        self.inner.forget(id);
    }
}

/// A world, and residents whose copies wait at a gate.
fn slow_world() -> (World, Arc<Gate>, Resident) {
    let (world, gate) = (World::new(), Arc::new(Gate::default()));
    let inner = HostStore::within(&world.arena);
    let slow = Resident::to(Arc::new(Slow { inner, gate: Arc::clone(&gate) }));
    (world, gate, slow)
}

fn asleep<const N: usize>(pools: [&Pool; N]) -> [bool; N] {
    pools.map(|pool| pool.residence().asleep)
}

fn check(one: &Allocation<Host>, value: u8) {
    let mut seen = vec![0; usize::try_from(one.size()).unwrap()];
    one.read(0, &mut seen).unwrap();
    assert!(seen.iter().all(|byte| *byte == value), "{one:?} has other bytes");
}

#[test]
fn the_lowest_priority_makes_room_and_of_these_who_was_not_touched() {
    let world = World::new();
    let [(a, in_a), (b, _b), (c, _c)] = [(0, 1), (0, 2), (-1, 3)]
        .map(|(priority, value)| world.resident(priority, 20 * MIB, value));
    world.residents.touch(&a);
    let (d, _d) = world.resident(1, 10 * MIB, 4);
    assert_eq!(asleep([&a, &b, &c, &d]), [false, false, true, false], "the lowest priority");
    let (e, _e) = world.resident(1, 15 * MIB, 5);
    assert_eq!(asleep([&a, &b, &c, &e]), [false, true, true, false], "the longest untouched");
    let held = world.residents.hold(&b).unwrap();
    assert_eq!(asleep([&a, &b]), [true, false], "who has the same priority makes room too");
    drop(held);
    let _held = world.residents.hold(&a).unwrap();
    check(&in_a, 1);
    assert_eq!(asleep([&d, &e]), [false, false], "a higher priority stays");
}

#[test]
fn a_pool_that_the_program_woke_and_put_to_sleep_is_not_woken_by_the_set() {
    let world = World::new();
    let [(large, _large), (small, _small)] =
        [(30 * MIB, 1), (10 * MIB, 2)].map(|(size, value)| world.resident(0, size, value));
    world.residents.touch(&large);
    let limit = |most| world.manager.set_budget(HEAP, Limits::hard(most)).unwrap();
    limit(5 * MIB);
    assert_eq!(world.step().slept, 2);
    limit(20 * MIB);
    small.wake(&Wake::all()).unwrap();
    assert_eq!(world.step(), Moved::default(), "the large one does not fit");
    small.sleep(&Sleep::to(HostStore::within(&world.arena))).unwrap();
    limit(64 * MIB);
    assert_eq!(world.step().woken, 1);
    assert_eq!(asleep([&large, &small]), [false, true], "who sleeps by the program's wish stays");
}

#[test]
fn who_asks_stays_awake_and_so_does_a_higher_priority() {
    let world = World::new();
    let (high, _high) = world.resident(1, 40 * MIB, 1);
    let (low, _low) = world.resident(0, 10 * MIB, 2);
    let refused = low.allocate(&Request::new(20 * MIB)).unwrap_err();
    assert!(refused.kind().is_out_of_memory(), "{refused}");
    assert_eq!(asleep([&high, &low]), [false, false]);
    let more = high.allocate(&Request::new(20 * MIB)).unwrap();
    assert_eq!(asleep([&high, &low]), [false, true]);
    drop(more);
    // A request from outside comes before all.
    let outside = world.manager.allocate(&Request::new(60 * MIB)).unwrap();
    assert_eq!(asleep([&high, &low]), [true, true]);
    drop(outside);
}

#[test]
fn what_is_held_or_pinned_is_passed_over() {
    let world = World::new();
    let (held, _held) = world.resident(0, 20 * MIB, 1);
    let (pinned, in_pinned) = world.resident(0, 20 * MIB, 2);
    let (other, _other) = world.resident(0, 20 * MIB, 3);
    let guard = world.residents.hold(&held).unwrap();
    let pin = in_pinned.binding();
    let (last, _in_last) = world.resident(0, 20 * MIB, 4);
    assert_eq!(asleep([&held, &pinned, &other]), [false, false, true]);
    let refused = world.residents.hold(&other).unwrap();
    assert_eq!(asleep([&last, &other]), [true, false]);
    let error = world.residents.hold(&last).unwrap_err();
    assert!(error.kind().is_out_of_memory(), "two are held and one is pinned: {error}");
    assert!(last.residence().asleep);
    drop((guard, pin, refused));
    let stranger = world.pool();
    assert_eq!(world.residents.hold(&stranger).unwrap_err().kind(), ErrorKind::Stale);
}

#[test]
fn steps_follow_the_budget_and_a_flutter_moves_nothing() {
    let world = World::new();
    let soft = |soft: u64| {
        world.manager.set_budget(HEAP, Limits { soft, hard: 64 * MIB }).unwrap();
        world.step()
    };
    let (a, in_a) = world.resident(0, 20 * MIB, 1);
    let (b, in_b) = world.resident(0, 20 * MIB, 2);
    assert_eq!(soft(64 * MIB), Moved::default());
    let moved = soft(32 * MIB);
    assert_eq!((moved.slept, moved.woken, moved.returned), (1, 0, 20 * MIB));
    assert_eq!(asleep([&a, &b]), [true, false]);
    // 40 MiB and a sixteenth are needed.
    for limit in [40 * MIB, 40 * MIB + 409_600, 40 * MIB, 42 * MIB] {
        assert_eq!(soft(limit), Moved::default(), "{limit}");
    }
    assert_eq!(soft(44 * MIB).woken, 1);
    for limit in [44 * MIB, 43 * MIB, 44 * MIB + 409_600, 40 * MIB] {
        assert_eq!(soft(limit), Moved::default(), "{limit}");
    }
    check(&in_a, 1);
    // Both leave, and the one that was touched last comes back first, though the other one would fit.
    assert_eq!(soft(MIB).slept, 2);
    world.residents.touch(&a);
    assert_eq!(soft(24 * MIB).woken, 1);
    assert_eq!(asleep([&a, &b]), [false, true]);
    assert_eq!(soft(64 * MIB).woken, 1);
    check(&in_b, 2);
    // A pool that its owner put to sleep stays asleep.
    b.sleep(&Sleep::to(HostStore::within(&world.arena))).unwrap();
    assert_eq!(soft(64 * MIB), Moved::default());
    assert!(b.residence().asleep);
}

/// Waits until a pool is awake or asleep; the test fails by its own limit where that never comes.
fn wait_until(pool: &Pool, is_asleep: bool) {
    for _ in 0..100_000 {
        if pool.residence().asleep == is_asleep {
            return;
        }
        std::thread::sleep(core::time::Duration::from_micros(100));
    }
    panic!("{pool:?} is {}", if is_asleep { "awake" } else { "asleep" });
}

#[test]
fn what_is_expected_is_awake_before_it_is_held() {
    let world = World::new();
    let [(a, in_a), (b, in_b), (c, _c)] = [1, 2, 3].map(|value| world.resident(0, 30 * MIB, value));
    assert_eq!(asleep([&a, &b, &c]), [true, false, false]);
    let held = world.residents.hold(&c).unwrap();
    world.residents.expect([&a]);
    wait_until(&a, false);
    assert_eq!(asleep([&b, &c]), [true, false], "who was not used for the longest time made room");
    check(&in_a, 1);
    // Nobody may make room for b: c is held, and a is needed soon.
    let outside = world.pool();
    world.residents.expect([&b, &outside]);
    for _ in 0..50 {
        std::thread::sleep(core::time::Duration::from_millis(1));
        assert_eq!(asleep([&a, &b]), [false, true], "what is expected stays");
    }
    // Bytes needed now come before bytes needed soon.
    let now = world.residents.hold(&b).unwrap();
    check(&in_b, 2);
    assert_eq!(asleep([&a, &b, &c]), [true, false, false]);
    drop((held, now));
    // The pool is expected no more: the next one pushes nobody out that is used.
    world.residents.expect([&a]);
    wait_until(&a, false);
    check(&in_a, 1);
}

#[test]
fn nobody_waits_for_what_comes_and_goes() {
    let (world, gate, slow) = slow_world();
    let (coming, in_coming) = world.resident_as(slow.clone(), 30 * MIB, 1);
    let (going, in_going) = world.resident_as(slow, 30 * MIB, 2);
    let (view, in_view) = world.resident(1, 20 * MIB, 3);
    assert_eq!(asleep([&coming, &going, &view]), [true, false, false]);
    let held = world.residents.hold_if_awake(&view).unwrap().expect("it is awake");
    gate.set_closed(true);
    assert!(world.residents.hold_if_awake(&coming).unwrap().is_none(), "it is on its way");
    gate.wait_for_copies(); // `going` makes room.
    for value in [4, 5, 6] {
        world.residents.step().unwrap();
        for (pool, one) in [(&coming, &in_coming), (&going, &in_going)] {
            assert!(pool.residence().asleep);
            assert_eq!(one.read(0, &mut [0]).unwrap_err().kind(), ErrorKind::Asleep);
        }
        assert!(world.residents.hold_if_awake(&coming).unwrap().is_none());
        in_view.fill(0, 20 * MIB, value).unwrap();
        check(&in_view, value);
    }
    gate.set_closed(false);
    world.residents.settle().unwrap();
    let brought = world.residents.hold_if_awake(&coming).unwrap().expect("it has come");
    check(&in_coming, 1);
    assert_eq!(asleep([&going]), [true]);
    // Now one comes and nobody goes; the set's owner frees what is on its way.
    gate.set_closed(true);
    drop((held, brought, in_view, view));
    world.manager.trim().unwrap();
    assert!(world.residents.hold_if_awake(&going).unwrap().is_none());
    gate.wait_for_copies();
    drop(in_going);
    assert!(world.residents.hold_if_awake(&going).unwrap().is_none());
    gate.set_closed(false);
    world.residents.settle().unwrap();
    assert!(!going.residence().asleep);
    world.manager.validate().unwrap();
}

#[test]
fn a_pool_is_dropped_on_its_way() {
    let (world, gate, slow) = slow_world();
    let [(first, one), (second, other)] =
        [1, 2].map(|value| world.resident_as(slow.clone(), 40 * MIB, value));
    assert_eq!(asleep([&first, &second]), [true, false]);
    drop((other, second));
    gate.set_closed(true);
    world.residents.expect([&first]);
    gate.wait_for_copies();
    let gone = Arc::downgrade(&first);
    drop((one, first));
    gate.set_closed(false);
    world.residents.settle().unwrap();
    assert!(gone.upgrade().is_none(), "the set's thread has it no more");
    world.manager.trim().unwrap();
    assert_eq!(world.manager.heap_use(HEAP).unwrap().reserved, 0);
    assert_eq!(world.arena.report().used, 0);
    world.manager.validate().unwrap();
}

#[test]
fn a_step_returns_before_its_copies() {
    let (world, gate, slow) = slow_world();
    let (pool, one) = world.resident_as(slow, 30 * MIB, 1);
    for (limit, was) in [(MIB, "awake"), (64 * MIB, "asleep")] {
        gate.set_closed(true);
        world.manager.set_budget(HEAP, Limits { soft: limit, hard: 64 * MIB }).unwrap();
        assert_eq!(world.residents.step().unwrap(), Moved::default(), "it was {was}");
        gate.wait_for_copies();
        assert_eq!(world.residents.step().unwrap(), Moved::default(), "it is under way");
        assert!(pool.residence().asleep);
        gate.set_closed(false);
        let moved = world.residents.settle().unwrap();
        assert_eq!(moved.slept + moved.woken, 1);
    }
    check(&one, 1);
}

#[test]
fn a_view_that_does_not_fit_stays_and_a_new_one_takes_its_place() {
    let world = World::new();
    let all: Vec<_> = (0..8).map(|value| world.resident(0, 15 * MIB, value)).collect();
    let frame = |view: core::ops::Range<usize>| {
        let before = world.residents.step().unwrap();
        let view = view.map(|at| (&all[at].0, world.residents.hold_if_awake(&all[at].0).unwrap()));
        let (here, away): (Vec<_>, Vec<_>) = view.partition(|(_, held)| held.is_some());
        let shown = here.len();
        drop(here);
        // Now nobody holds what was shown.
        world.residents.expect(away.iter().map(|(pool, _)| *pool));
        let after = world.residents.settle().unwrap();
        (before.slept + before.woken + after.slept + after.woken, shown)
    };
    let settled = |view: core::ops::Range<usize>| {
        for _ in 0..4 {
            frame(view.clone());
        }
        [(); 8].map(|()| frame(view.clone()))
    };
    // Six in view, and room for four: those that came stay, and the others wait.
    assert_eq!(settled(0..6), [(0, 4); 8]);
    // Nobody looks at what was expected and did not come: it stands in nobody's way.
    assert_eq!(settled(5..8), [(0, 3); 8]);
    assert_eq!(settled(0..3), [(0, 3); 8]);
    for (at, (_, one)) in all.iter().enumerate().take(3) {
        check(one, u8::try_from(at).unwrap());
    }
    let stranger = world.pool();
    assert_eq!(world.residents.hold_if_awake(&stranger).unwrap_err().kind(), ErrorKind::Stale);
}

/// A store that panics while it is told to.
#[derive(Debug)]
struct Broken {
    inner: Arc<dyn BackingStore>,
    panics: AtomicBool,
    /// True if the host has no memory to read with.
    is_short: AtomicBool,
}

impl BackingStore for Broken {
    fn put(
        &self,
        id: AllocationId,
        size: u64,
        privacy: Privacy,
        copy: &mut PutPiece<'_>,
    ) -> Result<()> {
        assert!(!self.panics.load(Relaxed), "put");
        self.inner.put(id, size, privacy, copy)
    }

    fn get(&self, id: AllocationId, take: &mut GetPiece<'_>) -> Result<()> {
        assert!(!self.panics.load(Relaxed), "get");
        if self.is_short.load(Relaxed) {
            return Err(ErrorKind::OutOfHostMemory.into());
        }
        self.inner.get(id, take)
    }

    fn forget(&self, id: AllocationId) {
        self.inner.forget(id);
    }
}

/// A world, a store that works, and residents that sleep there.
fn broken_world() -> (World, Arc<Broken>, Resident) {
    let (world, [panics, is_short]) = (World::new(), [(); 2].map(|()| AtomicBool::new(false)));
    let inner = HostStore::within(&world.arena);
    let store = Arc::new(Broken { inner, panics, is_short });
    let how = Resident::to(Arc::<Broken>::clone(&store));
    (world, store, how)
}

#[test]
fn nobody_leaves_the_device_where_a_wake_lacks_memory_of_the_host() {
    let (world, store, how) = broken_world();
    let (pool, one) = world.resident_as(how, 30 * MIB, 1);
    let (other, _other) = world.resident(-1, 20 * MIB, 2);
    pool.sleep(&Sleep::to(Arc::<Broken>::clone(&store))).unwrap();
    store.is_short.store(true, Relaxed);
    let refused = world.residents.hold(&pool).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::OutOfHostMemory);
    assert_eq!(asleep([&pool, &other]), [true, false], "there is room on the device");
    store.is_short.store(false, Relaxed);
    drop(world.residents.hold(&pool).unwrap());
    check(&one, 1);
}

#[test]
fn a_pool_that_cannot_wake_stops_no_other() {
    let (world, store, how) = broken_world();
    let (first, one) = world.resident_as(how, 10 * MIB, 1);
    let (second, two) = world.resident(-1, 10 * MIB, 2);
    let limit = |soft| world.manager.set_budget(HEAP, Limits { soft, hard: 64 * MIB }).unwrap();
    limit(0);
    world.residents.step().unwrap();
    world.residents.settle().unwrap();
    assert_eq!(asleep([&first, &second]), [true, true]);
    limit(64 * MIB);
    store.is_short.store(true, Relaxed);
    assert_eq!(world.try_step().unwrap_err().kind(), ErrorKind::OutOfHostMemory);
    assert_eq!(asleep([&first, &second]), [true, false], "the other has its memory again");
    store.is_short.store(false, Relaxed);
    assert_eq!(world.try_step().unwrap().woken, 2);
    check(&one, 1);
    check(&two, 2);
}

#[test]
fn a_store_that_panics_stops_nobody_else() {
    let (world, store, how) = broken_world();
    let (pool, one) = world.resident_as(how, 30 * MIB, 1);
    let limit = |soft| world.manager.set_budget(HEAP, Limits { soft, hard: 64 * MIB }).unwrap();
    let settled = |panics| {
        store.panics.store(panics, Relaxed);
        world.try_step()
    };
    limit(MIB);
    assert_eq!(settled(true).unwrap_err().kind(), ErrorKind::Driver);
    drop(world.residents.hold(&pool).unwrap());
    check(&one, 1);
    assert_eq!(settled(false).unwrap().slept, 1);
    limit(64 * MIB);
    assert_eq!(settled(true).unwrap_err().kind(), ErrorKind::Driver);
    world.residents.expect([&pool]);
    world.residents.settle().unwrap();
    assert!(pool.residence().asleep);
    assert_eq!(settled(false).unwrap().woken, 1);
    check(&one, 1);
    world.manager.validate().unwrap();
}

/// In a process that gets no thread, who asks does the work.
#[cfg(target_os = "linux")]
#[test]
fn a_set_works_without_a_thread() {
    const STACK: (&str, &str) = ("RUST_MIN_STACK", "1000000000000000000");
    if std::env::var(STACK.0).as_deref() != Ok(STACK.1) {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "a_set_works_without_a_thread", "--test-threads=1"]);
        let ran = command.env(STACK.0, STACK.1).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
        return;
    }
    assert!(std::thread::Builder::new().spawn(|| ()).is_err());
    let world = World::new();
    let pool = world.pool();
    world.residents.add(&pool, Resident::to(Nothing::new())).unwrap();
    let _one = pool.allocate(&Request::new(40 * MIB)).unwrap();
    world.manager.set_budget(HEAP, Limits { soft: MIB, hard: 64 * MIB }).unwrap();
    assert_eq!(world.residents.step().unwrap().slept, 1);
    // The device wants a thread to wake it.
    world.residents.expect([&pool]);
    assert_eq!(world.residents.settle().unwrap(), Moved::default());
    assert_eq!(asleep([&pool]), [true]);
}

#[test]
fn a_set_is_dropped_while_pools_are_expected() {
    for _ in 0..20 {
        let world = World::new();
        world.manager.set_budget(HEAP, Limits::hard(2 * MIB)).unwrap();
        let pools = [1, 2, 3].map(|value| world.resident(0, MIB, value));
        world.residents.expect(pools.iter().map(|(pool, _)| pool));
        let World { residents, .. } = world;
        drop(residents);
        for ((pool, one), value) in pools.iter().zip(1..) {
            if !pool.residence().asleep {
                check(one, value);
            }
        }
    }
}

#[test]
fn pools_and_sets_that_are_gone_are_not_asked() {
    let world = World::new();
    let (pool, one) = world.resident(0, 40 * MIB, 1);
    drop((one, pool));
    world.manager.trim().unwrap();
    let (kept, _kept) = world.resident(0, 40 * MIB, 1);
    let World { manager, residents, .. } = world;
    drop(residents);
    let refused = manager.allocate(&Request::new(40 * MIB)).unwrap_err();
    assert!(refused.kind().is_out_of_memory());
    assert!(!kept.residence().asleep);
}

/// Looks that an allocation has its value everywhere, and gives it another one.
fn rewrite(one: &Allocation<Host>, value: &AtomicU8, new: u64) {
    check(one, value.load(Relaxed));
    let new = u8::try_from(new).unwrap();
    one.fill(0, one.size(), new).unwrap();
    value.store(new, Relaxed);
}

/// Twice as many bytes as there are: eight threads hold pools, check and change them, and expect others.
#[test]
fn threads_that_need_more_than_there_is_lose_no_byte() {
    let world = World::new();
    world.manager.set_budget(HEAP, Limits::hard(2 * MIB)).unwrap();
    let all: Vec<_> = (0..16u8).map(|value| world.resident(0, MIB / 4, value)).collect();
    let values: Vec<_> = (0..16).map(AtomicU8::new).collect();
    let users: Vec<_> = (0..16).map(|_| Mutex::new(())).collect();
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (world, all, values, users) = (&world, &all, &values, &users);
            scope.spawn(move || {
                let (mut seed, mut round, mut held) = (thread + 1, 0, 0);
                // The scheduler decides when memory is short; in the end every thread gets its share.
                while round < 200 || held < 51 {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let at = usize::try_from(seed >> 60).unwrap();
                    let (pool, one) = &all[at];
                    match world.residents.hold(pool) {
                        Ok(guard) => {
                            let _alone = users[at].lock().unwrap();
                            rewrite(one, &values[at], (thread * 200 + round) % 251);
                            held += 1;
                            drop(guard);
                        }
                        Err(error) => assert!(error.kind().is_out_of_memory(), "{error}"),
                    }
                    world.residents.expect((round % 2 == 0).then_some(&all[(at + 1) % 16].0));
                    if round % 8 == 0 {
                        world.residents.step().unwrap();
                    }
                    round += 1;
                }
            });
        }
    });
    for (at, (pool, one)) in all.iter().enumerate() {
        let _held = world.residents.hold(pool).unwrap();
        check(one, values[at].load(Relaxed));
    }
    world.manager.validate().unwrap();
}
