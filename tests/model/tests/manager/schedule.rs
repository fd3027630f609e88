//! Promises of a manager about an installed schedule: places, owned bytes, and deviations that are served and counted.
use super::before::asked;
use core::time::Duration;
use omniheap_core::strategy::{Strategy as _, TakeSpan as _};
use omniheap_core::{
    Align, Allocation, Backend as _, Class, ErrorKind, HeapId, HeapKind, Layout, Limits, Manager,
    Request, Span, TimelineId, Timelines as _,
};
use omniheap_extras::{Deviation, Exact, Installed};
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Verdict};
use omniheap_schedule::{
    Buffer, Problem, Region, Schedule, ScheduleError, ScheduledRegion, ScheduledSpan, place,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

const KIB: u64 = 1 << 10;

fn manager(size: u64) -> Manager<Host> {
    let host = Host::builder().heap(heap(HeapKind::Device, size)).open().expect("a host device");
    Manager::new(host)
}

fn span(offset: u64, size: u64, start: u64, end: u64) -> ScheduledSpan {
    ScheduledSpan { region: 0, span: Span { offset, size }, start, end }
}

fn region(size: u64) -> Vec<ScheduledRegion> {
    vec![ScheduledRegion { heap: None, size }]
}

/// Three places in eight KiB: the third uses the bytes of the first again.
fn three() -> Schedule {
    let spans = vec![span(0, 4 * KIB, 0, 2), span(4 * KIB, 4 * KIB, 1, 3), span(0, 2 * KIB, 2, 4)];
    Schedule::new(region(8 * KIB), spans).expect("a sound schedule")
}

fn ask(size: u64) -> Request<'static> {
    Request::new(size)
}

fn bytes(seed: u64, size: u64) -> Vec<u8> {
    (0..size).map(|at| (seed.wrapping_mul(0x9E37_79B9) ^ at ^ (at >> 8)).to_le_bytes()[0]).collect()
}

fn check(allocation: &Allocation<Host>, seed: u64) {
    let mut seen = vec![0; usize::try_from(allocation.size()).expect("small")];
    allocation.read(0, &mut seen).expect("in range");
    assert!(seen == bytes(seed, allocation.size()), "allocation {seed} lost its bytes");
}

fn offset(allocation: &Allocation<Host>) -> u64 {
    allocation.binding().span().offset
}

#[test]
fn allocations_lie_where_they_were_planned_round_after_round() {
    let manager = manager(1 << 30);
    let installed = Installed::new(&manager, three(), None).expect("it fits");
    let calls = manager.report().driver_calls;
    for round in 0..3 {
        let first = installed.allocate(&ask(4 * KIB)).expect("planned");
        let second = installed.allocate(&ask(4 * KIB)).expect("planned");
        assert_eq!((offset(&first), offset(&second)), (0, 4 * KIB), "round {round}");
        second.write(0, &bytes(round, 4 * KIB)).expect("in range");
        drop(first);
        let third = installed.allocate(&ask(2 * KIB)).expect("planned");
        assert_eq!(offset(&third), 0);
        third.fill(0, 2 * KIB, 0xEE).expect("in range");
        check(&second, round);
    }
    let report = installed.report();
    assert_eq!((report.served, report.rounds, report.last), (9, 3, None));
    assert_eq!(manager.report().driver_calls, calls, "the regions were taken once");
    manager.validate().expect("consistent");
}

#[test]
fn an_extra_request_is_served_elsewhere_and_the_schedule_goes_on() {
    let manager = manager(1 << 30);
    let installed = Installed::new(&manager, three(), None).expect("it fits");
    let first = installed.allocate(&ask(4 * KIB)).expect("planned");
    let extra = installed.allocate(&ask(KIB)).expect("served by the usual pools");
    let second = installed.allocate(&ask(4 * KIB)).expect("planned");
    assert_eq!((offset(&first), offset(&second)), (0, 4 * KIB));
    for (seed, one) in [(1, &first), (2, &extra), (3, &second)] {
        one.write(0, &bytes(seed, one.size())).expect("in range");
    }
    check(&first, 1);
    check(&extra, 2);
    check(&second, 3);
    let report = installed.report();
    assert_eq!((report.served, report.extra), (2, 1));
    assert_eq!(report.last, Some(Deviation::Extra { due: 1, size: KIB }));
}

