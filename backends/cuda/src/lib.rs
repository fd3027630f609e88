#![doc = include_str!("../README.md")]
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

pub use backend::Cuda;
pub use block::Block;
pub use config::Config;
pub use constant::BANK_SYMBOL;
pub use cudarc::driver::sys::{CUcontext, CUstream};
#[doc(hidden)]
pub use driver::Driver;
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
