//! A buffer or image together with its memory, in one call.
#![expect(unsafe_code, reason = "works on handles that the caller describes")]
use crate::{
    Block, Needs, Vulkan,
    driver::{check, device::Device},
};
use ash::vk;
use core::fmt;
use omniheap_core::{AllocateError, Allocation, Manager};
use omniheap_seam::{Class, HeapKind, Result};
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

/// A buffer or image with its memory, which counts against its manager's budgets.
///
/// Dropping it waits until the device is idle, then destroys both.
#[derive(Debug)]
pub struct Resource<H: Native> {
    handle: H,
    memory: Option<Allocation<Vulkan>>,
    device: Arc<Device>,
}

impl<H: Native> Resource<H> {
    /// Returns the native handle; never destroy it.
    #[must_use]
    pub const fn handle(&self) -> H {
        self.handle
    }

    /// Returns the memory behind it.
    ///
    /// # Panics
    ///
    /// Never: the memory leaves only in `drop`.
    pub const fn memory(&self) -> &Allocation<Vulkan> {
        self.memory.as_ref().expect("a finished resource has its memory")
    }

    /// Destroys it without waiting.
    ///
    /// # Safety
    ///
    /// No device work uses it any more.
    pub unsafe fn destroy_now(mut self) {
        // SAFETY: the caller's promise; `drop` finds no memory and does nothing more.
        unsafe { self.take_apart() };
    }

    /// # Safety
    ///
    /// No device work uses it any more.
    unsafe fn take_apart(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        // SAFETY: made for this device by `finish`, destroyed once because the memory is taken now.
        unsafe { self.handle.destroy(&self.device.raw) };
        drop(memory);
    }
}

impl<H: Native> Drop for Resource<H> {
    fn drop(&mut self) {
        if self.memory.is_some() {
            // A lost device runs nothing any more; either way no work uses it.
            let _ = self.device.wait_idle();
            // SAFETY: as just established.
            unsafe { self.take_apart() };
        }
    }
}

impl Vulkan {
    /// Creates a buffer, allocates memory for it as [`allocate_for`](Self::allocate_for) does, and binds it.
    ///
    /// # Errors
    ///
    /// As for [`buffer_needs`](Self::buffer_needs) and [`allocate_for`](Self::allocate_for); the driver's error. Nothing is left
    /// behind.
    ///
    /// # Safety
    ///
    /// `info` is valid for the manager's device, as the specification says.
    // Inline: compiled where it is called, and with it the manager, which takes four times as long as the rest of this crate.
    #[inline]
    pub unsafe fn create_buffer(
        manager: &Manager<Self>,
        info: &vk::BufferCreateInfo<'_>,
        kind: HeapKind,
    ) -> Result<Resource<vk::Buffer>, AllocateError> {
        let vulkan = manager.backend();
        // SAFETY: the caller's promise.
        let handle = check(unsafe { vulkan.device.raw.create_buffer(info, None) })?;
        // SAFETY: created just above.
        let needs = unsafe { vulkan.buffer_needs(handle, kind) };
        finish(manager, handle, needs, |needs, block, offset| {
            // SAFETY: fresh, with its own needs; the resource keeps the memory, which is pinned.
            unsafe { vulkan.bind_buffer(handle, needs, block, offset) }
        })
    }

    /// Creates an image, allocates memory for it as [`allocate_for`](Self::allocate_for) does, and binds it.
    ///
    /// # Errors
    ///
    /// As for [`create_buffer`](Self::create_buffer).
    ///
    /// # Safety
    ///
    /// `info` is valid for the manager's device, as the specification says, and not disjoint.
    #[inline] // as above
    pub unsafe fn create_image(
        manager: &Manager<Self>,
        info: &vk::ImageCreateInfo<'_>,
        kind: HeapKind,
    ) -> Result<Resource<vk::Image>, AllocateError> {
        let vulkan = manager.backend();
        let linear = info.tiling == vk::ImageTiling::LINEAR;
        let class = if linear { Class::Linear } else { Class::Tiled };
        // SAFETY: the caller's promise.
        let handle = check(unsafe { vulkan.device.raw.create_image(info, None) })?;
        // SAFETY: created just above.
        let needs = unsafe { vulkan.image_needs(handle, class, kind) };
        finish(manager, handle, needs, |needs, block, offset| {
            // SAFETY: fresh, with its own needs; the resource keeps the memory, which is pinned.
            unsafe { vulkan.bind_image(handle, needs, block, offset) }
        })
    }
}

/// Allocates and binds; on failure the handle is destroyed.
fn finish<H: Native>(
    manager: &Manager<Vulkan>,
    handle: H,
    needs: Result<Needs>,
    bind: impl FnOnce(&Needs, &Block, u64) -> Result<()>,
) -> Result<Resource<H>, AllocateError> {
    let device = &manager.backend().device;
    let bound = needs.map_err(AllocateError::from).and_then(|needs| {
        // SAFETY: the only callers pass a handle that they have just created, with its needs.
        let memory = unsafe { Vulkan::allocate_for(manager, handle, &needs) }?;
        let binding = memory.binding();
        bind(&needs, binding.block(), binding.span().offset)?;
        drop(binding);
        Ok(memory)
    });
    match bound {
        Ok(memory) => Ok(Resource { handle, memory: Some(memory), device: Arc::clone(device) }),
        Err(why) => {
            // SAFETY: created by the caller of this function, never used.
            unsafe { handle.destroy(&device.raw) };
            Err(why)
        }
    }
}
