//! What reading a table costs from each region: assumed, or measured by `calibrate`.
use super::words::Pattern;

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

/// A class of tables that are told apart by size: up to a power of two between 256 bytes and 1 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSize(u8);

/// How many classes there are.
const CLASSES: usize = 13;

/// The most bytes of the smallest class.
const SMALLEST: u64 = 256;

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

    /// The most bytes of the class; the last one also serves whatever is larger.
    #[must_use]
    pub const fn most(self) -> u64 {
        SMALLEST << self.0
    }

    /// The class of a size in bytes.
    #[must_use]
    pub const fn of(size: u64) -> Self {
        let mut class = 0;
        while class < CLASSES - 1 && Self::ALL[class].most() < size {
            class += 1;
        }
        Self::ALL[class]
    }
}

/// What the policy believes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    costs: [[Cost; CLASSES]; 5],
    window: u32,
}

/// Patterns whose costs differ. Tiles are read like neighbours.
const fn row(pattern: Pattern) -> usize {
    match pattern {
        Pattern::Broadcast => 0,
        Pattern::Uniform => 1,
        Pattern::Coalesced | Pattern::Tiled => 2,
        Pattern::Gathered => 3,
        Pattern::Records => 4,
    }
}

/// The same cost for all tables of up to 2 KiB, of up to 32 KiB, and of more.
const fn spread(small: Cost, medium: Cost, large: Cost) -> [Cost; CLASSES] {
    let mut costs = [large; CLASSES];
    let mut at = 0;
    while at < CLASSES {
        costs[at] = match TableSize::ALL[at].most() {
            0..=2048 => small,
            2049..=32_768 => medium,
            _ => large,
        };
        at += 1;
    }
    costs
}

impl Profile {
    /// What holds without measurements, as kernels on one large device showed it: the constant cache is fast as long as
    /// the whole table stays in its first level and the compiler knows the addresses, shared memory gains where a group reads
    /// every byte many times, and lanes that read different constants wait for each other.
    pub const ASSUMED: Self = {
        const fn cost(constant: u32, shared: u32, stage: u32) -> Cost {
            Cost { constant, shared, stage }
        }
        let broadcast = spread(cost(55, 65, 200), cost(115, 62, 200), cost(120, 60, 200));
        let uniform = spread(cost(120, 75, 100), cost(140, 75, 100), cost(140, 80, 100));
        let coalesced = spread(cost(300, 101, 200), cost(800, 101, 300), cost(1000, 101, 300));
        let gathered = spread(cost(600, 90, 100), cost(5000, 75, 60), cost(6000, 80, 90));
        let records = spread(cost(600, 101, 100), cost(5000, 101, 100), cost(6000, 115, 100));
        Self { costs: [broadcast, uniform, coalesced, gathered, records], window: 50 }
    };

    /// What reads of a table of this size in this pattern cost.
    #[must_use]
    pub const fn cost(&self, pattern: Pattern, size: u64) -> Cost {
        self.costs[row(pattern)][TableSize::of(size).0 as usize]
    }

    /// How long the host takes to write device memory through a window, in percent of a staged upload.
    #[must_use]
    pub const fn window(&self) -> u32 {
        self.window
    }

    /// The same profile with another cost for one pattern and size.
    #[must_use]
    pub const fn with(mut self, pattern: Pattern, size: TableSize, cost: Cost) -> Self {
        self.costs[row(pattern)][size.0 as usize] = cost;
        self
    }

    /// The same profile with another cost of writing through a window.
    #[must_use]
    pub const fn with_window(mut self, percent: u32) -> Self {
        self.window = percent;
        self
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self::ASSUMED
    }
}
