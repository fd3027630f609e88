//! Promises of passes: budgets, decisions, aborts, and allocations that never wait, on host memory.
use core::time::Duration;
use omniheap_core::{
    Align, Allocation, Backend, Background, Budget, Class, Decision, Defragmentation, ErrorKind,
    HeapId, HeapKind, InsideBlock, Limits, Manager, ManagerConfig, MoveOutcome, PoolConfig, Relief,
    Request, Result, Span, Step, TimelineId, Timelines,
};
use omniheap_host::{Config, Host, heap};
use omniheap_layers::{CallKind, Fault, Plan};
use std::sync::{Arc, Mutex};

const MIB: u64 = 1 << 20;
/// Holes of every size, and more blocks than one.
const SIZE: u64 = 64 * MIB;

fn host(change: impl FnOnce(Config) -> Config) -> Host {
    change(Host::builder().heap(heap(HeapKind::Device, SIZE))).open().expect("a host device")
}

fn config() -> ManagerConfig {
    let mut config = ManagerConfig::default();
    config.pool.lanes = Some(1);
    config
}

/// Bytes of one pattern.
const PAGE: usize = 4096;

/// Bytes that differ for every allocation, and every page of it; cheap to make.
fn stamp(id: u64, size: u64) -> Vec<u8> {
    let words = (0..PAGE as u64 / 8).map(|at| id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at);
    let page: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    let mut bytes = page.repeat(usize::try_from(size).expect("small").div_ceil(PAGE));
    for (number, page) in bytes.chunks_mut(PAGE).enumerate() {
        page[8..16].copy_from_slice(&number.to_le_bytes());
    }
    bytes.truncate(usize::try_from(size).expect("small"));
    bytes
}

fn write<B: Backend>(one: &Allocation<B>, id: u64) {
    one.write(0, &stamp(id, one.size())).expect("in range");
}

#[track_caller]
fn check<B: Backend>(one: &Allocation<B>, id: u64) {
    let mut found = vec![0; usize::try_from(one.size()).expect("small")];
    one.read(0, &mut found).expect("in range");
    assert!(found == stamp(id, one.size()), "allocation {id} lost its bytes");
}

type Live<B> = Vec<(u64, Allocation<B>)>;

/// Stamped allocations of mixed sizes with holes between them.
fn scatter<B: Backend>(
    manager: &Manager<B>,
    request: Request<'_>,
    count: u64,
    keep: u64,
) -> Live<B> {
    let all: Live<B> = (0..count)
        .map(|id| {
            let mut request = request;
            request.layout.size = (1 + id * 7 % 16) * 20_000;
            (id, manager.allocate(&request).expect("fits"))
        })
        .collect();
    all.iter().for_each(|(id, one)| write(one, *id));
    all.into_iter().filter(|(id, _)| id % keep == 1).collect()
}

fn place<B: Backend>(one: &Allocation<B>) -> (usize, Span) {
    let binding = one.binding();
    (core::ptr::from_ref(binding.block()).addr(), binding.span())
}

#[track_caller]
fn sound<B: Backend>(manager: &Manager<B>, live: &Live<B>) {
    manager.validate().expect("sound");
    live.iter().for_each(|(id, one)| check(one, *id));
}

/// Managers with blocks and with pages.
fn both() -> [Manager<Host>; 2] {
    let plain = Manager::with_config(host(|host| host), config().plain());
    [plain, Manager::with_config(host(|host| host), config())]
}

#[test]
fn a_pass_returns_memory_and_keeps_every_byte() {
    for manager in both() {
        let live = scatter(&manager, Request::new(1), 200, 3);
        let before = manager.totals();
        let pass = manager.begin_defragment(&Budget::new()).expect("alive");
        assert!(!pass.is_empty());
        let outcome = pass.commit().expect("alive");
        assert!(outcome.moved.moves > 0 && outcome.moved.returned_bytes > 0, "{:?}", outcome.moved);
        let after = manager.totals();
        assert_eq!(before.live_bytes, after.live_bytes);
        assert!(after.reserved_bytes < before.reserved_bytes);
        sound(&manager, &live);
        assert_eq!(manager.report().defragmentation.moves, outcome.moved.moves);
    }
}

