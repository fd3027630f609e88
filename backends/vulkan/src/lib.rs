//! Vulkan memory as an omniheap backend: see the list below for the map.
//!
//! | file | holds |
//! |---|---|
//! | `open` | [`Vulkan::open`], [`Vulkan::wrap`], options |
//! | `caps`, `probe` | from the driver's memory types to [`Caps`](omniheap_seam::Caps), and their ranking |
//! | `driver`, `physical`, `device`, `objects` | the calls, and the owners of what they return |
//! | `backend`, `block` | the seam: blocks, mapping, addresses, budget |
//! | `timeline`, `line`, `clock`, `commands` | timelines over queues |
//! | `family` | ownership of an engine's resources between queue families |
//! | `transfer`, `staging`, `ring` | bytes in and out |
//! | `copy`, `kernel`, `tasks` | bytes across, as one batch |
//! | `remap`, `pages` | sparse binding |
//! | `export` | hand-over by file descriptor |
//! | `resource`, `owned` | memory for an engine's own buffers and images |
//! | `source`, `gpu_allocator` | blocks from an engine's own allocator |
//! | `validation` | the validation layer's messages |
//!
//! # Examples
//!
//! ```
//! use omniheap_seam::{Backend, Place, TimelineId};
//! use omniheap_vulkan::Vulkan;
//!
//! // No loader or no device is an error to handle, never a panic.
//! let Ok(vulkan) = Vulkan::open(0) else { return };
//! let (heap, _) = vulkan.caps().heap_ids().next().expect("every device has memory");
//! let block = vulkan.allocate(heap, 4096).expect("4 KiB are free");
//! let transfer = vulkan.as_transfer().expect("this backend has it");
//! transfer.write(TimelineId::MAIN, Place { block: &block, offset: 8 }, b"hello").unwrap();
//! let mut bytes = [0; 5];
//! transfer.read(TimelineId::MAIN, Place { block: &block, offset: 8 }, &mut bytes).unwrap();
//! assert_eq!(&bytes, b"hello");
//! ```
mod backend;
mod block;
mod caps;
mod clock;
mod commands;
mod copy;
mod device;
mod driver;
mod export;
mod family;
mod features;
#[cfg(feature = "gpu-allocator")]
pub mod gpu_allocator;
mod kernel;
mod launch;
mod line;
mod objects;
mod open;
#[cfg(feature = "manager")]
mod owned;
mod pages;
mod physical;
mod probe;
mod queues;
mod remap;
#[cfg(feature = "manager")]
mod resource;
mod ring;
mod route;
mod sets;
mod source;
mod staging;
mod tasks;
mod timeline;
mod transfer;
mod validation;
mod vulkan;

pub use ash;
pub use backend::BlockOptions;
pub use block::Block;
pub use caps::Paging;
pub use clock::Clocks;
pub use copy::Copies;
pub use family::Exclusive;
pub use features::Feature;
#[cfg(feature = "gpu-allocator")]
pub use gpu_allocator::GpuAllocator;
pub use open::{Existing, Options, Which};
#[cfg(feature = "manager")]
pub use owned::{Native, Resource};
#[cfg(feature = "manager")]
pub use resource::{Alone, Needs};
pub use source::{MemorySource, Piece};
pub use validation::{Messages, Validation};
pub use vulkan::Vulkan;
