//! One memory manager for every GPU: CUDA, HIP, Vulkan, wgpu and plain host memory behind one interface.
//!
//! ```
//! use omniheap::{Manager, Request, Usage, open_best};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let manager = Manager::new(open_best()?); // the best device here; host memory if there is none
//! let numbers = manager.allocate_slice::<f32>(1024, Usage::Device)?;
//! numbers.write(0, &[1.0, 2.0, 3.0])?;
//! let mut values = [0.0; 3];
//! numbers.read(0, &mut values)?;
//! assert_eq!(values, [1.0, 2.0, 3.0]);
//!
//! let why = manager.explain(&Request::new(4096).usage(Usage::Upload))?.placement.reason;
//! println!("uploads: {why}");
//! # Ok(())
//! # }
//! ```
//!
//! A [`Manager`] hands out [`Allocation`]s of one device: suballocated, reused in the order of streams and queues, placed by a policy, and moved
//! by defragmentation. [`open_best`], [`open`] and [`devices`] find devices; an engine that owns its device wraps it with the backend's
//! own type (`vulkan::Vulkan::wrap`, `wgpu::Wgpu::wrap`, `cuda::Cuda::wrap`).
//!
//! | module | holds |
//! |---|---|
//! | [`placement`] | what a request may say beyond its [`Usage`], and the policies that place it |
//! | [`pool`], [`strategy`] | settings of pools; the algorithms that divide their blocks |
//! | [`transfer`] | copies between allocations, staging, kernels |
//! | [`defrag`] | passes that move live data |
//! | [`report`] | reports, explanations, events |
//! | [`guards`] | finding out-of-bounds writes |
//! | [`seam`] | the traits that a backend implements, and the words they use |
//! | [`layers`] | backends that limit, record or fail another one |
//! | `arbiter` | one device's memory, divided among processes; a feature |
//! | [`limits`] | limits that are set for the process from outside |
//! | [`host`], `cuda`, `hip`, `vulkan`, `wgpu` | the backends; all but the first are features |
//!
//! The folder `docs/` has a page for each task.
#[cfg(feature = "arbiter")]
pub use omniheap_arbiter as arbiter;
#[cfg(feature = "cuda")]
pub use omniheap_cuda as cuda;
#[cfg(feature = "hip")]
pub use omniheap_hip as hip;
pub use omniheap_host as host;
pub use omniheap_layers as layers;
pub use omniheap_limits as limits;
pub use omniheap_seam as seam;
pub use omniheap_shaders as shaders;
#[cfg(feature = "trace")]
pub use omniheap_trace as trace;
#[cfg(feature = "vulkan")]
pub use omniheap_vulkan as vulkan;
#[cfg(feature = "weights")]
pub use omniheap_weights as weights;
#[cfg(feature = "wgpu")]
pub use omniheap_wgpu as wgpu;

mod backends;
#[cfg(feature = "trace")]
mod picture;
mod profile;
#[cfg(all(feature = "schedule", feature = "trace"))]
mod recorded;
#[cfg(feature = "serde")]
mod requests;
mod sharing;

#[cfg(feature = "arbiter")]
pub use sharing::{Attending, arbitrated, attend, on_press};

pub use backends::{BackendKind, Found, devices, open, open_best};
pub use omniheap_core::{
    AllocateError, Allocation, Binding, Buffer, GiveBack, Limits, Manager, ManagerConfig, Mapped,
    Mapping, PoolConfig, Request, StrategyKind, Tag, Usage, UserPool, strategy,
};
pub use omniheap_seam::{
    Align, AnyBackend, Backend, Caps, Error, ErrorKind, HeapId, Point, TimelineId,
};

/// Requests and their placement: hints, policies, measured profiles, constants, shared-memory layouts.
pub mod placement {
    pub use crate::profile::{
        Knowledge, ProfileError, config_for, policy_for, profile_path, read_profile, write_profile,
    };
    #[cfg(feature = "serde")]
    pub use crate::requests::{
        RequestError, WrittenRequest, parse_requests, read_requests, read_requests_from,
    };
    pub use omniheap_core::{
        Access, Candidate, Clear, Coherence, ConstantChoice, Contents, Cost, DefaultPolicy,
        Dependence, Grow, Keyword, Lifetime, MeasuredPolicy, Mobility, OptIn, Pattern, Placement,
        Policy, Privacy, Probe, Profile, Ranking, Reason, Refusal, Region, RegionVerdict,
        Registration, Rejection, SharedArray, SharedError, SharedLayout, SharedSpan, Sharing,
        Spill, Substitution, TableSize, Walk, Work, Writer, choose_constants,
    };
    pub use omniheap_extras::{
        Constant, ConstantHome, ConstantPlan, allocate_constants, plan_constants,
    };
}

