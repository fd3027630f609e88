//! Schedules at work: a [`Schedule`](omniheap_schedule::Schedule) is installed in a manager, which then hands out allocations at their places.
//!
//! A program that leaves its schedule is served all the same, and the [`ScheduleReport`] says how it left it.
mod exact;
mod installed;

pub use exact::Exact;
pub use installed::{Deviation, Installed, ScheduleReport};
