//! Tests of the moves that a pass plans within its budget, of what it leaves, and of one that cannot be followed.
use super::before::{Asked, asked};
use super::{HEAP, KIB, MIB, device, managed, one_lane, plain};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use omniheap_core::{
    Align, Allocation, Backend, Background, Budget, Decision, Defragmentation, ErrorKind, HeapKind,
    InsideBlock, Manager, ManagerConfig, PoolConfig, Request, Span, TimelineId, Timelines, Uses,
};
use omniheap_host::{Host, heap};
use omniheap_layers::{CallKind, Verdict};
use omniheap_model::{Random, sound, stamp};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread;

/// Two allocations live in each page: a page goes with both of them, or stays with both.
#[test]
fn a_page_is_evacuated_whole_or_not_at_all() {
    let page = 64 * KIB;
    let about = heap(HeapKind::Device, 4 * MIB).page(Some(Align::of(page)));
    let which = [[0, 1], [1, 2], [2, 3], [0, 3]];
    for (most, which) in (1..12).flat_map(|most| which.map(|which| (most, which))) {
        let host = Host::builder().heap(about.clone()).open().expect("a host device");
        let manager = managed(host, one_lane(ManagerConfig::default()));
        let ask = |_| manager.allocate(&Request::new(page / 4)).expect("fits");
        let all: Vec<_> = (0..64).map(ask).collect();
        let kept = all.into_iter().enumerate().filter(|(n, _)| which.contains(&(n % 4)));
        let kept: Vec<_> = kept.collect();
        let pass = manager.begin_defragment(&Budget::new().moves(most)).expect("alive");
        let mut pages: HashMap<u64, u64> = HashMap::new();
        for planned in pass.moves() {
            *pages.entry(planned.from().span.offset / page).or_default() += 1;
        }
        assert!(pages.values().all(|moves| *moves == 2), "{most} moves: {pages:?}");
        assert_eq!(pass.moves().len() as u64, most / 2 * 2, "all that the budget allows");
        assert_eq!(pass.commit().expect("alive").moved.returned_bytes, most / 2 * page);
        drop(kept);
    }
}

/// The block that gains most has an allocation above the budget; the next has not.
#[test]
fn a_block_that_no_budget_moves_does_not_keep_others_from_being_emptied() {
    let manager = managed(device(64 * MIB), plain());
    let ask = |size| manager.allocate(&Request::new(size)).expect("fits");
    let large = ask(16 * MIB);
    let mut small: Vec<_> = (0..4).map(|_| ask(MIB)).collect();
    drop(large);
    let _above = ask(2 * MIB);
    small.truncate(1);
    assert_eq!(manager.totals().reserved_bytes, 20 * MIB);
    let pass = manager.begin_defragment(&Budget::new().bytes(MIB)).expect("alive");
    assert_eq!(pass.moves().map(|planned| planned.size()).collect::<Vec<_>>(), [MIB]);
    assert_eq!(pass.commit().expect("alive").moved.returned_bytes, 4 * MIB);
}

/// No hole is as long as anything that lives, so only slides close them.
#[test]
fn a_full_defragmentation_leaves_one_hole_in_each_block() {
    let manager = managed(device(64 * MIB), plain());
    let config = PoolConfig::new().block(4 * MIB).lanes(1);
    let pool = manager.create_pool(HEAP, config).expect("valid");
    let ask = |size| pool.allocate(&Request::new(size)).expect("fits");
    let mut kept = Vec::new();
    let mut gone = Vec::new();
    for _ in 0..4 {
        for _ in 0..2 {
            kept.push(ask(MIB));
            gone.push(ask(MIB / 2));
        }
        kept.push(ask(MIB));
    }
    drop(gone);
    assert_eq!(manager.totals().holes, 8);
    manager.defragment().expect("alive");
    let totals = manager.totals();
    assert_eq!((totals.holes, totals.free_bytes, totals.largest_hole), (4, 4 * MIB, MIB));
}

