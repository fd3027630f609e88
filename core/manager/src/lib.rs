//! Device memory, vendor-neutral.
//!
//! A [`Manager`] hands out [`Allocation`]s of one device. It holds blocks of the device's heaps in pools, and a
//! [strategy] divides each pool's blocks. [`Manager::create_pool`] makes a pool with one of the strategies here,
//! [`Manager::create_pool_with`] one with a strategy of your own. Plans that were made ahead are followed by
//! `omniheap_extras::Installed`.
extern crate alloc;

/// Implements the common part of errors that carry more than their [`Error`]; `rest` are their other fields where there
/// is nothing more.
macro_rules! carries_error {
    ($name:ident { $($rest:tt)* }) => {
        impl $name {
            /// The kind to match on.
            #[must_use]
            pub const fn kind(&self) -> ErrorKind {
                self.error.kind()
            }

            /// The plain error.
            #[must_use]
            pub const fn error(&self) -> Error {
                self.error
            }
        }

        impl From<Error> for $name {
            fn from(error: Error) -> Self {
                Self { error, $($rest)* }
            }
        }

        impl From<ErrorKind> for $name {
            fn from(kind: ErrorKind) -> Self {
                Error::new(kind).into()
            }
        }

        impl From<$name> for Error {
            fn from(error: $name) -> Self {
                error.error
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}: {self}", self.kind())
            }
        }

        impl core::error::Error for $name {}
    };
}

mod defrag;
mod device;
mod event;
mod guards;
mod lane;
mod manager;
mod pool;
mod sleep;
mod sync;

pub use omniheap_strategy as strategy;

pub use omniheap_placement::{
    Access, Candidate, Clear, Coherence, ConstantChoice, Contents, Cost, DefaultPolicy, Dependence,
    Grow, Keyword, Lifetime, MeasuredPolicy, Mobility, OptIn, Pattern, Placement, Policy, Privacy,
    Probe, Profile, Ranking, Reason, Refusal, Region, RegionVerdict, Registration, Rejection,
    Request, SharedArray, SharedError, SharedLayout, SharedSpan, Sharing, Spill, Substitution,
    TableSize, Tag, Usage, Walk, Work, Writer, choose_constants,
};
pub use omniheap_seam::{
    Address, Advice, Align, AnyBackend, AnyBlock, Argument, Backend, BlockOffset, Caps, Class,
    ConstantCaps, CopyCaps, Descriptor, DeviceInfo, DriverBudget, Epoch, Error, ErrorKind, Export,
    Exported, Heap, HeapBudget, HeapId, HeapKind, HostAccess, HostLaunch, HostPin, HostPinner,
    InsideBlock, Kernel, KernelAccess, KernelText, Launch, Layout, LimitKind, LimitValue, Map,
    Mapper, Move, Page, Point, ProgramId, Remap, Result, SharedCaps, Slot, Span, SystemLimit,
    TimelineId, Timelines, Transfer, Use, bytes, erase,
};

#[cfg(windows_between_locks)]
pub use sync::act_between_locks;
pub use {
    defrag::{BlockRange, Budget, Moved, Outcome, Pass, PlannedMove},
    device::{DriverLimit, HeapLimit, HeapUse, MoveCost},
    event::{AllocationId, Backing, BlockNumber, Event, Observer, Rung, StoreKind},
    guards::{GuardReport, Guards, Overwrite},
    lane::{
        BlockReport, Growth, MoveOutcome, PoolConfig, SpanReport, SpanState, StrategyKind, Totals,
        Uses, Waiting,
    },
    manager::{
        AllocateError, Allocation, Background, Binding, Buffer, CopyRegion, Decision,
        Defragmentation, Explanation, GiveBack, HeapOverlay, Limits, Manager, ManagerConfig,
        Mapped, Mapping, Overlay, Pinned, Placed, Plan, PoolReport, Pressure, Program, Relief,
        Remapping, Report, Shortage, Sleepable, Source, Step, UserPool, Verdict,
    },
    sleep::{
        AwakeReason, BackingStore, GetPiece, KeptAwake, PutPiece, Residence, Sleep, SleepError,
        Slept, Wake,
    },
};
