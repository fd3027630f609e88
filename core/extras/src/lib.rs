#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#[cfg(feature = "constants")]
mod constants;
#[cfg(feature = "schedule")]
mod schedule;
#[cfg(feature = "staging")]
mod staging;

#[cfg(feature = "constants")]
pub use constants::{Constant, ConstantHome, ConstantPlan, allocate_constants, plan_constants};
#[cfg(feature = "schedule")]
pub use schedule::{Deviation, Exact, Installed, ScheduleReport};
#[cfg(feature = "staging")]
pub use staging::Staging;
