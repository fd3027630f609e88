//! Bugs that were planted by hand and that nothing noticed, one test for each.
use super::before::asked;
use omniheap_core::{
    Backend, BlockOffset, Budget, Class, Decision, ErrorKind, HeapId, HeapKind, Manager,
    ManagerConfig, PoolConfig, Request, TimelineId, Timelines, Transfer,
};
use omniheap_host::{Host, heap};
use omniheap_layers::{Call, CallKind, Verdict};
use std::sync::{Arc, Mutex};

const MAIN: TimelineId = TimelineId::MAIN;
const MIB: u64 = 1 << 20;

fn host(sizes: &[(HeapKind, u64)]) -> Arc<Host> {
    let heaps =
        sizes.iter().fold(Host::builder(), |all, (kind, size)| all.heap(heap(*kind, *size)));
    Arc::new(heaps.open().expect("a host device"))
}

fn device(size: u64) -> Arc<Host> {
    host(&[(HeapKind::Device, size)])
}

fn plain<B: Backend>(backend: B) -> Manager<B> {
    Manager::with_config(backend, ManagerConfig::default().plain())
}

#[test]
fn a_move_runs_after_every_timeline_that_uses_the_bytes() {
    let host = device(64 * MIB);
    let orders = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&orders);
    let manager = plain(asked(&host, move |call| {
        if call.kind == CallKind::Order {
            seen.lock().expect("no panic").extend(call.point.map(|point| point.timeline));
        }
        Verdict::Forward
    }));
    let [own, other] = [(); 2].map(|()| host.open().expect("another timeline"));
    let all: Vec<_> = (0..60)
        .map(|n| {
            let request = Request::new(200_000);
            let request = if n % 2 == 0 { request } else { request.on(own) };
            manager.allocate(&request).expect("fits")
        })
        .collect();
    let kept: Vec<_> = all.into_iter().enumerate().filter(|(n, _)| n % 3 == 0).collect();
    kept.iter().for_each(|(_, one)| one.use_on(other).expect("it is open"));
    let mut pass = manager.begin_defragment(&Budget::new()).expect("alive");
    assert!(pass.moves().len() > 0);
    pass.start().expect("alive");
    let orders = orders.lock().expect("no panic").clone();
    for timeline in [MAIN, own, other] {
        assert!(orders.contains(&timeline), "{timeline:?} is not among {orders:?}");
    }
    pass.commit().expect("alive");
}

#[test]
fn a_resized_secret_is_still_secret() {
    let manager = plain(device(16 * MIB));
    let secret = manager.allocate(&Request::new(100_000).secret()).expect("fits");
    let secret = manager.resize(secret, 200_000).map_err(|refused| refused.error).expect("fits");
    secret.fill(0, 200_000, 0x5E).expect("in range");
    drop(secret);
    let next = manager.allocate(&Request::new(3 * MIB)).expect("fits");
    let mut bytes = vec![0; usize::try_from(3 * MIB).expect("small")];
    next.read(0, &mut bytes).expect("in range");
    assert!(bytes.iter().all(|byte| *byte != 0x5E));
}

#[test]
fn a_paged_pool_keeps_its_minimum_when_it_is_trimmed() {
    let manager = Manager::new(device(1 << 30));
    let config = PoolConfig::new().paged().minimum(8 * MIB);
    let pool = manager.create_pool(HeapId(0), config).expect("valid");
    drop(pool.allocate(&Request::new(16 * MIB)).expect("fits"));
    manager.trim().expect("alive");
    assert_eq!(pool.reserved(), 8 * MIB);
}

#[test]
fn what_shares_the_physical_memory_is_trimmed_for_a_request() {
    let manager = plain(host(&[(HeapKind::Device, 32 * MIB), (HeapKind::Staging, 32 * MIB)]));
    drop(manager.allocate(&Request::new(24 * MIB).heap(HeapId(1))).expect("fits"));
    let other = manager.allocate(&Request::new(24 * MIB).heap(HeapId(0)));
    assert!(other.is_ok(), "{:?}", other.err());
}

