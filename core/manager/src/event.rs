//! Events that a manager tells an observer: everything that it does, as it does it.
use crate::{HeapId, Keyword, Placement, Request, TimelineId};
use core::fmt;

/// Sees everything that a manager does; set it in [`ManagerConfig`](crate::ManagerConfig).
///
/// Without an observer nothing is paid for: requests take the fast path, which does not know of observers.
///
/// # Contract
///
/// The manager calls the observer while it holds a lock, so that events come in the order in which they took effect:
/// the observer must be quick, and must not call the manager. An allocation's events come between its
/// [`Event::Allocate`] and its [`Event::Free`]; a block's allocations come between its [`Event::TakeBlock`] and its
/// [`Event::ReturnBlock`].
pub trait Observer: Send + Sync + fmt::Debug {
    /// Takes note of what happened.
    fn observe(&self, event: &Event<'_>);
}

/// Names one block for as long as the program runs: no later block has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockNumber(pub u64);

/// Source of a block's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backing {
    /// Memory of its own.
    Memory,
    /// Pages that come and go; the block itself is addresses.
    Pages,
}

/// Place where a backing store keeps the bytes of what sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// In host memory.
    Host,
    /// In files.
    File,
    /// Nowhere: allocations wake up zeroed.
    Nothing,
}

/// Event of a manager.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// An allocation began to live.
    Allocate {
        /// Its name for machines.
        id: AllocationId,
        /// The request.
        request: &'a Request<'a>,
        /// The policy's decision, where it was asked; a plain request goes to the usual heap.
        placement: Option<&'a Placement>,
        /// The block that it lies in.
        block: BlockNumber,
        /// Its first byte in the block.
        offset: u64,
    },
    /// An allocation's owner let go of it; timelines may still use the bytes.
    FreeRequested {
        /// The allocation.
        id: AllocationId,
        /// The timeline in whose order it is used.
        timeline: Option<TimelineId>,
    },
    /// An allocation's bytes may be used again.
    Free {
        /// The allocation.
        id: AllocationId,
        /// The timeline in whose order it was used.
        timeline: Option<TimelineId>,
    },
    /// Another timeline uses an allocation.
    Use {
        /// The allocation.
        id: AllocationId,
        /// The timeline.
        timeline: TimelineId,
    },
    /// An allocation got another name.
    Name {
        /// The allocation.
        id: AllocationId,
        /// The name.
        name: &'a str,
    },
    /// Defragmentation moved an allocation.
    Move {
        /// The allocation.
        id: AllocationId,
        /// The block that it lies in now.
        block: BlockNumber,
        /// Its first byte in that block.
        offset: u64,
    },
    /// The driver gave a block.
    TakeBlock {
        /// The block.
        block: BlockNumber,
        /// Its bytes; for one that is made of pages, its addresses.
        size: u64,
        /// The heap.
        heap: HeapId,
        /// Source of its bytes: they come with the block, or page by page.
        backing: Backing,
        /// Device address, where the device has addresses.
        address: Option<u64>,
    },
    /// The driver gets a block back, as soon as the observer has returned.
    ReturnBlock {
        /// The block.
        block: BlockNumber,
    },
    /// The driver made pages.
    TakePages {
        /// The heap.
        heap: HeapId,
        /// Their bytes.
        bytes: u64,
    },
    /// The driver got pages back.
    ReturnPages {
        /// The heap.
        heap: HeapId,
        /// Their bytes.
        bytes: u64,
    },
    /// The driver made pages of host memory, where there was no device memory (`Wake::host_mapped`).
    TakeHostPages {
        /// The heap at whose addresses they are.
        heap: HeapId,
        /// Their bytes.
        bytes: u64,
    },
    /// The driver got pages of host memory back.
    ReturnHostPages {
        /// The heap.
        heap: HeapId,
        /// Their bytes.
        bytes: u64,
    },
    /// A pool fell asleep: what lies in this block of it is away from the device.
    Sleep {
        /// The block.
        block: BlockNumber,
        /// Place of its bytes.
        store: StoreKind,
    },
    /// Bytes of a block came back from a backing store.
    Wake {
        /// The block.
        block: BlockNumber,
    },
    /// A rung of the out-of-memory ladder served a request.
    Climb {
        /// The rung.
        rung: Rung,
        /// Bytes asked for.
        size: u64,
        /// The request's timeline.
        timeline: Option<TimelineId>,
    },
    /// No rung served a request.
    Fail {
        /// Bytes asked for.
        size: u64,
        /// The request's timeline.
        timeline: Option<TimelineId>,
    },
}

