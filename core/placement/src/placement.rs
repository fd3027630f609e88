//! Placements: the chosen region and heaps, with the reason.
use crate::words::{Keyword as _, Region};
use core::fmt;
use omniheap_seam::{HeapId, HeapKind};

/// Maximum number of heaps in a ranking.
const MOST: usize = 8;

/// Heaps, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranking {
    heaps: [HeapId; MOST],
    count: u8,
}

impl Ranking {
    /// Creates an empty ranking.
    #[must_use]
    pub const fn new() -> Self {
        Self { heaps: [HeapId(0); MOST], count: 0 }
    }

    /// Appends a heap. Ignores duplicates and every heap after the eighth.
    pub fn push(&mut self, heap: HeapId) {
        if usize::from(self.count) < MOST && !self.as_slice().contains(&heap) {
            self.heaps[usize::from(self.count)] = heap;
            self.count += 1;
        }
    }

    /// Returns the heaps, best first.
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

/// The reason why a region was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Kernels write the data; device memory is fastest.
    WrittenByKernels,
    /// The host writes the data once; a copy to device memory pays off.
    WrittenOnce,
    /// The host writes the data every frame; kernels read it from staging memory.
    WrittenPerFrame,
    /// The host reads what the device wrote; cached host memory is fastest to read.
    ReadByHost,
    /// All lanes read the same small table; the constant cache serves it.
    Broadcast,
    /// A workgroup reads the same bytes many times; it copies them to shared memory first.
    ReusedByGroup,
    /// The host writes the data every frame, directly into memory that kernels read fast.
    WrittenInPlace,
    /// The host writes the data every frame and kernels read it more than once; a copy per frame pays off.
    CopiedPerFrame,
    /// The host writes the data every frame, and kernels cannot bind the device's staging memory; each write is a copy.
    StagingUnbindable,
    /// Host and device both access the data at any time; unified memory avoids copies.
    UsedByBoth,
    /// The request names its heap.
    Named,
    /// The program allocates it from a pool that it made itself.
    OwnPool,
    /// The device does not have the best region; this one replaces it.
    Substitute(Region),
    /// The request is too large for the best region; this one replaces it.
    TooLargeFor(Region),
    /// Other requests of the same set gain more from the best region; this one replaces it.
    Crowded(Region),
    /// The best region is nearly full; this one replaces it until there is room again.
    NearlyFull(Region),
    /// The best region was full; this one replaces it.
    Full(Region),
    /// Every suitable heap was full, and the request may spill to host memory.
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
    /// Returns the text of a reason that names no other region.
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
            Self::StagingUnbindable => {
                "kernels cannot bind staging memory here, so each write is copied to device memory"
            }
            Self::UsedByBoth => "both sides use it all the time, so unified memory avoids copies",
            Self::Spilled => {
                "device memory was full, so it spilled to host memory; kernels are slow there"
            }
            Self::OwnPool => "the program takes it from a pool of its own",
            _ => "the request names this heap",
        }
    }
}

/// The reason why a heap was not chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rejection {
    /// The heap is of another kind.
    Kind(HeapKind),
    /// The request exceeds the heap's largest block.
    TooLarge {
        /// Largest block of the heap.
        max_block: u64,
    },
    /// The heap guarantees less alignment than requested.
    Alignment {
        /// Alignment that the heap guarantees.
        guaranteed: u64,
    },
    /// The heap serves only requests that name it.
    OnRequest,
    /// The request needs coherent memory, and the heap is not coherent.
    Incoherent,
    /// The request needs memory that communication libraries can register, and the heap has none.
    NotRegistrable,
    /// Kernels write the data, and the heap is for data that they only read.
    ReadOnly,
    /// Kernels only read the data, and the heap is for data that they write: this device keeps the two apart.
    Written,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "the heap is {} memory", kind.word()),
            Self::TooLarge { max_block } => {
                write!(f, "the request exceeds its largest block of {max_block} bytes")
            }
            Self::Alignment { guaranteed } => {
                write!(f, "it guarantees an alignment of {guaranteed} bytes only")
            }
            Self::OnRequest => f.write_str("it serves only requests that name this heap"),
            Self::Incoherent => {
                f.write_str("the request needs coherent memory, and this heap needs a flush")
            }
            Self::NotRegistrable => {
                f.write_str("communication libraries cannot register memory of this heap")
            }
            Self::ReadOnly => {
                f.write_str("kernels write this data, and this heap is read-only for them")
            }
            Self::Written => {
                f.write_str("kernels only read this data, and this heap is for data they write")
            }
        }
    }
}

/// A placement decision: region, heaps to try, and reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Chosen region.
    pub region: Region,
    /// Heaps to try, best first.
    pub heaps: Ranking,
    /// Reason for the choice.
    pub reason: Reason,
}
