//! Checks of a manager's report, against the pieces that it shows and the allocations that a program holds.
use omniheap_core::{
    Allocation, Backend, BlockReport, Manager, PoolReport, Span, SpanState, Totals,
};

/// Checks every number that a manager reports, while no other thread uses it.
///
/// # Panics
///
/// Panics when a number is not what a walk of all pieces gives, or what `live`, all allocations that the program holds,
/// add up to.
pub fn check_books<B: Backend>(manager: &Manager<B>, live: &[&Allocation<B>]) {
    // Places are asked for first: that may end moves.
    check_places(live);
    let report = manager.report();
    assert_eq!(report.totals, manager.totals(), "two ways to the same sums");
    let summary = manager.summary();
    assert_eq!((summary.totals, summary.blocks), (report.totals, report.blocks));
    report.pools.iter().for_each(check_pool);
    check_live(&report.totals, live);
    for (heap, _) in manager.caps().heap_ids() {
        let here = report.pools.iter().filter(|pool| pool.heap == heap);
        let held: u64 = here.map(|pool| pool.totals.reserved_bytes).sum();
        let told = manager.heap_use(heap).expect("it is there");
        assert!(held <= told.reserved, "pools hold {held} of {told:?}");
        assert!(told.reserved <= told.peak_reserved, "{told:?}");
    }
}

/// No two allocations have a byte in common.
fn check_places<B: Backend>(live: &[&Allocation<B>]) {
    let mut places: Vec<_> = live
        .iter()
        .filter_map(|one| one.binding().address().map(|start| (start, start + one.size())))
        .collect();
    places.sort_unstable();
    for pair in places.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "{pair:?} overlap");
    }
}

fn check_live<B: Backend>(totals: &Totals, live: &[&Allocation<B>]) {
    let bytes: u64 = live.iter().map(|one| one.size()).sum();
    assert_eq!(totals.allocated - totals.freed, totals.live, "{totals:?}");
    assert!(totals.live >= live.len() as u64, "{totals:?}");
    assert_eq!(totals.live_bytes, bytes + totals.deferred_bytes, "{totals:?}");
    assert!(totals.peak_live_bytes >= totals.live_bytes, "{totals:?}");
    assert!(totals.away_bytes <= totals.live_bytes, "{totals:?}");
    assert_eq!(totals.padding_bytes(), totals.granted_bytes - totals.live_bytes);
}

/// The sums of a pool are those of its pieces.
fn check_pool(pool: &PoolReport) {
    let (totals, blocks) = (&pool.totals, &pool.blocks);
    blocks.iter().for_each(check_block);
    let holes = || blocks.iter().flat_map(|block| &block.holes).map(|hole| hole.size);
    let found = (holes().sum(), holes().max().unwrap_or(0), holes().count() as u64);
    assert_eq!((totals.free_bytes, totals.largest_hole, totals.holes), found, "{pool:#?}");
    let live = || blocks.iter().flat_map(|block| &block.live);
    let granted: u64 = live().map(|one| one.span.size).sum();
    assert_eq!(totals.granted_bytes, granted, "{pool:#?}");
    assert_eq!(totals.live, live().count() as u64, "{pool:#?}");
    let waits = live().filter(|one| one.state == SpanState::Deferred);
    let waiting: u64 = waits.map(|one| one.span.size).sum();
    assert!(totals.deferred_bytes <= waiting, "{pool:#?}");
    assert_eq!(totals.deferred_bytes == 0, waiting == 0, "{pool:#?}");
    assert!(granted + totals.free_bytes <= totals.reserved_bytes, "{pool:#?}");
}

/// The pieces of a block lie side by side, and inside it.
fn check_block(block: &BlockReport) {
    let live = block.live.iter().map(|one| one.span);
    let mut pieces: Vec<Span> = live.chain(block.holes.iter().copied()).collect();
    assert!(
        block.live.is_sorted_by_key(|one| one.span.offset)
            && block.holes.is_sorted_by_key(|hole| hole.offset)
    );
    pieces.sort_unstable_by_key(|piece| piece.offset);
    for pair in pieces.windows(2) {
        assert!(pair[0].end() <= pair[1].offset, "{pair:?} overlap");
    }
    assert!(pieces.last().is_none_or(|last| last.end() <= block.size), "{block:#?}");
    assert!(pieces.iter().all(|piece| piece.size > 0), "{block:#?}");
}
