//! Ring: one block that is filled in a circle, and reclaimed in the order of allocation.
#![forbid(unsafe_code)]
use super::{BlockId, Grant, Key, Piece, PieceState, Strategy, Usage, refusal, validate_pieces};
use alloc::collections::VecDeque;
use omniheap_seam::{Align, Class, ErrorKind, Layout, Span};

/// The only block.
const BLOCK: BlockId = BlockId(0);

/// Allocates the bytes of one block in a circle.
///
/// # Algorithm
///
/// Spans follow one another; a request that the rest of the block cannot hold starts again at zero, and the bytes it
/// jumps over are padding. Spans are freed in any order: a freed one is padding until everything older is freed too,
/// and then its bytes return with the padding before it. When nothing is left, the ring starts again at zero.
///
/// Classes: where the class differs from the span before, the new span starts at the next granule; where it differs
/// from the oldest span, the new one ends before that span's granule. All spans that share a granule are then of one
/// class.
///
/// # Cost
///
/// Allocating is *O*(1); freeing is *O*(1) on average over all frees, and one free may reclaim many spans. A hole of
/// `size + max(align, granularity) + granularity - 2` bytes always holds the request.
/// A span costs 24 bytes until it is reclaimed.
///
/// # When to choose it
///
/// For staging: uploads and read-backs that a queue finishes in the order they were made. Not for mixed lifetimes: one
/// span that stays stops the ring.
///
/// # Examples
///
/// ```
/// use omniheap_strategy::{Ring, Strategy};
/// use omniheap_seam::{Align, Class, Layout};
///
/// let mut ring = Ring::new(Align::ONE);
/// ring.add_block(100)?;
/// let a = ring.allocate(Layout::new(60), Class::Linear)?;
/// let b = ring.allocate(Layout::new(30), Class::Linear)?;
/// ring.free(a.key)?;
/// let c = ring.allocate(Layout::new(50), Class::Linear)?;
/// assert_eq!((b.span.offset, c.span.offset), (60, 0));
/// # Ok::<(), omniheap_seam::ErrorKind>(())
/// ```
#[derive(Clone, Debug)]
pub struct Ring {
    granularity: Align,
    /// Size of the block; zero while there is none.
    size: u64,
    /// Spans that are not reclaimed yet, oldest first.
    entries: VecDeque<Entry>,
    /// The number of the oldest entry. Numbers never repeat, so a key is the two halves of a number.
    first: u64,
    used: u64,
    live: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    span: Span,
    class: Class,
    live: bool,
}

impl Ring {
    /// Creates a strategy without a block that keeps spans of different class `granularity` apart.
    #[must_use]
    pub const fn new(granularity: Align) -> Self {
        let entries = VecDeque::new();
        Self { granularity, size: 0, entries, first: 0, used: 0, live: 0 }
    }

    /// Returns the holes in the order in which they are tried. Either may be empty.
    fn holes(&self) -> [Span; 2] {
        let hole = |offset: u64, end: u64| Span { offset, size: end - offset };
        let (Some(oldest), Some(newest)) = (self.entries.front(), self.entries.back()) else {
            return [hole(0, self.size), hole(0, 0)];
        };
        let (tail, head) = (oldest.span.offset, newest.span.end());
        if self.is_wrapped() {
            [hole(head, tail), hole(0, 0)]
        } else {
            [hole(head, self.size), hole(0, tail)]
        }
    }

    /// Returns whether the newest span lies below the oldest.
    fn is_wrapped(&self) -> bool {
        let ends = self.entries.front().zip(self.entries.back());
        ends.is_some_and(|(oldest, newest)| newest.span.end() <= oldest.span.offset)
    }

    /// Returns where in the hole the request can start.
    fn fit(&self, hole: Span, layout: Layout, class: Class) -> Option<u64> {
        let mut offset = layout.align.up(hole.offset)?;
        if let Some(newest) = self.entries.back()
            && newest.class != class
            && self.granularity.down(newest.span.end() - 1) == self.granularity.down(offset)
        {
            offset = layout.align.max(self.granularity).up(hole.offset)?;
        }
        let mut limit = hole.end();
        if let Some(oldest) = self.entries.front()
            && oldest.class != class
            && hole.end() == oldest.span.offset
        {
            limit = self.granularity.down(limit);
        }
        (offset.checked_add(layout.size)? <= limit).then_some(offset)
    }

