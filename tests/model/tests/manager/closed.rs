//! Timelines that were closed, points that never come, marks that another thread must make: nobody else's requests suffer.
use super::before::asked;
use omniheap_core::{
    Allocation, Backend, BlockOffset, Budget, Epoch, Error, ErrorKind, HeapId, HeapKind, Manager,
    ManagerConfig, Point, Request, TimelineId, Timelines, Transfer,
};
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Verdict};
use std::sync::{Arc, Mutex};

const MAIN: TimelineId = TimelineId::MAIN;
const MIB: u64 = 1 << 20;

fn host(size: u64) -> Arc<Host> {
    Arc::new(Host::builder().heap(heap(HeapKind::Device, size)).open().expect("a host device"))
}

fn configs() -> [ManagerConfig; 3] {
    let plain = ManagerConfig::default().plain();
    [plain.clone(), ManagerConfig::default(), plain.guarded()]
}

fn take<B: Backend>(manager: &Manager<B>, request: &Request<'_>) -> Allocation<B> {
    manager.allocate(request).expect("there is room")
}

fn value<B: Backend>(of: &Allocation<B>) -> u8 {
    let mut seen = vec![0; usize::try_from(of.size()).expect("small")];
    of.read(0, &mut seen).expect("in range");
    assert!(seen.iter().all(|byte| *byte == seen[0]), "the bytes are of several writers");
    seen[0]
}

/// All but three of eight allocations on a timeline, which is closed then.
fn leave_holes(manager: &Manager<Arc<Host>>) -> Vec<(u8, Allocation<Arc<Host>>)> {
    let timeline = manager.backend().open().expect("another timeline");
    let fill = |n: u8| {
        let one = take(manager, &Request::new(MIB).on(timeline));
        one.fill(0, MIB, n).expect("in range");
        (n, one)
    };
    let mut live: Vec<_> = (0..8).map(fill).collect();
    live.retain(|(n, _)| ![1, 4, 6].contains(n));
    manager.backend().close(timeline).expect("it is open");
    live
}

#[test]
fn holes_of_a_closed_timeline_are_slid_together_for_others() {
    for config in [ManagerConfig::default(), ManagerConfig::default().plain()] {
        for timeline in [None, Some(MAIN)] {
            let manager = Manager::with_config(host(8 * MIB), config.clone());
            let live = leave_holes(&manager);
            let mut request = Request::new(2 * MIB);
            request.timeline = timeline;
            let large = take(&manager, &request);
            large.fill(0, 2 * MIB, 99).expect("in range");
            live.iter().for_each(|(n, one)| assert_eq!(value(one), *n));
        }
    }
}

#[test]
fn what_lived_on_a_closed_timeline_is_used_on() {
    for config in configs() {
        let manager = Manager::with_config(host(64 * MIB), config);
        let timeline = manager.backend().open().expect("another timeline");
        let one = take(&manager, &Request::new(MIB).on(timeline));
        one.fill(0, MIB, 1).expect("in range");
        manager.backend().close(timeline).expect("it is open");
        assert_eq!(value(&one), 1);
        one.write(0, &[2; 1 << 20]).expect("in range");
        assert_eq!(value(&one), 2);
        one.fill(0, MIB, 3).expect("in range");
        let larger = manager.resize(one, 2 * MIB).map_err(|failed| failed.error).expect("room");
        let mut seen = vec![0; 1 << 20];
        larger.read(0, &mut seen).expect("in range");
        assert_eq!((seen, larger.timeline()), (vec![3; 1 << 20], Some(MAIN)));
        larger.fill(0, 2 * MIB, 4).expect("in range");
        larger.publish().expect("what was written has passed");
        let other = take(&manager, &Request::new(MIB).on(manager.backend().open().expect("open")));
        other.fill(0, MIB, 5).expect("in range");
        manager.backend().close(other.timeline().expect("it has one")).expect("it is open");
        other.publish().expect("what was written has passed");
        assert_eq!((value(&other), value(&larger)), (5, 4));
    }
}

/// A write for a closed timeline, which the manager makes on the main one, is over when the call returns: the bytes may
/// be anyone's then.
#[test]
fn a_write_for_a_closed_timeline_is_over_when_it_returns() {
    let host = host(64 * MIB);
    let manager = Manager::with_config(Arc::clone(&host), ManagerConfig::default().plain());
    let timeline = host.open().expect("another timeline");
    let one = take(&manager, &Request::new(MIB).on(timeline));
    host.close(timeline).expect("it is open");
    one.fill(0, MIB, 1).expect("in range");
    let (reached, marked) = (host.reached(MAIN), host.mark(MAIN));
    assert_eq!(reached.expect("open"), marked.expect("open"));
}

#[test]
fn a_secret_of_a_closed_timeline_is_zeroed() {
    for config in configs() {
        let host = host(64 * MIB);
        let manager = Manager::with_config(Arc::clone(&host), config);
        let timeline = host.open().expect("another timeline");
        let keep = take(&manager, &Request::new(MIB).on(timeline));
        let secret = take(&manager, &Request::new(MIB).on(timeline).secret());
        secret.fill(0, MIB, 0x5e).expect("in range");
        let offset = secret.binding().span().offset;
        let held = keep.binding();
        host.close(timeline).expect("it is open");
        drop(secret);
        assert_eq!(manager.report().quarantined_bytes, 0);
        let mut seen = vec![1; 1 << 20];
        host.read(MAIN, BlockOffset { block: held.block(), offset }, &mut seen).expect("in range");
        assert!(!seen.contains(&0x5e), "the secret is still there");
        drop(held);
        manager.retire().expect("nothing is lost");
        assert_eq!(manager.report().totals.live, 1, "its bytes are free again");
    }
}

