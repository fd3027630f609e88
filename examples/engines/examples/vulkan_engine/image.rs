//! Images of the engine, in memory from omniheap.
#![expect(unsafe_code, reason = "an engine talks to the driver itself")]
use core::error::Error;
use omniheap_core::{Allocation, Class, HeapKind, Manager};
use omniheap_vulkan::{Alone, Block, Vulkan, ash, ash::vk};

/// An image, a view of it, and the memory behind it.
pub(crate) struct Image {
    pub(crate) handle: vk::Image,
    pub(crate) view: vk::ImageView,
    device: ash::Device,
    _memory: Memory,
}

/// Where the driver wants an image to live.
#[expect(dead_code, reason = "held, not read: memory lives as long as its image")]
enum Memory {
    /// Beside others.
    Shared(Allocation<Vulkan>),
    /// Alone.
    Own(Block),
}

/// What an image is for.
#[derive(Clone, Copy)]
pub(crate) struct Purpose {
    pub(crate) format: vk::Format,
    pub(crate) usage: vk::ImageUsageFlags,
    pub(crate) aspect: vk::ImageAspectFlags,
}

impl Image {
    pub(crate) fn create(
        manager: &Manager<Vulkan>,
        (width, height): (u32, u32),
        purpose: Purpose,
    ) -> Result<Self, Box<dyn Error>> {
        let device = manager.backend().ash_device().clone();
        let info = vk::ImageCreateInfo::default()
            .image_type(vk::ImageType::TYPE_2D)
            .format(purpose.format)
            .extent(vk::Extent3D { width, height, depth: 1 })
            .mip_levels(1)
            .array_layers(1)
            .samples(vk::SampleCountFlags::TYPE_1)
            .usage(purpose.usage);
        // SAFETY: a plain image that every device of version 1.3 makes.
        let handle = unsafe { device.create_image(&info, None) }?;
        let memory = place(manager, handle)?;
        let info = vk::ImageViewCreateInfo::default()
            .image(handle)
            .view_type(vk::ImageViewType::TYPE_2D)
            .format(purpose.format)
            .subresource_range(whole(purpose.aspect));
        // SAFETY: the image is bound and has that aspect.
        let view = unsafe { device.create_image_view(&info, None) }?;
        Ok(Self { handle, view, device, _memory: memory })
    }
}

/// Asks the driver what the image needs, omniheap for it, and binds the two.
fn place(manager: &Manager<Vulkan>, image: vk::Image) -> Result<Memory, Box<dyn Error>> {
    let vulkan = manager.backend();
    // SAFETY: the image is this device's, and not disjoint.
    let needs = unsafe { vulkan.image_needs(image, Class::Tiled, HeapKind::Device) }?;
    if needs.alone != Alone::No {
        // SAFETY: the needs are the image's own.
        let block = unsafe { vulkan.allocate_alone(image, &needs) }?;
        // SAFETY: not bound yet; the block is kept beside the image.
        unsafe { vulkan.bind_image(image, &needs, &block, 0) }?;
        return Ok(Memory::Own(block));
    }
    let mut full = None;
    for request in needs.requests() {
        match manager.allocate(&request.name("image")) {
            Ok(allocation) => {
                let binding = allocation.binding();
                // SAFETY: not bound yet; the request is pinned, and the allocation is kept beside the image.
                unsafe {
                    vulkan.bind_image(image, &needs, binding.block(), binding.span().offset)
                }?;
                drop(binding);
                return Ok(Memory::Shared(allocation));
            }
            Err(why) => full = Some(why),
        }
    }
    Err(full.map_or("no heap takes the image".into(), Into::into))
}

/// All of an image that has neither levels nor layers.
pub(crate) fn whole(aspect: vk::ImageAspectFlags) -> vk::ImageSubresourceRange {
    vk::ImageSubresourceRange {
        aspect_mask: aspect,
        level_count: 1,
        layer_count: 1,
        ..Default::default()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: the engine finished its work before it drops images; here and below.
        unsafe { self.device.destroy_image_view(self.view, None) };
        // SAFETY: as above.
        unsafe { self.device.destroy_image(self.handle, None) };
    }
}
