//! The span that was freed last: a request of its size gets it as it was, everybody else finds a hole.
use core::panic::AssertUnwindSafe;
use omniheap_core::strategy::{Key, Strategy, Tlsf};
use omniheap_core::{
    Align, Allocation, Backend, Class, ErrorKind, Event, HeapId, HeapKind, Layout, Manager,
    ManagerConfig, Observer, PoolConfig, Request, Span, TimelineId, Timelines,
};
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Record};
use omniheap_model::Random;
use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex};

const MIB: u64 = 1 << 20;
const MAIN: TimelineId = TimelineId::MAIN;

fn host(size: u64) -> Host {
    Host::builder().heap(heap(HeapKind::Device, size)).open().expect("a host device")
}

/// A manager of 16 MiB that holds all of them, as one block.
fn whole() -> Manager<Host> {
    let mut config = ManagerConfig::default().plain();
    config.pool.lanes = Some(1);
    let manager = Manager::with_config(host(16 * MIB), config);
    take(&manager, 16 * MIB).free();
    manager
}

fn take(manager: &Manager<Host>, size: u64) -> Allocation<Host> {
    manager.allocate(&Request::new(size)).expect("fits")
}

fn place(held: &Allocation<Host>) -> Span {
    held.binding().span()
}

#[test]
fn its_size_gets_the_same_place_and_another_name() {
    let manager = whole();
    let (_below, first, _above) =
        (take(&manager, 5000), take(&manager, 4096), take(&manager, 9000));
    let (id, at) = (first.id(), place(&first));
    first.free();
    let second = take(&manager, 4096);
    assert_eq!(place(&second), at);
    assert_ne!(second.id(), id);
    assert_eq!(manager.check(id), Err(ErrorKind::Stale.into()), "the old name is gone");
    assert_eq!(manager.check(second.id()), Ok(4096));
    let totals = manager.totals();
    assert_eq!((totals.live, totals.live_bytes), (3, 5000 + 4096 + 9000));
    manager.validate().expect("sound");
}

#[test]
fn it_is_given_to_one_only() {
    let manager = whole();
    let (first, _above) = (take(&manager, 4096), take(&manager, 4096));
    first.free();
    let held: Vec<_> = (0..8).map(|_| take(&manager, 4096)).collect();
    let places: BTreeSet<_> = held.iter().map(|held| place(held).offset).collect();
    assert_eq!(places.len(), 8, "{places:?}");
}

#[test]
fn neighbours_that_were_freed_are_one_hole() {
    let manager = whole();
    let (first, second) = (take(&manager, 8 * MIB), take(&manager, 8 * MIB));
    first.free();
    second.free();
    let calls = manager.report().driver_calls;
    let all = take(&manager, 16 * MIB);
    assert_eq!(place(&all), Span { offset: 0, size: 16 * MIB });
    assert_eq!(manager.report().driver_calls, calls, "nothing was asked of the driver");
}

#[test]
fn a_stricter_alignment_is_kept() {
    let manager = whole();
    let (_below, first) = (take(&manager, 256), take(&manager, 4096));
    let at = place(&first).offset;
    first.free();
    let align = Align::new(4096).expect("a power of two");
    let second = manager.allocate(&Request::new(4096).align(align)).expect("fits");
    assert!(align.divides(place(&second).offset), "{at} was freed, {:?} given", place(&second));
}

#[test]
fn a_stricter_alignment_is_kept_in_a_pool_of_the_program() {
    let manager = Manager::with_config(host(16 * MIB), ManagerConfig::default().plain());
    let pool = manager.create_pool(HeapId(0), PoolConfig::new().lanes(1)).expect("a pool");
    let take = |request: Request<'_>| pool.allocate(&request).expect("fits");
    let (_below, first) = (take(Request::new(256)), take(Request::new(4096)));
    first.free();
    let align = Align::of(4096);
    let second = take(Request::new(4096).align(align));
    assert!(align.divides(place(&second).offset), "{:?}", place(&second));
}

#[test]
fn a_pool_shows_the_place_of_what_it_allocates() {
    let manager = Manager::with_config(host(16 * MIB), ManagerConfig::default().plain());
    let pool = manager.create_pool(HeapId(0), PoolConfig::new().lanes(1)).expect("a pool");
    let address = |block: &_| manager.backend().as_address().map(|host| host.address(block));
    // The first asks the driver, the others find holes.
    let held: Vec<_> = (1..9)
        .map(|n| {
            let request = Request::new(n * 1000).align(Align::of(1 << (n + 4)));
            let show = |block: &_, span| (address(block), span);
            pool.allocate_and_look(&request, show).expect("fits")
        })
        .collect();
    for (held, (block, span)) in &held {
        assert_eq!(*span, place(held));
        assert_eq!(*block, address(held.binding().block()));
    }
}

#[test]
fn a_look_that_panics_leaves_nothing_allocated() {
    let manager = Manager::with_config(host(16 * MIB), ManagerConfig::default().plain());
    let pool = manager.create_pool(HeapId(0), PoolConfig::new().lanes(1)).expect("a pool");
    for _ in 0..2 {
        let looks = AssertUnwindSafe(|| {
            pool.allocate_and_look(&Request::new(4096), |_, _| panic!("a look that fails"))
        });
        let looked: Result<Result<(_, ()), _>, _> = catch_unwind(looks);
        assert!(looked.is_err());
        assert_eq!(manager.totals().live, 0);
    }
    assert!(pool.allocate(&Request::new(4096)).is_ok());
}

