//! Wakes that find too little device memory and put host memory at the same addresses.
#![expect(unsafe_code, reason = "stands in for a device that maps no host memory")]
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]
use omniheap_core::*;
use omniheap_host::{Host, heap};
use omniheap_layers::{Call, CallKind, Fault, Hooks, Layer, Plan, Verdict};
use omniheap_residency::{
    Arena, ArenaConfig, HostStore, Resident, Residents, WhenFull, available_host_memory,
};
use std::sync::Arc;

const HEAP: HeapId = HeapId(0);
const MIB: u64 = 1 << 20;
const PAGE: u64 = 64 << 10;
const SIZES: [u64; 5] = [3 * MIB, 4096, 40 * MIB, MIB, 50 * MIB];

type Device = Fault<Host>;
type Layers = Vec<Allocation<Device>>;

/// A device of 192 MiB with pages of 64 KiB, which are mapped in groups of 32 MiB.
fn manager() -> Manager<Device> {
    let device = heap(HeapKind::Device, 192 * MIB).page(Some(Align::of(PAGE)));
    Manager::new(Fault::new(Host::builder().heap(device).open().unwrap()).patient())
}

fn limit(manager: &Manager<Device>, bytes: u64) {
    manager.set_budget(HEAP, Limits::hard(bytes)).unwrap();
}

fn on_host(manager: &Manager<Device>) -> u64 {
    manager.backend().inner().on_host(HEAP).unwrap()
}

fn store() -> Arc<dyn BackingStore> {
    let mut config = ArenaConfig::default();
    (config.piece, config.threads) = (8 * MIB, Some(1));
    HostStore::within(&Arena::with_config(config).unwrap())
}

/// A pool with layers whose bytes are their numbers, from 1 on; it is asleep.
fn asleep(manager: &Manager<Device>, sizes: &[u64]) -> (UserPool<Device>, Layers) {
    let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable()).unwrap();
    let layers: Layers =
        sizes.iter().map(|size| pool.allocate(&Request::new(*size)).unwrap()).collect();
    (1..).zip(&layers).for_each(|(value, one)| one.fill(0, one.size(), value).unwrap());
    pool.sleep(&Sleep::to(store())).unwrap();
    (pool, layers)
}

fn check(layers: &Layers) -> Result<()> {
    for (value, one) in (1..).zip(layers) {
        let size = usize::try_from(one.size()).unwrap();
        let mut seen = vec![0; size];
        one.read(0, &mut seen)?;
        assert!(seen == vec![value; size], "{one:?} has other bytes");
    }
    Ok(())
}

fn addresses(layers: &Layers) -> Vec<Option<u64>> {
    layers.iter().map(|one| one.binding().address()).collect()
}

#[test]
fn what_the_device_has_no_room_for_is_host_memory_until_the_next_sleep() {
    let manager = manager();
    let (pool, layers) = asleep(&manager, &SIZES);
    limit(&manager, 70 * MIB);
    assert!(pool.wake(&Wake::all()).unwrap_err().kind().is_out_of_memory(), "not without leave");
    pool.wake(&Wake::all().host_mapped(u64::MAX)).unwrap();
    check(&layers).unwrap();
    let (before, mapped) = (addresses(&layers), pool.residence());
    assert_eq!(mapped.device, 64 * MIB, "as many groups as fit");
    assert!(mapped.host_mapped >= 30 * MIB && !mapped.asleep, "{mapped:?}");
    assert_eq!(mapped.host_mapped, on_host(&manager));
    assert_eq!((pool.reserved(), manager.heap_use(HEAP).unwrap().reserved), (64 * MIB, 64 * MIB));
    layers[4].fill(0, 50 * MIB, 5).unwrap();

    let slept = pool.sleep(&Sleep::to(store())).unwrap();
    assert_eq!((slept.returned, slept.kept, on_host(&manager)), (64 * MIB, 0, 0));
    limit(&manager, u64::MAX);
    pool.wake(&Wake::all().host_mapped(u64::MAX)).unwrap();
    check(&layers).unwrap();
    assert_eq!((pool.residence().host_mapped, on_host(&manager)), (0, 0), "there is room again");
    assert_eq!(addresses(&layers), before);
    manager.validate().unwrap();
}