#[test]
fn budgets_are_never_exceeded_and_passes_end() {
    for manager in both() {
        let live = scatter(&manager, Request::new(1), 200, 3);
        let (budget, mut passes) = (Budget::new().bytes(3 * MIB).moves(9), 0);
        loop {
            let pass = manager.begin_defragment(&budget).expect("alive");
            let bytes: u64 = pass.moves().map(|one| one.size()).sum();
            assert!(pass.moves().len() <= 9 && bytes <= 3 * MIB, "over the budget");
            if pass.is_empty() {
                break;
            }
            pass.commit().expect("alive");
            passes += 1;
            assert!(passes < 500, "passes do not end");
        }
        assert!(passes > 3, "one pass did it all");
        sound(&manager, &live);
        let none = manager.begin_defragment(&Budget::new().bytes(0)).expect("alive");
        assert!(none.is_empty(), "nothing can be copied for nothing");
    }
}

#[test]
fn a_dropped_pass_changes_nothing_at_any_step() {
    for manager in both() {
        let live = scatter(&manager, Request::new(1), 200, 3);
        let places: Vec<_> = live.iter().map(|(_, one)| place(one)).collect();
        let totals = manager.totals();
        for step in 0..3 {
            let mut pass = manager.begin_defragment(&Budget::new()).expect("alive");
            if step > 0 {
                pass.start().expect("alive");
            }
            while step > 1 && !pass.is_ready().expect("alive") {}
            drop(pass);
            assert_eq!(manager.totals(), totals, "after step {step}");
            assert!(live.iter().map(|(_, one)| place(one)).eq(places.iter().copied()));
            sound(&manager, &live);
        }
        assert_eq!(manager.report().defragmentation.aborted, 3);
        assert!(manager.defragment().expect("alive") > 0, "and a later run works");
        sound(&manager, &live);
    }
}

#[test]
fn owners_decide_move_by_move() {
    let manager = &both()[0];
    let mut live = scatter(manager, Request::new(1), 200, 3);
    let mut pass = manager.begin_defragment(&Budget::new()).expect("alive");
    let planned: Vec<_> = pass.moves().map(|one| (one.allocation(), one.from().span)).collect();
    assert!(planned.len() > 12);
    let mut taken = |which: usize| {
        let at = live.iter().position(|(_, one)| one.id() == planned[which].0).expect("live");
        live.swap_remove(at)
    };
    let [ignored, destroyed, another] = [taken(0), taken(1), taken(2)];
    pass.decide(0, Decision::Ignore).expect("planned");
    assert!(pass.decide(0, Decision::Destroy(another.1)).is_err(), "that is the move of another");
    pass.decide(1, Decision::Destroy(destroyed.1)).expect("planned");
    let refused = |decided: Result<()>| decided.expect_err("refused").kind();
    let none = pass.decide(planned.len(), Decision::Ignore);
    assert_eq!(refused(none), ErrorKind::OutOfRange, "there is no such move");
    pass.start().expect("alive");
    assert_eq!(refused(pass.decide(3, Decision::Ignore)), ErrorKind::Busy, "it has started");
    let outcome = pass.commit().expect("alive");
    assert_eq!(outcome.moves[0], (planned[0].0, MoveOutcome::Stayed));
    assert_eq!(outcome.moves[1], (planned[1].0, MoveOutcome::Freed));
    assert_eq!(outcome.moves[2], (planned[2].0, MoveOutcome::Freed), "whatever the answer was");
    assert!(outcome.moves[3..].iter().all(|(_, one)| *one == MoveOutcome::Moved));
    assert_eq!(place(&ignored.1).1.offset, planned[0].1.offset);
    check(&ignored.1, ignored.0);
    sound(manager, &live);
    assert!(manager.check(planned[1].0).is_err(), "destroyed");
}

