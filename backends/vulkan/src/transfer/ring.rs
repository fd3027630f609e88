//! A ring of bytes whose pieces come back in the order they were taken. Pure.
#![forbid(unsafe_code)]
use omniheap_seam::Align;
use std::collections::VecDeque;

/// One taken piece.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u64,
    /// Free once the timeline reaches this; `None` while the host still needs the bytes.
    until: Option<u64>,
}

/// Allocates contiguous pieces of `0..size`.
#[derive(Debug)]
pub(crate) struct Ring {
    size: u64,
    align: Align,
    head: u64,
    pieces: VecDeque<Piece>,
}

impl Ring {
    pub(crate) const fn new(size: u64, align: Align) -> Self {
        Self { size, align, head: 0, pieces: VecDeque::new() }
    }

    /// Takes `size` bytes, or `None` while they are not free. The piece is held until [`seal`](Self::seal).
    pub(crate) fn take(&mut self, size: u64) -> Option<u64> {
        let size = self.align.up(size)?;
        let start = match self.pieces.front() {
            None => (size <= self.size).then_some(0)?,
            Some(oldest) if self.head > oldest.start => {
                if self.size - self.head >= size {
                    self.head
                } else if oldest.start >= size {
                    0
                } else {
                    return None;
                }
            }
            Some(oldest) => (oldest.start - self.head >= size).then_some(self.head)?,
        };
        self.head = start + size;
        self.pieces.push_back(Piece { start, until: None });
        Some(start)
    }

    /// Frees the piece at `start` once `epoch` is reached.
    pub(crate) fn seal(&mut self, start: u64, epoch: u64) {
        // The newest pieces are sealed first, so the search from the back is short.
        if let Some(piece) = self.pieces.iter_mut().rev().find(|piece| piece.start == start) {
            piece.until = Some(epoch);
        }
    }

    /// Takes back every piece at the front whose epoch was reached.
    pub(crate) fn retire(&mut self, reached: u64) {
        while self.pieces.front().is_some_and(|p| p.until.is_some_and(|until| until <= reached)) {
            self.pieces.pop_front();
        }
    }

    /// Returns the epoch that frees the oldest piece.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.pieces.front()?.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> Ring {
        Ring::new(256, Align::of(64))
    }

    #[test]
    fn pieces_are_disjoint_and_wrap() {
        let mut ring = ring();
        let (a, b, c) = (ring.take(64), ring.take(65), ring.take(64));
        assert_eq!((a, b, c), (Some(0), Some(64), Some(192)));
        assert_eq!(ring.take(1), None, "full");
        ring.seal(0, 1);
        ring.seal(64, 2);
        ring.retire(1);
        assert_eq!(ring.take(128), None, "the second piece is still out");
        assert_eq!(ring.take(64), Some(0));
        assert_eq!(ring.take(1), None, "head met tail");
        ring.retire(2);
        assert_eq!(ring.take(128), Some(64));
    }

    #[test]
    fn a_held_piece_blocks_those_behind_it() {
        let mut ring = ring();
        assert_eq!((ring.take(128), ring.take(128)), (Some(0), Some(128)));
        ring.seal(128, 1);
        ring.retire(9);
        assert_eq!(ring.take(64), None);
        ring.seal(0, 0);
        ring.retire(9);
        assert_eq!(ring.take(256), Some(0), "an empty ring starts over");
    }

    #[test]
    fn more_than_the_ring_is_never_given() {
        let mut ring = ring();
        assert_eq!(ring.take(257), None);
        assert_eq!(ring.take(u64::MAX), None);
        assert_eq!(ring.oldest(), None);
    }
}
