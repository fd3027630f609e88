#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod check;
#[doc(hidden)]
pub mod classes;
#[doc(hidden)]
pub mod first_fit;
#[doc(hidden)]
pub mod model;
#[doc(hidden)]
pub mod online;
mod place;
mod problem;
#[doc(hidden)]
pub mod repair;
#[doc(hidden)]
pub mod rng;
mod schedule;
#[doc(hidden)]
pub mod stop;
mod timetable;
mod validate;

pub use check::ProblemError;
pub use place::place;
pub use problem::{Buffer, Interval, Problem, Region, RegionSet, Spot};
pub use schedule::{NoSchedule, Schedule, ScheduleError, ScheduledRegion, ScheduledSpan};
pub use validate::{Flaw, validate};
