//! Costs of reading a table from each region.
use crate::request::Request;
use crate::words::{Dependence, Keyword, Pattern, Work, words};

/// Cost of reads from one region beside device memory, in percent of the time from device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// From the constant region.
    pub constant: u32,
    /// From shared memory, once the bytes are there.
    pub shared: u32,
    /// Bringing the bytes there, for every group: in percent of reading each of them once from device memory.
    pub stage: u32,
}

/// A size class of tables: 256 bytes to 1 MiB, finer where caches end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableSize(u8);

/// Number of table size classes.
pub(super) const CLASSES: usize = 20;

/// The most bytes of every class, in units of 256 bytes.
const MOST: [u64; CLASSES] =
    [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096];

impl TableSize {
    /// Every class, smallest first.
    pub const ALL: [Self; CLASSES] = {
        let mut all = [Self(0); CLASSES];
        let mut at = 1;
        while at < CLASSES {
            all[at] = Self(all[at - 1].0 + 1);
            at += 1;
        }
        all
    };

    /// Returns the most bytes of the class; the last one also serves whatever is larger.
    #[must_use]
    pub const fn most(self) -> u64 {
        MOST[self.0 as usize] * 256
    }

    /// Returns the class of a size in bytes.
    #[must_use]
    pub const fn of(size: u64) -> Self {
        let mut class = 0;
        while class < CLASSES - 1 && Self::ALL[class].most() < size {
            class += 1;
        }
        Self::ALL[class]
    }
}

/// A kernel that calibration measures: one of the ways in which kernels read a table.
///
/// Kernels of one pattern do not all gain from the same place, so a pattern may have more than one probe: an address that the
/// compiler knows costs no instruction but must be in the first cache, which counts for little where there is much to
/// compute, and reads that wait for each other want the nearest memory rather than the widest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Probe {
    /// A loop over the whole table.
    Whole,
    /// The same loop unrolled, so that addresses are known when it is compiled.
    Unrolled,
    /// The same loop with much to compute for every number.
    Busy,
    /// Rows from where the group begins: the same for every lane, but computed.
    Walk,
    /// Neighbours read neighbouring rows.
    Lanes,
    /// Single numbers, each on its own.
    Codes,
    /// Single numbers, each found with the one before.
    Hops,
    /// Whole records, each on its own.
    Records,
}

words!(Probe: "whole" => Whole, "unrolled" => Unrolled, "busy" => Busy, "walk" => Walk, "lanes" => Lanes, "codes" => Codes, "hops" => Hops, "records" => Records);

/// Number of probes.
pub(super) const PROBES: usize = Probe::WORDS.len();

impl Probe {
    /// Returns the pattern that it is of. Tiles are read like neighbours.
    #[must_use]
    pub const fn pattern(self) -> Pattern {
        match self {
            Self::Whole | Self::Unrolled | Self::Busy => Pattern::Broadcast,
            Self::Walk => Pattern::Uniform,
            Self::Lanes => Pattern::Coalesced,
            Self::Codes | Self::Hops => Pattern::Gathered,
            Self::Records => Pattern::Records,
        }
    }

    /// Returns the probes that kernels may resemble which read as a request says, at least one.
    ///
    /// For gathered reads, these include the probe that spends little time in its table, unless the request says that
    /// the kernel does little else: what the other probes lose by a copy in shared memory is the cost of the copy.
    /// Parts of records meet in few banks of shared memory, more or less by how many are read, so no probe is left out
    /// for them.
    pub fn like(request: &Request<'_>) -> impl Iterator<Item = Self> {
        let Request { pattern, work, dependence, .. } = *request;
        let is_like = move |probe: &Self| match (pattern, probe) {
            (Pattern::Broadcast, Self::Busy) | (Pattern::Gathered, Self::Lanes) => {
                work != Work::Light
            }
            (Pattern::Gathered, Self::Codes) => dependence != Dependence::Chained,
            (Pattern::Gathered, Self::Hops) => dependence != Dependence::Independent,
            (Pattern::Fields, probe) => matches!(probe, Self::Codes | Self::Hops | Self::Lanes),
            (Pattern::Tiled, probe) => *probe == Self::Lanes,
            (pattern, probe) => probe.pattern() == pattern,
        };
        Self::WORDS.iter().map(|(_, probe)| *probe).filter(is_like)
    }
}

/// Costs that the policy assumes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    pub(super) costs: [[Cost; CLASSES]; PROBES],
    pub(super) window: u32,
}

impl Profile {
    /// Returns the cost of reading a table of this size in kernels like `probe`.
    #[must_use]
    pub const fn cost(&self, probe: Probe, size: u64) -> Cost {
        self.costs[probe as usize][TableSize::of(size).0 as usize]
    }

    /// Returns the time the host takes to write device memory through a window, in percent of a staged upload.
    #[must_use]
    pub const fn window(&self) -> u32 {
        self.window
    }

    /// Returns the same profile with another cost for one probe and size.
    #[must_use]
    pub const fn with(mut self, probe: Probe, size: TableSize, cost: Cost) -> Self {
        self.costs[probe as usize][size.0 as usize] = cost;
        self
    }

    /// Returns the same profile with another cost of writing through a window.
    #[must_use]
    pub const fn with_window(mut self, percent: u32) -> Self {
        self.window = percent;
        self
    }
}
