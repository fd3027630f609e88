//! Every format of the crate, against hand-made, generated and damaged files.
#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that is wrong stops where it is wrong"
)]

mod binary;
mod corpus;
mod crash;
mod csv;
mod exact;
mod export;
mod golden;
mod hostile;
mod imports;
mod kept;
mod model;
mod ranks;
mod real;
mod recorder;
mod report;
mod sample;
