//! Near-linear placement rules, and the portfolio that tries them.

mod cover;
mod order;
mod portfolio;
mod rest;
mod scan;
mod skyline;
mod tree;
pub(crate) use order::Rule;
pub(crate) use portfolio::Portfolio;