/// The driver follows nothing any more when the pass is given up: its copies may still be written, so nobody gets these places,
/// and what was freed meanwhile may still be read, so nobody gets that either.
#[test]
fn the_places_of_a_pass_that_cannot_be_followed_are_nobodys() {
    // From block to block, and inside a block through another one.
    for (inside, block) in [(InsideBlock::Allowed, 4), (InsideBlock::Forbidden, 12)] {
        give_up_a_pass(inside, block * MIB);
    }
}

fn give_up_a_pass(inside: InsideBlock, block: u64) {
    let is_lame = Arc::new(AtomicBool::new(false));
    let manager = Manager::with_config(lame_when(&is_lame, inside), plain());
    let config = PoolConfig::new().block(block).maximum(12 * MIB).lanes(1);
    let pool = manager.create_pool(HEAP, config).expect("valid");
    let ask = |size| pool.allocate(&Request::new(size)).ok();
    let all: Vec<_> = (0..24).map(|_| ask(MIB / 2).expect("fits")).collect();
    let mut kept: Vec<_> = all.into_iter().step_by(3).collect();
    for (byte, one) in (1..).zip(&kept) {
        one.fill(0, MIB / 2, byte).expect("in range");
    }
    let mut pass = manager.begin_defragment(&Budget::new()).expect("alive");
    let to = pass.moves().map(|one| (number(one.to().block), one.to().span));
    let mut nobodys: Vec<_> = to.collect();
    assert!(nobodys.len() > 1, "{nobodys:?}");
    let planned = pass.moves().last().expect("several");
    nobodys.push((number(planned.from().block), planned.from().span));
    let freed = planned.allocation();
    pass.start().expect("alive");
    kept.retain(|one| one.id() != freed);
    is_lame.store(true, Relaxed);
    drop(pass);
    is_lame.store(false, Relaxed);
    let lost = manager.report().quarantined_bytes;
    assert!(lost >= nobodys.iter().map(|(_, span)| span.size).sum(), "{lost}: they are counted");
    for one in &kept {
        let mut seen = vec![0; 512 << 10];
        one.read(0, &mut seen).expect("in range");
        assert!(seen[0] > 0 && seen.iter().all(|byte| *byte == seen[0]), "it is where it was");
    }
    let rest: Vec<_> = core::iter::from_fn(|| ask(64 * KIB)).collect();
    rest.iter().for_each(|one| lies_in_none(one, &nobodys));
    manager.validate().expect("sound");
    drop((kept, rest));
    manager.retire().expect("the device follows its work again");
    assert_eq!(manager.totals().live, 1, "only what was freed meanwhile is left, for ever");
}

/// A device that can be told to wait for nothing any more.
fn lame_when(is_lame: &Arc<AtomicBool>, inside: InsideBlock) -> Asked {
    let host = Host::builder().heap(heap(HeapKind::Device, 16 * MIB)).inside_block(inside);
    let lame = Arc::clone(is_lame);
    asked(&Arc::new(host.open().expect("a host device")), move |call| {
        match call.kind {
            CallKind::Wait | CallKind::WaitIdle if lame.load(Relaxed) => {
                return Verdict::Refuse(ErrorKind::Driver.into());
            }
            CallKind::Free => assert!(!lame.load(Relaxed), "copies may still be written there"),
            _ => {}
        }
        Verdict::Forward
    })
}

#[track_caller]
fn lies_in_none(one: &Allocation<Asked>, nobodys: &[(usize, Span)]) {
    let (binding, span) = (one.binding(), one.binding().span());
    let overlaps = |(block, other): &(usize, Span)| {
        *block == number(binding.block()) && span.offset < other.end() && other.offset < span.end()
    };
    assert!(!nobodys.iter().any(overlaps), "{span:?} is one of {nobodys:?}");
}

