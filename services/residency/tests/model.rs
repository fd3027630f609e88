//! Eight threads allocate, write, read, free, sleep and wake one pool, and a set's thread sleeps and wakes it too, while calls of the driver and of
//! the store fail: no byte is lost, and no page stays behind.
//!
//! `OMNIHEAP_SLEEPS` sets how many sleeps succeed before it ends; `OMNIHEAP_SEED` the seed.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use omniheap_core::*;
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Fault, Plan};
use omniheap_residency::{Arena, ArenaConfig, FileStore, HostStore, Resident, Residents};
use std::sync::Arc;

const HEAP: HeapId = HeapId(0);
const MIB: u64 = 1 << 20;
const PAGE: u64 = 64 << 10;
const THREADS: u64 = 8;
/// Calls that fail most often: what they refuse can be asked for again.
const KINDS: [CallKind; 11] = [
    CallKind::Create,
    CallKind::CreateOnHost,
    CallKind::MapPages,
    CallKind::UnmapPages,
    CallKind::Reserve,
    CallKind::Read,
    CallKind::Write,
    CallKind::Mark,
    CallKind::Wait,
    CallKind::Reached,
    CallKind::WaitIdle,
];
/// Bytes that one thread holds at most.
const MOST: u64 = MIB;

/// A generator that is good enough (`SplitMix64`).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }
}

/// A store whose calls fail now and then; a put fails in the middle.
#[derive(Debug)]
struct Flaky {
    inner: Arc<dyn BackingStore>,
    calls: AtomicU64,
    /// One call in so many fails; zero makes none fail.
    rate: AtomicU64,
}

impl Flaky {
    fn fails(&self) -> Result<()> {
        let (call, rate) = (self.calls.fetch_add(1, Relaxed), self.rate.load(Relaxed));
        let fails = rate > 0 && Random(call).below(rate) == 0;
        if fails { Err(ErrorKind::OutOfHostMemory.into()) } else { Ok(()) }
    }
}

impl BackingStore for Flaky {
    fn prepare(&self, bytes: u64, pinner: &HostPinner<'_>) -> Result<()> {
        self.fails()?;
        self.inner.prepare(bytes, pinner)
    }

    fn put(
        &self,
        id: AllocationId,
        size: u64,
        privacy: Privacy,
        copy: &mut PutPiece<'_>,
    ) -> Result<()> {
        self.inner.put(id, size, privacy, &mut |at, bytes| {
            copy(at, bytes)?;
            self.fails()
        })
    }

    fn flush(&self, id: AllocationId) -> Result<()> {
        self.inner.flush(id)?;
        self.fails()
    }

    fn get(&self, id: AllocationId, take: &mut GetPiece<'_>) -> Result<()> {
        self.inner.get(id, &mut |at, bytes| {
            take(at, bytes)?;
            self.fails()
        })
    }

    fn forget(&self, id: AllocationId) {
        self.inner.forget(id);
    }
}

/// An allocation, and the stamp that its bytes have; none after a write that failed.
struct Shadow {
    allocation: Allocation<Fault<Host>>,
    stamp: Option<u64>,
}

/// The bytes of a stamp.
fn bytes(stamp: u64, size: u64) -> Vec<u8> {
    let line: Vec<u8> = (0..64).flat_map(|at| Random(stamp + at).next().to_le_bytes()).collect();
    let size = usize::try_from(size).unwrap();
    let mut bytes = line.repeat(size.div_ceil(line.len()));
    bytes.truncate(size);
    bytes
}

impl Shadow {
    fn write(&mut self, stamp: u64) {
        let written = self.allocation.write(0, &bytes(stamp, self.allocation.size()));
        match written.map_err(|error| error.kind()) {
            Ok(()) => self.stamp = Some(stamp),
            Err(ErrorKind::Asleep) => {} // Nothing was written.
            Err(_) => self.stamp = None,
        }
    }

    /// Compares the bytes with the shadow, where they can be read.
    fn check(&self) -> Result<()> {
        let size = self.allocation.size();
        let mut seen = vec![0; usize::try_from(size).unwrap()];
        self.allocation.read(0, &mut seen)?;
        if let Some(stamp) = self.stamp {
            assert!(seen == bytes(stamp, size), "{:?} lost its bytes", self.allocation);
        }
        Ok(())
    }
}

struct World {
    manager: Manager<Fault<Host>>,
    pool: Arc<UserPool<Fault<Host>>>,
    residents: Residents<Fault<Host>>,
    stores: Vec<Arc<Flaky>>,
    arena: Arena,
    sleeps: AtomicU64,
    wakes: AtomicU64,
    /// Wakes that took host memory.
    host_mapped: AtomicU64,
    /// Sleeps by the set.
    slept_by_set: AtomicU64,
    /// Wakes by the set.
    woken_by_set: AtomicU64,
    refused: AtomicU64,
    /// Sleeps that were refused since one succeeded.
    in_a_row: AtomicU64,
    wanted: u64,
}

