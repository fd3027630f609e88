#![doc = include_str!("../README.md")]
#[cfg(all(windows, feature = "d3d12", not(feature = "vulkan")))]
compile_error!("this crate replaces gpu-allocator for Vulkan only: turn off the feature `d3d12`");

/// Compiles the examples of the migration guide.
#[cfg(all(doctest, feature = "vulkan"))]
#[doc = include_str!("../../../docs/migrating-from-gpu-allocator.md")]
mod migrating {}

mod report;
mod settings;
#[cfg(feature = "vulkan")]
pub mod vulkan;

pub use report::{AllocationReport, AllocatorReport, MemoryBlockReport};
pub use settings::{AllocationSizes, AllocatorDebugSettings, MemoryLocation};

/// Reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum AllocationError {
    /// No permitted heap has room.
    #[error("Out of memory")]
    OutOfMemory,
    /// The driver refused to map the memory.
    #[error("Failed to map memory: {0}")]
    FailedToMap(String),
    /// No memory type of the requirements suits the location.
    #[error("No compatible memory type available")]
    NoCompatibleMemoryTypeFound,
    /// The size is zero, or the alignment is no power of two.
    #[error("Invalid AllocationCreateDesc")]
    InvalidAllocationCreateDesc,
    /// The device cannot be used.
    #[error("Invalid AllocatorCreateDesc {0}")]
    InvalidAllocatorCreateDesc(String),
    /// Anything else.
    #[error("Internal error: {0}")]
    Internal(String),
    /// Only for Direct3D 12.
    #[error("Initial `BARRIER_LAYOUT` needs at least `Device10`")]
    BarrierLayoutNeedsDevice10,
    /// Only for Direct3D 12.
    #[error("Castable formats require enhanced barriers")]
    CastableFormatsRequiresEnhancedBarriers,
    /// Only for Direct3D 12.
    #[error("Castable formats require at least `Device12`")]
    CastableFormatsRequiresAtLeastDevice12,
}

/// The result of a call.
pub type Result<V, E = AllocationError> = core::result::Result<V, E>;