#[test]
fn a_dedicated_request_waits_for_memory_that_is_in_use() {
    let host = device(16 * MIB);
    let held = Arc::new(Mutex::new(None));
    let let_go = Arc::clone(&held);
    let manager = plain(asked(&host, move |call| {
        if matches!(call.kind, CallKind::Wait | CallKind::WaitIdle) {
            drop(let_go.lock().expect("no panic").take());
        }
        Verdict::Forward
    }));
    let timeline = host.open().expect("another timeline");
    let first = manager.allocate(&Request::new(12 * MIB).on(timeline)).expect("fits");
    *held.lock().expect("no panic") = Some(host.hold(timeline).expect("it is open"));
    drop(first);
    let second = manager.allocate(&Request::new(12 * MIB).dedicated());
    assert!(second.is_ok(), "{:?}", second.err());
}

#[test]
fn an_owner_that_is_asked_about_a_move_finds_its_new_place_out_of_use() {
    asks_about_places_out_of_use(|_| Verdict::Forward);
    // As a timeline that only another thread may mark.
    asks_about_places_out_of_use(|call| match call.kind {
        CallKind::Mark => Verdict::Refuse(ErrorKind::NoSuchTimeline.into()),
        _ => Verdict::Forward,
    });
}

/// Frees images that a held timeline writes, and moves others to their places; waits let the timeline go.
fn asks_about_places_out_of_use(answer: impl Fn(&Call) -> Verdict + Send + Sync + 'static) {
    let host = device(16 * MIB);
    let held = Arc::new(Mutex::new(None));
    let let_go = Arc::clone(&held);
    let manager = plain(asked(&host, move |call| {
        if matches!(call.kind, CallKind::Wait | CallKind::WaitIdle) {
            drop(let_go.lock().expect("no panic").take());
        }
        answer(call)
    }));
    let kernels = host.open().expect("another timeline");
    let config = PoolConfig::new().block(MIB / 4).lanes(1);
    let pool = manager.create_pool(HeapId(0), config).expect("valid");
    let image = |n: u64| {
        let request = Request::new(MIB / 32).class(Class::Tiled);
        let request = if n.is_multiple_of(3) { request } else { request.on(kernels) };
        (n, pool.allocate(&request).expect("fits"))
    };
    let (kept, freed): (Vec<_>, Vec<_>) =
        (0..32).map(image).partition(|(n, _)| n.is_multiple_of(3));
    *held.lock().expect("no panic") = Some(host.hold(kernels).expect("it is open"));
    freed.iter().for_each(|(_, one)| one.fill(0, one.size(), 1).expect("queued"));
    let written = host.mark(kernels).expect("it is open");
    drop(freed);
    let pass = manager.begin_defragment(&Budget::new()).expect("alive");
    let outcome = pass.run(|planned| {
        assert!(planned.needs_consent());
        assert!(host.reached(kernels).expect("open") >= written, "it is still written");
        Decision::OwnerCopies
    });
    assert!(outcome.expect("alive").moved.moves > 0);
    drop(kept);
}

#[test]
fn freed_bytes_are_poisoned_under_guards() {
    let host = device(16 * MIB);
    let config = ManagerConfig::default().plain().guarded();
    let manager = Manager::with_config(Arc::clone(&host), config);
    let kept = manager.allocate(&Request::new(4096)).expect("fits");
    let freed = manager.allocate(&Request::new(4096)).expect("fits");
    freed.fill(0, 4096, 0x33).expect("in range");
    let offset = freed.binding().span().offset;
    drop(freed);
    assert_eq!(manager.overwrites().expect("guards are on").len(), 0);
    let mut bytes = [0x33; 4096];
    let block = kept.binding();
    let place = BlockOffset { block: block.block(), offset };
    host.read(MAIN, place, &mut bytes).expect("in range");
    assert!(bytes.iter().all(|byte| *byte != 0x33), "what was freed can still be read");
}

#[test]
fn the_largest_hole_is_one_hole() {
    let manager = plain(host(&[(HeapKind::Device, 64 * MIB), (HeapKind::Staging, 64 * MIB)]));
    for heap in [HeapId(0), HeapId(1)] {
        drop(manager.allocate(&Request::new(4 * MIB).heap(heap)).expect("fits"));
    }
    let totals = manager.totals();
    assert!(totals.largest_hole < totals.free_bytes, "{totals:?}");
    let wanted = totals.largest_hole;
    assert!(manager.allocate(&Request::new(wanted).no_grow()).is_ok());
}
