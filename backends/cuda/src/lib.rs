//! CUDA as an omniheap backend, through NVIDIA's driver library, which is found at run time.
//!
//! | module | holds |
//! |---|---|
//! | `sys` | the driver's functions that are called, resolved once |
//! | `driver` | one function per call, codes to error kinds, contexts made current and restored |
//! | `caps` | attributes to [`Caps`](omniheap_core::Caps) |
//! | `backend`, `config`, `block`, `view` | [`Cuda`], [`Config`], [`Block`], the required verbs, and the host's view |
//! | `timeline` | streams as timelines |
//! | `pool` | where device and pinned blocks come from |
//! | `transfer` | byte movement |
//! | `compact` | many copies in one launch |
//! | `remap`, `export`, `ipc` | pages, and memory that leaves the process |
//! | `constant`, `module`, `kernel`, `rtc` | the constant bank, device code, launches, the run-time compiler |
//! | `nvtx` | what NVIDIA's tools are told |
//! | `selftest` | what is tried when a device is opened |
//!
//! Where the driver or a device is absent, opening one says so:
//!
//! ```
//! use omniheap_core::Backend;
//! match omniheap_cuda::Cuda::open(0) {
//!     Ok(cuda) => println!("{}", cuda.caps().device.name),
//!     Err(error) => println!("not here: {error}"),
//! }
//! ```
mod backend;
mod block;
mod caps;
mod compact;
mod config;
mod constant;
mod driver;
mod export;
mod ipc;
mod kernel;
mod launch;
mod module;
mod nvtx;
mod pool;
mod positions;
mod remap;
mod rtc;
mod selftest;
mod sys;
mod timeline;
mod transfer;
mod view;

pub use backend::Cuda;
pub use block::{Block, Memory};
pub use config::{BlockSource, Config};
pub use constant::BANK_SYMBOL;
pub use cudarc::driver::sys::{CUcontext, CUstream};
pub use ipc::IpcHandle;
pub use kernel::Kernel;
pub use module::{Arch, BuildError, Module};
pub use nvtx::Nvtx;
pub use omniheap_stream::{Argument, Launch};
pub use selftest::{Feature, Finding, Verdict};
pub use timeline::DefaultStream;
pub use transfer::Rows;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whatever happened to an earlier holder: every holder leaves its data consistent before it can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
