//! I: moving live data together.
#![expect(unsafe_code, reason = "maps pages and frees their block on the seam itself")]
use super::{place_of, take};
use crate::case::Case;
use crate::rng::{Rng, is_all};
use crate::world::{Stack, World, check_stamp, in_heap, pool_of, write_stamp};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use omniheap_core::{
    Allocation, Backend, BlockOffset, Manager, PoolConfig, Request, TimelineId, UserPool,
};

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    use crate::case::Need;
    list! {
        bytes_survive_defragmentation proves [64, 66] needs [Transfer];
        bytes_survive_work_between_passes proves [65] needs [Transfer];
        a_compact_heap_is_left_alone proves [68] needs [Transfer];
        what_is_bound_does_not_move proves [70] needs [Transfer];
        threads_work_on_while_data_moves proves [74] needs [Transfer];
        views_of_moved_bytes_show_them proves [76] needs [Map, Transfer];
        work_queued_before_a_move_is_done proves [77] needs [Transfer];
        moves_stay_in_their_heap_and_pool proves [78] needs [Transfer];
        dedicated_allocations_stay_alone proves [49, 78] needs [Transfer];
        a_page_that_moves_is_at_two_places_meanwhile proves [72, 73] needs [Pages, Transfer];
    }
}

const MIB: u64 = 1 << 20;

type Stamped<B> = Vec<(u64, Allocation<Stack<B>>)>;

/// Stamped pieces with holes between them: three of four are freed.
fn scattered<B: Backend + 'static>(
    manager: &Manager<Stack<B>>,
    request: &Request<'_>,
    count: u64,
) -> Stamped<B> {
    let all: Stamped<B> = (0..count).map(|id| (id, take(manager, request))).collect();
    all.iter().for_each(|(id, one)| write_stamp(one, *id));
    // Without a timeline, only what is out of use may be freed.
    manager.backend().wait_idle().expect("alive");
    all.into_iter().filter(|(id, _)| id % 4 == 1).collect()
}

fn intact<B: Backend + 'static>(live: &Stamped<B>) {
    live.iter().for_each(|(id, one)| check_stamp(one, *id));
}

fn bytes_survive_defragmentation<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let mut rng = world.rng();
    for seed in 0..3 {
        let size = world.whole(rng.within(100_000, 900_000));
        let live = scattered(&manager, &Request::new(size), 40);
        let ids: Vec<_> = live.iter().map(|(_, one)| one.id()).collect();
        let before = stack.inner().live().bytes();
        let freed = manager.defragment().expect("alive");
        assert_eq!(before - stack.inner().live().bytes(), freed, "what it says is what it did");
        intact(&live);
        manager.validate().expect("sound");
        assert!(live.iter().map(|(_, one)| one.id()).eq(ids), "the same names, run {seed}");
    }
}

fn bytes_survive_work_between_passes<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let (mut rng, mut live): (Rng, Stamped<B>) = (world.rng(), Vec::new());
    for round in 0..120 {
        let size = world.whole(rng.size(300_000));
        let one = take(&manager, &Request::new(size));
        write_stamp(&one, round);
        live.push((round, one));
        if rng.below(5) < 2 {
            world.backend().wait_idle().expect("alive");
            live.swap_remove(rng.index(live.len())).1.free();
        }
        if round % 20 == 19 {
            manager.defragment().expect("alive");
            intact(&live);
        }
    }
}

fn a_compact_heap_is_left_alone<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let live = scattered(&manager, &Request::new(world.whole(700_000)), 24);
    for _ in 0..4 {
        manager.defragment().expect("alive");
    }
    let places: Vec<_> = live.iter().map(|(_, one)| place_of(one)).collect();
    assert_eq!(manager.defragment(), Ok(0), "nothing left to do");
    assert!(live.iter().map(|(_, one)| place_of(one)).eq(places), "and nothing moved");
    intact(&live);
}

fn what_is_bound_does_not_move<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let live = scattered(&manager, &Request::new(MIB), 32);
    let bindings: Vec<_> = live.iter().map(|(_, one)| one.binding()).collect();
    let places: Vec<_> = bindings.iter().map(|at| (at.block().id(), at.span())).collect();
    manager.defragment().expect("alive");
    assert!(live.iter().map(|(_, one)| place_of(one)).eq(places), "pinned while it is bound");
    drop(bindings);
    manager.defragment().expect("alive");
    intact(&live);
}

