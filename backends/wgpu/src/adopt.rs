//! Adopts foreign memory as a block, so that a wgpu engine can run on blocks of a Vulkan allocator.
#![expect(unsafe_code, reason = "hands a native buffer to wgpu's hal")]
use crate::{
    Block, Wgpu,
    caps::{COPY_ALIGN, HeapClass},
};
use ash::vk;
use omniheap_seam::{ErrorKind, HeapId, Result};
use wgpu::{
    BufferDescriptor,
    hal::{api::Vulkan, vulkan},
};

impl Wgpu {
    /// Uses a `VkBuffer` over memory that the caller owns as a block: wgpu binds it, and transfers reach it.
    ///
    /// `heap` says what the buffer may be used for and is what [`Block::heap`] answers. `released` runs once wgpu and the
    /// device are done with the buffer, after the block was freed or dropped: there the caller destroys the buffer and
    /// gives its memory back. It also runs when this call fails.
    ///
    /// # Errors
    ///
    /// `Unsupported` where wgpu does not run on Vulkan, `NoSuchHeap`, `NotMappable` for a staging heap (wgpu cannot map
    /// what it did not allocate), `ZeroSize`, `Misaligned` (sizes are whole words), `DeviceLost`.
    ///
    /// # Safety
    ///
    /// - `buffer` belongs to the `VkDevice` under [`device`](Self::device), has at least `size` bytes, and has memory
    ///   bound to it that nothing else uses.
    /// - The buffer was made with transfer source and destination, uniform, and, for heap 0, storage, vertex, index and
    ///   indirect usage.
    /// - Its bytes were written once, or reading what was there before is harmless.
    /// - Buffer and memory stay until `released` runs, and only wgpu uses them until then.
    pub unsafe fn adopt(
        &self,
        buffer: vk::Buffer,
        heap: HeapId,
        size: u64,
        released: impl FnOnce() + Send + Sync + 'static,
    ) -> Result<Block> {
        // SAFETY: the caller promises that the buffer lives until `released` runs.
        let buffer =
            unsafe { vulkan::Buffer::from_raw_externally_owned(buffer, Box::new(released)) };
        let class = self.class(heap).ok_or(ErrorKind::NoSuchHeap)?;
        if matches!(class, HeapClass::Upload | HeapClass::ReadBack) {
            return Err(ErrorKind::NotMappable.into());
        }
        if size == 0 {
            return Err(ErrorKind::ZeroSize.into());
        }
        if !COPY_ALIGN.divides(size) {
            return Err(ErrorKind::Misaligned.into());
        }
        if self.device().adapter_info().backend != wgpu::Backend::Vulkan {
            return Err(ErrorKind::Unsupported.into());
        }
        let descriptor = BufferDescriptor {
            label: Some("omniheap"),
            size,
            usage: class.usages(),
            mapped_at_creation: false,
        };
        let buffer = self.driver.scoped(|| {
            // SAFETY: the caller promises the device, the size, the usages and the content; the device runs on Vulkan.
            unsafe { self.device().create_buffer_from_hal::<Vulkan>(buffer, &descriptor) }
        })?;
        Ok(self.block(buffer, heap))
    }
}
