//! Every pure planner against a slow reference that is read off its documentation.
use super::*;
use alloc::{vec, vec::Vec};
use core::ops::Range;

/// Blocks that each planner gets. Miri looks at each access, and is thousands of times slower.
const ROUNDS: usize = if cfg!(miri) { 40 } else { 6000 };

/// Numbers that depend on a seed alone.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

/// A block, each piece with its span: between two holes there is always something else.
fn block(random: &mut Random, aligned: bool) -> Vec<(Piece<u32>, Span)> {
    let (mut pieces, mut offset) = (Vec::<(Piece<u32>, Span)>::new(), random.below(4));
    let fixed = random.below(10);
    for what in 0..2 + u32::try_from(random.below(14)).expect("few") {
        let span = Span { offset, size: 1 + random.below(9) };
        let after_hole = matches!(pieces.last(), Some((Piece::Hole(_), _)));
        let piece = match random.below(10) {
            0 if fixed < 5 => Piece::Fixed,
            1..=5 if !after_hole => Piece::Hole(span),
            _ => {
                let most = if aligned { 1 + offset.trailing_zeros().min(3) } else { 1 };
                Piece::Movable(span, Align::of(1 << random.below(most.into())), what)
            }
        };
        pieces.push((piece, span));
        offset = span.end();
    }
    pieces
}

fn plain(block: &[(Piece<u32>, Span)]) -> Vec<Piece<u32>> {
    block.iter().map(|(piece, _)| *piece).collect()
}

fn hole_of(piece: &Piece<u32>) -> u64 {
    if let Piece::Hole(hole) = piece { hole.size } else { 0 }
}

fn movable(piece: &Piece<u32>) -> u64 {
    if let Piece::Movable(span, ..) = piece { span.size } else { 0 }
}

/// Bytes of a block: who has each of them. 0 is nobody, 1 what is fixed, others what may move.
fn bytes(block: &[(Piece<u32>, Span)]) -> Vec<u32> {
    let mut bytes = Vec::new();
    for (piece, span) in block {
        let owner = match piece {
            Piece::Hole(_) => 0,
            Piece::Fixed => 1,
            Piece::Movable(_, _, what) => what + 2,
        };
        bytes.resize(usize::try_from(span.offset).expect("small"), 1);
        bytes.resize(usize::try_from(span.end()).expect("small"), owner);
    }
    bytes
}

fn range(offset: u64, size: u64) -> Range<usize> {
    usize::try_from(offset).expect("small")..usize::try_from(offset + size).expect("small")
}

/// Makes slides one after the other; each goes down over bytes that are free or its own.
fn slid(block: &[(Piece<u32>, Span)], window: &Window<u32>) -> Vec<u32> {
    let mut bytes = bytes(block);
    let mut moved = 0;
    for MoveDown { what, from, to } in &window.slides {
        let owner = what + 2;
        assert!(*to < from.offset, "a slide goes down");
        assert!(bytes[range(from.offset, from.size)].iter().all(|at| *at == owner), "whole");
        bytes[range(from.offset, from.size)].fill(0);
        assert!(bytes[range(*to, from.size)].iter().all(|at| *at == 0), "over nobody");
        bytes[range(*to, from.size)].fill(owner);
        let piece = block.iter().find(|(_, span)| span == from).map(|(piece, _)| *piece);
        let Some(Piece::Movable(_, align, _)) = piece else { panic!("only what may move") };
        assert_eq!(align.up(*to), Some(*to), "aligned");
        moved += from.size;
    }
    assert_eq!(moved, window.bytes);
    bytes
}

fn longest_free(bytes: &[u32]) -> usize {
    bytes.split(|owner| *owner != 0).map(<[u32]>::len).max().unwrap_or(0)
}

/// Holes cut in two, as those of two users that touch.
fn with_touching_holes(
    random: &mut Random,
    block: &[(Piece<u32>, Span)],
) -> Vec<(Piece<u32>, Span)> {
    let mut pieces = Vec::new();
    for &(piece, Span { offset, size }) in block {
        let first = random.below(size);
        if !matches!(piece, Piece::Hole(_)) || first == 0 {
            pieces.push((piece, Span { offset, size }));
            continue;
        }
        for hole in
            [Span { offset, size: first }, Span { offset: offset + first, size: size - first }]
        {
            pieces.push((Piece::Hole(hole), hole));
        }
    }
    pieces
}

