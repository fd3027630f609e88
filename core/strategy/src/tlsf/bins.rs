//! The holes of [`Tlsf`](super::Tlsf) by size: 32 lists for each power of two.
//!
//! A list is a ring through its bin: the first links belong to the bins, the others to the nodes. Inserting and removing a
//! hole then needs no branch that could be mispredicted.
use super::nodes::Nodes;
use alloc::vec::Vec;
use omniheap_seam::ErrorKind;

/// Bits of a size that choose the list within its power of two.
const FINE: u32 = 5;
const LISTS: u32 = 1 << FINE;
/// The number of bins, enough for every size.
pub(super) const BINS: u32 = (65 - FINE) * LISTS;
/// Words of the bitmap; a power of two, so that masking an index keeps it inside.
const WORDS: usize = 32;

/// Returns the bin of a hole of this size.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "below 64 after the shift")]
pub(super) const fn bin_of(size: u64) -> u32 {
    let shift = shift_of(size);
    // From 32 on, the first digit counts as one power more; sizes below are bins of their own. So no branch is needed.
    shift * LISTS + (size >> shift) as u32
}

/// Returns the number of digits of a size that its bin does not tell.
#[inline]
const fn shift_of(size: u64) -> u32 {
    (size | LISTS as u64).ilog2() - FINE
}

/// Returns the first bin in which every hole has at least this size.
#[inline]
pub(super) const fn bin_that_fits(size: u64) -> u32 {
    bin_of(size.saturating_add((1 << shift_of(size)) - 1))
}

/// The neighbours of a bin or of a hole in its ring: a bin below [`BINS`], else a node.
#[derive(Clone, Copy, Debug)]
struct Link {
    back: u32,
    next: u32,
}

/// The lists, and a bitmap of those that are not empty.
#[derive(Clone, Debug)]
pub(super) struct Bins {
    /// One bit for each word that is not zero.
    top: u32,
    words: [u64; WORDS],
    links: Vec<Link>,
}

impl Bins {
    pub(super) const fn new() -> Self {
        Self { top: 0, words: [0; WORDS], links: Vec::new() }
    }

    /// Grows the links to `nodes` nodes.
    pub(super) fn grow(&mut self, nodes: usize) -> Result<(), ErrorKind> {
        let have = self.links.len();
        let more = (BINS as usize + nodes).saturating_sub(have);
        self.links.try_reserve_exact(more).map_err(|_| ErrorKind::OutOfHostMemory)?;
        let end = u32::try_from(have + more).map_err(|_| ErrorKind::OutOfHostMemory)?;
        let start = u32::try_from(have).map_err(|_| ErrorKind::OutOfHostMemory)?;
        self.links.extend((start..end).map(|at| Link { back: at, next: at }));
        Ok(())
    }

    /// Returns the first hole of a bin.
    #[inline]
    pub(super) fn head(&self, bin: u32) -> Option<u32> {
        #[cfg(test)]
        crate::steps::count();
        self.links.get(bin as usize)?.next.checked_sub(BINS)
    }

    /// Returns the last hole of a bin.
    #[inline]
    pub(super) fn tail(&self, bin: u32) -> Option<u32> {
        #[cfg(test)]
        crate::steps::count();
        self.links.get(bin as usize)?.back.checked_sub(BINS)
    }

    /// Returns the next hole of the same list.
    #[inline]
    pub(super) fn next_hole(&self, index: u32) -> Option<u32> {
        #[cfg(test)]
        crate::steps::count();
        self.links[(BINS + index) as usize].next.checked_sub(BINS)
    }

