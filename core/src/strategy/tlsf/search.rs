//! Which hole serves a request: the nearest size first, every hole before a refusal.
use super::bins::bin_that_fits;
use super::nodes::NONE;
use super::{BINS, TRIES, Tlsf, bin_of};
use crate::{Align, Class, ErrorKind, Layout, Span};

impl Tlsf {
    /// Where a span of this layout would start in a hole, if it fits there.
    #[inline]
    fn start_in(&self, hole: u32, layout: Layout, class: Class) -> Option<u64> {
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
        let previous = self.nodes.previous(hole);
        if previous == NONE || self.nodes.class(previous) == class {
            return Some(start);
        }
        let granule = self.granularity;
        if granule.down(self.nodes.end(previous) - 1) < granule.down(start) {
            return Some(start);
        }
        align.max(granule).up(start)
    }

    fn meets_next(&self, hole: u32, end: u64, class: Class) -> bool {
        let next = self.nodes.next(hole);
        next != NONE
            && self.nodes.class(next) != class
            && self.granularity.down(end - 1) == self.granularity.down(self.nodes.offset(next))
    }

    #[inline]
    pub(super) fn find(&self, layout: Layout, class: Class) -> Option<(u32, u64)> {
        let found = self.find_near(layout, class).or_else(|| self.find_larger(layout, class));
        match found {
            Some(found) => Some(found),
            None if layout.size > self.free_bytes() => None,
            None => self.find_anywhere(layout, class),
        }
    }

    /// A hole of the request's own bin that fits, looking at a few only.
    #[inline]
    fn find_near(&self, layout: Layout, class: Class) -> Option<(u32, u64)> {
        let mut at = self.bins.head(bin_of(layout.size));
        for _ in 0..TRIES {
            if at == NONE {
                return None;
            }
            if self.nodes.size(at) >= layout.size
                && let Some(start) = self.start_in(at, layout, class)
            {
                return Some((at, start));
            }
            at = self.nodes.next_hole(at);
        }
        None
    }

    /// A hole of a larger bin: the first that fits as it is, else the first that fits whatever its start.
    #[inline]
    fn find_larger(&self, layout: Layout, class: Class) -> Option<(u32, u64)> {
        let mut bin = self.bins.first_from(bin_that_fits(layout.size))?;
        for _ in 0..TRIES {
            let hole = self.bins.head(bin);
            if let Some(start) = self.start_in(hole, layout, class) {
                return Some((hole, start));
            }
            bin = self.bins.first_from(bin + 1)?;
        }
        let slack =
            (self.granularity.get() - 1).saturating_mul(2).saturating_add(layout.align.get() - 1);
        let hole =
            self.bins.head(self.bins.first_from(bin_that_fits(layout.size.checked_add(slack)?))?);
        Some((hole, self.start_in(hole, layout, class)?))
    }

    /// Every hole, from the smallest that could fit: slow, and only before a request is refused.
    #[cold]
    fn find_anywhere(&self, layout: Layout, class: Class) -> Option<(u32, u64)> {
        for bin in bin_of(layout.size)..BINS {
            let mut at = self.bins.head(bin);
            while at != NONE {
                if let Some(start) = self.start_in(at, layout, class) {
                    return Some((at, start));
                }
                at = self.nodes.next_hole(at);
            }
        }
        None
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
