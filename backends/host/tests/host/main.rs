//! The host backend, promise by promise.
mod common;
#[cfg(target_os = "linux")]
mod export;
mod heaps;
mod kernels;
#[cfg(target_os = "linux")]
mod layers;
#[cfg(target_os = "linux")]
mod limits;
mod loss;
mod mapping;
mod placement;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod remap;
#[cfg(target_os = "linux")]
mod stress;
mod timelines;
mod transfers;
