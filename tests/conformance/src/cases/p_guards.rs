//! P: writes behind the end of allocations, found by guards in all memory.
use super::{kind, place_of, take};
use crate::case::{Case, Need};
use crate::rng::is_all;
use crate::world::{Stack, World, in_heap, pool_of, timelines};
use omniheap_core::{
    Allocation, Backend, Binding, BlockOffset, Budget, Contents, ErrorKind, Layout, Manager,
    Overwrite, Point, PoolConfig, Request, StrategyKind, TimelineId,
};
use omniheap_layers::{CallKind, Plan, Quarantine};
use std::sync::{Arc, Mutex, PoisonError};

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    list! {
        a_byte_behind_the_end_is_found_and_named_in_every_heap proves [128] needs [Transfer];
        a_byte_before_the_end_is_nobodys_business proves [128] needs [Transfer];
        guards_are_looked_at_after_every_use proves [128] needs [Transfer, Timelines, Hold];
        guards_move_with_their_allocations proves [128] needs [Transfer];
        what_is_freed_while_it_moves_is_looked_at proves [128] needs [Transfer];
        what_lives_is_looked_at_on_request_and_named_once proves [128] needs [Transfer];
        whoever_looks_disturbs_nobody proves [128] needs [Transfer];
        guards_stand_behind_every_kind_of_allocation proves [128] needs [Transfer];
        a_guard_that_cannot_be_laid_fails_the_request proves [128] needs [Transfer];
        a_guard_that_cannot_be_looked_at_is_counted proves [128] needs [Transfer, Timelines];
        no_call_that_fails_makes_a_finding proves [128] needs [Transfer];
        without_guards_nothing_is_looked_for proves [128] needs [Transfer];
    }
}

const WRONG: u8 = 0x5A;
const MAIN: TimelineId = TimelineId::MAIN;

/// Sees what is found.
#[derive(Debug, Default)]
struct Told(Mutex<Vec<Overwrite>>);

impl Told {
    fn tell(&self, found: &Overwrite) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(found.clone());
    }

    fn found(&self) -> Vec<Overwrite> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A manager that lays guards, outside the gate, which finds what the case has done.
fn guarded<B: Backend + 'static>(
    world: &World<B>,
    stack: &Stack<B>,
) -> (Manager<Stack<B>>, Arc<Told>) {
    let told = Arc::new(Told::default());
    let listener = Arc::clone(&told);
    let config = world.config().guarded_with(move |found| listener.tell(found));
    (Manager::with_config(Arc::clone(stack), config), told)
}

/// A place inside an allocation or behind it, for calls that the manager would refuse.
fn place<'a, B: Backend + 'static>(
    binding: &'a Binding<'_, Stack<B>>,
    at: u64,
) -> BlockOffset<'a, <Stack<B> as Backend>::Block> {
    BlockOffset { block: binding.block(), offset: binding.span().offset + at }
}

/// Changes one byte by the backend's own calls, and waits until that is done.
fn poke<B: Backend + 'static>(manager: &Manager<Stack<B>>, one: &Allocation<Stack<B>>, at: u64) {
    let align = manager.caps().copy.align;
    let (binding, start) = (one.binding(), align.down(at));
    let mut word = vec![0; usize::try_from(align.get()).expect("small")];
    let transfer = manager.backend().as_transfer().expect("the case needs it");
    transfer.read(MAIN, place(&binding, start), &mut word).expect("a whole word");
    word[usize::try_from(at - start).expect("small")] = WRONG;
    transfer.write(MAIN, place(&binding, start), &word).expect("a whole word");
    manager.backend().wait_idle().expect("alive");
}

/// An allocation's bytes, also where they end inside a word.
fn bytes_of<B: Backend + 'static>(
    manager: &Manager<Stack<B>>,
    one: &Allocation<Stack<B>>,
) -> Vec<u8> {
    let whole = manager.caps().copy.align.up(one.size()).expect("small");
    let mut bytes = vec![WRONG; usize::try_from(whole).expect("small")];
    let transfer = manager.backend().as_transfer().expect("the case needs it");
    transfer.read(MAIN, place(&one.binding(), 0), &mut bytes).expect("whole words");
    bytes.truncate(usize::try_from(one.size()).expect("small"));
    bytes
}

/// Queues a write of the words right behind an allocation whose size is whole words.
fn overrun<B: Backend + 'static>(
    manager: &Manager<Stack<B>>,
    one: &Allocation<Stack<B>>,
    on: TimelineId,
) {
    let words = vec![WRONG; usize::try_from(manager.caps().copy.align.get()).expect("small")];
    let transfer = manager.backend().as_transfer().expect("the case needs it");
    let binding = one.binding();
    transfer.write(on, place(&binding, one.size()), &words).expect("queued");
}

