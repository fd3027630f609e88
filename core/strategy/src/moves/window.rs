//! Slides: a hole of some size in a block, made by moving as few bytes as possible.
use super::{MoveDown, Piece, Planned, Window, longest_hole, room_for};
use alloc::vec::Vec;
use omniheap_seam::{Align, ErrorKind, Span};

/// The window that makes a hole of `size` bytes by moving the fewest bytes, or `None` where none does. In a large block whose
/// pieces waste bytes to their alignments, nearly the fewest: see the cost.
///
/// # Algorithm
///
/// A window starts at a hole and ends at a hole, with nothing fixed between. What lies between moves down by the holes
/// before it, less what its alignment wastes. One sweep keeps that distance for each start. At each hole, the latest start
/// that moves it far enough is the cheapest; that start and those before it can only cost more later.
///
/// # Cost
///
/// *O*(n) for n pieces. Each piece whose alignment does not divide the sizes of the holes looks at all the starts with different
/// distances. Once they are more than 256, only starts whose distances differ by a 128th of `size` stay, and of those between
/// the farther one: the window may then start earlier than it has to, about a 128th of the hole too early. The farthest start
/// always stays, so that a window is found wherever there is one.
///
/// # Errors
///
/// `OutOfHostMemory`.
pub fn cheapest<T: Copy>(pieces: &[Piece<T>], size: u64) -> Planned<T> {
    let mut starts = Starts { list: room_for(pieces.len())?, used: 0, free: 0, grain: 0 };
    let mut moved = 0;
    let mut best: Option<(u64, usize, usize)> = None;
    for (last, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Fixed => starts.clear(),
            Piece::Movable(span, align, _) => {
                starts.pass(*span, *align, size);
                moved += span.size;
            }
            Piece::Hole(hole) => {
                starts.add(last, moved, *hole);
                if let Some(start) = starts.take_reached(size) {
                    let bytes = moved - start.moved;
                    if best.is_none_or(|(least, ..)| bytes < least) {
                        best = Some((bytes, start.at, last));
                    }
                }
            }
        }
    }
    let Some((_, first, last)) = best else { return Ok(None) };
    slide(&pieces[first..=last]).map(Some)
}

/// Starts that every piece may look at. With more of them, they are thinned out to this many parts of the wanted size.
const MANY: usize = 256;
const PARTS: u64 = 128;

/// A hole at which a window may start.
#[derive(Clone, Copy)]
struct Start {
    at: usize,
    /// Movable bytes before it.
    moved: u64,
    /// Free bytes before it, and what alignments wasted since. What comes next moves down by the free bytes above these.
    without: u64,
}

/// The starts that do not move what comes next far enough yet: the earlier, the farther.
struct Starts {
    list: Vec<Start>,
    /// Starts at the front of the list that are done with.
    used: usize,
    /// Free bytes so far.
    free: u64,
    /// The bits of every distance so far.
    grain: u64,
}

impl Starts {
    fn clear(&mut self) {
        self.list.clear();
        self.used = 0;
    }

    fn add(&mut self, at: usize, moved: u64, hole: Span) {
        self.list.push(Start { at, moved, without: self.free });
        self.free += hole.size;
        self.grain |= hole.size;
    }

    /// Takes the latest start with `size` free bytes, and all before it.
    fn take_reached(&mut self, size: u64) -> Option<Start> {
        let rest = &self.list[self.used..];
        let reached = rest.partition_point(|start| self.free - start.without >= size);
        self.used += reached;
        Some(rest[reached.checked_sub(1)?])
    }

    /// Rounds every distance to one that keeps the alignment of a span. Of starts with equal distances, the latest stays;
    /// those that do not move the span are done with. `size` is the distance that is wanted.
    fn pass(&mut self, span: Span, align: Align, size: u64) {
        self.grain |= span.offset & (align.get() - 1);
        if self.grain & (align.get() - 1) == 0 {
            return;
        }
        self.list.drain(..core::mem::take(&mut self.used));
        if self.list.len() > MANY {
            self.thin_out(size.div_ceil(PARTS));
        }
        for start in &mut self.list {
            #[cfg(test)]
            crate::steps::count();
            let to = align.up(span.offset - (self.free - start.without));
            start.without = self.free - to.map_or(0, |to| span.offset.saturating_sub(to));
        }
        self.list.retain(|start| start.without < self.free);
        self.list.dedup_by(|later, kept| {
            let is_equal = later.without == kept.without;
            if is_equal {
                *kept = *later;
            }
            is_equal
        });
    }

    /// Keeps the first start, and each whose distance is at least `apart` shorter than that of the one kept before it.
    /// No distance reaches the wanted size, so few are left.
    fn thin_out(&mut self, apart: u64) {
        self.list.dedup_by(|later, kept| {
            #[cfg(test)]
            crate::steps::count();
            later.without - kept.without < apart
        });
    }
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
    let largest = longest_hole(pieces);
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
