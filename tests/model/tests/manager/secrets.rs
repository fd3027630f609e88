//! Secrets in every kind of memory: while work or their own zeros are on the way, the driver gets nothing back.
use super::before::{Asked, asked};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use omniheap_core::{
    Backend, DriverBudget, ErrorKind, HeapId, HeapKind, Manager, ManagerConfig, PoolConfig,
    Request, TimelineId, Timelines, UserPool,
};
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Verdict};
use std::sync::Arc;

const MAIN: TimelineId = TimelineId::MAIN;
const MIB: u64 = 1 << 20;

/// The timeline that a request names, when it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    Open,
    Unnamed,
    Closed,
}

const HOMES: [Home; 3] = [Home::Open, Home::Unnamed, Home::Closed];

fn host() -> Arc<Host> {
    Arc::new(Host::builder().heap(heap(HeapKind::Device, 64 * MIB)).open().expect("a host device"))
}

/// Frees an allocation while a timeline is held that has its work, or is about to have its zeros. The host device refuses to take
/// back what work still uses, and what was refused is quarantined.
fn free_while_held(config: ManagerConfig, request: Request<'_>, home: Home) -> u64 {
    let host = host();
    let manager = Manager::with_config(Arc::clone(&host), config);
    let line = host.open().expect("another timeline");
    let named = if home == Home::Unnamed { request } else { request.on(line) };
    let one = manager.allocate(&named).expect("there is room");
    one.fill(0, 2 * MIB, 0x5E).expect("in range");
    let held = match home {
        Home::Open => host.hold(line),
        Home::Unnamed => host.hold(MAIN),
        Home::Closed => host.close(line).and_then(|()| host.hold(MAIN)),
    };
    let held = held.expect("open");
    if home == Home::Open {
        one.fill(0, 2 * MIB, 0x5F).expect("submitted, and it waits");
    }
    drop(one);
    manager.trim().expect("alive");
    drop(held);
    host.wait_idle().expect("alive");
    manager.trim().expect("alive");
    manager.validate().expect("sound");
    let (totals, report) = (manager.totals(), manager.report());
    assert_eq!((totals.live, totals.deferred_bytes), (0, 0), "{home:?}");
    assert_eq!(manager.heap_use(HeapId(0)).expect("there").reserved, 0, "{home:?}");
    report.quarantined_bytes
}

#[test]
fn nothing_goes_back_to_the_driver_under_work_or_zeros() {
    let request = Request::new(2 * MIB).heap(HeapId(0));
    let memory = [
        ("shared", request),
        ("dedicated", request.dedicated()),
        ("registrable", request.registrable()),
    ];
    let plain = ManagerConfig::default().plain();
    let configs = [plain.clone(), ManagerConfig::default(), plain.guarded()];
    let mut lost = Vec::new();
    for (config, home) in configs.iter().flat_map(|config| HOMES.map(|home| (config, home))) {
        for (name, request) in memory {
            for (privacy, request) in [("open", request), ("secret", request.secret())] {
                let bytes = free_while_held(config.clone(), request, home);
                if bytes > 0 {
                    lost.push(format!("{privacy}, {name}, {home:?}: {bytes} bytes"));
                }
            }
        }
    }
    assert!(lost.is_empty(), "the driver got back what it still used:\n{}", lost.join("\n"));
}

/// Another thread closes the secret's own timeline between two calls of its end.
#[test]
fn a_secret_is_zeroed_where_its_timeline_is_closed_meanwhile() {
    for kind in [CallKind::Fill, CallKind::Mark] {
        for request in [Request::new(MIB).secret(), Request::new(MIB).secret().dedicated()] {
            let host = host();
            let line = host.open().expect("another timeline");
            let closer = Arc::clone(&host);
            let device = asked(&host, move |call| {
                if call.kind == kind && call.timeline == Some(line) {
                    let _ = closer.close(line);
                }
                Verdict::Forward
            });
            let manager = Manager::with_config(device, ManagerConfig::default().plain());
            drop(manager.allocate(&request.on(line)).expect("there is room"));
            host.wait_idle().expect("alive");
            manager.retire().expect("alive");
            assert_eq!(
                (manager.totals().live, manager.report().quarantined_bytes),
                (0, 0),
                "{kind:?}"
            );
        }
    }
}

/// A timeline that is being closed takes no more work, and still has some.
#[test]
fn a_secret_is_zeroed_where_its_timeline_is_being_closed() {
    for request in [Request::new(MIB).secret(), Request::new(MIB).secret().dedicated()] {
        let host = host();
        let line = host.open().expect("another timeline");
        let held = host.hold(line).expect("open");
        let closer = Arc::clone(&host);
        let device = asked(&host, move |call| {
            if call.kind == CallKind::Fill && call.timeline == Some(line) {
                let closing = Arc::clone(&closer);
                std::thread::spawn(move || closing.close(line));
                while closer.hold(line).is_ok() {
                    std::thread::yield_now();
                }
            }
            Verdict::Forward
        });
        let manager = Manager::with_config(device, ManagerConfig::default().plain());
        drop(manager.allocate(&request.on(line)).expect("there is room"));
        drop(held);
        host.wait_idle().expect("alive");
        manager.retire().expect("alive");
        assert_eq!((manager.totals().live, manager.report().quarantined_bytes), (0, 0));
    }
}

/// A device that may refuse fills, and counts what it gets back with a secret in it.
#[derive(Default)]
struct Forgetful {
    refuses: AtomicBool,
    /// Whether memory has a secret that no fill has reached.
    has_secret: AtomicBool,
    /// Calls that gave memory back while it had one.
    leaks: AtomicU64,
}

