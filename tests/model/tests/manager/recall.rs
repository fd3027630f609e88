//! Promises of a recall: bytes come back to the heap that they were meant for, or stay where they are, on host memory.
use omniheap_core::{
    Allocation, Backend, BlockOffset, Budget, Decision, ErrorKind, HeapId, HeapKind, Limits,
    Manager, ManagerConfig, MoveOutcome, Pass, Reason, Region, Request, SpanState, TimelineId,
};
use omniheap_host::{Host, heap};
use omniheap_layers::{Fault, Plan, Quarantine};
use std::sync::Arc;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const NEAR: HeapId = HeapId(0);
const FAR: HeapId = HeapId(1);
/// Bytes of each heap.
const ROOM: u64 = 16 * MIB;

fn host() -> Host {
    let far = heap(HeapKind::Staging, ROOM).physical(1);
    Host::builder().heap(heap(HeapKind::Device, ROOM)).heap(far).open().expect("a host device")
}

fn config(with_guards: bool) -> ManagerConfig {
    let mut config = ManagerConfig::default();
    config.pool.lanes = Some(1);
    if with_guards { config.guarded() } else { config }
}

/// Managers with blocks and with pages, without guards and with them.
fn managers() -> Vec<Manager<Host>> {
    let both = |guards| [config(guards), config(guards).plain()];
    let all = [false, true].into_iter().flat_map(both);
    all.map(|config| Manager::with_config(host(), config)).collect()
}

/// Bytes that differ for every allocation and repeat at no power of two.
fn bytes(id: u64, size: u64) -> Vec<u8> {
    let some: Vec<u8> = (0..=250).map(|at: u8| at ^ id.to_le_bytes()[0].wrapping_mul(37)).collect();
    some.into_iter().cycle().take(usize::try_from(size).expect("small")).collect()
}

fn write<B: Backend>(one: &Allocation<B>, id: u64) {
    one.write(0, &bytes(id, one.size())).expect("in range");
}

#[track_caller]
fn check<B: Backend>(one: &Allocation<B>, id: u64) {
    let mut found = vec![0; usize::try_from(one.size()).expect("small")];
    one.read(0, &mut found).expect("in range");
    assert!(found == bytes(id, one.size()), "allocation {id} lost its bytes");
}

type Live<B> = Vec<(u64, Allocation<B>)>;

/// Fills the near heap, and has some more allocations spill.
fn spill<B: Backend>(
    manager: &Manager<B>,
    request: Request<'_>,
    sizes: &[u64],
) -> (Vec<Allocation<B>>, Live<B>) {
    let mut near = Vec::new();
    for size in [MIB, 64 * KIB, 4 * KIB] {
        while let Ok(one) = manager.allocate(&Request::new(size)) {
            near.push(one);
        }
    }
    let spilled = (0..).zip(sizes).map(|(id, size)| {
        let mut request = request.may_spill();
        request.layout.size = *size;
        let one = manager.allocate(&request).expect("the far heap has room");
        assert_eq!(one.heap(), FAR);
        write(&one, id);
        (id, one)
    });
    let spilled = spilled.collect();
    (near, spilled)
}

fn begin<B: Backend>(manager: &Manager<B>) -> Pass<B> {
    manager.begin_recall(&Budget::new()).expect("alive")
}

#[track_caller]
fn sound<B: Backend>(manager: &Manager<B>, live: &Live<B>) {
    manager.validate().expect("sound");
    live.iter().for_each(|(id, one)| check(one, *id));
}

/// Frees everything; nothing is left in any heap.
#[track_caller]
fn end<B: Backend>(manager: &Manager<B>, near: Vec<Allocation<B>>, live: Live<B>) {
    drop((near, live));
    manager.backend().wait_idle().expect("alive");
    manager.retire().expect("alive");
    manager.trim().expect("alive");
    manager.validate().expect("sound");
    assert_eq!(manager.totals().live, 0);
    assert_eq!(manager.overwrites().unwrap_or_default(), []);
    manager.trim().expect("alive");
    for heap in [NEAR, FAR] {
        assert_eq!(manager.heap_use(heap).expect("it is there").reserved, 0, "{heap:?}");
    }
}