#[test]
fn a_request_that_was_left_out_is_passed_over() {
    let manager = manager(1 << 30);
    let installed = Installed::new(&manager, three(), None).expect("it fits");
    let third = installed.allocate(&ask(2 * KIB)).expect("the third of the schedule");
    assert_eq!(offset(&third), 0);
    let report = installed.report();
    assert_eq!((report.served, report.skipped, report.rounds), (1, 2, 1));
    assert_eq!(report.last, Some(Deviation::Skipped { due: 0, count: 2 }));
    drop(third);
    let first = installed.allocate(&ask(4 * KIB)).expect("the schedule began anew");
    assert_eq!((offset(&first), installed.report().skipped), (0, 2));
}

#[test]
fn a_late_free_never_shares_bytes() {
    let manager = manager(1 << 30);
    let installed = Installed::new(&manager, three(), None).expect("it fits");
    let first = installed.allocate(&ask(4 * KIB)).expect("planned");
    first.write(0, &bytes(1, 4 * KIB)).expect("in range");
    let _second = installed.allocate(&ask(4 * KIB)).expect("planned");
    let third = installed.allocate(&ask(2 * KIB)).expect("its place is taken, so elsewhere");
    third.fill(0, 2 * KIB, 0xEE).expect("in range");
    check(&first, 1);
    let report = installed.report();
    assert_eq!((report.served, report.occupied), (2, 1));
    assert_eq!(report.last, Some(Deviation::Occupied { due: 2 }));
}

#[test]
fn a_failed_request_leaves_the_schedule_where_it_stood() {
    let manager = manager(1 << 30);
    let installed = Installed::new(&manager, three(), None).expect("it fits");
    let held = manager.totals().reserved_bytes;
    manager.set_budget(HeapId(0), Limits::hard(held)).expect("nothing more");
    let first = installed.allocate(&ask(4 * KIB)).expect("planned");
    let second = installed.allocate(&ask(4 * KIB)).expect("planned");
    let before = installed.report();
    let error = installed.allocate(&ask(2 * KIB)).expect_err("its place is taken, nothing is left");
    assert!(error.kind().is_out_of_memory(), "{error}");
    assert_eq!(installed.report(), before);
    drop(first);
    let third = installed.allocate(&ask(2 * KIB)).expect("its place is free now");
    assert_eq!(offset(&third), 0);
    drop(second);
}