#[test]
fn native_objects_are_made_at_the_new_place_before_the_commit() {
    let manager = &both()[0];
    let request = Request::new(1).moved_on_consent();
    let live = scatter(manager, request, 200, 3);
    assert_eq!(
        manager.begin_defragment(&Budget::new()).expect("alive").commit().map(|o| o.moved.moves),
        Ok(0)
    );
    let freed = manager.trim().expect("alive");
    assert_eq!(manager.defragment().expect("alive"), 0, "nobody was asked, {freed} trimmed");
    let mut objects = std::collections::HashMap::new();
    let pass = manager.begin_defragment(&Budget::new()).expect("alive");
    let outcome = pass
        .run(|planned| {
            assert!(planned.needs_consent());
            let to = planned.to();
            let made = (core::ptr::from_ref(to.block).addr(), to.span);
            objects.insert(planned.allocation(), made);
            Decision::Copy
        })
        .expect("alive");
    assert!(outcome.moved.moves > 0);
    for (_, one) in live.iter().filter(|(_, one)| objects.contains_key(&one.id())) {
        assert_eq!(place(one), objects[&one.id()], "the object is where the bytes are");
    }
    sound(manager, &live);
}

#[test]
fn whoever_asks_for_a_place_keeps_it_and_whoever_frees_frees_both() {
    for manager in both() {
        let mut live = scatter(&manager, Request::new(1).name("seen"), 200, 3);
        let mut pass = manager.begin_defragment(&Budget::new()).expect("alive");
        assert!(pass.moves().all(|planned| planned.name() == Some("seen")));
        let ids: Vec<_> = pass.moves().map(|planned| planned.allocation()).collect();
        let find = |live: &Live<Host>, which: usize| {
            live.iter().position(|(_, one)| one.id() == ids[which]).expect("live")
        };
        let before = place(&live[find(&live, 0)].1);
        drop(live.swap_remove(find(&live, 1)));
        pass.start().expect("alive");
        write(&live[find(&live, 2)].1, 7777); // Behind the copy's back.
        let at = find(&live, 2);
        live[at].0 = 7777;
        drop(live.swap_remove(find(&live, 3)));
        let pinned = &live[find(&live, 4)].1;
        let pin = pinned.pin();
        let outcome = pass.commit().expect("alive");
        let outcomes: Vec<_> = outcome.moves[..5].iter().map(|(_, one)| *one).collect();
        let [stayed, freed] = [MoveOutcome::Stayed, MoveOutcome::Freed];
        assert_eq!(outcomes, [stayed, freed, stayed, freed, stayed]);
        drop(pin);
        assert_eq!(place(&live[find(&live, 0)].1), before);
        sound(&manager, &live);
    }
}

#[test]
fn copies_run_behind_the_work_that_is_queued_and_nobody_waits() {
    let device = host(|host| host);
    let line = device.open().expect("a timeline");
    let manager = Manager::with_config(device, config().plain());
    let live = scatter(&manager, Request::new(1).on(line), 120, 3);
    manager.backend().wait_idle().expect("alive");
    manager.retire().expect("alive");
    let hold = manager.backend().hold(line).expect("open");
    live.iter().for_each(|(id, one)| one.fill(0, one.size(), id.to_le_bytes()[0]).expect("queued"));
    let mut pass = manager.begin_defragment(&Budget::new()).expect("alive");
    assert!(!pass.is_empty());
    pass.start().expect("does not wait");
    assert!(!pass.is_ready().expect("alive"), "the fills come first");
    drop(hold);
    assert!(pass.commit().expect("alive").moved.moves > 0);
    for (id, one) in &live {
        let mut found = vec![0; usize::try_from(one.size()).expect("small")];
        one.read(0, &mut found).expect("in range");
        assert!(found.iter().all(|byte| *byte == id.to_le_bytes()[0]), "a fill was lost");
    }
}

