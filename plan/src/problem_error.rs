//! Errors in a problem, with advice.

use core::fmt;

/// Why a problem makes no sense. Buffers and regions are named by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProblemError {
    /// There are no regions or more than 64: give one to 64.
    RegionCount {
        /// Their number.
        count: usize,
    },
    /// A region's alignment is zero: use 1 for none.
    RegionAlign {
        /// The region.
        region: usize,
    },
    /// There are 2^32 buffers or more: split the problem.
    TooMany {
        /// Their number.
        count: usize,
    },
    /// A lifetime is empty or reversed: drop the buffer or swap its ends.
    Lifetime {
        /// The buffer.
        buffer: usize,
    },
    /// An alignment is zero: use 1 for none.
    Align {
        /// The buffer.
        buffer: usize,
    },
    /// Gaps are empty, unsorted, overlapping, or outside the lifetime: sort and clip them.
    Gap {
        /// The buffer.
        buffer: usize,
    },
    /// A fixed offset is not a multiple of the alignment: change one of them.
    FixedAlign {
        /// The buffer.
        buffer: usize,
    },
    /// A buffer may live in none of the regions: widen its set.
    NoRegion {
        /// The buffer.
        buffer: usize,
    },
    /// The sum of all sizes passes 2^62 bytes: plan in larger units.
    Overflow {
        /// The buffer at which the sum passes it.
        buffer: usize,
    },
    /// An alias or separate pair names a buffer that is not there, or one buffer twice: drop the pair.
    Pair {
        /// One buffer.
        a: usize,
        /// The other.
        b: usize,
    },
}

impl fmt::Display for ProblemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RegionCount { count } => write!(f, "{count} regions: give one to 64"),
            Self::RegionAlign { region } => {
                write!(f, "region {region} has alignment 0: use 1 for none")
            }
            Self::TooMany { count } => write!(f, "{count} buffers are too many: split the problem"),
            Self::Lifetime { buffer } => {
                write!(f, "buffer {buffer} ends at or before its start: drop it or swap its ends")
            }
            Self::Align { buffer } => write!(f, "buffer {buffer} has alignment 0: use 1 for none"),
            Self::Gap { buffer } => write!(
                f,
                "buffer {buffer} has gaps that are empty, unsorted, overlapping or outside its lifetime: sort and clip them"
            ),
            Self::FixedAlign { buffer } => {
                write!(
                    f,
                    "buffer {buffer} is fixed at an offset that its alignment forbids: change one of them"
                )
            }
            Self::NoRegion { buffer } => {
                write!(f, "buffer {buffer} may live in no region: widen its set")
            }
            Self::Overflow { buffer } => {
                write!(
                    f,
                    "sizes up to buffer {buffer} sum to more than 2^62 bytes: plan in larger units"
                )
            }
            Self::Pair { a, b } => {
                write!(f, "the pair ({a}, {b}) does not name two buffers: drop it")
            }
        }
    }
}

impl core::error::Error for ProblemError {}
