//! Slides: a hole of some size in a block, made by moving as few bytes as possible.
use super::{MoveDown, Piece, Planned, Window, room_for};
use omniheap_seam::ErrorKind;

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
///
/// # Errors
///
/// `OutOfHostMemory`.
pub fn cheapest<T: Copy>(pieces: &[Piece<T>], size: u64) -> Planned<T> {
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
///
/// # Errors
///
/// `OutOfHostMemory`.
pub fn widest<T: Copy>(pieces: &[Piece<T>]) -> Planned<T> {
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
///
/// # Errors
///
/// `OutOfHostMemory`.
pub fn last<T: Copy>(pieces: &[Piece<T>], size: u64) -> Planned<T> {
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
