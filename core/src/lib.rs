//! Device memory, vendor-neutral: see the module list for the map.
#![cfg_attr(not(feature = "std"), no_std)]
extern crate alloc;

mod backend;
pub mod bytes;
mod caps;
#[cfg(feature = "std")]
mod defrag;
#[cfg(feature = "std")]
mod device;
mod erased;
mod error;
#[cfg(feature = "std")]
mod guard;
mod launch;
#[cfg(feature = "std")]
pub mod layer;
mod layout;
#[cfg(feature = "std")]
mod manager;
#[cfg(all(test, loom))]
mod models;
#[cfg(feature = "std")]
mod policy;
#[cfg(feature = "std")]
mod pool;
pub mod strategy;
#[cfg(feature = "std")]
mod sync;
mod timeline;

pub use backend::{
    Address, Backend, Descriptor, DriverBudget, Export, Exported, HeapBudget, Launch, Map, Move,
    Page, Place, Remap, Timelines, Transfer,
};
pub use caps::{
    Caps, ConstantCaps, CopyCaps, DeviceInfo, Heap, HeapId, HeapKind, HostAccess, InsideBlock,
    Mapper, SharedCaps, Use,
};
pub use erased::{AnyBackend, AnyBlock, erase};
pub use error::{Advice, Error, ErrorKind, Result};
pub use launch::{Argument, HostLaunch, Kernel, ProgramId, Slot};
pub use layout::{Align, Class, Layout, Span};
pub use timeline::{Epoch, Point, TimelineId};

#[cfg(feature = "std")]
pub use {
    defrag::{Budget, Decision, Fate, MoveCost, Moved, Outcome, Pass, PlannedMove, Spot},
    device::HeapUse,
    guard::{GuardReport, Guards, Overwrite},
    manager::{
        AllocateError, Allocation, AllocationId, Background, Backing, Binding, BlockNumber,
        BlockReport, Buffer, Constant, ConstantHome, ConstantPlan, Copy, Defragmentation,
        Deviation, Event, Explanation, FreeError, Installed, Manager, ManagerConfig, Mapped,
        Observer, Pin, Plan, PoolReport, Pressure, Program, Relief, Remapping, Report, Rung,
        Schedule, ScheduleError, ScheduleReport, ScheduledRegion, ScheduledSpan, Shortage, Source,
        SpanReport, SpanState, Staging, Step, Totals, UserPool, Verdict,
    },
    policy::{
        Access, Candidate, Clear, Coherence, ConstantChoice, Contents, Cost, DefaultPolicy,
        Dependence, Driver, Lifetime, MeasuredPolicy, Mobility, OptIn, Pattern, Placement, Policy,
        Privacy, Probe, Profile, Ranking, Reason, Refusal, Region, RegionVerdict, Rejection,
        Request, SharedArray, SharedError, SharedLayout, SharedSpan, Sharing, Spill, Substitution,
        TableSize, Walk, Word, Work, Writer, choose_constants,
    },
    pool::{Growth, PoolConfig, StrategyKind, Tag, Uses, Waiting},
};