fn forgetful(host: &Arc<Host>) -> (Arc<Forgetful>, Asked) {
    let state = Arc::new(Forgetful::default());
    let seen = Arc::clone(&state);
    let device = asked(host, move |call| {
        match call.kind {
            CallKind::Write => seen.has_secret.store(true, Relaxed),
            CallKind::Fill if seen.refuses.load(Relaxed) => {
                return Verdict::Refuse(ErrorKind::Driver.into());
            }
            CallKind::Fill => seen.has_secret.store(false, Relaxed),
            CallKind::Free | CallKind::UnmapPages if seen.has_secret.load(Relaxed) => {
                seen.leaks.fetch_add(1, Relaxed);
            }
            _ => {}
        }
        Verdict::Forward
    });
    (state, device)
}

/// A pool with a secret that was freed while no fill was taken.
fn freed_unzeroed(
    is_paged: bool,
    request: Request<'_>,
) -> (Arc<Host>, Arc<Forgetful>, Manager<Asked>, UserPool<Asked>) {
    let host = host();
    let (state, device) = forgetful(&host);
    let manager = Manager::with_config(device, ManagerConfig::default().plain());
    let mut config = PoolConfig::new().lanes(1);
    config.paged = is_paged;
    let pool = manager.create_pool(HeapId(0), config).expect("a pool");
    let secret = pool.allocate(&request).expect("there is room");
    secret
        .write(0, &vec![0x5E; usize::try_from(request.layout.size).expect("small")])
        .expect("in range");
    state.refuses.store(true, Relaxed);
    drop(secret);
    manager.trim().expect("alive");
    assert_eq!(manager.report().quarantined_bytes, 2 * MIB, "its bytes are nobody's");
    (host, state, manager, pool)
}

/// Kinds of memory that a secret can have in a pool: of pages or not, and what is asked for.
fn kinds() -> [(bool, Request<'static>); 6] {
    let secret = Request::new(2 * MIB).secret();
    let (line, own) = (secret.on(MAIN), secret.dedicated());
    [(false, secret), (true, secret), (true, line), (false, line), (false, own), (true, own)]
}

#[test]
fn a_secret_that_no_fill_reached_is_zeroed_before_its_memory_goes() {
    for (is_paged, request) in kinds() {
        let (host, state, manager, pool) = freed_unzeroed(is_paged, request);
        state.refuses.store(false, Relaxed);
        drop((pool, manager));
        assert_eq!(state.leaks.load(Relaxed), 0, "pages {is_paged}, {request:?}");
        assert_eq!(host.budget(HeapId(0)).expect("there").used, 0, "pages {is_paged}, {request:?}");
    }
}

#[test]
fn a_secret_that_no_fill_reaches_stays_with_the_driver() {
    for (is_paged, request) in kinds() {
        let (host, state, manager, pool) = freed_unzeroed(is_paged, request);
        drop((pool, manager));
        assert_eq!(state.leaks.load(Relaxed), 0, "pages {is_paged}, {request:?}");
        let left = host.budget(HeapId(0)).expect("there").used;
        assert!(left >= 2 * MIB, "pages {is_paged}, {request:?}");
    }
}

#[test]
fn bytes_of_a_secret_serve_again_once_a_fill_reaches_them() {
    for (is_paged, request) in kinds() {
        let (host, state, manager, pool) = freed_unzeroed(is_paged, request);
        state.refuses.store(false, Relaxed);
        manager.trim().expect("alive");
        manager.trim().expect("alive");
        let totals = manager.totals();
        assert_eq!((totals.live, manager.report().quarantined_bytes), (0, 0), "{request:?}");
        manager.validate().expect("sound");
        manager.destroy_pool(pool).map_err(|refused| refused.error).expect("nothing lives");
        manager.trim().expect("alive");
        assert_eq!(state.leaks.load(Relaxed), 0, "pages {is_paged}, {request:?}");
        assert_eq!(host.budget(HeapId(0)).expect("there").used, 0, "pages {is_paged}, {request:?}");
    }
}

/// Its offsets are none of the pages beside it: a fill of those leaves the secret where it is, and they need not stay for it.
#[test]
fn a_secret_in_a_block_of_its_own_has_no_pages() {
    let request = Request::new(8 * MIB).secret().dedicated();
    for heals in [true, false] {
        let host = host();
        let refuses = Arc::new(AtomicBool::new(false));
        let filled = Arc::new(AtomicU64::new(0));
        let (is_refused, fills) = (Arc::clone(&refuses), Arc::clone(&filled));
        let device = asked(&host, move |call| match call.kind {
            CallKind::Fill if is_refused.load(Relaxed) => Verdict::Refuse(ErrorKind::Driver.into()),
            CallKind::Fill => {
                fills.fetch_add(call.size, Relaxed);
                Verdict::Forward
            }
            _ => Verdict::Forward,
        });
        let manager = Manager::with_config(device, ManagerConfig::default().plain());
        let mut config = PoolConfig::new().lanes(1);
        config.paged = true;
        let pool = manager.create_pool(HeapId(0), config).expect("a pool");
        let _beside = pool.allocate(&Request::new(MIB)).expect("there is room");
        let secret = pool.allocate(&request).expect("there is room");
        refuses.store(true, Relaxed);
        drop(secret);
        refuses.store(!heals, Relaxed);
        manager.trim().expect("alive");
        let lost = if heals { 0 } else { 8 * MIB };
        assert_eq!(filled.load(Relaxed), 8 * MIB - lost, "all of it, and nothing else");
        assert_eq!(manager.report().quarantined_bytes, lost);
        manager.validate().expect("sound");
        drop((_beside, pool, manager));
        assert_eq!(host.budget(HeapId(0)).expect("there").used, lost, "the block alone stays");
    }
}
