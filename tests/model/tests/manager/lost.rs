//! The cost of refused calls: bytes that something may still use are lost and counted once, and nothing else is.
use super::before::{Asked, asked};
use core::any::Any;
use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use omniheap_core::{
    Align, Allocation, Backend, Budget, Decision, DriverBudget, ErrorKind, HeapId, HeapKind,
    Manager, ManagerConfig, PoolConfig, Request, Sleep, TimelineId, Timelines,
};
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Verdict};
use omniheap_model::Store;
use std::panic::catch_unwind;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

const MAIN: TimelineId = TimelineId::MAIN;
const MIB: u64 = 1 << 20;

fn host() -> Arc<Host> {
    let about = heap(HeapKind::Device, 64 * MIB).page(Some(Align::of(64 << 10)));
    Arc::new(Host::builder().heap(about).open().expect("a host device"))
}

/// A manager over a device that can be told to mark nothing and to wait for nothing any more.
fn lame(host: &Arc<Host>, config: ManagerConfig) -> (Manager<Asked>, Arc<AtomicBool>) {
    let is_lame = Arc::new(AtomicBool::new(false));
    let lame = Arc::clone(&is_lame);
    let device = asked(host, move |call| match call.kind {
        CallKind::Wait | CallKind::WaitIdle | CallKind::Mark | CallKind::Read
            if lame.load(Relaxed) =>
        {
            Verdict::Refuse(ErrorKind::Driver.into())
        }
        _ => Verdict::Forward,
    });
    (Manager::with_config(device, config), is_lame)
}

/// Allocations of half a MiB in blocks of four, of which every third is left: some may move, and some need their owner's consent.
fn scattered(manager: &Manager<Asked>, line: TimelineId) -> Vec<Allocation<Asked>> {
    let pool = PoolConfig::new().block(4 * MIB).lanes(1);
    let pool = manager.create_pool(HeapId(0), pool).expect("valid");
    let ask = |number: u32| {
        let request = Request::new(MIB / 2);
        let request = if number.is_multiple_of(2) { request } else { request.moved_on_consent() };
        let one = pool.allocate(&request).expect("fits");
        one.use_on(line).expect("it is open");
        one
    };
    let all: Vec<_> = (0..24).map(ask).collect();
    all.into_iter().step_by(3).collect()
}

/// `Stale` is what a lane tells itself when its addresses are gone. A driver's own such answer ends the request.
#[test]
fn a_request_ends_where_the_driver_calls_pages_stale() {
    for kind in [CallKind::Create, CallKind::MapPages] {
        let device = asked(&host(), move |call| match call.kind == kind {
            true => Verdict::Refuse(ErrorKind::Stale.into()),
            false => Verdict::Forward,
        });
        let manager = Manager::with_config(device, ManagerConfig::default());
        let pool = manager.create_pool(HeapId(0), PoolConfig::new().sleepable()).expect("pages");
        let error = pool.allocate(&Request::new(MIB)).expect_err("no memory");
        assert_eq!(error.kind(), ErrorKind::Stale, "{kind:?}");
        manager.validate().expect("sound");
    }
}

/// Nobody copies an allocation that its owner did not decide to move, so its new place is free again. Where the owner copies, it cannot
/// follow its copies either.
#[test]
fn a_pass_that_cannot_be_followed_loses_no_place_without_a_copy() {
    for owner_copies in [false, true] {
        let host = host();
        let (manager, is_lame) = lame(&host, ManagerConfig::default().plain());
        let kept = scattered(&manager, MAIN);
        let mut pass = manager.begin_defragment(&Budget::new()).expect("alive");
        let bytes = |consent: bool| -> u64 {
            let moves = pass.moves().filter(|planned| planned.needs_consent() == consent);
            moves.map(|planned| planned.to().span.size).sum()
        };
        let (copied, asked) = (bytes(false), bytes(true));
        assert!(copied > 0 && asked > 0, "{copied} bytes and {asked} bytes");
        let consents: Vec<_> = pass.moves().map(|planned| planned.needs_consent()).collect();
        for (at, _) in consents.iter().enumerate().filter(|(_, asks)| owner_copies && **asks) {
            pass.decide(at, Decision::OwnerCopies).expect("alive");
        }
        pass.start().expect("alive");
        is_lame.store(true, Relaxed);
        drop(pass);
        is_lame.store(false, Relaxed);
        let lost = if owner_copies { copied + asked } else { copied };
        assert_eq!(manager.report().quarantined_bytes, lost);
        manager.validate().expect("sound");
        drop(kept);
        host.wait_idle().expect("alive");
        manager.retire().expect("alive");
        assert_eq!((manager.totals().live, manager.report().quarantined_bytes), (0, lost));
    }
}