#[test]
fn what_spilled_comes_back_when_there_is_room() {
    for manager in managers() {
        let (near, live) = spill(&manager, Request::new(1), &[MIB, 300_000, 5000]);
        let ids: Vec<_> = live.iter().map(|(_, one)| one.id()).collect();
        assert!(begin(&manager).is_empty(), "there is no room yet");
        drop(near);
        let plain = manager.begin_defragment(&Budget::new()).expect("alive");
        assert!(
            plain.moves().all(|one| one.to_heap() == one.heap()),
            "only a recall leaves a heap"
        );
        drop(plain);
        let before = manager.totals();
        let pass = begin(&manager);
        let planned = pass.moves().map(|one| (one.size(), one.heap(), one.to_heap()));
        let expected = [MIB, 300_000, 5000].map(|size| (size, FAR, NEAR));
        assert!(planned.eq(expected), "the largest first");
        let outcomes = pass.commit().expect("alive").moves;
        assert!(outcomes.into_iter().eq(ids.iter().map(|id| (*id, MoveOutcome::Moved))));
        assert!(live.iter().all(|(_, one)| one.heap() == NEAR), "where they were meant to be");
        assert!(live.iter().map(|(_, one)| one.id()).eq(ids), "the same names");
        let after = manager.totals();
        assert_eq!((after.live, after.live_bytes), (before.live, before.live_bytes));
        let far = manager.heap_use(FAR).expect("it is there");
        assert_eq!(far.reserved, 0, "emptied blocks went back");
        sound(&manager, &live);
        assert!(begin(&manager).is_empty(), "nothing is left to bring back");
        manager.defragment().expect("alive");
        sound(&manager, &live);
        end(&manager, Vec::new(), live);
    }
}

#[test]
fn reports_and_placements_tell_where_it_is_now() {
    for manager in managers() {
        let (near, live) = spill(&manager, Request::new(1).name("weights"), &[5000]);
        let placed = || live[0].1.placed();
        assert_eq!((placed().region, placed().reason), (Region::Staging, Reason::Spilled));
        drop(near);
        assert_eq!(begin(&manager).commit().expect("alive").moved.moves, 1);
        let decided = manager.explain(&Request::new(5000)).expect("told").placement;
        assert_eq!((placed().region, placed().reason), (decided.region, decided.reason));
        assert_eq!(placed().heap, NEAR);
        live[0].1.set_name("new weights");
        let report = manager.report();
        let spans = |heap| {
            let pools = report.pools.iter().filter(move |pool| pool.heap == heap);
            let spans = pools.flat_map(|pool| &pool.blocks).flat_map(|block| &block.live);
            spans.map(|span| (span.name.as_deref(), span.state)).collect::<Vec<_>>()
        };
        assert_eq!(spans(FAR), []);
        assert_eq!(spans(NEAR), [(Some("new weights"), SpanState::Pinned)]);
        end(&manager, Vec::new(), live);
    }
}

#[test]
fn a_recall_dropped_at_any_step_changes_nothing() {
    for manager in managers() {
        let (mut near, live) = spill(&manager, Request::new(1), &[MIB, 200_000, 7777, 5000]);
        near.truncate(8);
        manager.trim().expect("alive");
        let (totals, held) = (manager.totals(), manager.heap_use(NEAR));
        for step in 0..3 {
            let mut pass = begin(&manager);
            assert_eq!(pass.moves().len(), 4);
            if step > 0 {
                pass.decide(0, Decision::Ignore).expect("planned");
                pass.start().expect("alive");
            }
            while step > 1 && !pass.is_ready().expect("alive") {}
            drop(pass);
            let now = manager.totals();
            assert_eq!(
                (now.live_bytes, now.reserved_bytes),
                (totals.live_bytes, totals.reserved_bytes),
                "step {step}"
            );
            assert_eq!(
                manager.heap_use(NEAR).map(|held| held.reserved),
                held.map(|held| held.reserved)
            );
            assert!(live.iter().all(|(_, one)| one.heap() == FAR));
            sound(&manager, &live);
        }
        assert_eq!(begin(&manager).commit().expect("alive").moved.moves, 4, "a later one works");
        sound(&manager, &live);
        end(&manager, near, live);
    }
}

