//! Images of the engine, in memory from omniheap.
#![expect(unsafe_code, reason = "an engine talks to the driver itself")]
use core::error::Error;
use omniheap_core::{
    AllocateError, Allocation, AllocationId, BlockRange, Class, HeapKind, Manager, Request,
};
use omniheap_vulkan::{Alone, Block, Vulkan, ash, ash::vk};

/// An image and the memory behind it.
pub(crate) struct Image {
    pub(crate) native: Native,
    memory: Allocation<Vulkan>,
    shape: Shape,
}

/// The driver's objects; dropping them destroys them.
pub(crate) struct Native {
    pub(crate) handle: vk::Image,
    pub(crate) view: vk::ImageView,
    device: ash::Device,
}

/// Format, size and usage of an image.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) size: (u32, u32),
    pub(crate) format: vk::Format,
    pub(crate) usage: vk::ImageUsageFlags,
    pub(crate) aspect: vk::ImageAspectFlags,
}

impl Image {
    /// Makes an image in memory that `allocate` gives: a manager's, or a pool's.
    pub(crate) fn create(
        manager: &Manager<Vulkan>,
        shape: Shape,
        allocate: impl Fn(&Request<'_>) -> Result<Allocation<Vulkan>, AllocateError>,
    ) -> Result<Self, Box<dyn Error>> {
        let vulkan = manager.backend();
        let handle = make(vulkan, shape)?;
        let memory = place(manager, handle, allocate)?;
        let native = Native::complete(vulkan, handle, shape)?;
        Ok(Self { native, memory, shape })
    }

    pub(crate) fn allocation(&self) -> AllocationId {
        self.memory.id()
    }

    /// Returns an image like it at a place where it would move to.
    pub(crate) fn twin(
        &self,
        vulkan: &Vulkan,
        to: &BlockRange<'_, Block>,
    ) -> Result<Native, Box<dyn Error>> {
        let handle = make(vulkan, self.shape)?;
        // SAFETY: the image is this device's, and not disjoint.
        let needs = unsafe { vulkan.image_needs(handle, Class::Tiled, HeapKind::Device) }?;
        // SAFETY: not bound yet; the pass holds the bytes, and after it the allocation does.
        unsafe { vulkan.bind_image(handle, &needs, to.block, to.span.offset) }?;
        Native::complete(vulkan, handle, self.shape)
    }

    /// Takes its twin's place; no work uses the old one any more.
    pub(crate) fn become_twin(&mut self, twin: Native) {
        self.native = twin;
    }

    pub(crate) const fn extent(&self) -> vk::Extent3D {
        vk::Extent3D { width: self.shape.size.0, height: self.shape.size.1, depth: 1 }
    }
}

impl Native {
    /// Adds the view to an image that is bound.
    fn complete(vulkan: &Vulkan, handle: vk::Image, shape: Shape) -> Result<Self, Box<dyn Error>> {
        let device = vulkan.ash_device().clone();
        let info = vk::ImageViewCreateInfo::default()
            .image(handle)
            .view_type(vk::ImageViewType::TYPE_2D)
            .format(shape.format)
            .subresource_range(whole(shape.aspect));
        // SAFETY: the image is bound and has that aspect.
        let view = unsafe { device.create_image_view(&info, None) }?;
        Ok(Self { handle, view, device })
    }
}

fn make(vulkan: &Vulkan, shape: Shape) -> Result<vk::Image, vk::Result> {
    let (width, height) = shape.size;
    let info = vk::ImageCreateInfo::default()
        .image_type(vk::ImageType::TYPE_2D)
        .format(shape.format)
        .extent(vk::Extent3D { width, height, depth: 1 })
        .mip_levels(1)
        .array_layers(1)
        .samples(vk::SampleCountFlags::TYPE_1)
        .usage(shape.usage);
    // SAFETY: a plain image that every device of version 1.3 makes.
    unsafe { vulkan.ash_device().create_image(&info, None) }
}

/// Creates an image, allocates its memory from omniheap, and binds it.
fn place(
    manager: &Manager<Vulkan>,
    image: vk::Image,
    allocate: impl Fn(&Request<'_>) -> Result<Allocation<Vulkan>, AllocateError>,
) -> Result<Allocation<Vulkan>, Box<dyn Error>> {
    let vulkan = manager.backend();
    // SAFETY: the image is this device's, and not disjoint.
    let needs = unsafe { vulkan.image_needs(image, Class::Tiled, HeapKind::Device) }?;
    let memory = if needs.alone == Alone::No {
        // An image cannot move on its own, but the engine can make it again elsewhere.
        let requests = needs.requests().map(|request| request.moved_on_consent().name("image"));
        let mut tried = requests.map(|request| allocate(&request));
        tried.find(Result::is_ok).ok_or("no heap takes the image")??
    } else {
        // SAFETY: the needs are the image's own.
        unsafe { Vulkan::allocate_alone(manager, image, &needs) }?
    };
    let binding = memory.binding();
    // SAFETY: not bound yet; it moves only when the engine says so, and the allocation is kept beside it.
    unsafe { vulkan.bind_image(image, &needs, binding.block(), binding.span().offset) }?;
    drop(binding);
    Ok(memory)
}

/// Returns all of an image that has neither levels nor layers.
pub(crate) fn whole(aspect: vk::ImageAspectFlags) -> vk::ImageSubresourceRange {
    vk::ImageSubresourceRange {
        aspect_mask: aspect,
        level_count: 1,
        layer_count: 1,
        ..Default::default()
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: the engine finished its work before it drops images; here and below.
        unsafe { self.device.destroy_image_view(self.view, None) };
        // SAFETY: as above.
        unsafe { self.device.destroy_image(self.handle, None) };
    }
}