/// The work on an allocation cannot be followed when its owner frees it, nor the copy of it when the pass ends.
#[test]
fn what_a_free_and_a_pass_lose_is_lost_once() {
    let host = host();
    let line = host.open().expect("another timeline");
    let (manager, is_lame) = lame(&host, ManagerConfig::default().plain());
    let mut kept = scattered(&manager, line);
    let mut pass = manager.begin_defragment(&Budget::new()).expect("alive");
    let copied: Vec<_> = pass.moves().filter(|planned| !planned.needs_consent()).collect();
    let freed = copied.last().expect("several").allocation();
    let lost: u64 = copied.iter().map(|planned| planned.to().span.size).sum();
    pass.start().expect("alive");
    is_lame.store(true, Relaxed);
    kept.retain(|one| one.id() != freed);
    drop(pass);
    is_lame.store(false, Relaxed);
    assert_eq!(manager.report().quarantined_bytes, lost + MIB / 2, "the places, and one source");
    drop(kept);
}

/// As above, for slides: an allocation is freed while they copy it, and nobody can follow them.
#[test]
fn what_a_free_and_slides_lose_is_lost_once() {
    let host = Host::builder().heap(heap(HeapKind::Device, 16 * MIB)).open();
    let host = Arc::new(host.expect("a host device"));
    let line = host.open().expect("another timeline");
    let freed = Arc::new(Mutex::new(None::<Box<dyn Any + Send>>));
    let (is_lame, free) = (Arc::new(AtomicBool::new(false)), Arc::clone(&freed));
    let lame = Arc::clone(&is_lame);
    let device = asked(&host, move |call| match call.kind {
        CallKind::Copy => {
            lame.store(true, Relaxed);
            let one = free.lock().expect("no panic").take();
            drop(one);
            Verdict::Forward
        }
        CallKind::Wait | CallKind::WaitIdle | CallKind::Mark if lame.load(Relaxed) => {
            Verdict::Refuse(ErrorKind::Driver.into())
        }
        _ => Verdict::Forward,
    });
    let manager = Manager::with_config(device, ManagerConfig::default().plain());
    drop(manager.allocate(&Request::new(16 * MIB)).expect("one block"));
    let below = manager.allocate(&Request::new(4 * MIB)).expect("fits");
    let one = manager.allocate(&Request::new(6 * MIB)).expect("fits");
    one.use_on(line).expect("it is open");
    drop(below);
    *freed.lock().expect("no panic") = Some(Box::new(one));
    assert!(manager.allocate(&Request::new(10 * MIB)).is_err(), "its slides were not followed");
    is_lame.store(false, Relaxed);
    assert_eq!(manager.report().quarantined_bytes, 6 * MIB);
}

/// Its owner is long gone when its guard cannot be looked at.
#[test]
fn what_was_freed_before_it_is_lost_is_counted() {
    let host = host();
    let line = host.open().expect("another timeline");
    let (manager, is_lame) = lame(&host, ManagerConfig::default().plain().guarded());
    let one = manager.allocate(&Request::new(2 * MIB).dedicated()).expect("fits");
    one.use_on(line).expect("it is open");
    let held = host.hold(line).expect("it is open");
    drop(one);
    drop(held);
    host.wait_idle().expect("alive");
    is_lame.store(true, Relaxed);
    manager.retire().expect("its timeline has passed");
    is_lame.store(false, Relaxed);
    assert_eq!(manager.report().quarantined_bytes, 4 * MIB, "its block, guard and all");
}

