//! Q: numbers.
use super::take;
use crate::case::Case;
use crate::world::{Stack, World, in_heap, pool_of};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use omniheap_core::{Allocation, Backend, Report, Request, Totals};

pub(super) fn list<B: Backend + 'static>() -> Vec<Case<B>> {
    list! {
        counters_equal_a_model_after_every_step proves [129] needs [];
        parts_add_up_to_the_whole proves [130] needs [];
        peaks_start_again_where_they_are_reset proves [131] needs [];
        snapshots_under_load_are_consistent proves [132] needs [];
        a_report_holds_what_its_totals_say proves [133] needs [];
        an_empty_manager_has_defined_numbers proves [134] needs [];
    }
}

fn counters_equal_a_model_after_every_step<B: Backend + 'static>(world: &World<B>) {
    let stack = world.stack();
    let manager = world.manager_over(&stack);
    let (mut rng, mut live) = (world.rng(), Vec::<Allocation<Stack<B>>>::new());
    let (mut allocated, mut freed, mut peak) = (0, 0, 0);
    for _ in 0..800 {
        if rng.below(5) < 3 || live.is_empty() {
            live.push(take(&manager, &Request::new(rng.size(200_000))));
            allocated += 1;
        } else {
            live.swap_remove(rng.index(live.len())).free();
            freed += 1;
        }
        let bytes: u64 = live.iter().map(Allocation::size).sum();
        peak = peak.max(bytes);
        let totals = manager.totals();
        assert_eq!((totals.live, totals.live_bytes), (live.len() as u64, bytes));
        assert_eq!((totals.allocated, totals.freed), (allocated, freed));
        assert_eq!(totals.peak_live_bytes, peak);
        assert_eq!(totals.reserved_bytes, stack.inner().live().bytes());
        assert!(
            totals.granted_bytes >= bytes && totals.padding_bytes() == totals.granted_bytes - bytes
        );
        assert!(totals.largest_hole <= totals.free_bytes);
        assert_eq!(totals.granted_bytes + totals.free_bytes, totals.reserved_bytes);
    }
    manager.validate().expect("sound");
    assert_eq!(manager.report().peak_reserved_bytes, stack.inner().peak_bytes());
}

fn parts_add_up_to_the_whole<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let heaps: Vec<_> = world.backend().caps().heap_ids().map(|(id, _)| id).collect();
    let pool = manager.create_pool(world.device_heap(), pool_of(1 << 20)).expect("valid");
    let mut live: Vec<_> = heaps.iter().map(|heap| take(&manager, &in_heap(*heap, 1000))).collect();
    live.extend((0..10).map(|n| pool.allocate(&Request::new(500 + n)).expect("fits")));
    let report = manager.report();
    assert_eq!(report.totals, manager.totals(), "fast and detailed agree");
    let sum = |value: fn(&Totals) -> u64| {
        report.pools.iter().map(|pool| value(&pool.totals)).sum::<u64>()
    };
    assert_eq!(sum(|totals| totals.live), report.totals.live);
    assert_eq!(sum(|totals| totals.live_bytes), report.totals.live_bytes);
    assert_eq!(sum(|totals| totals.reserved_bytes), report.totals.reserved_bytes);
    let held: u64 =
        heaps.iter().map(|heap| manager.heap_use(*heap).expect("exists").reserved).sum();
    assert_eq!(held, report.totals.reserved_bytes, "per heap = total");
    for heap in heaps {
        let pools = report.pools.iter().filter(|pool| pool.heap == heap);
        let sum: u64 = pools.map(|pool| pool.totals.reserved_bytes).sum();
        assert_eq!(sum, manager.heap_use(heap).expect("exists").reserved);
    }
    drop(live);
    manager.destroy_pool(pool).map_err(|refused| refused.error).expect("empty");
}

