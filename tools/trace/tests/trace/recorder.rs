//! Recordings of a manager.

use omniheap_core::{
    Align, Backend, Budget, Limits as CoreLimits, Manager, ManagerConfig, PoolConfig, Request,
    Sleep, StrategyKind, Tag, Wake, Writer,
};
use omniheap_host::Host;
use omniheap_residency::{HostStore, Nothing};
use omniheap_trace::{Backing, Ending, Event, Limits, Op, Recorder, Residence, Rung, Trace};
use std::io::Write;
use std::sync::{Arc, Mutex};

/// Bytes that outlive the recorder that writes them.
#[derive(Clone, Debug, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn trace(&self) -> Trace {
        Trace::read(&self.0.lock().unwrap()[..], &Limits::default()).unwrap()
    }
}

/// Runs `story` on a manager that is recorded, and reads the recording.
fn record(config: ManagerConfig, story: impl FnOnce(&Manager<Host>)) -> Trace {
    let file = Shared::default();
    let recorder = Recorder::new(file.clone());
    let manager = Manager::with_config(Host::new(), config.observed(recorder.clone()));
    story(&manager);
    drop(manager);
    assert_eq!(recorder.lost(), 0);
    recorder.finish().unwrap();
    let trace = file.trace();
    assert_eq!((trace.meta().ending, trace.meta().skipped), (Ending::Complete, 0));
    trace
}

fn count(trace: &Trace, matches: impl Fn(&Op) -> bool) -> usize {
    trace.events().iter().filter(|event| matches(&event.op)).count()
}

#[test]
fn the_figures_of_a_recording_are_those_of_the_manager() {
    for config in [ManagerConfig::default(), ManagerConfig::default().plain()] {
        let (mut peak, mut reserved, mut calls) = (0, 0, 0);
        let trace = record(config, |manager| {
            let mut live = Vec::new();
            for step in 0..2000_u64 {
                live.push(manager.allocate(&Request::new(1 + step * 7919 % 300_000)).unwrap());
                peak = peak.max(manager.totals().live_bytes);
                if live.len() > 40 {
                    drop(live.swap_remove(usize::try_from(step * 31 % 40).unwrap()));
                }
            }
            live.clear();
            manager.trim().unwrap();
            let report = manager.report();
            (reserved, calls) = (report.peak_reserved_bytes, report.driver_calls);
        });
        let summary = trace.summary();
        assert_eq!(summary.peak_live_bytes, peak);
        assert_eq!((summary.allocations, summary.final_live_bytes), (2000, 0));
        assert_eq!(summary.peak_reserved_bytes, reserved);
        assert!(summary.driver_calls <= calls, "mapping is a call too, and not recorded");
        assert_eq!(count(&trace, |op| matches!(op, Op::Bind { .. })), 2000);
    }
}

#[test]
fn names_tags_placements_and_timelines_are_kept() {
    let trace = record(ManagerConfig::default(), |manager| {
        let timelines = manager.backend().as_timelines().unwrap();
        let other = timelines.open().unwrap();
        let weights = Request::new(5000).name("weights").tag(Tag(3)).align(Align::of(512));
        let weights = manager.allocate(&weights).unwrap();
        weights.use_on(other).unwrap();
        let table = manager.allocate(&Request::new(100).writer(Writer::HostPerFrame)).unwrap();
        table.set_name("table");
        drop((weights, table));
        manager.retire().unwrap();
    });
    let ids: Vec<_> = trace
        .events()
        .iter()
        .filter_map(|event| match event.op {
            Op::Allocate { id, align, .. } => Some((id, align.bytes())),
            _ => None,
        })
        .collect();
    let path = |at: usize| trace.labels().path(trace.label_of(ids[at].0));
    assert_eq!((path(0).as_str(), ids[0].1), ("tag 3/weights", Some(512)));
    assert_eq!(path(1), "table");
    let reasons = trace.events().iter().filter_map(|event| match event.op {
        Op::BlockOffset { reason, .. } => Some(trace.labels().text(reason)),
        _ => None,
    });
    assert!(reasons.into_iter().any(|reason| reason.contains("every frame")));
    let uses = count(&trace, |op| matches!(op, Op::Use { stream, .. } if stream.0 > 1));
    assert_eq!(uses, 1);
    // The timeline had to pass before the bytes were anyone's.
    assert_eq!(count(&trace, |op| matches!(op, Op::FreeRequested { .. })), 1);
    assert_eq!(count(&trace, |op| matches!(op, Op::FreeCompleted { .. })), 2);
}

