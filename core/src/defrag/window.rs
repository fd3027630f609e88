//! Pure planner of slides: makes a hole of some size in a block by moving as few bytes as possible.
#![forbid(unsafe_code)]
use crate::ErrorKind;
use crate::lane::{MoveDown, Piece, Window, room_for};

/// A window, `None` where no window meets the goal, or `OutOfHostMemory`.
pub(super) type Planned<T> = Result<Option<Window<T>>, ErrorKind>;

/// The window that makes a hole of `size` bytes by moving the fewest bytes, or `None` where none does.
///
/// # Algorithm
///
/// A window starts at a hole and ends at a hole, with nothing fixed between. For each end, the latest start whose holes
/// add up to `size` moves the fewest bytes; two indices sweep the block once.
///
/// # Cost
///
/// *O*(n) for n pieces.
pub(super) fn cheapest<T: Copy>(pieces: &[Piece<T>], size: u64) -> Planned<T> {
    let (mut first, mut free, mut moved) = (0, 0u64, 0u64);
    let mut best: Option<(u64, usize, usize)> = None;
    for (last, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Fixed => (first, free, moved) = (last + 1, 0, 0),
            Piece::Movable(span, ..) => moved += span.size,
            Piece::Hole(hole) => {
                free += hole.size;
                while let Some((fewer_free, fewer_moved)) =
                    without_first(pieces, first, last, free, moved)
                {
                    if fewer_free < size {
                        break;
                    }
                    (first, free, moved) = (first + 1, fewer_free, fewer_moved);
                }
                if free >= size && best.is_none_or(|(least, ..)| moved < least) {
                    best = Some((moved, first, last));
                }
            }
        }
    }
    let Some((_, first, last)) = best else { return Ok(None) };
    let window = slide(&pieces[first..=last])?;
    // Alignment can waste some of the free bytes.
    Ok((hole_after(&window, pieces, last) >= size).then_some(window))
}

/// Holes are joined when that gains at least one part in this many of the free bytes.
const SCATTERED: u64 = 32;

/// Bytes that may be copied for each byte that the largest hole gains.
const MOST_PER_BYTE: u64 = 8;

/// The window that makes the longest hole of a block, or `None` where that gains little or costs much.
///
/// # Algorithm
///
/// Of the stretches between fixed pieces, the one with the most free bytes is slid to its start. It is only chosen where
/// its hole is then longer than every hole was, so repeating this ends.
///
/// # Cost
///
/// *O*(n) for n pieces.
pub(super) fn widest<T: Copy>(pieces: &[Piece<T>]) -> Planned<T> {
    let size = |piece: &Piece<T>| if let Piece::Hole(hole) = piece { hole.size } else { 0 };
    let stretches = pieces.split(|piece| matches!(piece, Piece::Fixed));
    let free = |stretch: &&[Piece<T>]| stretch.iter().map(size).sum::<u64>();
    let stretch = stretches.max_by_key(free).unwrap_or_default();
    let last = stretch.iter().rposition(|piece| matches!(piece, Piece::Hole(_)));
    let Some(last) = last else { return Ok(None) };
    let window = slide(&stretch[..=last])?;
    let largest = pieces.iter().map(size).max().unwrap_or(0);
    let all: u64 = pieces.iter().map(size).sum();
    let gain = hole_after(&window, stretch, last).saturating_sub(largest);
    let cheap = window.bytes <= gain.saturating_mul(MOST_PER_BYTE);
    Ok((gain > 0 && gain >= all / SCATTERED && cheap).then_some(window))
}

/// The window that leaves a hole of `size` bytes, or of all free bytes, at the end of the last stretch; `None` where
/// nothing has to move.
pub(super) fn last<T: Copy>(pieces: &[Piece<T>], size: u64) -> Planned<T> {
    let mut stretches = pieces.split(|piece| matches!(piece, Piece::Fixed));
    let stretch = stretches.rfind(|stretch| !stretch.is_empty()).unwrap_or_default();
    let (mut free, mut first) = (0u64, stretch.len());
    while free < size && first > 0 {
        first -= 1;
        free += if let Piece::Hole(hole) = &stretch[first] { hole.size } else { 0 };
    }
    Ok(Some(slide(&stretch[first..])?).filter(|window| !window.slides.is_empty()))
}

/// The sums of a window without its first piece.
fn without_first<T>(
    pieces: &[Piece<T>],
    first: usize,
    last: usize,
    free: u64,
    moved: u64,
) -> Option<(u64, u64)> {
    if first >= last {
        return None;
    }
    Some(match &pieces[first] {
        Piece::Hole(hole) => (free - hole.size, moved),
        Piece::Movable(span, ..) => (free, moved - span.size),
        Piece::Fixed => (free, moved),
    })
}

/// Slides everything in a stretch to its start.
fn slide<T: Copy>(pieces: &[Piece<T>]) -> Result<Window<T>, ErrorKind> {
    let holes = pieces.iter().filter(|piece| matches!(piece, Piece::Hole(_))).count();
    let mut window =
        Window { slides: room_for(pieces.len() - holes)?, holes: room_for(holes)?, bytes: 0 };
    let mut next: Option<u64> = None;
    for piece in pieces {
        match piece {
            Piece::Hole(hole) => {
                next.get_or_insert(hole.offset);
                window.holes.push(*hole);
            }
            Piece::Movable(span, align, what) => {
                let Some(free_from) = next else { continue };
                let to = align.up(free_from).unwrap_or(span.offset).min(span.offset);
                if to < span.offset {
                    window.slides.push(MoveDown { what: *what, from: *span, to });
                    window.bytes += span.size;
                }
                next = Some(to + span.size);
            }
            Piece::Fixed => {}
        }
    }
    Ok(window)
}

