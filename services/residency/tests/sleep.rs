//! Pools that sleep and wake on the host device, whose pages are real: bytes, addresses, refusals.
#![expect(unsafe_code, reason = "stands in for a device that pins; forks and limits files")]
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]
use core::fmt;
use omniheap_core::*;
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Record};
use omniheap_residency::{Arena, ArenaConfig, FileStore, HostStore, Nothing};
use std::sync::{Arc, Mutex};

const HEAP: HeapId = HeapId(0);
const MIB: u64 = 1 << 20;
const PAGE: u64 = 64 << 10;

fn manager() -> Manager<Host> {
    let device = heap(HeapKind::Device, 128 * MIB).page(Some(Align::of(PAGE)));
    let visible = heap(HeapKind::Unified, 64 * MIB).page(Some(Align::of(PAGE)));
    Manager::new(Host::builder().heap(device).heap(visible).open().unwrap())
}

fn sleepable(manager: &Manager<Host>) -> UserPool<Host> {
    manager.create_pool(HEAP, PoolConfig::new().sleepable()).unwrap()
}

fn arena() -> Arena {
    let mut config = ArenaConfig::default();
    (config.piece, config.threads) = (2 * MIB, Some(1));
    Arena::with_config(config).unwrap()
}

/// Bytes that differ from allocation to allocation.
fn pattern(seed: u8, size: u64) -> Vec<u8> {
    let line: Vec<u8> = (0..251u8).map(|at| at.wrapping_mul(31).wrapping_add(seed)).collect();
    let size = usize::try_from(size).unwrap();
    let mut bytes = line.repeat(size.div_ceil(line.len()));
    bytes.truncate(size);
    bytes
}

fn read(allocation: &Allocation<Host>) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(allocation.size()).unwrap()];
    allocation.read(0, &mut bytes).unwrap();
    bytes
}

fn address(allocation: &Allocation<Host>) -> u64 {
    allocation.binding().address().unwrap()
}

/// Allocations with their patterns, and holes between them.
fn populate(pool: &UserPool<Host>) -> Vec<(Allocation<Host>, Vec<u8>)> {
    let sizes = [5000, 70_000, 256, 1_000_192, 300_032, 64, 2 * MIB, 4096];
    let all: Vec<_> = (0u8..40).zip(sizes.into_iter().cycle()).collect();
    let all = all.into_iter().map(|(seed, size)| {
        let allocation = pool.allocate(&Request::new(size).name("layer")).unwrap();
        let bytes = pattern(seed, size);
        allocation.write(0, &bytes).unwrap();
        (seed, allocation, bytes)
    });
    let all: Vec<_> = all.collect();
    all.into_iter().filter(|(seed, ..)| seed % 5 != 2).map(|(_, one, bytes)| (one, bytes)).collect()
}

fn check(all: &[(Allocation<Host>, Vec<u8>)]) {
    for (allocation, bytes) in all {
        assert!(read(allocation) == *bytes, "{allocation:?}");
    }
}

fn kind<T, E: Into<Error>>(result: core::result::Result<T, E>) -> ErrorKind {
    result.map(drop).map_err(Into::into).unwrap_err().kind()
}

fn stores() -> Vec<Arc<dyn BackingStore>> {
    vec![HostStore::within(&arena()), FileStore::open(std::env::temp_dir()).unwrap()]
}

#[test]
fn bytes_come_back_at_the_same_addresses_and_the_driver_has_the_memory_meanwhile() {
    for store in stores() {
        let manager = manager();
        let pool = sleepable(&manager);
        let all = populate(&pool);
        let live: u64 = all.iter().map(|(one, _)| one.size()).sum();
        for _ in 0..3 {
            let places: Vec<_> = all.iter().map(|(one, _)| address(one)).collect();
            let slept = pool.sleep(&Sleep::to(Arc::clone(&store))).unwrap();
            assert_eq!((slept.live, slept.kept, pool.reserved()), (live, 0, 0));
            assert!(slept.copied >= live && slept.copied < live + 40 * 4096, "{slept:?}");
            assert!(slept.returned >= slept.copied);
            assert_eq!(manager.heap_use(HEAP).unwrap().reserved, 0, "nothing is held");
            let residence = pool.residence();
            assert_eq!((residence.asleep, residence.device, residence.evicted), (true, 0, live));
            assert_eq!(residence.stored, slept.copied);
            manager.validate().unwrap();
            pool.wake(&Wake::all()).unwrap();
            manager.validate().unwrap();
            assert!(!pool.residence().asleep && pool.residence().evicted == 0);
            assert_eq!(all.iter().map(|(one, _)| address(one)).collect::<Vec<_>>(), places);
            check(&all);
            pool.allocate(&Request::new(100_000)).unwrap().write(0, &[1; 100_000]).unwrap();
        }
    }
}

#[test]
fn the_second_call_says_so_and_changes_nothing() {
    let manager = manager();
    let pool = sleepable(&manager);
    assert_eq!(kind(pool.wake(&Wake::all())), ErrorKind::AlreadyAwake);
    let all = populate(&pool);
    let sleep = Sleep::to(HostStore::within(&arena()));
    pool.sleep(&sleep).unwrap();
    assert_eq!(kind(pool.sleep(&sleep)), ErrorKind::AlreadyAsleep);
    assert_eq!(kind(pool.sleep(&Sleep::to(Nothing::new()))), ErrorKind::AlreadyAsleep);
    pool.wake(&Wake::all()).unwrap();
    assert_eq!(kind(pool.wake(&Wake::all())), ErrorKind::AlreadyAwake);
    check(&all);
    let other = manager.create_pool(HEAP, PoolConfig::new().paged()).unwrap();
    assert_eq!(kind(other.sleep(&sleep)), ErrorKind::Unsupported);
}