/// Names an allocation without owning it: for logs, tables and foreign languages.
///
/// An id names one allocation of one manager for ever: no later allocation has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AllocationId {
    pub(crate) manager: u32,
    pub(crate) lane: u32,
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl AllocationId {
    /// The manager, by number.
    #[must_use]
    pub const fn manager(self) -> u32 {
        self.manager
    }

    /// The lane, by its number in the manager.
    #[must_use]
    pub const fn lane(self) -> u32 {
        self.lane
    }

    /// The slot of the lane: among allocations that live at the same time, no two of a lane have the same.
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.slot
    }
}

/// A rung of the out-of-memory ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Rung {
    /// Made reusable what timelines have passed.
    Retire,
    /// Borrowed idle memory of another thread's lane.
    Lend,
    /// Took memory that other timelines still use: the request's timeline runs after them.
    Order,
    /// Asked the driver.
    Driver,
    /// Gave back empty blocks of other pools, then asked the driver.
    Trim,
    /// Waited for timelines.
    Wait,
    /// Ran pressure callbacks.
    Pressure,
    /// Moved live data together.
    Defragment,
    /// Went to the next heap that the policy permits.
    NextHeap,
    /// Went to host memory, as the request permits.
    Spill,
}

impl Rung {
    /// Every rung, in the order they are climbed.
    pub const ALL: [Self; 10] = [
        Self::Retire,
        Self::Lend,
        Self::Order,
        Self::Driver,
        Self::Trim,
        Self::Wait,
        Self::Pressure,
        Self::Defragment,
        Self::NextHeap,
        Self::Spill,
    ];
}

impl Keyword for Rung {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("retire", Self::Retire),
        ("lend", Self::Lend),
        ("order", Self::Order),
        ("driver", Self::Driver),
        ("trim", Self::Trim),
        ("wait", Self::Wait),
        ("pressure", Self::Pressure),
        ("defragment", Self::Defragment),
        ("next-heap", Self::NextHeap),
        ("spill", Self::Spill),
    ];
}

/// Says what is rare through `tracing`, under names that stay (`docs/tracing.md`). Allocations and frees that need no
/// driver are for observers only: they are too many.
pub(crate) fn say(event: &Event<'_>) {
    match *event {
        Event::TakeBlock { block: BlockNumber(block), size, heap, backing, .. } => {
            tracing::debug!(name: "omniheap.block.take", target: "omniheap", block, size, heap = heap.0, ?backing);
        }
        Event::ReturnBlock { block: BlockNumber(block) } => {
            tracing::debug!(name: "omniheap.block.return", target: "omniheap", block);
        }
        Event::TakePages { heap, bytes } => {
            tracing::debug!(name: "omniheap.pages.take", target: "omniheap", heap = heap.0, bytes);
        }
        Event::ReturnPages { heap, bytes } => {
            tracing::debug!(name: "omniheap.pages.return", target: "omniheap", heap = heap.0, bytes);
        }
        Event::Climb { rung, size, timeline } => {
            let timeline = timeline.map(|timeline| timeline.0);
            tracing::debug!(name: "omniheap.rung", target: "omniheap", ?rung, size, timeline);
        }
        Event::Fail { size, timeline } => {
            let timeline = timeline.map(|timeline| timeline.0);
            tracing::warn!(name: "omniheap.out_of_memory", target: "omniheap", size, timeline);
        }
        _ => {}
    }
}
