//! HIP as an omniheap backend, through AMD's runtime library, which is found at run time.
//!
//! | module | holds |
//! |---|---|
//! | `sys` | types, values and tables of functions, as AMD declares them |
//! | `driver` | one function for each call, codes to error kinds, the thread's device chosen and restored |
//! | `caps` | attributes to [`Caps`](omniheap_core::Caps) |
//! | `backend`, `config`, `block`, `view` | [`Hip`], [`Config`], [`Block`], the required verbs, and the host's view |
//! | `timeline` | streams as timelines |
//! | `pool` | where device and pinned blocks come from |
//! | `transfer` | byte movement |
//! | `compact` | many copies in one launch |
//! | `remap`, `pages`, `export` | pages, those that exist, and memory that leaves the process |
//! | `constant`, `module`, `kernel`, `rtc` | constants, device code, launches, the run-time compiler |
//! | `selftest` | what is tried when a device is opened |
//!
//! Where the runtime or a device is absent, opening one says so:
//!
//! ```
//! use omniheap_core::Backend;
//! match omniheap_hip::Hip::open(0) {
//!     Ok(hip) => println!("{}", hip.caps().device.name),
//!     Err(error) => println!("not here: {error}"),
//! }
//! ```
mod backend;
mod block;
mod caps;
mod compact;
mod config;
mod constant;
#[doc(hidden)]
pub mod driver;
mod export;
mod ipc;
mod kernel;
mod launch;
mod module;
mod pages;
mod pool;
mod remap;
#[doc(hidden)]
pub mod rtc;
mod selftest;
#[doc(hidden)]
pub mod sys;
mod timeline;
mod transfer;
mod view;

pub use backend::Hip;
pub use block::{Block, Memory};
pub use config::{BlockSource, Config};
pub use driver::Coherence;
pub use ipc::IpcHandle;
pub use kernel::Kernel;
pub use module::{BuildError, Module};
pub use omniheap_stream::{Argument, Launch};
pub use rtc::Arch;
pub use selftest::{Feature, Finding, Verdict};
pub use sys::hipStream_t;
pub use timeline::DefaultStream;
pub use transfer::Rows;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whatever happened to an earlier holder: every holder leaves its data consistent before it can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