#[test]
fn pins_writes_frees_and_owners_are_heeded() {
    for manager in managers() {
        let (near, mut live) =
            spill(&manager, Request::new(1), &[600, 500, 400, 300, 200, 100].map(|n| n * KIB));
        drop(near);
        let pinned = live[5].1.pin();
        let mut pass = begin(&manager);
        assert_eq!(pass.moves().len(), 5, "what is pinned is not planned");
        pass.decide(0, Decision::Ignore).expect("planned");
        pass.start().expect("alive");
        write(&live[1].1, 77);
        let asked = live[2].1.binding();
        let freed = live[3].1.id();
        drop((asked, pinned));
        live[1].0 = 77;
        live.remove(3).1.free();
        let outcomes: Vec<_> =
            pass.commit().expect("alive").moves.into_iter().map(|(_, one)| one).collect();
        assert_eq!(
            outcomes,
            [
                MoveOutcome::Stayed,
                MoveOutcome::Stayed,
                MoveOutcome::Stayed,
                MoveOutcome::Freed,
                MoveOutcome::Moved
            ]
        );
        assert!(manager.check(freed).is_err(), "gone");
        let heaps: Vec<_> = live.iter().map(|(_, one)| one.heap()).collect();
        assert_eq!(heaps, [FAR, FAR, FAR, NEAR, FAR]);
        sound(&manager, &live);
        assert_eq!(begin(&manager).commit().expect("alive").moved.moves, 4, "the others later");
        sound(&manager, &live);
        end(&manager, Vec::new(), live);
    }
}

#[test]
fn budgets_hold_and_passes_go_on_where_one_ended() {
    for manager in managers() {
        let (near, live) = spill(&manager, Request::new(1), &[64 * KIB; 20]);
        drop(near);
        assert!(manager.begin_recall(&Budget::new().bytes(0)).expect("alive").is_empty());
        let mut left = 20;
        for budget in [Budget::new().moves(3), Budget::new().bytes(300 * KIB), Budget::new()] {
            let moved = manager.begin_recall(&budget).and_then(Pass::commit).expect("alive").moved;
            assert!(moved.moves > 0 && moved.moves <= budget.moves && moved.bytes <= budget.bytes);
            left -= moved.moves;
        }
        assert_eq!(left, 0);
        sound(&manager, &live);
        end(&manager, Vec::new(), live);
    }
}

#[test]
fn the_soft_limit_of_the_heap_is_kept() {
    for manager in managers() {
        let (near, live) = spill(&manager, Request::new(1), &[MIB; 8]);
        drop(near);
        manager.trim().expect("alive");
        manager.set_budget(NEAR, Limits { soft: 5 * MIB, hard: ROOM }).expect("valid");
        while begin(&manager).commit().expect("alive").moved.moves > 0 {}
        let held = manager.heap_use(NEAR).expect("it is there");
        assert!(held.reserved <= 5 * MIB, "{held:?}");
        let back = live.iter().filter(|(_, one)| one.heap() == NEAR).count();
        assert!((1..=5).contains(&back), "{back} came back");
        sound(&manager, &live);
        end(&manager, Vec::new(), live);
    }
}

#[test]
fn a_host_view_is_never_lost() {
    for manager in managers() {
        let (near, live) = spill(&manager, Request::new(1), &[MIB, 70_000]);
        live[0].1.map().expect("host memory").write(0, &bytes(0, MIB)).expect("in range");
        drop(near);
        let moved = begin(&manager).commit().expect("alive").moved;
        assert_eq!(moved.moves, 1, "what was mapped stays");
        assert_eq!((live[0].1.heap(), live[1].1.heap()), (FAR, NEAR));
        live[0].1.map().expect("mapped before, and so again");
        assert_eq!(live[1].1.map().err().map(|error| error.kind()), Some(ErrorKind::NotMappable));
        sound(&manager, &live);
        end(&manager, Vec::new(), live);
    }
}

#[test]
fn what_may_not_move_or_is_where_it_was_asked_for_stays() {
    for manager in managers() {
        let kinds =
            [Request::new(MIB).pinned(), Request::new(MIB).dedicated(), Request::new(MIB).secret()];
        let (near, mut live) = spill(&manager, Request::new(1), &[]);
        live.extend(
            (0..)
                .zip(kinds)
                .map(|(id, kind)| (id, manager.allocate(&kind.may_spill()).expect("room"))),
        );
        live.push((3, manager.allocate(&Request::new(MIB).heap(FAR)).expect("room")));
        live.iter().for_each(|(id, one)| write(one, *id));
        drop(near);
        assert!(begin(&manager).is_empty());
        sound(&manager, &live);
        end(&manager, Vec::new(), live);
    }
}

