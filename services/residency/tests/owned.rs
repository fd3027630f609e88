//! Memory that an engine owns itself, in a set with pools: the engine makes it leave and come back.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use omniheap_core::*;
use omniheap_host::{Host, heap};
use omniheap_residency::{HostStore, Resident, Residents};
use std::sync::{Arc, Mutex};

const HEAP: HeapId = HeapId(0);
const MIB: u64 = 1 << 20;

/// An engine's texture: dedicated memory, and a copy of its bytes while that is gone.
#[derive(Debug)]
struct Texture {
    manager: Manager<Host>,
    size: u64,
    memory: Mutex<Option<Allocation<Host>>>,
    copy: Mutex<Vec<u8>>,
    uses: AtomicU64,
    /// Calls of `sleep`.
    sleeps: AtomicU64,
}

impl Texture {
    fn new(manager: &Manager<Host>, size: u64, value: u8) -> Arc<Self> {
        let texture = Self {
            manager: manager.clone(),
            size,
            memory: Mutex::new(None),
            copy: Mutex::new(vec![value; usize::try_from(size).unwrap()]),
            uses: AtomicU64::new(0),
            sleeps: AtomicU64::new(0),
        };
        texture.wake(&Wake::all()).unwrap();
        Arc::new(texture)
    }

    fn is_asleep(&self) -> bool {
        self.residence().asleep
    }

    fn fill(&self, value: u8) {
        self.memory.lock().unwrap().as_ref().unwrap().fill(0, self.size, value).unwrap();
    }

    fn check(&self, value: u8) {
        let mut seen = vec![0; usize::try_from(self.size).unwrap()];
        self.memory.lock().unwrap().as_ref().unwrap().read(0, &mut seen).unwrap();
        assert!(seen.iter().all(|byte| *byte == value));
    }
}

impl Sleepable for Texture {
    fn heap(&self) -> HeapId {
        HEAP
    }

    fn residence(&self) -> Residence {
        let mut residence = Residence::default();
        // Where it is locked, it is on its way.
        residence.asleep = self.memory.try_lock().is_ok_and(|memory| memory.is_none());
        match residence.asleep {
            true => residence.stored = self.size,
            false => residence.device = self.size,
        }
        residence
    }

    fn sleep(&self, _: &Sleep) -> Result<Slept, SleepError> {
        self.sleeps.fetch_add(1, Relaxed);
        let Ok(mut memory) = self.memory.try_lock() else { return Err(ErrorKind::Busy.into()) };
        let here = memory.as_ref().ok_or(ErrorKind::AlreadyAsleep)?;
        here.read(0, &mut self.copy.lock().unwrap())?;
        *memory = None;
        let mut slept = Slept::default();
        slept.returned = self.size;
        Ok(slept)
    }

    fn wake(&self, _: &Wake) -> Result<(), AllocateError> {
        let mut memory = self.memory.lock().unwrap();
        if memory.is_some() {
            return Err(ErrorKind::AlreadyAwake.into());
        }
        let one = self.manager.allocate(&Request::new(self.size).heap(HEAP).dedicated())?;
        one.write(0, &self.copy.lock().unwrap())?;
        *memory = Some(one);
        Ok(())
    }

    fn used(&self) {
        self.uses.fetch_add(1, Relaxed);
    }
}

/// A device of 64 MiB.
fn world() -> (Manager<Host>, Residents<Host>) {
    let device = heap(HeapKind::Device, 64 * MIB).page(Some(Align::of(64 << 10)));
    let manager = Manager::new(Host::builder().heap(device).open().unwrap());
    let residents = Residents::of(&manager);
    (manager, residents)
}

fn resident(priority: i32) -> Resident {
    Resident::to(HostStore::new()).priority(priority)
}

