//! PyTorch, CuPy and other runtimes on omniheap: the functions that they load from a shared library.
//!
//! | module | holds |
//! |---|---|
//! | `exports`, `figures` | the C functions: those that allocate, and those that tell |
//! | `guard` | what stands around each of them |
//! | `state` | the settings of the process, and its devices, opened at first use |
//! | `device` | one device: manager, what is live by address |
//! | `streams`, `seats` | what backends tell of other people's streams, and which timeline a stream has |
//! | `live`, `meter` | addresses to allocations, and their sums |
//! | `late` | frees that wait for other streams |
//! | `graph`, `arena` | memory that graph captures keep, and how it is divided |
//! | `checkpoint` | what lived in a pool of graphs, and the way back to that |
//! | `filter` | the C++ function object with which PyTorch says whose streams a capture takes |
//! | `driver` | the few driver calls that no backend has |
//! | `raise`, `profile`, `virtuals` | PyTorch's own out-of-memory exception, its profiler, and the functions of its allocator that are ours |
//! | `direct` | those that allocate and free |
//! | `loaded` | symbols of PyTorch's libraries |
//! | `record`, `watch` | the trace that is being recorded, and Python's history of allocations |
//! | `tags`, `sleep` | pools that sleep and wake, which of them a thread allocates from, and the C functions of both |
//! | `weights` | weights files, loaded to plain addresses |
//! | `functions` | addresses of functions for runtimes whose hooks name no device |
//! | `share` | memory that processes publish and attach |
//! | `map` | the memory of a device as PyTorch's snapshots show it |
//!
//! The library is never unloaded and ends nothing at exit: the driver may be gone before it.
mod arena;
mod checkpoint;
mod device;
mod direct;
mod driver;
mod exports;
mod figures;
mod filter;
mod functions;
mod graph;
mod guard;
mod late;
mod live;
mod loaded;
mod map;
mod meter;
mod profile;
mod raise;
mod record;
mod seats;
mod share;
mod sleep;
mod state;
mod streams;
mod tags;
mod virtuals;
mod watch;
mod weights;

pub use checkpoint::*;
pub use exports::*;
pub use figures::*;
pub use filter::Function;
pub use functions::*;
pub use graph::PoolId;
pub use share::*;
pub use sleep::*;
pub use virtuals::*;
pub use watch::{Event, Happened, Watcher, omniheap_torch_watch};
pub use weights::*;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whatever happened to an earlier holder: every holder leaves its data consistent before it can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