fn never(timeline: TimelineId) -> Point {
    Point { timeline, epoch: Epoch(u64::MAX) }
}

#[test]
fn a_point_that_never_comes_keeps_its_own_bytes_and_nothing_else() {
    for config in configs() {
        let host = host(64 * MIB);
        let manager = Manager::with_config(Arc::clone(&host), config);
        take(&manager, &Request::new(16 * MIB)).free_after(never(MAIN));
        let mut live = Vec::new();
        let error = loop {
            match manager.allocate(&Request::new(8 * MIB)) {
                Ok(one) => live.push(one),
                Err(error) => break error,
            }
        };
        assert!(error.kind().is_out_of_memory(), "{error}");
        assert!(live.len() >= 4, "{} were served", live.len());
        assert_eq!(manager.report().totals.deferred_bytes, 16 * MIB);
    }
}

/// Beside a point that never comes, one that does is still waited for.
#[test]
fn a_shortage_waits_for_the_points_that_come() {
    let host = host(16 * MIB);
    let line = host.open().expect("another timeline");
    let held = Arc::new(Mutex::new(Some(host.hold(line).expect("open"))));
    let release = Arc::clone(&held);
    let device = asked(&host, move |call| {
        if call.kind == CallKind::Wait {
            drop(release.lock().expect("nothing panics").take());
        }
        Verdict::Forward
    });
    let manager = Manager::with_config(device, ManagerConfig::default().plain());
    let (a, b) = (take(&manager, &Request::new(8 * MIB)), take(&manager, &Request::new(4 * MIB)));
    a.use_on(line).expect("open");
    drop(a);
    b.free_after(never(line));
    let c = take(&manager, &Request::new(8 * MIB));
    assert_eq!((c.size(), held.lock().expect("nothing panics").is_none()), (8 * MIB, true));
}

/// Some timelines can be marked by one thread only. That another thread cannot does not mean that their work has passed.
#[test]
fn a_timeline_that_cannot_be_marked_here_is_not_closed() {
    let host = host(16 * MIB);
    let line = host.open().expect("another timeline");
    let device = asked(&host, move |call| match call.kind {
        CallKind::Mark if call.timeline == Some(line) => {
            Verdict::Refuse(Error::new(ErrorKind::NoSuchTimeline))
        }
        _ => Verdict::Forward,
    });
    let manager = Manager::with_config(device, ManagerConfig::default().plain());
    let old = take(&manager, &Request::new(12 * MIB).on(line));
    old.fill(0, MIB, 1).expect("in range");
    drop(old);
    assert_eq!(manager.trim(), Ok(0), "it may be in use");
    let refused = manager.allocate(&Request::new(12 * MIB)).err();
    assert!(refused.is_some_and(|error| error.kind().is_out_of_memory()), "for anyone else");
    drop(take(&manager, &Request::new(12 * MIB).on(line)));
    assert_eq!(manager.heap_use(HeapId(0)).expect("there").reserved, 12 * MIB);
}

/// A timeline that another thread closes between the mark and what is done with it.
#[test]
fn a_timeline_may_be_closed_between_a_mark_and_an_order() {
    let host = host(64 * MIB);
    let line = host.open().expect("another timeline");
    let closer = Arc::clone(&host);
    let device = asked(&host, move |call| {
        if call.kind == CallKind::Order && call.point.is_some_and(|point| point.timeline == line) {
            let _ = closer.close(line);
        }
        Verdict::Forward
    });
    let manager = Manager::with_config(device, ManagerConfig::default().plain());
    let all: Vec<_> = (0..60).map(|_| take(&manager, &Request::new(200_000).on(line))).collect();
    let _kept: Vec<_> =
        all.into_iter().enumerate().filter(|(n, _)| n % 3 == 0).map(|(_, one)| one).collect();
    let mut pass = manager.begin_defragment(&Budget::new()).expect("alive");
    assert!(pass.moves().len() > 0);
    pass.start().expect("a closed timeline has passed");
}

#[test]
fn trim_gives_back_what_was_freed_on_a_lost_device() {
    // Of blocks what is live stays. A lost device unmaps no pages: those stay until the manager ends.
    let returned_and_left = [(12, 2), (0, 10), (22, 2)];
    for (config, mibs) in configs().into_iter().zip(returned_and_left) {
        let host = host(64 * MIB);
        let other = host.open().expect("another timeline");
        let manager = Manager::with_config(Arc::clone(&host), config);
        let hold = [MAIN, other].map(|timeline| host.hold(timeline).expect("alive"));
        // Freed behind work that is held: nothing of it may be given out before the device has passed it.
        for timeline in [MAIN, other, MAIN] {
            let one = take(&manager, &Request::new(3 * MIB).on(timeline));
            one.fill(0, 3 * MIB, 7).expect("in range");
        }
        let _kept = take(&manager, &Request::new(MIB).dedicated());
        host.lose();
        drop(hold);
        let returned = manager.trim().expect("a lost device runs nothing");
        let reserved = manager.report().totals.reserved_bytes;
        assert_eq!((returned, reserved), (mibs.0 * MIB, mibs.1 * MIB));
    }
}
