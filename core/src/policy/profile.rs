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
    /// What holds without measurements, as thirteen kernels on one large device showed it: the constant cache is fast as
    /// long as the whole table stays in its first level, shared memory gains where a group reads every byte many times, and
    /// lanes that read different constants wait for each other.
    pub const ASSUMED: Self = {
        const fn cost(constant: u32, shared: u32, stage: u32) -> Cost {
            Cost { constant, shared, stage }
        }
        let broadcast = [cost(55, 65, 200), cost(115, 62, 200), cost(120, 100, 200)];
        let coalesced = [cost(300, 101, 200), cost(800, 101, 300), cost(1000, 101, 300)];
        let gathered = [cost(600, 98, 100), cost(5000, 75, 160), cost(6000, 75, 160)];
        Self { costs: [broadcast, coalesced, gathered] }
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
