//! The built-in profile: costs of reading a table, rounded from the probes on one large device.
//!
//! Two tables, because a constant is one of two things. Where the device has a bank, a kernel's compiler sees one fixed array,
//! unrolls loops over it and makes its numbers operands of instructions, until they no longer fit the first level of
//! the constant cache, about 2 KiB with the kernel's own parameters and literals. Where constants are ranges of any buffer,
//! the driver compiles the kernel, loads them in loops as well, and keeps less shared memory ready: a group that takes
//! much of it leaves little room for others.
use crate::profile::{CLASSES, Cost, PROBES, Profile, TableSize};
use omniheap_seam::{Caps, Heap, HeapKind};

/// The most bytes of a bank.
const MOST_BANK: u64 = 64 << 10;

/// The most bytes of every step but the last.
const STEPS: [u64; 7] = [1 << 10, 2 << 10, 4 << 10, 6 << 10, 8 << 10, 16 << 10, 32 << 10];

/// Percentages for every step.
type Row = [u32; STEPS.len() + 1];

/// Costs of one probe: from the constant region, from shared memory, and bringing the table there.
const fn probe(constant: Row, shared: Row, stage: Row) -> [Cost; CLASSES] {
    let mut costs = [Cost { constant: 0, shared: 0, stage: 0 }; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        let mut step = 0;
        while step < STEPS.len() && STEPS[step] < TableSize::ALL[class].most() {
            step += 1;
        }
        costs[class] = Cost { constant: constant[step], shared: shared[step], stage: stage[step] };
        class += 1;
    }
    costs
}

/// Costs where constants are spans of a bank, in the order of probes.
pub(super) const BANK: [[Cost; CLASSES]; PROBES] = [
    probe([58, 58, 65, 65, 65, 130, 140, 150], [90, 58, 57, 57, 57, 57, 56, 56], [200; 8]),
    probe([58, 99, 120, 130, 130, 140, 140, 150], [99, 60, 56, 56, 56, 56, 56, 56], [200; 8]),
    probe(
        [100, 100, 100, 100, 100, 140, 220, 270],
        [99, 98, 98, 98, 98, 98, 98, 100],
        [290, 210, 140, 100, 120, 110, 110, 90],
    ),
    probe([100; 8], [75, 70, 70, 70, 70, 70, 70, 80], [500, 400, 400, 250, 250, 200, 150, 100]),
    probe(
        [1100, 1100, 1400, 2000, 2000, 2700, 3200, 3500],
        [99, 96, 96, 96, 96, 97, 100, 140],
        [230, 110, 75, 65, 65, 60, 70, 65],
    ),
    probe(
        [2100, 1600, 4400, 7200, 7200, 8300, 8800, 9000],
        [95, 88, 60, 46, 46, 40, 38, 38],
        [150, 140, 70, 45, 45, 32, 27, 25],
    ),
    probe(
        [1300, 1300, 4100, 6900, 6900, 8100, 8600, 8800],
        [92, 86, 66, 50, 50, 44, 42, 60],
        [230, 100, 40, 34, 34, 27, 27, 21],
    ),
    probe(
        [1000, 1100, 5200, 11_000, 11_000, 15_000, 16_000, 17_000],
        [100, 100, 99, 98, 98, 98, 96, 95],
        [350, 160, 120, 110, 110, 90, 90, 90],
    ),
];

/// Costs where constants are ranges of any buffer, in the order of probes.
pub(super) const RANGES: [[Cost; CLASSES]; PROBES] = [
    probe([54, 40, 47, 49, 63, 270, 290, 450], [73, 59, 58, 57, 57, 57, 58, 58], [200; 8]),
    probe([54, 40, 47, 49, 63, 270, 290, 450], [73, 59, 58, 57, 57, 57, 58, 58], [200; 8]),
    probe(
        [97, 97, 99, 180, 190, 290, 340, 340],
        [78, 100, 96, 94, 92, 91, 92, 96],
        [350, 230, 150, 150, 160, 230, 380, 400],
    ),
    probe(
        [100, 130, 150, 140, 140, 150, 150, 160],
        [72, 75, 78, 76, 76, 76, 90, 100],
        [500, 400, 400, 250, 250, 250, 450, 520],
    ),
    probe(
        [920, 1200, 1200, 1800, 1800, 2300, 2700, 2800],
        [98, 94, 94, 100, 100, 140, 250, 320],
        [120, 55, 40, 45, 45, 60, 110, 110],
    ),
    probe(
        [1700, 1400, 4200, 6600, 6600, 7700, 8200, 8300],
        [96, 90, 64, 51, 51, 44, 55, 66],
        [130, 60, 55, 40, 40, 35, 50, 45],
    ),
    probe(
        [1000, 2300, 3800, 6400, 6400, 7600, 8000, 8100],
        [93, 92, 80, 68, 68, 86, 170, 230],
        [170, 40, 20, 20, 20, 20, 28, 26],
    ),
    probe(
        [900, 1100, 4900, 10_000, 10_000, 14_000, 15_000, 16_000],
        [100, 100, 100, 100, 100, 100, 110, 120],
        [210, 100, 50, 50, 50, 60, 200, 150],
    ),
];

impl Profile {
    /// Profile of an unmeasured device that has a bank for constants.
    pub const ASSUMED: Self = Self { costs: BANK, window: 50 };

    /// Returns the profile that is assumed for an unmeasured device.
    #[must_use]
    pub fn assumed(caps: &Caps) -> Self {
        // A larger heap of constants is not one array that compilers see, but room for many ranges.
        let is_bank = |heap: &Heap| heap.kind == HeapKind::Constant && heap.size <= MOST_BANK;
        let has_bank = caps.heaps.iter().any(is_bank);
        let costs = if has_bank { BANK } else { RANGES };
        Self { costs, ..Self::ASSUMED }
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self::ASSUMED
    }
}
