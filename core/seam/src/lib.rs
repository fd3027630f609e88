#![doc = include_str!("../README.md")]
#![cfg_attr(not(feature = "std"), no_std)]
extern crate alloc;

mod backend;
pub mod bytes;
mod caps;
mod erased;
mod error;
mod launch;
mod layout;
#[cfg(feature = "std")]
mod lock;
mod timeline;

pub use backend::{
    Address, Backend, BlockOffset, Descriptor, DriverBudget, Export, Exported, HeapBudget, HostPin,
    HostPinner, Launch, LimitKind, LimitValue, Map, Move, Page, Remap, SystemLimit, Timelines,
    Transfer,
};
pub use caps::{
    Caps, ConstantCaps, CopyCaps, DeviceInfo, Heap, HeapId, HeapKind, HostAccess, InsideBlock,
    KernelAccess, Mapper, SharedCaps, Use,
};
pub use erased::{AnyBackend, AnyBlock, erase};
pub use error::{Advice, Error, ErrorKind, Result};
pub use launch::{Argument, HostLaunch, Kernel, KernelText, ProgramId, Slot};
pub use layout::{Align, Class, Layout, Span};
#[cfg(feature = "std")]
pub use lock::lock;
pub use timeline::{Epoch, Point, TimelineId};