/// Tells blocks apart.
fn number<T>(block: &T) -> usize {
    core::ptr::from_ref(block).addr()
}

/// Copies of bytes that anybody may use unannounced run after everything that was submitted, also when nothing was
/// freed.
#[test]
fn moves_of_what_anybody_may_use_run_after_everybody() {
    for (uses, expected) in [(Uses::Undeclared, true), (Uses::Declared, false)] {
        let host = device(64 * MIB);
        let orders = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&orders);
        let device = asked(&host, move |call| {
            if call.kind == CallKind::Order {
                seen.lock().expect("no panic").extend(call.point.map(|point| point.timeline));
            }
            Verdict::Forward
        });
        let mut config = plain();
        config.pool.uses = uses;
        let manager = Manager::with_config(device, config);
        let line = host.open().expect("another timeline");
        let ask = |_| manager.allocate(&Request::new(200_000).on(line)).expect("fits");
        let all: Vec<_> = (0..60).map(ask).collect();
        let kept: Vec<_> = all.into_iter().step_by(3).collect();
        manager.trim().expect("alive"); // It finds out that all of it has passed.
        let mut pass = manager.begin_defragment(&Budget::new()).expect("alive");
        assert!(!pass.is_empty());
        pass.start().expect("alive");
        let ordered = orders.lock().expect("no panic").contains(&TimelineId::ALL);
        assert_eq!(ordered, expected, "{uses:?}: {orders:?}");
        pass.commit().expect("alive");
        drop(kept);
    }
}

/// A device that cannot mark all of its work at once is waited for instead; another error is told.
#[test]
fn a_device_that_cannot_mark_everything_is_waited_for() {
    for (answer, starts) in [(ErrorKind::NoSuchTimeline, true), (ErrorKind::Driver, false)] {
        let host = device(64 * MIB);
        let waits = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&waits);
        let device = asked(&host, move |call| {
            count.fetch_add(u64::from(call.kind == CallKind::WaitIdle), Relaxed);
            match call.kind {
                CallKind::Mark if call.timeline == Some(TimelineId::ALL) => {
                    Verdict::Refuse(answer.into())
                }
                _ => Verdict::Forward,
            }
        });
        let mut config = plain();
        config.pool.uses = Uses::Undeclared;
        let manager = Manager::with_config(device, config);
        let all: Vec<_> = (0..60)
            .map(|_| manager.allocate(&Request::new(200_000).on(TimelineId::MAIN)).expect("fits"))
            .collect();
        let _kept: Vec<_> = all.into_iter().step_by(3).collect();
        let mut pass = manager.begin_defragment(&Budget::new()).expect("alive");
        assert!(!pass.is_empty());
        let before = waits.load(Relaxed);
        assert_eq!(
            pass.start().map_err(|error| error.kind()),
            if starts { Ok(()) } else { Err(answer) }
        );
        assert_eq!(waits.load(Relaxed) > before, starts, "{answer:?}");
        drop(pass);
        // The zeros that end a secret come after everybody too.
        let secret = manager.allocate(&Request::new(4096).on(TimelineId::MAIN).secret());
        let before = waits.load(Relaxed);
        drop(secret.expect("fits"));
        assert_eq!(waits.load(Relaxed) > before, starts, "{answer:?}");
        assert_eq!(manager.report().quarantined_bytes > 0, !starts, "{answer:?}");
    }
}

