//! Replaying a trace through a manager: what it reserves, how fast, and in how little memory it can.
mod clock;
mod device;
mod minimum;
mod planned;
mod program;
mod run;

pub(crate) use device::{Capacity, Device, Paging};
pub(crate) use minimum::minimum;
pub(crate) use planned::{Kept, planned};
pub(crate) use program::Program;
pub(crate) use run::Played;