/// While one thread waits for the device to zero its bytes, others get their places, and the report comes.
#[test]
fn nobody_waits_for_the_zeros_of_another_thread() {
    let host = Host::builder().heap(heap(HeapKind::Device, 1 << 30)).open();
    let host = Arc::new(host.expect("a host device"));
    let (waiting, begun) = mpsc::channel();
    let (go_on, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let device = asked(&host, move |call| {
        if call.kind == CallKind::Wait && waiting.send(()).is_ok() {
            let _ = gate.lock().expect("nothing panics").recv();
        }
        Verdict::Forward
    });
    let manager = Manager::new(device);
    let installed = Installed::new(&manager, three(), None).expect("it fits");
    thread::scope(|scope| {
        let zeroed = scope.spawn(|| installed.allocate(&ask(4 * KIB).zeroed()).expect("planned"));
        begun.recv().expect("the zeros are waited for");
        let (done, served) = mpsc::channel();
        let (manager, installed) = (&manager, &installed);
        scope.spawn(move || {
            let second = installed.allocate(&ask(4 * KIB)).expect("planned");
            assert_eq!(manager.report().totals.live, 2);
            let _ = done.send(second.binding().span().offset);
        });
        // Only a build that waits for the other thread comes to the end of this time.
        let offset = served.recv_timeout(Duration::from_secs(60));
        drop(go_on);
        assert_eq!(offset, Ok(4 * KIB), "the next place, without a wait");
        drop(zeroed.join());
    });
    assert_eq!(installed.report().served, 2);
}

/// A place whose zeros failed is due again.
#[test]
fn a_place_that_could_not_be_zeroed_is_due_again() {
    let host = Host::builder().heap(heap(HeapKind::Device, 1 << 30)).open();
    let host = Arc::new(host.expect("a host device"));
    let device = asked(&host, |call| match call.kind {
        CallKind::Fill => Verdict::Refuse(ErrorKind::Driver.into()),
        _ => Verdict::Forward,
    });
    let manager = Manager::new(device);
    let installed = Installed::new(&manager, three(), None).expect("it fits");
    let before = installed.report();
    let error = installed.allocate(&ask(4 * KIB).zeroed()).expect_err("nothing is filled");
    assert_eq!((error.kind(), installed.report()), (ErrorKind::Driver, before));
    let first = installed.allocate(&ask(4 * KIB)).expect("planned");
    assert_eq!(first.binding().span().offset, 0);
}

#[test]
fn what_needs_more_than_bytes_is_extra() {
    let manager = manager(1 << 30);
    let installed = Installed::new(&manager, three(), None).expect("it fits");
    let odd = [
        ask(4 * KIB).dedicated(),
        ask(4 * KIB).on(TimelineId::MAIN),
        ask(4 * KIB).class(Class::Tiled),
        ask(5 * KIB),
    ];
    for request in &odd {
        drop(installed.allocate(request).expect("served by the usual pools"));
    }
    assert_eq!((installed.report().extra, installed.report().served), (4, 0));
}

#[test]
fn restart_begins_anew() {
    let manager = manager(1 << 30);
    let installed = Installed::new(&manager, three(), None).expect("it fits");
    drop(installed.allocate(&ask(4 * KIB)).expect("planned"));
    installed.restart();
    let first = installed.allocate(&ask(4 * KIB)).expect("planned");
    assert_eq!((offset(&first), installed.report().last), (0, None));
}

#[test]
fn names_and_stale_ids_work_as_everywhere() {
    let manager = manager(1 << 30);
    let installed = Installed::new(&manager, three(), None).expect("it fits");
    let first = installed.allocate(&ask(4 * KIB).name("weights")).expect("planned");
    let id = first.id();
    assert_eq!(manager.check(id).expect("live"), 4 * KIB);
    let named = |name: &Option<String>| name.as_deref() == Some("weights");
    let pools = manager.report().pools;
    assert!(pools.iter().flat_map(|p| &p.blocks).flat_map(|b| &b.live).any(|l| named(&l.name)));
    drop(first);
    assert_eq!(manager.check(id).expect_err("freed").kind(), ErrorKind::Stale);
}

#[test]
fn zeros_are_zeros_where_bytes_are_used_again() {
    let manager = manager(1 << 30);
    let installed = Installed::new(&manager, three(), None).expect("it fits");
    let first = installed.allocate(&ask(4 * KIB)).expect("planned");
    first.fill(0, 4 * KIB, 0xEE).expect("in range");
    let _second = installed.allocate(&ask(4 * KIB)).expect("planned");
    drop(first);
    let third = installed.allocate(&ask(2 * KIB).zeroed()).expect("planned");
    let mut seen = vec![1; 2048];
    third.read(0, &mut seen).expect("in range");
    assert_eq!((installed.report().served, seen), (3, vec![0; 2048]));
    let error = installed.allocate(&ask(0)).expect_err("nothing was asked for");
    assert_eq!(error.kind(), ErrorKind::ZeroSize);
}

#[test]
fn bytes_in_use_by_another_timeline_are_not_handed_out() {
    let manager = manager(1 << 30);
    let main = TimelineId::MAIN;
    let other = manager.backend().open().expect("a timeline");
    let installed = Installed::new(&manager, three(), Some(main)).expect("it fits");
    let round = || {
        let first = installed.allocate(&ask(4 * KIB).on(main)).expect("planned");
        let second = installed.allocate(&ask(4 * KIB).on(main)).expect("planned");
        assert_eq!((first.timeline(), offset(&first)), (Some(main), 0));
        first.use_on(other).expect("a known timeline");
        let hold = manager.backend().hold(other).expect("a known timeline");
        drop(first);
        (second, hold)
    };
    let (second, hold) = round();
    let third = installed.allocate(&ask(2 * KIB).on(main)).expect("elsewhere");
    assert_eq!(installed.report().last, Some(Deviation::Occupied { due: 2 }));
    drop((second, third, hold));
    manager.backend().wait_idle().expect("alive");
    let (second, hold) = round();
    drop(hold);
    manager.backend().wait_idle().expect("alive");
    let third = installed.allocate(&ask(2 * KIB).on(main)).expect("planned, since it has passed");
    assert_eq!((offset(&third), installed.report().served), (0, 5));
    drop((second, third));
}

#[test]
fn trimming_keeps_the_regions_and_uninstalling_returns_them() {
    let manager = manager(1 << 30);
    let installed = Installed::new(&manager, three(), None).expect("it fits");
    let held = manager.totals().reserved_bytes;
    assert!(held >= 8 * KIB);
    assert_eq!((manager.trim().expect("alive"), manager.totals().reserved_bytes), (0, held));
    manager.defragment().expect("alive");
    let live = installed.allocate(&ask(4 * KIB)).expect("planned");
    let (installed, error) = installed.uninstall().expect_err("something is live");
    assert_eq!(error.kind(), ErrorKind::Busy);
    drop(live);
    installed.uninstall().map_err(|refused| refused.1).expect("nothing is live");
    assert_eq!(manager.totals().reserved_bytes, 0);
}

#[test]
fn an_allocation_outlives_its_schedule_and_its_manager() {
    let manager = manager(1 << 30);
    let installed = Installed::new(&manager, three(), None).expect("it fits");
    let first = installed.allocate(&ask(4 * KIB)).expect("planned");
    first.write(0, &bytes(1, 4 * KIB)).expect("in range");
    drop((installed, manager));
    check(&first, 1);
}

#[test]
fn a_region_that_cannot_be_held_is_refused_and_nothing_stays() {
    let manager = manager(64 * KIB);
    let two = vec![
        ScheduledRegion { heap: Some(HeapId(0)), size: 8 * KIB },
        ScheduledRegion { heap: Some(HeapId(0)), size: 1 << 30 },
    ];
    let schedule = Schedule::new(two, vec![span(0, KIB, 0, 1)]).expect("a sound schedule");
    let error = Installed::new(&manager, schedule, None).expect_err("larger than the heap");
    assert_eq!(error.kind(), ErrorKind::ExceedsLimit);
    assert_eq!(manager.totals().reserved_bytes, 0);
    let nowhere = vec![ScheduledRegion { heap: Some(HeapId(9)), size: KIB }];
    let schedule = Schedule::new(nowhere, vec![span(0, KIB, 0, 1)]).expect("a sound schedule");
    assert_eq!(
        Installed::new(&manager, schedule, None).expect_err("no heap").kind(),
        ErrorKind::NoSuchHeap
    );
}

#[test]
fn what_cannot_be_handed_out_is_no_schedule() {
    let wrong = |spans| Schedule::new(region(KIB), spans).expect_err("it is wrong");
    assert_eq!(wrong(vec![]), ScheduleError::Empty);
    assert_eq!(wrong(vec![span(0, 0, 0, 1)]), ScheduleError::Nothing { at: 0 });
    assert_eq!(wrong(vec![span(0, 1, 0, 1), span(0, 1, 3, 3)]), ScheduleError::Nothing { at: 1 });
    assert_eq!(wrong(vec![span(KIB, 1, 0, 1)]), ScheduleError::OutOfRegion { at: 0 });
    assert_eq!(wrong(vec![span(u64::MAX, 2, 0, 1)]), ScheduleError::OutOfRegion { at: 0 });
    let elsewhere = ScheduledSpan { region: 1, ..span(0, 1, 0, 1) };
    assert_eq!(wrong(vec![elsewhere]), ScheduleError::OutOfRegion { at: 0 });
}

/// Random small schedules: `Schedule::new` says overlap exactly when two spans of one region meet in bytes and time.
#[test]
fn overlap_is_found_exactly() {
    let mut state = 0x1234_5678_u64;
    let mut random = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut sound, mut wrong) = (0, 0);
    for _ in 0..4000 {
        let regions = vec![region(64)[0]; 2];
        let spans: Vec<_> = (0..2 + random(5))
            .map(|_| {
                let (start, size) = (random(8), 1 + random(16));
                ScheduledSpan {
                    region: usize::try_from(random(2)).expect("small"),
                    ..span(random(48), size, start, start + 1 + random(4))
                }
            })
            .collect();
        let meet = |a: &ScheduledSpan, b: &ScheduledSpan| {
            a.region == b.region && a.span.overlaps(b.span) && a.start < b.end && b.start < a.end
        };
        let clash = (1..spans.len()).any(|b| spans[..b].iter().any(|a| meet(a, &spans[b])));
        match Schedule::new(regions, spans.clone()) {
            Ok(_) => sound += 1,
            Err(ScheduleError::Overlap { first, second }) => {
                assert!(meet(&spans[first], &spans[second]), "{first} and {second} of {spans:?}");
                wrong += 1;
            }
            Err(other) => panic!("{other} of {spans:?}"),
        }
        assert_eq!(
            Schedule::new(vec![region(64)[0]; 2], spans.clone()).is_err(),
            clash,
            "{spans:?}"
        );
    }
    assert!(sound > 500 && wrong > 500, "{sound} sound, {wrong} wrong");
}