#[test]
fn an_eviction_asks_nobody_that_the_set_put_to_sleep() {
    let (manager, residents) = world();
    let textures: Vec<_> = (0..48)
        .map(|value| {
            let one = Texture::new(&manager, 8 * MIB, value);
            residents.add(&one, resident(0)).unwrap();
            one
        })
        .collect();
    for one in textures.iter().chain(&textures) {
        let _held = residents.hold(one).unwrap();
    }
    let asked: u64 = textures.iter().map(|one| one.sleeps.load(Relaxed)).sum();
    assert_eq!(asked, residents.step().unwrap().slept, "each call put one to sleep");
    assert!(asked >= 48 + 40, "{asked}");
}

#[test]
fn textures_and_pools_make_room_for_each_other() {
    let (manager, residents) = world();
    let textures: Vec<_> = (0..6).map(|value| Texture::new(&manager, 8 * MIB, value)).collect();
    textures.iter().for_each(|one| residents.add(one, resident(0)).unwrap());
    let pool = Arc::new(manager.create_pool(HEAP, PoolConfig::new().sleepable()).unwrap());
    residents.add(&pool, resident(0)).unwrap();
    let level = pool.allocate(&Request::new(24 * MIB)).unwrap();
    // A pool takes more at a time than it needs.
    let away = textures.iter().map(|one| one.is_asleep()).collect::<Vec<_>>();
    assert!(away[0] && !away[5] && away.is_sorted_by(|a, b| a >= b), "the oldest left: {away:?}");
    level.fill(0, 24 * MIB, 9).unwrap();
    for (value, one) in (0..).zip(&textures) {
        let held = residents.hold(one).unwrap();
        one.check(value);
        drop(held);
        assert_eq!(one.uses.load(Relaxed), 1, "it hears that its use was submitted");
    }
    let held = [residents.hold(&textures[5]).unwrap(), {
        textures[5].fill(55);
        residents.hold(&textures[5]).unwrap()
    }];
    textures[5].check(55);
    drop(held);
    assert!(pool.residence().asleep, "no texture is older");
    let _held = residents.hold(&pool).unwrap();
    assert!(textures[0].is_asleep() && !textures[5].is_asleep());
    let mut seen = [0; 4096];
    level.read(24 * MIB - 4096, &mut seen).unwrap();
    assert_eq!(seen, [9; 4096]);
}

#[test]
fn a_texture_that_comes_back_sends_nobody_of_a_higher_priority_away() {
    let (manager, residents) = world();
    let [low, high] = [0, 1].map(|priority| {
        let one = Texture::new(&manager, 20 * MIB, 7);
        residents.add(&one, resident(priority)).unwrap();
        one
    });
    low.sleep(&Sleep::to(HostStore::new())).unwrap();
    manager.set_budget(HEAP, Limits::hard(30 * MIB)).unwrap();
    let refused = residents.hold(&low).unwrap_err();
    assert!(refused.kind().is_out_of_memory(), "{refused}");
    assert!(low.is_asleep() && !high.is_asleep());
    // A budget that grows brings back what fits, and sends nobody away for it.
    residents.step().unwrap();
    assert_eq!(residents.settle().unwrap().slept, 0);
    low.wake(&Wake::all()).expect("what the program itself asks for comes before all");
    assert!(high.is_asleep());
    let _held = residents.hold(&high).unwrap();
    assert!(low.is_asleep());
    high.check(7);
}

#[test]
fn steps_bring_textures_back_as_the_budget_grows() {
    let (manager, residents) = world();
    let textures: Vec<_> = (0..4).map(|value| Texture::new(&manager, 10 * MIB, value)).collect();
    textures.iter().for_each(|one| residents.add(one, resident(0)).unwrap());
    let step = |limit| {
        manager.set_budget(HEAP, Limits::hard(limit)).unwrap();
        residents.step().unwrap();
        residents.settle().unwrap()
    };
    assert_eq!(step(25 * MIB).slept, 2);
    assert_eq!(step(24 * MIB), Default::default());
    assert_eq!(step(64 * MIB).woken, 2);
    for (value, one) in (0..).zip(&textures) {
        one.check(value);
    }
}
