//! Explanation of a failed request: the largest hole, the allocations that block it, what would have helped.

use super::data::{Blocker, Gap, Hole, MapBlock, Moment, PostMortem};

/// Explains a request of `size` bytes that failed at `moment`.
pub(super) fn explain(moment: &Moment, size: u64, stream: u16, live_bytes: u64) -> PostMortem {
    let reserved_bytes = moment.reserved_bytes();
    let empty = moment.blocks.iter().filter(|block| block.spans.is_empty());
    let trimmable_bytes = empty.map(memory).sum();
    let largest = moment.blocks.iter().filter_map(largest_hole).max_by_key(|(hole, _)| hole.size);
    let (largest_hole, blockers) =
        largest.map_or((None, Vec::new()), |(hole, sides)| (Some(hole), sides));
    PostMortem {
        time_us: moment.time_us,
        size,
        stream,
        live_bytes,
        reserved_bytes,
        free_bytes: reserved_bytes.saturating_sub(live_bytes),
        largest_hole,
        blockers,
        trimmable_bytes,
        fits_after_trim: trimmable_bytes >= size,
        fits_after_defragment: fits_defragmented(moment, size),
        moment: None,
    }
}

/// Returns the bytes of memory in a block; 0 if the places of its pages were not recorded.
fn memory(block: &MapBlock) -> u64 {
    let unmapped = |gaps: &Vec<Gap>| gaps.iter().map(|gap| gap.size).sum();
    block.unmapped.as_ref().map_or(0, |gaps| block.size.saturating_sub(unmapped(gaps)))
}

/// Returns whether gathering a heap's free bytes gives `size` in one place: enough of them, and a block that could hold them.
/// Pages can be mapped side by side at new addresses, so a block of pages holds any size.
fn fits_defragmented(moment: &Moment, size: u64) -> bool {
    moment.reserved.iter().any(|heap| {
        let blocks = || moment.blocks.iter().filter(|block| block.heap == heap.heap);
        let live: u64 = blocks().flat_map(|block| &block.spans).map(|span| span.size).sum();
        let holds = |block: &MapBlock| block.size >= size || block.unmapped != Some(Vec::new());
        heap.bytes.saturating_sub(live) >= size && blocks().any(holds)
    })
}

/// Returns the largest hole of a block and the allocations on either side. Blocks whose pages were not recorded have
/// none: what is free there may have no memory.
fn largest_hole(block: &MapBlock) -> Option<(Hole, Vec<Blocker>)> {
    let spans = block.spans.iter().map(|span| (span.offset, span.size, Some(span)));
    let gaps = block.unmapped.as_ref()?.iter().map(|gap| (gap.offset, gap.size, None));
    let mut taken: Vec<_> = spans.chain(gaps).collect();
    taken.sort_unstable_by_key(|&(offset, size, _)| (offset, size));
    let mut best: Option<(Hole, usize)> = None;
    let mut end = 0;
    for index in 0..=taken.len() {
        let next = taken.get(index).map_or(block.size, |&(offset, ..)| offset);
        let size = next.saturating_sub(end);
        if size > best.map_or(0, |(hole, _)| hole.size) {
            best = Some((Hole { block: block.block, offset: end, size }, index));
        }
        end = taken.get(index).map_or(end, |&(offset, size, _)| end.max(offset + size));
    }
    let (hole, index) = best?;
    let sides = [index.checked_sub(1), Some(index)];
    let spans = sides.into_iter().flatten().filter_map(|side| taken.get(side)?.2);
    Some((hole, spans.map(|span| Blocker { label: span.label, size: span.size }).collect()))
}

#[cfg(test)]
mod tests {
    use super::explain;
    use crate::report::{Blocker, Gap, HeapBytes, Hole, MapBlock, MapSpan, Moment, SpanState};

    fn span(offset: u64, size: u64, label: u32) -> MapSpan {
        MapSpan { offset, size, label, state: SpanState::Live }
    }

    fn block(block: u32, size: u64, spans: Vec<MapSpan>) -> MapBlock {
        MapBlock { block, heap: 0, size, spans, unmapped: Some(Vec::new()) }
    }

    fn moment(bytes: u64, blocks: Vec<MapBlock>) -> Moment {
        let reserved = vec![HeapBytes { heap: 0, bytes }];
        Moment { title: String::new(), time_us: 7, reserved, blocks }
    }

    #[test]
    fn the_largest_hole_and_its_neighbours_are_named() {
        let full = block(4, 100, vec![span(0, 10, 1), span(20, 10, 2), span(70, 30, 3)]);
        let found = explain(&moment(130, vec![full, block(5, 30, Vec::new())]), 45, 2, 50);
        assert_eq!(found.largest_hole, Some(Hole { block: 4, offset: 30, size: 40 }));
        assert_eq!(
            found.blockers,
            [Blocker { label: 2, size: 10 }, Blocker { label: 3, size: 30 }]
        );
        assert_eq!((found.trimmable_bytes, found.free_bytes), (30, 80));
        assert!(!found.fits_after_trim && found.fits_after_defragment);
    }

    #[test]
    fn a_hole_at_either_end_has_one_neighbour() {
        for (offset, hole) in [(5, (15, 85)), (80, (0, 80))] {
            let found =
                explain(&moment(100, vec![block(0, 100, vec![span(offset, 10, 9)])]), 1, 0, 10);
            let largest = found.largest_hole.expect("there is one");
            assert_eq!((largest.offset, largest.size), hole);
            assert_eq!(found.blockers, [Blocker { label: 9, size: 10 }]);
        }
    }

    #[test]
    fn a_request_fits_what_is_just_as_large() {
        let fits = |size| {
            let moment =
                moment(130, vec![block(4, 100, vec![span(0, 60, 1)]), block(5, 30, vec![])]);
            let found = explain(&moment, size, 0, 60);
            (found.fits_after_trim, found.fits_after_defragment)
        };
        assert_eq!((fits(30), fits(31)), ((true, true), (false, true)));
        assert_eq!((fits(70), fits(71)), ((false, true), (false, false)));
    }

    #[test]
    fn full_blocks_have_no_hole() {
        let found = explain(&moment(10, vec![block(0, 10, vec![span(0, 10, 0)])]), 1, 0, 10);
        assert_eq!((found.largest_hole, found.fits_after_defragment), (None, false));
    }

    #[test]
    fn addresses_without_memory_are_no_holes() {
        let mut paged = block(0, 100, vec![span(0, 10, 1), span(90, 10, 2)]);
        paged.unmapped = Some(vec![Gap { offset: 30, size: 60 }]);
        let found = explain(&moment(40, vec![paged.clone()]), 25, 0, 20);
        assert_eq!(found.largest_hole, Some(Hole { block: 0, offset: 10, size: 20 }));
        assert_eq!(found.blockers, [Blocker { label: 1, size: 10 }]);
        assert_eq!((found.free_bytes, found.fits_after_defragment), (20, false));

        // A trace without a record of mapped pages shows only the sums.
        paged.unmapped = None;
        let empty = MapBlock { unmapped: None, ..block(1, 50, Vec::new()) };
        let found = explain(&moment(40, vec![paged, empty]), 15, 0, 20);
        assert_eq!((found.largest_hole, found.trimmable_bytes), (None, 0));
        assert!(found.fits_after_defragment);
    }
}