#[test]
fn sleeps_are_recorded_with_where_the_bytes_are() {
    let trace = record(ManagerConfig::default(), |manager| {
        let (heap, _) = manager.caps().heap_ids().next().unwrap();
        let pool = manager.create_pool(heap, PoolConfig::new().sleepable()).unwrap();
        let live = [1 << 20, 2 << 20].map(|size| pool.allocate(&Request::new(size)).unwrap());
        let away = || manager.totals().away_bytes;
        let pinned = live[0].binding();
        pool.sleep(&Sleep::to(HostStore::new())).expect_err("it is bound");
        drop(pinned);
        assert_eq!(away(), 0);
        let [one, other] = live;
        pool.sleep(&Sleep::to(HostStore::new())).unwrap();
        assert_eq!(away(), 3 << 20);
        drop(one);
        assert_eq!(away(), 2 << 20);
        pool.wake(&Wake::all()).unwrap();
        assert_eq!(away(), 0);
        pool.sleep(&Sleep::to(Nothing::new())).unwrap();
        drop(other);
        pool.wake(&Wake::all()).unwrap();
    });
    let held = trace.events().iter().find_map(|event| match event.op {
        Op::Bind { block, .. } => Some(block),
        _ => None,
    });
    let story: Vec<_> = trace
        .events()
        .iter()
        .filter_map(|event| match event.op {
            Op::Reside { block, residence } => Some((Some(block), Some(residence))),
            Op::FreeCompleted { .. } => Some((None, None)),
            _ => None,
        })
        .collect();
    let [awake, host, nothing] =
        [Residence::Device, Residence::Host, Residence::Nothing].map(|place| (held, Some(place)));
    let free = (None, None);
    assert_eq!(story, [host, free, awake, nothing, free, awake]);
}

#[test]
fn host_memory_at_addresses_of_the_device_is_recorded_while_it_is_there() {
    let trace = record(ManagerConfig::default(), |manager| {
        let (heap, _) = manager.caps().heap_ids().next().unwrap();
        let pool = manager.create_pool(heap, PoolConfig::new().sleepable()).unwrap();
        let _live = pool.allocate(&Request::new(80 << 20)).unwrap();
        pool.sleep(&Sleep::to(HostStore::new())).unwrap();
        manager.set_budget(heap, CoreLimits::hard(40 << 20)).unwrap();
        pool.wake(&Wake::all()).expect_err("the budget is smaller");
        pool.wake(&Wake::all().host_mapped(1 << 30)).unwrap();
        assert!(pool.residence().host_mapped >= 40 << 20);
        pool.sleep(&Sleep::to(HostStore::new())).unwrap();
        assert_eq!(pool.residence().host_mapped, 0);
        manager.set_budget(heap, CoreLimits::NONE).unwrap();
        pool.wake(&Wake::all()).unwrap();
    });
    let (mut mapped, mut reserved, mut most) = (0, 0, (0, 0));
    for Event { op, .. } in trace.events() {
        match *op {
            Op::HostPagesTake { bytes, .. } => mapped += bytes,
            Op::HostPagesReturn { bytes, .. } => mapped -= bytes,
            Op::PagesTake { bytes, .. } => reserved += bytes,
            Op::PagesReturn { bytes, .. } => reserved -= bytes,
            _ => {}
        }
        most = most.max((mapped, reserved));
    }
    assert!(most.0 >= 40 << 20 && most.1 <= 40 << 20, "{most:?}");
    assert_eq!(mapped, 0, "the second sleep gave it back");
}

