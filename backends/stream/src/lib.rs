//! What backends over streams share: timelines whose marks are events, the pinned memory that transfers go through, and
//! launches.
//!
//! A vendor's crate implements [`StreamDriver`] for its driver and [`Launcher`] for its backend, one call each, and keeps
//! everything else that is the vendor's to itself: nothing here names one.
//!
//! | module | holds |
//! |---|---|
//! | `driver` | [`StreamDriver`]: the calls that are needed |
//! | `event` | events, used again and again |
//! | `timeline`, `registry` | streams with their marks, and those that are open |
//! | `bounce`, `staging` | pinned memory between slices and the device |
//! | `launch`, `programs` | the shape of launches, and kernels of the seam with their constants |
//! | `pieces` | batches of copies as one table |
mod bounce;
mod driver;
mod event;
mod launch;
pub mod pieces;
mod programs;
mod registry;
mod staging;
mod timeline;

pub use bounce::BOUNCE;
pub use driver::{Progress, StreamDriver};
pub use launch::{Argument, Launch, Limits, Shape};
pub use programs::{Launcher, Programs, Symbol};
pub use registry::Registry;
pub use staging::Staging;
pub use timeline::{StreamOwner, Timeline};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whatever happened to an earlier holder: every holder leaves its data consistent before it can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
