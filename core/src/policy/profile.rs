//! What reading a table costs from each region: assumed, or measured by `calibrate`.
use super::request::Pattern;

/// What reads cost from one region beside device memory, in percent of the time from device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// From the constant region.
    pub constant: u32,
    /// From shared memory, once the bytes are there.
    pub shared: u32,
    /// Bringing the bytes there, for every group: in percent of reading each of them once from device memory.
    pub stage: u32,
}

/// Sizes of tables that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableSize {
    /// Up to 2 KiB.
    Small,
    /// Up to 32 KiB.
    Medium,
    /// More.
    Large,
}

impl TableSize {
    /// Every class, smallest first.
    pub const ALL: [Self; 3] = [Self::Small, Self::Medium, Self::Large];

    /// The most bytes of the class.
    #[must_use]
    pub const fn most(self) -> u64 {
        match self {
            Self::Small => 2048,
            Self::Medium => 32_768,
            Self::Large => u64::MAX,
        }
    }

    /// The class of a size in bytes.
    #[must_use]
    pub const fn of(size: u64) -> Self {
        match size {
            0..=2048 => Self::Small,
            2049..=32_768 => Self::Medium,
            _ => Self::Large,
        }
    }
}

/// What the policy believes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    costs: [[Cost; 3]; 3],
}

/// Patterns whose costs differ. Tiles are read like neighbours.
const fn row(pattern: Pattern) -> usize {
    match pattern {
        Pattern::Broadcast => 0,
        Pattern::Coalesced | Pattern::Tiled => 1,
        Pattern::Gathered => 2,
    }
}

impl Profile {
    /// What holds for devices with a constant cache and group memory, without measurements.
    pub const ASSUMED: Self = {
        let broadcast = Cost { constant: 80, shared: 90, stage: 200 };
        let coalesced = Cost { constant: 400, shared: 90, stage: 200 };
        let gathered = Cost { constant: 800, shared: 70, stage: 200 };
        Self { costs: [[broadcast; 3], [coalesced; 3], [gathered; 3]] }
    };

    /// What reads of a table of this size in this pattern cost.
    #[must_use]
    pub const fn cost(&self, pattern: Pattern, size: u64) -> Cost {
        self.costs[row(pattern)][TableSize::of(size) as usize]
    }

    /// The same profile with another cost for one pattern and size.
    #[must_use]
    pub const fn with(mut self, pattern: Pattern, size: TableSize, cost: Cost) -> Self {
        self.costs[row(pattern)][size as usize] = cost;
        self
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self::ASSUMED
    }
}
