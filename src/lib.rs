#![doc = include_str!("../README.md")]
pub use omniheap_core::*;
#[cfg(feature = "cuda")]
pub use omniheap_cuda as cuda;
pub use omniheap_extras::*;
#[cfg(feature = "hip")]
pub use omniheap_hip as hip;
pub use omniheap_host as host;
pub use omniheap_layers as layers;
#[cfg(feature = "plan")]
pub use omniheap_plan as plan;
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
#[cfg(feature = "serde")]
mod requests;
#[cfg(all(feature = "plan", feature = "trace"))]
mod schedule;

pub use backends::{BackendKind, Found, devices, open, open_best};
#[cfg(feature = "trace")]
pub use picture::picture;
pub use profile::{
    Knowledge, ProfileError, config_for, policy_for, profile_path, read_profile, write_profile,
};
#[cfg(feature = "serde")]
pub use requests::{RequestError, WrittenRequest, parse_requests, read_requests};
#[cfg(all(feature = "plan", feature = "trace"))]
pub use schedule::{plan_from_trace, problem_from_trace};

#[cfg(doctest)]
#[doc = include_str!("../docs/defragmentation.md")]
mod defragmentation {}

#[cfg(doctest)]
#[doc = include_str!("../docs/guards.md")]
mod guards {}