/// Settings of pools, and what a program does when memory is short.
pub mod pool {
    pub use omniheap_core::{DriverLimit, Growth, Pressure, Relief, Uses, Waiting};
}

/// Pools that sleep: their memory leaves the device and comes back at the same addresses.
pub mod residency {
    pub use omniheap_core::{
        AwakeReason, BackingStore, GetPiece, KeptAwake, PutPiece, Residence, Sleep, SleepError,
        Sleepable, Slept, StoreKind, Wake,
    };
    #[cfg(target_os = "linux")]
    pub use omniheap_residency::FileStore;
    pub use omniheap_residency::{
        Arena, ArenaConfig, ArenaReport, Held, HostStore, Moved, Nothing, Piece, Preparation,
        Resident, Residents, Stretch, WhenFull, available_host_memory, gather, scatter,
    };
}

/// Copies between allocations, staging, pins, and kernels that run over allocations.
pub mod transfer {
    pub use omniheap_core::{CopyRegion, Pinned, Program};
    pub use omniheap_extras::Staging;
}

/// Defragmentation: passes, budgets, background steps.
pub mod defrag {
    pub use omniheap_core::{
        Background, BlockRange, Budget, Decision, Defragmentation, MoveCost, MoveOutcome, Moved,
        Outcome, Pass, PlannedMove, Remapping, Step,
    };
}

/// Output of a manager: reports, explanations, events, shortages.
pub mod report {
    #[cfg(feature = "trace")]
    pub use crate::picture::picture;
    pub use omniheap_core::{
        AllocationId, Backing, BlockNumber, BlockReport, Event, Explanation, HeapLimit,
        HeapOverlay, HeapUse, LimitKind, LimitValue, Observer, Overlay, Placed, Plan, PoolReport,
        Report, Rung, Shortage, Source, SpanReport, SpanState, SystemLimit, Totals, Verdict,
    };
}

/// Guards behind allocations, which find overwrites: see [`ManagerConfig::guarded`].
pub mod guards {
    pub use omniheap_core::{GuardReport, Guards, Overwrite};
}

/// Allocations that are known ahead, at their places: schedules, and those of recorded programs.
#[cfg(feature = "schedule")]
pub mod schedule {
    #[cfg(feature = "trace")]
    pub use crate::recorded::{problem_from_trace, schedule_from_trace};
    pub use omniheap_extras::{Deviation, Exact, Installed, ScheduleReport};
    pub use omniheap_schedule::*;
}

/// Documents whose examples run as tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    mod readme {}

    #[cfg(target_os = "linux")]
    #[doc = include_str!("../docs/residency.md")]
    mod residency {}

    #[cfg(all(feature = "weights", target_os = "linux"))]
    #[doc = include_str!("../docs/weights.md")]
    mod weights {}

    #[doc = include_str!("../docs/budgets.md")]
    mod budgets {}

    #[doc = include_str!("../docs/debugging.md")]
    mod debugging {}

    #[doc = include_str!("../docs/defragmentation.md")]
    mod defragmentation {}

    #[cfg(all(feature = "cuda", feature = "vulkan"))]
    #[doc = include_str!("../docs/embedding.md")]
    mod embedding {}

    #[doc = include_str!("../docs/guards.md")]
    mod guards {}

    #[doc = include_str!("../docs/out-of-memory.md")]
    mod out_of_memory {}

    #[doc = include_str!("../docs/placement.md")]
    mod placement {}

    #[doc = include_str!("../docs/pools.md")]
    mod pools {}

    #[cfg(feature = "trace")]
    #[doc = include_str!("../docs/recording.md")]
    mod recording {}

    #[cfg(feature = "trace")]
    #[doc = include_str!("../docs/sharing.md")]
    mod sharing {}

    #[doc = include_str!("../docs/streams.md")]
    mod streams {}

    #[doc = include_str!("../docs/uploads.md")]
    mod uploads {}

    #[cfg(feature = "vulkan")]
    #[doc = include_str!("../docs/vulkan.md")]
    mod vulkan {}

    #[doc = include_str!("../docs/writing-a-backend.md")]
    mod writing_a_backend {}

    #[doc = include_str!("../docs/writing-a-strategy.md")]
    mod writing_a_strategy {}
}
