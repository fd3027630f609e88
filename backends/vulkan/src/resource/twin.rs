//! Twins: new buffers and images at the places that movable resources move to.
#![expect(unsafe_code, reason = "works on handles that the caller describes")]
use super::owned::{Native, Resource};
use crate::{
    Block, Needs, Vulkan,
    driver::check,
    timeline::{retired::Retired, whole::Whole},
};
use ash::vk;
use omniheap_core::BlockRange;
use omniheap_seam::{Class, ErrorKind, HeapKind, Result};
use std::sync::Arc;

/// A new buffer or image at the place that a movable resource is about to move to.
///
/// The owner copies into the twin, commits the pass and calls [`Resource::switch_to`]. A dropped twin is [retired](Vulkan::retire).
#[derive(Debug)]
pub struct Twin<H: Native> {
    handle: H,
    place: (vk::DeviceMemory, u64),
    whole: Arc<Whole>,
}

impl<H: Native> Twin<H> {
    /// Returns the native handle; never destroy it.
    #[must_use]
    pub const fn handle(&self) -> H {
        self.handle
    }
}

impl<H: Native> Drop for Twin<H> {
    fn drop(&mut self) {
        // SAFETY: made for this device by `finish`, or given up by the resource that took its twin's handle; once, as this is `drop`.
        // Nobody submits work any more that uses it.
        self.whole.retire(unsafe { Retired::new(self.handle) });
    }
}

impl<H: Native> Resource<H> {
    /// Takes a twin's handle if the memory now lies at the twin's place, and retires the old handle. Returns true if it took it.
    ///
    /// Call this after the commit, whether or not the move was made: a twin that is not taken is retired. Wait for work on the
    /// old handle before the commit, because the commit frees the old place.
    pub fn switch_to(&mut self, mut twin: Twin<H>) -> bool {
        let binding = self.memory().binding();
        let place = binding.block().memory().map(|memory| (memory, binding.span().offset));
        drop(binding);
        let moved = place == Some(twin.place);
        if moved {
            core::mem::swap(self.handle_mut(), &mut twin.handle);
        }
        moved
    }
}

impl Vulkan {
    /// Creates a buffer as `info` says at a planned place, [`PlannedMove::to`](omniheap_core::PlannedMove::to).
    ///
    /// # Errors
    ///
    /// As for [`bind_buffer`](Self::bind_buffer); the driver's error. Nothing is left behind.
    ///
    /// # Safety
    ///
    /// `info` is the description that the moving resource's buffer was made with. The pass lives until the last use of the new buffer,
    /// or is committed. A twin is dropped if its pass ends without the move.
    pub unsafe fn twin_of_buffer(
        &self,
        info: &vk::BufferCreateInfo<'_>,
        to: &BlockRange<'_, Block>,
    ) -> Result<Twin<vk::Buffer>> {
        // SAFETY: the caller's promise.
        let handle = check(unsafe { self.device.raw.create_buffer(info, None) })?;
        // SAFETY: created just above.
        let needs = unsafe { self.buffer_needs(handle, HeapKind::Device) };
        self.finish_twin(handle, needs, to, |needs| {
            // SAFETY: fresh, with its own needs; the pass keeps the place.
            unsafe { self.bind_buffer(handle, needs, to.block, to.span.offset) }
        })
    }

    /// Creates an image as `info` says at a planned place, [`PlannedMove::to`](omniheap_core::PlannedMove::to).
    ///
    /// # Errors
    ///
    /// As for [`bind_image`](Self::bind_image); the driver's error. Nothing is left behind.
    ///
    /// # Safety
    ///
    /// As for [`twin_of_buffer`](Self::twin_of_buffer).
    pub unsafe fn twin_of_image(
        &self,
        info: &vk::ImageCreateInfo<'_>,
        to: &BlockRange<'_, Block>,
    ) -> Result<Twin<vk::Image>> {
        // SAFETY: the caller's promise.
        let handle = check(unsafe { self.device.raw.create_image(info, None) })?;
        // SAFETY: created just above.
        let needs = unsafe { self.image_needs(handle, Class::Tiled, HeapKind::Device) };
        self.finish_twin(handle, needs, to, |needs| {
            // SAFETY: fresh, with its own needs; the pass keeps the place.
            unsafe { self.bind_image(handle, needs, to.block, to.span.offset) }
        })
    }

    /// Binds a twin that was just created; on failure the handle is destroyed.
    fn finish_twin<H: Native>(
        &self,
        handle: H,
        needs: Result<Needs>,
        to: &BlockRange<'_, Block>,
        bind: impl FnOnce(&Needs) -> Result<()>,
    ) -> Result<Twin<H>> {
        let bound = needs.and_then(|needs| match needs.layout.size <= to.span.size {
            true => bind(&needs),
            false => Err(ErrorKind::OutOfRange.into()),
        });
        // A failed bind leaves the twin to be dropped, which destroys the handle: no work has used it.
        let memory = to.block.memory().unwrap_or_default();
        let twin = Twin { handle, place: (memory, to.span.offset), whole: Arc::clone(&self.whole) };
        bound.map(|()| twin)
    }
}
