//! Every strategy against a shadow model that is too simple to be wrong.
//!
//! [`Subject`] names the strategy under test and what it promises; [`Shadow`] is the oracle; [`Driver`] runs operations
//! on both and compares them after each; [`decode`] makes operations from any bytes, so that property tests and fuzzers
//! share one reader; [`explore`] runs every sequence of operations in a small world. [`session`] does for the manager what
//! [`run`] does for strategies, and [`configuration`] for its settings. [`check_books`], [`Random`], [`stamp`], [`sound`] and [`Store`]
//! are for tests that need no more.
#![forbid(unsafe_code)]

mod books;
mod check;
// Modules that build a manager are tested from outside: a test build of this library would only build it anew.
#[cfg(not(test))]
pub mod configuration;
mod decode;
mod driver;
mod explore;
// The suite and this crate test one strategy from outside.
#[path = "../../conformance/src/first_fit.rs"]
mod first_fit;
mod random;
mod seed;
#[cfg(not(test))]
pub mod session;
mod shadow;
mod stamp;
mod store;
mod subject;

pub use books::check_books;
pub use decode::{Geometry, decode, run};
pub use driver::{Driver, Op, Outcome};
pub use explore::{World, explore};
pub use random::Random;
pub use seed::seed;
pub use shadow::{Live, Shadow};
pub use stamp::{sound, stamp};
pub use store::Store;
pub use subject::{Alike, Subject};
