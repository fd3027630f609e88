//! Checks that a problem makes sense; errors come with advice.

use crate::classes::{Classes, lcm};
use crate::problem::{Buffer, Problem};
use core::fmt;

/// Reason why a problem makes no sense. Buffers and regions are named by index.
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

/// The planner computes with sums of two offsets, so every offset stays below a quarter of the range of `u64`.
const MOST_BYTES: u64 = u64::MAX / 4;

impl Problem {
    /// Checks that every number makes sense.
    ///
    /// # Errors
    /// The first thing that is wrong; its message says what to change.
    pub fn check(&self) -> Result<(), ProblemError> {
        if self.regions.is_empty() || self.regions.len() > 64 {
            return Err(ProblemError::RegionCount { count: self.regions.len() });
        }
        if let Some(region) = self.regions.iter().position(|r| r.align == 0) {
            return Err(ProblemError::RegionAlign { region });
        }
        if u32::try_from(self.buffers.len()).is_err() {
            return Err(ProblemError::TooMany { count: self.buffers.len() });
        }
        for (index, buffer) in self.buffers.iter().enumerate() {
            check_buffer(index, buffer, self.regions.len())?;
        }
        let pairs = self.aliases.iter().chain(&self.separate);
        for &(a, b) in pairs {
            if a >= self.buffers.len() || b >= self.buffers.len() || a == b {
                return Err(ProblemError::Pair { a, b });
            }
        }
        self.check_sum()
    }

    /// Checks that no sum passes the limit: offsets are sums of padded sizes, and may start behind a fixed buffer.
    fn check_sum(&self) -> Result<(), ProblemError> {
        let fixed = self.buffers.iter().filter_map(|b| b.fixed).max().unwrap_or(0);
        let classes = Classes::new(self);
        let mut align = alloc::vec![Some(1); self.buffers.len()];
        let mut total = Some(fixed);
        for (index, buffer) in self.buffers.iter().enumerate() {
            let class = &mut align[classes.root(index)];
            *class = class.and_then(|align| lcm(align, buffer.align));
            let widest = self.regions.iter().try_fold(0u64, |widest, region| {
                class.and_then(|align| lcm(align, region.align)).map(|align| widest.max(align))
            });
            total = total
                .zip(widest.and_then(|align| align.checked_add(buffer.size)))
                .and_then(|(sum, padded)| sum.checked_add(padded))
                .filter(|&sum| sum <= MOST_BYTES);
            if total.is_none() {
                return Err(ProblemError::Overflow { buffer: index });
            }
        }
        Ok(())
    }
}

fn check_buffer(index: usize, buffer: &Buffer, regions: usize) -> Result<(), ProblemError> {
    if buffer.live.start >= buffer.live.end {
        return Err(ProblemError::Lifetime { buffer: index });
    }
    if buffer.align == 0 {
        return Err(ProblemError::Align { buffer: index });
    }
    let mut at = buffer.live.start;
    for gap in &buffer.gaps {
        if gap.start < at || gap.start >= gap.end || gap.end > buffer.live.end {
            return Err(ProblemError::Gap { buffer: index });
        }
        at = gap.end;
    }
    if buffer.fixed.is_some_and(|f| f % buffer.align != 0) {
        return Err(ProblemError::FixedAlign { buffer: index });
    }
    if !(0..regions).any(|r| buffer.regions.contains(r)) {
        return Err(ProblemError::NoRegion { buffer: index });
    }
    Ok(())
}