/// Random programs that keep to nothing: every live allocation keeps its bytes, wherever it came from.
#[test]
fn chaos_keeps_every_byte() {
    let manager = manager(1 << 24);
    let spans = (0..40).map(|n| span((n % 8) * KIB, KIB - 64 * (n % 3), 2 * n, 2 * n + 15));
    let schedule = Schedule::new(region(8 * KIB), spans.collect()).expect("eight places in turns");
    let installed: Installed<Host> = Installed::new(&manager, schedule, None).expect("it fits");
    let mut live: BTreeMap<u64, Allocation<Host>> = BTreeMap::new();
    let mut state = 99_u64;
    for step in 0..5000 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pick = state >> 33;
        if pick.is_multiple_of(2) && live.len() < 12 {
            let size = KIB - 64 * (pick / 2 % 3);
            let one = installed.allocate(&ask(size)).expect("planned or not, there is room");
            one.write(0, &bytes(step, size)).expect("in range");
            live.insert(step, one);
        } else if let Some(&seed) = live.keys().nth(usize::try_from(pick / 2 % 12).expect("small"))
        {
            check(&live[&seed], seed);
            live.remove(&seed);
        }
    }
    let report = installed.report();
    assert!(report.served > 500 && report.occupied > 100 && report.skipped > 100, "{report:?}");
    manager.validate().expect("consistent");
}

