//! The holes of [`Tlsf`](super::Tlsf) by size: 32 lists for each power of two.
use super::nodes::{NONE, Nodes};

/// Bits of a size that choose the list within its power of two.
const FINE: u32 = 5;
const LISTS: u32 = 1 << FINE;
/// Powers of two that have lists of their own: sizes below 2^63.
const POWERS: usize = 64 - FINE as usize;
/// All lists together.
pub(super) const BINS: u32 = (64 - FINE) * LISTS;

/// The bin of a hole of this size.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "masked to five bits, or below 32")]
pub(super) const fn bin_of(size: u64) -> u32 {
    if size < LISTS as u64 {
        return size as u32;
    }
    let power = size.ilog2();
    let fine = (size >> (power - FINE)) as u32 & (LISTS - 1);
    ((power - FINE + 1) << FINE) | fine
}

/// The first bin in which every hole has at least this size.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "below 32")]
pub(super) const fn bin_that_fits(size: u64) -> u32 {
    if size < LISTS as u64 {
        return size as u32;
    }
    let step = (1u64 << (size.ilog2() - FINE)) - 1;
    bin_of(size.saturating_add(step))
}

/// List heads, and a bitmap of the lists that are not empty.
#[derive(Debug)]
pub(super) struct Bins {
    powers: u64,
    fine: [u32; POWERS],
    heads: [u32; BINS as usize],
}

impl Bins {
    pub(super) const fn new() -> Self {
        Self { powers: 0, fine: [0; POWERS], heads: [NONE; BINS as usize] }
    }

    #[inline]
    pub(super) const fn head(&self, bin: u32) -> u32 {
        self.heads[bin as usize]
    }

    pub(super) const fn has(&self, bin: u32) -> bool {
        self.heads[bin as usize] != NONE
    }

    /// The first bin at or after `bin` that has a hole.
    #[inline]
    pub(super) const fn first_from(&self, bin: u32) -> Option<u32> {
        let power = bin >> FINE;
        if power as usize >= POWERS {
            return None;
        }
        let fine = self.fine[power as usize] & (u32::MAX << (bin & (LISTS - 1)));
        if fine != 0 {
            return Some((power << FINE) | fine.trailing_zeros());
        }
        let powers = self.powers & (u64::MAX << power << 1);
        if powers == 0 {
            return None;
        }
        let power = powers.trailing_zeros();
        Some((power << FINE) | self.fine[power as usize].trailing_zeros())
    }

    /// The last bin that has a hole.
    pub(super) const fn last(&self) -> Option<u32> {
        if self.powers == 0 {
            return None;
        }
        let power = 63 - self.powers.leading_zeros();
        Some((power << FINE) | (31 - self.fine[power as usize].leading_zeros()))
    }

    #[inline]
    pub(super) fn push(&mut self, nodes: &mut Nodes, index: u32) {
        self.push_to(nodes, index, bin_of(nodes.size(index)));
    }

    #[inline]
    fn push_to(&mut self, nodes: &mut Nodes, index: u32, bin: u32) {
        let head = self.heads[bin as usize];
        nodes.link_hole(index, NONE, head);
        self.heads[bin as usize] = index;
        self.fine[(bin >> FINE) as usize] |= 1 << (bin & (LISTS - 1));
        self.powers |= 1 << (bin >> FINE);
    }

    #[inline]
    pub(super) fn remove(&mut self, nodes: &mut Nodes, index: u32) {
        self.remove_from(nodes, index, bin_of(nodes.size(index)));
    }

    /// Puts a hole whose size changed from the list of one bin into that of another.
    #[inline]
    pub(super) fn moved(&mut self, nodes: &mut Nodes, index: u32, from: u32, to: u32) {
        if from != to {
            self.remove_from(nodes, index, from);
            self.push_to(nodes, index, to);
        }
    }

    #[inline]
    fn remove_from(&mut self, nodes: &mut Nodes, index: u32, bin: u32) {
        let (previous, next) = nodes.unlink_hole(index);
        if previous != NONE {
            return;
        }
        self.heads[bin as usize] = next;
        if next == NONE {
            let fine = &mut self.fine[(bin >> FINE) as usize];
            *fine &= !(1 << (bin & (LISTS - 1)));
            if *fine == 0 {
                self.powers &= !(1 << (bin >> FINE));
            }
        }
    }

    pub(super) fn contains(&self, nodes: &Nodes, index: u32) -> bool {
        let mut at = self.head(bin_of(nodes.size(index)));
        while at != NONE && at != index {
            at = nodes.next_hole(at);
        }
        at == index
    }

    pub(super) fn validate(&self, nodes: &Nodes, holes: u64) -> Result<(), &'static str> {
        let mut listed = 0;
        for bin in 0..BINS {
            let marked = self.fine[(bin >> FINE) as usize] & (1 << (bin & (LISTS - 1))) != 0;
            if marked != self.has(bin) {
                return Err("the bitmap differs from the lists");
            }
            let mut at = self.head(bin);
            while at != NONE {
                if bin_of(nodes.size(at)) != bin || !nodes.is_hole(at) {
                    return Err("a list holds what does not belong to it");
                }
                listed += 1;
                at = nodes.next_hole(at);
            }
        }
        let powers = |power: usize| self.powers & (1 << power) != 0;
        if (0..POWERS).any(|power| powers(power) != (self.fine[power] != 0)) {
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
        let sizes = (1..100_000).chain((17..62).flat_map(|p| {
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
    }

    #[test]
    fn every_size_in_a_bin_that_fits_is_large_enough() {
        for size in 1..20_000 {
            let bin = bin_that_fits(size);
            let smallest = (1..40_000).find(|s| bin_of(*s) == bin).expect("the bin has sizes");
            assert!(smallest >= size, "{smallest} shares the bin that fits {size}");
        }
    }
}
