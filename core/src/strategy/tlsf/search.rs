//! Which hole serves a request: the nearest size first, every hole before a refusal.
use super::bins::bin_that_fits;
use super::{BINS, TRIES, Tlsf, bin_of};
use crate::strategy::{Key, LastUse};
use crate::{Align, Class, ErrorKind, Layout, Span};

impl Tlsf {
    /// Whether a request of a live span's size, which its offset is aligned for, would get the very same span if that were
    /// freed before, and leave every list as it is now.
    #[inline]
    #[must_use]
    pub fn would_come_back(&self, key: Key) -> bool {
        let Some(node) = self.nodes.live(key) else { return false };
        let (before, after) = (self.nodes.get(node.previous), self.nodes.get(node.next));
        // Together with a hole before it, the request would start there.
        if before.is_hole() {
            return false;
        }
        // Alone it becomes the first hole of its bin, fits exactly, and is taken out again.
        if !after.is_hole() {
            return true;
        }
        // The hole behind it grows into another bin and shrinks back: as the first hole of both, and so to where it was.
        let (rest, whole) = (bin_of(after.size), bin_of(after.size + node.size));
        let mut tightest = self.bins.first_from(bin_of(node.size));
        if tightest == Some(rest) && rest != whole {
            if self.bins.next_hole(node.next).is_some() {
                return false;
            }
            tightest = self.bins.first_from(rest + 1);
        }
        self.bins.head(rest) == Some(node.next) && tightest.is_none_or(|bin| bin >= whole)
    }

    /// Where a span of this layout would start in a hole, if it fits there.
    #[inline]
    pub(super) fn start_in(&self, hole: u32, layout: Layout, class: Class) -> Option<u64> {
        let whole = self.nodes.get(hole).span();
        let start = layout.align.up(whole.offset)?;
        if self.granularity > Align::ONE {
            return self.start_apart(hole, whole, start, layout, class);
        }
        (start.checked_add(layout.size)? <= whole.end()).then_some(start)
    }

    /// As [`start_in`](Self::start_in), a granule away from unlike neighbours.
    #[cold]
    fn start_apart(
        &self,
        hole: u32,
        whole: Span,
        start: u64,
        layout: Layout,
        class: Class,
    ) -> Option<u64> {
        let start = self.apart_from_previous(hole, start, layout.align, class)?;
        let end = start.checked_add(layout.size)?;
        (end <= whole.end() && !self.meets_next(hole, end, class)).then_some(start)
    }

    fn apart_from_previous(
        &self,
        hole: u32,
        start: u64,
        align: Align,
        class: Class,
    ) -> Option<u64> {
        let previous = self.nodes.get(self.nodes.previous(hole));
        if previous.is_edge() || previous.class() == class {
            return Some(start);
        }
        let granule = self.granularity;
        if granule.down(previous.span().end() - 1) < granule.down(start) {
            return Some(start);
        }
        align.max(granule).up(start)
    }

    fn meets_next(&self, hole: u32, end: u64, class: Class) -> bool {
        let next = self.nodes.get(self.nodes.next(hole));
        !next.is_edge()
            && next.class() != class
            && self.granularity.down(end - 1) == self.granularity.down(next.offset)
    }

    /// A hole for the request whose last use `may` accepts, and where in it the span starts.
    ///
    /// Looks at a few holes of the request's own bin, which may be too small by less than 1/32, then at larger bins.
    #[inline]
    pub(super) fn find(
        &self,
        layout: Layout,
        class: Class,
        may: &impl Fn(LastUse) -> bool,
    ) -> Option<(u32, u64)> {
        let own = bin_of(layout.size);
        let hole = self.bins.head(self.bins.first_from(own)?)?;
        match self.fits(hole, layout, class, may) {
            Some(found) => Some(found),
            None => self.find_further(own, layout, class, may),
        }
    }

    #[inline]
    fn fits(
        &self,
        hole: u32,
        layout: Layout,
        class: Class,
        may: &impl Fn(LastUse) -> bool,
    ) -> Option<(u32, u64)> {
        let start = self.start_in(hole, layout, class)?;
        may(self.nodes.get(hole).last_use).then_some((hole, start))
    }

    /// As [`find`](Self::find), where the first hole did not fit.
    #[inline(never)]
    fn find_further(
        &self,
        own: u32,
        layout: Layout,
        class: Class,
        may: &impl Fn(LastUse) -> bool,
    ) -> Option<(u32, u64)> {
        let mut few = self.bins.holes(own).take(TRIES);
        few.find_map(|hole| self.fits(hole, layout, class, may))
            .or_else(|| self.find_larger(layout, class, may))
    }

    /// Looks at every hole, where a few steps found none.
    #[inline(never)]
    pub(super) fn find_any(
        &self,
        layout: Layout,
        class: Class,
        may: &impl Fn(LastUse) -> bool,
    ) -> Option<(u32, u64)> {
        if layout.size > self.free_bytes() {
            return None;
        }
        let after = |bin: &u32| self.bins.first_from(bin + 1).filter(|_| bin + 1 < BINS);
        let bins = core::iter::successors(self.bins.first_from(bin_of(layout.size)), after);
        let mut holes = bins.flat_map(|bin| self.bins.holes(bin));
        holes.find_map(|hole| self.fits(hole, layout, class, may))
    }

    /// A hole of a larger bin: the first that fits as it is, else the first that fits whatever its start.
    #[inline]
    fn find_larger(
        &self,
        layout: Layout,
        class: Class,
        may: &impl Fn(LastUse) -> bool,
    ) -> Option<(u32, u64)> {
        let fits = |hole: u32| self.fits(hole, layout, class, may);
        let mut bin = self.bins.first_from(bin_that_fits(layout.size))?;
        for _ in 0..TRIES {
            let first = self.bins.head(bin)?;
            if let Some(start) = self.start_in(first, layout, class) {
                if may(self.nodes.get(first).last_use) {
                    return Some((first, start));
                }
                // Freed before the others, so whoever used it has most probably passed.
                if let Some(found) = fits(self.bins.tail(bin)?) {
                    return Some(found);
                }
            }
            bin = self.bins.first_from(bin + 1)?;
        }
        let slack =
            (self.granularity.get() - 1).saturating_mul(2).saturating_add(layout.align.get() - 1);
        let bin = self.bins.first_from(bin_that_fits(layout.size.checked_add(slack)?))?;
        fits(self.bins.head(bin)?)
    }

    #[cold]
    pub(super) fn refuse(&self, layout: Layout) -> ErrorKind {
        let largest = self.blocks.iter().map(|(_, size)| *size).max().unwrap_or(0);
        match () {
            () if layout.size > largest => ErrorKind::ExceedsLimit,
            () if layout.size > self.free_bytes() => ErrorKind::OutOfDeviceMemory,
            () => ErrorKind::Fragmented,
        }
    }
}
