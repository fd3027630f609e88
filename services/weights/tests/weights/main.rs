//! Weights files of every format, good and bad, and what loading them gives.
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "forbids threads"))]
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod bad;
mod corpus;
mod load;
mod round;
mod write;
