#![doc = include_str!("../README.md")]
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
mod pins;
pub mod positions;
mod programs;
mod registry;
mod rows;
pub mod selftest;
mod staging;
mod streams;
mod timeline;
mod transfer;
mod view;
mod whole;

pub use block::{Block, BlockKind, Memory};
pub use bounce::{BOUNCE, address_of_pinned};
pub use caps::{ConstantHeap, Facts, Source, Usable, host_memory};
pub use compact::COMPACTION;
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
pub use streams::NativeStreams;
pub use timeline::{DefaultStream, StreamOwner, Timeline};

pub use omniheap_seam::lock;