/// The bytes that slides in a window move, and the hole at its end.
fn slid_by(window: &[Piece<u32>]) -> Option<(u64, u64)> {
    let Some(Piece::Hole(first)) = window.first() else { return None };
    let (mut next, mut end, mut moved) = (first.offset, 0, 0);
    for piece in window {
        match piece {
            Piece::Fixed => return None,
            Piece::Hole(hole) => end = hole.end(),
            Piece::Movable(span, align, _) => {
                let to = align.up(next)?.min(span.offset);
                moved += if to < span.offset { span.size } else { 0 };
                next = to + span.size;
            }
        }
    }
    matches!(window.last(), Some(Piece::Hole(_))).then(|| (moved, end - next))
}

#[test]
fn the_cheapest_window_is_the_one_that_a_search_of_all_windows_finds() {
    let (mut random, mut found) = (Random(1), 0);
    for round in 0..ROUNDS {
        let mut block = block(&mut random, round % 2 == 0);
        if round % 3 == 0 {
            block = with_touching_holes(&mut random, &block);
        }
        let (pieces, size) = (plain(&block), 1 + random.below(30));
        let windows = (0..pieces.len()).flat_map(|a| (a..pieces.len()).map(move |b| a..b + 1));
        let least = windows
            .filter_map(|window| slid_by(&pieces[window]))
            .filter(|(_, hole)| *hole >= size)
            .map(|(moved, _)| moved)
            .min();
        let window = cheapest(&pieces, size).expect("host memory");
        assert_eq!(window.as_ref().map(|window| window.bytes), least, "{size} in {block:?}");
        let Some(window) = window else { continue };
        let longest = longest_free(&slid(&block, &window));
        assert!(longest as u64 >= size, "{size} in {block:?}: {window:?}");
        found += usize::from(window.bytes > 0);
    }
    assert!(found > ROUNDS / 12, "{found} blocks had something to slide");
}

/// Holes with something movable between them, most of which wastes bytes to its alignment.
fn large_block(random: &mut Random, holes: u32) -> Vec<Piece<u32>> {
    let (mut pieces, mut at) = (Vec::new(), 0);
    for what in 0..holes {
        let hole = Span { offset: at, size: 16 * (1 + random.below(256)) };
        let align = Align::of(16 << random.below(7));
        let movable = Span { offset: align.up(hole.end()).expect("small"), size: 64 };
        pieces.push(Piece::Hole(Span { offset: at, size: movable.offset - at }));
        pieces.push(Piece::Movable(movable, align, what));
        at = movable.end();
    }
    pieces.push(Piece::Hole(Span { offset: at, size: 16 }));
    pieces
}

/// The fewest bytes that a window moves which begins at the start of some pieces; `None` where none makes the hole.
fn least_from(pieces: &[Piece<u32>], size: u64) -> Option<u64> {
    let Some(Piece::Hole(first)) = pieces.first() else { return None };
    let (mut next, mut moved) = (first.offset, 0);
    for piece in pieces {
        match piece {
            Piece::Hole(hole) if hole.end() - next >= size => return Some(moved),
            Piece::Hole(_) => {}
            Piece::Movable(span, align, _) => {
                let to = align.up(next)?.min(span.offset);
                moved += if to < span.offset { span.size } else { 0 };
                next = to + span.size;
            }
            Piece::Fixed => return None,
        }
    }
    None
}

#[test]
fn in_a_large_block_a_window_is_found_wherever_there_is_one_and_costs_hardly_more() {
    let (mut random, mut more) = (Random(9), 0);
    let holes = if cfg!(miri) { 300 } else { 1500 };
    for _ in 0..3 {
        let pieces = large_block(&mut random, holes);
        let (_, most) = slid_by(&pieces).expect("it begins and ends with a hole");
        for size in [most / 8, most / 2, most - most / 16, most, most + 1] {
            let starts = (0..pieces.len()).filter_map(|at| least_from(&pieces[at..], size));
            let (least, window) = (starts.min(), cheapest(&pieces, size).expect("host memory"));
            let bytes = window.as_ref().map(|window| window.bytes);
            assert_eq!(bytes.is_some(), least.is_some(), "{size} of {most}");
            let (bytes, least) = (bytes.unwrap_or(0), least.unwrap_or(0));
            assert!(bytes >= least && bytes <= least + least / 16, "{size}: {bytes}, {least}");
            more += bytes - least;
        }
    }
    assert!(cfg!(miri) || more > 0, "all of them are exact, so that nothing was thinned out");
}

