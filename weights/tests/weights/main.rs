//! Weights files of every format, good and bad, and what loading them gives.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod bad;
mod corpus;
mod load;
mod round;
mod write;
