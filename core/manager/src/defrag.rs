//! Defragmentation: moves are planned, then copied, then committed under the lane's lock.
//!
//! A *pass* copies allocations into holes elsewhere, so that whole blocks or pages become empty ([`evacuate`], [`pack`]),
//! or into lower holes of their block, so that one long hole is left ([`compact`]). The old place stays valid until the
//! commit, so no thread waits and an abort loses nothing.
//!
//! An *exclusive* move overwrites its old place, for a request that would fail otherwise. It runs to its end before it
//! returns ([`exclusive`]). What is moved where, pure planners decide: `omniheap_strategy::moves`.
mod budget;
mod compact;
mod copier;
mod evacuate;
mod exclusive;
mod moves;
mod pack;
mod pass;
mod planner;
mod recall;
mod stats;

pub use budget::Budget;
pub(crate) use budget::BudgetMeter;
pub(crate) use exclusive::Slid;
pub(crate) use moves::How;
pub use moves::{BlockRange, Moved, Outcome};
pub(crate) use pass::{Mode, Portion};
pub use pass::{Pass, PlannedMove};
pub(crate) use planner::{Goal, Holes, LanePlanner};
pub(crate) use recall::Spilled;
pub(crate) use stats::DefragStats;
