//! Near-linear placement rules, and the portfolio that tries them.

mod cover;
mod first_fit;
mod online;
mod order;
mod portfolio;
mod rest;
mod scan;
mod skyline;
mod tree;
pub(crate) use first_fit::first_fit_around;
pub(crate) use order::Rule;
pub(crate) use portfolio::{Portfolio, peak_of};
