//! Moving live data together: a pure plan, then copies, then one commit under the lane's lock.
//!
//! Two ways. A *pass* copies allocations into holes elsewhere, so that whole blocks or pages become empty, or into
//! lower holes of their block, so that one long hole is left; the old place stays valid until the commit, so nobody
//! waits and an abort loses nothing. A *slide* closes the holes of one
//! block for a request that would fail otherwise; it goes over its own bytes, so it runs to its end before it returns.
mod budget;
mod compact;
mod copier;
mod cost;
mod evacuate;
mod exclusive;
mod moves;
mod pack;
mod pass;
mod planner;
mod recall;
mod snapshot;
mod stats;
mod window;

pub use budget::Budget;
pub(crate) use budget::BudgetMeter;
pub(crate) use copier::insist;
pub(crate) use cost::Cost;
pub use cost::MoveCost;
pub(crate) use exclusive::Slid;
pub use moves::{MoveOutcome, Spot};
pub use pass::{Decision, Pass, PlannedMove};
pub(crate) use pass::{Mode, Portion};
pub(crate) use planner::{Goal, Holes, LanePlanner};
pub(crate) use recall::Spilled;
pub(crate) use stats::DefragStats;
pub use stats::{Moved, Outcome};
