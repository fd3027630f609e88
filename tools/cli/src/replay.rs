//! Replaying a trace through a manager: what it reserves, how fast, and in how little memory it can.
mod clock;
mod device;
mod minimum;
mod planned;
mod program;
mod run;

pub use device::{Capacity, Device, Paging};
pub use minimum::minimum;
pub use planned::{Kept, planned};
pub use program::Program;
pub use run::Played;
