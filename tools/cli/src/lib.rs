//! Parts that the commands `omniheap` and `omniheap-lab` share: output, failures, files, Ctrl-C, and replays of traces.
//!
//! # Errors
//!
//! Whatever fails returns a [`Failure`], whose line says what to do, or the device's own error.
#![expect(clippy::missing_errors_doc, reason = "the page of the crate says it once for all")]
pub mod choice;
mod failure;
pub mod file;
pub mod interrupt;
pub mod output;
pub mod page;
pub mod replay;
pub mod shell;

pub use failure::Failure;
