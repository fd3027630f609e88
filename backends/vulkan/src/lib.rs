//! Vulkan as an omniheap backend, through `ash`. The loader is found at run time.
//!
//! | module | holds |
//! |---|---|
//! | `open` | [`Vulkan::open`], [`Vulkan::wrap`], options |
//! | `backend`, `block` | [`Vulkan`] and [`Block`]: allocation, mapping, addresses, budget |
//! | `caps` | memory types as [`Caps`](omniheap_seam::Caps), ranked; features; what is tried at opening |
//! | `driver` | instance, physical and logical device, queues, owners of native objects, validation messages |
//! | `timeline` | timelines over queues: clocks, command buffers, queue families |
//! | `transfer` | writes and reads through staging rings, fills, batches of copies, the compaction kernel |
//! | `launch` | kernels and their descriptor sets |
//! | `remap` | sparse binding and its pages |
//! | `export` | memory shared by file descriptor |
//! | `resource` | memory for an engine's own buffers and images |
//! | `source`, `gpu_allocator` | blocks from an engine's own allocator |
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
mod driver;
mod export;
#[cfg(feature = "gpu-allocator")]
pub mod gpu_allocator;
mod launch;
mod open;
mod remap;
#[cfg(feature = "manager")]
mod resource;
mod source;
mod timeline;
mod transfer;

pub use ash;
pub use backend::{BlockOptions, Vulkan};
pub use block::Block;
pub use caps::{Paging, features::Feature};
pub use driver::validation::{Messages, Validation};
#[cfg(feature = "gpu-allocator")]
pub use gpu_allocator::GpuAllocator;
pub use open::{Existing, Options, Which};
#[cfg(feature = "manager")]
pub use resource::{
    Alone, Needs,
    owned::{Native, Resource},
};
pub use source::{MemorySource, Piece};
pub use timeline::{clock::Clocks, family::Exclusive};
pub use transfer::copy::Copies;