/// The hole at the end of a stretch after its slides. What its alignment keeps in its place bounds it, as what slid does.
fn hole_after<T>(window: &Window<T>, pieces: &[Piece<T>], last: usize) -> u64 {
    let Some(Piece::Hole(end)) = pieces.get(last) else { return 0 };
    let mut start = end.offset;
    for piece in pieces[..last].iter().rev() {
        match piece {
            Piece::Hole(before) => start = before.offset,
            Piece::Movable(span, ..) => {
                let slid = window.slides.last().filter(|slide| slide.from == *span);
                start = slid.map_or(start, |slide| slide.to + span.size);
                break;
            }
            Piece::Fixed => break,
        }
    }
    end.end() - start
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Align, Span};

    fn hole(offset: u64, size: u64) -> Piece<u32> {
        Piece::Hole(Span { offset, size })
    }
    fn live(offset: u64, size: u64, what: u32) -> Piece<u32> {
        Piece::Movable(Span { offset, size }, Align::ONE, what)
    }

    #[test]
    fn the_window_that_moves_the_fewest_bytes_is_chosen() {
        let pieces = [hole(0, 4), live(4, 100, 1), hole(104, 4), live(108, 3, 2), hole(111, 5)];
        let window = cheapest(&pieces, 9).expect("host memory").expect("the last two holes add up");
        assert_eq!((window.bytes, window.slides.len()), (3, 1));
        assert_eq!(window.slides[0].to, 104);
    }

    #[test]
    fn all_holes_of_a_stretch_become_one() {
        let pieces =
            [hole(0, 4), live(4, 6, 1), hole(10, 6), Piece::Fixed, hole(30, 9), live(39, 1, 2)];
        let window = widest(&pieces).expect("host memory").expect("ten bytes are more than nine");
        assert_eq!((window.slides.len(), window.slides[0].to), (1, 0));
        let pieces = [hole(0, 4), live(4, 6, 1), hole(10, 6), Piece::Fixed, hole(30, 10)];
        assert_eq!(widest(&pieces), Ok(None), "ten bytes are free in one hole already");
        let pieces = [hole(0, 1), live(1, 99, 1), hole(100, 100)];
        assert_eq!(widest(&pieces), Ok(None), "one more in a hundred is not worth it");
        let pieces = [hole(0, 1), live(1, 9, 1), hole(10, 1)];
        assert_eq!(widest(&pieces), Ok(None), "nine are not copied for one");
    }

    #[test]
    fn fixed_pieces_are_never_crossed() {
        let pieces = [hole(0, 8), Piece::Fixed, hole(16, 8)];
        assert_eq!(cheapest(&pieces, 9), Ok(None));
        assert_eq!(
            cheapest(&pieces, 8).map(|window| window.map(|window| window.bytes)),
            Ok(Some(0))
        );
    }

    #[test]
    fn behind_a_fixed_piece_everything_is_counted_anew() {
        let pieces = [hole(0, 8), Piece::Fixed, hole(16, 4), live(20, 2, 1), hole(22, 4)];
        assert_eq!(cheapest(&pieces, 9), Ok(None), "eight bytes are free on each side");
        let pieces = [
            hole(0, 4),
            live(4, 3, 1),
            hole(7, 4),
            Piece::Fixed,
            hole(12, 4),
            live(16, 2, 2),
            hole(18, 4),
        ];
        let window = cheapest(&pieces, 8).expect("host memory").expect("either side will do");
        assert_eq!((window.bytes, window.slides[0].to), (2, 12), "two bytes move, not three");
    }

    #[test]
    fn a_hole_at_the_end_takes_the_last_holes_first() {
        let pieces =
            [hole(0, 9), Piece::Fixed, hole(20, 4), live(24, 6, 1), hole(30, 3), live(33, 2, 2)];
        let window = last(&pieces, 3).expect("host memory").expect("the last hole is enough");
        assert_eq!((window.slides.len(), window.slides[0].to), (1, 30));
        let window = last(&pieces, 100).expect("host memory").expect("both are joined");
        assert_eq!((window.slides.len(), window.slides[1].to), (2, 26));
        assert_eq!(last(&pieces[..3], 100), Ok(None), "it is at the end already");
    }

    #[test]
    fn too_few_free_bytes_make_no_window() {
        assert_eq!(cheapest(&[hole(0, 4), live(4, 4, 1), hole(8, 4)], 9), Ok(None));
    }

    #[test]
    fn what_its_alignment_keeps_in_its_place_bounds_the_hole() {
        let stays = Piece::Movable(Span { offset: 16, size: 1 }, Align::of(16), 2);
        let pieces = [hole(0, 2), live(2, 14, 1), stays, hole(17, 7)];
        assert_eq!(cheapest(&pieces, 8), Ok(None), "nine bytes are free, but never side by side");
        assert_eq!(widest(&pieces), Ok(None), "nothing is gained");
    }

    #[test]
    fn alignment_is_kept() {
        let aligned = Piece::Movable(Span { offset: 64, size: 8 }, Align::of(32), 1);
        let window = cheapest(&[hole(0, 64), aligned, hole(72, 8)], 70)
            .expect("host memory")
            .expect("slides to the start");
        assert_eq!(window.slides[0].to, 0);
        assert_eq!(
            cheapest(&[hole(1, 63), aligned, hole(72, 8)], 70),
            Ok(None),
            "it can slide to 32 only"
        );
    }
}