impl World {
    fn new(wanted: u64) -> Self {
        // Room for the last wake also where each thread loses all pages once more after the device is worn.
        let device = heap(HeapKind::Device, 128 * MIB).page(Some(Align::of(PAGE)));
        let backend = Fault::new(Host::builder().heap(device).open().unwrap()).patient();
        let manager = Manager::new(backend);
        let config = PoolConfig::new().sleepable().lanes(4);
        let pool = Arc::new(manager.create_pool(HEAP, config).unwrap());
        let mut config = ArenaConfig::default();
        (config.piece, config.threads) = (2 * MIB, Some(1));
        let arena = Arena::with_config(config).unwrap();
        let file = FileStore::open(std::env::temp_dir()).unwrap();
        let stores: [Arc<dyn BackingStore>; 2] = [HostStore::within(&arena), file];
        let flaky = |inner| Flaky { inner, calls: AtomicU64::new(0), rate: AtomicU64::new(0) };
        let stores: Vec<_> = stores.into_iter().map(|inner| Arc::new(flaky(inner))).collect();
        let residents = Residents::of(&manager);
        residents.add(&pool, Resident::to(stores[0].clone())).unwrap();
        let count = || AtomicU64::new(0);
        Self {
            manager,
            pool,
            residents,
            stores,
            arena,
            sleeps: count(),
            wakes: count(),
            host_mapped: count(),
            slept_by_set: count(),
            woken_by_set: count(),
            refused: count(),
            in_a_row: count(),
            wanted,
        }
    }

    /// Has calls fail from now on, or not.
    fn inject(&self, random: &mut Random) {
        let (seed, pick) = (random.next(), usize::try_from(random.below(3)).unwrap());
        let plan = match random.below(8) {
            0..2 => Plan::Never,
            2 => Plan::Random { per_million: 3_000, seed },
            3 => Plan::NthThenOk { at: random.below(60), times: random.below(40) },
            _ => {
                let kind = KINDS[usize::try_from(random.below(KINDS.len() as u64)).unwrap()];
                Plan::Kind(kind, random.below(6))
            }
        };
        self.manager.backend().inject(plan, pick);
        let rate = [0, 5, 40][usize::try_from(random.below(3)).unwrap()];
        self.stores.iter().for_each(|store| store.rate.store(rate, Relaxed));
    }

    fn heal(&self) {
        self.manager.backend().inject(Plan::Never, 0);
        self.stores.iter().for_each(|store| store.rate.store(0, Relaxed));
    }

    fn sleep(&self, random: &mut Random) {
        let store = &self.stores[usize::try_from(random.below(2)).unwrap()];
        let store: Arc<dyn BackingStore> = store.clone();
        match self.pool.sleep(&Sleep::to(store)).map_err(|error| error.kind()) {
            Ok(_) => {
                self.sleeps.fetch_add(1, Relaxed);
                self.in_a_row.store(0, Relaxed);
            }
            Err(ErrorKind::AlreadyAsleep) => {}
            Err(_) => {
                self.refused.fetch_add(1, Relaxed);
                self.in_a_row.fetch_add(1, Relaxed);
            }
        }
    }

    /// Wakes the pool, sometimes with less device memory than it needs and with host memory for the rest.
    fn wake(&self, random: &mut Random) {
        let (budget, most) = match random.below(3) {
            0 => (random.below(4) * MIB, random.below(8) * MIB),
            _ => (u64::MAX, 0),
        };
        self.manager.set_budget(HEAP, Limits::hard(budget.max(MIB))).unwrap();
        match self.pool.wake(&Wake::all().host_mapped(most)).map_err(|error| error.kind()) {
            Ok(()) => {
                self.wakes.fetch_add(1, Relaxed);
                let mapped = self.pool.residence().host_mapped;
                self.host_mapped.fetch_add(u64::from(mapped > 0), Relaxed);
            }
            Err(ErrorKind::AlreadyAwake) => {}
            Err(_) => drop(self.refused.fetch_add(1, Relaxed)),
        }
        self.manager.set_budget(HEAP, Limits::NONE).unwrap();
    }

    /// Has the set follow a budget in which the pool has room or not, or bring the pool; nobody waits for it.
    fn step(&self, random: &mut Random) {
        let soft = if random.below(3) == 0 { PAGE } else { u64::MAX };
        let _ = self.manager.set_budget(HEAP, Limits { soft, hard: u64::MAX });
        if let Ok(moved) = self.residents.step() {
            self.slept_by_set.fetch_add(moved.slept, Relaxed);
            self.woken_by_set.fetch_add(moved.woken, Relaxed);
        }
        drop(self.residents.hold_if_awake(&self.pool).unwrap());
    }

    /// Returns true if so much was lost to calls that failed for good that a fresh device is due.
    fn is_worn(&self) -> bool {
        let driver = self.manager.backend().quarantine();
        driver.pages * PAGE > 8 * MIB || self.in_a_row.load(Relaxed) > 2000
    }

