//! A decision, with its reason and what was rejected.
use crate::words::{Region, Word as _};
use core::fmt;
use omniheap_seam::{HeapId, HeapKind};

/// Most heaps that one decision names.
const MOST: usize = 8;

/// Heaps, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranking {
    heaps: [HeapId; MOST],
    count: u8,
}

impl Ranking {
    /// No heap yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { heaps: [HeapId(0); MOST], count: 0 }
    }

    /// Adds a heap behind the others; the ninth and later are left out.
    pub fn push(&mut self, heap: HeapId) {
        if usize::from(self.count) < MOST && !self.as_slice().contains(&heap) {
            self.heaps[usize::from(self.count)] = heap;
            self.count += 1;
        }
    }

    /// The heaps, best first.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[HeapId] {
        &self.heaps[..usize::from(self.count)]
    }
}

impl Default for Ranking {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a region was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Kernels write it: device memory is the fastest home.
    WrittenByKernels,
    /// The host writes it once: a copy to device memory pays for itself.
    WrittenOnce,
    /// The host writes it for every frame: it is read where the host wrote it.
    WrittenPerFrame,
    /// The host reads what the device wrote: cached host memory.
    ReadByHost,
    /// Every lane reads the same small table: the constant cache serves it.
    Broadcast,
    /// A group reads the same bytes many times: it keeps a copy in shared memory.
    ReusedByGroup,
    /// The host writes it for every frame, into memory that kernels read fast.
    WrittenInPlace,
    /// The host writes it for every frame and kernels read it more than once: a copy for every frame pays.
    CopiedPerFrame,
    /// Both sides use it all the time: unified memory.
    UsedByBoth,
    /// The request names its heap.
    Named,
    /// The device lacks the region that fits best; this one substitutes it.
    Substitute(Region),
    /// The region that fits best is too small; this one substitutes it.
    TooLargeFor(Region),
    /// The region that fits best is worth more to others of the same set; this one substitutes it.
    Crowded(Region),
    /// The region that fits best is nearly full; this one substitutes it until there is room again.
    NearlyFull(Region),
    /// The region that fits best was full; this one substitutes it.
    Full(Region),
    /// Every permitted heap was full, and the request may spill to host memory.
    Spilled,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, region, after) = match self {
            Self::Substitute(region) => ("the device has no ", region, ""),
            Self::TooLargeFor(region) => ("it does not fit ", region, ""),
            Self::Crowded(region) => ("others gain more from ", region, ""),
            Self::NearlyFull(region) => ("", region, " is nearly full"),
            Self::Full(region) => ("", region, " was full"),
            other => return f.write_str(other.sentence()),
        };
        write!(f, "{before}{} memory{after}; this substitutes it", region.word())
    }
}

impl Reason {
    /// The reasons that name no other region, for people.
    const fn sentence(self) -> &'static str {
        match self {
            Self::WrittenByKernels => "kernels write it, so it lives in device memory",
            Self::WrittenOnce => "the host writes it once, so a copy to device memory pays",
            Self::WrittenPerFrame => "the host writes it every frame, so it is read from staging",
            Self::ReadByHost => "the host reads it, so it lives in cached host memory",
            Self::Broadcast => {
                "every lane reads the same small table, so the constant cache serves it"
            }
            Self::ReusedByGroup => {
                "a group reads the same bytes many times, so it copies them to shared memory first"
            }
            Self::WrittenInPlace => {
                "the host writes it every frame, straight to memory that kernels read fast"
            }
            Self::CopiedPerFrame => {
                "kernels read it more than once in a frame, so a copy to device memory pays"
            }
            Self::UsedByBoth => "both sides use it all the time, so unified memory avoids copies",
            Self::Spilled => {
                "device memory was full, so it spilled to host memory; kernels are slow there"
            }
            _ => "the request names this heap",
        }
    }
}

/// A heap that was not chosen, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// It is of another kind.
    Kind(HeapKind),
    /// The request is larger than its largest block.
    TooLarge {
        /// The heap's largest block.
        max_block: u64,
    },
    /// It guarantees less alignment than is asked for.
    Alignment {
        /// What the heap guarantees.
        guaranteed: u64,
    },
    /// It is only for requests that name it.
    OnRequest,
    /// It needs a flush, and the request must be coherent.
    Incoherent,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "it is {} memory", kind.word()),
            Self::TooLarge { max_block } => write!(f, "its largest block has {max_block} bytes"),
            Self::Alignment { guaranteed } => write!(f, "it aligns to {guaranteed} bytes only"),
            Self::OnRequest => f.write_str("it serves only requests that name it"),
            Self::Incoherent => f.write_str("it needs a flush, and the request must be coherent"),
        }
    }
}

/// The decision: a region, the heaps to try, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The region.
    pub region: Region,
    /// Heaps to try, best first.
    pub heaps: Ranking,
    /// Why.
    pub reason: Reason,
}
