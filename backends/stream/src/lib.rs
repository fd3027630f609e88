//! What backends over streams share: everything but the calls of a vendor's driver, its numbers, and its quirks.
//!
//! A vendor's crate implements the traits of `driver` for its driver, one call each, and [`BlockKind`] for what its blocks
//! are; its backend holds a [`Device`], returns it for the capabilities of the seam, and dereferences to it. What is the vendor's stays there: nothing here names one.
//!
//! | module | holds |
//! |---|---|
//! | `driver` | the calls: [`StreamDriver`], [`CopyDriver`], [`MemoryDriver`], [`IpcDriver`], [`CodeDriver`] |
//! | `device` | [`Device`] |
//! | `block`, `view` | [`Block`]s, their addresses, and the host's view of them |
//! | `caps`, [`selftest`] | what a device is, and what is tried when it is opened |
//! | `event`, `marks` | events, used again and again |
//! | `timeline`, `registry` | streams with their marks, and those that are open |
//! | `whole` | all work of a device as one timeline |
//! | `bounce`, `staging` | pinned memory between slices and the device |
//! | `transfer`, `rows`, `compact`, [`pieces`] | byte movement, and batches of copies as one table that one kernel carries |
//! | [`positions`], `export`, `ipc` | pages that are mapped, and memory that leaves the process |
//! | `launch`, `module`, `kernel` | the shape of launches, device code, and kernels by hand |
//! | `programs` | kernels of the seam, with their constants |
mod block;
mod bounce;
mod caps;
mod compact;
mod device;
mod driver;
mod event;
mod export;
mod ipc;
mod kernel;
mod launch;
mod marks;
mod module;
pub mod pieces;
pub mod positions;
mod programs;
mod registry;
mod rows;
pub mod selftest;
mod staging;
mod timeline;
mod transfer;
mod view;
mod whole;

pub use block::{Block, BlockKind, Memory};
pub use bounce::{BOUNCE, address_of_pinned};
pub use caps::{ConstantHeap, Facts, Source, Usable, host_memory};
pub use device::{Described, Device};
pub use driver::{
    Caching, Capture, CodeDriver, CopyDriver, Driver, IpcDriver, MemoryDriver, MemoryInfo,
    Progress, Raw, RowCopy, Standing, StreamDriver, of_host,
};
pub use ipc::IpcHandle;
pub use kernel::Kernel;
pub use launch::{Argument, Launch, Limits, Shape};
pub use module::{BuildError, Module, text_of};
pub use positions::Positions;
pub use programs::Programs;
pub use registry::Registry;
pub use rows::Rows;
pub use selftest::{BlockSource, Feature, Finding, Verdict};
pub use staging::Staging;
pub use timeline::{DefaultStream, StreamOwner, Timeline};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whatever happened to an earlier holder: every holder leaves its data consistent before it can panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
