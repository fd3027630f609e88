#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
extern crate alloc;

mod assumed;
mod constants;
mod placement;
mod profile;
mod regions;
mod request;
mod rules;
mod shared;
mod words;

#[cfg(test)]
mod tests;

pub use constants::{Candidate, ConstantChoice, choose_constants};
pub use placement::{Placement, Ranking, Reason, Rejection};
pub use profile::{Cost, Probe, Profile, TableSize};
pub use regions::{Refusal, RegionVerdict};
pub use request::{Request, Tag};
pub use rules::{
    DefaultPolicy, MeasuredPolicy, Policy, judge, not_registrable, refused, reject, spill,
};
pub use shared::{Clear, OptIn, SharedArray, SharedError, SharedLayout, SharedSpan, Walk};
pub use words::{
    Access, Coherence, Contents, Dependence, Grow, Keyword, Lifetime, Mobility, Pattern, Privacy,
    Region, Registration, Sharing, Spill, Substitution, Usage, Work, Writer,
};