#[test]
fn access_while_asleep_is_an_error_and_requests_are_refused() {
    let manager = manager();
    let pool = manager.create_pool(HeapId(1), PoolConfig::new().sleepable()).unwrap();
    let one = pool.allocate(&Request::new(8192)).unwrap();
    let elsewhere = manager.allocate(&Request::new(8192)).unwrap();
    one.write(0, &[3; 8192]).unwrap();
    pool.sleep(&Sleep::to(HostStore::within(&arena()))).unwrap();
    let asleep = ErrorKind::Asleep;
    assert_eq!(kind(one.write(0, &[1; 16])), asleep);
    assert_eq!(kind(one.read(0, &mut [1; 16])), asleep);
    assert_eq!(kind(one.fill(0, 16, 1)), asleep);
    assert_eq!(kind(one.map().map(drop)), asleep);
    let region = CopyRegion { from: &one, from_offset: 0, to: &elsewhere, to_offset: 0, size: 64 };
    assert_eq!(kind(manager.copy(TimelineId::MAIN, &[region])), asleep);
    let region = CopyRegion { from: &elsewhere, from_offset: 0, to: &one, to_offset: 0, size: 64 };
    assert_eq!(kind(manager.copy(TimelineId::MAIN, &[region])), asleep);
    assert_eq!(kind(pool.allocate(&Request::new(64))), asleep);
    assert_eq!(kind(pool.allocate(&Request::new(64).dedicated())), asleep);
    assert_eq!(kind(pool.allocate(&Request::new(64).on(TimelineId::MAIN))), asleep);
    let given = manager.resize(one, 16384).unwrap_err();
    assert_eq!(given.error.kind(), asleep);
    let one = given.given.into_mapping().unwrap_err();
    assert_eq!(one.error.kind(), asleep);
    let one = one.given;
    // A binding says where it is; what is made with it is refused until the pool is awake.
    let binding = one.binding();
    assert_eq!(kind(binding.place(0, 16).map(drop)), asleep);
    pool.wake(&Wake::all()).unwrap();
    assert!(binding.place(0, 16).is_ok());
    drop(binding);
    assert!(read(&one) == [3; 8192]);
    assert_eq!(pool.allocate(&Request::new(64)).unwrap().size(), 64);
}

#[test]
fn a_request_wakes_a_pool_that_wants_it() {
    let manager = manager();
    let config = PoolConfig::new().sleepable().wakes_on_request();
    let pool = manager.create_pool(HEAP, config).unwrap();
    let all = populate(&pool);
    pool.sleep(&Sleep::to(HostStore::within(&arena()))).unwrap();
    let another = pool.allocate(&Request::new(5000)).unwrap();
    another.fill(0, 5000, 1).unwrap();
    assert!(!pool.residence().asleep);
    check(&all);
    let config = PoolConfig::new().paged().wakes_on_request();
    assert_eq!(kind(manager.create_pool(HEAP, config)), ErrorKind::InvalidConfig);
}

#[test]
fn a_request_for_a_pool_that_cannot_wake_says_why() {
    let manager = manager();
    let config = PoolConfig::new().sleepable().wakes_on_request();
    let pool = manager.create_pool(HEAP, config).unwrap();
    let all = populate(&pool);
    pool.sleep(&Sleep::to(HostStore::within(&arena()))).unwrap();
    manager.set_budget(HEAP, Limits::hard(0)).unwrap();
    let refused = kind(pool.allocate(&Request::new(5000)));
    assert!(refused.is_out_of_memory(), "{refused:?}");
    assert!(pool.residence().asleep);
    manager.set_budget(HEAP, Limits::NONE).unwrap();
    drop(pool.allocate(&Request::new(5000)).unwrap());
    check(&all);
}

#[test]
fn a_free_while_asleep_drops_the_stored_bytes_and_its_pages_stay_away() {
    let manager = manager();
    let arena = arena();
    let pool = sleepable(&manager);
    let mut all = populate(&pool);
    all.iter().take(5).for_each(|(one, _)| one.set_name("named"));
    let before = pool.reserved();
    pool.sleep(&Sleep::to(HostStore::within(&arena))).unwrap();
    let full = arena.report().used;
    let mut number = 0;
    all.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    assert!(arena.report().used < full, "half of the bytes are dropped");
    manager.validate().unwrap();
    pool.wake(&Wake::all()).unwrap();
    manager.validate().unwrap();
    assert_eq!(arena.report().used, 0, "nothing stays in the store");
    check(&all);
    assert!(pool.reserved() < before, "{} < {before}", pool.reserved());
    let more: Vec<_> = populate(&pool);
    check(&more);
    check(&all);
    drop((more, all));
    pool.trim().unwrap();
    assert_eq!(pool.reserved(), 0);
}

#[test]
fn everything_may_be_freed_or_dropped_asleep() {
    let arena = arena();
    let manager = manager();
    let pool = sleepable(&manager);
    let all = populate(&pool);
    pool.sleep(&Sleep::to(HostStore::within(&arena))).unwrap();
    assert_eq!(kind(manager.destroy_pool(pool).map_err(|back| back.error)), ErrorKind::Busy);
    drop(all);
    manager.trim().unwrap();
    assert_eq!(arena.report().used, 0);
    let pool = sleepable(&manager);
    let all = populate(&pool);
    pool.sleep(&Sleep::to(HostStore::within(&arena))).unwrap();
    drop((pool, manager));
    drop(all);
    assert_eq!(arena.report().used, 0);
}