#[track_caller]
fn found<B: Backend>(manager: &Manager<B>) -> Vec<Overwrite> {
    manager.backend().wait_idle().expect("alive");
    manager.retire().expect("alive");
    manager.overwrites().expect("guards are on")
}

fn a_byte_behind_the_end_is_found_and_named_in_every_heap<B: Backend + 'static>(world: &World<B>) {
    for (heap, _) in world.backend().caps().heap_ids() {
        let stack = world.stack();
        let (manager, told) = guarded(world, &stack);
        for (run, (size, distance)) in [(201, 0), (1021, 2), (4001, 15)].into_iter().enumerate() {
            let one = take(&manager, &in_heap(heap, size).name("victim"));
            let neighbour = take(&manager, &in_heap(heap, size).name("neighbour"));
            let id = one.id();
            manager.backend().wait_idle().expect("alive");
            poke(&manager, &one, size + distance);
            drop((one, neighbour));
            let all = found(&manager);
            assert_eq!(all.len(), run + 1, "{all:?}");
            let last = all.last().expect("counted above");
            assert_eq!((last.id, last.name.as_deref()), (id, Some("victim")));
            assert_eq!((last.size, last.heap), (size, heap));
            assert_eq!((last.distance, last.found), (distance, WRONG));
            assert_ne!(last.expected, WRONG);
        }
        assert_eq!(told.found(), found(&manager), "each is told once");
        let report = manager.guard_report();
        assert_eq!((report.overwritten, report.missed), (3, 0), "{report:?}");
        assert!(report.checked >= 6, "{report:?}");
    }
}

fn a_byte_before_the_end_is_nobodys_business<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let (manager, _) = guarded(world, &stack);
    for size in [1, 7, 256, 1021, 70_001] {
        for request in
            [Request::new(size), Request::new(size).zeroed(), Request::new(size).secret()]
        {
            let one = take(&manager, &request);
            manager.backend().wait_idle().expect("alive");
            if request.contents == Contents::Zero {
                assert!(is_all(&bytes_of(&manager, &one), 0), "{size} zeros");
            }
            poke(&manager, &one, size - 1);
        }
    }
    assert_eq!(found(&manager), []);
    assert_eq!(manager.guard_report().checked, 15);
}

fn guards_are_looked_at_after_every_use<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let (manager, told) = guarded(world, &stack);
    let lines = timelines(&stack);
    let (own, other) = (lines.open().expect("one more"), lines.open().expect("one more"));
    let size = world.whole(5000);
    let [first, second, third] = ["own", "other", "after"]
        .map(|name| take(&manager, &Request::new(size).on(own).name(name)));
    manager.backend().wait_idle().expect("alive");
    let held = [world.hold(own), world.hold(other)];
    overrun(&manager, &first, own);
    second.use_on(other).expect("open");
    overrun(&manager, &second, other);
    overrun(&manager, &third, other);
    let epoch = lines.mark(other).expect("open");
    drop((first, second));
    third.free_after(Point { timeline: other, epoch });
    manager.retire().expect("nobody waits");
    assert_eq!(told.found(), [], "nothing has happened yet");
    drop(held);
    let mut names: Vec<_> = found(&manager).into_iter().filter_map(|one| one.name).collect();
    names.sort();
    assert_eq!(names, ["after".into(), "other".into(), "own".into()]);
    manager.trim().expect("alive");
    [own, other].into_iter().for_each(|line| lines.close(line).expect("its work has ended"));
}

fn guards_move_with_their_allocations<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let (manager, _) = guarded(world, &stack);
    let all: Vec<_> = (0..48).map(|_| take(&manager, &Request::new(300_001))).collect();
    manager.backend().wait_idle().expect("alive");
    let live: Vec<_> = all.into_iter().enumerate().filter(|(at, _)| at % 4 == 1).collect();
    let before: Vec<_> = live.iter().map(|(_, one)| place_of(one)).collect();
    manager.defragment().expect("alive");
    let moved = live.iter().zip(&before).filter(|((_, one), old)| place_of(one) != **old);
    let moved = moved.map(|((_, one), _)| one.id()).next_back();
    let pages_moved = manager.report().defragmentation.remapped_bytes > 0;
    assert!(moved.is_some() || pages_moved, "something moves");
    assert_eq!(found(&manager), [], "their guards are with them");
    let victim = live.iter().find(|(_, one)| moved.is_none_or(|id| one.id() == id));
    let (_, victim) = victim.expect("it lives");
    poke(&manager, victim, victim.size());
    let id = victim.id();
    drop(live);
    let ids: Vec<_> = found(&manager).into_iter().map(|one| one.id).collect();
    assert_eq!(ids, [id]);
}