#[test]
fn what_moves_where_holes_touch_gains_all_the_same() {
    let (mut random, mut found) = (Random(7), [0; 2]);
    for round in 0..ROUNDS {
        let whole = block(&mut random, round % 2 == 0);
        let block = with_touching_holes(&mut random, &whole);
        let (pieces, before) = (plain(&block), longest_free(&bytes(&block)));
        if let Some(window) = widest(&pieces).expect("host memory") {
            assert!(longest_free(&slid(&block, &window)) > before, "{block:?}: {window:?}");
            found[0] += 1;
        }
        let mut after = bytes(&block);
        let moves = move_down(&pieces, Align::ONE);
        for MoveDown { what, from, to } in &moves {
            after[range(from.offset, from.size)].fill(0);
            assert!(after[range(*to, from.size)].iter().all(|at| *at == 0), "over nobody");
            after[range(*to, from.size)].fill(what + 2);
        }
        assert!(moves.is_empty() || longest_free(&after) > before, "{block:?}: {moves:?}");
        found[1] += usize::from(!moves.is_empty());
    }
    assert!(found.iter().all(|found| *found > ROUNDS / 30), "{found:?}");
}

#[test]
fn a_window_keeps_every_alignment_and_never_makes_less_than_it_was_asked_for() {
    let mut random = Random(2);
    for _ in 0..ROUNDS {
        let block = block(&mut random, true);
        let size = 1 + random.below(30);
        if let Some(window) = cheapest(&plain(&block), size).expect("host memory") {
            assert!(longest_free(&slid(&block, &window)) as u64 >= size);
        }
        if let Some(window) = widest(&plain(&block)).expect("host memory") {
            let before = longest_free(&bytes(&block));
            assert!(longest_free(&slid(&block, &window)) > before, "{block:?}");
        }
    }
}

#[test]
fn the_widest_hole_is_all_that_is_free_in_one_stretch_where_that_is_worth_it() {
    let (mut random, mut counts) = (Random(3), [0; 2]);
    for _ in 0..ROUNDS {
        let block = block(&mut random, false);
        let pieces = plain(&block);
        let stretches: Vec<_> = pieces.split(|piece| matches!(piece, Piece::Fixed)).collect();
        let free = |stretch: &&[Piece<u32>]| stretch.iter().map(hole_of).sum::<u64>();
        let most = stretches.iter().map(free).max().unwrap_or(0);
        let window = widest(&pieces).expect("host memory");
        counts[usize::from(window.is_some())] += 1;
        let gain = most - pieces.iter().map(hole_of).max().unwrap_or(0);
        // Everything between the first and the last hole of the stretch has to move.
        let stretch = stretches.into_iter().max_by_key(free).unwrap_or_default();
        let is_hole = |piece: &Piece<u32>| hole_of(piece) > 0;
        let inner = stretch.iter().position(is_hole).zip(stretch.iter().rposition(is_hole));
        let moved = inner.map_or(0, |(a, b)| stretch[a..=b].iter().map(movable).sum::<u64>());
        let all: u64 = pieces.iter().map(hole_of).sum();
        let is_worth_it = gain > 0 && gain >= all / 32 && moved <= gain * 8;
        assert_eq!(window.is_some(), is_worth_it, "{block:?}");
        let Some(window) = window else { continue };
        assert_eq!((window.bytes, longest_free(&slid(&block, &window)) as u64), (moved, most));
        assert_eq!(window.holes.iter().map(|hole| hole.size).sum::<u64>(), most);
    }
    assert!(counts.iter().all(|count| *count > ROUNDS / 12), "{counts:?}");
}