#[test]
fn an_empty_pool_sleeps_too() {
    let manager = manager();
    let pool = sleepable(&manager);
    let sleep = Sleep::to(HostStore::within(&arena()));
    assert_eq!(pool.sleep(&sleep).unwrap(), Slept::default());
    assert_eq!(kind(pool.allocate(&Request::new(64))), ErrorKind::Asleep);
    pool.wake(&Wake::all()).unwrap();
    drop(pool.allocate(&Request::new(64)).unwrap());
    let slept = pool.sleep(&sleep).unwrap();
    assert_eq!((slept.live, slept.copied, slept.returned), (0, 0, PAGE));
    pool.wake(&Wake::all()).unwrap();
    assert_eq!(pool.reserved(), 0, "holes get no memory");
    drop(pool.allocate(&Request::new(64)).unwrap());
}

#[test]
fn what_keeps_a_pool_awake_is_named() {
    let manager = manager();
    let pool = sleepable(&manager);
    let all = populate(&pool);
    let sleep = Sleep::to(HostStore::within(&arena()));
    let pinned = pool.allocate(&Request::new(100).name("graph")).unwrap();
    pinned.pin_for_life();
    let dedicated = pool.allocate(&Request::new(100).dedicated().name("own")).unwrap();
    let refused = |name: &str, one: &Allocation<Host>, why: AwakeReason| {
        let error = pool.sleep(&sleep).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        let named: Vec<_> = error.refused().iter().map(|one| (one.id, one.why)).collect();
        assert_eq!(named, [(one.id(), why)]);
        assert!(format!("{error}").contains(&format!("\"{name}\"")), "{error}");
        check(&all);
        assert!(!pool.residence().asleep);
    };
    refused("own", &dedicated, AwakeReason::Dedicated);
    drop(dedicated);
    refused("graph", &pinned, AwakeReason::Pinned);
    drop(pinned);
    let binding = all[3].0.binding();
    assert_eq!(pool.sleep(&sleep).unwrap_err().refused()[0].id, all[3].0.id());
    drop(binding);
    pool.sleep(&sleep).unwrap();
    pool.wake(&Wake::all()).unwrap();
    check(&all);
}

#[test]
#[expect(unsafe_code, reason = "promises that nothing uses the addresses meanwhile")]
fn pinned_allocations_sleep_where_the_caller_answers_for_them() {
    let manager = manager();
    let pool = sleepable(&manager);
    let all = populate(&pool);
    let places: Vec<_> = all.iter().map(|(one, _)| one.pin_for_life().unwrap()).collect();
    // SAFETY: nothing here uses an address before the pool is awake.
    let sleep = unsafe { Sleep::to(HostStore::within(&arena())).over_pins() };
    pool.sleep(&sleep).unwrap();
    pool.wake(&Wake::all()).unwrap();
    check(&all);
    assert_eq!(all.iter().map(|(one, _)| address(one)).collect::<Vec<_>>(), places);
}

#[test]
fn secrets_sleep_in_memory_only_and_leave_nothing_there() {
    let (manager, arena) = (manager(), arena());
    let pool = sleepable(&manager);
    let secret = pool.allocate(&Request::new(10_000).secret().name("key")).unwrap();
    secret.write(0, &[0xa5; 10_000]).unwrap();
    let file = FileStore::open(std::env::temp_dir()).unwrap();
    let error = pool.sleep(&Sleep::to(file)).unwrap_err();
    assert_eq!(error.refused()[0].why, AwakeReason::Secret);
    let sleep = Sleep::to(HostStore::within(&arena));
    pool.sleep(&sleep).unwrap();
    pool.wake(&Wake::all()).unwrap();
    assert!(read(&secret) == [0xa5; 10_000]);
    pool.sleep(&sleep).unwrap();
    drop(secret);
    let found = arena.take(2 * MIB).unwrap();
    assert!(found.bytes().iter().all(|byte| *byte != 0xa5), "a secret stayed in host memory");
    pool.wake(&Wake::all()).unwrap();
}

#[test]
fn secrets_are_zeroed_before_their_memory_goes_back() {
    let device = heap(HeapKind::Device, 128 * MIB).page(Some(Align::of(PAGE)));
    let manager = Manager::new(Record::new(Host::builder().heap(device).open().unwrap()));
    let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable()).unwrap();
    let secret = pool.allocate(&Request::new(10_000).secret()).unwrap();
    secret.write(0, &[0xa5; 10_000]).unwrap();
    manager.backend().start_log();
    pool.sleep(&Sleep::to(HostStore::within(&arena()))).unwrap();
    let log = manager.backend().take_log();
    let first = |kind: CallKind| log.iter().position(|entry| entry.call.kind == kind);
    let (filled, unmapped) = (first(CallKind::Fill), first(CallKind::UnmapPages).unwrap());
    assert!(filled.is_some_and(|filled| filled < unmapped), "{log:?}");
    pool.wake(&Wake::all()).unwrap();
    let mut bytes = [0; 10_000];
    secret.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0xa5; 10_000]);
}

/// Keeps bytes as another store does, and frees something when bytes have come: here, or back.
#[derive(Debug)]
struct Freeing {
    store: Arc<dyn BackingStore>,
    here: Mutex<Option<(Allocation<Host>, Point)>>,
    back: Mutex<Option<Allocation<Host>>>,
}

impl Freeing {
    fn new() -> Arc<Self> {
        let (here, back) = (Mutex::default(), Mutex::default());
        Arc::new(Self { store: HostStore::within(&arena()), here, back })
    }
}

