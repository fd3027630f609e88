//! Which positions of a reserved block are mapped, and in which pieces. Pure bookkeeping: the driver is called elsewhere.
#![forbid(unsafe_code)]
use crate::lock;
use core::ops::Range;
use omniheap_core::{Error, ErrorKind, Page, Result};
use std::sync::Mutex;

/// Which positions of a reserved block are mapped.
pub(crate) struct Positions {
    pub(crate) page: u64,
    count: u64,
    pub(crate) mapped: Mutex<Mapped>,
}

/// Two bits for each position.
pub(crate) struct Mapped {
    /// It is mapped.
    set: Vec<u64>,
    /// It belongs to the same piece as the position before it.
    continued: Vec<u64>,
}

impl Mapped {
    fn new(words: usize) -> Result<Self> {
        let zeros = || {
            let mut bits = Vec::new();
            bits.try_reserve_exact(words).map_err(|_| ErrorKind::OutOfHostMemory)?;
            bits.resize(words, 0);
            Ok::<_, Error>(bits)
        };
        Ok(Self { set: zeros()?, continued: zeros()? })
    }

    pub(crate) fn is_any(&self, mut range: Range<u64>) -> bool {
        range.any(|position| is_set(&self.set, position))
    }

    pub(crate) fn is_all(&self, mut range: Range<u64>) -> bool {
        range.all(|position| is_set(&self.set, position))
    }

    /// Notes pages at unmapped positions from `first` on.
    pub(crate) fn map(&mut self, first: u64, pages: &[Page]) {
        let mut at = first;
        for length in lengths(pages) {
            (at..at + length).for_each(|position| flip(&mut self.set, position));
            (at + 1..at + length).for_each(|position| flip(&mut self.continued, position));
            at += length;
        }
    }

    /// Notes that mapped positions are not mapped any more.
    pub(crate) fn unmap(&mut self, first: u64, count: u64) {
        for position in first..first + count {
            flip(&mut self.set, position);
            if is_set(&self.continued, position) {
                flip(&mut self.continued, position);
            }
        }
    }

    /// The pages of each piece from `first` on.
    pub(crate) fn pieces(&self, first: u64, count: u64) -> Vec<u64> {
        let mut lengths = Vec::new();
        for position in first..first + count {
            match lengths.last_mut() {
                Some(length) if is_set(&self.continued, position) => *length += 1,
                _ => lengths.push(1),
            }
        }
        lengths
    }
}

/// The pieces that pages belong to: those of one are equal and side by side.
pub(crate) fn pieces(pages: &[Page]) -> impl Iterator<Item = &[Page]> {
    pages.chunk_by(PartialEq::eq)
}

/// The pages of each piece.
pub(crate) fn lengths(pages: &[Page]) -> Vec<u64> {
    pieces(pages).map(|piece| piece.len() as u64).collect()
}

impl Positions {
    pub(crate) fn new(page: u64, count: u64) -> Result<Self> {
        let words = usize::try_from(count.div_ceil(64)).map_err(|_| ErrorKind::ExceedsLimit)?;
        Ok(Self { page, count, mapped: Mutex::new(Mapped::new(words)?) })
    }

    /// Refuses positions outside the block.
    pub(crate) fn require_inside(&self, first: u64, count: u64) -> Result<()> {
        match first.checked_add(count) {
            Some(end) if end <= self.count => Ok(()),
            _ => Err(ErrorKind::OutOfRange.into()),
        }
    }

    /// Refuses bytes whose pages are not all mapped: touching them would cost the context.
    pub(crate) fn require_mapped(&self, offset: u64, size: u64) -> Result<()> {
        if size == 0 {
            return Ok(());
        }
        let (first, end) = (offset / self.page, (offset + size).div_ceil(self.page));
        let all = lock(&self.mapped).is_all(first..end);
        if all { Ok(()) } else { Err(ErrorKind::OutOfRange.into()) }
    }

    pub(crate) fn is_any_mapped(&self) -> bool {
        lock(&self.mapped).set.iter().any(|&word| word != 0)
    }
}

/// The word and the bit of a position inside the block.
fn bit(position: u64) -> (usize, u64) {
    let word = usize::try_from(position / 64).expect("`Positions::new` made a word for it");
    (word, 1 << (position % 64))
}

fn is_set(mapped: &[u64], position: u64) -> bool {
    let (word, mask) = bit(position);
    mapped[word] & mask != 0
}

fn flip(bits: &mut [u64], position: u64) {
    let (word, mask) = bit(position);
    bits[word] ^= mask;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_know_what_is_mapped() {
        let positions = Positions::new(10, 130).expect("small");
        let piece = [Page(7); 5];
        lock(&positions.mapped).map(62, &piece);
        let kind = |result: Result<()>| result.map_err(|error| error.kind());
        assert_eq!(kind(positions.require_mapped(620, 50)), Ok(()));
        assert_eq!(kind(positions.require_mapped(625, 1)), Ok(()));
        assert_eq!(kind(positions.require_mapped(619, 2)), Err(ErrorKind::OutOfRange));
        assert_eq!(kind(positions.require_mapped(669, 2)), Err(ErrorKind::OutOfRange));
        assert_eq!(kind(positions.require_mapped(5, 0)), Ok(()));
        assert!(positions.is_any_mapped());
        lock(&positions.mapped).unmap(62, 5);
        assert!(!positions.is_any_mapped());
    }

    #[test]
    fn positions_know_the_pieces_that_were_mapped_there() {
        let positions = Positions::new(10, 130).expect("small");
        let mut mapped = lock(&positions.mapped);
        let [one, two, three] = [Page(1), Page(2), Page(3)];
        mapped.map(60, &[one, two, two, two, three, three]);
        assert_eq!(mapped.pieces(60, 6), [1, 3, 2]);
        mapped.unmap(61, 3);
        mapped.map(61, &[three, two, one]);
        assert_eq!(mapped.pieces(60, 6), [1, 1, 1, 1, 2]);
    }

    #[test]
    fn positions_outside_the_block_are_refused() {
        let positions = Positions::new(10, 130).expect("small");
        let kind = |result: Result<()>| result.map_err(|error| error.kind());
        assert_eq!(kind(positions.require_inside(129, 1)), Ok(()));
        assert_eq!(kind(positions.require_inside(130, 1)), Err(ErrorKind::OutOfRange));
        assert_eq!(kind(positions.require_inside(u64::MAX, 2)), Err(ErrorKind::OutOfRange));
    }
}
