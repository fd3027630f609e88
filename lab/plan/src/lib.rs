#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod activation;
mod assign;
mod bound;
mod clusters;
pub mod csv;
mod exact;
mod greedy;
mod handover;
pub mod header;
mod hot;
mod improve;
mod options;
mod orders;
mod plan;
mod region;
mod solve;
mod spill;
pub mod svg;

pub(crate) use omniheap_schedule::{classes, first_fit, model, online, repair, rng, stop};

pub use activation::{Activation, ActivationError, Choice, Copies, Recompute, Tradeoff, trade};
pub use bound::{Certificate, Step, load_profile};
pub use omniheap_schedule::{
    Buffer, Flaw, Interval, Problem, ProblemError, Region, RegionSet, Spot, validate,
};
pub use options::{Options, Progress};
pub use plan::{Plan, Status, Usage};
pub use solve::solve;
pub use spill::{Proof, Spill, largest_batch, spill, sufficient_capacity};