impl BackingStore for Freeing {
    fn put(&self, id: AllocationId, size: u64, _: Privacy, copy: &mut PutPiece<'_>) -> Result<()> {
        let put = self.store.put(id, size, Privacy::Open, copy);
        if let Some((freed, point)) = self.here.lock().unwrap().take() {
            freed.free_after(point);
        }
        put
    }
    fn get(&self, id: AllocationId, take: &mut GetPiece<'_>) -> Result<()> {
        let got = self.store.get(id, take);
        drop(self.back.lock().unwrap().take());
        got
    }
    fn forget(&self, id: AllocationId) {
        self.store.forget(id);
    }
}

#[test]
fn a_secret_that_is_freed_while_it_comes_back_leaves_nothing() {
    let manager = manager();
    let pool = sleepable(&manager);
    let secret = pool.allocate(&Request::new(MIB).secret()).unwrap();
    secret.fill(0, MIB, 0xa5).unwrap();
    let place = address(&secret);
    let store = Freeing::new();
    pool.sleep(&Sleep::to(Arc::clone(&store) as Arc<dyn BackingStore>)).unwrap();
    *store.back.lock().unwrap() = Some(secret);
    pool.wake(&Wake::all()).unwrap();
    let next = pool.allocate(&Request::new(MIB)).unwrap();
    assert_eq!(address(&next), place);
    assert!(read(&next).iter().all(|byte| *byte != 0xa5), "a secret stayed in device memory");
}

#[test]
fn memory_of_what_is_freed_during_a_sleep_stays_while_work_uses_it() {
    let (manager, store) = (manager(), Freeing::new());
    let pool = sleepable(&manager);
    let all = populate(&pool);
    let freed = pool.allocate(&Request::new(MIB)).unwrap();
    let main = manager.backend().as_timelines().unwrap().mark(TimelineId::MAIN).unwrap();
    let later = Point { timeline: TimelineId::MAIN, epoch: Epoch(main.0 + 1000) };
    *store.here.lock().unwrap() = Some((freed, later));
    let held = pool.reserved();
    let slept = pool.sleep(&Sleep::to(store)).unwrap();
    assert_eq!((slept.returned, slept.kept, pool.reserved()), (0, held, held));
    assert!(pool.residence().asleep);
    pool.wake(&Wake::all()).unwrap();
    check(&all);
}

#[test]
fn what_is_freed_while_a_sleep_begins_waits_for_its_timelines() {
    let manager = manager();
    let pool = sleepable(&manager);
    let other = manager.backend().as_timelines().unwrap().open().unwrap();
    let [used, pinned] = [MIB, 4096].map(|size| pool.allocate(&Request::new(size)).unwrap());
    let (place, binding) = (address(&used), pinned.binding());
    let hold = manager.backend().hold(other).unwrap();
    used.use_on(other).unwrap();
    let sleep = Sleep::to(HostStore::within(&arena()));
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| pool.sleep(&sleep).unwrap_err());
        while used.fill(0, 4, 1).is_ok() {}
        drop(used);
        assert_eq!(sleeper.join().unwrap().refused()[0].why, AwakeReason::Pinned);
    });
    let next = pool.allocate(&Request::new(MIB)).unwrap();
    assert_ne!(address(&next), place, "another timeline still uses these bytes");
    drop((hold, binding));
    pool.sleep(&sleep).unwrap();
}

#[test]
fn a_store_that_keeps_nothing_wakes_zeroed() {
    let manager = manager();
    let pool = sleepable(&manager);
    let all = populate(&pool);
    let slept = pool.sleep(&Sleep::to(Nothing::new())).unwrap();
    assert_eq!((slept.copied, pool.reserved()), (0, 0));
    pool.wake(&Wake::all()).unwrap();
    assert!(all.iter().all(|(one, _)| read(one).iter().all(|byte| *byte == 0)));
}

#[test]
fn only_the_timelines_that_use_the_pool_are_waited_for() {
    let manager = manager();
    let pool = sleepable(&manager);
    let timelines = manager.backend().as_timelines().unwrap();
    let (own, other) = (timelines.open().unwrap(), timelines.open().unwrap());
    let one = pool.allocate(&Request::new(8192).on(own)).unwrap();
    one.write(0, &[4; 8192]).unwrap();
    // Work of another timeline does not end before the sleep does.
    let hold = manager.backend().hold(other).unwrap();
    let sleep = Sleep::to(HostStore::within(&arena()));
    pool.sleep(&sleep).unwrap();
    drop(hold);
    pool.wake(&Wake::all()).unwrap();
    assert!(read(&one) == [4; 8192]);
    // Work that the pool's own timeline has to do is waited for.
    let hold = manager.backend().hold(own).unwrap();
    one.fill(0, 8192, 9).unwrap();
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| pool.sleep(&sleep).unwrap());
        std::thread::sleep(core::time::Duration::from_millis(20));
        drop(hold);
        sleeper.join().unwrap();
    });
    pool.wake(&Wake::all()).unwrap();
    assert!(read(&one) == [9; 8192]);
    // Points that were named are waited for, and a timeline that was closed meanwhile has passed.
    let point = Point { timeline: other, epoch: timelines.mark(other).unwrap() };
    timelines.close(own).unwrap();
    pool.sleep(&sleep.clone().after([point])).unwrap();
    pool.wake(&Wake::all()).unwrap();
    assert!(read(&one) == [9; 8192]);
    // One that nobody will reach is told, and the pool stays awake.
    let never = Point { epoch: Epoch(point.epoch.0 + 1000), ..point };
    assert!(pool.sleep(&sleep.after([never])).is_err());
    assert!(!pool.residence().asleep);
    assert!(read(&one) == [9; 8192]);
}

