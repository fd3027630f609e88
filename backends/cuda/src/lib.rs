//! CUDA as an omniheap backend, through NVIDIA's driver library, which is found at run time.
//!
//! | module | holds |
//! |---|---|
//! | `sys` | the driver's functions that are called, resolved once |
//! | `driver` | one function per call, codes to error kinds, contexts made current and restored |
//! | `caps` | attributes to [`Caps`](omniheap_seam::Caps) |
//! | `backend`, `config`, `block` | [`Cuda`], [`Config`], [`Block`], and the required verbs |
//! | `timeline` | streams as timelines |
//! | `pool` | where device and pinned blocks come from |
//! | `remap`, `export` | pages, and memory that leaves the process |
//! | `constant`, `module`, `rtc` | the constant bank, device code, the run-time compiler |
//! | `nvtx` | what NVIDIA's tools are told |
//! | `selftest` | what is tried when a device is opened |
//!
//! Where the driver or a device is absent, opening one says so:
//!
//! ```
//! use omniheap_seam::Backend;
//! match omniheap_cuda::Cuda::open(0) {
//!     Ok(cuda) => println!("{}", cuda.caps().device.name),
//!     Err(error) => println!("not here: {error}"),
//! }
//! ```
mod backend;
mod block;
mod caps;
mod config;
mod constant;
mod driver;
mod export;
mod module;
#[cfg(feature = "manager")]
mod nvtx;
mod pool;
mod remap;
mod rtc;
mod selftest;
mod sys;
mod timeline;

pub use backend::Cuda;
pub use block::Block;
pub use config::Config;
pub use constant::BANK_SYMBOL;
pub use cudarc::driver::sys::{CUcontext, CUstream};
pub use module::{Arch, Kernel, Module};
#[cfg(feature = "manager")]
pub use nvtx::Nvtx;
pub use omniheap_stream::{
    Argument, BlockSource, BuildError, Capture, DefaultStream, Feature, Finding, IpcHandle, Launch,
    Memory, Standing, Verdict,
};

/// A graph of the driver.
pub type Graph = omniheap_stream::Raw<cudarc::driver::sys::CUgraph_st>;

/// A copy of rows, from one rectangle to another.
pub type Rows<'a> = omniheap_stream::Rows<'a, block::Kind>;
