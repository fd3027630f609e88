//! Moving live data together: a pure plan, then copies, then one commit under the lane's lock.
//!
//! Two ways. A *pass* copies allocations into holes elsewhere, so that whole blocks or pages become empty, or into
//! lower holes of their block, so that one long hole is left; the old place stays valid until the commit, so nobody
//! waits and an abort loses nothing. A *slide* closes the holes of one
//! block for a request that would fail otherwise; it goes over its own bytes, so it runs to its end before it returns.
mod book;
mod bounce;
mod budget;
mod close;
mod cost;
mod empty;
mod ending;
mod ledger;
mod line;
mod lower;
mod mobile;
mod pack;
mod pass;
mod plan;
mod planned;
mod recall;
mod repack;
mod road;
mod shelf;
mod shift;
mod slide;
mod submit;
mod survey;
mod trip;
mod trips;
mod window;

pub(crate) use book::{Booking, Goal, Holes};
pub use budget::Budget;
pub(crate) use budget::Purse;
pub(crate) use cost::Cost;
pub use cost::MoveCost;
pub(crate) use ending::Portion;
pub(crate) use ledger::Ledger;
pub use ledger::{Moved, Outcome};
pub use pass::Pass;
pub use planned::{Decision, PlannedMove};
pub(crate) use recall::Spilled;
pub(crate) use slide::Slid;
pub(crate) use submit::{Order, Readiness};
pub use trip::{Fate, Spot};