#[test]
fn a_hole_at_the_end_has_the_size_or_all_that_is_free_behind_what_is_fixed() {
    let mut random = Random(4);
    for _ in 0..ROUNDS {
        let block = block(&mut random, false);
        let (pieces, size) = (plain(&block), 1 + random.below(20));
        let mut stretches = pieces.split(|piece| matches!(piece, Piece::Fixed));
        let stretch = stretches.rfind(|stretch| !stretch.is_empty()).unwrap_or_default();
        let free: u64 = stretch.iter().map(hole_of).sum();
        let window = last(&pieces, size).expect("host memory");
        let after = window.as_ref().map_or_else(|| bytes(&block), |one| slid(&block, one));
        let end: usize = match block.iter().rposition(|(piece, _)| !matches!(piece, Piece::Fixed)) {
            Some(at) => range(0, block[at].1.end()).end,
            None => 0,
        };
        let hole = after[..end].iter().rev().take_while(|owner| **owner == 0).count() as u64;
        assert!(hole >= size.min(free), "{size} of {free} in {block:?}: {window:?}");
        let Some(window) = window else { continue };
        let spared: u64 = window.holes.iter().skip(1).map(|hole| hole.size).sum();
        assert!(!window.slides.is_empty() && spared < size, "no hole too many: {window:?}");
    }
}

/// Plans the moves of `move_down` without its tree: the bytes left in each hole are in a list that is searched from its
/// start.
fn moved_down(pieces: &[Piece<u32>], granularity: Align) -> Vec<MoveDown<u32>> {
    let largest = pieces.iter().map(hole_of).max().unwrap_or(0);
    let (mut best, mut longest, mut end) = (Vec::new(), largest, pieces.len());
    while end > 0 {
        let (moves, bytes, first) = cleared(&pieces[..end], granularity);
        let copied: u64 = moves.iter().map(|one| one.from.size).sum();
        if bytes > longest && copied <= (bytes - largest) * 4 {
            (best, longest) = (moves, bytes);
        }
        end = first;
    }
    best
}

fn cleared(pieces: &[Piece<u32>], granularity: Align) -> (Vec<MoveDown<u32>>, u64, usize) {
    let mut left: Vec<u64> = pieces.iter().map(hole_of).collect();
    let (mut moves, mut bytes) = (Vec::new(), 0);
    for (at, piece) in pieces.iter().enumerate().rev() {
        match piece {
            Piece::Fixed => return (moves, bytes, at),
            Piece::Hole(hole) => {
                bytes += left[at];
                if left[at] < hole.size {
                    return (moves, bytes, at);
                }
            }
            Piece::Movable(from, align, what) => {
                let align = (*align).max(granularity);
                let place = |hole: usize| {
                    let Piece::Hole(whole) = pieces[hole] else { return None };
                    let to = align.up(whole.end() - left[hole])?;
                    (to + from.size <= granularity.down(whole.end())).then_some((hole, to, whole))
                };
                let large = (0..at).filter(|hole| left[*hole] >= from.size);
                let found = large.take(8).find_map(place);
                let Some((hole, to, whole)) = found else { return (moves, bytes, at) };
                // A gap before it loses the rest of the hole.
                let has_gap = to != whole.end() - left[hole];
                left[hole] = if has_gap { 0 } else { left[hole] - from.size };
                bytes += from.size;
                moves.push(MoveDown { what: *what, from: *from, to });
            }
        }
    }
    (moves, bytes, 0)
}

#[test]
fn moves_down_are_those_of_a_plain_search() {
    let (mut random, mut made) = (Random(5), 0);
    for round in 0..ROUNDS {
        let pieces = plain(&block(&mut random, round % 2 == 0));
        let granularity = Align::of(1 << random.below(3));
        let moves = move_down(&pieces, granularity);
        assert_eq!(moves, moved_down(&pieces, granularity), "{granularity:?} {pieces:?}");
        made += moves.len();
    }
    assert!(made > ROUNDS / 6, "{made}");
}

const PAGE: u64 = 16;

/// Pages of which some stay, and some are missing, with the allocations that lie in them side by side.
fn pages(random: &mut Random) -> (Vec<Extent<()>>, Vec<Span>) {
    let count = 2 + random.below(9);
    let mut extents: Vec<_> = (0..count).map(|number| Extent::new(number, PAGE)).collect();
    let (mut spans, mut offset) = (Vec::new(), random.below(8));
    loop {
        let span = Span { offset, size: 1 + random.below(20) };
        if span.end() > count * PAGE {
            break;
        }
        extents[range(span.offset / PAGE, 0).start].begins += span.size;
        extents[range((span.end() - 1) / PAGE, 0).start].ends += span.size;
        spans.push(span);
        offset = span.end() + random.below(14);
    }
    for extent in &mut extents {
        extent.stays = random.below(6) == 0;
    }
    let touches = |extent: &Extent<()>, span: &Span| {
        span.overlaps(Span { offset: extent.number * PAGE, size: PAGE })
    };
    // Pages without anything are no extents.
    extents.retain(|extent| spans.iter().any(|span| touches(extent, span)));
    (extents, spans)
}

