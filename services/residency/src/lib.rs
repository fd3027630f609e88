#![doc = include_str!("../README.md")]
mod arena;
mod available;
#[cfg(target_os = "linux")]
mod checksum;
#[cfg(target_os = "linux")]
mod disk;
#[cfg(target_os = "linux")]
mod file;
mod host;
mod memory;
mod nothing;
mod pieces;
#[cfg(target_os = "linux")]
mod pipe;
mod residents;

pub use arena::{Arena, ArenaConfig, ArenaReport, Preparation, Stretch};
pub use available::available_host_memory;
#[cfg(target_os = "linux")]
pub use file::FileStore;
pub use host::HostStore;
pub use nothing::Nothing;
pub use pieces::{Piece, gather, scatter};
pub use residents::{Held, Moved, Resident, Residents, WhenFull};

use omniheap_seam::lock;
