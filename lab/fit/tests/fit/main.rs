//! Fits, batches and models, against steps that can be checked by hand and files that make no sense.
#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that is wrong stops where it is wrong"
)]

mod corpus;
#[path = "../../../../tools/trace/tests/trace/kept.rs"]
mod kept;
mod onnx;
mod policies;
mod repeats;
mod steps;