#[test]
fn no_more_host_memory_is_taken_than_was_allowed() {
    let manager = manager();
    let (pool, layers) = asleep(&manager, &SIZES);
    limit(&manager, 70 * MIB);
    for most in [1, 8 * MIB, 29 * MIB] {
        let refused = pool.wake(&Wake::all().host_mapped(most)).unwrap_err();
        assert!(refused.kind().is_out_of_memory(), "{refused}");
        assert_eq!((on_host(&manager), pool.reserved(), pool.residence().asleep), (0, 0, true));
    }
    pool.wake(&Wake::all().host_mapped(32 * MIB)).unwrap();
    check(&layers).unwrap();
    assert!(on_host(&manager) <= 32 * MIB);
}

/// A device that maps no host memory.
#[derive(Debug)]
struct NoHostPages;

// SAFETY: nothing is changed but that one call is refused.
unsafe impl Hooks for NoHostPages {
    fn before(&self, call: &Call) -> Verdict {
        match call.kind {
            CallKind::CreateOnHost => Verdict::Refuse(ErrorKind::Unsupported.into()),
            _ => Verdict::Forward,
        }
    }
}

#[test]
fn a_device_that_maps_no_host_memory_is_short_of_memory() {
    let manager = Manager::new(Layer::wrap(Host::new(), NoHostPages));
    let heap = manager.caps().heap_ids().find(|(_, heap)| heap.page.is_some()).unwrap().0;
    let pool = manager.create_pool(heap, PoolConfig::new().sleepable()).unwrap();
    let layer = pool.allocate(&Request::new(8 * MIB)).unwrap();
    layer.fill(0, 8 * MIB, 7).unwrap();
    pool.sleep(&Sleep::to(store())).unwrap();
    manager.set_budget(heap, Limits::hard(MIB)).unwrap();
    let refused = [Wake::all(), Wake::all().host_mapped(u64::MAX)].map(|how| pool.wake(&how));
    assert_eq!(refused.map(|one| one.unwrap_err().kind()), [ErrorKind::OverBudget; 2]);
    manager.set_budget(heap, Limits::NONE).unwrap();
    pool.wake(&Wake::all()).unwrap();
    let mut seen = [0; 4096];
    layer.read(8 * MIB - 4096, &mut seen).unwrap();
    assert_eq!(seen, [7; 4096]);
}

#[test]
fn a_fault_in_any_call_loses_no_byte_and_leaves_no_page_behind() {
    let mut at = 0;
    loop {
        let manager = manager();
        let (pool, layers) = asleep(&manager, &[4096, 30 * MIB, 3 * MIB]);
        limit(&manager, 33 * MIB);
        let backend = manager.backend();
        backend.inject(Plan::Nth(at), 0);
        let woken = pool.wake(&Wake::all().host_mapped(u64::MAX));
        let (seen, kind) = (backend.seen(), backend.first_injected());
        assert_eq!(pool.residence().asleep, woken.is_err(), "whole or not at all: {kind:?}");
        backend.inject(Plan::Never, 0);
        if woken.is_err() {
            pool.wake(&Wake::all().host_mapped(u64::MAX)).unwrap();
        }
        check(&layers).unwrap();
        drop((pool, layers));
        manager.backend().wait_idle().unwrap();
        manager.trim().unwrap();
        let lost = backend.quarantine();
        assert_eq!(on_host(&manager), lost.host_pages * PAGE, "{kind:?}");
        assert_eq!(manager.heap_use(HEAP).unwrap().reserved, 0, "{kind:?}");
        if at >= seen {
            assert!(at > 10, "{at} calls");
            break;
        }
        at += 1;
    }
}

#[test]
fn host_memory_that_the_driver_refuses_to_take_back_is_told() {
    let manager = manager();
    let (pool, layers) = asleep(&manager, &SIZES);
    limit(&manager, 70 * MIB);
    pool.wake(&Wake::all().host_mapped(u64::MAX)).unwrap();
    manager.backend().inject(Plan::Kind(CallKind::DestroyOnHost, 0), 0);
    pool.sleep(&Sleep::to(store())).unwrap();
    manager.backend().inject(Plan::Never, 0);
    assert!(on_host(&manager) > 0, "it was refused");
    assert_eq!(manager.report().quarantined_bytes, on_host(&manager));
    pool.wake(&Wake::all().host_mapped(u64::MAX)).unwrap();
    check(&layers).unwrap();
}

