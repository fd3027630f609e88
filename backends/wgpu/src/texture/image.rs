//! A native image over memory of a block, and its way into wgpu.
#![expect(unsafe_code, reason = "makes native images for wgpu's hal")]
use super::format::describe;
use crate::{
    Wgpu,
    own::{OWN_ALIGN, check},
};
use ash::vk;
use omniheap_core::{AllocateError, Allocation, Manager, Request};
use omniheap_seam::{Align, Class, ErrorKind, HeapId, HeapKind, Result};
use wgpu::{
    CommandEncoder, TextureDescriptor, TextureTransition, TextureUses,
    hal::{self, api::Vulkan, vulkan::TextureMemory},
};

/// An image without memory; dropping it destroys it.
pub(super) struct Image {
    raw: vk::Image,
    asked: vk::MemoryRequirements,
    device: ash::Device,
}

impl Image {
    /// Makes the image of a texture; `None` where the texture is better left to wgpu.
    pub(super) fn create(wgpu: &Wgpu, descriptor: &TextureDescriptor<'_>) -> Result<Option<Self>> {
        if !wgpu.has_own_memory() {
            return Ok(None);
        }
        let Some(info) = describe(descriptor, wgpu.device()) else { return Ok(None) };
        // SAFETY: nothing is destroyed through the guard.
        let hal = unsafe { wgpu.device().as_hal::<Vulkan>() }.ok_or(ErrorKind::DeviceLost)?;
        if !supports(&hal, &info) {
            return Ok(None);
        }
        let device = hal.raw_device().clone();
        // SAFETY: the device is alive, and `supports` asked it about everything in the description.
        let raw = check(unsafe { device.create_image(&info, None) })?;
        let mut image = Self { raw, asked: vk::MemoryRequirements::default(), device };
        let of = vk::ImageMemoryRequirementsInfo2::default().image(raw);
        let mut own = vk::MemoryDedicatedRequirements::default();
        let mut asked = vk::MemoryRequirements2::default().push_next(&mut own);
        // SAFETY: made just above; wgpu asks for Vulkan 1.1 or the extension itself.
        unsafe { image.device.get_image_memory_requirements2(&of, &mut asked) };
        image.asked = asked.memory_requirements;
        let shares = own.requires_dedicated_allocation == vk::FALSE;
        Ok((shares && image.asked.alignment <= OWN_ALIGN.get()).then_some(image))
    }

    /// Takes memory for it: in the device heap, else in another heap that the image takes, the device's own first.
    pub(super) fn place(
        &self,
        manager: &Manager<Wgpu>,
        name: Option<&str>,
    ) -> Result<Allocation<Wgpu>, AllocateError> {
        let wgpu = manager.backend();
        let align = Align::new(self.asked.alignment).ok_or(ErrorKind::InvalidAlignment)?;
        let kind = |id: HeapId| manager.caps().heap(id).map(|heap| heap.kind);
        let takes = |id: &HeapId| {
            let memory_type = wgpu.memory_type(*id);
            memory_type.is_some_and(|index| self.asked.memory_type_bits & (1 << index) != 0)
        };
        let mut heaps: Vec<HeapId> =
            manager.caps().heap_ids().map(|(id, _)| id).filter(takes).collect();
        heaps.retain(|id| kind(*id) != Some(HeapKind::Constant));
        heaps.sort_by_key(|id| kind(*id) != Some(HeapKind::Device));
        let mut outcome = Err(ErrorKind::NoSuchHeap.into());
        for heap in heaps {
            let mut request = Request::new(self.asked.size).heap(heap).align(align);
            request = request.class(Class::Tiled).pinned();
            request.name = name;
            outcome = manager.allocate(&request);
            match &outcome {
                Err(why) if why.kind().is_out_of_memory() => {}
                _ => break,
            }
        }
        outcome
    }

    /// Binds it to its memory, clears it, and gives it to wgpu, which destroys it.
    pub(super) fn hand_over(
        self,
        wgpu: &Wgpu,
        memory: &Allocation<Wgpu>,
        descriptor: &TextureDescriptor<'_>,
    ) -> Result<wgpu::Texture> {
        let place = memory.binding();
        let block = place.block().memory().ok_or(ErrorKind::Unsupported)?;
        // SAFETY: fresh; `place` chose a heap whose memory type it takes, and size and alignment are what it asked for.
        // The memory stays until the texture is destroyed and the device has passed it.
        check(unsafe { self.device.bind_image_memory(self.raw, block, place.span().offset) })?;
        let raw = self.raw;
        let texture = self.into_wgpu(wgpu, descriptor)?;
        wgpu.driver.scoped(|| {
            let encoder = || wgpu.device().create_command_encoder(&Default::default());
            let (mut first, mut then) = (encoder(), encoder());
            clear(&mut first, wgpu, raw, descriptor);
            // wgpu does not see native commands: with this it keeps the texture until they have run.
            let state = TextureUses::COPY_DST;
            let seen = TextureTransition { texture: &texture, selector: None, state };
            then.transition_resources(core::iter::empty(), core::iter::once(seen));
            wgpu.queue().submit([first.finish(), then.finish()]);
            if descriptor.format.is_compressed() {
                write_zeros(wgpu.queue(), &texture);
            }
        })?;
        Ok(texture)
    }

