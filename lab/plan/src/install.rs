//! Plans at work: a [`Schedule`] is installed in a manager, which then hands out allocations at their planned places.
//!
//! A program that leaves its schedule is served all the same, and the [`ScheduleReport`] says how it left it.
mod exact;
mod installed;
mod schedule;

pub use exact::Exact;
pub use installed::{Deviation, Installed, ScheduleReport};
pub use schedule::{NoSchedule, Schedule, ScheduleError, ScheduledRegion, ScheduledSpan};