/// Somebody freed a place and still writes there: what moves to it comes after that.
#[test]
fn bytes_move_to_a_place_after_those_who_used_it_before() {
    let far = heap(HeapKind::Staging, 16 * MIB).physical(1);
    for recalls in [false, true] {
        let host = Host::builder().heap(heap(HeapKind::Device, 16 * MIB)).heap(far.clone()).open();
        let host = Arc::new(host.expect("a host device"));
        let manager = managed(Arc::clone(&host), plain());
        let line = host.open().expect("another timeline");
        let full = |_| manager.allocate(&Request::new(MIB).heap(HEAP).on(line)).expect("fits");
        let mut near: Vec<_> = (0..16).map(full).collect();
        let moves = if recalls {
            manager.allocate(&Request::new(MIB).may_spill()).expect("the far heap has room")
        } else {
            drop(near.pop());
            manager.allocate(&Request::new(MIB).heap(HEAP)).expect("fits")
        };
        moves.fill(0, MIB, 1).expect("in range");
        manager.backend().wait_idle().expect("alive");
        let held = host.hold(line).expect("it is open");
        let goes = near.remove(2);
        goes.fill(0, MIB, 2).expect("in range");
        drop(goes);
        near.truncate(11);
        let begun = match recalls {
            true => manager.begin_recall(&Budget::new()),
            false => manager.begin_defragment(&Budget::new()),
        };
        let mut pass = begun.expect("alive");
        assert_eq!(pass.moves().map(|one| one.allocation()).collect::<Vec<_>>(), [moves.id()]);
        pass.start().expect("alive");
        thread::sleep(Duration::from_millis(50)); // A copy that waits for nobody is over then.
        assert!(!pass.is_ready().expect("alive"), "the place is still in use");
        drop(held);
        pass.commit().expect("alive");
        let mut seen = vec![0; 1 << 20];
        moves.read(0, &mut seen).expect("in range");
        assert!(seen.iter().all(|byte| *byte == 1), "somebody wrote over it");
    }
}

#[test]
fn passes_go_on_after_requests_that_were_aligned() {
    let manager = managed(device(64 * MIB), plain());
    let request = Request::new(200_000).align(Align::of(4096));
    let all: Vec<_> = (0..60).map(|_| manager.allocate(&request).expect("fits")).collect();
    let _kept: Vec<_> = all.into_iter().step_by(3).collect();
    let pass = manager.begin_defragment(&Budget::new()).expect("alive");
    assert!(pass.commit().expect("alive").moved.moves > 0);
}

/// A step goes on with what an earlier one has seen, and everything may have moved since.
#[test]
fn steps_that_go_on_with_an_old_plan_lose_nothing() {
    for (seed, paged) in (0..6).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut config = plain();
        config.pool.paged = paged;
        let how = Background::new(Budget::new().moves(2)).between(1, 2);
        config.defragmentation = Defragmentation::Background(how);
        let about = heap(HeapKind::Device, 6 * MIB).page(Some(Align::of(64 * KIB)));
        let host = Host::builder().heap(about).open().expect("a host device");
        let manager = managed(host, config);
        let (mut random, mut live, mut next) = (Random(seed), Vec::new(), 0);
        for _ in 0..400 {
            match random.below(10) {
                0..4 => {
                    let request = Request::new(1 + random.below(100_000));
                    let request = request.align(Align::of(1 << random.below(13)));
                    if let Ok(one) = manager.allocate(&request) {
                        one.write(0, &stamp(next, one.size())).expect("in range");
                        live.push((next, one));
                        next += 1;
                    }
                }
                4..7 if !live.is_empty() => drop(live.swap_remove(random.index(live.len()))),
                7 => drop(manager.allocate(&Request::new(MIB + random.below(MIB)))),
                8 if random.below(4) == 0 => drop(manager.defragment().expect("alive")),
                _ => drop(manager.step().expect("alive")),
            }
        }
        sound(&manager, &live);
    }
}

/// A pass from which nothing is learnt leaves what is known as it is.
#[test]
fn a_pass_that_finds_nothing_teaches_nothing() {
    let manager = managed(device(64 * MIB), plain());
    let all: Vec<_> =
        (0..60).map(|_| manager.allocate(&Request::new(200_000)).expect("fits")).collect();
    let kept: Vec<_> = all.into_iter().step_by(3).collect();
    manager.begin_defragment(&Budget::new()).expect("alive").commit().expect("alive");
    manager.defragment().expect("alive");
    let (costs, passes) = (manager.report().move_costs, manager.report().defragmentation.passes);
    for _ in 0..4 {
        assert!(manager.begin_defragment(&Budget::new()).expect("alive").is_empty());
    }
    assert_eq!(manager.report().move_costs, costs);
    assert_eq!(manager.report().defragmentation.passes, passes);
    drop(kept);
}