    fn into_wgpu(self, wgpu: &Wgpu, descriptor: &TextureDescriptor<'_>) -> Result<wgpu::Texture> {
        let state = TextureUses::COPY_DST;
        let described = hal::TextureDescriptor {
            label: descriptor.label,
            size: descriptor.size,
            mip_level_count: descriptor.mip_level_count,
            sample_count: descriptor.sample_count,
            dimension: descriptor.dimension,
            format: descriptor.format,
            usage: state,
            memory_flags: hal::MemoryFlags::empty(),
            view_formats: descriptor.view_formats.to_vec(),
        };
        let image = core::mem::ManuallyDrop::new(self);
        // SAFETY: nothing is destroyed through the guard.
        let hal = unsafe { wgpu.device().as_hal::<Vulkan>() }.ok_or(ErrorKind::DeviceLost)?;
        let external = TextureMemory::External;
        // SAFETY: `describe` made the image after this description, one that wgpu would accept, mutable where it has view
        // formats, which differ in srgb alone; wgpu owns the image from here on, and the memory outlives it as `hand_over` says.
        let texture = unsafe { hal.texture_from_raw(image.raw, &described, None, external) };
        drop(hal);
        wgpu.driver.scoped(|| {
            // SAFETY: made just above for this device; `hand_over` clears it, and leaves it in this state, before anyone
            // else submits work with it.
            unsafe { wgpu.device().create_texture_from_hal::<Vulkan>(texture, descriptor, state) }
        })
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: made by `create`, and wgpu never saw it.
        unsafe { self.device.destroy_image(self.raw, None) };
    }
}

/// Returns whether the driver supports such images, with this size and sample count.
fn supports(device: &hal::vulkan::Device, info: &vk::ImageCreateInfo<'_>) -> bool {
    let instance = device.shared_instance().raw_instance();
    // SAFETY: the physical device is this instance's, and both outlive the guard.
    let found = unsafe {
        instance.get_physical_device_image_format_properties(
            device.raw_physical_device(),
            info.format,
            info.image_type,
            info.tiling,
            info.usage,
            info.flags,
        )
    };
    found.is_ok_and(|most| {
        let (has, wants) = (most.max_extent, info.extent);
        has.width >= wants.width
            && has.height >= wants.height
            && has.depth >= wants.depth
            && most.max_mip_levels >= info.mip_levels
            && most.max_array_layers >= info.array_layers
            && most.sample_counts.contains(info.samples)
    })
}

/// Records what brings an image from nothing to zeros, after everything that used its memory before.
fn clear(
    encoder: &mut CommandEncoder,
    wgpu: &Wgpu,
    image: vk::Image,
    descriptor: &TextureDescriptor<'_>,
) {
    use vk::{AccessFlags as A, ImageLayout as L, PipelineStageFlags as S};
    let Ok(device) = wgpu.native() else { return };
    let range = vk::ImageSubresourceRange {
        aspect_mask: vk::ImageAspectFlags::COLOR,
        level_count: vk::REMAINING_MIP_LEVELS,
        layer_count: vk::REMAINING_ARRAY_LAYERS,
        ..Default::default()
    };
    let to = L::TRANSFER_DST_OPTIMAL;
    let barrier = [vk::ImageMemoryBarrier::default()
        .src_access_mask(A::MEMORY_WRITE)
        .dst_access_mask(A::TRANSFER_WRITE)
        .new_layout(to)
        .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
        .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
        .image(image)
        .subresource_range(range)];
    let (ranges, none) = ([range], vk::DependencyFlags::empty());
    let record = |commands: vk::CommandBuffer| {
        let (before, after) = (S::ALL_COMMANDS, S::TRANSFER);
        // SAFETY: recording on wgpu's queue, which renders; the image is bound and of this device.
        unsafe { device.cmd_pipeline_barrier(commands, before, after, none, &[], &[], &barrier) };
        if !descriptor.format.is_compressed() {
            let zero = vk::ClearColorValue::default();
            // SAFETY: as above; the barrier brought it to this layout, and it may be a transfer's target.
            unsafe { device.cmd_clear_color_image(commands, image, to, &zero, &ranges) };
        }
    };
    // SAFETY: nothing is destroyed or ended, and wgpu's own calls go to another encoder.
    unsafe { encoder.as_hal_mut::<Vulkan, _, _>(|hal| hal.map(raw).map(record)) };
}

fn raw(hal: &mut hal::vulkan::CommandEncoder) -> vk::CommandBuffer {
    // SAFETY: `clear` uses the handle only while it has the encoder.
    unsafe { hal.raw_handle() }
}

/// Writes zeros to a texture of compressed blocks, which commands cannot clear.
fn write_zeros(queue: &wgpu::Queue, texture: &wgpu::Texture) {
    let (x, y) = texture.format().block_dimensions();
    let bytes = texture.format().block_copy_size(None).unwrap_or(16);
    for mip_level in 0..texture.mip_level_count() {
        let level = texture.size().mip_level_size(mip_level, texture.dimension());
        let size = level.physical_size(texture.format());
        let (columns, rows) = (size.width / x, size.height / y);
        let all = u64::from(columns * bytes) * u64::from(rows * size.depth_or_array_layers);
        let Ok(count) = usize::try_from(all) else { return };
        let layout = wgpu::TexelCopyBufferLayout {
            offset: 0,
            bytes_per_row: Some(columns * bytes),
            rows_per_image: Some(rows),
        };
        let to = wgpu::TexelCopyTextureInfo { mip_level, ..texture.as_image_copy() };
        queue.write_texture(to, &vec![0; count], layout, size);
    }
}