#[test]
fn resizing_stays_in_the_heap_and_keeps_the_wish() {
    for manager in managers() {
        let (near, mut live) = spill(&manager, Request::new(1), &[MIB, MIB]);
        let (_, one) = live.pop().expect("two");
        let one = manager.resize(one, MIB / 2).map_err(|error| error.error).expect("room");
        assert_eq!(one.heap(), FAR);
        write(&one, 1);
        live.push((1, one));
        drop(near);
        assert_eq!(begin(&manager).commit().expect("alive").moved.moves, 2);
        let (_, one) = live.pop().expect("two");
        let one = manager.resize(one, 2 * MIB).map_err(|error| error.error).expect("room");
        assert_eq!(one.heap(), NEAR);
        let mut found = vec![0; usize::try_from(MIB / 2).expect("small")];
        one.read(0, &mut found).expect("in range");
        assert!(found == bytes(1, MIB / 2));
        drop(one);
        sound(&manager, &live);
        end(&manager, Vec::new(), live);
    }
}

#[test]
fn what_came_back_waits_for_its_timeline_when_it_is_freed() {
    for manager in managers() {
        let timelines = manager.backend().as_timelines().expect("host memory has them");
        let own = timelines.open().expect("one more");
        let (near, mut live) = spill(&manager, Request::new(1).on(own), &[MIB, 70_000]);
        drop(near);
        assert_eq!(begin(&manager).commit().expect("alive").moved.moves, 2);
        sound(&manager, &live);
        let held = manager.backend().hold(own).expect("open");
        let (_, one) = live.pop().expect("two");
        one.fill(0, 4096, 9).expect("queued");
        one.free();
        manager.retire().expect("alive");
        assert_eq!(manager.totals().live, 2, "its fill has not run");
        drop(held);
        timelines
            .wait(omniheap_core::Point { timeline: own, epoch: timelines.mark(own).expect("open") })
            .expect("alive");
        manager.retire().expect("alive");
        assert_eq!(manager.totals().live, 1);
        sound(&manager, &live);
        end(&manager, Vec::new(), live);
    }
}

#[test]
fn where_there_is_one_heap_nothing_can_be_called_back() {
    let one = Host::builder().heap(heap(HeapKind::Device, ROOM)).open().expect("a host device");
    let manager = Manager::new(one);
    let refused = manager.begin_recall(&Budget::new()).map(drop).map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::Unsupported));
}

#[test]
fn a_call_that_fails_at_any_point_aborts_and_loses_nothing() {
    for paged in [true, false] {
        for nth in 0.. {
            let stack = Arc::new(Fault::new(host()));
            let config = config(false);
            let config = if paged { config } else { config.plain() };
            let manager = Manager::with_config(Arc::clone(&stack), config);
            let request = Request::new(1).on(TimelineId::MAIN);
            let (near, live) = spill(&manager, request, &[MIB, 200_000, 5000]);
            drop(near);
            manager.backend().wait_idle().expect("alive");
            manager.trim().expect("alive");
            stack.inject(Plan::Nth(nth), 0);
            let outcome = manager.begin_recall(&Budget::new()).and_then(Pass::commit);
            let failed = stack.injected() > 0;
            stack.inject(Plan::Never, 0);
            if outcome.is_err() {
                assert!(live.iter().all(|(_, one)| one.heap() == FAR), "call {nth}");
            }
            sound(&manager, &live);
            begin(&manager).commit().expect("well again");
            assert!(live.iter().all(|(_, one)| one.heap() == NEAR), "call {nth}");
            sound(&manager, &live);
            if stack.quarantine() == Quarantine::default() {
                end(&manager, Vec::new(), live);
            }
            if !failed {
                assert!(nth > 3, "a recall calls the driver");
                break;
            }
        }
    }
}

#[test]
fn guards_come_along_and_find_who_writes_behind_the_end() {
    for config in [config(true), config(true).plain()] {
        let manager = Manager::with_config(host(), config);
        let (near, live) = spill(&manager, Request::new(1).name("torn"), &[MIB, 5000]);
        drop(near);
        assert_eq!(begin(&manager).commit().expect("alive").moved.moves, 2);
        assert_eq!(manager.overwrites().expect("guarded"), [], "untouched by the move");
        let binding = live[1].1.binding();
        let behind = BlockOffset { block: binding.block(), offset: binding.span().end() + 3 };
        let transfer = manager.backend().as_transfer().expect("host memory");
        transfer.write(TimelineId::MAIN, behind, &[7]).expect("inside the block");
        drop(binding);
        manager.backend().wait_idle().expect("alive");
        drop(live);
        let found = manager.overwrites().expect("guarded");
        let told = found.iter().map(|one| (one.name.as_deref(), one.heap, one.distance, one.size));
        assert!(told.eq([(Some("torn"), NEAR, 3, 5000)]), "{found:?}");
    }
}
