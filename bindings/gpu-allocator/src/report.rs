//! Snapshots of an allocator, in the shape that callers of gpu-allocator know.
use core::{fmt, ops::Range};

/// One live allocation.
#[derive(Clone)]
pub struct AllocationReport {
    /// Its name. It ends with a note where the allocation lies in host memory because the device was full.
    pub name: String,
    /// Its offset in its block.
    pub offset: u64,
    /// Its bytes.
    pub size: u64,
}

/// One block.
#[derive(Clone)]
pub struct MemoryBlockReport {
    /// Its bytes.
    pub size: u64,
    /// Its allocations in [`AllocatorReport::allocations`].
    pub allocations: Range<usize>,
}

/// A snapshot of an allocator.
#[derive(Clone)]
pub struct AllocatorReport {
    /// Live allocations, block by block.
    pub allocations: Vec<AllocationReport>,
    /// Blocks.
    pub blocks: Vec<MemoryBlockReport>,
    /// Bytes of all allocations.
    pub total_allocated_bytes: u64,
    /// Bytes of all blocks.
    pub total_capacity_bytes: u64,
}

impl fmt::Debug for AllocationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() { "--" } else { &self.name };
        write!(f, "{name:?}: {}", Bytes(self.size))
    }
}

impl fmt::Debug for MemoryBlockReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} allocations in {}", self.allocations.len(), Bytes(self.size))
    }
}

impl fmt::Debug for AllocatorReport {
    /// The precision limits how many allocations are listed, the largest first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut largest: Vec<&AllocationReport> = self.allocations.iter().collect();
        largest.sort_by_key(|one| core::cmp::Reverse(one.size));
        largest.truncate(f.precision().unwrap_or(usize::MAX));
        let (used, held) = (Bytes(self.total_allocated_bytes), Bytes(self.total_capacity_bytes));
        f.debug_struct("AllocatorReport")
            .field("summary", &format_args!("{used} / {held}"))
            .field("blocks", &self.blocks.len())
            .field("allocations", &self.allocations.len())
            .field("largest", &largest)
            .finish()
    }
}

/// Bytes for people.
struct Bytes(u64);

impl fmt::Display for Bytes {
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["B", "KB", "MB", "GB", "TB"];
        let power = (self.0.max(1).ilog2() / 10).min(4);
        let amount = self.0 as f64 / (1u64 << (10 * power)) as f64;
        write!(f, "{amount:.2} {}", units[power as usize])
    }
}