/// Checks that what a report lists is what it counts.
fn consistent(report: &Report) {
    for pool in &report.pools {
        let (mut live, mut holes, mut free) = (0, 0, 0);
        for block in &pool.blocks {
            let spans = block.live.iter().map(|live| &live.span).chain(&block.holes);
            let mut spans: Vec<_> = spans.collect();
            spans.sort_unstable_by_key(|span| span.offset);
            assert!(spans.windows(2).all(|pair| pair[0].end() <= pair[1].offset), "an overlap");
            assert!(spans.last().is_none_or(|span| span.end() <= block.size));
            live += block.live.len() as u64;
            holes += block.holes.len() as u64;
            free += block.holes.iter().map(|span| span.size).sum::<u64>();
        }
        let totals = pool.totals;
        assert_eq!((live, holes, free), (totals.live, totals.holes, totals.free_bytes));
    }
}

fn snapshots_under_load_are_consistent<B: Backend + 'static>(world: &World<B>) {
    let mut config = world.config();
    config.pool.lanes = Some(4);
    let manager = world.manager_with(&world.stack(), config);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (manager, stop) = (&manager, &stop);
            scope.spawn(move || {
                let mut rng = crate::rng::Rng::new(seed);
                let mut live = Vec::new();
                // Bounded as well, so that a failed assertion beside it does not leave it running.
                for _ in 0..200_000 {
                    if stop.load(Relaxed) {
                        break;
                    }
                    live.push(take(manager, &Request::new(rng.size(5000))));
                    if live.len() > 30 {
                        live.swap_remove(rng.index(live.len())).free();
                    }
                }
            });
        }
        for _ in 0..if cfg!(debug_assertions) { 60 } else { 20_000 } {
            let totals = manager.totals();
            assert!(totals.live_bytes <= totals.granted_bytes, "{totals:?}");
            assert!(totals.largest_hole <= totals.free_bytes, "{totals:?}");
            assert!(totals.live == totals.allocated - totals.freed, "{totals:?}");
            manager.validate().expect("sound");
        }
        stop.store(true, Relaxed);
    });
    consistent(&manager.report());
}

fn a_report_holds_what_its_totals_say<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let mut rng = world.rng();
    let mut live = Vec::new();
    for round in 0..200 {
        live.push(take(&manager, &Request::new(rng.size(100_000))));
        if rng.below(2) == 0 {
            live.swap_remove(rng.index(live.len())).free();
        }
        if round % 20 == 0 {
            consistent(&manager.report());
        }
    }
    let report = manager.report();
    let mut spans: Vec<_> = report
        .pools
        .iter()
        .flat_map(|pool| &pool.blocks)
        .flat_map(|block| &block.live)
        .map(|live| live.span.offset)
        .collect();
    let mut wanted: Vec<_> = live.iter().map(|one| one.binding().span().offset).collect();
    spans.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(spans, wanted, "the layout is what it says");
}

fn an_empty_manager_has_defined_numbers<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    assert_eq!(manager.totals(), Totals::default());
    assert!(manager.totals().fragmentation().abs() < f64::EPSILON, "no holes, no fragmentation");
    let report = manager.report();
    assert_eq!((report.blocks, report.driver_calls, report.quarantined_bytes), (0, 0, 0));
    assert_eq!((report.peak_reserved_bytes, report.rungs.iter().sum::<u64>()), (0, 0));
    let pool = manager.create_pool(world.device_heap(), pool_of(1 << 20)).expect("valid");
    assert_eq!((pool.reserved(), manager.totals()), (0, Totals::default()));
    manager.destroy_pool(pool).map_err(|refused| refused.error).expect("empty");
    manager.validate().expect("sound");
}

fn peaks_start_again_where_they_are_reset<B: Backend + 'static>(world: &World<B>) {
    let manager = world.manager();
    let kept = take(&manager, &Request::new(1000));
    drop(take(&manager, &Request::new(8 << 20)));
    assert_eq!(manager.totals().peak_live_bytes, 1000 + (8 << 20));
    manager.trim().expect("empty blocks go back");
    manager.reset_peaks();
    assert_eq!(manager.totals().peak_live_bytes, 1000);
    assert_eq!(manager.report().peak_reserved_bytes, manager.totals().reserved_bytes);
    let inner = take(&manager, &Request::new(5000));
    drop(kept);
    assert_eq!(manager.totals().peak_live_bytes, 6000);
    manager.reset_peaks();
    drop(inner);
    assert_eq!(manager.totals().peak_live_bytes, 5000);
}
