#![doc = include_str!("../README.md")]

#[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
mod adopt;
mod backend;
mod bind;
mod caps;
mod clock;
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
mod programs;
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