#[test]
fn a_free_that_waits_for_named_work_keeps_the_pool_awake() {
    let manager = manager();
    let pool = sleepable(&manager);
    let timelines = manager.backend().as_timelines().unwrap();
    let all = populate(&pool);
    let freed = pool.allocate(&Request::new(8192).name("late")).unwrap();
    let later = timelines.mark(TimelineId::MAIN).unwrap();
    freed.free_after(Point { timeline: TimelineId::MAIN, epoch: Epoch(later.0 + 1000) });
    let sleep = Sleep::to(HostStore::within(&arena()));
    let error = pool.sleep(&sleep).unwrap_err();
    assert_eq!(error.refused()[0].why, AwakeReason::Deferred);
    check(&all);
}

#[test]
fn a_wake_without_room_leaves_the_pool_asleep_with_its_bytes() {
    let manager = manager();
    let pool = sleepable(&manager);
    let all = populate(&pool);
    pool.sleep(&Sleep::to(HostStore::within(&arena()))).unwrap();
    manager.set_budget(HEAP, Limits::hard(4 * MIB)).unwrap();
    assert!(kind(pool.wake(&Wake::all())).is_out_of_memory());
    assert_eq!((pool.reserved(), pool.residence().asleep), (0, true));
    assert_eq!(kind(all[0].0.read(0, &mut [0; 4])), ErrorKind::Asleep);
    manager.validate().unwrap();
    // Another pool has the memory, and gives back what is empty.
    manager.set_budget(HEAP, Limits::hard(48 * MIB)).unwrap();
    let other = manager.create_pool(HEAP, PoolConfig::new().paged()).unwrap();
    drop(other.allocate(&Request::new(44 * MIB)).unwrap());
    pool.wake(&Wake::all()).unwrap();
    check(&all);
}

#[test]
fn a_store_without_room_leaves_the_pool_awake() {
    let mut config = ArenaConfig::default();
    (config.piece, config.maximum) = (2 * MIB, 4 * MIB);
    let arena = Arena::with_config(config).unwrap();
    let manager = manager();
    let pool = sleepable(&manager);
    let all = populate(&pool);
    let error = pool.sleep(&Sleep::to(HostStore::within(&arena))).unwrap_err();
    assert_eq!((error.kind(), arena.report().used), (ErrorKind::OverBudget, 0));
    check(&all);
    drop(pool.allocate(&Request::new(64)).unwrap());
}

#[test]
fn a_pool_under_guards_does_not_sleep() {
    let device = heap(HeapKind::Device, 128 * MIB).page(Some(Align::of(PAGE)));
    let host = Host::builder().heap(device).open().unwrap();
    let manager = Manager::with_config(host, ManagerConfig::default().guarded());
    let made = manager.create_pool(HEAP, PoolConfig::new().sleepable());
    assert_eq!(kind(made.map(drop)), ErrorKind::Unsupported, "guards look at bytes at any time");
    assert!(manager.create_pool(HEAP, PoolConfig::new()).is_ok());
}