/// A pool that nobody else uses, with data that a full defragmentation must move: blocks that are half empty, or pages whose
/// holes add up.
fn restless<B: Backend + 'static>(
    world: &World<B>,
    manager: &Manager<Stack<B>>,
) -> (UserPool<Stack<B>>, Stamped<B>) {
    let heap = world.device_heap();
    let page = world.backend().caps().heap(heap).and_then(|heap| heap.page);
    let (config, sizes) = match page.filter(|_| world.is_paged()) {
        // No hole is large enough for what stays, but together they are.
        Some(page) => {
            let config = PoolConfig::new().paged().lanes(1);
            (config, [page.get() / 16 * 10, page.get() / 16 * 6])
        }
        None => (pool_of(2 * MIB), [MIB / 4 - 16; 2]),
    };
    let pool = manager.create_pool(heap, config).expect("valid");
    let sizes = sizes.into_iter().cycle().take(16);
    let one = |size| pool.allocate(&Request::new(size)).expect("fits");
    let mut all: Stamped<B> = (1000..).zip(sizes).map(|(id, size)| (id, one(size))).collect();
    all.iter().for_each(|(id, one)| write_stamp(one, *id));
    world.backend().wait_idle().expect("alive");
    all.retain(|(id, _)| id % 2 == 0);
    (pool, all)
}

fn threads_work_on_while_data_moves<B: Backend + 'static>(world: &World<B>) {
    let mut config = world.config();
    config.pool.lanes = Some(4);
    let manager = world.manager_with(&world.stack(), config);
    let (pool, others) = restless(world, &manager);
    let before: Vec<_> = others.iter().map(|(_, one)| place_of(one)).collect();
    let (has_moved, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            let _told = Tell(&has_moved);
            while !stop.load(Relaxed) {
                manager.defragment().expect("alive");
                has_moved.store(true, Relaxed);
                std::thread::yield_now();
            }
        });
        let work = |seed: u64| {
            let (mut rng, mut live): (Rng, Stamped<B>) = (Rng::new(seed), Vec::new());
            // At least until data has moved once.
            for step in (0..).take_while(|step| *step < 60 || !has_moved.load(Relaxed)) {
                let one = take(&manager, &Request::new(world.whole(rng.size(60_000))));
                write_stamp(&one, seed << 32 | step);
                live.push((seed << 32 | step, one));
                if rng.below(2) == 0 || live.len() > 60 {
                    let (id, one) = live.swap_remove(rng.index(live.len()));
                    check_stamp(&one, id);
                }
            }
            intact(&live);
        };
        let threads: Vec<_> = (1..=4).map(|seed| scope.spawn(move || work(seed))).collect();
        let ended: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, Relaxed);
        mover.join().expect("no panic");
        ended.into_iter().for_each(|thread| thread.expect("no panic"));
    });
    assert!(!others.iter().map(|(_, one)| place_of(one)).eq(before), "nothing has moved");
    intact(&others);
    drop(others);
    manager.destroy_pool(pool).map_err(|refused| refused.error).expect("empty");
}

/// Tells when it is dropped, also by a thread that panics: others wait for it.
struct Tell<'a>(&'a AtomicBool);

impl Drop for Tell<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn views_of_moved_bytes_show_them<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let heap = world.visible_heap().expect("needed");
    let live = scattered(&manager, &in_heap(heap, MIB), 24);
    manager.defragment().expect("alive");
    for (id, one) in &live {
        let (mut found, mut wanted) = ([0; 256], [0; 256]);
        crate::rng::stamp(*id, 0, &mut wanted);
        one.map().expect("visible").read(0, &mut found).expect("inside");
        assert_eq!(found, wanted, "through a fresh view");
    }
}

fn work_queued_before_a_move_is_done<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let live = scattered(&manager, &Request::new(MIB).on(TimelineId::MAIN), 24);
    (1u8..).zip(&live).for_each(|(byte, (_, one))| one.fill(0, MIB, byte).expect("queued"));
    manager.defragment().expect("alive");
    for (byte, (_, one)) in (1u8..).zip(&live) {
        let mut found = vec![0; 4096];
        one.read(MIB - 4096, &mut found).expect("inside");
        assert!(is_all(&found, byte), "the fill came before the move");
    }
}