#[test]
fn pages_that_the_driver_refuses_to_unmap_sleep_later() {
    let manager = manager();
    let pool = manager.create_pool(HEAP, PoolConfig::new().sleepable()).unwrap();
    let ask = |size| pool.allocate(&Request::new(size)).unwrap();
    let (freed, layers) = (ask(40 * MIB), vec![ask(4096), ask(MIB)]);
    (1..).zip(&layers).for_each(|(value, one)| one.fill(0, one.size(), value).unwrap());
    drop(freed);
    manager.backend().wait_idle().unwrap();
    manager.backend().inject(Plan::From(0), 0);
    manager.trim().unwrap_err();
    manager.backend().inject(Plan::Never, 0);
    pool.sleep(&Sleep::to(store())).unwrap();
    pool.wake(&Wake::all()).unwrap();
    check(&layers).unwrap();
    manager.validate().unwrap();
}

#[test]
fn freed_host_memory_serves_requests_and_goes_back_with_a_trim() {
    for (budget, device) in [(70 * MIB, 64 * MIB), (MIB, 0)] {
        let manager = manager();
        let (pool, mut layers) = asleep(&manager, &SIZES);
        limit(&manager, budget);
        pool.wake(&Wake::all().host_mapped(u64::MAX)).unwrap();
        let mapped = on_host(&manager);
        layers.pop();
        let again = pool.allocate(&Request::new(45 * MIB)).unwrap();
        assert_eq!((on_host(&manager), pool.reserved()), (mapped, device), "nothing new was taken");
        again.fill(0, 45 * MIB, 9).unwrap();
        check(&layers).unwrap();
        drop(again);
        manager.backend().wait_idle().unwrap();
        manager.trim().unwrap();
        let live = 45 * MIB - device.min(45 * MIB);
        assert!(on_host(&manager) < live + MIB, "{} bytes stay", on_host(&manager));
        check(&layers).unwrap();
        drop((layers, pool));
        manager.trim().unwrap();
        assert_eq!((on_host(&manager), manager.heap_use(HEAP).unwrap().reserved), (0, 0));
    }
}

#[test]
fn a_hold_takes_host_memory_where_nobody_makes_room_and_a_step_brings_it_home() {
    let manager = manager();
    limit(&manager, 96 * MIB);
    let residents = Residents::of(&manager);
    let add = |value: u8, when_full: WhenFull| {
        let pool = Arc::new(manager.create_pool(HEAP, PoolConfig::new().sleepable()).unwrap());
        residents.add(&pool, Resident::to(store()).when_full(when_full)).unwrap();
        let one = pool.allocate(&Request::new(60 * MIB)).unwrap();
        one.fill(0, 60 * MIB, value).unwrap();
        (pool, vec![one])
    };
    let (slow, in_slow) = add(1, WhenFull::HostMapped);
    let (fails, _in_fails) = add(1, WhenFull::Fail);
    let (fast, in_fast) = add(1, WhenFull::Fail);
    let held = residents.hold(&fast).unwrap();
    assert!(residents.hold(&fails).unwrap_err().kind().is_out_of_memory());
    residents.expect([&slow]);
    let second = residents.hold(&slow).unwrap();
    let residence = slow.residence();
    assert_eq!((residence.device, residence.host_mapped), (32 * MIB, 28 * MIB));
    check(&in_slow).unwrap();
    check(&in_fast).unwrap();
    limit(&manager, 192 * MIB);
    let step = || {
        let [now, then] = [residents.step().unwrap(), residents.settle().unwrap()];
        [now.slept + then.slept, now.woken + then.woken, now.returned + then.returned]
    };
    residents.settle().unwrap(); // What was moved until now.
    assert_eq!(step()[0], 0, "it is held");
    drop((second, held, fails, in_fast, fast));
    manager.trim().unwrap();
    assert_eq!(step(), [1, 1, 32 * MIB]);
    assert_eq!((slow.residence().host_mapped, on_host(&manager)), (0, 0));
    check(&in_slow).unwrap();
    assert_eq!(step(), [0; 3]);
}

#[test]
fn the_host_says_what_it_has_left() {
    let left = available_host_memory().expect("Linux says");
    assert!((64 * MIB..1 << 50).contains(&left), "{left}");
}