#[test]
fn one_of_two_threads_has_the_pool_fall_asleep() {
    let manager = manager();
    let pool = sleepable(&manager);
    let all = populate(&pool);
    let sleep = Sleep::to(HostStore::within(&arena()));
    for _ in 0..20 {
        let kinds = |call: &(dyn Fn() -> Option<ErrorKind> + Sync)| {
            std::thread::scope(|scope| {
                [(); 2].map(|()| scope.spawn(call)).map(|thread| thread.join().unwrap())
            })
        };
        let slept = kinds(&|| pool.sleep(&sleep).err().map(|error| error.kind()));
        assert!(slept.contains(&None) && slept.contains(&Some(ErrorKind::AlreadyAsleep)));
        let woke = kinds(&|| pool.wake(&Wake::all()).err().map(|error| error.kind()));
        assert!(woke.contains(&None) && woke.contains(&Some(ErrorKind::AlreadyAwake)));
        check(&all);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Put,
    Flush,
    Get,
}

/// Keeps bytes as another store does, unless what is run before each call fails.
struct Watched<F> {
    store: Arc<dyn BackingStore>,
    before: F,
}

impl<F> fmt::Debug for Watched<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl<F: Fn(Call) -> Result<()> + Send + Sync> BackingStore for Watched<F> {
    fn put(
        &self,
        id: AllocationId,
        size: u64,
        how: Privacy,
        copy: &mut PutPiece<'_>,
    ) -> Result<()> {
        (self.before)(Call::Put)?;
        self.store.put(id, size, how, copy)
    }
    fn flush(&self, id: AllocationId) -> Result<()> {
        (self.before)(Call::Flush)?;
        self.store.flush(id)
    }
    fn get(&self, id: AllocationId, take: &mut GetPiece<'_>) -> Result<()> {
        (self.before)(Call::Get)?;
        self.store.get(id, take)
    }
    fn forget(&self, id: AllocationId) {
        self.store.forget(id);
    }
}

#[test]
fn a_device_that_is_lost_in_a_copy_ends_the_pass_and_leaves_nothing() {
    for is_asleep in [false, true] {
        let (manager, arena) = (manager(), arena());
        let pool = sleepable(&manager);
        let all = populate(&pool);
        let copies = Arc::new(Mutex::new(if is_asleep { u32::MAX / 2 } else { 0 }));
        let before = {
            let (manager, copies) = (manager.clone(), Arc::clone(&copies));
            move |call| {
                let mut copies = copies.lock().unwrap();
                *copies += u32::from(call != Call::Flush);
                if *copies == 3 {
                    manager.backend().lose();
                }
                Ok(())
            }
        };
        let store = Arc::new(Watched { store: HostStore::within(&arena), before });
        let slept = pool.sleep(&Sleep::to(Arc::clone(&store) as Arc<dyn BackingStore>));
        if is_asleep {
            slept.unwrap();
            *copies.lock().unwrap() = 0;
            assert_eq!(kind(pool.wake(&Wake::all())), ErrorKind::DeviceLost);
        } else {
            assert_eq!(kind(slept), ErrorKind::DeviceLost);
        }
        assert_eq!(pool.residence().asleep, is_asleep);
        drop((all, pool, store, manager));
        assert_eq!(arena.report().used, 0, "nothing stays in the store");
    }
}

#[test]
fn a_store_that_fails_after_the_last_byte_leaves_the_pool_awake() {
    let (manager, arena) = (manager(), arena());
    let pool = sleepable(&manager);
    let all = populate(&pool);
    let puts = Arc::new(Mutex::new(0));
    let before = {
        let puts = Arc::clone(&puts);
        move |call| {
            *puts.lock().unwrap() += usize::from(call == Call::Put);
            if call == Call::Flush { Err(ErrorKind::OutOfHostMemory.into()) } else { Ok(()) }
        }
    };
    let store = Arc::new(Watched { store: HostStore::within(&arena), before });
    assert_eq!(kind(pool.sleep(&Sleep::to(store))), ErrorKind::OutOfHostMemory);
    assert_eq!(*puts.lock().unwrap(), all.len(), "each is put before one is waited for");
    assert_eq!((pool.residence().asleep, arena.report().used), (false, 0));
    check(&all);
}

/// Runs a test of this program in a process of its own, for what would harm the tests beside it. Returns whether this is that process.
#[cfg(target_os = "linux")]
fn is_alone(name: &str) -> bool {
    if std::env::var_os("OMNIHEAP_ALONE").is_some() {
        return true;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env("OMNIHEAP_ALONE", "1");
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    false
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_is_full_half_way_leaves_the_pool_awake() {
    if !is_alone("a_disk_that_is_full_half_way_leaves_the_pool_awake") {
        return;
    }
    let manager = manager();
    let pool = sleepable(&manager);
    let all = populate(&pool);
    let live: u64 = all.iter().map(|(one, _)| one.size()).sum();
    let store = FileStore::open(std::env::temp_dir()).unwrap();
    // Files end half-way, as on a full disk.
    let most = libc::rlimit { rlim_cur: live / 2, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a limit and a signal of this process, which runs this test alone.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const most) }, 0);
    let error = pool.sleep(&Sleep::to(Arc::<FileStore>::clone(&store))).unwrap_err();
    assert_eq!((error.kind(), pool.residence().asleep), (ErrorKind::OutOfHostMemory, false));
    check(&all);
    let most = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, ..most };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const most) }, 0);
    pool.sleep(&Sleep::to(store)).unwrap();
    pool.wake(&Wake::all()).unwrap();
    check(&all);
}

/// Limits the threads that this process may start from now on; for a process of its own.
#[cfg(target_os = "linux")]
fn limit_threads(most: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: two numbers, which the kernel fills.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NPROC, &raw mut limit) }, 0);
    limit.rlim_cur = most.min(limit.rlim_max);
    // SAFETY: a limit of this process, which runs one test alone.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) }, 0);
    // SAFETY: asks only.
    if unsafe { libc::geteuid() } == 0 {
        // SAFETY: as above. Root has no such limit.
        assert_eq!(unsafe { libc::setresuid(65534, 65534, 65534) }, 0);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_system_that_starts_no_thread_leaves_the_pool_awake() {
    if !is_alone("a_system_that_starts_no_thread_leaves_the_pool_awake") {
        return;
    }
    let (manager, stores) = (manager(), stores());
    let pool = sleepable(&manager);
    let all = populate(&pool);
    check(&all);
    for store in &stores {
        limit_threads(0);
        let error = pool.sleep(&Sleep::to(Arc::clone(store))).unwrap_err();
        assert_eq!((error.kind(), pool.residence().asleep), (ErrorKind::OutOfHostMemory, false));
        check(&all);
        limit_threads(libc::RLIM_INFINITY);
        pool.sleep(&Sleep::to(Arc::clone(store))).unwrap();
        limit_threads(0);
        // Host memory comes back without threads.
        if let Err(error) = pool.wake(&Wake::all()) {
            assert_eq!((error.kind(), pool.residence().asleep), (ErrorKind::OutOfHostMemory, true));
            limit_threads(libc::RLIM_INFINITY);
            pool.wake(&Wake::all()).unwrap();
        }
        check(&all);
    }
}

/// Runs something in a forked child, and returns whether it says yes.
#[cfg(target_os = "linux")]
fn in_child(says: impl FnOnce() -> bool) -> bool {
    // SAFETY: the other threads of this process wait for this test, and hold no lock that the child takes.
    let child = unsafe { libc::fork() };
    if child == 0 {
        std::process::exit(i32::from(!says()));
    }
    let mut status = -1;
    // SAFETY: an integer, which the kernel fills.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status == 0
}

#[cfg(target_os = "linux")]
#[test]
fn a_child_leaves_the_backing_file_of_its_parent_alone() {
    if !is_alone("a_child_leaves_the_backing_file_of_its_parent_alone") {
        return;
    }
    let store = FileStore::open(std::env::temp_dir()).unwrap();
    let manager = manager();
    let pool = sleepable(&manager);
    let all = populate(&pool);
    let stranger = self::manager().allocate(&Request::new(64)).unwrap().id();
    pool.sleep(&Sleep::to(Arc::<FileStore>::clone(&store))).unwrap();
    assert!(in_child(|| {
        let put = store.put(stranger, 64, Privacy::Open, &mut |_, _| Ok(()));
        all.iter().for_each(|(one, _)| store.forget(one.id()));
        put.map_err(|error| error.kind()) == Err(ErrorKind::Unsupported)
    }));
    pool.wake(&Wake::all()).unwrap();
    check(&all);
}

#[cfg(target_os = "linux")]
#[test]
fn the_arena_of_a_parent_lends_nothing_to_its_child() {
    if !is_alone("the_arena_of_a_parent_lends_nothing_to_its_child") {
        return;
    }
    let arena = arena();
    arena.prepare(4 * MIB).unwrap();
    let before = arena.report();
    let kind = || arena.take(4096).map(drop).map_err(|error| error.kind());
    assert!(in_child(|| kind() == Err(ErrorKind::Unsupported)));
    assert_eq!(arena.report(), before);
    drop(arena.take(4096).unwrap());
}

#[test]
fn defragmentation_trims_and_recalls_pass_over_a_sleeping_pool() {
    let manager = manager();
    let pool = sleepable(&manager);
    let all = populate(&pool);
    pool.sleep(&Sleep::to(HostStore::within(&arena()))).unwrap();
    manager.trim().unwrap();
    pool.trim().unwrap();
    manager.defragment().unwrap();
    let _ = manager.begin_recall(&Budget::default());
    manager.retire().unwrap();
    assert_eq!(manager.totals().free_bytes, 0);
    manager.validate().unwrap();
    pool.wake(&Wake::all()).unwrap();
    manager.validate().unwrap();
    check(&all);
}

#[test]
fn several_lanes_sleep_together() {
    let manager = manager();
    let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable().lanes(4)).unwrap();
    let all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| populate(&pool))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    pool.sleep(&Sleep::to(HostStore::within(&arena()))).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(kind(pool.allocate(&Request::new(64))), ErrorKind::Asleep));
    });
    pool.wake(&Wake::all()).unwrap();
    check(&all);
}

