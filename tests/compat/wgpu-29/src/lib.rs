//! wgpu 29, as Bevy 0.19 uses it, compiled against this workspace's gpu-allocator.
pub use wgpu;
