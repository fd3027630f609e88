#![doc = include_str!("../README.md")]
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
mod new_file;
mod open;
pub mod pytorch;
pub mod ranks;
mod record;
pub mod report;
pub mod rmm;
mod step;
mod summary;
mod trace;
pub mod vma;

pub use builder::Builder;
pub use error::{Error, ErrorKind, Field, Position};
pub use event::{
    Alignment, AllocationId, Backing, BlockId, Event, HeapId, Op, Region, Residence, Rung, StreamId,
};
pub use label::{LabelId, Labels};
pub use limits::Limits;
pub use new_file::NewFile;
pub use record::Recorder;
pub use summary::Summary;
pub use trace::{Ending, Meta, Source, Trace};
