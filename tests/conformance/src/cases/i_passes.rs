//! I: passes: budgets, decisions, aborts, and what they say they did.
use super::{place_of, take};
use crate::case::Case;
use crate::world::{Stack, World, check_stamp, pool_of, write_stamp};
use omniheap_core::{
    Allocation, Backend, Budget, Decision, InsideBlock, Manager, MoveOutcome, Pass, Request,
    UserPool,
};
use omniheap_layers::Plan;

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    use crate::case::Need;
    list! {
        two_half_empty_blocks_become_one_by_four_moves proves [67] needs [Transfer];
        holes_of_a_block_that_stays_are_closed proves [64, 68] needs [Transfer];
        a_pass_stays_within_its_budget proves [69] needs [Transfer];
        owners_refuse_and_destroy proves [71] needs [Transfer];
        a_pass_dropped_at_any_step_changes_nothing proves [72] needs [Transfer];
        a_call_that_fails_in_a_pass_loses_nothing proves [73] needs [Transfer];
        what_is_freed_during_a_pass_is_freed_once proves [75] needs [Transfer];
        a_place_asked_for_during_a_pass_holds proves [66, 70] needs [Transfer];
        a_pass_takes_no_memory_and_counts_truly proves [79] needs [Transfer];
        pages_whose_holes_add_up_are_packed proves [64, 67] needs [Transfer, Pages];
        the_last_pages_are_had_wherever_they_lie proves [31] needs [Transfer, Pages, Unguarded];
    }
}

/// A block of them is 2 MiB: drivers hand memory out in granules of up to that, and what a smaller block leaves of one counts.
const PIECE: u64 = 256 << 10;
/// Bytes of a piece that are asked for: the rest is room for a guard, so that a piece with one occupies no more.
const ASKED: u64 = PIECE - 16;
/// Pieces in a block.
const EACH: u64 = 8;

type Stamped<B> = Vec<(u64, Allocation<Stack<B>>)>;

fn pool<B: Backend + 'static>(world: &World<B>, manager: &Manager<Stack<B>>) -> UserPool<Stack<B>> {
    manager.create_pool(world.device_heap(), pool_of(EACH * PIECE)).expect("valid")
}

/// Stamped pieces in full blocks, of which `keeps` are kept.
fn scattered<B: Backend + 'static>(
    pool: &UserPool<Stack<B>>,
    backend: &Stack<B>,
    blocks: u64,
    keeps: fn(u64) -> bool,
) -> Stamped<B> {
    let all: Stamped<B> = (0..blocks * EACH)
        .map(|id| (id, pool.allocate(&Request::new(ASKED)).expect("fits")))
        .collect();
    all.iter().for_each(|(id, one)| write_stamp(one, *id));
    backend.wait_idle().expect("alive");
    all.into_iter().filter(|(id, _)| keeps(*id)).collect()
}

fn even(id: u64) -> bool {
    id.is_multiple_of(2)
}

/// One of four in the first blocks, three of four in the others.
fn sparse(id: u64) -> bool {
    if id / EACH < 3 { id % 4 == 1 } else { id % 4 != 1 }
}

fn intact<B: Backend + 'static>(live: &Stamped<B>) {
    live.iter().for_each(|(id, one)| check_stamp(one, *id));
}

fn begin<B: Backend + 'static>(manager: &Manager<Stack<B>>, budget: &Budget) -> Pass<Stack<B>> {
    manager.begin_defragment(budget).expect("alive")
}

fn position<B: Backend + 'static>(live: &Stamped<B>, pass: &Pass<Stack<B>>, which: usize) -> usize {
    let id = pass.moves().nth(which).expect("planned").allocation();
    live.iter().position(|(_, one)| one.id() == id).expect("live")
}

fn end<B: Backend + 'static>(
    manager: &Manager<Stack<B>>,
    pool: UserPool<Stack<B>>,
    live: Stamped<B>,
) {
    manager.validate().expect("sound");
    intact(&live);
    manager.backend().wait_idle().expect("alive");
    drop(live);
    manager.destroy_pool(pool).map_err(|refused| refused.error).expect("empty");
}