/// The backend panics while it zeroes one of several secrets: the program catches that, and goes on.
#[test]
fn a_panic_forgets_no_secret() {
    let host = host();
    let (answer, leaks) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (told, leak) = (Arc::clone(&answer), Arc::clone(&leaks));
    let device = asked(&host, move |call| match (call.kind, told.load(Relaxed)) {
        (CallKind::Fill, 1) => Verdict::Refuse(ErrorKind::Driver.into()),
        (CallKind::Fill, 2) => panic!("the driver is broken"),
        (CallKind::Free, 1..) => {
            leak.fetch_add(1, Relaxed);
            Verdict::Forward
        }
        _ => Verdict::Forward,
    });
    let manager = Manager::with_config(device, ManagerConfig::default().plain());
    let secrets = [(); 3].map(|()| manager.allocate(&Request::new(2 * MIB).secret()));
    answer.store(1, Relaxed);
    drop(secrets);
    assert_eq!(manager.report().quarantined_bytes, 6 * MIB, "no fill has reached them");
    answer.store(2, Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| manager.trim())).is_err(), "the panic arrives");
    answer.store(1, Relaxed);
    manager.trim().expect("alive");
    assert_eq!((leaks.load(Relaxed), manager.report().quarantined_bytes), (0, 6 * MIB));
    answer.store(0, Relaxed);
    manager.trim().expect("alive");
    assert_eq!((manager.totals().live, manager.report().quarantined_bytes), (0, 0));
}

/// The backend panics while it ends an allocation, and the program catches that. The free is over: its bytes are lost until a secret
/// among them is zeroed, and a sleep names them.
#[test]
fn a_free_that_panics_is_over() {
    for kind in [CallKind::Fill, CallKind::Mark] {
        let host = host();
        let line = host.open().expect("another timeline");
        let panics = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&panics);
        let device = asked(&host, move |call| {
            assert!(call.kind != kind || !told.load(Relaxed), "the driver is broken");
            Verdict::Forward
        });
        let manager = Manager::with_config(device, ManagerConfig::default());
        let pool = manager.create_pool(HeapId(0), PoolConfig::new().sleepable()).expect("pages");
        let ask = |request: Request<'_>| pool.allocate(&request.on(MAIN)).expect("fits");
        let secret = ask(Request::new(2 * MIB).secret());
        let used = ask(Request::new(MIB).name("used elsewhere"));
        used.use_on(line).expect("it is open");
        panics.store(true, Relaxed);
        let freed = match kind {
            CallKind::Fill => catch_unwind(AssertUnwindSafe(|| drop(secret))),
            _ => catch_unwind(AssertUnwindSafe(|| drop(used))),
        };
        assert!(freed.is_err(), "the panic arrives");
        panics.store(false, Relaxed);
        let lost = if kind == CallKind::Fill { 2 * MIB } else { MIB };
        assert_eq!(manager.report().quarantined_bytes, lost, "{kind:?}");
        let slept = pool.sleep(&Sleep::to(Arc::<Store>::default()));
        match (kind, slept) {
            (CallKind::Fill, slept) => assert!(slept.is_ok(), "zeroed at last: {slept:?}"),
            (_, Ok(_)) => panic!("nobody knows what uses its bytes"),
            (_, Err(error)) => {
                assert_eq!(error.refused()[0].name.as_deref(), Some("used elsewhere"));
            }
        }
        let left = if kind == CallKind::Fill { 0 } else { lost };
        assert_eq!(manager.report().quarantined_bytes, left, "{kind:?}");
        manager.validate().expect("sound");
    }
}

/// The event that comes first when a pool falls asleep while another thread frees a secret.
enum First {
    /// The sleep goes on to what timelines have to do.
    Marked,
    /// The sleep has ended.
    Slept(Result<u64, ErrorKind>),
}

/// The thread that sleeps, once it is known.
type Sleeper = Arc<Mutex<Option<thread::ThreadId>>>;

/// A device whose first fill says that it has begun, and waits. It tells of the marks of the thread that sleeps.
fn halts_in_a_fill(
    host: &Arc<Host>,
    sleeper: &Sleeper,
    entered: Sender<()>,
    released: Receiver<()>,
    first: Sender<First>,
) -> Asked {
    let (is_first, sleeper) = (AtomicBool::new(true), Arc::clone(sleeper));
    let (fill, first) = (Mutex::new((entered, released)), Mutex::new(first));
    asked(host, move |call| {
        let sleeps = *sleeper.lock().expect("no panic") == Some(thread::current().id());
        if call.kind == CallKind::Fill && is_first.swap(false, Relaxed) {
            let (entered, released) = &*fill.lock().expect("no panic");
            entered.send(()).expect("it waits");
            let _ = released.recv();
        } else if call.kind == CallKind::Mark && sleeps {
            let _ = first.lock().expect("no panic").send(First::Marked);
        }
        Verdict::Forward
    })
}

