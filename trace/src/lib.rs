//! Allocation traces: formats, readers, writers, comparison and pictures.
//!
//! A [`Trace`] is what an allocator was asked over time, free of any vendor: [`Trace::open`] reads it from every
//! format this crate knows and tells them apart by content. Files are untrusted: every reader is bounded by
//! [`Limits`], runs in linear time, and answers bad input with one [`Error`] that says where and what to do.
#![deny(unsafe_code)]

pub mod binary;
mod blocks;
mod builder;
pub mod csv;
mod error;
mod event;
pub mod export;
mod ids;
mod index;
mod input;
mod label;
mod limits;
pub mod model;
mod pickle;
pub mod pytorch;
mod record;
pub mod report;
pub mod rmm;
mod summary;
mod tight;
mod trace;
pub mod vma;

pub use error::{Error, ErrorKind, Field, Position};
pub use event::{
    Alignment, AllocationId, Backing, BlockId, Event, HeapId, Op, Region, Rung, StreamId,
};
pub use label::{LabelId, Labels};
pub use limits::Limits;
pub use record::Recorder;
pub use summary::Summary;
pub use trace::{Ending, Meta, Source, Trace};
