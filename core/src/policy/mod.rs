//! Where a request goes, and why: a pure function of the request and the device.
#![forbid(unsafe_code)]
mod placement;
mod request;
mod rules;

pub use placement::{Placement, Ranking, Reason, Rejection};
pub use request::{
    Access, Contents, Driver, Lifetime, Mobility, Pattern, Privacy, Region, Request, Sharing,
    Writer,
};
pub(crate) use rules::reject;
pub use rules::{DefaultPolicy, Policy};
