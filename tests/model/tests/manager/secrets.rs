//! Secrets in every kind of memory: while work or their own zeros are on the way, the driver gets nothing back.
use super::before::asked;
use omniheap_core::{
    Backend, HeapId, HeapKind, Manager, ManagerConfig, Request, TimelineId, Timelines,
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