/// A device that pins memory of others: counts its calls, and refuses one.
struct Pinning {
    host: Host,
    pinned: Arc<Mutex<Vec<(usize, usize)>>>,
    refuses: bool,
}

struct Unpin(Arc<Mutex<Vec<(usize, usize)>>>, usize);

impl Drop for Unpin {
    fn drop(&mut self) {
        self.0.lock().unwrap().retain(|(start, _)| *start != self.1);
    }
}

impl Pinning {
    fn new(refuses: bool) -> Self {
        let device = heap(HeapKind::Device, 128 * MIB).page(Some(Align::of(PAGE)));
        let host = Host::builder().heap(device).open().unwrap();
        Self { host, pinned: Arc::default(), refuses }
    }

    fn pinned(&self) -> usize {
        self.pinned.lock().unwrap().iter().map(|(_, size)| size).sum()
    }

    fn transfer(&self) -> &dyn Transfer<Block = omniheap_host::Block> {
        self.host.as_transfer().unwrap()
    }
}

// SAFETY: every call is the host's own.
unsafe impl Backend for Pinning {
    type Block = omniheap_host::Block;
    fn caps(&self) -> &Caps {
        self.host.caps()
    }
    fn allocate(&self, heap: HeapId, size: u64) -> Result<Self::Block> {
        self.host.allocate(heap, size)
    }
    unsafe fn free(&self, block: Self::Block) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.host.free(block) }
    }
    fn wait_idle(&self) -> Result<()> {
        self.host.wait_idle()
    }
    fn as_transfer(&self) -> Option<&dyn Transfer<Block = Self::Block>> {
        Some(self)
    }
    fn as_address(&self) -> Option<&dyn Address<Block = Self::Block>> {
        self.host.as_address()
    }
    fn as_timelines(&self) -> Option<&dyn Timelines> {
        self.host.as_timelines()
    }
    fn as_remap(&self) -> Option<&dyn Remap<Block = Self::Block>> {
        self.host.as_remap()
    }
}

// SAFETY: as above.
unsafe impl Transfer for Pinning {
    type Block = omniheap_host::Block;
    fn write(&self, on: TimelineId, to: BlockOffset<'_, Self::Block>, bytes: &[u8]) -> Result<()> {
        self.transfer().write(on, to, bytes)
    }
    fn read(
        &self,
        on: TimelineId,
        from: BlockOffset<'_, Self::Block>,
        bytes: &mut [u8],
    ) -> Result<()> {
        self.transfer().read(on, from, bytes)
    }
    fn fill(
        &self,
        on: TimelineId,
        to: BlockOffset<'_, Self::Block>,
        size: u64,
        value: u8,
    ) -> Result<()> {
        self.transfer().fill(on, to, size, value)
    }
    fn copy(&self, on: TimelineId, moves: &[Move<'_, Self::Block>]) -> Result<()> {
        self.transfer().copy(on, moves)
    }
    unsafe fn pin_host(
        &self,
        start: core::ptr::NonNull<u8>,
        size: usize,
    ) -> Result<Option<HostPin>> {
        let mut pinned = self.pinned.lock().unwrap();
        let address = start.as_ptr().addr();
        if pinned.iter().any(|(start, _)| *start == address) {
            return Ok(None);
        }
        if self.refuses && pinned.len() == 1 {
            return Err(ErrorKind::Driver.into());
        }
        pinned.push((address, size));
        Ok(Some(HostPin::new(Unpin(Arc::clone(&self.pinned), address))))
    }
}

#[test]
fn the_first_sleep_pins_what_it_takes_and_takes_no_more_than_it_needs() {
    let arena = arena();
    let manager = Manager::new(Pinning::new(false));
    let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable()).unwrap();
    let layers = [5, 6].map(|mib| pool.allocate(&Request::new(mib * MIB)).unwrap());
    layers.iter().for_each(|layer| layer.fill(0, layer.size(), 3).unwrap());
    // Held by others, and not pinned: it does not count, and is pinned all the same.
    let lent = arena.take(MIB).unwrap();
    let before = arena.report();
    pool.sleep(&Sleep::to(HostStore::within(&arena))).unwrap();
    let ready = arena.report();
    assert!(ready.held <= before.held + 12 * MIB, "{before:?} {ready:?}");
    assert_eq!(manager.backend().pinned() as u64, ready.held);
    drop(lent);
    pool.wake(&Wake::all()).unwrap();
    pool.sleep(&Sleep::to(HostStore::within(&arena))).unwrap();
    assert_eq!(arena.report().held, ready.held, "the next one takes nothing");
    pool.wake(&Wake::all()).unwrap();
    let touched = self::arena();
    touched.prepare(12 * MIB).unwrap();
    pool.sleep(&Sleep::to(HostStore::within(&touched))).unwrap();
    let pinned = ready.held + touched.report().held;
    assert_eq!(manager.backend().pinned() as u64, pinned, "also what was there and not pinned");
}

