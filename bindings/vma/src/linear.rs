//! The linear algorithm over one block: spans follow one another, and space freed at either end is used again. The order of frees
//! makes a block a stack, a ring, or two stacks that grow towards each other.
#![forbid(unsafe_code)]
use std::collections::VecDeque;

/// A span in use, or one that was freed between others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    offset: u64,
    size: u64,
    is_free: bool,
}

impl Piece {
    const fn end(self) -> u64 {
        self.offset + self.size
    }
}

/// End of the block that a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Upwards, from the lowest address.
    Lower,
    /// Downwards, from the highest address.
    Upper,
}

/// Use of the second list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// None: it is empty.
    Single,
    /// Spans that wrapped around, below the first list.
    Ring,
    /// A stack that grows downwards from the end.
    Double,
}

/// One block, divided by the linear algorithm.
#[derive(Debug)]
pub(crate) struct Linear {
    size: u64,
    /// Spans by rising offset; those at both ends are in use.
    first: VecDeque<Piece>,
    /// Spans by rising offset in a ring, and by falling offset in a double stack.
    second: VecDeque<Piece>,
    mode: Mode,
    live: usize,
}

impl Linear {
    /// Creates an empty block.
    pub(crate) const fn new(size: u64) -> Self {
        Self { size, first: VecDeque::new(), second: VecDeque::new(), mode: Mode::Single, live: 0 }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Takes `size` bytes at a multiple of `align`, and returns their offset. `size` is not zero, and `align` is a power of two.
    pub(crate) fn allocate(&mut self, size: u64, align: u64, side: Side) -> Option<u64> {
        let offset = match side {
            Side::Upper => self.place_above(size, align)?,
            Side::Lower => self.place_below(size, align)?,
        };
        self.live += 1;
        Some(offset)
    }

    fn place_above(&mut self, size: u64, align: u64) -> Option<u64> {
        if self.mode == Mode::Ring {
            return None;
        }
        let top = self.second.back().map_or(self.size, |piece| piece.offset);
        let offset = top.checked_sub(size)? & !(align - 1);
        let floor = self.first.back().map_or(0, |piece| piece.end());
        if offset < floor {
            return None;
        }
        self.mode = Mode::Double;
        self.second.push_back(Piece { offset, size, is_free: false });
        Some(offset)
    }

    fn place_below(&mut self, size: u64, align: u64) -> Option<u64> {
        let up = |at: u64| at.checked_add(align - 1).map(|at| at & !(align - 1));
        if self.mode != Mode::Ring {
            let offset = up(self.first.back().map_or(0, |piece| piece.end()))?;
            let ceiling = match self.mode {
                Mode::Double => self.second.back().map_or(self.size, |piece| piece.offset),
                _ => self.size,
            };
            if offset.checked_add(size).is_some_and(|end| end <= ceiling) {
                self.first.push_back(Piece { offset, size, is_free: false });
                return Some(offset);
            }
            if self.mode == Mode::Double {
                return None;
            }
        }
        // Wraps around the end, below the oldest span.
        let ceiling = self.first.front().filter(|_| self.live > 0)?.offset;
        let offset = up(self.second.back().map_or(0, |piece| piece.end()))?;
        if offset.checked_add(size)? > ceiling {
            return None;
        }
        self.mode = Mode::Ring;
        self.second.push_back(Piece { offset, size, is_free: false });
        Some(offset)
    }

    /// Frees the span at an offset; returns whether there was one.
    pub(crate) fn free(&mut self, offset: u64) -> bool {
        let in_first = self.first.binary_search_by_key(&offset, |piece| piece.offset).ok();
        let in_second = || match self.mode {
            Mode::Double => {
                let by = |piece: &Piece| offset.cmp(&piece.offset);
                self.second.binary_search_by(by).ok()
            }
            _ => self.second.binary_search_by_key(&offset, |piece| piece.offset).ok(),
        };
        let piece = match in_first {
            Some(at) => self.first.get_mut(at),
            None => in_second().and_then(|at| self.second.get_mut(at)),
        };
        let Some(piece) = piece.filter(|piece| !piece.is_free) else { return false };
        piece.is_free = true;
        self.live -= 1;
        self.tidy();
        true
    }

    /// Drops free spans at the ends of the lists.
    fn tidy(&mut self) {
        if self.live == 0 {
            self.first.clear();
            self.second.clear();
        }
        for list in [&mut self.first, &mut self.second] {
            while list.back().is_some_and(|piece| piece.is_free) {
                list.pop_back();
            }
            while list.front().is_some_and(|piece| piece.is_free) {
                list.pop_front();
            }
        }
        if self.second.is_empty() {
            self.mode = Mode::Single;
        } else if self.first.is_empty() && self.mode == Mode::Ring {
            // The spans that wrapped around are the oldest now.
            core::mem::swap(&mut self.first, &mut self.second);
            self.mode = Mode::Single;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_gives_back_what_was_last() {
        let mut block = Linear::new(1000);
        let places = [100, 200, 300].map(|size| block.allocate(size, 1, Side::Lower));
        assert_eq!(places, [Some(0), Some(100), Some(300)]);
        assert!(block.free(300));
        assert_eq!(block.allocate(50, 64, Side::Lower), Some(320));
        assert!(!block.free(7) && !block.free(300));
        assert!(block.free(100), "between others: kept back");
        assert!(!block.free(100));
        assert_eq!(block.allocate(10, 1, Side::Lower), Some(370));
        assert!([0, 320, 370].into_iter().all(|at| block.free(at)));
        assert!(block.is_empty());
        assert_eq!(block.allocate(1000, 1, Side::Lower), Some(0));
    }

    #[test]
    fn a_ring_goes_around() {
        let mut block = Linear::new(300);
        for at in [0, 100, 200] {
            assert_eq!(block.allocate(100, 1, Side::Lower), Some(at));
        }
        assert_eq!(block.allocate(1, 1, Side::Lower), None);
        assert!(block.free(0));
        assert_eq!(block.allocate(60, 1, Side::Lower), Some(0));
        assert_eq!(block.allocate(60, 1, Side::Lower), None, "only 40 are left below the oldest");
        assert_eq!(block.allocate(10, 1, Side::Upper), None, "a ring has no upper end");
        assert!(block.free(100));
        assert_eq!(block.allocate(60, 1, Side::Lower), Some(60));
        assert!(block.free(200));
        assert_eq!(
            block.allocate(60, 1, Side::Lower),
            Some(120),
            "the wrapped spans are the first"
        );
        let mut live: VecDeque<u64> = [0, 60, 120].into();
        for round in 0..1000 {
            let oldest = live.pop_front().expect("three are live");
            assert!(block.free(oldest), "round {round}");
            let next = block.allocate(60, 1, Side::Lower);
            live.push_back(next.unwrap_or_else(|| panic!("round {round}")));
        }
    }

    #[test]
    fn two_stacks_grow_towards_each_other() {
        let mut block = Linear::new(1000);
        assert_eq!(block.allocate(100, 1, Side::Lower), Some(0));
        assert_eq!(block.allocate(100, 64, Side::Upper), Some(896));
        assert_eq!(block.allocate(100, 64, Side::Upper), Some(768));
        assert_eq!(block.allocate(700, 1, Side::Lower), None);
        assert_eq!(block.allocate(668, 1, Side::Lower), Some(100));
        assert_eq!(block.allocate(1, 1, Side::Upper), None);
        assert!(block.free(896) && block.free(768));
        assert_eq!(block.mode, Mode::Single);
        assert_eq!(block.allocate(232, 1, Side::Upper), Some(768));
    }
}
