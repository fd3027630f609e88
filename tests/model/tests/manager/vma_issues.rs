//! Faults of the allocator that engines know best, as tests of ours: VMA's issues #59, #156, #313 and #517.
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use omniheap_core::{
    Align, Allocation, Budget, Class, Decision, HeapId, HeapKind, Manager, ManagerConfig,
    PoolConfig, Request, Span, UserPool,
};
use omniheap_host::{Host, heap};

const KIB: u64 = 1 << 10;
const GRANULE: u64 = 4 * KIB;

fn manager() -> Manager<Host> {
    let device = heap(HeapKind::Device, 64 << 20);
    let host = Host::builder().heap(device).neighbour_granularity(Align::of(GRANULE));
    let mut config = ManagerConfig::default().plain();
    config.pool.lanes = Some(1);
    Manager::with_config(host.open().expect("a device"), config)
}

fn pool(manager: &Manager<Host>) -> UserPool<Host> {
    let config = PoolConfig::new().block(256 * KIB).lanes(1);
    manager.create_pool(HeapId(0), config).expect("valid")
}

fn place(one: &Allocation<Host>) -> (usize, Span) {
    let binding = one.binding();
    (core::ptr::from_ref(binding.block()).addr(), binding.span())
}

fn take(pool: &UserPool<Host>, size: u64, class: Class) -> Allocation<Host> {
    pool.allocate(&Request::new(size).class(class)).expect("fits")
}

/// #59: bytes of a tiled image mean nothing elsewhere, so nobody but its owner copies them.
#[test]
fn issue_59_tiled_contents_are_copied_by_their_owner_only() {
    let manager = manager();
    let pool = pool(&manager);
    let all: Vec<_> = (0..32).map(|_| take(&pool, 32 * KIB, Class::Tiled)).collect();
    let live: Vec<_> = (0..).zip(all).filter(|(n, _)| n % 3 == 0).map(|(_, one)| one).collect();
    live.iter().for_each(|one| one.fill(0, 32 * KIB, 1).expect("in range"));
    let places: Vec<_> = live.iter().map(place).collect();
    manager.defragment().expect("alive");
    assert!(live.iter().map(place).eq(places), "moved without a word to its owner");
    let pass = manager.begin_defragment(&Budget::new()).expect("alive");
    let outcome = pass.run(|planned| {
        assert!(planned.needs_consent());
        Decision::OwnerCopies
    });
    assert!(outcome.expect("alive").moved.moves > 0);
    let read = |one: &Allocation<Host>| {
        let mut found = [9; 64];
        one.read(0, &mut found).expect("in range");
        found
    };
    assert!(live.iter().any(|one| read(one) != [1; 64]), "the owner was to copy, and did not");
}

/// #156: passes that never ended.
#[test]
fn issue_156_passes_end_and_the_last_one_moves_nothing() {
    for size in [1, 5, 17, 60] {
        let manager = manager();
        let pool = pool(&manager);
        let all: Vec<_> =
            (0..200).map(|n| take(&pool, (size + n % 7) * KIB, Class::Linear)).collect();
        let live: Vec<_> = (0..).zip(all).filter(|(n, _)| n % 3 != 1).collect();
        let mut passes = 0;
        loop {
            let pass = manager.begin_defragment(&Budget::new().moves(2)).expect("alive");
            if pass.is_empty() {
                break;
            }
            assert!(pass.commit().expect("alive").moved.moves > 0, "a pass that did nothing");
            passes += 1;
            assert!(passes <= live.len(), "more passes than allocations");
        }
        assert_eq!(manager.defragment(), Ok(0), "nothing is left to gain");
        manager.validate().expect("sound");
    }
}

/// Tells when it is dropped, also by a thread that panics: others wait for it.
struct Tell<'a>(&'a AtomicBool);

impl Drop for Tell<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// #313: threads that allocate while another defragments.
#[test]
fn issue_313_threads_allocate_while_another_defragments() {
    let manager = manager();
    // Nobody else uses this pool, and it comes first: the first pass moves what is in its half empty blocks.
    let first = pool(&manager);
    let mut others: Vec<_> = (0..16).map(|n| (n, take(&first, 32 * KIB, Class::Linear))).collect();
    others.iter().for_each(|(_, one)| one.fill(0, one.size(), 9).expect("in range"));
    others.retain(|(n, _)| n % 2 == 0);
    let (pool, stop, has_moved) = (pool(&manager), AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            let _told = Tell(&has_moved);
            while !stop.load(Relaxed) {
                let pass = manager.begin_defragment(&Budget::new().moves(20)).expect("alive");
                let moved = pass.commit().expect("alive").moved;
                let was_first = !has_moved.swap(true, Relaxed);
                assert!(!was_first || moved.moves >= 4, "half of a block: {moved:?}");
            }
        });
        let workers: Vec<_> = (1..=3u8)
            .map(|byte| {
                let (pool, has_moved) = (&pool, &has_moved);
                scope.spawn(move || {
                    let mut live = std::collections::VecDeque::new();
                    // At least until data has moved once.
                    for n in (0..).take_while(|n| *n < 600 || !has_moved.load(Relaxed)) {
                        let one = take(pool, (1 + n * 7 % 40) * KIB, Class::Linear);
                        one.fill(0, one.size(), byte).expect("in range");
                        live.push_back(one);
                        if n % 3 != 0 || live.len() > 60 {
                            let old: Allocation<Host> = live.pop_front().expect("pushed");
                            assert!(is_full_of(&old, byte), "another's bytes");
                        }
                    }
                })
            })
            .collect();
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stop.store(true, Relaxed);
        mover.join().expect("no panic");
        ended.into_iter().for_each(|worker| worker.expect("no panic"));
    });
    assert!(others.iter().all(|(_, one)| is_full_of(one, 9)), "another's bytes");
    manager.validate().expect("sound");
}

fn is_full_of(one: &Allocation<Host>, byte: u8) -> bool {
    let mut found = vec![!byte; usize::try_from(one.size()).expect("small")];
    one.read(0, &mut found).expect("in range");
    found.iter().all(|found| *found == byte)
}

/// #517: a span that was checked against its neighbour on one side only.
#[test]
fn issue_517_moved_spans_keep_away_from_unlike_neighbours_on_both_sides() {
    let manager = manager();
    let pool = pool(&manager);
    let class = |n: u64| if n.is_multiple_of(3) { Class::Tiled } else { Class::Linear };
    let all: Vec<_> =
        (0..300).map(|n| (n, take(&pool, 1 + n * 577 % (12 * KIB), class(n)))).collect();
    let mut live: Vec<_> = all.into_iter().filter(|(n, _)| n % 4 != 1).collect();
    let pass = manager.begin_defragment(&Budget::new()).expect("alive");
    assert!(pass.run(|_| Decision::Copy).expect("alive").moved.moves > 0);
    live.sort_by_key(|(_, one)| (place(one).0, place(one).1.offset));
    for pair in live.windows(2) {
        let [(block, first), (other, second)] = [place(&pair[0].1), place(&pair[1].1)];
        let apart = (first.end() - 1) / GRANULE < second.offset / GRANULE;
        let alike = class(pair[0].0) == class(pair[1].0);
        assert!(block != other || alike || apart, "unlike neighbours share a granule");
    }
}