#[cfg(target_os = "linux")]
#[test]
fn what_no_thread_is_started_for_is_pinned_by_the_caller() {
    if !is_alone("what_no_thread_is_started_for_is_pinned_by_the_caller") {
        return;
    }
    let (arena, device) = (arena(), Pinning::new(false));
    arena.prepare(8 * MIB).unwrap();
    limit_threads(0);
    arena.prepare_pinned(&device, 8 * MIB).unwrap();
    assert_eq!((device.pinned() as u64, arena.report().held), (8 * MIB, 8 * MIB));
}

#[test]
fn a_preparation_that_is_dropped_leaves_the_device_alone() {
    let (arena, device) = (arena(), Arc::new(Pinning::new(false)));
    let manager = Manager::new(Arc::clone(&device));
    let preparation = arena.prepare_pinned_ahead(&manager, 512 * MIB);
    drop((manager, preparation));
    assert_eq!(Arc::strong_count(&device), 1, "no thread has it any more");
    let manager = Manager::new(Arc::clone(&device));
    arena.prepare_pinned_ahead(&manager, 8 * MIB).detach();
    drop(manager);
    while Arc::strong_count(&device) > 1 {
        std::thread::yield_now();
    }
    let held = arena.report().held;
    assert!(held >= 8 * MIB, "the thread went on: {held}");
    assert_eq!(device.pinned() as u64, held, "and what was prepared before is pinned too");
}

#[test]
fn a_sleep_uses_what_was_held_and_pinned_ahead() {
    for refuses in [false, true] {
        let arena = arena();
        let manager = Manager::new(Pinning::new(refuses));
        let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable()).unwrap();
        let layer = pool.allocate(&Request::new(5 * MIB)).unwrap();
        layer.fill(0, 5 * MIB, 3).unwrap();
        arena.prepare_pinned(manager.backend(), 7 * MIB).unwrap();
        let ready = arena.report();
        assert_eq!((ready.held, ready.used), (8 * MIB, 0));
        let pinned = manager.backend().pinned() as u64;
        assert_eq!(pinned, if refuses { 2 * MIB } else { 8 * MIB });
        arena.prepare_pinned(manager.backend(), 8 * MIB).unwrap();
        assert_eq!(arena.report(), ready, "it is there already");
        pool.sleep(&Sleep::to(HostStore::within(&arena))).unwrap();
        assert_eq!(arena.report().held, ready.held, "nothing was taken from the system");
        arena.prepare_pinned(manager.backend(), 8 * MIB).unwrap();
        assert_eq!(arena.report().held, ready.held, "what is lent counts");
        pool.wake(&Wake::all()).unwrap();
        let mut bytes = vec![0; 1 << 20];
        layer.read(4 * MIB, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 3));
        let refused = arena.prepare_pinned(manager.backend(), 1 << 60).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::OutOfHostMemory);
        assert_eq!(arena.report().held, ready.held);
        arena.trim();
        assert_eq!(manager.backend().pinned(), 0, "what goes back is not pinned");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_sleep_to_a_file_pins_the_memory_that_its_bytes_pass_through() {
    let manager = Manager::new(Pinning::new(false));
    let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable()).unwrap();
    let layer = pool.allocate(&Request::new(40 * MIB)).unwrap();
    layer.fill(0, 40 * MIB, 3).unwrap();
    pool.sleep(&Sleep::to(FileStore::open(std::env::temp_dir()).unwrap())).unwrap();
    let pinned = manager.backend().pinned() as u64;
    assert!(pinned >= 24 * MIB, "{pinned} bytes are pinned: three pieces of 8 MiB pass");
    pool.wake(&Wake::all()).unwrap();
    let mut bytes = vec![0; 1 << 20];
    layer.read(39 * MIB, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 3));
}

#[test]
fn the_example_for_disks_refuses_sizes_that_hold_no_allocation() {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().filter(|it| it.ends_with("deps")).and_then(std::path::Path::parent);
    let Some(built) = built else {
        return println!("NOT TESTED: the example is not beside this binary, which was copied");
    };
    let program = built.join("examples/disk");
    assert!(program.exists(), "run `cargo build --examples -p omniheap-residency` first");
    for sizes in [["1", "2"], ["1", "0"], ["0", "1"]] {
        let mut command = std::process::Command::new(&program);
        let ran = command.arg(std::env::temp_dir()).args(sizes).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(said.contains("not one allocation") && !said.contains("panicked"), "{said}");
    }
}