#[test]
fn alignment_granularity_and_blocks_that_forbid_copies_inside_are_kept() {
    let strict = |host: Config| {
        host.inside_block(InsideBlock::Forbidden).neighbour_granularity(Align::of(1024))
    };
    let manager = Manager::with_config(host(strict), config().plain());
    let classes = [Class::Linear, Class::Tiled];
    let mut live: Live<Host> = Vec::new();
    for id in 0..300u64 {
        let class = classes[usize::from(id % 5 == 0)];
        let align = Align::of(256 << (id % 4));
        let request = Request::new((1 + id * 7 % 16) * 20_000).class(class).align(align);
        live.push((id, manager.allocate(&request).expect("fits")));
    }
    live.iter().for_each(|(id, one)| write(one, *id));
    let mut live: Live<Host> = live.into_iter().filter(|(id, _)| id % 3 == 1).collect();
    let tiled: Vec<_> =
        live.iter().filter(|(id, _)| id % 5 == 0).map(|(_, one)| place(one)).collect();
    manager.defragment().expect("alive");
    let now: Vec<_> =
        live.iter().filter(|(id, _)| id % 5 == 0).map(|(_, one)| place(one)).collect();
    assert_eq!(tiled, now, "bytes of images are not copied behind their owner's back");
    let pass = manager.begin_defragment(&Budget::new()).expect("alive");
    pass.run(|_| Decision::Copy).expect("alive");
    sound(&manager, &live);
    live.sort_by_key(|(_, one)| {
        let (block, span) = place(one);
        (block, span.offset)
    });
    for pair in live.windows(2) {
        let [(block, first), (other, second)] = [place(&pair[0].1), place(&pair[1].1)];
        let unlike = (pair[0].0 % 5 == 0) != (pair[1].0 % 5 == 0);
        let apart = (first.end() - 1) / 1024 < second.offset / 1024;
        assert!(block != other || !unlike || apart, "unlike neighbours share a granule");
    }
    for (id, one) in &live {
        assert_eq!(place(one).1.offset % (256 << (id % 4)), 0, "misaligned");
    }
}

#[test]
fn a_call_that_fails_at_any_point_aborts_and_loses_nothing() {
    for plain in [true, false] {
        for nth in 0.. {
            let config = if plain { config().plain() } else { config() };
            let manager = Manager::with_config(Fault::new(host(|host| host)), config);
            let live = scatter(&manager, Request::new(1), 90, 3);
            manager.backend().wait_idle().expect("alive");
            manager.backend().inject(Plan::Nth(nth), 0);
            let outcome = manager.begin_defragment(&Budget::new()).and_then(|pass| pass.commit());
            let failed = manager.backend().injected() > 0;
            manager.backend().inject(Plan::Never, 0);
            assert!(failed || outcome.is_ok());
            sound(&manager, &live);
            manager.defragment().expect("well again");
            sound(&manager, &live);
            if !failed {
                assert!(nth > 3, "{nth} calls were seen");
                break;
            }
        }
    }
}

#[test]
fn a_start_that_fails_at_any_point_loses_nothing_whatever_is_called_next() {
    for nth in 0.. {
        let manager = Manager::with_config(Fault::new(host(|host| host)), config().plain());
        let live = scatter(&manager, Request::new(1), 90, 3);
        manager.backend().wait_idle().expect("alive");
        let mut pass = manager.begin_defragment(&Budget::new()).expect("alive");
        assert!(!pass.is_empty());
        manager.backend().inject(Plan::Nth(nth), 0);
        let started = pass.start();
        let failed = manager.backend().injected() > 0;
        manager.backend().inject(Plan::Never, 0);
        assert_eq!(started.is_err(), failed, "{started:?}");
        let _ = pass.commit();
        sound(&manager, &live);
        if !failed {
            assert!(nth > 1, "{nth} calls were seen");
            break;
        }
    }
}

#[test]
fn a_slide_that_fails_half_way_goes_back() {
    for nth in 0..40 {
        // One block and nothing else, so that only sliding over their own bytes makes room.
        let device =
            Host::builder().heap(heap(HeapKind::Device, 16 * MIB)).open().expect("a device");
        let manager = Manager::with_config(Fault::new(device), config().plain());
        let block = PoolConfig::new().block(16 * MIB).lanes(1);
        let pool = manager.create_pool(HeapId(0), block).expect("valid");
        let size = |id: u64| MIB >> (id % 2);
        let all: Live<_> =
            (0..16).map(|id| (id, pool.allocate(&Request::new(size(id))).expect("fits"))).collect();
        all.iter().for_each(|(id, one)| write(one, *id));
        let live: Live<_> = all.into_iter().filter(|(id, _)| id % 2 == 0).collect();
        manager.backend().inject(Plan::Kind(CallKind::Copy, nth), 0);
        let taken = pool.allocate(&Request::new(6 * MIB));
        let failed = manager.backend().injected() > 0;
        manager.backend().inject(Plan::Never, 0);
        assert!(failed != taken.is_ok(), "{taken:?}");
        sound(&manager, &live);
        if !failed {
            assert!(nth > 1, "several copies were made");
            return;
        }
    }
    panic!("a slide takes fewer copies");
}

