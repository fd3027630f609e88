//! The locks of the hot path. A lane's lock is held for tens of nanoseconds and never over a driver call.
#[cfg_attr(loom, expect(dead_code, reason = "models use the checker's lock"))]
mod lock;
#[cfg_attr(loom, path = "sync/watched.rs")]
mod primitive;
mod signal;

#[cfg(not(loom))]
pub(crate) use lock::{Guard, Mutex};
#[cfg(loom)]
pub(crate) use primitive::{Guard, Mutex};
pub(crate) use primitive::{arrivals_of_this_thread, count_arrival, thread_number};
pub(crate) use signal::Signal;
