#![doc = include_str!("../README.md")]
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