    /// Returns the position of a live key among the entries.
    fn position(&self, key: Key) -> Result<usize, ErrorKind> {
        let number = u64::from(key.stamp) << 32 | u64::from(key.index);
        let position = number.checked_sub(self.first).ok_or(ErrorKind::Stale)?;
        let position = usize::try_from(position).map_err(|_| ErrorKind::Stale)?;
        match self.entries.get(position) {
            Some(entry) if entry.live => Ok(position),
            _ => Err(ErrorKind::Stale),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the two halves of a number")]
    const fn key(number: u64) -> Key {
        Key { index: number as u32, stamp: (number >> 32) as u32 }
    }

    /// Removes freed entries from the old end.
    fn reclaim(&mut self) {
        while self.entries.front().is_some_and(|entry| !entry.live) {
            self.entries.pop_front();
            self.first += 1;
        }
    }

    /// Visits what the entries from `from` cover, up to the first that lies below its predecessor; returns its number.
    fn visit_ascending(&self, from: usize, at: &mut u64, visit: &mut dyn FnMut(Piece)) -> usize {
        let mut position = from;
        while let Some(&Entry { span, live, .. }) = self.entries.get(position) {
            if span.offset < *at {
                break;
            }
            pad(at, span.offset, visit);
            let key = Self::key(self.first + position as u64);
            let state = if live { PieceState::Live(key) } else { PieceState::Padding };
            visit(Piece { block: BLOCK, span, state });
            *at = span.end();
            position += 1;
        }
        position
    }
}

/// Visits the bytes up to `end` as padding.
fn pad(at: &mut u64, end: u64, visit: &mut dyn FnMut(Piece)) {
    if end > *at {
        let span = Span { offset: *at, size: end - *at };
        visit(Piece { block: BLOCK, span, state: PieceState::Padding });
        *at = end;
    }
}

impl Strategy for Ring {
    fn add_block(&mut self, size: u64) -> Result<BlockId, ErrorKind> {
        match (size, self.size) {
            (0, _) => Err(ErrorKind::ZeroSize),
            (_, 0) => {
                self.size = size;
                Ok(BLOCK)
            }
            _ => Err(ErrorKind::ExceedsLimit),
        }
    }

    fn remove_block(&mut self, block: BlockId) -> Result<(), ErrorKind> {
        if block != BLOCK || self.size == 0 {
            return Err(ErrorKind::Stale);
        }
        if self.live > 0 {
            return Err(ErrorKind::Busy);
        }
        self.size = 0;
        Ok(())
    }

    fn allocate(&mut self, layout: Layout, class: Class) -> Result<Grant, ErrorKind> {
        if layout.size == 0 {
            return Err(ErrorKind::ZeroSize);
        }
        let holes = self.holes();
        let Some(offset) = holes.iter().find_map(|&hole| self.fit(hole, layout, class)) else {
            return Err(refusal(layout.size, self.size, holes[0].size + holes[1].size));
        };
        self.entries.try_reserve(1).map_err(|_| ErrorKind::OutOfHostMemory)?;
        let span = Span { offset, size: layout.size };
        let key = Self::key(self.first + self.entries.len() as u64);
        self.entries.push_back(Entry { span, class, live: true });
        self.used += span.size;
        self.live += 1;
        Ok(Grant { block: BLOCK, span, key })
    }

    fn free(&mut self, key: Key) -> Result<Grant, ErrorKind> {
        let position = self.position(key)?;
        let entry = &mut self.entries[position];
        entry.live = false;
        let span = entry.span;
        self.used -= span.size;
        self.live -= 1;
        self.reclaim();
        Ok(Grant { block: BLOCK, span, key })
    }

    fn grant(&self, key: Key) -> Result<Grant, ErrorKind> {
        let span = self.entries[self.position(key)?].span;
        Ok(Grant { block: BLOCK, span, key })
    }

    fn usage(&self) -> Usage {
        let holes = self.holes();
        Usage {
            total: self.size,
            used: self.used,
            free: holes[0].size + holes[1].size,
            largest_hole: holes[0].size.max(holes[1].size),
            live: self.live,
            holes: holes.iter().filter(|hole| hole.size > 0).count() as u64,
        }
    }

    fn is_empty(&self, block: BlockId) -> bool {
        block == BLOCK && self.size > 0 && self.live == 0
    }

    fn for_each(&self, visit: &mut dyn FnMut(Piece)) {
        let [first, second] = self.holes();
        let hole = |span: Span, at: &mut u64, visit: &mut dyn FnMut(Piece)| {
            if span.size > 0 {
                visit(Piece { block: BLOCK, span, state: PieceState::Hole });
                *at = span.end();
            }
        };
        let mut at = 0;
        if !self.is_wrapped() {
            hole(second, &mut at, visit);
            self.visit_ascending(0, &mut at, visit);
            return hole(first, &mut at, visit);
        }
        let mut above = first.end();
        let younger = self.visit_ascending(0, &mut above, &mut |_| ());
        self.visit_ascending(younger, &mut at, visit);
        hole(first, &mut at, visit);
        self.visit_ascending(0, &mut at, visit);
        pad(&mut at, self.size, visit);
    }

    fn validate(&self) -> Result<(), &'static str> {
        if self.entries.front().is_some_and(|entry| !entry.live) {
            return Err("the oldest entry is freed but not reclaimed");
        }
        validate_pieces(self)
    }
}