#[test]
fn every_way_to_divide_a_block_is_recorded() {
    for strategy in [StrategyKind::General, StrategyKind::Buddy(256)] {
        let trace = record(ManagerConfig::default(), |manager| {
            let (heap, _) = manager.caps().heap_ids().next().unwrap();
            let config = PoolConfig::new().strategy(strategy);
            let pool = manager.create_pool(heap, config).unwrap();
            let live: Vec<_> =
                (1..50).map(|size| pool.allocate(&Request::new(size * 1000)).unwrap()).collect();
            drop(live);
        });
        assert_eq!(count(&trace, |op| matches!(op, Op::FreeCompleted { .. })), 49);
    }
}

/// Returns all places at the end of a recording, from the recording.
fn places(trace: &Trace) -> Vec<(u64, u64)> {
    let mut places = std::collections::BTreeMap::new();
    for Event { op, .. } in trace.events() {
        match *op {
            Op::Allocate { id, size, .. } => drop(places.insert(id, (0, size))),
            Op::Bind { id, offset, .. } | Op::Move { id, offset, .. } => {
                places.get_mut(&id).unwrap().0 = offset;
            }
            Op::FreeCompleted { id, .. } => drop(places.remove(&id)),
            _ => {}
        }
    }
    let mut places: Vec<_> = places.into_values().collect();
    places.sort_unstable();
    places
}

#[test]
fn moves_and_rungs_and_failures_are_recorded() {
    let file = Shared::default();
    let recorder = Recorder::new(file.clone());
    let config = ManagerConfig::default().plain().observed(recorder.clone());
    let manager = Manager::with_config(Host::new(), config);
    let (heap, _) = manager.caps().heap_ids().next().unwrap();
    let one = PoolConfig::new().block(1 << 20).maximum(1 << 20).lanes(1);
    let pool = manager.create_pool(heap, one).unwrap();
    let mut live: Vec<_> =
        (0..16).map(|_| pool.allocate(&Request::new(64 << 10)).unwrap()).collect();
    let mut at = 0;
    live.retain(|_| {
        at += 1;
        at % 2 == 0
    });
    let large = pool.allocate(&Request::new(256 << 10)).expect("what is live moves together");
    pool.allocate(&Request::new(1 << 20)).expect_err("more than is free");
    recorder.flush();
    let trace = file.trace();
    assert!(count(&trace, |op| matches!(op, Op::Move { .. })) > 0);
    let rung = |wanted: Rung| {
        count(&trace, |op| matches!(op, Op::OutOfMemory { rung, .. } if *rung == wanted))
    };
    assert_eq!((rung(Rung::Defragment), rung(Rung::Failed)), (1, 1));
    assert_eq!(places(&trace), lie(&manager));
    drop((live, large));
}

/// Returns all places, from the manager's report.
fn lie(manager: &Manager<Host>) -> Vec<(u64, u64)> {
    let blocks = manager.report().pools.into_iter().flat_map(|pool| pool.blocks);
    let mut lie: Vec<_> = blocks
        .flat_map(|block| block.live)
        .map(|live| (live.span.offset, live.span.size))
        .collect();
    lie.sort_unstable();
    lie
}

#[test]
fn passes_are_recorded_also_where_owners_free_meanwhile() {
    for config in [ManagerConfig::default(), ManagerConfig::default().plain()] {
        let file = Shared::default();
        let recorder = Recorder::new(file.clone());
        let manager = Manager::with_config(Host::new(), config.observed(recorder.clone()));
        let mut live: Vec<_> = (0..600_u64)
            .map(|step| manager.allocate(&Request::new(256 * (1 + step * 31 % 700))).unwrap())
            .collect();
        let mut at = 0;
        live.retain(|_| {
            at += 1;
            at % 5 == 0
        });
        let mut pass = manager.begin_defragment(&Budget::new()).unwrap();
        assert!(pass.moves().len() > 10);
        pass.start().unwrap();
        live.truncate(live.len() / 2);
        pass.commit().unwrap();
        manager.defragment().unwrap();
        recorder.flush();
        let trace = file.trace();
        assert!(count(&trace, |op| matches!(op, Op::Move { .. })) > 10);
        assert_eq!(places(&trace), lie(&manager));
        drop(live);
    }
}