fn two_half_empty_blocks_become_one_by_four_moves<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let pool = pool(world, &manager);
    let live = scattered(&pool, &stack, 2, even);
    let before = stack.inner().live().blocks;
    let pass = begin(&manager, &Budget::new());
    assert_eq!(pass.moves().len(), 4);
    let moved = pass.commit().expect("alive").moved;
    assert_eq!((moved.moves, moved.bytes, moved.returned_blocks), (4, 4 * PIECE, 1));
    assert_eq!(before - stack.inner().live().blocks, 1, "the driver has it");
    assert!(begin(&manager, &Budget::new()).is_empty(), "and nothing is left to do");
    end(&manager, pool, live);
}

fn holes_of_a_block_that_stays_are_closed<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let pool = pool(world, &manager);
    let live = scattered(&pool, &stack, 1, even);
    let (blocks, mut passes) = (stack.inner().live().blocks, 0);
    loop {
        let pass = begin(&manager, &Budget::new().moves(1));
        if pass.is_empty() {
            break;
        }
        assert_eq!(pass.commit().expect("alive").moved.moves, 1);
        passes += 1;
        assert!(passes <= EACH, "passes do not end");
    }
    assert_eq!(manager.totals().largest_hole, EACH / 2 * PIECE, "half of the block, in one piece");
    assert_eq!(stack.inner().live().blocks, blocks, "the block stays, and a bounce block does not");
    end(&manager, pool, live);
}

fn a_pass_stays_within_its_budget<B: Backend + 'static>(world: &World<B>) {
    for budget in [Budget::new().moves(3), Budget::new().bytes(5 * PIECE - 1)] {
        let stack = world.stack();
        let manager = world.manager_over(&stack);
        let pool = pool(world, &manager);
        let live = scattered(&pool, &stack, 6, sparse);
        let mut passes = 0;
        loop {
            let pass = begin(&manager, &budget);
            if pass.is_empty() {
                break;
            }
            let moved = pass.commit().expect("alive").moved;
            assert!(moved.moves <= budget.moves && moved.bytes <= budget.bytes, "{moved:?}");
            assert!(moved.moves > 0, "every pass moves something or is the last");
            passes += 1;
            assert!(passes < 50, "passes do not end");
        }
        assert!(passes >= 2);
        assert!(begin(&manager, &Budget::new().bytes(0)).is_empty());
        end(&manager, pool, live);
    }
}

fn owners_refuse_and_destroy<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let pool = pool(world, &manager);
    let mut live = scattered(&pool, &stack, 2, even);
    let mut pass = begin(&manager, &Budget::new());
    let stays = position(&live, &pass, 0);
    let (stays_id, place) = (live[stays].0, place_without_binding(&pass, 0));
    pass.decide(0, Decision::Ignore).expect("planned");
    let dies = live.swap_remove(position(&live, &pass, 1));
    let dead = dies.1.id();
    pass.decide(1, Decision::Destroy(dies.1)).expect("planned");
    let outcome = pass.commit().expect("alive");
    assert_eq!(outcome.moves[0].1, MoveOutcome::Stayed);
    assert_eq!(outcome.moves[1], (dead, MoveOutcome::Freed));
    assert_eq!(outcome.moved.moves, 2);
    let stays = live.iter().find(|(id, _)| *id == stays_id).expect("kept");
    assert_eq!(place_of(&stays.1), place, "as it was");
    assert!(manager.check(dead).is_err(), "gone");
    assert_eq!(manager.totals().live, 7);
    end(&manager, pool, live);
}

fn place_without_binding<B: Backend + 'static>(
    pass: &Pass<Stack<B>>,
    which: usize,
) -> (u64, omniheap_core::Span) {
    let planned = pass.moves().nth(which).expect("planned");
    (planned.from().block.id(), planned.from().span)
}