fn moves_stay_in_their_heap_and_pool<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let heap = world.device_heap();
    let pool = manager.create_pool(heap, pool_of(4 * MIB)).expect("valid");
    let default = scattered(&manager, &in_heap(heap, MIB), 24);
    let mut own: Vec<_> =
        (0..24).map(|id| (id, pool.allocate(&Request::new(MIB)).expect("fits"))).collect();
    own.iter().for_each(|(id, one)| write_stamp(one, *id));
    world.backend().wait_idle().expect("alive");
    own.retain(|(id, _)| id % 4 == 2);
    manager.defragment().expect("alive");
    let blocks: Vec<_> = own.iter().map(|(_, one)| place_of(one).0).collect();
    assert!(
        default.iter().all(|(_, one)| !blocks.contains(&place_of(one).0)),
        "never across pools"
    );
    let heap_of = |one: &Allocation<Stack<B>>| one.binding().block().origin().heap;
    assert!(own.iter().chain(&default).all(|(_, one)| heap_of(one) == Some(heap)));
    intact(&own);
    intact(&default);
    drop(own);
    manager.destroy_pool(pool).map_err(|refused| refused.error).expect("empty");
}

fn dedicated_allocations_stay_alone<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let shared = scattered(&manager, &Request::new(MIB), 24);
    let alone: Stamped<B> = (100..104)
        .map(|id| (id, take(&manager, &Request::new(world.whole(300_000)).dedicated())))
        .collect();
    alone.iter().for_each(|(id, one)| write_stamp(one, *id));
    manager.defragment().expect("alive");
    let blocks: Vec<_> = alone.iter().map(|(_, one)| place_of(one)).collect();
    assert!(blocks.iter().all(|(_, span)| span.offset == 0));
    assert!(
        shared.iter().all(|(_, one)| blocks.iter().all(|(block, _)| place_of(one).0 != *block))
    );
    let mut apart: Vec<_> = blocks.iter().map(|(block, _)| *block).collect();
    apart.sort_unstable();
    apart.dedup();
    assert_eq!(apart.len(), 4, "each has its own driver object");
    intact(&alone);
    intact(&shared);
}

fn a_page_that_moves_is_at_two_places_meanwhile<B: Backend + 'static>(world: &World<B>) {
    let (backend, heap, on) = (world.backend(), world.device_heap(), TimelineId::MAIN);
    let page = backend.caps().heap_ids().find_map(|(id, it)| it.page.filter(|_| id == heap));
    let page = page.expect("the heap has pages").get();
    let (remap, transfer) =
        (backend.as_remap().expect("needed"), backend.as_transfer().expect("needed"));
    let block = remap.reserve(heap, 8 * page).expect("addresses");
    let at = |position: u64| BlockOffset { block: &block, offset: position * page };
    let mut pages = Vec::new();
    remap.create(heap, 2, &mut pages).expect("room");
    let (wrote, mut read) = ([7; 64], [0; 64]);
    // SAFETY: the pages are fresh; then they are mapped at one other place.
    unsafe { remap.map_pages(&block, 4, &pages) }.expect("no memory there");
    transfer.write(on, at(5), &wrote).expect("mapped");
    backend.wait_idle().expect("alive");
    // SAFETY: as above, and nothing is queued that uses them.
    unsafe { remap.map_pages(&block, 0, &pages) }.expect("a second place");
    // SAFETY: the device is idle.
    unsafe { remap.unmap_pages(&block, 4, 2) }.expect("mapped there");
    transfer.read(on, at(1), &mut read).expect("mapped");
    assert_eq!(read, wrote, "the bytes came along");
    backend.wait_idle().expect("alive");
    // SAFETY: the device is idle; after this the pages are mapped nowhere.
    unsafe { remap.unmap_pages(&block, 0, 2) }.expect("mapped there");
    // SAFETY: mapped nowhere, and nobody else knows them.
    unsafe { remap.destroy(heap, &pages) }.expect("made here");
    // SAFETY: the block came from this backend, which is idle, and has no pages.
    unsafe { backend.free(block) }.expect("empty");
}