/// A pass that is dropped before it copies counts as one pass, and as one that was given up.
#[test]
fn a_pass_that_is_dropped_is_counted_once() {
    let manager = managed(device(64 * MIB), plain());
    let all: Vec<_> =
        (0..60).map(|_| manager.allocate(&Request::new(200_000)).expect("fits")).collect();
    let _kept: Vec<_> = all.into_iter().step_by(3).collect();
    for count in 1..4 {
        drop(manager.begin_defragment(&Budget::new()).expect("alive"));
        let sums = manager.report().defragmentation;
        assert_eq!((sums.passes, sums.aborted, sums.moves), (count, count, 0));
    }
}

/// Owners decided that everything stays: there is nothing to wait for.
#[test]
fn a_pass_that_copies_nothing_waits_for_nobody() {
    let waits = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&waits);
    let device = asked(&device(64 * MIB), move |call| {
        let is_wait = matches!(call.kind, CallKind::Wait | CallKind::WaitIdle);
        count.fetch_add(u64::from(is_wait), Relaxed);
        Verdict::Forward
    });
    let manager = Manager::with_config(device, plain());
    let all: Vec<_> =
        (0..60).map(|_| manager.allocate(&Request::new(200_000)).expect("fits")).collect();
    let _kept: Vec<_> = all.into_iter().step_by(3).collect();
    let pass = manager.begin_defragment(&Budget::new()).expect("alive");
    assert!(!pass.is_empty());
    let before = waits.load(Relaxed);
    assert_eq!(pass.run(|_| Decision::Ignore).expect("alive").moved.moves, 0);
    assert_eq!(waits.load(Relaxed), before);
}

/// The place of what a timeline freed is a target, and nothing tells when the timeline has passed: an owner must not write there.
#[test]
fn an_owner_gets_no_place_of_which_nothing_tells_that_it_is_out_of_use() {
    let (host, refuses) = (device(64 * MIB), Arc::new(AtomicBool::new(false)));
    let seen = Arc::clone(&refuses);
    let asked = asked(&host, move |call| match call.kind {
        CallKind::Wait | CallKind::WaitIdle if seen.load(Relaxed) => {
            Verdict::Refuse(ErrorKind::Busy.into())
        }
        _ => Verdict::Forward,
    });
    let manager = Manager::with_config(asked, plain());
    let config = PoolConfig::new().block(MIB).lanes(1);
    let pool = manager.create_pool(HEAP, config).expect("valid");
    let line = host.as_timelines().expect("timelines").open().expect("few");
    let ask = |request: Request<'static>| pool.allocate(&request).expect("fits");
    let first = ask(Request::new(MIB / 8).on(line));
    let rest: Vec<_> = (0..8).map(|_| ask(Request::new(MIB / 8))).collect();
    let held = host.hold(line).expect("open");
    first.fill(0, MIB / 8, 7).expect("submitted");
    drop(first);
    let mut pass = manager.begin_defragment(&Budget::new()).expect("alive");
    assert_eq!(pass.moves().len(), 1, "the last one moves to where the first one was");
    refuses.store(true, Relaxed);
    let decided = pass.decide(0, Decision::OwnerCopies).map_err(|error| error.kind());
    assert_eq!(decided, Err(ErrorKind::Busy), "its fill is still to come");
    refuses.store(false, Relaxed);
    drop(held);
    pass.decide(0, Decision::OwnerCopies).expect("it has passed");
    drop((pass, rest));
}