    /// Returns the first bin at or after `bin` that has a hole.
    #[inline]
    pub(super) const fn first_from(&self, bin: u32) -> Option<u32> {
        let word = bin / 64;
        let here = self.words[word as usize % WORDS] & (u64::MAX << (bin % 64));
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros());
        }
        let above = self.top & (u32::MAX << word << 1);
        if above == 0 {
            return None;
        }
        let word = above.trailing_zeros();
        Some(word * 64 + self.words[word as usize % WORDS].trailing_zeros())
    }

    /// Returns the last bin that has a hole.
    pub(super) fn last(&self) -> Option<u32> {
        let word = self.top.checked_ilog2()?;
        Some(word * 64 + self.words[word as usize % WORDS].checked_ilog2()?)
    }

    /// Returns the last bin below `bin` that has a hole.
    pub(super) fn last_below(&self, bin: u32) -> Option<u32> {
        let word = bin / 64;
        let here = self.words[word as usize % WORDS] & !(u64::MAX << (bin % 64));
        if here != 0 {
            return Some(word * 64 + here.ilog2());
        }
        let word = (self.top & !(u32::MAX << word)).checked_ilog2()?;
        Some(word * 64 + self.words[word as usize % WORDS].checked_ilog2()?)
    }

    /// Inserts a hole of `size` bytes at the front of its list.
    #[inline]
    pub(super) fn push(&mut self, index: u32, size: u64) {
        self.push_to(index, bin_of(size));
    }

    #[inline]
    fn push_to(&mut self, index: u32, bin: u32) {
        let (at, links) = (BINS + index, self.links.as_mut_slice());
        let next = links[bin as usize].next;
        links[bin as usize].next = at;
        links[at as usize] = Link { back: bin, next };
        links[next as usize].back = at;
        self.words[bin as usize / 64 % WORDS] |= 1 << (bin % 64);
        self.top |= 1 << (bin / 64);
    }

    /// Removes a hole of `size` bytes from its list.
    #[inline]
    pub(super) fn remove(&mut self, index: u32, size: u64) {
        self.remove_from(index, bin_of(size));
    }

    #[inline]
    fn remove_from(&mut self, index: u32, bin: u32) {
        let links = self.links.as_mut_slice();
        let Link { back, next } = links[(BINS + index) as usize];
        links[back as usize].next = next;
        links[next as usize].back = back;
        // Equal neighbours are the bin itself: the list is now empty.
        let word = &mut self.words[bin as usize / 64 % WORDS];
        *word &= !(u64::from(back == next) << (bin % 64));
        self.top &= !(u32::from(*word == 0) << (bin / 64));
    }

    /// Moves a hole to the list of its new size.
    #[inline]
    pub(super) fn resize(&mut self, index: u32, from: u64, to: u64) {
        let (from, to) = (bin_of(from), bin_of(to));
        if from != to {
            self.refile(index, from, to);
        }
    }

    #[inline(never)]
    fn refile(&mut self, index: u32, from: u32, to: u32) {
        self.remove_from(index, from);
        self.push_to(index, to);
    }

    /// Returns the holes of one bin, first to last.
    pub(super) fn holes(&self, bin: u32) -> impl Iterator<Item = u32> + '_ {
        core::iter::successors(self.head(bin), |index| self.next_hole(*index))
    }

    pub(super) fn validate(&self, nodes: &Nodes, holes: u64) -> Result<(), &'static str> {
        let mut listed = 0;
        for bin in 0..BINS {
            let marked = self.words[bin as usize / 64] & (1 << (bin % 64)) != 0;
            if marked != self.head(bin).is_some() {
                return Err("the bitmap differs from the lists");
            }
            for hole in self.holes(bin) {
                if bin_of(nodes.size(hole)) != bin || !nodes.is_hole(hole) {
                    return Err("a list holds what does not belong to it");
                }
                let Link { back, next } = self.links[(BINS + hole) as usize];
                let at = BINS + hole;
                if self.links[back as usize].next != at || self.links[next as usize].back != at {
                    return Err("a ring is broken");
                }
                listed += 1;
            }
        }
        if (0..WORDS).any(|word| (self.top & (1 << word) != 0) != (self.words[word] != 0)) {
            return Err("the upper bitmap differs from the lower");
        }
        if listed == holes { Ok(()) } else { Err("the lists and the walk count different holes") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_grow_with_the_size_and_start_below_it() {
        let mut last = 0;
        let small = if cfg!(miri) { 2000 } else { 100_000 };
        let sizes = (1..small).chain((17..64).flat_map(|p| {
            let base = 1u64 << p;
            [base - 1, base, base + 1, base + base / 3]
        }));
        for size in sizes {
            let bin = bin_of(size);
            assert!(bin >= last && bin < BINS, "bin of {size}");
            assert!(
                bin_that_fits(size) >= bin,
                "a hole of its own size may be too small for {size}"
            );
            assert!(bin_that_fits(size) <= bin + 1, "more than one bin is skipped for {size}");
            last = bin;
        }
        assert_eq!(bin_of(u64::MAX), BINS - 1);
    }

    #[test]
    fn every_size_in_a_bin_that_fits_is_large_enough() {
        for size in 1..if cfg!(miri) { 300 } else { 20_000 } {
            let bin = bin_that_fits(size);
            let smallest = (1..40_000).find(|s| bin_of(*s) == bin).expect("the bin has sizes");
            assert!(smallest >= size, "{smallest} shares the bin that fits {size}");
        }
    }

    #[test]
    fn bins_with_holes_are_found_from_either_end() {
        let mut bins = Bins::new();
        let sizes = [1, 31, 64, 65, 1 << 20, (1 << 20) + 1, 3 << 30, 1 << 50, u64::MAX];
        bins.grow(sizes.len()).expect("memory");
        assert_eq!((bins.last(), bins.last_below(BINS - 1)), (None, None));
        (0..).zip(sizes).for_each(|(index, size)| bins.push(index, size));
        let mut up: Vec<u32> = (0..BINS).filter(|bin| bins.head(*bin).is_some()).collect();
        assert_eq!(bins.last(), up.last().copied());
        for bin in 0..BINS {
            let below = up.iter().rev().find(|one| **one < bin);
            assert_eq!(bins.last_below(bin), below.copied(), "below {bin}");
        }
        let down = core::iter::successors(bins.last(), |bin| bins.last_below(*bin));
        let down: Vec<u32> = down.collect();
        up.reverse();
        assert_eq!(down, up);
    }
}
