//! One event of a trace: what happened, to which allocation, when.

/// Names one allocation within a trace: dense, from 0, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AllocationId(pub u32);

/// Names one stream (timeline) of the recording program: a small index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u16);

/// Names one block that is held from the driver; reused once that block was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u16);

/// Names one heap of the recording device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeapId(pub u8);

/// The alignment an allocation asked for, kept as a power of two; unknown in formats that do not record it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Alignment(u8);

impl Alignment {
    /// The recording did not say.
    pub const UNKNOWN: Self = Self(0);

    /// Wraps `bytes`, or returns `None` when that is not a power of two.
    pub const fn new(bytes: u64) -> Option<Self> {
        // Stored as log2 + 1, so that zero is free to mean "unknown".
        #[expect(clippy::cast_possible_truncation, reason = "log2 of a u64 is at most 63")]
        if bytes.is_power_of_two() { Some(Self(bytes.trailing_zeros() as u8 + 1)) } else { None }
    }

    /// Returns the alignment in bytes, or `None` when the recording did not say.
    pub const fn bytes(self) -> Option<u64> {
        match self.0 {
            0 => None,
            log2_plus_one => Some(1 << (log2_plus_one - 1)),
        }
    }

    pub(crate) const fn code(self) -> u8 {
        self.0
    }

    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        if code <= 64 { Some(Self(code)) } else { None }
    }
}

/// Backing of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Backing {
    /// Memory of its own.
    Memory,
    /// Pages that come and go; the block itself is addresses.
    Pages,
}

/// Region of a placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Region {
    /// Device memory.
    Device = 0,
    /// Constant memory.
    Constant = 1,
    /// Memory shared by a group, sized at launch.
    Shared = 2,
    /// Pinned host memory.
    Staging = 3,
    /// Memory that host and device both reach.
    Unified = 4,
}

/// One rung of the out-of-memory ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Rung {
    /// Finished epochs were retired.
    Retire = 0,
    /// Empty blocks of other pools were trimmed.
    Trim = 1,
    /// The driver was asked.
    Driver = 2,
    /// Pressure callbacks ran.
    Pressure = 3,
    /// A defragmentation pass ran.
    Defragment = 4,
    /// The next permitted heap was tried.
    NextHeap = 5,
    /// The request was spilled.
    Spill = 6,
    /// Every rung was tried and the request failed.
    Failed = 7,
    /// Idle memory of another thread was lent.
    Lend = 8,
    /// Streams were waited for.
    Wait = 9,
    /// Memory that other streams still used was taken in their order.
    Order = 10,
}

/// Place of the bytes of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Residence {
    /// On the device.
    Device = 0,
    /// In host memory, while the pool sleeps.
    Host = 1,
    /// In files, while the pool sleeps.
    File = 2,
    /// Nowhere: they are zero when the pool wakes up.
    Nothing = 3,
}

/// An operation. Sizes and offsets are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// An allocation began to live.
    Allocate {
        /// The new allocation.
        id: AllocationId,
        /// Bytes as asked for, before any rounding; never zero.
        size: u64,
        /// Stream of its first use.
        stream: StreamId,
        /// Alignment asked for, where recorded.
        align: Alignment,
    },
    /// The program asked to free; the bytes may still be in use by a stream.
    FreeRequested {
        /// The allocation, live until now.
        id: AllocationId,
        /// Its size, as at [`Op::Allocate`].
        size: u64,
        /// The stream that the recording names.
        stream: StreamId,
    },
    /// The bytes may be reused by anyone.
    FreeCompleted {
        /// The allocation; it is gone after this event.
        id: AllocationId,
        /// Its size, as at [`Op::Allocate`].
        size: u64,
        /// The stream that the recording names.
        stream: StreamId,
    },
    /// The allocation's bytes lie here from now on.
    Bind {
        /// The allocation.
        id: AllocationId,
        /// The block that holds it.
        block: BlockId,
        /// Offset inside the block.
        offset: u64,
    },
    /// Defragmentation moved the allocation here.
    Move {
        /// The allocation.
        id: AllocationId,
        /// The block that holds it now.
        block: BlockId,
        /// Offset inside that block.
        offset: u64,
    },
    /// The policy chose a region for the allocation.
    BlockOffset {
        /// The allocation.
        id: AllocationId,
        /// Chosen region.
        region: Region,
        /// The reason, as a string of the trace's [`Labels`](crate::Labels).
        reason: crate::LabelId,
    },
    /// A block was taken from the driver.
    BlockAllocate {
        /// The new block.
        block: BlockId,
        /// Its size in bytes; never zero.
        size: u64,
        /// The heap it is of.
        heap: HeapId,
        /// Backing of the block: memory, or only addresses.
        backing: Backing,
    },
    /// A block was given back to the driver.
    BlockFree {
        /// The block; its number may be used again after this event.
        block: BlockId,
        /// Its size, as at [`Op::BlockAllocate`].
        size: u64,
        /// Its backing, as at [`Op::BlockAllocate`].
        backing: Backing,
    },
    /// Pages were taken from the driver.
    PagesTake {
        /// Their bytes.
        bytes: u64,
        /// The heap they are of.
        heap: HeapId,
    },
    /// Pages were given back to the driver.
    PagesReturn {
        /// Their bytes.
        bytes: u64,
        /// The heap they were of.
        heap: HeapId,
    },
    /// Pages of host memory were taken, where there was no device memory.
    HostPagesTake {
        /// Their bytes.
        bytes: u64,
        /// The heap at whose addresses they are.
        heap: HeapId,
    },
    /// Pages of host memory were given back.
    HostPagesReturn {
        /// Their bytes.
        bytes: u64,
        /// The heap.
        heap: HeapId,
    },
    /// Another stream uses the allocation.
    Use {
        /// The allocation.
        id: AllocationId,
        /// The stream.
        stream: StreamId,
    },
    /// The bytes of a block left the device, as its pool sleeps, or came back.
    Reside {
        /// The block.
        block: BlockId,
        /// Place of the bytes from now on.
        residence: Residence,
    },
    /// A rung of the out-of-memory ladder was reached for a request.
    OutOfMemory {
        /// Bytes that were asked for.
        size: u64,
        /// The stream that asked.
        stream: StreamId,
        /// The rung.
        rung: Rung,
    },
}

/// One event of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Microseconds since the trace began; never less than that of the event before.
    pub time_us: u64,
    /// The operation.
    pub op: Op,
}

// A trace of millions of events is held whole, so the size of one event is part of the design.
const _: () = assert!(size_of::<Event>() == 24);
