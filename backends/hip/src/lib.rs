//! HIP as an omniheap backend, through AMD's runtime library, which is found at run time.
//!
//! | module | holds |
//! |---|---|
//! | `sys` | types, values and tables of functions, as AMD declares them |
//! | `driver` | one function for each call, codes to error kinds, the thread's device chosen and restored |
//! | `caps` | attributes to [`Caps`](omniheap_seam::Caps) |
//! | `backend`, `config`, `block` | [`Hip`], [`Config`], [`Block`], and the required verbs |
//! | `timeline` | streams as timelines |
//! | `pool` | where device and pinned blocks come from |
//! | `remap`, `pages`, `addresses`, `export` | pages, those that exist, where they are mapped, and memory that leaves the process |
//! | `constant`, `module`, `rtc` | constants, device code, the run-time compiler |
//! | `selftest` | what is tried when a device is opened |
//!
//! Where the runtime or a device is absent, opening one says so:
//!
//! ```
//! use omniheap_seam::Backend;
//! match omniheap_hip::Hip::open(0) {
//!     Ok(hip) => println!("{}", hip.caps().device.name),
//!     Err(error) => println!("not here: {error}"),
//! }
//! ```
mod addresses;
mod backend;
mod block;
mod caps;
mod config;
mod constant;
#[doc(hidden)]
pub mod driver;
mod export;
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

pub use backend::Hip;
pub use block::Block;
pub use config::Config;
pub use driver::Coherence;
pub use module::{Kernel, Module};
pub use omniheap_stream::{
    Argument, BlockSource, BuildError, Capture, DefaultStream, Feature, Finding, IpcHandle, Launch,
    Memory, Standing, Verdict,
};
pub use rtc::Arch;
pub use sys::hipStream_t;

/// A graph of the runtime.
pub type Graph = sys::hipGraph_t;

/// A copy of rows, from one rectangle to another.
pub type Rows<'a> = omniheap_stream::Rows<'a, block::Kind>;