fn what_is_freed_while_it_moves_is_looked_at<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let (manager, _) = guarded(world, &stack);
    let pool = manager.create_pool(world.device_heap(), pool_of(2 << 20)).expect("valid");
    let piece = || pool.allocate(&Request::new((256 << 10) - 16)).expect("fits");
    let mut live: Vec<_> = (0..16).map(|_| piece()).collect();
    let mut at = 0;
    live.retain(|_| {
        at += 1;
        at % 2 == 0
    });
    let mut pass = manager.begin_defragment(&Budget::new()).expect("alive");
    let planned: Vec<_> = pass.moves().map(|planned| planned.allocation()).take(2).collect();
    let mut take_out =
        |id| live.swap_remove(live.iter().position(|one| one.id() == id).expect("live"));
    let [whole, damaged] = [planned[0], planned[1]].map(&mut take_out);
    poke(&manager, &damaged, damaged.size());
    pass.start().expect("alive");
    drop((whole, damaged));
    pass.commit().expect("alive");
    let ids: Vec<_> = found(&manager).into_iter().map(|one| one.id).collect();
    assert_eq!(ids, planned[1..], "once, and only what was damaged");
    assert_eq!(manager.totals().live, 6);
    drop(live);
    assert_eq!(found(&manager).len(), 1);
    manager.destroy_pool(pool).map_err(|refused| refused.error).expect("empty");
}

fn what_lives_is_looked_at_on_request_and_named_once<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let (manager, told) = guarded(world, &stack);
    let requests = [Request::new(333), Request::new(333).on(MAIN), Request::new(333).dedicated()];
    let live = requests.map(|request| take(&manager, &request));
    assert_eq!(found(&manager), []);
    for (count, one) in live.iter().enumerate() {
        poke(&manager, one, one.size());
        assert_eq!(found(&manager).len(), count + 1);
        assert_eq!(found(&manager).last().map(|found| found.id), Some(one.id()));
    }
    drop(live);
    assert_eq!(found(&manager).len(), 3, "their end says nothing new");
    assert_eq!(told.found().len(), 3);
}

fn whoever_looks_disturbs_nobody<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let (manager, told) = guarded(world, &stack);
    let work = |request: Request<'_>| {
        for round in 0..200 {
            let size = world.whole(500 + round * 77);
            let one = take(&manager, &request.layout(Layout::new(size)));
            one.fill(0, size, WRONG).expect("whole words");
        }
    };
    std::thread::scope(|scope| {
        let threads = [Request::new(1), Request::new(1).on(MAIN)];
        let threads = threads.map(|request| scope.spawn(move || work(request)));
        while threads.iter().any(|thread| !thread.is_finished()) {
            manager.overwrites().expect("alive");
            manager.defragment().expect("alive");
        }
    });
    assert_eq!(found(&manager), []);
    assert_eq!((told.found(), manager.totals().live), (Vec::new(), 0));
    let report = manager.guard_report();
    assert_eq!((report.checked, report.missed), (400, 0), "{report:?}");
}

fn guards_stand_behind_every_kind_of_allocation<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let (manager, _) = guarded(world, &stack);
    let heap = world.device_heap();
    let buddies = PoolConfig::new().strategy(StrategyKind::Buddy(256));
    let pool = manager.create_pool(heap, buddies).expect("buddies");
    let size = 1001;
    let large = take(&manager, &Request::new(4096));
    large.fill(0, 4096, WRONG).expect("whole words");
    let kinds = [
        take(&manager, &Request::new(size).zeroed()),
        take(&manager, &Request::new(size).zeroed().on(MAIN)),
        take(&manager, &Request::new(size).secret()),
        take(&manager, &Request::new(size).secret().on(MAIN)),
        take(&manager, &Request::new(size).dedicated()),
        take(&manager, &Request::new(size).dedicated().on(MAIN)),
        take(&manager, &Request::new(size).pinned()),
        pool.allocate(&Request::new(1024)).expect("fits"),
        manager.resize(large, size).expect("fits"),
        manager.resize(take(&manager, &Request::new(64)), size).expect("fits"),
    ];
    assert_eq!(found(&manager), [], "whole");
    kinds.iter().for_each(|one| poke(&manager, one, one.size()));
    let mut ids = kinds.iter().map(Allocation::id).collect::<Vec<_>>();
    drop(kinds);
    for one in found(&manager) {
        assert_eq!((one.distance, one.found), (0, WRONG), "{one:?}");
        ids.retain(|id| *id != one.id);
    }
    assert_eq!(ids, [], "not found");
    manager.destroy_pool(pool).map_err(|refused| refused.error).expect("empty");
}