fn a_pass_dropped_at_any_step_changes_nothing<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let pool = pool(world, &manager);
    let live = scattered(&pool, &stack, 6, sparse);
    let places: Vec<_> = live.iter().map(|(_, one)| place_of(one)).collect();
    let (totals, held) = (manager.totals(), stack.inner().live());
    for step in 0..4 {
        let mut pass = begin(&manager, &Budget::new());
        if step > 0 {
            pass.decide(0, Decision::Ignore).expect("planned");
        }
        if step > 1 {
            pass.start().expect("alive");
        }
        while step > 2 && !pass.is_ready().expect("alive") {
            std::thread::yield_now();
        }
        drop(pass);
        assert_eq!(manager.totals(), totals, "step {step}");
        assert_eq!(stack.inner().live(), held, "step {step}");
        assert!(live.iter().map(|(_, one)| place_of(one)).eq(places.iter().copied()));
        intact(&live);
    }
    assert!(manager.defragment().expect("alive") > 0, "a later run works");
    end(&manager, pool, live);
}

fn a_call_that_fails_in_a_pass_loses_nothing<B: Backend + 'static>(world: &World<B>) {
    for nth in 0..64 {
        let stack = world.stack();
        let manager = world.manager_over(&stack);
        let pool = pool(world, &manager);
        let live = scattered(&pool, &stack, 4, even);
        stack.inject(Plan::Nth(nth), 0);
        let outcome = manager.begin_defragment(&Budget::new()).and_then(Pass::commit);
        let failed = stack.injected() > 0;
        stack.inject(Plan::Never, 0);
        assert!(failed || outcome.is_ok());
        manager.validate().expect("sound");
        intact(&live);
        manager.defragment().expect("well again");
        if stack.quarantine() != Default::default() {
            // The driver kept what it refused to take back; that is told, and not ours to return.
            world.forgive(&stack);
        }
        end(&manager, pool, live);
        if !failed {
            assert!(nth >= 1, "a pass calls the driver");
            return;
        }
    }
    panic!("a pass of sixteen moves needs fewer calls");
}

fn what_is_freed_during_a_pass_is_freed_once<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let pool = pool(world, &manager);
    let mut live = scattered(&pool, &stack, 2, even);
    let mut pass = begin(&manager, &Budget::new());
    let first = live.swap_remove(position(&live, &pass, 0)).1;
    let first_id = first.id();
    first.free();
    pass.start().expect("alive");
    let second = live.swap_remove(position(&live, &pass, 1)).1;
    let second_id = second.id();
    second.free();
    let other = take(&manager, &Request::new(PIECE));
    write_stamp(&other, 99);
    let outcomes = pass.commit().expect("alive").moves;
    assert_eq!(outcomes[..2], [(first_id, MoveOutcome::Freed), (second_id, MoveOutcome::Freed)]);
    assert_eq!(manager.totals().live, 7);
    check_stamp(&other, 99);
    world.backend().wait_idle().expect("alive");
    drop(other);
    end(&manager, pool, live);
}

fn a_place_asked_for_during_a_pass_holds<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let pool = pool(world, &manager);
    let mut live = scattered(&pool, &stack, 2, even);
    let mut pass = begin(&manager, &Budget::new());
    let at = position(&live, &pass, 0);
    let place = place_of(&live[at].1);
    pass.start().expect("alive");
    let written = position(&live, &pass, 1);
    write_stamp(&live[written].1, 77);
    live[written].0 = 77;
    let pin = live[position(&live, &pass, 2)].1.pin();
    let outcomes = pass.commit().expect("alive").moves;
    assert!(outcomes[..3].iter().all(|(_, one)| *one == MoveOutcome::Stayed));
    drop(pin);
    assert_eq!(place_of(&live[at].1), place);
    end(&manager, pool, live);
}

