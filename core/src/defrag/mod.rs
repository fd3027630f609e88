//! Moving live data together: a pure plan, then copies, then one commit under the lane's lock.
//!
//! Two ways. A *pass* copies allocations into holes elsewhere, so that whole blocks or pages become empty; the old
//! place stays valid until the commit, so nobody waits and an abort loses nothing. A *slide* closes the holes of one
//! block for a request that would fail otherwise; it goes over its own bytes, so it runs to its end before it returns.
mod book;
mod budget;
mod cost;
mod ending;
mod ledger;
mod pass;
mod plan;
mod planned;
mod slide;
mod survey;
mod trip;
mod window;

pub(crate) use book::{Booking, Goal};
pub use budget::Budget;
pub(crate) use budget::Purse;
pub(crate) use ending::Portion;
pub(crate) use ledger::Ledger;
pub use ledger::{Moved, Outcome};
pub use pass::Pass;
pub(crate) use pass::{Order, Readiness};
pub use planned::{Decision, PlannedMove};
pub use trip::{Fate, Spot};