/// A secret is freed, and its zeros are being submitted, when its pool falls asleep: that waits for the free.
#[test]
fn a_sleep_waits_for_a_secret_that_is_being_freed() {
    let host = host();
    let (entered, in_fill) = channel();
    let (go_on, released) = channel();
    let (first, happened) = channel();
    let sleeper = Sleeper::default();
    let device = halts_in_a_fill(&host, &sleeper, entered, released, first.clone());
    let manager = Manager::with_config(device, ManagerConfig::default());
    let pool = manager.create_pool(HeapId(0), PoolConfig::new().sleepable()).expect("pages");
    let secret = pool.allocate(&Request::new(MIB).on(MAIN).secret()).expect("fits");
    thread::scope(|scope| {
        scope.spawn(move || drop(secret));
        in_fill.recv().expect("its zeros come");
        let pool = &pool;
        scope.spawn(move || {
            *sleeper.lock().expect("no panic") = Some(thread::current().id());
            let slept = pool.sleep(&Sleep::to(Arc::<Store>::default()));
            let slept = slept.map(|slept| slept.kept).map_err(|error| error.kind());
            let _ = first.send(First::Slept(slept));
        });
        let early = happened.recv().expect("the sleep goes on, or ends");
        go_on.send(()).expect("it waits");
        assert!(matches!(early, First::Marked), "the sleep did not wait for the free");
        let slept = happened.iter().find_map(|one| match one {
            First::Slept(slept) => Some(slept),
            First::Marked => None,
        });
        assert_eq!(slept, Some(Ok(0)), "nothing stays");
    });
}

/// A look for moves that finds none leaves holes to those who used them.
#[test]
fn a_look_for_slides_that_finds_none_joins_no_holes() {
    let host = host();
    let line = host.open().expect("another timeline");
    let (manager, _) = lame(&host, ManagerConfig::default().plain());
    let pool = PoolConfig::new().block(4 * MIB).maximum(4 * MIB).lanes(1);
    let pool = manager.create_pool(HeapId(0), pool).expect("valid");
    let ask = |bytes, on| pool.allocate(&Request::new(bytes).on(on).pinned()).expect("fits");
    let (own, other, _stays) = (ask(MIB, MAIN), ask(MIB, line), ask(2 * MIB, MAIN));
    let held = [MAIN, line].map(|on| host.hold(on).expect("it is open"));
    drop((own, other));
    manager.defragment().expect("alive");
    let again = pool.allocate(&Request::new(MIB).on(MAIN).no_grow());
    assert!(again.is_ok(), "it used these bytes itself, and waits for nobody: {again:?}");
    drop(held);
}

/// A secret is freed while its pool is copied to a store, the sleep fails, and the backend panics while it zeroes what the secret
/// left. The program catches that: nobody gets the bytes, the driver neither.
#[test]
fn a_panic_of_a_sleep_that_failed_forgets_no_secret() {
    let host = host();
    let (freed, answer) = (Arc::new(Mutex::new(None::<Box<dyn Any + Send>>)), Arc::default());
    let (free, told): (_, Arc<AtomicU64>) = (Arc::clone(&freed), Arc::clone(&answer));
    let device = asked(&host, move |call| match (call.kind, told.load(Relaxed)) {
        (CallKind::Read, 0) => {
            let one = free.lock().expect("no panic").take();
            drop(one);
            told.store(1, Relaxed);
            Verdict::Refuse(ErrorKind::Driver.into())
        }
        (CallKind::Fill, 1) => panic!("the driver is broken"),
        (CallKind::Fill, 2) => Verdict::Refuse(ErrorKind::Driver.into()),
        _ => Verdict::Forward,
    });
    let manager = Manager::with_config(device, ManagerConfig::default().plain());
    let pool = manager.create_pool(HeapId(0), PoolConfig::new().sleepable()).expect("pages");
    let secret = pool.allocate(&Request::new(2 * MIB).on(MAIN).secret()).expect("fits");
    *freed.lock().expect("no panic") = Some(Box::new(secret));
    let slept = catch_unwind(AssertUnwindSafe(|| pool.sleep(&Sleep::to(Arc::<Store>::default()))));
    assert!(slept.is_err(), "the panic arrives");
    answer.store(2, Relaxed);
    drop((pool, manager));
    assert!(host.budget(HeapId(0)).expect("there").used >= 2 * MIB, "it stays with the driver");
}