#[test]
fn the_background_works_in_steps_and_rests() {
    for paged in [false, true] {
        let (device, mut config) = (host(|host| host), config());
        config.pool.paged = paged;
        // Longer than any machine takes: how much is moved must not depend on what copies were measured to take.
        let budget = Budget::new().bytes(2 * MIB).time(Duration::from_secs(3600));
        config.defragmentation =
            Defragmentation::Background(Background::new(budget).between(2, 20));
        let manager = Manager::with_config(device, config);
        let live = scatter(&manager, Request::new(1), 200, 3);
        let (before, mut committed) = (manager.totals(), 0);
        for _ in 0..1_000_000 {
            match manager.step().expect("alive") {
                Step::Committed(outcome) => {
                    assert!(outcome.moved.bytes <= 2 * MIB);
                    committed += outcome.moved.moves;
                }
                Step::UnderWay => std::thread::yield_now(),
                _ => {
                    if committed > 0 {
                        break;
                    }
                }
            }
        }
        let after = manager.totals();
        assert!(committed > 10 && after.reserved_bytes < before.reserved_bytes);
        assert_eq!(manager.step().expect("alive"), Step::Idle, "rests when nothing can be gained");
        sound(&manager, &live);
        assert_eq!(manager.report().defragmentation.moves, committed);
    }
    let off = &both()[0];
    let _live = scatter(off, Request::new(1), 50, 3);
    assert_eq!(off.step().expect("alive"), Step::Idle, "nobody asked for it");
}

#[test]
fn an_allocation_may_outlive_manager_and_pass() {
    let manager = Manager::with_config(host(|host| host), config().plain());
    let live = scatter(&manager, Request::new(1).on(TimelineId::MAIN), 120, 3);
    manager.backend().wait_idle().expect("alive");
    let mut pass = manager.begin_defragment(&Budget::new()).expect("alive");
    pass.start().expect("alive");
    drop(manager);
    assert!(pass.commit().expect("alive").moved.moves > 0);
    live.iter().for_each(|(id, one)| check(one, *id));
}

/// Bytes are a secret's only after the program was asked for memory, and a pass may have begun meanwhile.
#[test]
fn a_secret_that_is_freed_during_a_pass_leaves_nothing_behind() {
    let mut config = config().plain();
    config.pool.block = Some(8 * MIB);
    let manager = Manager::with_config(host(|host| host), config);
    let ask = |size: u64| Request::new(size).on(TimelineId::MAIN);
    let take = |size: u64| manager.allocate(&ask(size)).expect("there is room");
    let (kept, spare) = (take(4 * MIB), Mutex::new(Some(take(4 * MIB))));
    let pass = Arc::new(Mutex::new(None));
    let (own, begun) = (Mutex::new(Some(manager.clone())), Arc::clone(&pass));
    manager.on_pressure(move |_| {
        let Some(manager) = own.lock().expect("no panic").take() else { return Relief::Nothing };
        drop(spare.lock().expect("no panic").take());
        let pass = manager.begin_defragment(&Budget::new()).expect("alive");
        *begun.lock().expect("no panic") = Some(pass);
        Relief::Freed
    });
    manager.set_budget(HeapId(0), Limits { soft: 8 * MIB, hard: SIZE }).expect("soft below hard");
    let secret = manager.allocate(&ask(2 * MIB).secret()).expect("there is room");
    let pass = pass.lock().expect("no panic").take().expect("the program was asked");
    assert!(!pass.is_empty(), "the secret is about to move");
    drop(secret);
    pass.commit().expect("alive");
    manager.retire().expect("alive");
    assert_eq!(manager.report().totals.live, 1);
    drop(kept);
}
