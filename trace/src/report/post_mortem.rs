//! Why a request failed: the largest hole, who blocks it, what would have helped.

use super::data::{Blocker, Hole, MapBlock, Moment, PostMortem};
use std::collections::BTreeMap;

/// Explains a request of `size` bytes that failed at `moment`.
pub(super) fn explain(
    moment: &Moment,
    size: u64,
    stream: u16,
    live_bytes: u64,
    reserved_bytes: u64,
) -> PostMortem {
    let free_bytes = reserved_bytes.saturating_sub(live_bytes);
    let trimmable_bytes =
        moment.blocks.iter().filter(|block| block.spans.is_empty()).map(|block| block.size).sum();
    let largest = moment.blocks.iter().filter_map(largest_hole).max_by_key(|(hole, _)| hole.size);
    let (largest_hole, blockers) = match largest {
        Some((hole, blockers)) => (Some(hole), blockers),
        None => (None, Vec::new()),
    };
    PostMortem {
        time_us: moment.time_us,
        size,
        stream,
        live_bytes,
        reserved_bytes,
        free_bytes,
        largest_hole,
        blockers,
        trimmable_bytes,
        fits_after_trim: trimmable_bytes >= size,
        fits_after_defragment: defragmented(moment, size),
        moment: None,
    }
}

/// Whether gathering a heap's free bytes gives `size` in one place: enough of them, and a block that could hold them.
fn defragmented(moment: &Moment, size: u64) -> bool {
    let mut heaps: BTreeMap<u8, (u64, u64)> = BTreeMap::new();
    for block in &moment.blocks {
        let live: u64 = block.spans.iter().map(|span| span.size).sum();
        let (free, largest) = heaps.entry(block.heap).or_default();
        *free += block.size.saturating_sub(live);
        *largest = block.size.max(*largest);
    }
    heaps.values().any(|&(free, largest)| free >= size && largest >= size)
}

/// The largest free run of a block and the allocations on either side of it.
fn largest_hole(block: &MapBlock) -> Option<(Hole, Vec<Blocker>)> {
    let mut best: Option<(Hole, usize)> = None;
    let mut end = 0;
    for index in 0..=block.spans.len() {
        let next = block.spans.get(index).map_or(block.size, |span| span.offset);
        let size = next.saturating_sub(end);
        if size > best.map_or(0, |(hole, _)| hole.size) {
            best = Some((Hole { block: block.block, offset: end, size }, index));
        }
        end = block.spans.get(index).map_or(end, |span| end.max(span.offset + span.size));
    }
    let (hole, index) = best?;
    let sides = [index.checked_sub(1), Some(index)];
    let spans = sides.into_iter().flatten().filter_map(|side| block.spans.get(side));
    Some((hole, spans.map(|span| Blocker { label: span.label, size: span.size }).collect()))
}

#[cfg(test)]
mod tests {
    use super::explain;
    use crate::report::{Blocker, Hole, MapBlock, MapSpan, Moment, SpanState};

    fn span(offset: u64, size: u64, label: u32) -> MapSpan {
        MapSpan { offset, size, label, state: SpanState::Live }
    }

    fn moment(blocks: Vec<MapBlock>) -> Moment {
        Moment { title: String::new(), time_us: 7, blocks }
    }

    #[test]
    fn the_largest_hole_and_its_neighbours_are_named() {
        let spans = vec![span(0, 10, 1), span(20, 10, 2), span(70, 30, 3)];
        let full = MapBlock { block: 4, heap: 0, size: 100, spans };
        let empty = MapBlock { block: 5, heap: 0, size: 30, spans: Vec::new() };
        let found = explain(&moment(vec![full, empty]), 45, 2, 50, 130);
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
        let block =
            |offset| MapBlock { block: 0, heap: 0, size: 100, spans: vec![span(offset, 10, 9)] };
        for (offset, hole) in [(5, (15, 85)), (80, (0, 80))] {
            let found = explain(&moment(vec![block(offset)]), 1, 0, 10, 100);
            let largest = found.largest_hole.expect("there is one");
            assert_eq!((largest.offset, largest.size), hole);
            assert_eq!(found.blockers, [Blocker { label: 9, size: 10 }]);
        }
    }

    #[test]
    fn full_blocks_have_no_hole() {
        let full = MapBlock { block: 0, heap: 0, size: 10, spans: vec![span(0, 10, 0)] };
        let found = explain(&moment(vec![full]), 1, 0, 10, 10);
        assert_eq!((found.largest_hole, found.fits_after_defragment), (None, false));
    }
}