#[test]
fn exact_takes_a_span_unless_a_byte_of_it_is_live() {
    for (offset, size) in (0..24).flat_map(|o| (1..10).map(move |s| (o, s))) {
        let mut exact = Exact::new(Align::ONE);
        let block = exact.add_block(24).expect("a block");
        for at in [4, 12] {
            exact.take(block, Span { offset: at, size: 4 }).expect("free");
        }
        let asked = Span { offset, size };
        let clash = [4, 12].iter().any(|&at| asked.overlaps(Span { offset: at, size: 4 }));
        let expected = if offset + size > 24 {
            Some(ErrorKind::OutOfRange)
        } else {
            clash.then_some(ErrorKind::Busy)
        };
        assert_eq!(exact.take(block, asked).err(), expected, "{asked:?}");
        exact.validate().expect("consistent");
    }
}

#[test]
fn exact_takes_no_span_on_a_granule_of_a_tiled_one() {
    let granule = Align::new(8).expect("a power of two");
    let mut exact = Exact::new(granule);
    let block = exact.add_block(48).expect("a block");
    exact.take(block, Span { offset: 0, size: 10 }).expect("free");
    let tiled = exact.allocate(Layout::new(10), Class::Tiled).expect("it fits");
    assert_eq!(tiled.span, Span { offset: 16, size: 10 });
    for (offset, size) in (0..48).flat_map(|o| (1..=48 - o).map(move |s| (o, s))) {
        let mut exact = exact.clone();
        let asked = Span { offset, size };
        let clash = asked.overlaps(Span { offset: 0, size: 10 })
            || asked.overlaps(Span { offset: 16, size: 16 });
        let expected = clash.then_some(ErrorKind::Busy);
        assert_eq!(exact.take(block, asked).err(), expected, "{asked:?}");
    }
}

#[test]
fn buffers_that_never_need_bytes_are_left_out_of_a_schedule() {
    let mut problem = Problem::new(Region::bounded(16));
    problem.push(Buffer::new(16, 0, 4));
    problem.push(Buffer::new(99, 1, 3).gap(1, 3));
    let spots = place(&problem, 100, &|| false).expect("it makes sense");
    let schedule = Schedule::from_spots(&problem, &spots, &[]).expect("the other one fits");
    assert_eq!(schedule.spans().len(), 1);
}
