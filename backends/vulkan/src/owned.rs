//! A buffer or image together with memory of its own, in one call.
#![expect(unsafe_code, reason = "works on handles that the caller describes")]
use crate::{Block, Needs, Vulkan, device::Device, driver::check};
use ash::vk;
use core::fmt;
use omniheap_core::{Class, HeapKind, Result};
use std::sync::Arc;

/// A buffer or image handle.
pub trait Native: vk::Handle + Copy + fmt::Debug + Send + Sync + sealed::Sealed {}
impl Native for vk::Buffer {}
impl Native for vk::Image {}

pub(crate) mod sealed {
    use super::vk;

    pub trait Sealed {
        /// # Safety
        ///
        /// The handle is the device's, and no work uses it.
        unsafe fn destroy(self, device: &ash::Device);
        fn dedicated(self) -> vk::MemoryDedicatedAllocateInfo<'static>;
    }

    impl Sealed for vk::Buffer {
        unsafe fn destroy(self, device: &ash::Device) {
            // SAFETY: the caller's promise.
            unsafe { device.destroy_buffer(self, None) }
        }
        fn dedicated(self) -> vk::MemoryDedicatedAllocateInfo<'static> {
            vk::MemoryDedicatedAllocateInfo::default().buffer(self)
        }
    }

    impl Sealed for vk::Image {
        unsafe fn destroy(self, device: &ash::Device) {
            // SAFETY: the caller's promise.
            unsafe { device.destroy_image(self, None) }
        }
        fn dedicated(self) -> vk::MemoryDedicatedAllocateInfo<'static> {
            vk::MemoryDedicatedAllocateInfo::default().image(self)
        }
    }
}

/// A buffer or image with memory of its own.
///
/// Dropping it waits until the device is idle, then destroys both.
#[derive(Debug)]
pub struct Resource<H: Native> {
    handle: H,
    block: Option<Block>,
    device: Arc<Device>,
}

impl<H: Native> Resource<H> {
    /// The native handle; never destroy it.
    #[must_use]
    pub const fn handle(&self) -> H {
        self.handle
    }

    /// The memory behind it.
    ///
    /// # Panics
    ///
    /// Never: the block leaves only in `drop`.
    #[must_use]
    pub const fn block(&self) -> &Block {
        self.block.as_ref().expect("a finished resource has its block")
    }

    /// Destroys it without waiting.
    ///
    /// # Safety
    ///
    /// No device work uses it any more.
    pub unsafe fn destroy_now(mut self) {
        // SAFETY: the caller's promise; `drop` finds no block and does nothing more.
        unsafe { self.take_apart() };
    }

    /// # Safety
    ///
    /// No device work uses it any more.
    unsafe fn take_apart(&mut self) {
        let Some(block) = self.block.take() else { return };
        // SAFETY: made for this device by `make`, destroyed once because the block is gone now.
        unsafe { self.handle.destroy(&self.device.raw) };
        // SAFETY: the caller's promise covers the memory too.
        unsafe { block.end() };
    }
}

impl<H: Native> Drop for Resource<H> {
    fn drop(&mut self) {
        if self.block.is_some() {
            // A lost device runs nothing any more; either way no work uses it.
            let _ = self.device.wait_idle();
            // SAFETY: as just established.
            unsafe { self.take_apart() };
        }
    }
}

impl Vulkan {
    /// Creates a buffer and memory for it.
    ///
    /// # Errors
    ///
    /// As for [`buffer_needs`](Self::buffer_needs) and [`allocate_alone`](Self::allocate_alone); what the driver says.
    ///
    /// # Safety
    ///
    /// `info` is valid for this device, as the specification says.
    pub unsafe fn create_buffer(
        &self,
        info: &vk::BufferCreateInfo<'_>,
        kind: HeapKind,
    ) -> Result<Resource<vk::Buffer>> {
        // SAFETY: the caller's promise.
        let handle = check(unsafe { self.device.raw.create_buffer(info, None) })?;
        // SAFETY: created just above.
        let needs = unsafe { self.buffer_needs(handle, kind) };
        self.finish(handle, needs, |needs, block| {
            // SAFETY: fresh, with its own needs; the resource keeps the block.
            unsafe { self.bind_buffer(handle, needs, block, 0) }
        })
    }

    /// Creates an image and memory for it.
    ///
    /// # Errors
    ///
    /// As for [`create_buffer`](Self::create_buffer).
    ///
    /// # Safety
    ///
    /// `info` is valid for this device, as the specification says, and not disjoint.
    pub unsafe fn create_image(
        &self,
        info: &vk::ImageCreateInfo<'_>,
        kind: HeapKind,
    ) -> Result<Resource<vk::Image>> {
        let linear = info.tiling == vk::ImageTiling::LINEAR;
        let class = if linear { Class::Linear } else { Class::Tiled };
        // SAFETY: the caller's promise.
        let handle = check(unsafe { self.device.raw.create_image(info, None) })?;
        // SAFETY: created just above.
        let needs = unsafe { self.image_needs(handle, class, kind) };
        self.finish(handle, needs, |needs, block| {
            // SAFETY: fresh, with its own needs; the resource keeps the block.
            unsafe { self.bind_image(handle, needs, block, 0) }
        })
    }

    /// Allocates and binds; on failure the handle is destroyed.
    fn finish<H: Native>(
        &self,
        handle: H,
        needs: Result<Needs>,
        bind: impl FnOnce(&Needs, &Block) -> Result<()>,
    ) -> Result<Resource<H>> {
        let bound = needs.and_then(|needs| {
            // SAFETY: the only callers pass a handle that they have just created, with its needs.
            let block = unsafe { self.allocate_alone(handle, &needs) }?;
            bind(&needs, &block)?;
            Ok(block)
        });
        match bound {
            Ok(block) => {
                Ok(Resource { handle, block: Some(block), device: Arc::clone(&self.device) })
            }
            Err(why) => {
                // SAFETY: created by the caller of this function, never used.
                unsafe { handle.destroy(&self.device.raw) };
                Err(why)
            }
        }
    }
}