#[test]
fn a_manager_is_recorded_while_data_moves_under_busy_threads() {
    let config = ManagerConfig::default().plain();
    let trace = record(config, |manager| {
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                scope.spawn(move || {
                    let mut live = Vec::new();
                    for step in 0..1500_u64 {
                        let size = 256 * (1 + (step * 7919 + thread * 104_729) % 900);
                        live.push(manager.allocate(&Request::new(size)).unwrap());
                        if live.len() > 60 {
                            drop(live.swap_remove(usize::try_from(step * 13 % 60).unwrap()));
                        }
                    }
                });
            }
            for _ in 0..40 {
                manager.defragment().unwrap();
            }
        });
    });
    assert_eq!(trace.summary().allocations, 4500);
    assert_eq!(trace.summary().final_live_bytes, 0);
}

#[test]
fn threads_share_a_recorder() {
    let trace = record(ManagerConfig::default(), |manager| {
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                scope.spawn(move || {
                    let mut live = Vec::new();
                    for step in 0..3000_u64 {
                        let size = 1 + (step * 7919 + thread * 104_729) % 70_000;
                        let request = Request::new(size).name("busy");
                        live.push(manager.allocate(&request).unwrap());
                        if live.len() > 20 {
                            drop(live.swap_remove(usize::try_from(step % 20).unwrap()));
                        }
                    }
                });
            }
        });
        manager.defragment().unwrap();
    });
    assert_eq!(trace.summary().allocations, 12_000);
    assert_eq!(trace.summary().final_live_bytes, 0);
}

#[test]
fn pages_count_as_reserved_and_addresses_do_not() {
    let trace = record(ManagerConfig::default(), |manager| {
        drop(manager.allocate(&Request::new(3 << 20)).unwrap());
    });
    let addresses = trace.events().iter().find_map(|event| match event.op {
        Op::BlockAllocate { size, backing: Backing::Pages, .. } => Some(size),
        _ => None,
    });
    assert!(addresses.unwrap() > trace.summary().peak_reserved_bytes);
    assert!(trace.summary().peak_reserved_bytes >= 3 << 20);
    let taken = |op: &Op| match *op {
        Op::PagesTake { bytes, .. } => i128::from(bytes),
        Op::PagesReturn { bytes, .. } => -i128::from(bytes),
        _ => 0,
    };
    assert_eq!(trace.events().iter().map(|event| taken(&event.op)).sum::<i128>(), 0);
}

#[test]
fn a_full_disk_disturbs_nobody_and_is_reported_at_the_end() {
    #[derive(Debug)]
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let recorder = Recorder::new(Full);
    let config = ManagerConfig::default().observed(recorder.clone());
    let manager = Manager::with_config(Host::new(), config);
    drop(manager.allocate(&Request::new(64)).unwrap());
    assert!(recorder.lost() > 0);
    assert_eq!(recorder.finish().unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    recorder.finish().expect("once is enough");
}

#[test]
fn a_file_has_one_recorder_at_a_time() {
    let path = std::env::temp_dir().join(format!("omniheap-alone-{}.trace", std::process::id()));
    let first = Recorder::create(&path).unwrap();
    first.title("the first");
    first.flush();
    let refused = Recorder::create(&path).expect_err("the first still writes");
    assert_eq!(refused.kind(), std::io::ErrorKind::ResourceBusy, "{refused}");
    first.finish().unwrap();
    assert_eq!(Trace::open(&path).unwrap().meta().title, "the first", "nothing was emptied");
    drop(Recorder::create(&path).unwrap());
    let second = Recorder::create(&path).expect("dropped is finished");
    second.finish().unwrap();
    assert_eq!(Trace::open(&path).unwrap().meta().title, "");
    std::fs::remove_file(path).unwrap();
}
