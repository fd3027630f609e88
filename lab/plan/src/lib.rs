#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod activation;
mod assign;
mod bound;
mod check;
mod classes;
mod clusters;
pub mod csv;
mod exact;
mod greedy;
mod handover;
pub mod header;
mod hot;
mod improve;
#[cfg(feature = "manager")]
pub mod install;
mod model;
mod options;
mod orders;
mod plan;
mod problem;
mod region;
mod repair;
mod rng;
mod solve;
mod spill;
mod stop;
pub mod svg;
mod timetable;
mod validate;

pub use activation::{Activation, ActivationError, Choice, Copies, Recompute, Tradeoff, trade};
pub use bound::{Certificate, Step, load_profile};
pub use check::ProblemError;
pub use options::{Options, Progress};
pub use plan::{Plan, Spot, Status, Usage};
pub use problem::{Buffer, Interval, Problem, Region, RegionSet};
pub use solve::solve;
pub use spill::{Proof, Spill, largest_batch, spill, sufficient_capacity};
pub use validate::{Flaw, validate};