fn a_guard_that_cannot_be_laid_fails_the_request<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let (manager, _) = guarded(world, &stack);
    let _keeper = take(&manager, &Request::new(256));
    let before = manager.totals().live_bytes;
    for request in [Request::new(1000), Request::new(1000).on(MAIN)] {
        stack.inject(Plan::Kind(CallKind::Fill, 0), 0);
        let why = kind(manager.allocate(&request));
        assert_eq!(stack.injected(), 1, "the fill");
        stack.inject(Plan::Never, 0);
        assert!(why != ErrorKind::Fragmented, "{why:?} is the driver's");
        manager.backend().wait_idle().expect("alive");
        manager.retire().expect("alive");
        assert_eq!(manager.totals().live_bytes, before, "nothing stays");
    }
    assert_eq!(found(&manager), []);
}

fn a_guard_that_cannot_be_looked_at_is_counted<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let (manager, _) = guarded(world, &stack);
    // So that there is room for copies.
    drop(take(&manager, &Request::new(1000).on(MAIN)));
    let one = take(&manager, &Request::new(1000).on(MAIN));
    let place = place_of(&one);
    stack.inject(Plan::Kind(CallKind::Copy, 0), 0);
    drop(one);
    assert_eq!(stack.injected(), 1, "the copy");
    stack.inject(Plan::Never, 0);
    assert_eq!(found(&manager), []);
    assert_eq!(manager.guard_report().missed, 1);
    let next = take(&manager, &Request::new(1000).on(MAIN));
    assert_eq!(place_of(&next), place, "the bytes are free all the same");
}

/// Some of everything that lays guards, moves them and looks at them, whatever fails.
fn session<B: Backend + 'static>(manager: &Manager<Stack<B>>) {
    let one = Request::new(1001);
    let requests = [one, one.on(MAIN), one.zeroed(), one.zeroed().on(MAIN)];
    let others = [one.secret(), one.secret().on(MAIN), one.dedicated(), one.dedicated().on(MAIN)];
    let requests = requests.iter().chain(&others);
    let mut live: Vec<_> = requests.filter_map(|request| manager.allocate(request).ok()).collect();
    if let Some(resized) = live.pop().and_then(|one| manager.resize(one, 4001).ok()) {
        live.push(resized);
    }
    for one in &live {
        let _ = one.use_on(MAIN);
    }
    let _ = manager.defragment();
    let _ = manager.overwrites();
    drop(live);
    let _ = manager.backend().wait_idle();
    let _ = manager.retire();
    let _ = manager.overwrites();
}

/// Calls that guards make.
const CALLS: [CallKind; 10] = [
    CallKind::Fill,
    CallKind::Write,
    CallKind::Read,
    CallKind::Copy,
    CallKind::Mark,
    CallKind::Reached,
    CallKind::Wait,
    CallKind::Order,
    CallKind::Open,
    CallKind::Allocate,
];

fn no_call_that_fails_makes_a_finding<B: Backend + 'static>(world: &World<B>) {
    for (at, kind) in (0..2).flat_map(|at| CALLS.map(|kind| (at, kind))) {
        let stack = world.stack();
        let (manager, told) = guarded(world, &stack);
        stack.inject(Plan::Kind(kind, at), 0);
        session(&manager);
        stack.inject(Plan::Never, 0);
        manager.backend().wait_idle().expect("alive");
        manager.retire().expect("alive");
        manager.validate().expect("sound");
        drop(take(&manager, &Request::new(1001)));
        assert_eq!(manager.overwrites(), Ok(Vec::new()), "call {at} of {kind:?} failed");
        drop(manager);
        assert_eq!(told.found(), [], "call {at} of {kind:?} failed");
        if stack.quarantine() != Quarantine::default() {
            world.forgive(&stack);
        }
    }
}

fn without_guards_nothing_is_looked_for<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let mut config = world.config();
    config.guards = None;
    let manager = world.manager_with(&stack, config);
    let one = take(&manager, &Request::new(1000));
    assert_eq!(kind(manager.overwrites()), ErrorKind::InvalidConfig, "rather than nothing");
    drop(one);
    let calls = stack.inner().calls();
    assert_eq!(calls.of(CallKind::Fill) + calls.of(CallKind::Read) + calls.of(CallKind::Copy), 0);
    assert_eq!(manager.guard_report(), Default::default());
}
