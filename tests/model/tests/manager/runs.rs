//! Pools of pages that are nearly full: what is free is had to the last page, wherever it lies.
use omniheap_core::{Align, Allocation, Backend, HeapKind, Manager, ManagerConfig, Request, Span};
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Fault, Plan};
use omniheap_model::{Random, sound, stamp};

const PAGE: u64 = 64 << 10;
const HALF: u64 = PAGE / 2;

type Device = Fault<Host>;
type Live = Vec<(u64, Allocation<Device>)>;

fn manager(pages: u64) -> Manager<Device> {
    let mut device = heap(HeapKind::Device, pages * PAGE);
    device.align = Align::of(4 * PAGE);
    device.page = device.page.map(|_| Align::of(PAGE));
    let host = Host::builder().heap(device).open().expect("a device");
    let mut config = ManagerConfig::default();
    config.pool.lanes = Some(1);
    Manager::with_config(Fault::new(host), config)
}

fn stamped(id: u64, one: Allocation<Device>) -> (u64, Allocation<Device>) {
    one.write(0, &stamp(id, one.size())).expect("in range");
    (id, one)
}

/// Eleven pages in three stretches with runs between them. Two pages are free, in five pieces of half a page or less, of
/// which only two can be joined without crossing a run.
fn three_stretches(manager: &Manager<Device>) -> Live {
    let sizes = [3, 6, 3, 1, 6, 3].map(|halves| halves * HALF);
    let ask = |size: u64| manager.allocate(&Request::new(size)).expect("fits");
    let mut live: Vec<_> = (0..).zip(sizes).map(|(id, size)| stamped(id, ask(size))).collect();
    // Two holes of three pages each, of which the four whole ones go behind all others.
    live.retain(|(id, _)| ![1, 4].contains(id));
    live.push(stamped(6, ask(8 * HALF)));
    live
}

fn places(live: &Live) -> Vec<Span> {
    live.iter().map(|(_, one)| one.binding().span()).collect()
}

#[test]
fn the_last_two_pages_are_had_across_runs() {
    let manager = manager(11);
    let mut live = three_stretches(&manager);
    let request = Request::new(4 * HALF);
    live.push(stamped(7, manager.allocate(&request).expect("two pages are free")));
    let totals = manager.totals();
    assert_eq!((totals.live_bytes, totals.reserved_bytes), (11 * PAGE, 11 * PAGE));
    sound(&manager, &live);
    manager.allocate(&Request::new(1)).expect_err("nothing is free");
    sound(&manager, &live);
}

#[test]
fn what_is_pinned_keeps_its_stretch_where_it_is() {
    let manager = manager(11);
    let mut live = three_stretches(&manager);
    let pin = live[2].1.pin();
    let before = places(&live);
    let request = Request::new(4 * HALF);
    assert!(manager.allocate(&request).is_err(), "the second stretch cannot touch the first");
    assert_eq!(places(&live)[2], before[2]);
    sound(&manager, &live);
    drop(pin);
    live.push(stamped(7, manager.allocate(&request).expect("two pages are free")));
    sound(&manager, &live);
}

#[test]
fn a_call_that_fails_at_any_point_loses_nothing() {
    fails_at_any_point(Plan::Nth);
}

#[test]
fn a_driver_that_recovers_soon_loses_nothing() {
    // Unmapped pages are mapped again, insistently.
    fails_at_any_point(|at| Plan::NthThenOk { at, times: 5 });
}

#[test]
fn a_driver_that_refuses_for_ever_loses_nothing() {
    // Pages are mapped at their new place before the old mapping goes.
    for nth in 0.. {
        let manager = manager(11);
        let mut live = three_stretches(&manager);
        manager.backend().wait_idle().expect("alive");
        manager.backend().inject(Plan::From(nth), 0);
        let taken = manager.allocate(&Request::new(4 * HALF));
        let failed = manager.backend().injected() > 0;
        manager.backend().inject(Plan::Never, 0);
        sound(&manager, &live);
        live.extend(taken.ok().map(|one| stamped(7, one)));
        sound(&manager, &live);
        if !failed {
            return;
        }
    }
}

fn fails_at_any_point(plan: impl Fn(u64) -> Plan) {
    for nth in 0.. {
        let manager = manager(11);
        let mut live = three_stretches(&manager);
        manager.backend().wait_idle().expect("alive");
        manager.backend().inject(plan(nth), 0);
        let taken = manager.allocate(&Request::new(4 * HALF));
        let failed = manager.backend().injected() > 0;
        // Memory that the driver does not take back is its own.
        let kept = manager.backend().first_injected() == Some(CallKind::Destroy);
        manager.backend().inject(Plan::Never, 0);
        assert!(failed || taken.is_ok());
        live.extend(taken.ok().map(|one| stamped(7, one)));
        sound(&manager, &live);
        if live.len() == 5 && !kept {
            live.push(stamped(7, manager.allocate(&Request::new(4 * HALF)).expect("well again")));
            sound(&manager, &live);
        }
        if !failed {
            assert!(nth > 10, "{nth} calls were seen");
            return;
        }
    }
}

fn any_size(random: &mut Random) -> u64 {
    let most = PAGE >> random.below(6) << random.below(4);
    (1 + random.below(most)).next_multiple_of(256)
}

#[test]
fn no_request_fails_that_leaves_a_page_free() {
    const PAGES: u64 = 64;
    for seed in 0..3 {
        let (manager, mut random, mut live) = (manager(PAGES), Random(seed), Live::new());
        let mut used = 0;
        for id in 0..400 {
            let size = any_size(&mut random);
            while used + size + PAGE > PAGES * PAGE {
                let at = usize::try_from(random.below(live.len() as u64)).expect("small");
                let (_, one) = live.swap_remove(at);
                used -= one.size();
            }
            let one = manager.allocate(&Request::new(size)).unwrap_or_else(|error| {
                panic!("seed {seed}, request {id}: {size} of {}: {error}", PAGES * PAGE - used)
            });
            used += size;
            live.push(stamped(id, one));
        }
        sound(&manager, &live);
    }
}

#[test]
fn what_is_aligned_to_more_than_a_page_stays_aligned() {
    const PAGES: u64 = 64;
    let wide = |id: u64| Align::of(if id.is_multiple_of(8) { 4 * PAGE } else { 1 });
    let (manager, mut random, mut live) = (manager(PAGES), Random(9), Live::new());
    for id in 0..400 {
        let request = Request::new(any_size(&mut random)).align(wide(id));
        // A request that finds no room after the strict ones may fail; what lives is sound in any case.
        live.extend(manager.allocate(&request).ok().map(|one| stamped(id, one)));
        if manager.totals().live_bytes + 2 * PAGE > PAGES * PAGE {
            let at = usize::try_from(random.below(live.len() as u64)).expect("small");
            drop(live.swap_remove(at));
        }
        for (id, one) in &live {
            let offset = one.binding().span().offset;
            assert!(offset.is_multiple_of(wide(*id).get()), "allocation {id} is at {offset}");
        }
    }
    sound(&manager, &live);
}