#[test]
fn reports_and_trims_see_a_hole() {
    let manager = whole();
    take(&manager, 4096).free();
    assert_eq!(manager.totals().live, 0);
    manager.validate().expect("sound");
    assert_eq!(manager.trim(), Ok(16 * MIB), "the block is empty, and goes");
}

#[test]
fn another_timeline_gets_it_too() {
    let manager = Manager::with_config(host(16 * MIB), ManagerConfig::default().plain());
    let other = manager.backend().open().expect("one more");
    let on = |timeline| manager.allocate(&Request::new(16 * MIB).on(timeline));
    on(MAIN).expect("fits").free();
    let held = on(other).expect("nobody uses it any more");
    assert!(on(MAIN).is_err(), "and now somebody does");
    drop(held);
    on(MAIN).expect("and back again").free();
}

/// The same work on two strategies, of which one keeps what [`Tlsf::would_come_back`] says would come back.
struct Twins {
    lazy: Tlsf,
    eager: Tlsf,
    live: Vec<(Key, Key)>,
    kept: u64,
    searched: u64,
}

impl Twins {
    fn new() -> Self {
        let (mut lazy, mut eager) = (Tlsf::new(Align::ONE), Tlsf::new(Align::ONE));
        for size in [64 << 10, 1 << 20, 96 << 10] {
            assert_eq!(lazy.add_block(size), eager.add_block(size));
        }
        Self { lazy, eager, live: Vec::new(), kept: 0, searched: 0 }
    }

    fn allocate(&mut self, size: u64) {
        let a = self.lazy.allocate(layout(size), Class::Linear);
        let b = self.eager.allocate(layout(size), Class::Linear);
        assert_eq!(a.map(|grant| grant.span), b.map(|grant| grant.span));
        self.live.extend(a.ok().zip(b.ok()).map(|(a, b)| (a.key, b.key)));
    }

    fn free(&mut self, at: usize) {
        let (a, b) = self.live.swap_remove(at);
        assert_eq!(self.lazy.free(a).expect("live").span, self.eager.free(b).expect("live").span);
    }

    fn free_and_allocate(&mut self, at: usize) {
        let (a, b) = self.live[at];
        let span = self.eager.free(b).expect("live").span;
        let again = self.eager.allocate(layout(span.size), Class::Linear).expect("fits");
        if self.lazy.would_come_back(a) {
            assert_eq!(again.span, span);
            self.live[at].1 = again.key;
            self.kept += 1;
        } else {
            self.lazy.free(a).expect("live");
            let other = self.lazy.allocate(layout(span.size), Class::Linear).expect("fits");
            assert_eq!(other.span, again.span);
            self.live[at] = (other.key, again.key);
            self.searched += 1;
        }
    }
}

fn layout(size: u64) -> Layout {
    Layout::new(size).align(Align::of(256))
}

/// Every span must be the same for ever after.
#[test]
fn what_would_come_back_does_and_leaves_no_trace() {
    // A few sizes often, so that holes share bins; others now and then.
    let few = [256, 512, 4096, 4352, 65_536];
    let (mut kept, mut searched) = (0, 0);
    for seed in 0..40 {
        let (mut random, mut twins) = (Random(seed), Twins::new());
        for _ in 0..4_000 {
            let at = random.index(twins.live.len().max(1));
            match random.below(5) {
                0 | 1 if !twins.live.is_empty() => twins.free(at),
                2 if !twins.live.is_empty() => twins.free_and_allocate(at),
                3 => twins.allocate(256 * (1 + random.below(200))),
                _ => twins.allocate(few[random.index(few.len())]),
            }
        }
        twins.lazy.validate().expect("sound");
        (kept, searched) = (kept + twins.kept, searched + twins.searched);
    }
    assert!(kept > 1_000 && searched > 1_000, "{kept} came back, {searched} were searched for");
}

/// Number of blocks that the driver had got back when an observer heard of each.
#[derive(Debug)]
struct Watcher(Arc<Record<Host>>, Mutex<Vec<u64>>);

impl Observer for Watcher {
    fn observe(&self, event: &Event<'_>) {
        if let Event::ReturnBlock { .. } = event {
            self.1.lock().expect("no panic").push(self.0.calls().of(CallKind::Free));
        }
    }
}

#[test]
fn observers_hear_of_a_block_before_the_driver_has_it() {
    let backend = Arc::new(Record::new(host(16 * MIB)));
    let watcher = Arc::new(Watcher(Arc::clone(&backend), Mutex::default()));
    let config = ManagerConfig::default().plain().observed(watcher.clone());
    let manager = Manager::with_config(Arc::clone(&backend), config);
    for _ in 0..2 {
        manager.allocate(&Request::new(MIB)).expect("fits").free();
        manager.trim().expect("alive");
    }
    assert_eq!(*watcher.1.lock().expect("no panic"), [0, 1]);
    assert_eq!(backend.calls().of(CallKind::Free), 2);
}