/// A secret is freed while its pool is copied to a store, and its zeros are being submitted when the pool's memory is to go.
#[test]
fn a_sleep_waits_for_a_secret_that_is_freed_meanwhile() {
    let host = host();
    let freed = Arc::new(Mutex::new(None::<Box<dyn Any + Send>>));
    let (early, happened) = channel();
    let device = {
        let (free, early) = (Arc::clone(&freed), Mutex::new(early));
        let (entered, in_fill) = channel();
        let (entered, in_fill) = (Mutex::new(entered), Mutex::new(in_fill));
        let (go_on, released) = channel();
        let (go_on, released) = (Mutex::new(go_on), Mutex::new(released));
        let freer = Mutex::new(None::<thread::JoinHandle<()>>);
        asked(&host, move |call| {
            let is_freer = thread::current().name() == Some("frees");
            if call.kind == CallKind::Read
                && let Some(one) = free.lock().expect("no panic").take()
            {
                let frees = thread::Builder::new().name(String::from("frees"));
                let frees = frees.spawn(move || drop(one)).expect("a thread");
                *freer.lock().expect("no panic") = Some(frees);
                in_fill.lock().expect("no panic").recv().expect("its zeros come");
            } else if call.kind == CallKind::Fill && is_freer {
                entered.lock().expect("no panic").send(()).expect("it waits");
                // A sleep that goes on says so; one that waits is silent.
                let long = core::time::Duration::from_millis(200);
                let _: Result<(), _> = released.lock().expect("no panic").recv_timeout(long);
            } else if call.kind == CallKind::Fill {
                let _ = early.lock().expect("no panic").send(());
                let _ = go_on.lock().expect("no panic").send(());
            }
            Verdict::Forward
        })
    };
    let manager = Manager::with_config(device, ManagerConfig::default());
    let pool = manager.create_pool(HeapId(0), PoolConfig::new().sleepable()).expect("pages");
    let secret = pool.allocate(&Request::new(MIB).on(MAIN).secret()).expect("fits");
    *freed.lock().expect("no panic") = Some(Box::new(secret));
    let slept = pool.sleep(&Sleep::to(Arc::<Store>::default())).map(|slept| slept.kept);
    assert_eq!(slept.map_err(|error| error.kind()), Ok(0), "nothing stays");
    assert!(happened.try_recv().is_err(), "nothing is zeroed while another thread zeroes it");
}

/// The driver unmaps one of two free spans, and refuses the other: what it has unmapped goes back. `DeviceLost` is believed where the
/// device says so once more.
#[test]
fn a_trim_returns_the_pages_that_were_unmapped() {
    for (kind, is_lost) in
        [(ErrorKind::Driver, false), (ErrorKind::DeviceLost, false), (ErrorKind::DeviceLost, true)]
    {
        let host = host();
        let (unmapped, is_on) = (AtomicU64::new(0), Arc::new(AtomicBool::new(false)));
        let on = Arc::clone(&is_on);
        let device = asked(&host, move |call| match call.kind {
            CallKind::UnmapPages if on.load(Relaxed) && unmapped.fetch_add(1, Relaxed) > 0 => {
                Verdict::Refuse(kind.into())
            }
            CallKind::WaitIdle if on.load(Relaxed) && is_lost => Verdict::Refuse(kind.into()),
            _ => Verdict::Forward,
        });
        let manager = Manager::with_config(device, ManagerConfig::default());
        let mut config = PoolConfig::new().lanes(1);
        config.paged = true;
        let pool = manager.create_pool(HeapId(0), config).expect("a pool");
        let mut all = [(); 4].map(|()| Some(pool.allocate(&Request::new(2 * MIB)).expect("fits")));
        (all[0], all[2]) = (None, None);
        let before = pool.reserved();
        is_on.store(true, Relaxed);
        let trimmed = pool.trim().map_err(|error| error.kind());
        assert_eq!(before - pool.reserved(), 2 * MIB, "{kind:?}");
        assert_eq!(trimmed, if is_lost { Ok(2 * MIB) } else { Err(kind) });
        is_on.store(false, Relaxed);
    }
}