fn a_pass_takes_no_memory_and_counts_truly<B: Backend + 'static>(world: &World<B>) {
    // A driver that rounds blocks up counts what it gives, not what it was asked for.
    let heap = world.backend().caps().heap(world.device_heap()).expect("it is there");
    let block = heap.granule.up(EACH * PIECE).expect("small");
    let stack = world.limited(4 * block, u64::MAX);
    let manager = world.manager_over(&stack);
    let pool = pool(world, &manager);
    let mut live = scattered(&pool, &stack, 4, |_| true);
    drop(live.pop());
    assert!(begin(&manager, &Budget::new()).is_empty(), "full: there is nothing to gain");
    assert_eq!(manager.defragment(), Ok(0));
    live.retain(|(id, _)| even(*id));
    let (blocks, before) = (stack.inner().live().blocks, manager.report().defragmentation);
    let mut pass = begin(&manager, &Budget::new());
    let planned = pass.moves().len() as u64;
    pass.start().expect("alive");
    assert_eq!(stack.inner().live().blocks, blocks, "no memory is taken for it");
    let moved = pass.commit().expect("alive").moved;
    let after = manager.report().defragmentation;
    assert_eq!(after.moves - before.moves, planned);
    assert_eq!(after.bytes - before.bytes, planned * PIECE);
    assert_eq!(moved.returned_blocks, blocks - stack.inner().live().blocks);
    assert_eq!(after.returned_bytes - before.returned_bytes, moved.returned_blocks * EACH * PIECE);
    end(&manager, pool, live);
}

fn pages_whose_holes_add_up_are_packed<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let heap = world.backend().caps().heap(world.device_heap()).expect("the device heap");
    let page = heap.page.expect("this case needs pages").get();
    // In each page ten sixteenths stay: no hole is large enough for them, but together they fit into fewer pages.
    let sizes = [page / 16 * 10, page / 16 * 6].into_iter().cycle().take(16);
    let all: Stamped<B> =
        (0..).zip(sizes).map(|(id, size)| (id, take(&manager, &Request::new(size)))).collect();
    all.iter().for_each(|(id, one)| write_stamp(one, *id));
    stack.wait_idle().expect("alive");
    let live: Stamped<B> = all.into_iter().filter(|(id, _)| even(*id)).collect();
    let before = stack.inner().live().bytes();
    let returned = manager.defragment().expect("alive");
    assert_eq!(before - stack.inner().live().bytes(), returned, "what it says is what it did");
    let totals = manager.totals();
    assert!(totals.reserved_bytes < totals.live_bytes + 2 * page, "{totals:?}");
    intact(&live);
    manager.validate().expect("sound");
}

fn the_last_pages_are_had_wherever_they_lie<B: Backend + 'static>(world: &World<B>) {
    let heap = world.backend().caps().heap(world.device_heap()).expect("the device heap");
    let page = heap.page.expect("this case needs pages").get();
    let manager = world.manager_over(&world.limited(11 * page, u64::MAX));
    let ask = |halves: u64| take(&manager, &Request::new(halves * page / 2));
    let mut live: Stamped<B> = (0..).zip([3, 6, 3, 1, 6, 3].map(ask)).collect();
    live.iter().for_each(|(id, one)| write_stamp(one, *id));
    // Two holes of three pages, of which the four whole ones are mapped behind all others: what is left is two pages in
    // five pieces of half a page or less, with addresses without memory between them.
    live.retain(|(id, _)| ![1, 4].contains(id));
    live.push((6, ask(8)));
    live.extend(manager.allocate(&Request::new(2 * page)).ok().map(|one| (7, one)));
    // A device that forbids copies inside a block has nothing left to carry bytes through.
    let may_fail = world.backend().caps().copy.inside_block == InsideBlock::Forbidden;
    assert!(live.len() == 6 || may_fail, "two pages are free");
    live[4..].iter().for_each(|(id, one)| write_stamp(one, *id));
    intact(&live);
    let halves = if live.len() == 6 { 22 } else { 18 };
    assert_eq!(manager.totals().live_bytes, halves * page / 2);
    manager.validate().expect("sound");
}
