//! A problem: buffers with lifetimes, the regions they may be placed in, and which may share bytes.

use alloc::vec::Vec;

/// A half-open span of ticks, `[start, end)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interval {
    /// First tick at which the bytes are needed.
    pub start: u64,
    /// First tick at which they are no longer needed; greater than `start`.
    pub end: u64,
}

impl Interval {
    /// Makes the interval `[start, end)`.
    #[must_use]
    pub const fn new(start: u64, end: u64) -> Self {
        Self { start, end }
    }

    /// Returns whether the two intervals have a tick in common.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// The regions a buffer may be placed in, as a set of region indices below 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionSet(u64);

impl RegionSet {
    /// Every region of the problem.
    pub const ALL: Self = Self(u64::MAX);

    /// No region.
    pub const NONE: Self = Self(0);

    /// Makes a set of one region; indices of 64 and above give the empty set.
    #[must_use]
    pub const fn only(region: usize) -> Self {
        if region < 64 { Self(1 << region) } else { Self(0) }
    }

    /// Returns the regions with indices below `count`.
    pub const fn below(count: usize) -> Self {
        if count < 64 { Self((1 << count) - 1) } else { Self::ALL }
    }

    /// Adds a region to the set; indices of 64 and above change nothing.
    #[must_use]
    pub const fn and(self, region: usize) -> Self {
        Self(self.0 | Self::only(region).0)
    }

    /// Returns whether the region is in the set.
    #[must_use]
    pub const fn contains(self, region: usize) -> bool {
        self.0 & Self::only(region).0 != 0
    }

    /// Keeps the regions that are in both sets.
    #[must_use]
    pub const fn meet(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// One buffer: how many bytes, when, and where they may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Bytes; a buffer of zero bytes conflicts with nothing.
    pub size: u64,
    /// The offset is a multiple of this; at least 1, any number (not only powers of two).
    pub align: u64,
    /// From first to last use.
    pub live: Interval,
    /// Spans inside `live` in which the bytes are not needed; sorted, disjoint.
    pub gaps: Vec<Interval>,
    /// The offset the buffer must have, if it is not free to move.
    pub fixed: Option<u64>,
    /// An offset worth trying; never binding.
    pub hint: Option<u64>,
    /// The regions it may live in.
    pub regions: RegionSet,
    /// Cost of spilling or recomputing it; `None` if it must stay.
    pub spill_cost: Option<u64>,
}

impl Buffer {
    /// Makes a buffer of `size` bytes that lives in `[start, end)`, unaligned, free to move, never spilled.
    #[must_use]
    pub const fn new(size: u64, start: u64, end: u64) -> Self {
        Self {
            size,
            align: 1,
            live: Interval::new(start, end),
            gaps: Vec::new(),
            fixed: None,
            hint: None,
            regions: RegionSet::ALL,
            spill_cost: None,
        }
    }

    /// Sets the alignment of the offset.
    #[must_use]
    pub const fn align(mut self, align: u64) -> Self {
        self.align = align;
        self
    }

    /// Pins the buffer to one offset.
    #[must_use]
    pub const fn fixed(mut self, offset: u64) -> Self {
        self.fixed = Some(offset);
        self
    }

    /// Suggests an offset.
    #[must_use]
    pub const fn hint(mut self, offset: u64) -> Self {
        self.hint = Some(offset);
        self
    }

    /// Adds a span in which the bytes are not needed.
    #[must_use]
    pub fn gap(mut self, start: u64, end: u64) -> Self {
        self.gaps.push(Interval::new(start, end));
        self
    }

    /// Restricts the buffer to some regions.
    #[must_use]
    pub const fn within(mut self, regions: RegionSet) -> Self {
        self.regions = regions;
        self
    }

    /// Allows the buffer to be spilled or recomputed at this cost.
    #[must_use]
    pub const fn spillable(mut self, cost: u64) -> Self {
        self.spill_cost = Some(cost);
        self
    }

    /// Returns whether the buffer ever needs bytes: it has some, and its gaps leave some of its lifetime.
    #[must_use]
    pub fn needs_bytes(&self) -> bool {
        self.size > 0 && self.intervals().next().is_some()
    }

    /// Lists the spans in which the bytes are needed: `live` less the gaps.
    pub fn intervals(&self) -> impl Iterator<Item = Interval> + '_ {
        let ends = self.gaps.iter().map(|g| g.start).chain([self.live.end]);
        let starts = [self.live.start].into_iter().chain(self.gaps.iter().map(|g| g.end));
        starts.zip(ends).filter(|(s, e)| s < e).map(|(s, e)| Interval::new(s, e))
    }
}

/// One region that buffers are placed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Bytes; `None` when the least capacity is what is asked for.
    pub capacity: Option<u64>,
    /// Every offset in the region is a multiple of this; at least 1.
    pub align: u64,
    /// Cost per byte; the planner fills cheaper regions first.
    pub cost: u64,
}

impl Region {
    /// Makes a region without limit, unaligned, at cost 0.
    #[must_use]
    pub const fn unbounded() -> Self {
        Self { capacity: None, align: 1, cost: 0 }
    }

    /// Makes a region of `capacity` bytes, unaligned, at cost 0.
    #[must_use]
    pub const fn bounded(capacity: u64) -> Self {
        Self { capacity: Some(capacity), align: 1, cost: 0 }
    }
}

/// Place of one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Spot {
    /// Index of the region.
    pub region: usize,
    /// Bytes from the region's start.
    pub offset: u64,
}

/// A planning problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Buffers to place; a buffer is named by its index here.
    pub buffers: Vec<Buffer>,
    /// Regions to place them in; 1 to 64.
    pub regions: Vec<Region>,
    /// Pairs that use the same bytes: an operator that works in place, a view. Both get one offset.
    pub aliases: Vec<(usize, usize)>,
    /// Pairs that never share a byte although their lifetimes differ: buffers of two queues that run at once.
    pub separate: Vec<(usize, usize)>,
}

impl Problem {
    /// Makes an empty problem with one region.
    #[must_use]
    pub fn new(region: Region) -> Self {
        Self {
            buffers: Vec::new(),
            regions: alloc::vec![region],
            aliases: Vec::new(),
            separate: Vec::new(),
        }
    }

    /// Adds a buffer and returns its index.
    pub fn push(&mut self, buffer: Buffer) -> usize {
        self.buffers.push(buffer);
        self.buffers.len() - 1
    }
}