/// Bytes of everything that touches a stretch.
fn live(spans: &[Span], extents: &[Extent<()>]) -> u64 {
    let (Some(first), Some(last)) = (extents.first(), extents.last()) else { return 0 };
    let all = Span { offset: first.number * PAGE, size: (last.number + 1 - first.number) * PAGE };
    spans.iter().filter(|span| span.overlaps(all)).map(|span| span.size).sum()
}

/// Plans what `pack` plans, with the bytes of each stretch counted anew.
fn packed(extents: &[Extent<()>], spans: &[Span], most: u64) -> Vec<Range<usize>> {
    let mut cheapest = Vec::new();
    for first in 0..extents.len() {
        let ends = first + 1..=extents.len();
        let side_by_side = |end: &usize| {
            let stretch = &extents[first..*end];
            stretch.windows(2).all(|two| two[0].number + 1 == two[1].number)
                && stretch.iter().all(|extent| !extent.stays)
                && live(spans, stretch) <= most
        };
        let price = |end: usize| {
            let live = live(spans, &extents[first..end]);
            let gain = ((end - first) as u64 * PAGE).checked_sub(live).filter(|gain| *gain > 0)?;
            let price = live * 1024 / gain;
            (price <= 64 * 1024).then_some((price, first, end))
        };
        let best = ends.take_while(side_by_side).filter_map(price).min();
        cheapest.extend(best);
    }
    cheapest.sort_unstable();
    let (mut taken, mut copied, mut size) = (Vec::<Range<usize>>::new(), 0, 0);
    let mut used = vec![false; extents.len()];
    for (_, first, end) in cheapest {
        let live = live(spans, &extents[first..end]);
        if copied + live <= most && !used[first..end].contains(&true) {
            used[first..end].fill(true);
            (copied, size) = (copied + live, size + (end - first) as u64 * PAGE);
            taken.push(first..end);
        }
    }
    if size >= copied.next_multiple_of(PAGE) + PAGE { taken } else { Vec::new() }
}

#[test]
fn packed_pages_are_those_that_a_count_of_every_stretch_finds() {
    let (mut random, mut found) = (Random(6), 0);
    for _ in 0..ROUNDS {
        let (extents, spans) = pages(&mut random);
        let most = 20 + random.below(140);
        let taken = pack(&extents, PAGE, most);
        assert_eq!(taken, packed(&extents, &spans, most), "{most}: {spans:?} {extents:?}");
        found += usize::from(!taken.is_empty());
    }
    assert!(found > ROUNDS / 12, "{found}");
}

#[test]
fn the_least_used_is_emptied_first_and_what_cannot_or_need_not_be_is_left_alone() {
    let extent = |number, size, live, stays| Extent::<()> {
        live,
        stays,
        movable: live.min(1),
        ..Extent::new(number, size)
    };
    let extents = [extent(0, 100, 50, false), extent(1, 100, 14, false), extent(2, 10, 9, false)];
    assert_eq!(sources(&extents), [1, 0, 2]);
    let extents = [(0, 50, true), (1, 0, false), (2, 801, false), (3, 800, false)];
    let extents = extents.map(|(number, live, stays)| extent(number, 100, live, stays));
    assert_eq!(sources(&extents), [3]);
}

#[test]
fn holes_are_closed_where_they_are_scattered_and_something_can_move() {
    let holes = |number, largest_hole, movable| Extent::<()> {
        stays: true,
        free: 400,
        largest_hole,
        movable,
        ..Extent::new(number, 1000)
    };
    let extents =
        [holes(0, 400, 1), holes(1, 301, 1), holes(2, 300, 1), holes(3, 100, 0), holes(4, 100, 1)];
    assert_eq!(scattered(&extents), [4, 2]);
}
