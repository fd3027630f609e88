//! Exact search: finds a placement below a capacity, or proves that there is none.

mod frame;
mod memo;
mod search;
mod sweep;
mod tactic;
pub(crate) use frame::{Detail, Frame, maximal};
pub(crate) use search::{Search, Verdict};
pub(crate) use tactic::{Tactic, rough_log};
