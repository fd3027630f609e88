//! Traces and reports for other people's tools.

pub mod chrome;
mod history;
mod pickle;
pub mod snapshot;
