//! Any device that wgpu can open, as a source of blocks.
//!
//! | question | answer |
//! |---|---|
//! | a block is | one [`wgpu::Buffer`]; its heap decides its usages ([`Block::buffer`] shows it) |
//! | addresses, persistent mappings | none: wgpu has neither, so [`as_map`](omniheap_seam::Backend::as_map) and `as_address` are `None` |
//! | bytes move | through staging buffers of this crate: `queue.write_buffer` loses the device when its own staging runs out |
//! | heap sizes, identity, budget | asked of the driver where wgpu runs on Vulkan; elsewhere a heap counts as one largest block and its name says so ([`Wgpu::with_memory`]) |
//! | timelines | one queue under all of them; epochs follow its submissions, also those of the engine |
//! | errors | captured in scopes around every call, never left to wgpu's handler that panics |
//! | memory of another allocator | on Vulkan, `Wgpu::adopt` makes a block of a `VkBuffer` |
//! | memory of our own | on Vulkan, `Wgpu::with_own_memory` allocates blocks itself and offers every memory type as a heap |
//! | textures | on memory of our own, [`Texture`] places them in pools of a manager; others are wgpu's, and [`Wgpu::bytes_of_wgpu`] counts them |
//! | an engine's device | [`Wgpu::wrap`] takes it and leaves the engine's error and loss handlers alone |
//!
//! The files: [`Wgpu`] and its blocks in `backend`, one wgpu call each in `driver`, the description of the device in
//! `caps` and `hal`, byte movement in `transfer` and `staging`, time in `timeline`, checked bindings in `bind`,
//! other allocators' memory in `adopt`, our own in `own`, textures over it in `texture`.
//!
//! # Examples
//!
//! ```
//! use omniheap_seam::{Backend, HeapId, Place, TimelineId};
//! use omniheap_wgpu::Wgpu;
//!
//! let backend = Wgpu::open_noop()?;
//! let block = backend.allocate(HeapId(0), 1024)?;
//! let transfer = backend.as_transfer().expect("wgpu moves bytes");
//! transfer.write(TimelineId::MAIN, Place { block: &block, offset: 256 }, b"omniheap")?;
//! let mut back = [0; 8];
//! transfer.read(TimelineId::MAIN, Place { block: &block, offset: 256 }, &mut back)?;
//! assert_eq!(&back, b"omniheap");
//! # Ok::<(), omniheap_seam::Error>(())
//! ```

#[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
mod adopt;
mod backend;
mod bind;
mod caps;
mod driver;
mod hal;
mod launch;
#[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
mod own;
#[cfg(not(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd")))]
mod own {
    impl crate::Wgpu {
        /// Refuses: on this platform wgpu does not run on Vulkan.
        ///
        /// # Errors
        ///
        /// `Unsupported`.
        pub fn with_own_memory(self) -> omniheap_seam::Result<Self> {
            Err(omniheap_seam::ErrorKind::Unsupported.into())
        }
    }
}
mod staging;
#[cfg(feature = "manager")]
mod texture;
mod timeline;
mod transfer;

pub use backend::{Block, Wgpu};
pub use bind::Bind;
#[cfg(feature = "manager")]
pub use texture::Texture;
pub use wgpu;