    /// One thread's work; what it holds at the end.
    fn work(&self, mut random: Random) -> Vec<Shadow> {
        let (mut held, mut live) = (Vec::<Shadow>::new(), 0);
        while self.sleeps.load(Relaxed) < self.wanted && !self.is_worn() {
            let at = usize::try_from(random.below(held.len().max(1) as u64)).unwrap();
            match random.below(34) {
                0..10 if live < MOST => {
                    let size =
                        [64, 700, 5000, 70_000, 200_000][usize::try_from(random.below(5)).unwrap()];
                    let Ok(allocation) = self.pool.allocate(&Request::new(size)) else { continue };
                    let mut shadow = Shadow { allocation, stamp: None };
                    shadow.write(random.next() >> 8);
                    live += size;
                    held.push(shadow);
                }
                0..12 if !held.is_empty() => {
                    live -= held.swap_remove(at).allocation.size();
                }
                12..16 if !held.is_empty() => held[at].write(random.next() >> 8),
                16..24 if !held.is_empty() => {
                    let _ = held[at].check();
                }
                24..26 => self.sleep(&mut random),
                26..30 => self.wake(&mut random),
                30 => self.inject(&mut random),
                31..33 => self.step(&mut random),
                _ => drop(self.manager.trim()),
            }
        }
        held
    }

    /// Everything is as the threads left it, and nothing stays behind. Returns whether nothing was given up for good.
    fn finish(self, held: Vec<Shadow>) -> bool {
        self.heal();
        let _ = self.residents.settle(); // It may say what failed before.
        self.manager.set_budget(HEAP, Limits::NONE).unwrap();
        drop(self.residents);
        if self.pool.residence().asleep {
            self.pool.wake(&Wake::all()).unwrap();
        }
        self.manager.validate().unwrap();
        held.iter().for_each(|shadow| shadow.check().unwrap());
        assert_eq!(self.arena.report().used, 0, "bytes stay in the store");
        let (backend, report) = (self.manager.backend(), self.manager.report());
        let lost = backend.quarantine();
        let (refused, refused_on_host) = (lost.pages * PAGE, lost.host_pages * PAGE);
        // Work that could not be followed keeps its bytes, and the pool awake.
        if report.quarantined_bytes != refused + refused_on_host || lost.blocks > 0 {
            return false;
        }
        // Once more, with nothing that fails.
        let store: Arc<dyn BackingStore> = self.stores[0].clone();
        let slept = self.pool.sleep(&Sleep::to(store)).unwrap();
        assert_eq!((slept.kept, self.pool.reserved()), (0, 0));
        assert_eq!(self.pool.residence().host_mapped, 0);
        self.pool.wake(&Wake::all()).unwrap();
        held.iter().for_each(|shadow| shadow.check().unwrap());
        drop(held);
        self.manager.backend().wait_idle().unwrap();
        self.manager.trim().unwrap();
        self.manager.validate().unwrap();
        assert_eq!(self.manager.heap_use(HEAP).unwrap().reserved, 0);
        let used = backend.as_budget().unwrap().budget(HEAP).unwrap().used;
        assert_eq!(used, refused, "the driver holds only what it refused to take back");
        let used = backend.inner().on_host(HEAP).unwrap();
        assert_eq!(used, refused_on_host, "and of host memory as well");
        true
    }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn no_byte_is_lost_and_no_page_stays_behind() {
    let wanted = variable("OMNIHEAP_SLEEPS").unwrap_or(60);
    let mut seed = variable("OMNIHEAP_SEED").unwrap_or(1);
    let (mut sums, mut devices, mut clean) = ([0; 6], 0, 0);
    while sums[0] < wanted || clean == 0 || sums[3..].contains(&0) {
        assert!(devices < 100 + wanted, "something never happens");
        let world = World::new((wanted - sums[0].min(wanted)).clamp(20, 500));
        let held = std::thread::scope(|scope| {
            let world = &world;
            let work = |thread| scope.spawn(move || world.work(Random(seed * THREADS + thread)));
            let threads: Vec<_> = (0..THREADS).map(work).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let World { sleeps, wakes, refused, host_mapped, slept_by_set, woken_by_set, .. } = &world;
        let counters = [sleeps, wakes, refused, host_mapped, slept_by_set, woken_by_set];
        sums.iter_mut().zip(counters).for_each(|(sum, count)| *sum += count.load(Relaxed));
        clean += u64::from(world.finish(held));
        (devices, seed) = (devices + 1, seed + 1);
        let [sleeps, wakes, refused, host_mapped, slept_by_set, woken_by_set] = sums;
        println!(
            "{sleeps} sleeps, {wakes} wakes, {host_mapped} with host memory, {slept_by_set} and {woken_by_set} by the set, {refused} refused; {clean} of {devices} whole"
        );
    }
}
